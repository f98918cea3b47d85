"""What is tried: for everything registered a base, and every option at its values, one at a time.

A value that a class refuses cannot break it, and counts as tried. What is no option of any promise
(words of the result) is named in `WORDS`.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

import protocols
from protocols.central.heavy_tails.heavy_tailed_erm import NOISES as HEAVY_NOISES
from protocols.central.heavy_tails.heavy_tailed_erm import SOLVERS as HEAVY_SOLVERS
from protocols.central.heavy_tails.pop_localize import SYSTEMS
from protocols.central.person.accelerated_erm_plan import CENTERS
from protocols.central.person.linear_time_plan import MEANS
from protocols.central.person.one_pass_plan import BATCHES
from protocols.central.record.output_bound import NOISES
from protocols.central.record.sums import MECHANISMS
from protocols.counts.methods import METHODS
from protocols.erm import Grouped
from protocols.erm.adversarial import NORMS, Perturbation
from protocols.erm.payoff import Payoff, Steepness
from protocols.erm.solver import SOLVERS
from protocols.optimisation.acceleration import SCHEDULES
from protocols.problems import (
    Absolute,
    Box,
    Hinge,
    Huber,
    Intersection,
    L2Ball,
    Linear,
    Logistic,
    MeanEstimation,
    Moments,
    OneVsRestHinge,
    Pinball,
    Polytope,
    Problem,
    RealSpace,
    Simplex,
    Softmax,
    Squared,
    Weighted,
)  # fmt: skip
from protocols.problems.loss import refuse_rows
from shuffle_sim import Privacy
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.count_planner import OBJECTIVES
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace
from shuffle_sim.privacy.trust import Trust

from .neighbours import People, Records, Stacked

WIDE, CURATED = Privacy(50.0, 1e-3), Privacy(5.0, 1e-3)
PLAIN = Problem(Logistic(), L2Ball(2, 1.0))
RIDGED = replace(PLAIN, ridge=0.1)


class Several(Softmax):
    """One's own convex loss of several classes: what of it is proven for softmax is not used."""

    def value(self, scores: Any, chosen: Any) -> Any:
        """sum_k ln(1 + e^(-y_k scores_k)), y_k = 1 for the class and -1 for the rest."""
        return np.logaddexp(0.0, np.where(chosen, -scores, scores)).sum(axis=1)

    def derivative(self, scores: Any, chosen: Any, squared_norms: Any, smoothing: Any) -> Any:
        """Of each class by itself."""
        return scipy.special.expit(scores) - chosen

    def row_smoothness(self, rows: Any) -> Any:
        """||x||^2/4."""
        return (rows[:, :-1] ** 2).sum(axis=1) / 4

    def reach_norms(self, rows: Any, radius: float) -> Any:
        """A false one, of which privacy may not hear."""
        return 1e-6 * super().reach_norms(rows, radius)


@dataclass(frozen=True)
class Fair(Payoff):
    """Logistic loss and v times the group's score: rows (x, y, s), with signs y and s."""

    opponent = L2Ball(1, 1.0)

    def columns(self, d):
        return d + 2

    def check(self, rows, d):
        refuse_rows((np.abs(rows[:, d:]) != 1).any(axis=1), "with signs")
        refuse_rows(~(np.linalg.norm(rows[:, :d], axis=1) <= 1 + 1e-9), "with x in the unit ball")

    def payoffs(self, w, v, rows):
        score = rows[:, :-2] @ w
        return np.logaddexp(0, -rows[:, -2] * score) + v[0] * rows[:, -1] * score

    def row_slopes(self, w, v, rows):
        x, y, s = rows[:, :-2], rows[:, -2], rows[:, -1]
        score = x @ w
        return (v[0] * s - y * scipy.special.expit(-y * score))[:, None] * x, (s * score)[:, None]

    def steepness(self, radius):
        return Steepness(own=2.0, other=radius, curved=0.25, cross=1.0)


