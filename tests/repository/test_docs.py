"""The documentation: its examples run, its pages are built, readable offline and complete."""

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from commands import command

from shuffle_sim import registry

ROOT = Path(__file__).parents[2]


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rebuild = loaded(".ci/rebuild.py")
SOURCES = {str(page.relative_to(ROOT)): page.read_text() for page in rebuild.pages()}


@pytest.mark.full
@pytest.mark.parametrize(
    "page", [page for page, text in SOURCES.items() if rebuild.BLOCK.search(text)]
)
@pytest.mark.long_parameters("docs/protocol.md", "docs/counts.md", "docs/train.md")
def test_every_example_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    registered = dict(registry._own)
    try:
        assert rebuild.rebuilt(page, SOURCES[page], command) == SOURCES[page]
    finally:
        registry.forget()  # what a page registers is not shipped: tests that come later miss it
        for (kind, name), thing in registered.items():
            registry.register(kind, name, thing)


STALE = """```python
print(7 * 6)
```

```text
41
```

```console
$ shuffle-sim --version
shuffle-sim 0.0.7
```
"""


@pytest.mark.full
def test_a_stale_number_is_found_and_rebuilt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    version = importlib.metadata.version("shuffle-sim")
    true = STALE.replace("41", "42").replace("0.0.7", version)
    assert rebuild.rebuilt("stale", STALE) == true
    assert rebuild.rebuilt("true", true) == true
    unlike = true.replace(f"shuffle-sim {version}", "37 apples")
    with pytest.raises(RuntimeError, match="37 apples"):
        rebuild.rebuilt("unlike", unlike)
    with pytest.raises(RuntimeError, match="status 2"):
        rebuild.rebuilt("broken", true.replace("--version", "--nothing"))


