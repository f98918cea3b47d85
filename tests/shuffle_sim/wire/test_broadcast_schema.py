"""Types and agreed values of broadcasts are checked on plain trees, before anything is built."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from protocols.problems.losses import Hinge, Logistic
from protocols.problems.problem import Gradient
from protocols.problems.regression import Huber
from protocols.shuffle.one_shot import CertifiedMinimiser
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.protocol.base import Datum
from shuffle_sim.wire.codec import by_name, count_values, decode, encode, plain
from shuffle_sim.wire.schema import demand_types, field_types, form

WORDS = (Cohort, Datum, Gradient, CertifiedMinimiser, Logistic, Huber, BinomialRandomizer)
CLASSES = by_name(WORDS)
GOLDEN = {
    Cohort: {"ranges": "tuple[tuple[int, int], ...]"},
    Datum: {},
    Gradient: {"loss": "Loss", "theta": "float64", "smoothing": "float | None"},
    CertifiedMinimiser: {
        "loss": "Loss",
        "ridge": "float",
        "shape": "tuple[str, int, tuple[float, ...]]",
        "radius": "float",
        "solver": "str",
        "moved": "int | None",
    },
    Huber: {"features": "float", "labels": "float | None", "threshold": "float"},
    BinomialRandomizer: {
        **dict.fromkeys(("labels", "g", "b"), "int"),
        **dict.fromkeys(("p", "lower", "width"), "float"),
        "norm_bound": "float | None",
    },
    CarryRandomizer: {
        "coordinates": "int",
        "g": "float",
        **dict.fromkeys(("r", "b", "levels"), "int"),
        **dict.fromkeys(("lower", "width"), "float"),
        "norm_bound": "float | None",
        "span": "float",
        "rotation": "int | None",
    },
}


def named(hint: Any) -> str:
    if hint == Floats:
        return "float64"
    return (
        hint.__name__ if type(hint) is type or hasattr(hint, "__abstractmethods__") else str(hint)
    )


@pytest.mark.parametrize("kind", GOLDEN, ids=lambda kind: kind.__name__)
def test_the_types_of_a_broadcast_are_those_of_its_annotations(kind):
    assert {name: named(hint) for name, hint in field_types(kind).items()} == GOLDEN[kind]


THETA = np.array([0.5, -1.0])
GOOD = BinomialRandomizer(2, 3, 4, 0.5, -1.0, 2.0, 1.0)


def unchecked(value: Any, **changed: Any) -> Any:
    """A copy with fields that the class itself would refuse."""
    made = object.__new__(type(value))
    made.__dict__.update(vars(value) | changed)
    return made


BAD = {
    "a float for an integer": unchecked(GOOD, labels=2.0),
    "a bool for an integer": unchecked(GOOD, g=True),
    "a bool for a float": unchecked(GOOD, p=True),
    "text for a float": unchecked(GOOD, width="2"),
    "nothing for a float": unchecked(GOOD, lower=None),
    "a tuple for a float": unchecked(GOOD, norm_bound=(1.0,)),
    "a cohort of floats": unchecked(Cohort.of(0, 1), ranges=((0.0, 1.0),)),
    "a cohort of three ends": unchecked(Cohort.of(0, 1), ranges=((0, 1, 2),)),
    "a query for a loss": Gradient(Datum(), THETA),
    "a number for a loss": Gradient(1.0, THETA),
    "integers for theta": Gradient(Logistic(), np.array([1, 2])),
    "a number for theta": Gradient(Logistic(), 1.0),
    "a shape of another form": CertifiedMinimiser(Logistic(), 0.1, ("real", 2), 1.0),
    "a number in a shape that is none": CertifiedMinimiser(
        Logistic(),
        0.1,
        ("real", 2, ("1",)),
        1.0,
    ),
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_field_of_another_type_is_refused(value, monkeypatch):
    data = encode(value)
    for kind in WORDS:
        monkeypatch.setattr(kind, "__init__", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(FrameError, match=r"malformed-broadcast.* is not of type"):
        decode(data, WORDS)


@pytest.mark.parametrize(
    "value",
    [replace(GOOD, lower=-1, width=2, norm_bound=None), Huber(1), Gradient(Logistic(2), THETA, 3)],
)
def test_an_integer_passes_for_a_float(value):
    assert encode(decode(encode(value), WORDS)) == encode(value)


@dataclass(frozen=True)
class Holds:
    inside: Any


@dataclass(frozen=True)
class Lists:
    inside: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Unknown:
    inside: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@dataclass(frozen=True)
class Complex:
    inside: tuple[complex, ...] = ()


@pytest.mark.parametrize("kind", [Holds, Lists, Unknown, Complex], ids=lambda kind: kind.__name__)
def test_a_class_whose_types_cannot_be_checked_is_refused(kind):
    with pytest.raises(ParameterError, match=rf"^vocabulary = '{kind.__name__}.*annotat"):
        demand_types((*WORDS, kind))
    demand_types(WORDS)


def formed(value: Any, chosen: tuple[str, ...] = ()) -> bytes:
    return form(plain(encode(value)), CLASSES, chosen)


ASKED = Gradient(Logistic(), THETA, 2.0)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (replace(ASKED, theta=-THETA), True),
        (replace(ASKED, theta=np.array([np.inf, -0.0])), True),
        (replace(ASKED, theta=np.zeros(3)), False),
        (replace(ASKED, theta=np.zeros((2, 1))), False),
        (replace(ASKED, smoothing=2), False),  # as bytes, where nothing may move
        (replace(ASKED, smoothing=None), False),
        (replace(ASKED, smoothing=2.0000000000000004), False),
        (replace(ASKED, loss=Logistic(2.0)), False),
        (replace(ASKED, loss=Huber()), False),
        (replace(GOOD, lower=-0.5, width=1.0, norm_bound=0.5), False),
    ],
)
def test_a_form_has_all_but_what_moves(other, same):
    assert (formed(other) == formed(ASKED)) is same


def test_forms_are_exact_where_nothing_moves():
    minimiser = CertifiedMinimiser(Logistic(), 0.0, ("real", 2, ()), 1.0)
    forms = {
        formed(unchecked(minimiser, ridge=ridge))
        for ridge in (0.0, -0.0, 0, 1e-300, float("nan"), float("inf"))
    }
    assert len(forms) == 6
    assert formed(unchecked(minimiser, ridge=float("nan"))) in forms
    assert formed(replace(ASKED, smoothing=9.0), ("smoothing",)) == formed(ASKED, ("smoothing",))
    assert formed(unchecked(GOOD, lower=-0.5)) == formed(GOOD)  # the scale of a sum moves
    assert formed(replace(GOOD, norm_bound=None, lower=0.0)) != formed(GOOD)
    with pytest.raises(ValueError, match="not a number"):
        formed(replace(ASKED, theta=THETA * np.nan))


def test_values_are_counted_before_they_are_unpacked():
    value = Cohort(((0, 3), (5, 70_000))), ASKED, GOOD, "text", b"bytes" * 100, None, True, -1, 0.5
    data = encode(value)
    assert 40 < count_values(data, 1000) < 60
    assert count_values(b"\xdc\xff\xff" + b"\x90" * 65_535, 1000) == 1001
    assert count_values(b"\xc6\xff\xff\xff\xff", 1000) == 1
    # A size in what no value is written as, read as that of bytes, would hide all that follows.
    hidden = b"\xdc\xff\xff" + b"\x90" * 65_535
    for front in (b"\x93\xd5\x00\xc6\x00\xcd\xff\xff", b"\x92\xde\xc6\x00", b"\x92\x81\xc4\xff"):
        assert count_values(front + hidden, 1000) == 1001

    class Few:
        values: ClassVar[int] = 20

        def demand(self, tree, classes):
            pytest.fail("it was unpacked")

    with pytest.raises(FrameError, match="not-agreed: more than 20 values"):
        decode(data, WORDS, Any, Few())


def test_a_loss_of_another_class_is_no_loss_of_the_vocabulary():
    with pytest.raises(FrameError, match="Hinge is not in the vocabulary"):
        decode(encode(Gradient(Hinge(), THETA)), WORDS)