class Ramp(Logistic):
    """A subclass with bends that are no function of its slopes."""

    def value(self, margins: Any, labels: Any) -> Any:
        """Of three pieces."""
        signed = labels * margins
        return np.where(signed < -2.5, -signed, np.clip(2.5 - signed, 0, 5) ** 2 / 10)

    def derivative(self, margins: Any, labels: Any) -> Any:
        """A ramp from -1 to 0."""
        return -labels * np.clip(0.5 - labels * margins / 5, 0.0, 1.0)

    def second(self, margins: Any, labels: Any) -> Any:
        """A fifth on the ramp."""
        return np.where(np.abs(margins) <= 2.5, 0.2, 0.0)


WORDS = {"bound", "choices", "claim"}
"""Options that say what is expected or why, and enter nothing that is asked."""
MADE_OF = {
    "ChosenBounds": {"by", "columns", "histogram", "inner", "make", "part"},
    "CuratedSelection": {"candidates", "choice", "delta", "loss"},
    "CentredObjective": {"inner"},
    "Piloted": {"kind"},
    "Selected": {"candidates", "total"},
}
"""Parts that the maker of a class below makes of the other options."""
HELPERS = {
    "AboveThreshold": "asked by no algorithm; its exact law is in the tests of the sparse vector",
    "NoisyMean": "the sum of the optimisers; its options are theirs",
    "OneRound": "the rounds of what is built on it",
    "Phases": "what `Phased` is under any trust; no algorithm by itself",
    "PhasedOutput": "the phases of `PhasedERM` and `PhasedSCO`",
}

TINY = (L2Ball(2, 1e-3, 1e8), Box(2, 1e8, 1e8 + 1e-3), L2Ball(2, 1e-12), Box(2, -1e-9, 1e-9))
DOMAINS: tuple[Any, ...] = (
    L2Ball(2, 1e3), L2Ball(2, 1.0, (3.0, -4.0)), Box(2, -1.0, (0.5, 2.0)), Simplex(2, 1.0),
    Intersection(Box(2, -1.0, 1.0), L2Ball(2, 1.0, (1.0, 1.0))),
    Intersection(L2Ball(2, 1.0), L2Ball(2, 0.5, (0.6, 0.6))), RealSpace(2), *TINY,
    Polytope(((1.0, 1.0), (-1.0, 0.3), (0.2, -1.0)), (1.0, 1.0, 1.0)),
)  # fmt: skip
LOSSES: tuple[Any, ...] = (
    Logistic(0.01), Logistic(math.inf), Hinge(), Squared(labels=1.0), Squared(),
    Huber(threshold=0.3), Absolute(labels=1.0), Pinball(quantile=0.9, labels=1.0), Linear(),
    MeanEstimation(), MeanEstimation(math.inf), Weighted(Logistic(), 3.0),
    Weighted(Hinge(), 0.5), Softmax(3), OneVsRestHinge(3), Grouped(Logistic(), 3),
)  # fmt: skip
PROBLEM: dict[str, tuple[Any, ...]] = {
    "loss": LOSSES,
    "domain": DOMAINS,
    "ridge": (0.0, 1e-6, 0.1, 5.0),
    "start": (np.array([0.3, -0.2]), np.array([50.0, 0.0])),
    "norm_bound": (0.01, 1e-9, 2.0, math.inf),
    "declared_smoothness": (0.0, 1e-6, 100.0, math.inf),
    "declared_spread": (0.0, 0.1),
    "declared_root": (1e-3,),
    "records": (1, 7),
    "constant": (0.5,),
}
FLAT = Intersection(Box(2, (0.0, -1e-3), (1e3, 1e-3)), L2Ball(2, 1.0, (0.0, 1.0 + 9e-4)))
"""Two sets that nearly only touch: alternating projections hardly move."""
VALUES: dict[str, tuple[Any, ...]] = {
    "n": (2, 9),
    "privacy": (Privacy(1.0, 1e-6), Privacy(1.0, 0.0), Privacy(0.1, 1e-3)),
    "ridge": (1e-3, 2.0),
    "noise": (*NOISES, *HEAVY_NOISES),
    "theta": (0.5, 1e-3),
    "solver": (*SOLVERS, *HEAVY_SOLVERS),
    "population": (True,),
    "projected": (True, False),
    "tilt": (0.01, 3.0),
    "norm": NORMS[:3],
    "corners": (((0.1, 0.0), (0.0, 0.2)),),
    "radius": (1e-3, 1.0),
    "concavity": (0.1, 10.0),
    "weights": ((1.0, 3.0), (0.0, 1.0)),
    "share": (0.2, 0.7),
    "fraction": (0.2,),
    "miss": (0.01, 0.4),
    "moments": (Moments(2.0, 3.0, 3.0, 1.0), Moments.bounded(0.5), Moments(4.0, 10.0, 5.0, 1.0)),
    "rounds": (1, 2, 5),
    "clip": (1e-3, 10.0),
    "eta": (1e-3, 10.0),
    "batch": (2, 5),
    "batches": BATCHES,
    "smoothing": (0.01, 100.0),
    "schedule": SCHEDULES,
    "encoding": ("carry", "unary"),
    "honest_fraction": (0.5,),
    "noise_ratio": (1.5, 3.0),
    "initial_distance": (0.01,),
    "max_rounds_per_user": (3,),
    "trust": (Trust.SHUFFLE, Trust.CENTRAL, Trust.LOCAL, Trust.NONE),
    "center": CENTERS,
    "coarse": (0, 2),
    "deviations": (0.0, 1.0, 5.0),
    "fail": (0.1,),
    "steps": (1, 60),
    "phases": (1, 2, 3),
    "releases": (1, 2, 3),
    "growth": (2.0,),
    "width": (0.5, 3.0),
    "curvature": (0.1, 10.0),
    "step": (0.3,),
    "pilot": (True, 5),
    "scale": (1e-3, 100.0),
    "blocks": (2, 3),
    "failure": (0.3,),
    "system": SYSTEMS,
    "tight": (True, False),
    "first": (0.01, 100.0),
    "mean": MEANS,
    "records": (2, 5),
    "protects": ("person", "record"),
    "mechanism": tuple(MECHANISMS),
    "norm_bound": (1e-3, 100.0),
    "upper": (1e-3, 100.0),
    "max_bits": (30,),
    "rotation": (7,),
    "span": (0.5, 1.0),
    "d": (1, 5),
    "delta": (1e-4,),
    "r": (3, 5),
    "g": (4, 10),
    "b": (300, 500),
    "p": (0.25,),
    "levels": (1, 3),
    "gamma": (0.5,),
    "security": (20,),
    "rounding": (0.1,),
    "q": (0.1,),
    "seed": (3,),
}
"""By option, for all classes that have it; those of one class alone stand in `OWN`."""


