"""Scikit-learn estimators: linear models that are trained by a shuffle protocol on bounded rows.

All bounds are public parameters, never taken from the data. Every user divides its row by
`feature_bound` (clipping it to the unit ball first, if it is longer) and maps its target from
`target_bounds` to [-1, 1]; `radius`, `ridge` and `threshold` are in these units. `coef_` and
`intercept_` are in those of the data.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from protocols.learning.weights import of_classes, of_rows, weighted
from protocols.optimisation.phases import Phased
from protocols.optimisation.setting import NOISE_RATIO
from protocols.problems.domains import L2Ball
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import Hinge, Logistic
from protocols.problems.multiclass import MultiClass, OneVsRestHinge, Softmax
from protocols.problems.problem import Problem
from protocols.problems.regression import Absolute, Huber, Pinball, Regression, Squared
from protocols.shuffle.optimiser import FirstOrder, optimiser, optimisers
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import WITHHELD, ParameterError, integer, positive, real
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.privacy.guarantee import DELTA, Guarantee

LOSSES: dict[str, tuple[type[Regression], tuple[str, ...]]] = {
    "squared": (Squared, ()),
    "huber": (Huber, ("threshold",)),
    "absolute": (Absolute, ()),
    "pinball": (Pinball, ("quantile",)),
}
"""Losses of the regressor, with the parameters of the estimator that each takes."""
MAX_ROUNDS = 100
"""More rounds with the same users are not taken unasked: each costs every user a report."""
_FAMILIES = {Unit.RECORD: "shuffle", Unit.PERSON: "user-level"}
CLIPPED = 0.1
"""Share of rows outside the public bounds from which `ClippingWarning` tells."""


Weigh = Callable[[NDArray[Any], NDArray[Any]], tuple[Floats, float] | None]
"""From the places of labels among the classes, and these, to weights and their bound."""


class ClippingWarning(UserWarning):
    """Many rows lie outside the public bounds and were clipped to them.

    Only the simulator sees this; it is no part of a release.
    """


class LinearModel(BaseEstimator):
    """What all estimators of linear models share; not for use by itself."""

    coef_: Floats
    intercept_: Any

    def _scores(self, X: Any) -> Floats:
        """<row, coefficients> + intercept; rows are not clipped: the model is public."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are taken; each user's own is dense when it is sent."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


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
        rounds: of training; chosen by the proven bound where not given, and then at most MAX_ROUNDS
        with the same users.
        batch: users in a round of "sgd" or "acsa"; chosen by the proven bound where not given.
        eta: step of "gd" or "sgd"; chosen by the proven bound where not given.
        radius: l2 bound of all parameters together, intercepts included; by default 10, for the
            regressor 2.
        records: nominal number of records of a person, where `fit` is given groups; public, not
            counted. More of them let gradients be clipped nearer to their mean.
        feature_bound: l2 bound of a row; longer rows are clipped on the user's side.
        weight_bound: public bound of `sample_weight`; larger weights are clipped to it on the
            user's side. Noise grows with it.
        ridge: adds ridge/2 times the squared l2 norm of all parameters, intercepts included, to the
            average loss.
        fit_intercept: whether a constant is fitted.
        noise_ratio: of the noise over the central Gaussian's; nearer to 1 takes more bits.
        encoding: of numbers as messages, "carry" or "unary"; None: that of the fewest bits.
        honest_fraction: of the users that are counted on to add their noise, in every round.
        runtime: "inprocess", "ray", another registered name, or a runtime.
        workers: user shards.
        fidelity: "aggregate", "counts" or "literal": one law; None chooses by cost.
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
    radius: float = 10.0
    records: int = 1
    feature_bound: float = 1.0
    weight_bound: float = 1.0
    ridge: float = 0.0
    fit_intercept: bool = True
    noise_ratio: float = NOISE_RATIO
    encoding: str | None = None
    honest_fraction: float = 1.0
    runtime: str | Runtime = "inprocess"
    workers: int = 1
    fidelity: str | None = "aggregate"
    random_state: Any = None

    def _train(
        self,
        X: Floats,
        labels: Floats,
        loss: Callable[[float], Loss],
        outside: NDArray[np.bool_] | bool = False,
        outputs: int = 1,
        groups: Any = None,
    ) -> tuple[Floats, Floats]:
        """Coefficients (outputs, columns) and intercepts (outputs,).

        Args:
            X: the rows, (users, columns).
            labels: (users,); or (users, 2) with weights, for a weighted loss.
            loss: for a given l2 bound of the users' features, the constant included.
            outside: whose labels were clipped.
            outputs: parameter vectors of the model.
            groups: whose the rows are, (users,); None: each is a user of its own.
        """
        (n, columns), bound = X.shape, positive("feature_bound", self.feature_bound)
        for name in ("fit_intercept", "phases"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ParameterError(name, getattr(self, name), "True or False")
        constant = int(self.fit_intercept)
        norms = np.hypot.reduce(X, axis=1)  # does not overflow
        beyond = norms > bound * (1 + 1e-9)  # a rounding error is not outside
        clipped = X / np.maximum(norms, bound)[:, None]
        users = np.column_stack([clipped, np.ones((n, constant)), labels])
        domain = L2Ball(outputs * (columns + constant), self.radius)
        persons = None if groups is None else Persons.grouped(users, groups, "groups")
        problem = Problem(
            loss(math.sqrt(1 + constant)),
            domain,
            ridge=self.ridge,
            records=1 if persons is None else self.records,
        )
        asked = n if persons is None else persons.users
        unit = Unit.RECORD if persons is None else Unit.PERSON
        protocol, seed = self._protocol(asked, problem, unit), seed_of(self.random_state)
        # Batches of neighbouring rows would be no sample.
        order = np.random.default_rng(seed).permutation(asked)
        host: dict[str, Any] = {"runtime": self.runtime, "fidelity": self.fidelity}
        data = users[order] if persons is None else persons.chosen(order)
        result = run(protocol, data, seed=seed, workers=self.workers, **host)
        self.protocol_, self.result_ = protocol, result
        self.privacy_, self.costs_, self.n_iter_ = result.privacy, result.costs, result.rounds
        self.clipped_ = int(np.count_nonzero(beyond | outside))
        if self.clipped_ > CLIPPED * n:
            message = f"{self.clipped_} of {n} rows were clipped to public bounds; state wider ones"
            warnings.warn(message, ClippingWarning, stacklevel=3)
        theta = result.value.reshape(outputs, -1)
        return theta[:, :columns] / bound, theta[:, columns:].sum(axis=1)

    def _protocol(self, n: int, problem: Problem, unit: Unit) -> FirstOrder[Any] | Phased:
        """Calibrated; what its optimiser does not take, or not in phases, is refused there."""
        full = f"{_FAMILIES[unit]}-{self.protocol}"
        name = full if full in optimisers(unit) else self.protocol
        kind: type[FirstOrder[Any] | Phased] = optimiser(name, unit)
        given: dict[str, Any] = {"rounds": self.rounds, "batch": self.batch, "eta": self.eta}
        if self.phases:
            if not problem.ridge > 0:
                allowed = "above 0 in phases: they need strong convexity"
                raise ParameterError("ridge", self.ridge, allowed)
            kind, given = Phased, given | {"optimiser": kind}
        else:
            given["max_rounds_per_user"] = MAX_ROUNDS
        return kind.calibrated(
            n=n,
            problem=problem,
            privacy=Privacy(self.epsilon, self.delta),
            noise_ratio=self.noise_ratio,
            encoding=self.encoding,
            honest_fraction=self.honest_fraction,
            **given,
        )


def seed_of(random_state: Any) -> int | None:
    """The seed of a scikit-learn `random_state`; None: entropy from the operating system."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return integer("random_state", random_state, 0, 2**128 - 1)


class LinearClassifier(ClassifierMixin, LinearModel):
    """What classifiers share, whoever is trusted: public classes, one joint model for them.

    A subclass trains by `_train`.
    """

    classes: Sequence[Any] | None
    privacy_: Guarantee
    binary: ClassVar[type[LinearLoss]]
    several: ClassVar[type[MultiClass]]

    def _train(
        self,
        X: Floats,
        labels: Floats,
        loss: Callable[[float], Loss],
        outside: NDArray[np.bool_] | bool = False,
        outputs: int = 1,
        groups: Any = None,
    ) -> tuple[Floats, Floats]:
        """Coefficients (outputs, columns) and intercepts (outputs,)."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        """Accuracy on a few dozen rows cannot be expected from a private model."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train.

        Args:
            X: (users, columns).
            y: their classes.
            groups: whose the rows are, (rows,); the guarantee then is of persons with all their
                rows. None: each row is a user of its own.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """
        return self._fit(X, y, groups)

    def _fit(self, X: Any, y: Any, groups: Any = None, weigh: Weigh | None = None) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr")
        X = X.toarray() if issparse(X) else X
        check_classification_targets(y)
        classes = np.unique(y if self.classes is None else np.asarray(self.classes))
        if len(classes) < 2:
            raise ParameterError("classes", len(classes), "at least 2 classes, not 1 class")
        unknown = ~np.isin(y, classes)
        if unknown.any():
            raise ParameterError(
                f"y[{np.argmax(unknown)}]", WITHHELD, f"one of the classes {classes.tolist()}"
            )
        places = np.searchsorted(classes, y)
        two = len(classes) == 2
        loss: Callable[[float], Loss] = self.binary if two else partial(self.several, len(classes))
        labels = 2.0 * places - 1 if two else places
        if weigh is not None and (found := weigh(places, classes)) is not None:
            labels, loss = np.column_stack([labels, found[0]]), weighted(loss, found[1])
        self.coef_, self.intercept_ = self._train(
            X, labels, loss, outputs=1 if two else len(classes), groups=groups
        )
        whence = "taken from y" if self.classes is None else "given"
        assumptions = (*self.privacy_.assumptions, f"the set of classes is public ({whence})")
        self.classes_ = classes
        self.privacy_ = dataclasses.replace(self.privacy_, assumptions=assumptions)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores: (rows,) for two classes, above 0 for the second; else (rows, classes)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self.decision_function(X)
        return np.asarray(
            self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)]
        )


class ProbabilityMixin:
    """The probabilities of a logistic model."""

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the classes' probabilities, (rows, classes)."""
        scores = self.decision_function(X)  # type: ignore[attr-defined]
        return np.asarray(
            log_softmax(
                scores if scores.ndim == 2 else np.column_stack([np.zeros_like(scores), scores]),
                axis=1,
            )
        )

    def predict_proba(self, X: Any) -> Floats:
        """The classes' probabilities, (rows, classes)."""
        return np.exp(self.predict_log_proba(X))


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


class ShuffleLogisticRegression(ProbabilityMixin, ShuffleClassifier):
    """Logistic regression; multinomial for more than two classes.

    All parameters are those of `ShuffleClassifier`.
    """

    binary = Logistic
    several = Softmax


class ShuffleLinearSVC(ShuffleClassifier):
    """Linear support vector machine with the hinge loss; one-vs-rest for more than two classes."""

    binary = Hinge
    several = OneVsRestHinge


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleRegressor(RegressorMixin, ShuffleLinearModel):
    """Linear regression.

    Args:
        loss: "squared", "huber", "absolute" or "pinball".
        threshold: of the Huber loss, where it becomes linear; in units of half the range of
            `target_bounds`.
        quantile: of the pinball loss.
        target_bounds: public (low, high); targets beyond are clipped on the user's side.
    """

    radius: float = 2.0
    loss: str = "squared"
    threshold: float = 0.1
    quantile: float = 0.5
    target_bounds: tuple[float, float] = (-1.0, 1.0)

    def __sklearn_tags__(self) -> Any:
        """Accuracy on a few dozen rows cannot be expected from a private model."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

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
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, accept_sparse="csr")
        X = X.toarray() if issparse(X) else X
        if self.loss not in tuple(LOSSES):
            raise ParameterError("loss", self.loss, f"one of {', '.join(LOSSES)}")
        kind, names = LOSSES[self.loss]
        loss: Callable[[float], Loss] = partial(
            kind, labels=1.0, **{name: getattr(self, name) for name in names}
        )
        low, high = interval(self.target_bounds)
        # Without an intercept the origin must stay where it is.
        center = (low + high) / 2 if self.fit_intercept else 0.0
        half = max(high - center, center - low)
        labels, outside = (np.clip(y, low, high) - center) / half, (y < low) | (y > high)
        if sample_weight is not None:
            own = of_rows(sample_weight, len(y), self.weight_bound)
            labels, loss = np.column_stack([labels, own]), weighted(loss, self.weight_bound)
        coef, intercept = self._train(X, labels, loss, outside, groups=groups)
        self.coef_, self.intercept_ = coef[0] * half, float(intercept[0] * half + center)
        return self

    def predict(self, X: Any) -> Floats:
        """The predictions, (rows,); they may leave the target's bounds."""
        return self._scores(X)


def interval(bounds: Any) -> tuple[float, float]:
    """Public bounds (low, high) of a target.

    Raises:
        ParameterError: they are none.
    """
    if not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise ParameterError("target_bounds", bounds, "a pair (low, high)")
    low, high = (
        real("target_bounds", bound, -math.inf, math.inf, closed=(False, False)) for bound in bounds
    )
    if not low < high:
        raise ParameterError("target_bounds", bounds, "(low, high) with low below high")
    return low, high
