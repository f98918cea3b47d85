"""Minimisers found by others: fitted linear models of scikit-learn."""

from collections.abc import Callable
from typing import Any

import numpy as np

from protocols.erm.objective import Objective
from protocols.erm.smooth import LinearERM
from protocols.problems.losses import Hinge, Logistic
from protocols.problems.regression import Squared
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, one_of

# C sum l + ||w||^2/2; of Ridge sum (y - m)^2 + alpha ||w||^2, twice our l; SGD takes a mean.
MODELS: dict[str, tuple[type, str, bool, dict[str, Any]]] = {
    "LogisticRegression": (Logistic, "C", True, {}),
    "LinearSVC": (Hinge, "C", True, {"loss": "hinge", "dual": True}),
    "Ridge": (Squared, "alpha", True, {}),
    "SGDClassifier": (object, "alpha", False, {"penalty": "l2"}),
    "SGDRegressor": (object, "alpha", False, {"penalty": "l2"}),
}
"""By class name: the loss, the parameter of the ridge, if losses are added, what must be set."""
SGD = {"log_loss": Logistic, "hinge": Hinge, "squared_error": Squared}
"""Losses of scikit-learn's stochastic gradient descent."""


def check_model(estimator: Any) -> tuple[type, str, bool, dict[str, Any]]:
    """What is known of a linear model of scikit-learn.

    Raises:
        ParameterError: it is none that is known, or weights its rows.
    """
    name = type(estimator).__name__
    one_of("estimator", name, MODELS)
    loss, parameter, added, fixed = MODELS[name]
    given = estimator.get_params()
    if given.get("class_weight") is not None:
        raise ParameterError("class_weight", given["class_weight"], "None: weights multiply L")
    if loss is object:
        one_of("loss", given["loss"], SGD)
        loss = SGD[given["loss"]]
    # 0.15 is the default of SGD, which its l2 penalty passes over.
    for key, allowed in (("penalty", ("l2", "deprecated")), ("l1_ratio", (0, 0.0, 0.15, None))):
        if key in given and given[key] not in allowed:
            raise ParameterError(key, given[key], "that of a ridge: l2")
    return loss, parameter, added, fixed


def fitted(estimator: Any) -> Callable[[Objective], Floats]:
    """A solver that fits a clone of the estimator, its ridge and intercept set to the objective's.

    Raises:
        ParameterError: no linear model of scikit-learn that is known.
    """
    loss, parameter, added, fixed = check_model(estimator)

    def solve(objective: Objective) -> Floats:
        from sklearn.base import clone

        if not isinstance(objective, LinearERM) or not isinstance(objective.loss, loss):
            raise ParameterError("solver", estimator, f"an estimator of the loss {loss.__name__}")
        model = clone(estimator)
        # Of a sum over rows the ridge is n times as large; C weighs the sum instead.
        strength = objective.ridge * objective.n if added else objective.ridge
        if parameter == "C":
            strength = 1 / strength
        # The objective has no parameter beside those of the features.
        model.set_params(fit_intercept=False, **fixed, **{parameter: strength})
        model.fit(objective.features, objective.labels)
        return np.asarray(model.coef_, np.float64).ravel()

    return solve
