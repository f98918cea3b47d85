"""Mutates what comes from outside: frames between all roles, broadcasts, journals and files.

    python tests/fuzz.py --mutations 1000000 --seed 1

Nothing but errors of the simulator may come out, and memory may grow by 64 MiB at most. What breaks
this is kept in tests/corpus/KIND, whose files are mutated, too, and read by the tests as they are.
A broadcast may cost 50 ms of the thread's processor time and 10 MiB before it is refused. Both are
measured at every one, the memory by `tracemalloc`; what is above is read twice more, and the least
counts. Broadcasts are those of every protocol and type that there is (`tests/broadcasts.py`).
`--seeds` writes the honest files there anew.
"""

import argparse
import hashlib
import json
import os
import random
import struct
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from broadcasts import worlds
from words import Asked, Pollution

from protocols import CarryVectorSum, SplitAndMixSum, VectorSum
from shuffle_sim import Privacy
from shuffle_sim.data.file_population import NpyFiles, ParquetFiles
from shuffle_sim.data.model import FORMAT, VERSION, load_model
from shuffle_sim.data.population import InMemory
from shuffle_sim.data.schema import read_schema
from shuffle_sim.data.tables import read
from shuffle_sim.errors import FrameError, RoundAbortedError, ShuffleSimError
from shuffle_sim.execution import budget_file
from shuffle_sim.execution.budget import Budget
from shuffle_sim.execution.budget_book import MOST_ROUNDS, charge_record
from shuffle_sim.execution.checkpoint import Checkpoint
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.rounds import known_exchange
from shuffle_sim.protocol.adversary import Coalition
from shuffle_sim.protocol.task import task_of
from shuffle_sim.roles import FIDELITIES, Analyzer, Deployment, Shuffler, UserShard
from shuffle_sim.roles.analyzer import reader
from shuffle_sim.roles.channel import Directory
from shuffle_sim.wire.frames import Context, parse, split_frames
from shuffle_sim.wire.sealing import KeyPair

CORPUS = Path(__file__).parent / "corpus"
GROWTH = 64 << 20
MOST_SECONDS, MOST_BYTES = 0.05, 10 << 20
"""That a broadcast may cost before it is refused."""
SHARES = {
    "frame": 0.36,
    "broadcast": 0.15,
    "routed": 0.13,
    "view": 0.13,
    "sealed": 0.02,
    "journal": 0.05,
    "budget": 0.02,
    "npy": 0.04,
    "npz": 0.03,
    "csv": 0.02,
    "parquet": 0.02,
    "model": 0.02,
    "schema": 0.01,
}
FRAMES = ("frame", "broadcast", "routed", "view", "sealed")
"""Of all mutations: what is read most often is mutated most often."""
PROTOCOL = VectorSum(n=48, d=3, g=4, b=9)
TASK = bytes(range(16))
ROWS = np.random.default_rng(0).normal(size=(48, 3)) / 4
_SIZE = struct.Struct(">II")
_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, 1e308, float("inf"), float("nan"), "", "a", "9", "\0", "number"),
    *([], [1], [[1], [2, 3]], [[]], {}, {"a": 1}, {"name": []}, ["a", "a"], "1900-13-45"),
)
_LEAVES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        63,
        2**17,
        2**31,
        2 * 10**8,
        2**62,
        2**63,
        2**64 - 1,
        -(2**63),
    ),
    *(0.0, -0.0, 0.001, 1.0, 5e-324, -1e300, 1e308, float("inf"), float("nan"), "", "t", "Datum"),
    *("CarryRandomizer", b"", bytes(8), bytes(24), [], ["t"], ["t", ["t", 0, 48]], ["d", "Datum"]),
    *(["a", "<f8", [3], bytes(24)], ["a", "<i8", [3], bytes(24)], ["a", "<f8", [0, 2**40], b""]),
    *(["d", "Logistic", 1.0], ["d", "Hinge", 1.0], [[[[[[]]]]]], ["t", *[0] * 300], "x" * 500),
)
_NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


