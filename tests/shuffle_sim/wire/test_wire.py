"""Frames byte by byte: what is sent, and that nothing else is read."""

import random
import tracemalloc
from collections import Counter
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_sim.errors import FrameError
from shuffle_sim.wire.frames import (
    MAX_FRAME,
    VERSION,
    Context,
    Frame,
    Kind,
    check_context,
    frame_bytes,
    parse,
    split_frames,
)

relaxed = settings(deadline=None, max_examples=200)
uint32 = st.integers(0, 2**32 - 1)
key = st.binary(min_size=16, max_size=16)
frames = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.builds(Context, key, uint32, key),
    uint32,
    uint32,
    st.binary(max_size=300),
)
CONTEXT = Context(bytes(range(16)), 3, bytes(range(16, 32)))
FRAME = Frame(Kind.REPORTS, CONTEXT, 5, 2, b"payload")
HEADER = FRAME.tobytes()[4 + 5 : 4 + 5 + 44]


def prefixed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def fields(*, version=VERSION, kind=1, header=HEADER, payload=b"payload") -> bytes:
    return prefixed(msgpack.packb([version, kind, header, payload]))


def reason(data: bytes, **limit) -> str:
    with pytest.raises(FrameError) as refused:
        parse(data, **limit)
    return refused.value.reason


@relaxed
@given(frames)
def test_parsing_gives_back_the_frame(frame):
    assert parse(frame.tobytes()) == frame


@relaxed
@given(st.lists(frames, max_size=5))
@pytest.mark.full
def test_split_gives_back_every_frame_in_order(batch):
    assert [parse(data) for data in split_frames(b"".join(f.tobytes() for f in batch))] == batch


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 257, 65534, 65535, 65536, 65537, 1 << 20])
def test_the_length_formula_is_the_length(size):
    frame = replace(FRAME, payload=bytes(size))
    assert frame_bytes(size) == len(frame.tobytes())
    assert parse(frame.tobytes()) == frame


@relaxed
@given(frames, frames)
def test_length_depends_on_the_payloads_length_only(one, other):
    assert len(replace(other, payload=one.payload).tobytes()) == len(one.tobytes())


def test_a_frame_is_the_documented_bytes():
    header = CONTEXT.task + CONTEXT.parameters + bytes([0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 2])
    body = b"\x94\x01\x01\xc4\x2c" + header + b"\xc4\x07payload"
    assert FRAME.tobytes() == prefixed(body)
    assert fields() == FRAME.tobytes()


@pytest.mark.parametrize("cut", range(len(FRAME.tobytes())))
def test_every_truncation_is_refused(cut):
    data = FRAME.tobytes()[:cut]
    assert reason(data) == "truncated"
    if cut:
        with pytest.raises(FrameError, match="truncated"):
            list(split_frames(FRAME.tobytes() + data))


@pytest.mark.parametrize("cut", range(4, len(FRAME.tobytes())))
def test_a_body_cut_short_under_a_fitting_prefix_is_malformed(cut):
    assert reason(prefixed(FRAME.tobytes()[4:cut])) == "malformed"