OPTIMISERS = (
    "UserLevelOneShot", "ShuffleACSA", "ShuffleGD", "ShuffleSGD", "UserLevelGD", "UserLevelACSA",
)  # fmt: skip


def scaled(times: float) -> Callable[[Any], Any]:
    """A number that was chosen, times so much."""
    return lambda chosen: chosen * times


def each(**changes: float) -> Callable[[Any], Any]:
    """Phases with numbers that are so many times those that were chosen."""

    def changed(phases: Any) -> Any:
        return tuple(
            replace(one, **{k: getattr(one, k) * v for k, v in changes.items()}) for one in phases
        )

    return changed


FAR = L2Ball(6, 1e5)
POINTS = Problem(MeanEstimation(math.inf), L2Ball(2, 1.0), norm_bound=1.0)
JOINT = tuple(
    {"problem": Problem(loss, L2Ball(6, 1.0), norm_bound=math.inf)}
    for loss in (Several(3, math.inf), Softmax(3, math.inf), OneVsRestHinge(3, math.inf))
)
VANISHING = {"given": ({"problem": Problem(Squared(), L2Ball(2, 1.0), norm_bound=1e-12)},)}
SMALLER = {"mean": (lambda mean: mean.within(mean.norm_bound / 100),)}
CENTRED = {"mean": (lambda mean: mean.within(mean.norm_bound),)}
CENTRED |= {"centring": (lambda centring: replace(centring, spread=1e-3, contraction=0.0),)}
STEPS = {"randomizer": (lambda randomizer: replace(randomizer, steps=randomizer.steps + 1),)}
PHASED = {"ridges": ((0.01, 10.0),), "contraction": (0.0, 0.5), "tau": (1e-3,)}
PHASED["mechanism"] = (lambda chosen: Gaussian(3.0),)
PHASED["bowl"] = (scaled(0.5), 0.1)
MEAN = Problem(MeanEstimation(), L2Ball(2, 1.0), records=3)
PHASED["given"] = (
    {"problem": MEAN},
    {"problem": replace(MEAN, domain=L2Ball(2, 1.0, (3.0, -4.0)))},
    {"problem": replace(MEAN, domain=Box(2, (1.0, -1.0), 2.0))},
    {
        "problem": replace(MEAN, declared_spread=0.01),
        **{"n": 20, "releases": 2, "phases": 1, "privacy": WIDE},
    },
)
PHASED["problem.norm_bound"] = (
    0.3,
    2.0,
    math.inf,
)  # where all are outside, a release takes minutes
COUNTS: dict[str, tuple[Any, ...]] = {
    "randomizer": (lambda chosen: replace(chosen, rates=tuple(2 * each for each in chosen.rates)),),
    "objective": tuple(OBJECTIVES),
}
RANGE: dict[str, tuple[Any, ...]] = COUNTS | {"low": (-1.0,), "high": (2.0,)}
"""Of protocols of counts."""
RISK: dict[str, tuple[Any, ...]] = {
    "risk": (lambda risk: replace(risk, ridge=3.0),),
    "mechanism": (lambda chosen: Gaussian(3.0), lambda chosen: L2Laplace(1.0, 2)),
}
OWN: dict[str, dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("ShuffleGD", "ShuffleSGD"), SMALLER | VANISHING),
    "ShuffleACSA": SMALLER,
    **dict.fromkeys(("UserLevelGD", "UserLevelOneShot"), CENTRED),
    "UserLevelACSA": CENTRED | {"schedule": (lambda chosen: replace(chosen, sigma=9.0),)},
    **dict.fromkeys(("SplitAndMixSum", "SplitAndMixVectorSum"), STEPS),
    "DeletionStability": {"mechanism": (lambda chosen: replace(chosen, noise_multiplier=9.0),)},
    "GroupMeans": RANGE | {"groups": (2, 5), "bits": (1, 3), "moments": (2,)},
    "FoundHistogram": {
        "bits": (2, 20),
        "kept": (1, 5),
        "search": (lambda search: search,),
        "counting": (lambda counting: replace(counting, rates=(2 * counting.rates[0],)),),
    },
    "HeavyHitters": {
        **dict.fromkeys(("false_items", "missed"), (0.1,)),
        "levels": ((4,), (3, 1)),
        "bits": (4,),
        "kept": (1, 5),
        "rate": (30.0,),
        "objective": tuple(OBJECTIVES),
    },
    "Histogram": {
        **COUNTS,
        "categories": (2, 300, (2, 3)),
        "method": tuple(METHODS),
        "max_messages": (1.0, 2.0),
        "count": (0.0, 4.0),
        "kept_back": (0.0, 0.3),
        "flood": (0.2,),
    },
    "Quantiles": RANGE | {"leaves": (16,), "fans": ((2, 4),)},
    "LaplaceScalarSum": {
        **dict.fromkeys(("low", "high", "top"), (lambda chosen: chosen + 1,)),
        **dict.fromkeys(("decay", "smooth", "flood", "pairs", "cap", "base"), (scaled(2),)),
        **dict.fromkeys(("batch", "pair_batch"), (3,)),
        "packed": (True,),
        "error": (2.0,),
    },
    "LaplaceVectorSum": {
        "digits": (lambda digits: replace(digits, low=digits.low + 1),),
        "noise": (lambda noise: replace(noise, decay=noise.decay / 2),),
        "cap": (scaled(2),),
        "error": (2.0,),
    },
    "SparseVectorSum": {"a": (scaled(0.5),), "bucket": (1, 4), "noise_ratio": (80.0, 300.0)},
    "Baseline": {"optimiser": OPTIMISERS},
    "OneShotAverage": {"total": (lambda total: total,)},
    "RunningTotals": {"sums": (lambda sums: sums,)},
    "CuratedPhases": {"optimiser": ("PanPrivateACSA", "GaussianGD", "OutputPerturbation")},
    "Phased": {"optimiser": OPTIMISERS[1:5]},
    "Piloted": {"kind": OPTIMISERS[1:4]},
    "ChosenBounds": {"encoding": ("carry",)},
    "AcceleratedPhasedERM": {
        "given": ({"center": "removed", "problem": replace(POINTS, records=3)},)
    },
    "CuratedSelection": {
        "kind": ("PureSGD", "GaussianGD", "HeavyTailedERM", "Gibbs"),
        "given": ({"kind": "PureSGD", "problem": replace(POINTS, loss=Squared(labels=1.0))},),
    },
    "ObjectivePerturbation": {"given": ({"problem": replace(RIDGED, loss=Ramp(), ridge=2.0)},)},
    "PanPrivateACSA": {"noise_multiplier": (scaled(2),)},
    "LinearTimePhasedSGD": {
        "given": (
            {"mean": "plain", "problem": Problem(Logistic(), FAR, norm_bound=0.01, records=3)},
            {"mean": "chain", "problem": Problem(Logistic(), L2Ball(2, 1e3), records=3)},
            {
                "mean": "plain",
                "n": 200,
                "problem": Problem(Logistic(), FAR, declared_smoothness=1e-6),
            },
        ),
        "mechanism": (lambda chosen: chosen,),
        "phases": (each(eta=0.1), each(reach=0.1, eta=3)),
    },
    "PopLocalize": {"given": JOINT},
    "HeavyTailedERM": {
        "given": JOINT,
        "phases": (1, 2, each(clip=0.1), each(smoothing=0.5)),
    },
    "ExponentialGrid": {"phases": (each(clip=0.1),)},
    "PhasedERM": PHASED,
    "PhasedSCO": PHASED,
    **dict.fromkeys(("OutputPerturbation", "TiltedERM", "AdversarialERM", "SaddleERM"), RISK),
    "AdversarialERM": RISK | {"budget": (Perturbation("linf", 0.3),)},
    "SaddleERM": RISK
    | {"given": ({"problem": Problem(Fair(), L2Ball(2, 1.0), ridge=0.1), "concavity": 0.05},)},
}
"""Of one class alone; a function changes what was chosen, and the class is made from all of it."""


