"""A third party: a module and its entry points outside the packages, as an installed project."""

import importlib
import sys

from shuffle_sim import registry


def installed(folder, monkeypatch, name, source, **groups):
    """Install module `name` with entry points {group: {name: object}} for one test.

    Args:
        folder: an empty folder.
        monkeypatch: of pytest; takes everything back.
        name: of the module, and of the project.
        source: of the module.
        groups: by group without "shuffle_sim.", each {entry point: attribute of the module}.
    """
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in groups.items():
        lines.append(f"[shuffle_sim.{group}]")
        lines += [f"{entry} = {name}:{attribute}" for entry, attribute in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    forget()
    monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    return sys.modules[name]


def forget():
    """What is registered is looked up again."""
    registry.forget()
