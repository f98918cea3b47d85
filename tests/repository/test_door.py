"""Bytes from outside: one door, a corpus that is current, and mutations of it."""

import ast
from pathlib import Path

import fuzz
import pytest

ROOT = Path(__file__).parents[2]
DOOR = {"shuffle_sim/data/files.py"}
OWN = {"actors/deadlines.py", "actors/session.py"}  # read what the kernel says of processes
READS = {"open", "read_bytes", "read_text", "load", "fromfile", "memmap", "read_table", "read_csv"}
BY = {"np", "numpy", "os", "io", "pyarrow", "parquet", "csv", "zipfile", "json", "pickle", "Path"}


def reads(source: str) -> list[str]:
    """Calls that read a file: a bare open, a reader of a library, or a path's."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func
        if isinstance(name, ast.Name) and name.id == "open":
            found.append("open")
        if isinstance(name, ast.Attribute) and name.attr in READS:
            owner = name.value.id if isinstance(name.value, ast.Name) else ""
            if owner in BY or name.attr.startswith("read_"):
                found.append(f"{owner}.{name.attr}")
    return found


def test_only_the_door_reads_files():
    assert reads("np.load(p); p.read_bytes(); open(p)") == ["np.load", "p.read_bytes", "open"]
    allowed = {"os.open", "files.read_csv"}  # of folders and new files; and the door itself
    for package in ("shuffle_sim", "protocols", "actors"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name not in DOOR | OWN:
                assert set(reads(path.read_text())) <= allowed, name


def test_the_corpus_is_current_and_small(tmp_path):
    readers, kept = fuzz.Readers(tmp_path), fuzz.corpus()
    assert sum(len(data) for each in kept.values() for data in each) < 1 << 20
    for kind, known in kept.items():
        assert known, kind
        for path in sorted((fuzz.CORPUS / kind).glob("*")):
            came = fuzz.outcome(getattr(readers, kind), path.read_bytes())
            assert came == "taken" if path.name.startswith("honest") else "FOREIGN" not in came


@pytest.mark.full
def test_mutations_raise_nothing_foreign_and_take_no_memory():
    """1,000,000 by command: python -m tests.fuzz."""
    found, growth = fuzz.fuzz(3000, 3)
    assert sum(each.total() for each in found.values()) >= 2900
    assert not [came for each in found.values() for came in each if came.startswith("FOREIGN")]
    assert growth < fuzz.GROWTH


def test_a_foreign_error_is_seen():
    """Power: a reader that trusts what it reads."""

    def trusting(data):
        return {b"\x93": 1}[data[:1]]

    assert fuzz.outcome(trusting, b"\x93NUMPY") == "taken"
    assert fuzz.outcome(trusting, b"else").startswith("FOREIGN KeyError")