COUNTED: dict[str, Callable[[Any], int]] = {
    "GroupMeans": lambda made: made.groups,
    "FoundHistogram": lambda made: 2**made.search.bits,
    "HeavyHitters": lambda made: 2**made.bits,
    "Histogram": lambda made: made.randomizer.bins,
    "Quantiles": lambda made: made.high + 1,
}
"""Whose rows are whole numbers below a bound."""

PARTS = ("method", "pilot", "mean", "noise", "trust")
"""Options under which other statistics, randomizers or mechanisms are asked."""

COSTLY = {"Piloted": 0.05, "DeletionStability": 0.2, "PopLocalize": 0.3}
COSTLY |= dict.fromkeys(("OneShotAverage", "UserLevelOneShot"), 0.2)
"""Share of the runs that others get: a run plans anew, or enumerates subsets."""


@dataclass(frozen=True)
class Case:
    """One thing that is tried.

    Attributes:
        kind: name of the class.
        option: what was given.
        value: of it, in words.
        make: makes the algorithm; refuses by ParameterError.
        loss, d, m: of the rows; m of persons.
    """

    kind: str
    option: str
    value: str
    make: Callable[[], Any]
    loss: Any
    d: int
    m: int = 1

    @property
    def name(self) -> str:
        """In reports."""
        return f"{self.kind} {self.option}={self.value}"

    @property
    def share(self) -> float:
        """Of the runs of a search."""
        return COSTLY.get(self.kind, 1.0)

    def space(self, made: Any) -> Any:
        """Where neighbours are looked for."""
        if isinstance(made, protocols.OneShotAverage):
            return Stacked(self.loss, self.d, made.users, made.records, made.protects == "record")
        if made.unit == "person":
            return People(self.loss, self.d, made.users, max(3, self.m))
        bins = COUNTED.get(self.kind)
        if bins is not None:
            return Records(self.loss, self.d, made.users, bins(made) - 1)
        bound = getattr(made, "norm_bound", None) or getattr(made, "upper", 1.0)
        return Records(self.loss, self.d, made.users, 3 * bound)