MODEL = {
    "format": FORMAT,
    "version": VERSION,
    "loss": "Logistic",
    "schema": {
        "missing": "midpoint",
        "file": {"decimal": ".", "thousands": "", "delimiter": ","},
        "columns": {
            "a": {"type": "number", "bounds": [0, 1.5], "unit": "m"},
            "b": {"type": "date", "bounds": ["1990-01-01", "2030-01-01"]},
            "who": {"type": "category", "categories": ["p", "q"], "other": True},
        },
        "target": {"name": "ill", "type": "boolean"},
    },
    "columns": ["a", "b", "who=p", "who=q", "who=other"],
    "units": {"a": "m"},
    "weights": [0.5, 1, -2.0, 0.1, 0],
    "intercept": 0.25,
    "classes": [["false"], ["true"]],
    "target": "ill",
    "labels": "true against false",
    "target_bounds": None,
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
    "private": True,
}


SCHEMA = """
missing = "indicator"
person = "who"
[file]
decimal = "."
delimiter = ","
[columns.a]
type = "number"
bounds = [0, 1.5]
unit = "m"
[columns.b]
type = "date"
bounds = [1990-01-01, "2030-01-01"]
"""


def deployment(fidelity: str, protocol: Any = PROTOCOL, **more: Any) -> Deployment:
    """One round of a small sum, some of whose users send on their own."""
    return Deployment(
        protocol=protocol,
        task=TASK,
        entropy=7,
        fidelity=fidelity,
        block_size=16,
        adversary=Coalition(0.3),
        agreed=task_of(protocol),
        **more,
    )


def asked(world: Deployment) -> bytes:
    """The broadcast of its round."""
    planned = Analyzer(world).plan()
    assert planned is not None
    return planned.broadcast


WORLDS = {each: deployment(each) for each in FIDELITIES}
ASKED = asked(WORLDS["literal"])
SYMBOLS = SplitAndMixSum.calibrated(n=48, privacy=Privacy(3.0, 1e-4), rounding=0.3)
WORDS = Asked(48, Pollution(300, 0.01))
COLUMNS = CarryVectorSum(n=1000, d=3, g=0.9, b=4, levels=1)
SPLIT = [
    *(deployment("literal", each, shuffler_shards=3) for each in (PROTOCOL, SYMBOLS, COLUMNS)),
    deployment("aggregate", shuffler_shards=3),
    *(deployment(each, WORDS, shuffler_shards=3) for each in ("literal", "aggregate")),
]
"""Bits, symbols, labels of several columns, sums, and words: between shards and in a view."""
COUNTED = {each: deployment(each, WORDS) for each in FIDELITIES}
SEALED = [
    deployment("literal", security="transport"),
    deployment("literal", VectorSum(n=48, d=1, g=2, b=2), security="onion"),
    deployment("literal", WORDS, security="onion"),
]
KEYS = KeyPair(), KeyPair()
"""Of the users and of the shuffler."""


BAD = "FOREIGN", "COSTLY"


class Known(RunIdentity):
    """A run whose marks are known: they are the slow part of opening a journal."""

    marks = (("seed", "5"), ("protocol", "VectorSum"), ("software", "shuffle-sim"))


CHARGE = ("broadcast", b"one"), ("cohort", b"all"), ("event", b""), ("content of the data", b"")
IDENTITY = Known(values={}, settings={}, seed=5, task=TASK, entropy=7)


def seeds() -> dict[str, list[bytes]]:
    """What honest code makes, by kind."""
    frames = []
    for world in (*WORLDS.values(), *COUNTED.values()):
        users = UserShard(world, InMemory(_rows(world)), world.blocks())
        frames += [bytes(each) for each in split_frames(users.answer(asked(world))[0])][:8]
    routed, views = [], []
    for world in SPLIT:
        sent = _answered(world)
        routed.append(Shuffler(world, 1).collect(asked(world), [sent])[0])
        whole = replace(world, shuffler_shards=1)
        view, _ = Shuffler(whole).shuffle(asked(world), [sent])
        views += [bytes(each) for each in split_frames(view)]
        if world is SPLIT[0]:
            shards = [Shuffler(world, shard) for shard in range(3)]
            views += _view(world, shards, sent)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "frame": frames,
            "broadcast": [
                ASKED,
                *(each for world in worlds().values() for each in world.broadcasts),
            ],
            "routed": routed,
            "view": views,
            "sealed": [bytes(each) for world in SEALED for each in split_frames(_answered(world))],
            **_files(Path(folder)),
        }