def test_every_picture_has_the_command_that_makes_it():
    for page, text in SOURCES.items():
        drawn = {file: made_by for made_by, file in rebuild.FIGURE.findall(text)}
        assert set(drawn) == set(re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", text)), page
        for file, made_by in drawn.items():
            assert (ROOT / page).with_name(file).is_file()
            for script in re.findall(r"python (\S+\.py)", made_by):
                assert (ROOT / script).is_file()


# Prose


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page without code, displayed formulas, tables, headings and HTML."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"\$[^$]+\$|`[^`]+`", "X", text)  # a formula or a name is one word
    text = re.sub(r"<(\w+)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n|^\s*(?:[-*:]|\d+\.) +", text, flags=re.MULTILINE):
        if not paragraph.lstrip().startswith(("|", "#", "!!!")):
            yield from re.split(r"(?:(?<=[.?!])|(?<=[.?!][)*\"]))\s+(?=\W*[A-Z0-9])", paragraph)


def words(sentence: str) -> int:
    return len(re.findall(r"\S*\w\S*", sentence))


PROSE = SOURCES | {page.name: page.read_text() for page in ROOT.glob("*.md")}


@pytest.mark.parametrize("page", PROSE)
def test_every_sentence_is_short(page):
    long = [" ".join(each.split()) for each in sentences(PROSE[page]) if words(each) > 25]
    assert not long


def test_a_long_sentence_would_be_found():
    text = "Short one. " + "Word " * 26 + "end. And $a + b + c$ is `one two three` word."
    assert [words(each) for each in sentences(text)] == [2, 27, 5]


# The built pages


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser loads to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            loads = name in {"src", "srcset", "poster", "data"} or (tag, name) == ("link", "href")
            if value and loads:
                self.addresses.append(value)
            if value and name == "style":
                self.addresses += in_style(value)


def in_style(text: str) -> list[str]:
    return re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", text)


def outside(html: str) -> list[str]:
    """The addresses on other hosts that an HTML page loads."""
    parser = Loaded()
    parser.feed(html)
    styles = re.findall(r"<style[^>]*>(.*?)</style>", html, re.DOTALL)
    loaded = parser.addresses + [address for style in styles for address in in_style(style)]
    return [address for address in loaded if re.match(r"(\w+:)?//", address)]


@pytest.mark.long
def test_the_pages_load_nothing_from_another_host(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert not {page.name: found for page in pages if (found := outside(page.read_text()))}
    assert not any('class="mermaid"' in page.read_text() for page in pages)  # its script is remote
    for style in site.rglob("*.css"):
        assert not [each for each in in_style(style.read_text()) if re.match(r"(\w+:)?//", each)]


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://cdn.example/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img src="http://example.org/a.png">',
        "<style>@import 'https://fonts.example/a.css';</style>",
        '<p style="background: url(https://example.org/a.png)">',
    ],
)
def test_a_page_that_loads_from_another_host_would_be_found(planted):
    assert len(outside(f"<html><a href='https://example.org'>a link</a>{planted}</html>")) == 1


@pytest.mark.full
def test_every_formula_is_mathml(site):
    formulas = 0
    for page, text in SOURCES.items():
        if page.startswith("docs/"):
            prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
            built = site / Path(page).relative_to("docs").with_suffix(".html")
            written = re.findall(r"\$\$.+?\$\$|\$(?!\s)[^$]+?(?<!\s)\$", prose, re.DOTALL)
            assert built.read_text().count("<math") == len(written), page
            assert "arithmatex" not in built.read_text()
            formulas += len(written)
    assert formulas > 300


def test_a_formula_with_an_unknown_command_ends_the_build():
    mathematics = loaded("docs/hooks/mathematics.py")
    page = '<span class="arithmatex">\\({}\\)</span>'
    assert "<math>" in mathematics.on_page_content(page.format("a &lt; b"))
    with pytest.raises(mathematics.PluginError, match="nosuch"):
        mathematics.on_page_content(page.format(r"\nosuch{a}"))


def test_every_public_module_is_in_the_reference(site):
    listed = (site / "reference" / "index.html").read_text()
    found = 0
    for package, modules in loaded("docs/hooks/reference.py").packages().items():
        assert f'href="{package}.html"' in listed, package
        page = (site / "reference" / f"{package}.html").read_text()
        for module in modules:
            assert f'id="{module}"' in page, module
        found += len(modules)
    public = [
        path
        for top in ("shuffle_sim", "protocols", "actors")
        for path in (ROOT / top).rglob("*.py")
        if not path.name.startswith("_") and "cli" not in path.parts
    ]
    assert found == len(public) + len(loaded("docs/hooks/reference.py").packages())


def test_the_page_of_the_command_line_is_complete(site):
    from typer.main import get_command

    from shuffle_sim.cli.app import app

    reference = loaded("docs/hooks/reference.py")
    page, found = reference.commands(), dict(reference.walked(get_command(app)))
    sections = dict(each.split("\n", 1) for each in page.split("\n## ")[1:])
    assert set(sections) == set(found)
    for name, made in found.items():
        for option in made.params:
            assert all(each in sections[name] for each in option.opts), (name, option.name)
    assert {"sum", "experiment run"} <= set(found)
    built = (site / "reference" / "commands.html").read_text()
    assert all(f"<td>{code}</td>" in built for code in reference.EXIT_CODES)
    assert "--noise-ratio" in built


# What the code says of the documentation


@pytest.mark.full
def test_the_sections_that_a_basis_names_exist():
    headings = {
        heading
        for page, text in SOURCES.items()
        if page.startswith("docs/theory/")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    named = set()
    for path in (ROOT / "shuffle_sim").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in re.findall(r"\(docs:\s+theory,\s+([^)]+)\)", node.value):
                    named |= set(re.split(r" and |, ", " ".join(found.split())))
    assert len(named) >= 5
    assert named <= headings


def test_the_pages_that_the_code_names_exist():
    named = {
        (found[0], found[1])
        for top in ("shuffle_sim", "protocols", "actors", "tests", "examples", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
        for found in re.findall(
            r"(docs/[\w/-]+\.md)(?:,\s+\"([^\"]+)\")?", path.read_text().replace("\n    ", " ")
        )
    }
    assert len(named) >= 10
    for page, heading in named:
        assert page in SOURCES
        if heading:
            assert re.search(rf"^#+ {re.escape(' '.join(heading.split()))}$", SOURCES[page], re.M)