def bases() -> dict[str, dict[str, Any]]:
    """What each class is made with where nothing else is given."""
    small: dict[str, Any] = {"n": 4, "problem": replace(PLAIN, ridge=2.0), "privacy": CURATED}
    several: dict[str, Any] = small | {"n": 8, "problem": PLAIN}
    constant = replace(PLAIN, loss=Logistic(1.25), ridge=2.0, constant=0.75)
    long = Problem(Logistic(math.inf), L2Ball(2, 1.0), norm_bound=math.inf)
    heavy: dict[str, Any] = several | {"problem": long, "moments": Moments(2.0, 3.0, 3.0, 1.0)}
    persons: dict[str, Any] = small | {"n": 6, "problem": replace(RIDGED, records=3)}
    crowd: dict[str, Any] = {"n": 60, "problem": PLAIN, "privacy": WIDE}
    people: dict[str, Any] = crowd | {"problem": replace(PLAIN, records=3)}
    total: dict[str, Any] = {"n": 60, "privacy": WIDE}
    groups = Problem(Grouped(Logistic(), 2), L2Ball(2, 1.0), ridge=0.1)
    wide = Problem(Logistic(), L2Ball(2, 20.0), ridge=1.0)
    return {
        **dict.fromkeys(
            ("AdversarialERM", "Gibbs", "LocalisedExponential", "ObjectivePerturbation",
             "OutputPerturbation", "TiltedERM"), small),
        "CentredObjective": small | {"problem": constant},
        "SaddleERM": small | {"problem": groups},
        "ExponentialMechanism": small | {"problem": wide},
        **dict.fromkeys(("GaussianGD", "PureSGD"), several),
        **dict.fromkeys(("HeavyTailedERM", "PopLocalize"), heavy),
        "ExponentialGrid": heavy | {"step": 0.5},
        **dict.fromkeys(("PhasedERM", "PhasedSCO"), persons),
        "DeletionStability": persons | {"privacy": Privacy(50.0, 0.1)},
        "AcceleratedPhasedERM": people | {"phases": 1},
        "LinearTimePhasedSGD": people | {"n": 40},
        **dict.fromkeys(("ShuffleACSA", "ShuffleGD", "ShuffleSGD"), crowd | {"rounds": 4}),
        **dict.fromkeys(("UserLevelACSA", "UserLevelGD"), people | {"rounds": 6}),
        "UserLevelOneShot": people | {"problem": replace(RIDGED, records=3), "steps": 5},
        "RunningTotals": total | {"d": 3, "noise_ratio": 1.5, "rounds": 3},
        "SingleMessageSum": total | {"steps": 4},
        "SplitAndMixSum": total,
        **dict.fromkeys(("CarryScalarSum", "ScalarSum"), total | {"noise_ratio": 1.5}),
        "SplitAndMixVectorSum": total | {"d": 3},
        **dict.fromkeys(("CarryVectorSum", "VectorSum"), total | {"d": 3, "noise_ratio": 1.5}),
        "LaplaceScalarSum": total,
        "LaplaceVectorSum": total | {"d": 2},
        "SparseVectorSum": total | {"d": 8, "noise_ratio": 100.0},
        "GroupMeans": total | {"groups": 3, "low": 0.0, "high": 1.0, "bits": 2},
        "HeavyHitters": total | {"levels": (2, 2), "kept": 2},
        "FoundHistogram": total | {"bits": 4, "kept": 2},
        "Histogram": total | {"categories": 4, "privacy": CURATED},
        "Quantiles": total | {"low": 0.0, "high": 1.0, "leaves": 8},
        "CentralSum": {"n": 5, "d": 3, "privacy": CURATED},
        "PanPrivateACSA": crowd,
        "OneShotAverage": small | {"n": 20, "records": 3},
        "Baseline": {"optimiser": "ShuffleGD", "trust": "central"},
        "CuratedPhases": crowd
        | {"optimiser": "PanPrivateACSA", "problem": RIDGED, "phases": 2},
        "Phased": crowd | {"optimiser": "ShuffleSGD", "problem": RIDGED, "phases": 2},
        "Piloted": crowd | {"kind": "ShuffleGD", "pilot": 20},
        "Selected": crowd | {"fraction": 0.5},
        "ChosenBounds": crowd | {"n": 400, "share": 0.5},
        "CuratedSelection": small | {"n": 4},
    }  # fmt: skip


