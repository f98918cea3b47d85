"""Scikit-learn estimators for unbounded features, by a trusted curator, purely private.

Rows are taken as they are: no bound of features or targets is needed. Gradients are clipped, and
the clip is chosen by moments that are given, or by a private histogram (`HeavyTailedERM`).
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from protocols.central.heavy_tails import HeavyTailedERM
from protocols.learning.linear_model import refuse_groups, validate_data
from protocols.problems.domains import L2Ball
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Hinge, Logistic
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem
from protocols.problems.regression import Absolute, Huber, Pinball, Regression, Squared
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import WITHHELD, ParameterError, integer, positive
from shuffle_sim.execution.runtime import Runtime

REGRESSIONS: dict[str, tuple[type[Regression], tuple[str, ...]]] = {
    "absolute": (Absolute, ()),
    "huber": (Huber, ("threshold",)),
    "pinball": (Pinball, ("quantile",)),
    "squared": (Squared, ()),
}
CLASSIFICATIONS: dict[str, type[LinearLoss]] = {"logistic": Logistic, "hinge": Hinge}


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyTailedModel(BaseEstimator):
    """What the estimators share; not for use by itself.

    Formal guarantee: `privacy_`, pure, of the whole training, replace-one. What is public: every
    parameter, the numbers of rows and columns, the column names and the classes.

    Args:
        epsilon: of the whole training; delta is 0.
        moments: of the largest gradient of a row over the ball, as (k, G_k) or (k, G_k, G_2, G_1);
            None: a private histogram of a tenth of the rows, or with `feature_bound` the loss's own
            bound, where it has one.
        feature_bound: l2 bound of a row; longer rows are clipped. None: none.
        radius: l2 bound of all parameters together, the intercept included, in the data's units.
        ridge: adds ridge/2 times the squared l2 norm of all parameters.
        fit_intercept: whether a constant is fitted.
        scale: unit of the histogram's bins, 2^-10 to 2^10 of it; public.
        noise: "float", or "discrete" for noise drawn exactly.
        runtime: "inprocess", "processes", "ray", another registered name, or a runtime.
        workers: shards of the data.
        random_state: None takes entropy from the operating system; anything else makes the training
            reproducible, and therefore not private.

    Attributes:
        coef_, intercept_: the model.
        n_iter_: releases.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        algorithm_: what was run; its `choices` say what was chosen, and why.
        result_: of the run.
        privacy_: the guarantee.
    """

    epsilon: float = 1.0
    moments: Any = None
    feature_bound: float | None = None
    radius: float = 10.0
    ridge: float = 0.0
    fit_intercept: bool = True
    scale: float = 1.0
    noise: str = "float"
    runtime: str | Runtime = "inprocess"
    workers: int = 1
    random_state: Any = None

    def _train(self, X: Floats, labels: Floats, loss: LinearLoss) -> tuple[Floats, float]:
        """Coefficients (columns,) and the intercept."""
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ParameterError("fit_intercept", self.fit_intercept, "True or False")
        (n, columns), constant = X.shape, int(self.fit_intercept)
        bound = math.inf
        if self.feature_bound is not None:
            bound = positive("feature_bound", self.feature_bound)
            X = X * (bound / np.maximum(np.hypot.reduce(X, axis=1, keepdims=True), bound))
        rows = np.column_stack([X, np.ones((n, constant)), labels])
        loss = dataclasses.replace(loss, features=math.hypot(bound, constant))
        domain = L2Ball(columns + constant, self.radius)
        known = loss.lipschitz(domain.radius)
        problem = Problem(
            loss, domain, ridge=self.ridge, norm_bound=math.inf if math.isinf(known) else None
        )
        given: dict[str, Any] = {"noise": self.noise}
        if self.moments is not None:
            given["moments"] = _moments(self.moments)
        elif math.isinf(known):
            given |= {"pilot": True, "scale": positive("scale", self.scale)}
            if n < 2:
                raise ParameterError("X", f"{n} sample", "more than one sample: some for a pilot")
        privacy, seed = Privacy(self.epsilon), _seed(self.random_state)
        algorithm = HeavyTailedERM.calibrated(n=n, problem=problem, privacy=privacy, **given)
        order = np.random.default_rng(seed).permutation(n)  # phases of neighbouring rows: no sample
        result = run(algorithm, rows[order], seed=seed, runtime=self.runtime, workers=self.workers)
        self.algorithm_, self.result_ = algorithm, result
        self.privacy_, self.n_iter_ = result.privacy, result.rounds
        theta = np.asarray(result.value)
        return theta[:columns], float(theta[columns:].sum())

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(rows @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0])


def _moments(given: Any) -> Moments:
    if isinstance(given, Moments):
        return given
    if not isinstance(given, Sequence) or not 2 <= len(given) <= 4:
        raise ParameterError("moments", given, "(k, G_k), (k, G_k, G_2) or (k, G_k, G_2, G_1)")
    return Moments(*given)


def _seed(random_state: Any) -> int | None:
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return integer("random_state", random_state, 0, 2**128 - 1)


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyTailedRegressor(RegressorMixin, HeavyTailedModel):
    """Robust linear regression on features and targets without bounds, purely private.

    Args:
        loss: "absolute", "huber", "pinball" or "squared".
        threshold: of the Huber loss, in the target's units.
        quantile: of the pinball loss.
    """

    loss: str = "absolute"
    threshold: float = 1.0
    quantile: float = 0.5

    def __sklearn_tags__(self) -> Any:
        """Accuracy on a few dozen rows cannot be expected from a private model."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train.

        Args:
            X: (rows, columns).
            y: their targets.
            groups: None; persons are refused.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """
        refuse_groups(groups)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        if self.loss not in tuple(REGRESSIONS):
            raise ParameterError("loss", self.loss, f"one of {', '.join(REGRESSIONS)}")
        kind, names = REGRESSIONS[self.loss]
        loss = kind(**{name: getattr(self, name) for name in names})
        self.coef_, self.intercept_ = self._train(X, y, loss)
        return self

    def predict(self, X: Any) -> Floats:
        """The predictions, (rows,)."""
        return self._scores(X)


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyTailedClassifier(ClassifierMixin, HeavyTailedModel):
    """A linear classifier of two classes on features without bounds, purely private.

    Args:
        loss: "logistic" or "hinge".
        classes: the public pair of labels; None takes those in y and assumes that they are public.
    """

    loss: str = "logistic"
    classes: Sequence[Any] | None = None
    _several: ClassVar[str] = (
        "2 classes: a clipped gradient of several classes is no gradient of a convex function"
    )

    def __sklearn_tags__(self) -> Any:
        """Two classes, and no accuracy on a few dozen rows."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train.

        Args:
            X: (rows, columns).
            y: their classes.
            groups: None; persons are refused.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """
        refuse_groups(groups)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        if self.loss not in tuple(CLASSIFICATIONS):
            raise ParameterError("loss", self.loss, f"one of {', '.join(CLASSIFICATIONS)}")
        classes = np.unique(y if self.classes is None else np.asarray(self.classes))
        if len(classes) > 2:
            message = f"Only binary classification is supported. y has {len(classes)} classes."
            raise ParameterError("classes", message, self._several)
        if len(classes) < 2:
            raise ParameterError("classes", len(classes), "2 classes, not 1 class")
        unknown = ~np.isin(y, classes)
        if unknown.any():
            place = int(np.argmax(unknown))
            raise ParameterError(f"y[{place}]", WITHHELD, f"one of {classes.tolist()}")
        signs = 2.0 * np.searchsorted(classes, y) - 1
        coef, intercept = self._train(X, signs, CLASSIFICATIONS[self.loss]())
        self.coef_, self.intercept_ = coef[None], np.array([intercept])
        whence = "taken from y" if self.classes is None else "given"
        notes = (*self.privacy_.assumptions, f"the set of classes is public ({whence})")
        self.classes_ = classes
        self.privacy_ = dataclasses.replace(self.privacy_, assumptions=notes)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores (rows,), above 0 for the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score."""
        second = self.decision_function(X) > 0
        return np.asarray(self.classes_[second.astype(int)])