def _rows(world: Deployment) -> Any:
    if world.protocol in (SYMBOLS, WORDS):
        return abs(np.round(4 * ROWS[:, 0]))
    protocol: Any = world.protocol
    return np.resize(ROWS[:, : protocol.d], (protocol.users, protocol.d))


def _answered(world: Deployment) -> bytes:
    """What its users send."""
    users = UserShard(world, InMemory(_rows(world)), world.blocks())
    return _keyed(users, 0).answer(asked(world))[0]


def _keyed(role: Any, place: int) -> Any:
    """The role with the same keys every time."""
    users, shuffler = (each.public for each in KEYS)
    role._keys = KEYS[place]
    role.meet(Directory((users,), (shuffler,), (shuffler,)))
    return role


def _view(world: Deployment, shards: list[Shuffler], sent: bytes) -> list[bytes]:
    """Frames of the view of several shards: sizes differ from label to label."""
    broadcast = asked(world)
    parts = [shard.collect(broadcast, [sent]) for shard in shards]
    for target, shard in enumerate(shards):
        shard.accept(broadcast, [part[target] for part in parts])
    kept = [replace(part[-1], dropped=parts[0][-1].dropped) for part in parts]
    found = []
    for shard in shards:
        chunks = len(shard.release(broadcast, kept).chunks)
        found += [bytes(each) for each in split_frames(shard.view(broadcast, 0, chunks)[0])]
    return found


def _files(folder: Path) -> dict[str, list[bytes]]:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table({"a": ROWS[:, 0], "b": np.arange(48), "who": [f"p{i % 5}" for i in range(48)]})
    np.save(folder / "rows.npy", ROWS)
    np.save(folder / "turned.npy", np.asfortranarray(ROWS))
    np.savez(folder / "stored.npz", a=ROWS[:, 0], b=np.arange(48))
    np.savez_compressed(folder / "packed.npz", table=ROWS)
    csv.write_csv(table, folder / "table.csv")
    parquet.write_table(table, folder / "table.parquet", row_group_size=20)
    run(PROTOCOL, ROWS, seed=5, checkpoint=folder / "run")
    source = (folder / "run" / FILE).read_bytes()
    with Checkpoint(folder / "known", IDENTITY) as journal:
        journal.charge(CHARGE)
    (folder / "table.model").write_text(json.dumps(MODEL))
    (folder / "table.schema").write_text(SCHEMA)
    shared = Budget.create(folder / "shared", privacy=Privacy(9.0, 1e-6), population="p", users=48)
    for name in ("a", "b"):
        run(PROTOCOL, ROWS, seed=5, budget=shared.report(name, first=0 if name == "a" else None))
    with shared._file.change() as change:
        change.append(charge_record(1, 0, change.book.reports[0].charges[0]))
    bodies = [*_bodies((folder / "known" / FILE).read_bytes()), _bodies(source)[2]]
    found = {
        kind: [path.read_bytes() for path in sorted(folder.glob(f"*.{kind}"))]
        for kind in ("npy", "npz", "csv", "parquet", "model", "schema")
    }
    return {"journal": [_chained(bodies)], "budget": [shared.path.read_bytes()], **found}


def _bodies(journal: bytes) -> list[bytes]:
    """Of the records of a journal."""
    found, at = [], 0
    while at + 40 <= len(journal):
        size, _ = _SIZE.unpack_from(journal, at)
        found.append(journal[at + 40 : at + 40 + size])
        at += 40 + size
    return found


def corpus() -> dict[str, list[bytes]]:
    """The kept files by kind."""
    return {
        kind: [path.read_bytes() for path in sorted((CORPUS / kind).glob("*"))] for kind in SHARES
    }


# How bytes are changed