def _optimiser(name: str) -> Any:
    return getattr(protocols, name).calibrated(**bases()[name])


def _baseline(optimiser: str, trust: Any, privacy: Any = None) -> Any:
    return protocols.Baseline(_optimiser(optimiser), trust, privacy)


def _phased(optimiser: str, kind: Any = protocols.Phased, **given: Any) -> Any:
    return kind.calibrated(optimiser=getattr(protocols, optimiser), **given)


def _piloted(kind: str, **given: Any) -> Any:
    return protocols.Piloted(getattr(protocols, kind), rounds=3, **given)


def _selected(problem: Any, **given: Any) -> Any:
    def make(n: int, privacy: Privacy, eta: float) -> Any:
        common: dict[str, Any] = {"n": n, "problem": problem, "privacy": privacy}
        return protocols.ShuffleGD.calibrated(rounds=2, eta=eta, **common)

    return protocols.Selected.calibrated(
        {"1": partial(make, eta=1), "2": partial(make, eta=2)}, **given
    )


def _bounds(problem: Any, n: int, privacy: Privacy, **given: Any) -> Any:
    def make(left: Privacy) -> Any:
        return protocols.ShuffleGD.calibrated(n=n, problem=problem, privacy=left, rounds=2)

    wide, columns = np.full(3, np.inf), np.arange(2)
    by = RowMap(-wide, wide, np.zeros(3), np.ones(3), columns, np.full(2, 1 / math.sqrt(2)))
    return protocols.ChosenBounds.calibrated(make, n=n, by=by, privacy=privacy, **given)


