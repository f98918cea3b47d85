"""A hook of the docs build: the pages of the reference, from what they are about.

There is one page for each package with all its modules, and one of the command line, which is made
from the commands. So a new module or option appears by itself, and none is stale.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TOP = ("shuffle_sim", "protocols", "actors")
COMMAND = "shuffle_sim.cli"  # described on the page of the command line
EXIT_CODES = {
    0: "done",
    1: "failed, or a check or a comparison did",
    2: "bad input; nothing was run",
    3: "an audit could not check all",
    130: "interrupted (Ctrl-C)",
    141: "nobody reads what is printed; files are written",
    143: "terminated",
}


def packages(root: Path = ROOT) -> dict[str, list[str]]:
    """The public modules of every package, the package itself first."""
    found = {}
    for top in TOP:
        for init in sorted(root.glob(f"{top}/**/__init__.py")):
            name = ".".join(init.parent.relative_to(root).parts)
            modules = sorted(path.stem for path in init.parent.glob("[!_]*.py"))
            if name != COMMAND:
                found[name] = [name, *(f"{name}.{module}" for module in modules)]
    return found


def walked(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """All commands by name."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from walked(each, f"{before}{name} ")
        else:
            yield before + name, each


def commands() -> str:
    """The page of the command line."""
    from typer.main import get_command

    from shuffle_sim.cli.app import SUMMARIES, app

    codes = "\n".join(f"| {code} | {text} |" for code, text in EXIT_CODES.items())
    parts = [
        "# Command line",
        "Numbers may be written as `10000`, `1e4`, `10_000`, `10k`, `1M` or `1G`. Errors are one "
        "line on the standard error. `-h` is `--help`. `shuffle-sim --install-completion` makes "
        "the shell complete names.",
        "| exit code | meaning |\n|---|---|\n" + codes,
    ]
    for name, command in walked(get_command(app)):
        parts.append(_command(name, command, json=name in SUMMARIES))
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: Any, *, json: bool) -> str:
    """A command: what it does, examples, its options, and what its JSON holds."""
    paragraphs = [" ".join(each.split()) for each in (command.help or "").split("\n\n")]
    told = [each for each in paragraphs if not each.startswith("Example:")]
    examples = [each.removeprefix("Example: ") for each in paragraphs if each not in told]
    rows = "\n".join(
        f"| `{', '.join(each.opts) if each.param_type_name == 'option' else each.name}` "
        f"| {_default(each)} | {(getattr(each, 'help', None) or '').replace('|', chr(92) + '|')} |"
        for each in command.params
        if each.name != "help"
    )
    parts = [f"## {name}", *told]
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    parts.append("| option | default | |\n|---|---|---|\n" + rows)
    if json:
        parts.append(f"`shuffle-sim --json-schema '{name}'` prints the schema of its `--json`.")
    return "\n\n".join(parts)


def _default(option: Any) -> str:
    given = option.default
    if option.required:
        return "must be given"
    return "" if given in (None, False, ()) or callable(given) else f"`{given}`"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, after the first page of the reference."""
    (reference,) = (entry["Reference"] for entry in config.nav if "Reference" in entry)
    pages = [{"Command line": "reference/commands.md"}]
    reference[1:1] = pages + [{package: f"reference/{package}.md"} for package in packages()]
    return config


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Make the pages."""
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    for package, modules in packages().items():
        text = "\n\n".join([f"# {package}", *(f"::: {module}" for module in modules)])
        files.append(File.generated(config, f"reference/{package}.md", content=text + "\n"))
    return files