def test_oversized_is_refused_before_anything_is_allocated():
    body = len(FRAME.tobytes()) - 4
    assert parse(FRAME.tobytes(), limit=body) == FRAME
    assert reason(FRAME.tobytes(), limit=body - 1) == "oversized"
    assert list(split_frames(FRAME.tobytes(), limit=body)) == [FRAME.tobytes()]
    with pytest.raises(FrameError, match="oversized"):
        list(split_frames(FRAME.tobytes(), limit=body - 1))
    tracemalloc.start()
    for prefix in (b"\xff" * 4, (MAX_FRAME + 1).to_bytes(4, "big")):
        with pytest.raises(FrameError, match="oversized"):
            list(split_frames(prefix + b"x"))
    with pytest.raises(FrameError, match="truncated"):
        list(split_frames(MAX_FRAME.to_bytes(4, "big") + b"x"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_what_precedes_a_broken_length_is_still_read():
    good = FRAME.tobytes()
    read = split_frames(good + good + b"\0\0")
    assert [next(read), next(read)] == [good, good]
    with pytest.raises(FrameError, match="truncated"):
        next(read)


@pytest.mark.parametrize("version", [0, 2, -1, 127, 255, 2**64 - 1])
def test_another_version_is_refused(version):
    assert reason(fields(version=version)) == "wrong-version"


@pytest.mark.parametrize("kind", [-1, len(Kind), 127, 128, 2**32, 2**64 - 1, -(2**63)])
def test_an_unknown_kind_is_refused(kind):
    assert reason(fields(kind=kind)) == "malformed"


@pytest.mark.parametrize("header", [b"", HEADER[:-1], HEADER + b"\0", bytes(300)])
def test_a_header_of_another_length_is_refused(header):
    assert reason(fields(header=header)) == "malformed"


@pytest.mark.parametrize("extra", [b"\0", b"\xc0", FRAME.tobytes(), FRAME.tobytes()[4:]])
def test_trailing_bytes_are_refused(extra):
    assert reason(FRAME.tobytes() + extra) == "truncated"
    assert reason(prefixed(FRAME.tobytes()[4:] + extra)) == "malformed"


BODY = FRAME.tobytes()[4:]
UNCANONICAL = {
    "version as uint8": BODY.replace(b"\x94\x01", b"\x94\xcc\x01", 1),
    "version as uint64": BODY.replace(b"\x94\x01", b"\x94\xcf" + bytes(7) + b"\x01", 1),
    "version as int8": BODY.replace(b"\x94\x01", b"\x94\xd0\x01", 1),
    "kind as uint16": BODY.replace(b"\x94\x01\x01", b"\x94\x01\xcd\0\x01", 1),
    "array16": b"\xdc\0\x04" + BODY[1:],
    "array32": b"\xdd\0\0\0\x04" + BODY[1:],
    "header as bin16": BODY.replace(b"\xc4\x2c", b"\xc5\0\x2c", 1),
    "payload as bin16": BODY.replace(b"\xc4\x07", b"\xc5\0\x07", 1),
    "payload as bin32": BODY.replace(b"\xc4\x07", b"\xc6\0\0\0\x07", 1),
}


@pytest.mark.parametrize("body", UNCANONICAL.values(), ids=UNCANONICAL)
def test_other_encodings_of_the_same_frame_are_refused(body):
    assert body != BODY
    assert msgpack.unpackb(body) == msgpack.unpackb(BODY)
    assert reason(prefixed(body)) == "non-canonical"


MALFORMED = {
    "bool version": msgpack.packb([True, 1, HEADER, b""]),
    "bool kind": msgpack.packb([VERSION, True, HEADER, b""]),
    "float version": msgpack.packb([1.0, 1, HEADER, b""]),
    "nil version": msgpack.packb([None, 1, HEADER, b""]),
    "nil payload": msgpack.packb([VERSION, 1, HEADER, None]),
    "empty string payload": msgpack.packb([VERSION, 1, HEADER, ""]),
    "string payload": msgpack.packb([VERSION, 1, HEADER, "abc"]),
    "invalid utf-8": b"\x94\x01\x01\xc4\x2c" + HEADER + b"\xa1\xff",
    "array payload": msgpack.packb([VERSION, 1, HEADER, []]),
    "string header": b"\x94\x01\x01\xd9\x2c" + b"a" * 44 + b"\xc4\0",
    "three fields": msgpack.packb([VERSION, 1, HEADER]),
    "five fields": msgpack.packb([VERSION, 1, HEADER, b"", b""]),
    "no array": msgpack.packb(1),
    "nothing": b"",
    "reserved byte": b"\xc1",
    "bare bytes": msgpack.packb(b"x" * 60),
    "map": msgpack.packb({0: VERSION, 1: 1, 2: HEADER, 3: b""}),
    "empty map": b"\x80",
    "map payload": msgpack.packb([VERSION, 1, HEADER, {1: 2}]),
    "empty map payload": msgpack.packb([VERSION, 1, HEADER, {}]),
    "ext payload": msgpack.packb([VERSION, 1, HEADER, msgpack.ExtType(1, b"abc")]),
    "empty ext payload": msgpack.packb([VERSION, 1, HEADER, msgpack.ExtType(1, b"")]),
    "fixext payload": msgpack.packb([VERSION, 1, HEADER, msgpack.ExtType(1, b"a")]),
    "timestamp payload": msgpack.packb([VERSION, 1, HEADER, msgpack.Timestamp(1, 2)]),
    "broken timestamp": b"\x94\x01\x01\xc4\x2c" + HEADER + b"\xd4\xff\0",
    "nested 100": b"\x91" * 100 + b"\x01",
    "nested 1,000": b"\x91" * 1000 + b"\x01",
    "nested 100,000": b"\x91" * 100_000 + b"\x01",
    "nested inside": b"\x94\x01\x01\xc4\x2c" + HEADER + b"\x91" * 5000 + b"\xc0",
    "array32 of 4 billion": b"\xdd\xff\xff\xff\xff",
    "map32 of 4 billion": b"\xdf\xff\xff\xff\xff",
    "bin32 of 4 billion": b"\x94\x01\x01\xc4\x2c" + HEADER + b"\xc6\xff\xff\xff\xff",
    "bin32 of the limit": b"\x94\x01\x01\xc4\x2c" + HEADER + b"\xc6\x3f\xff\xff\xff",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_all_but_two_integers_and_two_byte_strings_is_refused(body):
    tracemalloc.start()
    assert reason(prefixed(body)) == "malformed"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


@pytest.mark.parametrize("name", ["task", "round", "parameters"])
def test_a_frame_of_another_context_is_refused_by_name(name):
    check_context(FRAME, CONTEXT)
    other = replace(CONTEXT, **{name: 4 if name == "round" else bytes(16)})
    with pytest.raises(FrameError) as refused:
        check_context(FRAME, other)
    assert refused.value.reason == f"wrong-{name}"


@relaxed
@given(st.binary(max_size=50), st.binary(max_size=50))
def test_other_broadcasts_have_other_contexts(one, other):
    contexts = [Context.of_broadcast(bytes(16), 0, broadcast) for broadcast in (one, other)]
    assert (contexts[0] == contexts[1]) == (one == other)


def mutate(data: bytes, rng: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        how, at = (
            rng.randrange(5),
            rng.randrange(min(len(body), 80) if rng.random() < 0.7 else len(body)),
        )
        if how == 0:
            body[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            body[at] = rng.randrange(256)
        elif how == 2:
            del body[at : at + rng.randrange(1, 5)]
        elif how == 3:
            body[at:at] = rng.randbytes(rng.randrange(1, 5))
        else:  # an integer or a length in more bytes than it needs
            at = rng.choice((5, 6, 8))
            body[at:at] = b"\xcc" if at < 8 else b"\0"
            body[7:8] = b"\xc5" if at == 8 else body[7:8]
        body = body or bytearray(1)
    # Half of the mutants get a fitting prefix again, or none of them would come past it.
    return prefixed(bytes(body[4:])) if rng.random() < 0.5 else bytes(body)


@pytest.mark.full
def test_20_000_mutants_parse_to_themselves_or_are_refused():
    rng, outcomes = random.Random(20), Counter()
    for _ in range(20_000):
        context = Context(rng.randbytes(16), rng.randrange(2**32), rng.randbytes(16))
        size = rng.choice((0, 3, 40, 255, 256, 400))
        frame = Frame(
            rng.choice(list(Kind)),
            context,
            rng.randrange(9),
            rng.randrange(99),
            rng.randbytes(size),
        )
        data = mutate(frame.tobytes(), rng)
        try:
            assert parse(data).tobytes() == data
            outcomes["parsed"] += 1
        except FrameError as error:
            outcomes[error.reason] += 1
    assert set(outcomes) == {"parsed", "truncated", "malformed", "wrong-version", "non-canonical"}
    assert min(outcomes.values()) >= 10


def test_5_000_mutated_batches_split_or_are_refused():
    rng, batch = random.Random(21), FRAME.tobytes() * 4
    outcomes = Counter()
    for _ in range(5_000):
        data, pieces = mutate(batch, rng), []
        try:
            for piece in split_frames(data):
                pieces.append(piece)
            assert b"".join(pieces) == data
            outcomes["split"] += 1
        except FrameError as error:
            outcomes[error.reason] += 1
            assert data.startswith(b"".join(pieces))
    assert set(outcomes) == {"split", "truncated", "oversized"}
