"""Scikit-learn estimators of a trusted curator.

All bounds are public parameters, never taken from the data. Where delta is above 0 the curator
takes the tuned descent of the shuffle estimators, with less noise. Other mechanisms minimise and
release once; their constant column and rows are divided by sqrt 2, so that rows stay in the unit
ball, and the intercept has the ridge of all other parameters: without one it would have no bound.
`ridge` is in these units; `coef_` and `intercept_` are in those of the data.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from protocols.erm.solver.outside import check_model
from protocols.learning import pure
from protocols.learning.descent import CONSTANT, DescentModel
from protocols.learning.linear_model import Sample, WeightedRows, of_one_fit, refuse_groups, seed_of
from protocols.learning.model import GRADIENT, mechanism_of
from protocols.learning.notes import tell_of_clipped, tell_of_noise
from protocols.learning.targets import LinearRegressor, LogisticModel, WeightedClassifier
from protocols.learning.training import Trainer
from protocols.problems.domains import RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Logistic
from protocols.problems.regression import Squared
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import WITHHELD, ParameterError, flag, positive, real, refuse_given


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(DescentModel):
    """What the estimators share; not for use by itself.

    All of `DescentModel`, whose `rounds`, `radius`, `records`, `weight_bound` and `choose_bounds`
    are of descent alone, and:

    Args:
        mechanism: "gradient" (tuned descent, for delta above 0), "output" (any loss, any solver),
            "objective" (logistic, two classes), "centred-objective" (with an intercept), "gibbs"
            (logistic, for delta above 0), "pure-sgd" or another registered algorithm of a curator.
            None: "gradient", or at delta = 0 the best pure one (`protocols.learning.pure`).
        solver: name, callable `solver(objective) -> w` or scikit-learn estimator; what it finds is
            certified, and polished if need be; for "output" and "objective". None: "newton".
        ridge: adds ridge/2 times the squared l2 norm of all parameters, the intercept's included,
            to the average loss. None: 0 for descent, else chosen from n, d, epsilon and delta.
        C: scikit-learn's, in place of `ridge`: ridge = 1/(C n).

    Attributes:
        algorithm_: what was run; its `choices` say which parameters were chosen, and why.
        n_iter_: the releases; how long a solver took is not told: it depends on the data.
    """

    mechanism: str | None = None
    solver: Any = None
    ridge: float | None = None
    C: float | None = None

    def _train(self, data: Sample) -> tuple[Floats, Floats]:
        X, labels, outputs, groups = data.X, data.labels, data.outputs, data.groups
        (n, columns), privacy = X.shape, Privacy(self.epsilon, self.delta)
        d = outputs * (columns + int(flag("fit_intercept", self.fit_intercept)))
        name = self._mechanism(privacy, outputs)
        ridge = self._ridge(name, n, d, privacy)
        if name in (GRADIENT, pure.SGD):
            if self.solver is not None:
                allowed = f"None with mechanism {name!r}; output and objective take it"
                raise ParameterError("solver", self.solver, allowed)
            if name == pure.SGD:
                self._of_gradient(labels, groups, name)

            def make(trainer: Trainer, users: int, by: RowMap) -> Any:
                if name == pure.SGD:
                    return trainer.central(name, users, **pure.descent(users, d, privacy.epsilon))
                own: dict[str, Any] = {"share": self.choose_bounds, "by": by, "rounds": self.rounds}
                return trainer.central(name, users, **own)

            self.algorithm_, *model = self._descend(data, make=make, ridge=ridge)
            return model[0], model[1]
        self._of_gradient(labels, groups, name)
        kind = mechanism_of(name)[1]
        if outputs > 1 and getattr(kind, "binary", False):
            allowed = (
                f"two with mechanism {name}, or take gradient, output or gibbs. Only binary "
                "classification is supported. The type of the target is multiclass."
            )
            raise ParameterError("classes", outputs, allowed)
        # The row and its constant together in the unit ball, each by the same factor.
        constant = scale = 1 / math.sqrt(1 + bool(self.fit_intercept))
        if name == pure.CENTRED:  # rows fill the ball once they are centred
            constant, scale = CONSTANT["practice"], 1.0
        rows, beyond = self._bounded(X, labels, constant, scale)
        norm = math.hypot(scale, constant) if self.fit_intercept else scale
        trainer = Trainer(
            data.loss(norm),
            d,
            privacy,
            ridge=ridge,
            domain=RealSpace(d),
            intercept=constant if self.fit_intercept else None,
        )
        solver = {} if self.solver is None else {"solver": self.solver}
        if solver and "solver" not in kind.takes:
            raise ParameterError("solver", self.solver, f"None: {name} takes none")
        self.algorithm_ = trainer.central(name, n, **solver)
        result = run(self.algorithm_, rows, seed=seed_of(self.random_state))
        self.result_, self.privacy_ = result, of_one_fit(result.privacy)
        self.n_iter_, self.bounds_ = result.rounds, None
        self.clipped_ = tell_of_clipped(n, {"feature_bound": beyond, **data.outside})
        tell_of_noise(n, d, privacy)
        theta = result.value.reshape(outputs, -1)
        intercepts = theta[:, columns:].sum(axis=1) * constant
        return theta[:, :columns] * (scale / self.feature_bound), intercepts

    def _mechanism(self, privacy: Privacy, outputs: int) -> str:
        """The one given, or the default."""
        if self.mechanism is not None:
            return self.mechanism
        classes, loss = isinstance(self, PrivateClassifier), str(getattr(self, "loss", ""))
        constant = bool(self.fit_intercept)
        return pure.mechanism(loss, privacy, classes=classes, outputs=outputs, constant=constant)

    def _of_gradient(self, labels: Floats, groups: Any, name: str) -> None:
        """Refuse what descent alone takes.

        Raises:
            ParameterError: persons, weights, rounds, a ball, or a choice of bounds.
        """
        refuse_groups(groups)
        given: dict[str, Any] = {
            "rounds": self.rounds,
            "radius": self.radius,
            "choose_bounds": self.choose_bounds,
        }
        if labels.ndim > 1:
            given["sample_weight"] = WITHHELD
        allowed = f"None with mechanism {name!r}; 'gradient' takes it, for delta above 0"
        refuse_given(given, allowed)

    def _ridge(self, name: str, n: int, d: int, privacy: Privacy) -> float:
        if self.ridge is not None and self.C is not None:
            raise ParameterError("ridge, C", (self.ridge, self.C), "at most one of the two")
        if self.C is not None:
            # C sum loss + |w|^2/2, over C n.
            return 1 / (positive("C", self.C) * n)
        if self.ridge is None:
            return 0.0 if name in (GRADIENT, pure.SGD) else pure.ridge(name, n, d, privacy)
        if name in (GRADIENT, pure.SGD):
            return real("ridge", self.ridge, 0.0, math.inf, closed=(True, False))
        return positive("ridge", self.ridge)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(PrivateLinearModel, WeightedClassifier):
    """What the classifiers share; not for use by itself."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(ParameterError):
            if self.mechanism not in (None, GRADIENT):
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

    One-vs-rest for more than two classes, with one joint sensitivity.

    Args:
        loss: "hinge", or the name of another registered loss of classes, or such a loss.
    """

    loss: str | LinearLoss = "hinge"


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRidge(PrivateLinearModel, WeightedRows, LinearRegressor):
    """Linear regression of a trusted curator, with a ridge where one is given.

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
    loss, parameter, added, _ = check_model(estimator)
    strength = getattr(estimator, parameter)
    ridge: dict[str, Any] = {"ridge": strength, "C": None}
    # A sum and alpha |w|^2/2 are C = 1/alpha; so are squares without 1/2 and alpha |w|^2.
    if added:  # over rows
        ridge = {
            "ridge": None,
            "C": strength if parameter == "C" else 1 / positive("alpha", strength),
        }
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "feature_bound": feature_bound}
    common |= {"mechanism": "output", "solver": estimator, "random_state": random_state, **ridge}
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
