"""Canonical bytes of public values."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.protocol.base import Datum
from shuffle_sim.wire.codec import decode, encode

relaxed = settings(deadline=None, max_examples=200)


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


@dataclass(frozen=True)
class Holder:
    inside: Any
    size: int = field(init=False, default=0)


@dataclass(frozen=True)
class Stranger:
    value: int = 0


WORDS = (Pair, Holder, Cohort, Datum, BinomialRandomizer)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
arrays_of = st.sampled_from(["<f8", "<i8"]).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
trees = st.recursive(
    plain | arrays_of,
    lambda kids: st.one_of(
        st.lists(kids, max_size=3).map(tuple), st.builds(Pair, kids, kids), st.builds(Holder, kids)
    ),
    max_leaves=10,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Pair):
        return same((a.left, a.right), (b.left, b.right))
    return same(a.inside, b.inside) if isinstance(a, Holder) else a == b


@relaxed
@given(trees)
@pytest.mark.full
def test_decoding_gives_back_the_tree_and_its_types(value):
    data = encode(value)
    again = decode(data, WORDS)
    assert same(value, again)
    assert encode(again) == data


def test_what_a_round_broadcasts_comes_back():
    spoken = Cohort(((0, 3), (5, 9))), Datum(), BinomialRandomizer(2, 3, 4, 0.5, -1.0, 2.0, 1.0), 7
    assert decode(encode(spoken), WORDS) == spoken
    assert type(decode(encode(True), ())) is bool
    assert type(decode(encode(1), ())) is int
    assert type(decode(encode(1.0), ())) is float
    assert np.isnan(decode(encode(float("nan")), ()))
    assert str(decode(encode(-0.0), ())) == "-0.0"


@pytest.mark.parametrize(
    ("value", "means"),
    [
        (np.int32(3), 3),
        (np.uint8(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
    ],
)
def test_numpy_scalars_are_the_plain_values(value, means):
    assert encode(value) == encode(means)


def test_the_memory_layout_of_an_array_does_not_show():
    rows = np.arange(6.0).reshape(2, 3)
    for other in (
        np.asfortranarray(rows),
        rows.astype(">f8"),
        np.repeat(rows, 2, axis=1)[:, ::2],
        rows[::-1][::-1],
    ):
        assert encode(other) == encode(rows)


def test_different_values_have_different_bytes():
    values = [
        *(
            None,
            False,
            True,
            0,
            1,
            0.0,
            -0.0,
            1.0,
            "",
            "t",
            b"",
            b"t",
            (),
            (None,),
            ((),),
            ("t",),
            (1, 2),
            ((1, 2),),
        ),
        *(
            np.array(1),
            np.array(1.0),
            np.array([1]),
            np.array([[1]]),
            np.zeros(0),
            np.zeros((0, 1)),
            np.zeros(0, int),
        ),
        *(
            Pair(1),
            Pair(None, 1),
            Pair((1, None)),
            Pair(Pair(1)),
            Holder(1),
            Datum(),
            ("d", "Datum"),
            ("a", "<i8", (1,), b""),
        ),
    ]
    assert len({encode(value) for value in values}) == len(values)


def test_decoded_arrays_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        decode(encode(np.zeros(3)), ())[0] = 1


@pytest.mark.parametrize(
    "value", [Stranger(), (1, Stranger()), Pair(1, Stranger()), Holder((Stranger(),))]
)
def test_a_class_outside_the_vocabulary_is_refused(value):
    data = encode(value)
    assert decode(data, (*WORDS, Stranger)) == value
    with pytest.raises(FrameError, match="Stranger is not in the vocabulary") as refused:
        decode(data, WORDS)
    assert refused.value.reason == "malformed-broadcast"


def test_a_vocabulary_names_each_class_once():
    impostor = dataclass(frozen=True)(type("Pair", (), {"__annotations__": {"left": Any}}))
    assert decode(encode(Pair(1)), (Pair, Pair)) == Pair(1)
    for words in ((Pair, impostor), (impostor, Datum, Pair)):
        with pytest.raises(ParameterError, match=r"Pair.*one class, not of .*Pair and .*Pair"):
            decode(encode(1), words)


@pytest.mark.parametrize("value", [Stranger(), (1, Stranger()), Pair(1, Holder(Stranger()))])
def test_what_the_reader_does_not_know_is_not_encoded(value):
    assert encode(value, (*WORDS, Stranger)) == encode(value)
    with pytest.raises(ParameterError, match=r"vocabulary = .*Stranger.*: must be known"):
        encode(value, WORDS)


@dataclass(frozen=True, kw_only=True)
class Named:
    left: int
    right: int = 0


def test_dataclasses_built_by_name_only_can_be_broadcast():
    assert decode(encode(Named(left=1, right=2)), (Named,)) == Named(left=1, right=2)


def tree(value: Any) -> bytes:
    return msgpack.packb(value)


MALFORMED = {
    "nothing": b"",
    "two values": encode(1) + encode(2),
    "an array without a kind": tree([]),
    "an unknown kind": tree(["x", 1]),
    "a kind that is no string": tree([["t"], 1]),
    "a map": tree({"t": 1}),
    "an extension": tree(msgpack.ExtType(1, b"t")),
    "a timestamp": tree(msgpack.Timestamp(1, 2)),
    "an integer in nine bytes": b"\xcf" + bytes(7) + b"\x01",
    "a float of four bytes": b"\xca" + bytes(4),
    "a tuple as array16": b"\xdc\0\x02\xa1t\x01",
    "no class name": tree(["d"]),
    "a class name that is a map": tree(["d", {}]),
    "too many fields": tree(["d", "Datum", 1]),
    "too few fields": tree(["d", "Pair"]),
    "a default left out": tree(["d", "Pair", 1]),
    "a field that is not given": tree(["d", "Holder", 1, 2]),
    "a cohort of one number": tree(["d", "Cohort", 1]),
    "a cohort backwards": tree(["d", "Cohort", ["t", ["t", 3, 1]]]),
    "a cohort of strings": tree(["d", "Cohort", ["t", ["t", "a", "b"]]]),
    "a randomizer without bits": tree(["d", "BinomialRandomizer", 1, 0, 0, 0.5, 0.0, 1.0, None]),
    "another dtype": tree(["a", "|O", [1], bytes(8)]),
    "big-endian floats": tree(["a", ">f8", [1], bytes(8)]),
    "a dtype that is a list": tree(["a", [], [1], bytes(8)]),
    "a shape of minus one": tree(["a", "<f8", [-1], bytes(8)]),
    "a shape too large": tree(["a", "<f8", [2**62, 2**62], b""]),
    "a shape beyond int64": tree(["a", "<f8", [2**64 - 1], b""]),
    "a shape of floats": tree(["a", "<f8", [1.0], bytes(8)]),
    "a shape that does not fit": tree(["a", "<f8", [2], bytes(8)]),
    "a bare shape": tree(["a", "<f8", 1, bytes(8)]),
    "half a number": tree(["a", "<f8", [1], bytes(7)]),
    "an array of no bytes": tree(["a", "<f8", [1], 8]),
    "an array with more": tree(["a", "<f8", [1], bytes(8), 1]),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_encode_does_not_give_is_refused(data):
    with pytest.raises(FrameError) as refused:
        decode(data, WORDS)
    assert refused.value.reason == "malformed-broadcast"


@pytest.mark.parametrize("depth", [100, 600, 1000, 2000, 100_000])
def test_deep_nesting_is_read_or_refused(depth):
    data = b"\x92\xa1t" * depth + b"\xc0"
    try:
        value = decode(data, ())
    except FrameError:
        return
    for _ in range(depth):
        (value,) = value
    assert value is None


def test_10_000_mutants_decode_to_themselves_or_are_refused():
    rng, outcomes = random.Random(22), Counter()
    originals = [
        encode(
            (
                Cohort(((0, 3), (5, 900))),
                Datum(),
                BinomialRandomizer(2, 3, 4, 0.5, -1.0, 2.0, 1.0),
                7,
            )
        ),
        encode(
            Pair(np.arange(6.0).reshape(2, 3), (np.arange(3), None, True, "text", b"bytes", -1.5))
        ),
        encode(Holder((Pair(2**63), Holder(()), (((1,),),)))),
    ]
    for _ in range(10_000):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at] = rng.randrange(256)
                case 2:
                    del data[at : at + rng.randrange(1, 4)]
                case 3:
                    data[at:at] = rng.randbytes(rng.randrange(1, 4))
            data = data or bytearray(1)
        try:
            assert encode(decode(bytes(data), WORDS)) == data
            outcomes["decoded"] += 1
        except FrameError as error:
            outcomes[error.reason] += 1
    assert set(outcomes) == {"decoded", "malformed-broadcast"}
    assert min(outcomes.values()) >= 100


UNSUPPORTED = {
    "a lambda": lambda: 0,
    "a dict": {"a": 1},
    "a list": [1],
    "a set": {1},
    "a complex number": 1j,
    "a class": Pair,
    "an object": object(),
    "an object array": np.array([None, 1], object),
    "a float32 array": np.zeros(2, np.float32),
    "a bool array": np.zeros(2, bool),
    "a string array": np.array(["a"]),
    "a structured array": np.zeros(1, [("x", "<f8")]),
    "a complex array": np.zeros(1, complex),
    "a date": np.datetime64("2024-01-01"),
    "a bytearray": bytearray(b"a"),
    "a generator": np.random.default_rng(0),
}


@pytest.mark.parametrize("value", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_cannot_be_broadcast_is_refused(value):
    for nested in (value, (1, value), Pair(value)):
        with pytest.raises(TypeError, match="cannot broadcast"):
            encode(nested)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800"])
def test_what_msgpack_cannot_hold_is_refused(value):
    with pytest.raises(TypeError):
        encode(value)


@pytest.mark.parametrize("value", [np.ma.array([1.0, 2.0], mask=[False, True])])
def test_masked_arrays_are_refused(value):
    with pytest.raises(TypeError):
        encode(value)