def mutant(kind: str, known: list[bytes], rng: random.Random) -> bytes:
    """One of the known, changed once or a few times; often so that its outer checks still hold."""
    data = bytearray(rng.choice(known))
    if kind in ("journal", "budget") and rng.random() < 0.8:
        head = budget_file._LENGTH.size if kind == "budget" else 0
        bodies = _bodies(bytes(data[head:]))
        at = rng.randrange(len(bodies)) if bodies else 0
        bodies[at : at + 1] = [
            bytes(_changed(bytearray(each), known, rng)) for each in bodies[at : at + 1]
        ]
        if rng.random() < 0.1:
            bodies[at:at] = rng.choices(bodies, k=rng.randrange(3))
        chained = _chained(bodies)
        return (budget_file._length(head + len(chained)) if head else b"") + chained
    if kind == "model" and rng.random() < 0.7:
        return _other_values(bytes(data), rng)
    if kind in FRAMES and rng.random() < 0.5 and len(data) > 56:
        # Inside the payload, with a header that fits it.
        try:
            frame = parse(bytes(data))
        except ShuffleSimError:
            return bytes(_changed(data, known, rng))
        payload = bytes(_changed(bytearray(frame.payload), known, rng))
        context = frame.context
        if kind == "broadcast":
            if rng.random() < 0.7:
                payload = _other_leaves(frame.payload, known, rng)
            index = rng.choice((context.round, context.round, context.round, 1, 2**32 - 1))
            context = Context.of_broadcast(context.task, index, payload)
        return replace(frame, payload=payload, context=context).tobytes()
    data = _changed(data, known, rng)
    if kind in FRAMES and rng.random() < 0.7:
        data[:4] = max(0, len(data) - 4).to_bytes(4, "big")
    return bytes(data)


def _other_values(data: bytes, rng: random.Random) -> bytes:
    """JSON with one value, anywhere, in place of another."""
    try:
        whole = json.loads(data)
    except ValueError:
        return data
    places: list[tuple[Any, Any]] = []
    found = [whole]
    while found:
        at = found.pop()
        keys = at if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        places += [(at, key) for key in keys]
        found += [at[key] for key in keys]
    at, key = rng.choice(places or [({}, "")])
    at[key] = rng.choice(_ODD)
    if isinstance(at, dict) and rng.random() < 0.3:
        del at[key]
    return json.dumps(whole).encode()


def _other_leaves(payload: bytes, known: list[bytes], rng: random.Random) -> bytes:
    """msgpack with a few values, anywhere, in place of others; or values of another broadcast."""
    try:
        whole = msgpack.unpackb(payload)
        donor = msgpack.unpackb(parse(rng.choice(known)).payload)
    except (ValueError, msgpack.UnpackException):
        return payload
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places, others = ([*_nodes(each)] for each in (whole, donor))
        if not places:
            return payload
        at, key = rng.choice(places)
        how = rng.random()
        if how < 0.6 or not others:
            at[key] = deepcopy(rng.choice(_LEAVES))
        elif how < 0.9:
            group, place = rng.choice(others)
            at[key] = deepcopy(group[place])
        elif how < 0.95:
            del at[key]
        else:
            at.insert(key, deepcopy(rng.choice(_LEAVES)))
    try:
        packed: bytes = msgpack.packb(whole)
    except (ValueError, OverflowError):
        return payload
    return packed


def _nodes(tree: Any) -> Iterator[tuple[list[Any], int]]:
    """Every place in nested lists."""
    if isinstance(tree, list):
        for key, value in enumerate(tree):
            yield tree, key
            yield from _nodes(value)


def _chained(bodies: list[bytes]) -> bytes:
    written, before = b"", b""
    for body in bodies:
        before = hashlib.sha256(before + body).digest()
        written += _SIZE.pack(len(body), len(body) ^ 0xFFFFFFFF) + before + body
    return written


def _changed(data: bytearray, known: list[bytes], rng: random.Random) -> bytearray:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(9)
        if how < 3 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif how == 3:
            data[at : at + 1] = bytes(
                [rng.choice((0, 0x7F, 0x80, 0x90, 0x93, 0xC0, 0xC6, 0xDD, 0xFF))]
            )
        elif how == 4:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(_NUMBERS) % 256**size
            data[at : at + size] = number.to_bytes(size, rng.choice(("big", "little")))
        elif how == 5:
            del data[at : at + rng.choice((1, 2, 4, 16, 64))]
        elif how == 6:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif how == 7:
            other = rng.choice(known)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + rng.choice((4, 16, 64))]
        else:
            del data[at:]
    return data


