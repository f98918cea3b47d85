"""200,000 mutated reports: each accepted unchanged or dropped under a named reason, nothing else
escapes, memory stays bounded.

The reference decides by encoding again what a frame at fixed places seems to say; it shares no code
with the shuffler.
"""

import hashlib
import random
import struct
import tracemalloc
from collections import Counter
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from rounds import deployed

from protocols import VectorSum
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.adversary import Coalition
from shuffle_sim.roles import FIDELITIES, Analyzer, Shuffler, UserShard
from shuffle_sim.wire.frames import MAX_FRAME, Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

N, D, BLOCK = 64, 3, 16
PROTOCOL = VectorSum(n=N, d=D, g=4, b=9)  # 39 bits a report: one bit of padding
LABEL, SIZE = PROTOCOL.randomizer.per_label, PROTOCOL.randomizer.report_bytes
TASK = bytes(range(16))
PAYLOAD_TYPE = {Kind.COUNTS: "<u1", Kind.TALLY: "<i8"}
REASONS = {
    "truncated",
    "oversized",
    "malformed",
    "wrong-version",
    "non-canonical",
    "wrong-task",
    "wrong-round",
    "wrong-parameters",
    "wrong-kind",
    "wrong-count",
    "wrong-sender",
    "wrong-length",
    "too-many-reports",
    "nonzero-padding",
    "count-out-of-range",
    "duplicate-block",
}


