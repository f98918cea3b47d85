"""Scikit-learn estimators of a trusted curator: linear models, released once.

All bounds are public parameters, never taken from the data. Rows are divided by `feature_bound`
(and clipped to the unit ball), targets mapped from `target_bounds` to [-1, 1]; with an intercept, a
constant column is added and both are divided by sqrt 2, so that rows stay in the unit ball. The
intercept has the ridge of all other parameters: without one it would have no bound. `ridge` is in
these units; `coef_` and `intercept_` are in those of the data.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.erm.solver.outside import check_model
from protocols.learning.classifiers import LinearClassifier, LogisticModel
from protocols.learning.linear_model import LinearModel, of_one_fit, refuse_groups, seed_of
from protocols.learning.regressors import LinearRegressor
from protocols.learning.training import Trainer, mechanism_of
from protocols.problems.domains import RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import Logistic
from protocols.problems.regression import Squared
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(LinearModel):
    """What the estimators share; not for use by itself.

    Formal guarantee: `privacy_`, replace-one: neighbours differ in one row and its target. What is
    public: every parameter, the numbers of rows and columns, the column names and the classes.

    Args:
        epsilon: of the release.
        delta: of the release; 0 for pure differential privacy, which "gibbs" does not have.
        mechanism: "output" (any loss, any solver), "objective" (logistic, two classes: the least
            noise), "gibbs" (logistic) or another registered algorithm of a curator.
        solver: name, callable `solver(objective) -> w` or scikit-learn estimator; what it finds is
            certified, and polished if need be. Not used by "gibbs".
        ridge: adds ridge/2 times the squared l2 norm of all parameters, the intercept's included,
            to the average loss.
        C: scikit-learn's, in place of `ridge`: ridge = 1/(C n).
        feature_bound: l2 bound of a row; longer rows are clipped.
        fit_intercept: whether a constant is fitted, with the ridge.
        random_state: None takes entropy from the operating system; anything else makes the release
            reproducible, and therefore not private.

    Attributes:
        coef_, intercept_: the model.
        n_iter_: the releases; how long the solver took is not told: it depends on the data.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        algorithm_: what was run.
        result_: of the run.
        privacy_: the guarantee.
        clipped_: rows outside the public bounds; the simulator's view, no part of the release.
    """

    epsilon: float = 1.0
    delta: float = 0.0
    mechanism: str = "output"
    solver: Any = "newton"
    ridge: float | None = 0.01
    C: float | None = None
    feature_bound: float = 1.0
    fit_intercept: bool = True
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
        refuse_groups(groups)
        (n, columns), ridge = X.shape, self._ridge(len(X))
        kind = mechanism_of(self.mechanism)[1]
        if outputs > 1 and getattr(kind, "binary", False):
            allowed = (
                f"two with mechanism {self.mechanism}, or take output or gibbs. Only binary "
                "classification is supported. The type of the target is multiclass."
            )
            raise ParameterError("classes", outputs, allowed)
        scale = 1 / math.sqrt(1 + bool(self.fit_intercept))
        rows, beyond = self._bounded(X, labels, scale, scale)
        d, privacy = (
            outputs * (columns + int(self.fit_intercept)),
            Privacy(self.epsilon, self.delta),
        )
        trainer = Trainer(loss(1.0), d, privacy, ridge=ridge, domain=RealSpace(d))
        takes = signature(kind.calibrated).parameters
        given = {"solver": self.solver} if "solver" in takes else {}
        algorithm = trainer.central(self.mechanism, n, **given)
        result = run(algorithm, rows, seed=seed_of(self.random_state))
        self.algorithm_: Any = algorithm
        self.result_, self.privacy_ = result, of_one_fit(result.privacy)
        self.n_iter_ = result.rounds
        self._count(beyond | outside)
        theta = result.value.reshape(outputs, -1) * scale
        return theta[:, :columns] / self.feature_bound, theta[:, columns:].sum(axis=1)

    def _ridge(self, n: int) -> float:
        if (self.ridge is None) == (self.C is None):
            raise ParameterError("ridge, C", (self.ridge, self.C), "exactly one of the two")
        if self.C is not None:
            return 1 / (positive("C", self.C) * n)
        return positive("ridge", self.ridge)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(PrivateLinearModel, LinearClassifier):
    """What the classifiers share; not for use by itself.

    Args:
        classes: the public set of labels; None takes those in y and assumes that they are public.
    """

    classes: Sequence[Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(ParameterError):
            kind = mechanism_of(self.mechanism)[1]
            tags.classifier_tags.multi_class = not getattr(kind, "binary", False)
        return tags


class PrivateLogisticRegression(LogisticModel, PrivateClassifier):
    """Logistic regression of a trusted curator; multinomial for more than two classes.

    All parameters are those of `PrivateClassifier`.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearSVC(PrivateClassifier):
    """Linear support vector machine of a trusted curator, with the hinge loss.

    One-vs-rest for more than two classes, with one joint sensitivity; the mechanism is "output".

    Args:
        loss: "hinge", or the name of another registered loss of classes, or such a loss.
    """

    loss: str | LinearLoss = "hinge"


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRidge(PrivateLinearModel, LinearRegressor):
    """Ridge regression of a trusted curator; the mechanism is "output".

    Args:
        loss: "squared", or the name of another registered loss of numbers, or such a loss.
        target_bounds: public (low, high); targets beyond are clipped.
    """

    loss: str | LinearLoss = "squared"
    target_bounds: tuple[float, float] = (-1.0, 1.0)


def privatize(
    estimator: Any,
    *,
    epsilon: float,
    feature_bound: float,
    classes: Sequence[Any] | None = None,
    target_bounds: tuple[float, float] | None = None,
    delta: float = 0.0,
    random_state: Any = None,
) -> PrivateLinearModel:
    """The private estimator of a scikit-learn linear model, with it as solver and with its ridge.

    Output perturbation: what the model finds is certified, polished if need be, and released with
    noise. Its ridge is taken over: C, alpha of `Ridge`, or alpha of stochastic gradient descent.

    Args:
        estimator: LogisticRegression, LinearSVC, Ridge, SGDClassifier or SGDRegressor.
        epsilon: of the release.
        feature_bound: public l2 bound of a row.
        classes: the public set of labels, of a classifier.
        target_bounds: public (low, high), of a regressor.
        delta: of the release.
        random_state: as of the estimators.

    Raises:
        ParameterError: a model that is not known, weights of classes, or a bound that is missing.
    """
    loss, parameter, unit, _ = check_model(estimator)
    strength = getattr(estimator, parameter)
    ridge: dict[str, Any] = {"ridge": strength, "C": None}
    if unit.__name__ != "mean":  # of a sum over rows
        ridge = {
            "ridge": None,
            "C": strength if parameter == "C" else 1 / positive("alpha", strength),
        }
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "feature_bound": feature_bound}
    common |= {"solver": estimator, "random_state": random_state, **ridge}
    if loss is Squared:
        if target_bounds is None:
            allowed = "given: the public (low, high) of targets, not read from the data"
            raise ParameterError("target_bounds", None, allowed)
        return PrivateRidge(target_bounds=target_bounds, **common)
    if classes is None:
        allowed = "given: the public set of labels, not read from the data"
        raise ParameterError("classes", None, allowed)
    if len(classes) != 2:
        raise ParameterError("classes", classes, "two: the model is the solver of two classes")
    kind = PrivateLogisticRegression if loss is Logistic else PrivateLinearSVC
    return kind(classes=classes, **common)