def _curated(problem: Any, n: int, kind: str = "OutputPerturbation", **given: Any) -> Any:
    def make(privacy: Privacy, ridge: float) -> Any:
        changed = replace(problem, ridge=ridge)
        few = {"phases": 1} if kind == "HeavyTailedERM" else {}
        few |= {"rounds": 1} if kind in ("PureSGD", "GaussianGD") else {}
        return getattr(protocols, kind).calibrated(n=n, problem=changed, privacy=privacy, **few)

    both = {"1": partial(make, ridge=0.1), "2": partial(make, ridge=1.0)}
    return protocols.CuratedSelection.calibrated(both, loss=problem.loss, **given)


MAKERS: dict[str, Callable[..., Any]] = {
    "Baseline": _baseline,
    "ChosenBounds": _bounds,
    "CuratedSelection": _curated,
    "CuratedPhases": partial(_phased, kind=protocols.CuratedPhases),
    "Phased": _phased,
    "Piloted": _piloted,
    "Selected": _selected,
}
"""What is made of other algorithms."""


def cases(kind: str, found: set[str]) -> Iterator[Case]:
    """The base of a class, and each of its options at each value.

    Raises:
        KeyError: a class without a base, or an option without values.
    """
    base = bases()[kind]
    yield _case(kind, base, "", None)
    if hasattr(getattr(protocols, kind), "paper") and kind not in MAKERS:
        yield _case(kind, base, "paper", None)
    for option in sorted(wanted(kind, found)):
        for value in values_of(kind, option):
            yield _case(kind, base, option, value)


def wanted(kind: str, found: set[str]) -> set[str]:
    """Options that are tried: those found, and those that `OWN` adds."""
    own = set(OWN.get(kind, {}))
    return own | found - WORDS - MADE_OF.get(kind, set()) - {"problem"}


def values_of(kind: str, option: str) -> tuple[Any, ...]:
    """At which an option is tried."""
    if option in (own := OWN.get(kind, {})):
        return own[option]
    if option.startswith("problem."):
        return PROBLEM[option.removeprefix("problem.")]
    return VALUES[option]


