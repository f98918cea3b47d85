"""Scikit-learn estimators: linear models that are trained by a shuffle protocol on bounded rows.

All bounds are public parameters, never taken from the data. Every user divides its row by
`feature_bound` (clipping it to the unit ball first, if it is longer) and maps its target from
`target_bounds` to [-1, 1]; `radius`, `ridge` and `threshold` are in these units. `coef_` and
`intercept_` are in those of the data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocols.learning.descent import DescentModel
from protocols.learning.linear_model import Sample, WeightedRows
from protocols.learning.notes import CLIPPED, ClippingWarning
from protocols.learning.targets import LinearRegressor, LogisticModel, WeightedClassifier
from protocols.learning.training import Trained, Trainer
from protocols.optimisation import practice
from protocols.problems.linear_loss import LinearLoss
from protocols.selection.models import FRACTION
from protocols.shuffle.optimiser import optimiser, optimisers
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import ParameterError, flag, one_of
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.protocol.encodings import NOISE_RATIO

__all__ = [
    "CLIPPED",
    "ClippingWarning",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShuffleRegressor",
]

MAX_ROUNDS = 100
"""More are not taken unasked by choose="bound": each costs every user a report."""
_FAMILIES = {Unit.RECORD: "shuffle", Unit.PERSON: "user-level"}


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLinearModel(DescentModel):
    """What the estimators share; not for use by itself.

    All of `DescentModel`, and:

    Args:
        protocol: a registered optimiser, "shuffle-" left out if wanted: "gd" (everybody answers in
        every round: the least noise), "sgd" or "acsa" (everybody answers once).
        phases: run the protocol in phases on disjoint users, for a ridge above 0 (`Phased`).
        batch: users in a round of "sgd" or "acsa"; chosen where not given.
        eta: step of "gd" or "sgd"; chosen where not given.
        choose: "practice" for clip, rounds and step tuned on synthetic data, without a proven
            bound; "bound" for those of the smallest proven bound. Not for phases, which need
            "bound".
        ridge: adds ridge/2 times the squared l2 norm of all parameters, intercepts included, to the
            average loss.
        noise_ratio: of the noise over the central Gaussian's; nearer to 1 takes more bits. None:
            1.05, or what the encoding can have.
        encoding: of numbers as messages, "carry", "unary" or "buckets"; None: that of the fewest
            bits.
        rotation: public seed of a rotation of gradients of many coordinates, which then take fewer
            bits; None: there is none.
        honest_fraction: of the users that are counted on to add their noise, in every round.
        runtime: "inprocess", "processes", "ray", another registered name, or a runtime.
        workers: user shards.
        fidelity: "aggregate", "counts" or "literal": one law; None chooses by cost.
        select: values of "radius", "ridge", "rounds" or "eta", such as {"radius": [5, 100]}. A
            model is trained for each combination, within one budget, and users who train none
            choose one by noisy scores (report noisy max). None: no selection.
        select_fraction: of the users who score, with `select`.

    Attributes:
        protocol_: what was run; its `choices` say which parameters were chosen, and why.
        costs_: communication.
        selection_: with `select`, the winner's name and the noisy scores; else None.
    """

    protocol: str = "gd"
    phases: bool = False
    batch: int | None = None
    eta: float | None = None
    choose: str = "practice"
    ridge: float = 0.0
    noise_ratio: float | None = None
    encoding: str | None = None
    rotation: int | None = None
    honest_fraction: float = 1.0
    runtime: str | Runtime = "inprocess"
    workers: int = 1
    fidelity: str | None = "aggregate"
    select: Mapping[str, Sequence[float]] | None = None
    select_fraction: float = FRACTION

    def _train(self, data: Sample) -> tuple[Floats, Floats]:
        one_of("choose", self.choose, practice.CHOOSE)
        flag("phases", self.phases)
        free = self.noise_ratio is None and self.encoding is None
        self.protocol_, coefficients, intercepts = self._descend(
            data,
            make=self._protocol,
            chosen=self._chosen(Unit.RECORD if data.groups is None else Unit.PERSON),
            host={"runtime": self.runtime, "fidelity": self.fidelity, "workers": self.workers},
            ridge=self.ridge,
            noise_ratio=NOISE_RATIO if free else self.noise_ratio,
            encoding=self.encoding,
            rotation=self.rotation,
            honest_fraction=self.honest_fraction,
        )
        self.costs_, self.selection_ = self.result_.costs, Trained.of(self.result_.value).selection
        return coefficients, intercepts

    def _name(self, unit: Unit) -> str:
        full = f"{_FAMILIES[unit]}-{self.protocol}"
        return full if full in optimisers(unit) else self.protocol

    def _chosen(self, unit: Unit) -> str:
        """How parameters are chosen; nothing is tuned for optimisers of others."""
        return self.choose if optimiser(self._name(unit), unit).tuned else "bound"

    def _protocol(self, trainer: Trainer, n: int, by: RowMap) -> Any:
        """What the trainer makes; what its optimiser does not take is refused there."""
        given: dict[str, Any] = {"rounds": self.rounds, "batch": self.batch, "eta": self.eta}
        if self.phases:
            if not self.ridge > 0:
                allowed = "above 0 in phases: they need strong convexity"
                raise ParameterError("ridge", self.ridge, allowed)
            given["phases"] = 0  # their number is chosen
        elif trainer.choose == "bound":
            given["max_rounds_per_user"] = MAX_ROUNDS
        if not isinstance(self.select, Mapping | None):
            allowed = "None, or values by parameter, such as {'radius': [5, 100]}"
            raise ParameterError("select", self.select, allowed)
        return trainer.paid(
            self._name(trainer.unit),
            n,
            select=self.select,
            fraction=self.select_fraction,
            share=self.choose_bounds,
            by=by,
            **given,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleClassifier(ShuffleLinearModel, WeightedClassifier):
    """What the classifiers share; not for use by itself: `ShuffleLinearModel` with classes."""


class ShuffleLogisticRegression(LogisticModel, ShuffleClassifier):
    """Logistic regression; multinomial for more than two classes.

    All parameters are those of `ShuffleClassifier`.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLinearSVC(ShuffleClassifier):
    """Linear support vector machine with the hinge loss; one-vs-rest for more than two classes.

    Args:
        loss: "hinge", or the name of another registered loss of classes, or such a loss.
    """

    loss: str | LinearLoss = "hinge"


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleRegressor(ShuffleLinearModel, WeightedRows, LinearRegressor):
    """Linear regression.

    Args:
        loss: "squared", "huber", "absolute", "pinball" or another registered loss of numbers; or
            such a loss.
        threshold: of the Huber loss, where it becomes linear; in units of half the range of
            `target_bounds`.
        quantile: of the pinball loss.
        target_bounds: public (low, high); targets beyond are clipped on the user's side.
    """

    loss: str | LinearLoss = "squared"
    threshold: float = 0.1
    quantile: float = 0.5
    target_bounds: tuple[float, float] = (-1.0, 1.0)

    _proven_radius = 2.0
    loss_parameters = ("threshold", "quantile")