# How they are read


class Readers:
    """One for each kind, which takes the bytes as the program would."""

    def __init__(self, folder: Path) -> None:
        """Files are written to a folder."""
        self._folder = folder
        self._journal = folder / "journal"
        self._journal.mkdir(exist_ok=True)

    def frame(self, data: bytes) -> None:
        """By a shuffler at each fidelity."""
        for world in (*WORLDS.values(), *COUNTED.values()):
            shuffler = Shuffler(world)
            *_, record = shuffler.collect(asked(world), [data])
            assert record.accepted + sum(record.dropped.values()) <= 48 + 1

    def broadcast(self, data: bytes) -> None:
        """By users of the run that it names."""
        known = WORLDS["aggregate"]
        if data[9:25] != TASK and data[9:25] in worlds():
            known = worlds()[data[9:25]].deployment
        known.opened(data)

    def routed(self, data: bytes) -> None:
        """By a shard of the shuffler, from another; then the round is released if it is whole."""
        for world in SPLIT:
            shard, broadcast = Shuffler(world), asked(world)
            randomizer = world.opened(broadcast).randomizer
            *_, record = shard.collect(broadcast, [])
            with suppress(FrameError):
                shard.accept(broadcast, [data])
                shares = Counter({0: 48 * randomizer.report_messages // 3})
                with suppress(RoundAbortedError):
                    shard.release(broadcast, [replace(record, accepted=48, shares=shares)])

    def view(self, data: bytes) -> None:
        """By the analyzer, or a station that reads for it."""
        for world in SPLIT:
            with suppress(FrameError):
                reader(world, asked(world)).receive(data)

    def sealed(self, data: bytes) -> None:
        """By a shuffler with the keys that were sealed to."""
        for world in SEALED:
            *_, record = _keyed(Shuffler(world), 1).collect(asked(world), [data])
            assert record.accepted + sum(record.dropped.values()) <= 48 + 1

    def model(self, data: bytes) -> None:
        """As `predict` reads it."""
        (self._folder / "model.json").write_bytes(data)
        model = load_model(self._folder / "model.json")
        table = self._folder / "table.csv"
        table.write_text("a,b,who\n1,2020-01-01,p\n0.5,1999-12-31,q\n")
        rows, _ = model.table(table)
        model.predict(rows)
        json.dumps(model.public())

    def schema(self, data: bytes) -> None:
        """And a table by it."""
        path = self._written(data, "toml")
        declared = read_schema(path)
        table = self._folder / "table.csv"
        table.write_text("a,b,who\n1,2020-01-01,p\n0.5,1999-12-31,q\n")
        read(table, None, {}, None, declared=declared)

    def journal(self, data: bytes) -> None:
        """As a run that is resumed reads it."""
        (self._journal / FILE).write_bytes(data)
        with Checkpoint(self._journal, IDENTITY, resume=True) as journal:
            outcome = journal.charge(CHARGE)
            if outcome is not None:
                known_exchange(outcome, WORLDS["aggregate"], ASKED)

    def budget(self, data: bytes) -> None:
        """As a run that is charged to it reads it."""
        spent = Budget(self._written(data, "budget")).reports
        assert sum(len(each.charges) for each in spent) <= MOST_ROUNDS

    def npy(self, data: bytes) -> None:
        """As shards read it."""
        rows = NpyFiles([self._written(data, "npy")])
        rows.rows(0, min(rows.users, 64))

    def npz(self, data: bytes) -> None:
        """As a table."""
        read(self._written(data, "npz"), None, {}, (-9.0, 9.0))

    def csv(self, data: bytes) -> None:
        """As a table."""
        read(self._written(data, "csv"), None, {}, (-9.0, 99.0), person="who")

    def parquet(self, data: bytes) -> None:
        """As a table, and as shards read it."""
        path = self._written(data, "parquet")
        try:
            read(path, None, {}, (-9.0, 99.0), person="who")
        except ShuffleSimError:
            rows = ParquetFiles([path], ["a", "b"])
            rows.rows(0, min(rows.users, 64))

    def _written(self, data: bytes, kind: str) -> Path:
        path = self._folder / f"file.{kind}"
        path.write_bytes(data)
        return path


def outcome(take: Callable[[bytes], None], data: bytes) -> str:
    """What came of it: taken, refused, or the foreign error's name."""
    try:
        take(data)
    except ShuffleSimError:
        return "refused"
    except Exception as error:  # what is looked for
        return f"FOREIGN {type(error).__name__}: {str(error)[:100]}"
    return "taken"


class Meter:
    """What messages of a kind cost at most before they are refused."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.seconds, self.bytes = 0.0, 0

    def outcome(self, take: Callable[[bytes], None], data: bytes) -> str:
        """As `outcome`; COSTLY where a refusal cost too much, three times."""
        came, seconds, size = self._measured(take, data)
        if came != "refused":
            return came
        for _ in range(2):
            if seconds > MOST_SECONDS or size > MOST_BYTES:
                _, again, other = self._measured(take, data)
                seconds, size = min(seconds, again), min(size, other)
        self.seconds, self.bytes = max(self.seconds, seconds), max(self.bytes, size)
        if seconds > MOST_SECONDS or size > MOST_BYTES:
            return f"COSTLY {seconds * 1000:.0f} ms, {size >> 20} MiB"
        return came

    def _measured(self, take: Callable[[bytes], None], data: bytes) -> tuple[str, float, int]:
        tracemalloc.reset_peak()
        before, start = tracemalloc.get_traced_memory()[0], time.thread_time()
        came = outcome(take, data)
        seconds = time.thread_time() - start
        return came, seconds, tracemalloc.get_traced_memory()[1] - before


COST = Meter()


def memory() -> int:
    """The most bytes that the process ever had in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def fuzz(mutations: int, seed: int, kinds: dict[str, float] = SHARES, *, keep: bool = False) -> Any:
    """Mutate; what came of it by kind, and by how many bytes memory grew after a warm-up.

    `COST` has what refused broadcasts cost at most.
    """
    rng, found = random.Random(seed), {kind: Counter[str]() for kind in kinds}
    known = {kind: honest + corpus()[kind] for kind, honest in seeds().items() if kind in kinds}
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        readers, first = Readers(Path(folder)), 0
        for part in range(-1, 20):  # the first warms up
            for kind, share in kinds.items():
                take = getattr(readers, kind)
                many = 200 if part < 0 else round(mutations * share / 20)
                if kind == "broadcast":
                    tracemalloc.start()
                for _ in range(many):
                    data = mutant(kind, known[kind], rng)
                    came = COST.outcome(take, data) if kind == "broadcast" else outcome(take, data)
                    if part >= 0:
                        found[kind][came] += 1
                    if came.startswith(BAD) and keep:
                        name = hashlib.sha256(data).hexdigest()[:12]
                        (CORPUS / kind).mkdir(parents=True, exist_ok=True)
                        (CORPUS / kind / name).write_bytes(data)
                tracemalloc.stop()
            if part < 0:
                first = memory()
    return found, memory() - first


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=list(SHARES), help="mutate these only")
    parser.add_argument("--seeds", action="store_true", help="write the honest files anew, and end")
    asked = parser.parse_args()
    if asked.seeds:
        for kind, honest in seeds().items():
            (CORPUS / kind).mkdir(parents=True, exist_ok=True)
            for index, data in enumerate(honest[:6]):
                (CORPUS / kind / f"honest-{index}").write_bytes(data)
        return
    start = time.perf_counter()
    kinds = SHARES if asked.kind is None else {asked.kind: 1.0}
    found, growth = fuzz(asked.mutations, asked.seed, kinds, keep=True)
    foreign = 0
    for kind, counted in found.items():
        for came, many in counted.most_common():
            print(f"{kind:10} {many:9,} {came}")
            foreign += many * came.startswith(BAD)
    total = sum(map(Counter.total, found.values()))
    took = time.perf_counter() - start
    print(f"{total:,} mutations in {took:.0f} s: {foreign} foreign errors, {growth >> 20} MiB more")
    least = f"{COST.seconds * 1000:.1f} ms and {COST.bytes / 2**20:.2f} MiB"
    print(f"a refused broadcast cost at most {least}")
    raise SystemExit(1 if foreign or growth > GROWTH else os.EX_OK)


if __name__ == "__main__":
    main()