def _case(kind: str, base: dict[str, Any], option: str, value: Any) -> Case:
    problem = base.get("problem", PLAIN if kind == "Baseline" else None)
    if option == "given":
        base, option_made = base | value, ""
        problem = base["problem"]
    elif option.startswith("problem."):
        problem = _changed(problem, option.removeprefix("problem."), value)
        base, option_made = base | {"problem": problem}, ""
    else:
        option_made = option
    make = partial(_made, getattr(protocols, kind), base, option_made, value)
    loss, d, m = None, base.get("d", 2 if kind == "GroupMeans" else 0), 1
    if option == "d":
        d = value
    if option == "categories" and isinstance(value, tuple):
        d = len(value)
    if isinstance(problem, Problem):
        loss, d, m = problem.loss, problem.d, problem.records
    shown = getattr(value, "__qualname__", repr(value)).replace("\n", " ")
    if option == "given":
        shown = ", ".join(f"{name}={each}" for name, each in value.items())
    return Case(kind, option or "base", shown, make, loss, d, m)


def _changed(problem: Any, name: str, value: Any) -> Any:
    """The problem with another part; a loss of several classes has more parameters.

    What a `Problem` itself refuses is made when the case is.
    """
    if name == "loss":
        d = 2 * getattr(value, "classes", 1)
        if d != problem.d:
            problem = replace(problem, domain=L2Ball(d, problem.domain.radius))
    ridge = {"ridge": problem.ridge or 0.1} if isinstance(value, RealSpace) else {}
    try:
        return replace(problem, **{name: value}, **ridge)
    except ParameterError as error:
        return error


def _made(kind: Any, base: dict[str, Any], option: str, value: Any) -> Any:
    """A class with one option given, by the first of its roads that takes it."""
    if isinstance(base.get("problem"), ParameterError):
        raise base["problem"]
    if kind.__name__ in MAKERS:
        return MAKERS[kind.__name__](**base | ({option: value} if option else {}))
    make = kind.calibrated
    if option == "paper":
        return kind.paper(**_taken(kind.paper, base))
    if option == "pilot":  # in place of moments
        base = {name: each for name, each in base.items() if name != "moments"}
    if option == "max_bits":  # in place of a ratio
        base = {name: each for name, each in base.items() if name != "noise_ratio"}
    if not option:
        return make(**base)
    own = inspect.signature(kind.__init__).parameters
    explicit = option in own and (callable(value) or option not in _roads(kind, make))
    if explicit:
        made = _kept_base(kind, base)
        given = {}
        for name in own:
            with suppress(StopIteration):
                given[name] = _kept(made, name)
        return kind(**given | {option: value(given[option]) if callable(value) else value})
    if option not in _roads(kind, make):
        return kind.paper(**_taken(kind.paper, base) | {option: value})
    return make(**base | {option: value})


_BASES: dict[str, Any] = {}


def _kept_base(kind: Any, base: dict[str, Any]) -> Any:
    """As calibrated: planned once for all options of its constructor."""
    name = f"{kind.__name__} {base!r}"
    if name not in _BASES:
        _BASES[name] = kind.calibrated(**base)
    return _BASES[name]


def _roads(kind: Any, make: Any) -> set[str]:
    """Options that `calibrated` takes by name."""
    from .options import _looked_up, _parameters

    found = _parameters(make) | {*getattr(kind, "takes", ()), *getattr(kind, "adapts", ())}
    for each in kind.__mro__:
        if each.__module__.startswith("protocols."):
            found |= _looked_up(each)
    return found


def _taken(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What a function takes of it."""
    known = inspect.signature(function).parameters
    free = any(each.kind is each.VAR_KEYWORD for each in known.values())
    return {name: each for name, each in given.items() if free or name in known}


def _kept(made: Any, name: str) -> Any:
    """What a parameter of the constructor became."""
    parts = (made, *(getattr(made, each, None) for each in ("randomizer", "noise", "shape")))
    return next(
        getattr(owner, called)
        for owner in parts
        for called in (name, f"_{name}", {"d": "coordinates"}.get(name, name))
        if hasattr(owner, called)
    )
