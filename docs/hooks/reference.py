"""A hook of the docs build: one page of the reference for each package, with all its modules.

The pages are made from the files, so that a new module appears by itself.
"""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TOP = ("shuffle_sim", "protocols", "actors")
COMMAND = "shuffle_sim.cli"  # described by its own --help


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


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, after the first page of the reference."""
    (reference,) = (entry["Reference"] for entry in config.nav if "Reference" in entry)
    reference[1:1] = [{package: f"reference/{package}.md"} for package in packages()]
    return config


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Make the pages."""
    for package, modules in packages().items():
        text = "\n\n".join([f"# {package}", *(f"::: {module}" for module in modules)])
        files.append(File.generated(config, f"reference/{package}.md", content=text + "\n"))
    return files
