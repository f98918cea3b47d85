"""Defects that are planted one at a time: each was, or could have been, believed and not enforced.

A defect is an attribute that is replaced, and the case that must show it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocols.central import (
    centered_mean,
    clipped_descent,
    exponential_grid,
    grouped_descent,
    sums,
)  # fmt: skip
from protocols.central.exponential import Potential
from protocols.central.pilot import PilotHistogram
from protocols.problems.risk import Risk
from protocols.problems.saddle import GroupRisk
from protocols.problems.surrogates import Surrogate
from protocols.problems.tilted import TiltedRisk
from protocols.selection.curator import MeanScores
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.single_message import SingleMessageRandomizer
from protocols.sums.split_mix import SplitMixRandomizer
from shuffle_sim.protocol.release import Sensitivity


@dataclass(frozen=True)
class Defect:
    """What is replaced by what, and where it must be seen.

    Attributes:
        name: in words.
        owner: a class or module.
        attribute: of it.
        makes: from the old one to the broken one.
        kind: class of the case.
        option: of the case, and
        value: of the case, as `Case` shows it; None: any.
    """

    name: str
    owner: Any
    attribute: str
    makes: Callable[[Any], Any]
    kind: str
    option: str = "base"
    value: str | None = None


def _less(times: float) -> Callable[[Any], Any]:
    """A sensitivity that is stated so many times too small."""

    def made(old: Any) -> Any:
        def sensitivity(self: Any) -> Sensitivity:
            found: Sensitivity = old.fget(self)
            return replace(found, value=found.value / times)

        return property(sensitivity)

    return made


def _less_of_risk(times: float) -> Callable[[Any], Any]:
    def made(old: Any) -> Any:
        def sensitivity(self: Any, n: int) -> tuple[float, str]:
            value, proof = old(self, n)
            return value / times, proof

        return sensitivity

    return made


def _unclipped(old: Any) -> Any:
    return lambda rows, radius: rows


def _as_they_are(old: Any) -> Any:
    return lambda loss, d, rows: rows


def _admits_all(old: Any) -> Any:
    return lambda self, values: (values, 0)


def _twice(old: Any) -> Any:
    return lambda *given, **named: 2 * old(*given, **named)


def _wide(old: Any) -> Any:
    def gradients(loss: Any, clip: float, *given: Any, **named: Any) -> Any:
        return old(loss, 3 * clip, *given, **named)

    return gradients


def _no_clip(old: Any) -> Any:
    return lambda self, rows: np.asarray(rows.sum(axis=0))


def _little_ridge(old: Any) -> Any:
    return lambda self, rows: old(replace(self, ridge=self.ridge / 10), rows)


def _looser(old: Any) -> Any:
    return lambda self, theta, rows: old(replace(self, clip=10 * self.clip), theta, rows)


DEFECTS = (
    Defect("a sum's rows are not clipped", sums.BallSum, "part", _no_clip, "CentralSum"),
    Defect("2 radius is stated as radius", sums.BallSum, "sensitivity", _less(2), "CentralSum"),
    Defect("half of 2 L/n", Potential, "sensitivity", _less(2), "Gibbs"),
    Defect("half of Lemma S", GroupRisk, "sensitivity", _less_of_risk(2), "SaddleERM"),
    Defect("a third of Lemma S", Risk, "sensitivity", _less_of_risk(3), "OutputPerturbation"),
    Defect("the ridge is forgotten", Risk, "objective", _little_ridge, "OutputPerturbation"),
    Defect(
        "half of what tilted rows move", TiltedRisk, "sensitivity", _less_of_risk(2), "TiltedERM"
    ),
    Defect("gradients twice as long", clipped_descent, "clipped_gradients", _twice, "GaussianGD"),
    Defect(
        "scores of longer gradients",
        exponential_grid,
        "clipped_gradients",
        _wide,
        "ExponentialGrid",
    ),
    Defect("a clip ten times too wide", Surrogate, "gradients", _looser, "PopLocalize"),
    Defect(
        "an l1 sensitivity in l2",
        PilotHistogram,
        "sensitivity",
        _less(2**0.5),
        "HeavyTailedERM",
        "pilot",
        "5",
    ),
    Defect(
        "persons' means are not clipped",
        centered_mean,
        "clipped",
        _unclipped,
        "AcceleratedPhasedERM",
        "problem.norm_bound",
        "0.01",
    ),
    Defect(
        "groups' points are not clipped",
        grouped_descent,
        "clipped",
        _unclipped,
        "LinearTimePhasedSGD",
        "privacy",
    ),
    Defect(
        "missing records are no records",
        grouped_descent,
        "valid_records",
        _as_they_are,
        "LinearTimePhasedSGD",
    ),
    Defect("half of a range of scores", MeanScores, "sensitivity", _less(2), "CuratedSelection"),
    *(
        Defect(f"{randomizer.__name__} admits all", randomizer, "admit", _admits_all, kind)
        for randomizer, kind in (
            (BinomialRandomizer, "VectorSum"),
            (BinomialRandomizer, "ScalarSum"),
            (CarryRandomizer, "CarryVectorSum"),
            (SplitMixRandomizer, "SplitAndMixVectorSum"),
            (SingleMessageRandomizer, "SingleMessageSum"),
        )
    ),
)
