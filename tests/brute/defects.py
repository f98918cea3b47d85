"""Defects that are planted one at a time: each was, or could have been, believed and not enforced.

A defect is an attribute that is replaced, and the case that must show it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocols.central.heavy_tails.pilot import PilotHistogram
from protocols.central.person import accelerated_erm, grouped_descent, outlier_removal
from protocols.central.person.extension_minimiser import ExtensionMinimiser
from protocols.central.record import objective_perturbation, sums
from protocols.central.record.density import Potential
from protocols.counts.groups import Planes
from protocols.counts.prefixes import Prefixes
from protocols.counts.single import Response
from protocols.erm.groups import GroupRisk
from protocols.erm.risk import Risk
from protocols.erm.tilted import TiltedObjective, TiltedRisk
from protocols.problems.centred import Centred
from protocols.problems.domains import Intersection
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.problems.surrogates import Clipped, ScaledSurrogate
from protocols.selection.curator import MeanScores
from protocols.shuffle import one_shot
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.floods import FloodRandomizer
from protocols.sums.single_message import SingleMessageRandomizer
from protocols.sums.split_mix import SplitMixRandomizer
from shuffle_sim import arrays
from shuffle_sim.arrays import dense
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated
from shuffle_sim.execution import identity
from shuffle_sim.protocol.release import Sensitivity
from shuffle_sim.protocol.task import Task
from shuffle_sim.sampling import carries

from . import probes


@dataclass(frozen=True)
class Defect:
    """What is replaced by what, and where it must be seen.

    Attributes:
        name: in words.
        owner: a class or module.
        attribute: of it.
        makes: from the old one to the broken one.
        kind: class of the case; or a probe, where no release moves.
        option: of the case, and
        value: of the case, in what `Case` shows of it; "": any.
        row: of the nine in which more moved, or was believed, than stated; 0: of none.
        also: other attributes that are replaced at the same time.
    """

    name: str
    owner: Any
    attribute: str
    makes: Callable[[Any], Any]
    kind: str | Callable[[Any], bool]
    option: str = "base"
    value: str = ""
    row: int = 0
    also: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = ()

    @property
    def patches(self) -> tuple[tuple[Any, str, Callable[[Any], Any]], ...]:
        """(owner, attribute, makes) of all that is replaced."""
        return (self.owner, self.attribute, self.makes), *self.also


def _less(times: float) -> Callable[[Any], Any]:
    """A sensitivity that is stated so many times too small."""

    def made(old: Any) -> Any:
        def sensitivity(self: Any) -> Sensitivity:
            found: Sensitivity = old.fget(self)
            return replace(found, value=found.value / times)

        return property(sensitivity)

    return made


def _times(times: float) -> Callable[[Any], Any]:
    return lambda old: lambda *given: times * dense(old(*given))


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


def _no_clip(old: Any) -> Any:
    return lambda self, rows: np.asarray(rows.sum(axis=0))


def _little_ridge(old: Any) -> Any:
    return lambda self, rows: old(replace(self, ridge=self.ridge / 10), rows)


def _looser(old: Any) -> Any:
    return lambda self, theta, rows: old(replace(self, clip=10 * self.clip), theta, rows)


def _own_constant(old: Any) -> Any:
    def rows(self: Any, given: Any) -> Any:
        found = old(self, given)
        found[:, self.center.size] = given[:, self.center.size]
        return found

    return rows


def _as_is(old: Any) -> Any:
    return lambda self, *given: self


def _raw(old: Any) -> Any:
    def each(self: Any, points: Any, rows: Any) -> Any:
        at = np.tile(points, (len(rows), 1)) if points.ndim == 1 else points
        return dense(self.loss.gradients_at(at, rows))

    return each


def _declared(old: Any) -> Any:
    return Problem.planned_smoothness


def _tiny(old: Any) -> Any:
    return property(lambda self: 1e-6)


def _believed(old: Any) -> Any:
    """The event of a randomizer, whatever is asked: that of the nearest values it has met."""
    met: list[Any] = []

    def event(self: Any, users: int, query: Any) -> Any:
        met.append(query)
        return old(self, users, min(met, key=lambda each: each.apart))

    return event


def _alternating(old: Any) -> Any:
    """Dykstra's projections, stopped."""

    def project(self: Any, theta: Any) -> Any:
        point, left, right = theta, 0 * theta, 0 * theta
        for _ in range(2000):
            middle = self._sets[0].project(point + left)
            left = point + left - middle
            point = self._sets[1].project(middle + right)
            right = middle + right - point
        return point

    return project


def _of_rows(old: Any) -> Any:
    """The least radius of a tilted risk, by labels that rows have."""

    def least(self: Any) -> float:
        largest = float(np.abs(self.loss.values(np.zeros(self.d), self.rows)).max())
        error = self._error(self._far, self._slope, self._slope * self._far + largest)
        return error / self.ridge

    return property(least)


def _sum_of_all(old: Any) -> Any:
    def part(self: Any, rows: Any) -> Any:
        scores = np.asarray(self.query(rows)) * math.sqrt(len(self.query.thetas))
        return np.clip(scores, -1.0, 1.0).sum(axis=0)

    return part


def _base_of(old: Any) -> Any:
    return lambda loss: Logistic if isinstance(loss, Logistic) else type(loss)


def _of_nothing(old: Any) -> Any:
    return lambda values: {}


def _agrees(old: Any) -> Any:
    return lambda self, tree, classes: None


def _undecided(old: Any) -> Any:
    """By one word of each uniform; the last bits' chance was granted and not charged."""

    def carried(units: Any, r: int, rng: Any) -> Any:
        words = (rng.bit_generator.random_raw(r * units.size) >> 12).reshape(-1, r)
        return (units + words.sum(axis=1).view(np.int64)) >> 52

    return carried


