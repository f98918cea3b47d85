"""Bytes from outside: one door, a corpus that is current, and mutations of it."""

import ast
import time
import tracemalloc
from pathlib import Path

import broadcasts
import fuzz
import pytest

from shuffle_sim.errors import FrameError

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


@pytest.mark.full
def test_only_the_door_reads_files():
    assert reads("np.load(p); p.read_bytes(); open(p)") == ["np.load", "p.read_bytes", "open"]
    allowed = {"os.open", "files.read_csv"}  # of folders and new files; and the door itself
    for package in ("shuffle_sim", "protocols", "actors"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name not in DOOR | OWN:
                assert set(reads(path.read_text())) <= allowed, name


@pytest.mark.slow
def test_the_corpus_is_current_and_small(tmp_path):
    readers, kept = fuzz.Readers(tmp_path), fuzz.corpus()
    assert sum(len(data) for each in kept.values() for data in each) < 1 << 20
    for kind, known in kept.items():
        assert known, kind
        for path in sorted((fuzz.CORPUS / kind).glob("*")):
            came = fuzz.outcome(getattr(readers, kind), path.read_bytes())
            assert came == "taken" if path.name.startswith("honest") else "FOREIGN" not in came


@pytest.mark.long
def test_mutations_raise_nothing_foreign_and_take_no_memory():
    """1,000,000 by command: python tests/fuzz.py."""
    found, growth = fuzz.fuzz(3000, 3)
    assert sum(each.total() for each in found.values()) >= 2900
    assert not [came for each in found.values() for came in each if came.startswith(fuzz.BAD)]
    assert growth < fuzz.GROWTH


@pytest.mark.full
def test_every_protocol_and_type_that_is_broadcast_is_mutated():
    """Whatever is registered or shipped, found by class: a new one needs a round there."""
    known = broadcasts.worlds().values()
    sent = set[type]().union(*map(broadcasts.sent, known))
    assert not broadcasts.concrete() - sent
    for world in known:
        for each in world.broadcasts:
            assert fuzz.outcome(world.deployment.opened, each) == "taken"
            with pytest.raises(FrameError):  # of another run
                fuzz.WORLDS["aggregate"].opened(each)


@pytest.mark.full
def test_a_costly_refusal_is_seen():
    """Power: a reader that takes 16 MiB, or a tenth of a second, before it refuses."""

    def large(data):
        raise FrameError("not-agreed", str(len(bytes(1 << 24))))

    def slow(data):
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        raise FrameError("not-agreed")

    def cheap(data):
        raise FrameError("not-agreed")

    tracemalloc.start()
    try:
        assert fuzz.Meter().outcome(large, b"").startswith("COSTLY")
        assert fuzz.Meter().outcome(slow, b"").startswith("COSTLY")
        assert fuzz.Meter().outcome(cheap, b"") == "refused"
    finally:
        tracemalloc.stop()


def test_a_foreign_error_is_seen():
    """Power: a reader that trusts what it reads."""

    def trusting(data):
        return {b"\x93": 1}[data[:1]]

    assert fuzz.outcome(trusting, b"\x93NUMPY") == "taken"
    assert fuzz.outcome(trusting, b"else").startswith("FOREIGN KeyError")