class World:
    """One round at a fidelity: its broadcast, and the frames that honest code sent, a third of them
    by users on their own.
    """

    def __init__(self, fidelity):
        own = {"task": TASK, "entropy": 7, "fidelity": fidelity, "adversary": Coalition(0.3)}
        self.deployment = deployed(PROTOCOL, BLOCK, **own)
        self.broadcast = Analyzer(self.deployment).plan().broadcast
        rows = np.random.default_rng(0).normal(size=(N, D)) / 4
        batch, _ = UserShard(self.deployment, InMemory(rows), self.deployment.blocks()).answer(
            self.broadcast
        )
        self.frames = [bytes(data) for data in split_frames(batch)]
        self.whole = {"literal": Kind.REPORTS, "counts": Kind.COUNTS, "aggregate": Kind.TALLY}[
            fidelity
        ]

    def content(self, kind, reports, payload):
        """Ones under each label if `payload` is one of so many reports, None otherwise."""
        if kind in PAYLOAD_TYPE:
            if len(payload) != (8 * D if kind is Kind.TALLY else D * reports):
                return None
            numbers = np.frombuffer(payload, PAYLOAD_TYPE[kind]).reshape(-1, D).astype(np.int64)
            most = LABEL if kind is Kind.COUNTS else LABEL * reports
            return numbers.sum(axis=0) if ((numbers >= 0) & (numbers <= most)).all() else None
        if len(payload) != SIZE * reports:
            return None
        bits = np.unpackbits(np.frombuffer(payload, np.uint8).reshape(reports, SIZE), axis=1)
        return (
            None
            if bits[:, D * LABEL :].any()
            else bits[:, : D * LABEL].reshape(reports, D, LABEL).sum(axis=(0, 2))
        )

    def accepts(self, data):
        """(block, sender or None, users, ones) if `data` is a frame of this round, None
        otherwise.
        """
        index, reports = (int.from_bytes(data[at : at + 4], "big") for at in (45, 49))
        payload = data[55:] if len(data) < 311 else data[56:]
        if data == encoded(Kind.PACKET, index, 1, payload):
            inner = payload[55:]
            if payload != encoded(Kind.REPORT, index, 1, inner) or index >= N:
                return None
            ones = self.content(Kind.REPORT, 1, inner)
            return None if ones is None else (index // BLOCK, index, 1, ones)
        if data != encoded(self.whole, index, reports, payload) or index >= N // BLOCK:
            return None
        ones = self.content(self.whole, reports, payload) if reports <= BLOCK else None
        return None if ones is None else (index, None, reports, ones)

    def reference(self, batch):
        """Reports accepted, their ones, and frames that must be dropped; of two by the same sender
        or block the first counts.
        """
        seen, taken, ones, bad, at = set(), Counter(), np.zeros(D, np.int64), 0, 0
        while at < len(batch):
            size = int.from_bytes(batch[at : at + 4], "big")
            if at + 4 + size > len(batch) or at + 4 > len(batch) or size > MAX_FRAME:
                return taken.total(), ones, bad + 1
            found = self.accepts(batch[at : at + 4 + size])
            at += 4 + size
            if found is None or found[:2] in seen or taken[found[0]] + found[2] > BLOCK:
                bad += 1
                continue
            seen.add(found[:2])
            taken[found[0]] += found[2]
            ones = ones + found[3]
        return taken.total(), ones, bad

    def check(self, batch):
        """Hold the shuffler to the reference; returns the reasons."""
        good = self.frames[0]  # so that something is released
        view, record = Shuffler(self.deployment).shuffle(self.broadcast, [good, batch])
        accepted, ones, bad = self.reference(good + batch)
        assert record.accepted == accepted
        assert ones_of(view) == ones.tolist()
        assert set(record.dropped) <= REASONS
        # A whole block's frame is dropped with all its reports, or as one where it is too broken to
        # say.
        assert bad <= sum(record.dropped.values()) <= BLOCK * bad
        return Counter(record.dropped)


def encoded(kind, index, reports, payload):
    """The frame of this round, byte by byte as docs/wire.md says."""
    header = TASK + PARAMETERS + struct.pack(">III", 0, index, reports)
    length = (
        struct.pack(">BB", 0xC4, len(payload))
        if len(payload) < 256
        else struct.pack(">BH", 0xC5, len(payload))
    )
    return prefixed(b"\x94\x01" + bytes([kind]) + b"\xc4\x2c" + header + length + payload)


def ones_of(view):
    frame = parse(view)
    content = frame.payload[8:]  # after the number of messages under a label
    if frame.kind is Kind.VIEW_TALLY:
        return np.frombuffer(content, "<i8").tolist()
    return (
        np.unpackbits(np.frombuffer(content, np.uint8).reshape(D, -1), axis=1).sum(axis=1).tolist()
    )


def prefixed(body):
    return len(body).to_bytes(4, "big") + body


WORLDS = {fidelity: World(fidelity) for fidelity in FIDELITIES}
PARAMETERS = hashlib.sha256(parse(WORLDS["literal"].broadcast).payload).digest()[:16]


def flipped(data, rng):
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def payload_flipped(data, rng):
    changed = bytearray(data)
    changed[-1 - rng.randrange(min(12, len(changed)))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncated(data, rng):
    cut = data[: rng.randrange(len(data))]
    return prefixed(cut[4:]) if rng.random() < 0.8 else cut


def extended(data, rng):
    return prefixed(data[4:] + rng.randbytes(rng.randrange(1, 9)))


def lying(data, rng):
    size = rng.choice((0, 1, len(data), 2**16, MAX_FRAME, MAX_FRAME + 1, 2**32 - 1))
    return size.to_bytes(4, "big") + data[4:]


def edited(data, rng):
    """Other fields in the header: task, parameters, round, index, reports, version or kind."""
    place, width = rng.choice(((9, 16), (25, 16), (41, 4), (45, 4), (49, 4), (5, 1), (6, 1)))
    value = (
        rng.randbytes(width)
        if width == 16
        else rng.choice((0, 1, 2, 3, 7, 127, 2 ** (8 * width - 1) - 1)).to_bytes(width, "big")
    )
    return data[:place] + value + data[place + width :]


def resized(data, rng):
    """The payload longer or shorter by some bytes, in a frame that is well formed."""
    try:
        frame = parse(data)
    except FrameError:
        return data
    return replace(
        frame,
        payload=(frame.payload + bytes(9))[: max(0, len(frame.payload) + rng.randrange(-6, 9))],
    ).tobytes()


def uncanonical(data, rng):
    at = rng.choice((5, 6, 8))
    body = bytearray(data)
    body[at:at] = b"\xcc" if at < 8 else b"\0"
    body[7:8] = b"\xc5" if at == 8 else body[7:8]
    return prefixed(bytes(body[4:]))


def bombed(data, rng):
    body = rng.choice(
        (
            b"\x91" * 40,
            b"\x94" * 90,
            b"\x80" * 50,
            b"\xdd\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
            b"\xdf" + b"\xff" * 9,
        )
    )
    return prefixed(data[4 : rng.choice((4, 5, 7, 53))] + body)


def noise(data, rng):
    return prefixed(rng.randbytes(rng.randrange(80)))


def same(data, rng):
    return data


MUTATIONS = (
    flipped,
    flipped,
    payload_flipped,
    payload_flipped,
    truncated,
    extended,
    lying,
    edited,
    edited,
    resized,
    uncanonical,
    bombed,
    noise,
    same,
)


def mutant(frames, rng):
    """One frame changed, or what is inside its envelope, once or twice."""
    data = rng.choice(frames)
    for _ in range(rng.choice((1, 1, 1, 2))):
        change = rng.choice(MUTATIONS)
        if data[6:7] == bytes([Kind.PACKET]) and len(data) > 60 and rng.random() < 0.7:
            packet = parse_or_none(data)
            if packet is not None and packet.payload:
                data = replace(packet, payload=change(packet.payload, rng)).tobytes()
                continue
        if data:
            data = change(data, rng)
    return data


def parse_or_none(data):
    try:
        return parse(data)
    except FrameError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_70_000_mutants_are_accepted_unchanged_or_dropped(fidelity):
    rng, world, reasons = random.Random(fidelity), WORLDS[fidelity], Counter()
    for _ in range(1000):
        mutants = [mutant(world.frames, rng) for _ in range(70)]
        # A broken length would hide all that follows it: those go into batches of their own.
        whole = [
            data
            for data in mutants
            if len(data) >= 4 and int.from_bytes(data[:4], "big") == len(data) - 4
        ]
        reasons += world.check(b"".join(whole))
        for data in mutants:
            if len(data) < 4 or int.from_bytes(data[:4], "big") != len(data) - 4:
                reasons += world.check(data)
    only = {"literal": {"count-out-of-range"}, "counts": set(), "aggregate": set()}[fidelity]
    assert set(reasons) == REASONS - only
    assert min(reasons.values()) > 20


@pytest.mark.parametrize("lax", ["check_context", "read_reports"])
def test_a_lax_shuffler_is_caught(lax, monkeypatch):
    """Power: frames of other rounds taken, or contents taken without a look at their range and
    padding.
    """
    nothing = {
        "check_context": lambda *_: None,
        "read_reports": lambda frame, _: Messages.from_ones(
            np.zeros((frame.reports, D), np.int64), LABEL
        ),
    }
    monkeypatch.setattr(f"shuffle_sim.roles.inbox.{lax}", nothing[lax])
    rng, world = random.Random(3), WORLDS["literal"]
    batch = b"".join(prefixed(mutant(world.frames, rng)[4:]) for _ in range(900))
    with pytest.raises(AssertionError):
        world.check(batch)


@pytest.mark.full
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_10_000_mutated_batches_lose_only_what_is_broken(fidelity):
    rng, world, reasons = random.Random(fidelity), WORLDS[fidelity], Counter()
    for _ in range(10_000 // 3):
        batch = bytearray(b"".join(rng.sample(world.frames, 4)))
        for _ in range(rng.choice((1, 2))):
            at = rng.randrange(len(batch))
            how = rng.randrange(4)
            if how == 0:
                batch[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                del batch[at : at + rng.choice((1, 4, 60))]
            elif how == 2:
                batch[at:at] = rng.choice((rng.randbytes(4), rng.choice(world.frames)))
            else:
                batch = batch[:at] or bytearray(1)
        reasons += world.check(bytes(batch))
    assert len(reasons) >= 10


@pytest.mark.full
def test_10_000_mutated_views_are_taken_or_refused_by_name():
    rng, world, taken = random.Random(1), WORLDS["literal"], Counter()
    view, _ = Shuffler(world.deployment).shuffle(world.broadcast, world.frames)
    analyzer = Analyzer(world.deployment)
    analyzer.plan()
    for _ in range(10_000):
        try:
            analyzer.receive(rng.choice(MUTATIONS)(view, rng))
        except FrameError as error:
            taken[error.reason] += 1
        else:
            taken["taken"] += 1
            analyzer = Analyzer(world.deployment)
            analyzer.plan()
    assert taken["taken"] > 500
    assert set(taken) <= REASONS | {"taken"}


# Memory


def tree(depth):
    return b"\x90" if not depth else b"\x94" + tree(depth - 1) * 4


CONTEXT = Context(TASK, 0, PARAMETERS)
HEADER = struct.pack(">16s16sIII", TASK, PARAMETERS, 0, 3, 1)
MEGABYTE = 1 << 20
BOMBS = {
    "a tree of empty arrays": tree(10)[:MEGABYTE],
    "a whole tree of empty arrays": b"\x94" + tree(9) * 4,
    "a tree in place of the version": b"\x94" + tree(9) + b"\x01\xc4\x2c" + HEADER + b"\xc4\0",
    "a tree in place of the header": b"\x94\x01\x04" + tree(9) + b"\xc4\0",
    "a tree in place of the payload": b"\x94\x01\x04\xc4\x2c" + HEADER + tree(9),
    "a tree one level in": b"\x94\x94\x01\xc4\x2c" + HEADER + tree(9),
    "nested a million deep": b"\x91" * MEGABYTE,
    "empty maps": b"\x94" + b"\x80" * MEGABYTE,
    "empty strings": b"\x94" + b"\xa0" * MEGABYTE,
    "floats": b"\xdd\x00\x01\xc7\x1c" + b"\xcb" * MEGABYTE,
    "a large payload": b"\x94\x01\x04\xc4\x2c"
    + HEADER
    + b"\xc6"
    + MEGABYTE.to_bytes(4, "big")
    + bytes(MEGABYTE),
    "a large lie": b"\x94\x01\x04\xc4\x2c" + HEADER + b"\xc6\x3f\xff\xff\xff" + bytes(MEGABYTE),
    "garbage": random.Random(2).randbytes(MEGABYTE),
}


def peak(call):
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("enveloped", [False, True])
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_megabyte_of_malice_stays_a_few_megabytes(bomb, fidelity, enveloped):
    world = WORLDS[fidelity]
    data = prefixed(bomb)
    if enveloped:
        data = Frame(Kind.PACKET, CONTEXT, 3, 1, data).tobytes()
    used, (_, record) = peak(
        lambda: Shuffler(world.deployment).shuffle(world.broadcast, [world.frames[0], data])
    )
    assert sum(record.dropped.values()) == 1
    assert used < 6 * MEGABYTE


@pytest.mark.full
def test_the_bombs_are_bombs():
    """Power: with plain limits on lengths the tree becomes seventy times as large."""
    bomb = BOMBS["a whole tree of empty arrays"]
    used, _ = peak(lambda: msgpack.unpackb(bomb, max_array_len=4, max_map_len=0, max_str_len=0))
    assert used > 50 * len(bomb)