def _unlimited(old: Any) -> Any:
    return math.inf


REVERTED = (
    Defect(
        "a plain pass takes gradients as they are",
        Clipped, "each", _raw, "LinearTimePhasedSGD", "given", "norm_bound=0.01", 1,
    ),
    Defect(
        "a step is held against a declared smoothness",
        Problem, "smoothness", _declared, "LinearTimePhasedSGD", "given",
        "declared_smoothness=1e-06", 2, ((Clipped, "smoothness", _tiny),),
    ),
    Defect(
        "the event of near values for every query",
        BinomialRandomizer, "event", _believed, "OneShotAverage", "protects", "record", 3,
    ),
    Defect(
        "records beyond the bounds are believed",
        one_shot, "valid_records", _as_they_are, "OneShotAverage", "protects", "record",
    ),
    Defect(
        "generated rows are not hashed",
        Generated, "watched", _as_is, probes.other_rows_are_not_seen, row=4,
    ),
    Defect(
        "code is no part of a run",
        identity, "code_of", _of_nothing, probes.other_code_is_not_seen, row=4,
    ),
    Defect(
        "alternating projections that stop",
        Intersection, "project", _alternating, probes.points_lie_outside, row=5,
    ),
    Defect(
        "a least radius of the rows' own labels",
        TiltedObjective, "least_radius", _of_rows, "TiltedERM", "problem.loss", "Huber", 6,
    ),
    Defect("all records of a person count", Persons, "first", _as_is, "UserLevelGD", row=7),
    Defect(
        "all records of a person are held",
        Persons, "first", _as_is, probes.a_person_costs_memory, row=7,
    ),
    Defect(
        "carries are decided by 52 bits",
        carries, "_carry_out", _undecided, probes.ties_are_not_drawn_out, row=8,
    ),
    Defect(
        "trees are not compared with what was agreed",
        Task, "demand", _agrees, probes.things_are_built_first, row=9,
    ),
    Defect("squares of rows vanish", arrays, "_HUGE", _unlimited, "ShuffleGD", "given"),
    Defect("scores are no numbers", MeanScores, "part", _sum_of_all, "CuratedSelection", "given"),
    Defect(
        "points far away are compared",
        outlier_removal, "clipped", _unclipped, "AcceleratedPhasedERM", "given",
    ),
    Defect(
        "a subclass is taken for the logistic loss",
        objective_perturbation, "type", _base_of, "ObjectivePerturbation", "given",
    ),
)  # fmt: skip
"""What was mended, put back; a test asks for all nine rows."""

DEFECTS = (
    *REVERTED,
    Defect("a moved row keeps its constant", Centred, "rows", _own_constant, "CentredObjective"),
    Defect("a sum's rows are not clipped", sums.BallSum, "part", _no_clip, "CentralSum"),
    Defect("2 radius is stated as radius", sums.BallSum, "sensitivity", _less(2), "CentralSum"),
    Defect("half of 2 L/n", Potential, "sensitivity", _less(2), "Gibbs"),
    Defect("half of Lemma S", GroupRisk, "sensitivity", _less_of_risk(2), "SaddleERM"),
    Defect("a third of Lemma S", Risk, "sensitivity", _less_of_risk(3), "OutputPerturbation"),
    Defect("the ridge is forgotten", Risk, "objective", _little_ridge, "OutputPerturbation"),
    Defect(
        "half of what tilted rows move",
        TiltedRisk,
        "sensitivity",
        _less_of_risk(2),
        "TiltedERM",
    ),
    Defect(
        "half of what a person moves",
        ExtensionMinimiser,
        "sensitivity",
        _less(2),
        "PhasedERM",
        "given",
        "MeanEstimation",
    ),
    Defect(
        "a bowl that is not in the objective",
        ExtensionMinimiser,
        "_objective",
        _little_ridge,
        "PhasedSCO",
        "given",
        "MeanEstimation",
    ),
    Defect("gradients twice as long", Clipped, "each", _times(2), "GaussianGD"),
    Defect("scores of longer gradients", Clipped, "gradients_of", _looser, "ExponentialGrid"),
    Defect("a clip ten times too wide", Clipped, "each", _looser, "PopLocalize"),
    Defect(
        "own losses scaled to ten clips",
        ScaledSurrogate,
        "each",
        _looser,
        "HeavyTailedERM",
        "given",
        "Several",
    ),
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
        accelerated_erm,
        "clipped",
        _unclipped,
        "AcceleratedPhasedERM",
        "problem.norm_bound",
        "0.01",
    ),
    Defect(
        "neither groups' points nor their gradients are clipped",
        grouped_descent,
        "clipped",
        _unclipped,
        "LinearTimePhasedSGD",
        "given",
        "chain",
        also=((Clipped, "each", _times(100)),),
    ),
    Defect("half of a range of scores", MeanScores, "sensitivity", _less(2), "CuratedSelection"),
    Defect(
        "Response admits all", Response, "admit", _admits_all, "Histogram", "method", "response"
    ),
    *(
        Defect(f"{randomizer.__name__} admits all", randomizer, "admit", _admits_all, kind)
        for randomizer, kind in (
            (BinomialRandomizer, "VectorSum"),
            (BinomialRandomizer, "ScalarSum"),
            (CarryRandomizer, "CarryVectorSum"),
            (SplitMixRandomizer, "SplitAndMixVectorSum"),
            (SingleMessageRandomizer, "SingleMessageSum"),
            (FloodRandomizer, "LaplaceScalarSum"),
            (BucketRandomizer, "SparseVectorSum"),
            (Prefixes, "HeavyHitters"),
            (Planes, "GroupMeans"),
        )
    ),
)
