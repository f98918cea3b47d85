"""Scikit-learn estimators: linear models that are trained by a shuffle protocol on bounded rows.

All bounds are public parameters, never taken from the data. Every user divides its row by
`feature_bound` (clipping it to the unit ball first, if it is longer) and maps its target from
`target_bounds` to [-1, 1]; `radius`, `ridge` and `threshold` are in these units. `coef_` and
`intercept_` are in those of the data.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.learning import own_units
from protocols.learning.classifiers import LinearClassifier, LogisticModel
from protocols.learning.linear_model import (
    CLIPPED,
    ClippingWarning,
    LinearModel,
    of_one_fit,
    seed_of,
)
from protocols.learning.regressors import LinearRegressor
from protocols.learning.training import Trained, Trainer
from protocols.learning.weights import of_classes, of_rows
from protocols.optimisation import practice
from protocols.optimisation.setting import NOISE_RATIO
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.selection.models import FRACTION
from protocols.shuffle.optimiser import optimiser, optimisers
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import WITHHELD, ParameterError
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.privacy.guarantee import DELTA

__all__ = [
    "CLIPPED",
    "ClippingWarning",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShuffleRegressor",
]

MAX_ROUNDS = 100
"""More are not taken unasked by choose="bound": each costs every user a report."""
CONSTANT = {"practice": 0.25, "bound": 1.0}
"""What a user holds beside its features, for the intercept: a small one costs little noise."""
_FAMILIES = {Unit.RECORD: "shuffle", Unit.PERSON: "user-level"}


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLinearModel(LinearModel):
    """What the estimators share; not for use by itself.

    Formal guarantee: `privacy_`, of the whole training, replace-one: neighbours differ in one row
    and its target. What is public: every parameter, the numbers of rows and columns, the column
    names and the classes.

    Args:
        epsilon: of the whole training.
        delta: of the whole training; keep it below 1 over the number of users.
        protocol: a registered optimiser, "shuffle-" left out if wanted: "gd" (everybody answers in
        every round: the least noise), "sgd" or "acsa" (everybody answers once).
        phases: run the protocol in phases on disjoint users, for a ridge above 0 (`Phased`).
        rounds: of training; chosen where not given: at most 240, or MAX_ROUNDS by proven bounds.
        batch: users in a round of "sgd" or "acsa"; chosen where not given.
        eta: step of "gd" or "sgd"; chosen where not given.
        choose: "practice" for clip, rounds and step tuned on synthetic data, without a proven
            bound; "bound" for those of the smallest proven bound. Not for phases, which need
            "bound".
        radius: l2 bound of all parameters together, intercepts included; by default 100, with
            choose="bound" 10, for the regressor 2.
        records: nominal number of records of a person, where `fit` is given groups; public. As many
            count, its first ones; 1,024 where it is 1. More let gradients be clipped nearer to
            their mean. `result_.reports.left_out` says how many records did not count.
        feature_bound: l2 bound of a row; longer rows are clipped on the user's side.
        weight_bound: public bound of `sample_weight`; larger weights are clipped to it on the
            user's side. Noise grows with it.
        ridge: adds ridge/2 times the squared l2 norm of all parameters, intercepts included, to the
            average loss.
        fit_intercept: whether a constant is fitted.
        noise_ratio: of the noise over the central Gaussian's; nearer to 1 takes more bits.
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
        choose_bounds: share of epsilon, such as 0.2, for a private choice of every column's bounds
            (`ChosenBounds`); rows then are in their own units, finite, without a `feature_bound`.
            None: rows lie within `feature_bound`.
        random_state: None takes entropy from the operating system; anything else makes the training
            reproducible, and therefore not private.

    Attributes:
        coef_, intercept_: the model.
        n_iter_: rounds taken.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        protocol_: what was run; its `choices` say which parameters were chosen, and why.
        result_: of the run.
        privacy_: the guarantee.
        costs_: communication.
        selection_: with `select`, the winner's name and the noisy scores; else None.
        bounds_: with `choose_bounds`, what was chosen, (2, columns), released; else None.
        clipped_: rows with features or target outside the public bounds; the simulator's view, no
            part of the release.
    """

    epsilon: float = 1.0
    delta: float = DELTA
    protocol: str = "gd"
    phases: bool = False
    rounds: int | None = None
    batch: int | None = None
    eta: float | None = None
    choose: str = "practice"
    radius: float | None = None
    records: int = 1
    feature_bound: float = 1.0
    weight_bound: float = 1.0
    ridge: float = 0.0
    fit_intercept: bool = True
    noise_ratio: float = NOISE_RATIO
    encoding: str | None = None
    rotation: int | None = None
    honest_fraction: float = 1.0
    runtime: str | Runtime = "inprocess"
    workers: int = 1
    fidelity: str | None = "aggregate"
    select: Mapping[str, Sequence[float]] | None = None
    select_fraction: float = FRACTION
    choose_bounds: float | None = None
    random_state: Any = None

    _proven_radius: ClassVar[float] = 10.0

    def _train(
        self,
        X: Floats,
        labels: Floats,
        loss: Callable[[float], Loss],
        outside: NDArray[np.bool_] | bool = False,
        outputs: int = 1,
        groups: Any = None,
    ) -> tuple[Floats, Floats]:
        practice.chosen_by(self.choose)
        unit = Unit.RECORD if groups is None else Unit.PERSON
        (n, columns), chosen = X.shape, self._chosen(unit)
        constant = CONSTANT[chosen]
        self._flag("phases")
        if self.choose_bounds is None:
            users, outside_ball = self._bounded(X, labels, constant)
        else:
            users, outside_ball = self._raw(X, labels, constant, unit), np.zeros(n, bool)
        norm = math.hypot(1.0, constant) if self.fit_intercept else 1.0
        persons = None if groups is None else Persons.grouped(users, groups, "groups")
        trainer = Trainer(
            loss(norm),
            outputs * (columns + int(self.fit_intercept)),
            Privacy(self.epsilon, self.delta),
            radius=self._radius(chosen),
            ridge=self.ridge,
            noise_ratio=self.noise_ratio,
            encoding=self.encoding,
            rotation=self.rotation,
            honest_fraction=self.honest_fraction,
            records=None if persons is None else self.records,
            choose=chosen,
            intercept=constant if self.fit_intercept else None,
        )
        asked, seed = n if persons is None else persons.users, seed_of(self.random_state)
        by = own_units.free_columns(columns, users.shape[1] - columns)
        protocol = self._protocol(trainer, asked, by)
        # Batches of neighbouring rows would be no sample.
        order = np.random.default_rng(seed).permutation(asked)
        host: dict[str, Any] = {"runtime": self.runtime, "fidelity": self.fidelity}
        data = users[order] if persons is None else persons.chosen(order)
        result = run(protocol, data, seed=seed, workers=self.workers, **host)
        self.protocol_, self.result_ = protocol, result
        self.privacy_, self.costs_ = of_one_fit(result.privacy), result.costs
        self.n_iter_ = result.rounds
        found, self.bounds_ = Trained.of(result.value), None
        if found.low is not None and found.high is not None:
            by = by.bounded(found.low, found.high)
            self.bounds_ = np.array([by.lower[:columns], by.upper[:columns]])
            outside_ball = own_units.beyond(users, by)
        self._count(outside_ball | outside)
        self.selection_, theta = found.selection, found.theta.reshape(outputs, -1)
        if self.bounds_ is not None:
            return own_units.in_own_units(theta, by, columns, constant)
        intercepts = theta[:, columns:].sum(axis=1) * constant
        return theta[:, :columns] / self.feature_bound, intercepts

    def _raw(self, X: Floats, labels: Floats, constant: float, unit: Unit) -> Floats:
        """Rows (features, constant, labels) in their own units.

        Raises:
            ParameterError: persons, a bound of rows, or no intercept.
        """
        self._flag("fit_intercept")
        refused = {
            "groups": (unit is Unit.PERSON, WITHHELD, "None with choose_bounds"),
            "feature_bound": (self.feature_bound != 1, self.feature_bound, "1: rows have none"),
            "fit_intercept": (not self.fit_intercept, False, "True: bounds have a middle"),
        }
        for name, (wrong, value, allowed) in refused.items():
            if wrong:
                raise ParameterError(name, value, f"{allowed} (choose_bounds)")
        n = len(X)
        return np.column_stack([X, np.full(n, constant), labels.reshape(n, -1)])

    def _radius(self, chosen: str) -> float:
        if self.radius is not None:
            return self.radius
        return practice.RADIUS if chosen == "practice" else self._proven_radius

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
class ShuffleClassifier(ShuffleLinearModel, LinearClassifier):
    """What the classifiers share; not for use by itself.

    Args:
        classes: the public set of labels; None takes those in y and assumes that they are public.
        class_weight: public weights by class, such as {0: 1.0, 1: 5.0}; None: all count alike.
    """

    classes: Sequence[Any] | None = None
    class_weight: Any = None

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Args:
            X: (users, columns), dense or sparse.
            y: their classes.
            groups: whose the rows are, (rows,); the guarantee then is of persons with all their
                rows. None: each row is a user of its own.
            sample_weight: how much each row counts, (rows,); private, and at most `weight_bound`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """

        def weigh(places: NDArray[Any], classes: NDArray[Any]) -> tuple[Floats, float] | None:
            by_class = of_classes(self.class_weight, classes)
            if by_class is None and sample_weight is None:
                return None
            heavy = np.ones(len(classes)) if by_class is None else by_class
            if sample_weight is None:
                return heavy[places], float(heavy.max())
            own = of_rows(sample_weight, len(places), self.weight_bound)
            return heavy[places] * own, float(heavy.max()) * self.weight_bound

        return self._fit(X, y, groups, weigh)


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
class ShuffleRegressor(ShuffleLinearModel, LinearRegressor):
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

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Args:
            X: (users, columns), dense or sparse.
            y: their targets.
            groups: whose the rows are, as for the classifiers.
            sample_weight: as for the classifiers.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """
        return self._fit(X, y, groups, sample_weight, self.weight_bound)
