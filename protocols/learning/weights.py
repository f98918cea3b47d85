"""Weights of rows in the estimators: public bounds, and weights that users keep to themselves."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.problems.loss import Loss
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import WITHHELD, ParameterError, positive, real


def of_rows(sample_weight: Any, rows: int, bound: Any) -> Floats:
    """Weights, (rows,): each clipped to the public bound on the user's side.

    Raises:
        ParameterError: a bound that is not a finite number above 0, or weights of another shape,
            below 0 or not finite.
    """
    most = positive("weight_bound", bound)
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):  # which shows the weight
        raise ParameterError("sample_weight", WITHHELD, "numbers, one for each row") from None
    if weights.shape != (rows,):
        raise ParameterError("sample_weight", weights.shape, f"of shape ({rows},)")
    bad = ~((weights >= 0) & np.isfinite(weights))
    if bad.any():
        where = f"sample_weight[{int(np.argmax(bad))}]"
        raise ParameterError(where, WITHHELD, "a finite number, at least 0")
    if not weights.any():
        raise ParameterError("sample_weight", WITHHELD, "above zero for some row")
    # Clipped, not refused: whether some weight is above the bound is a datum.
    return np.minimum(weights, most)


def of_classes(class_weight: Any, classes: NDArray[Any]) -> Floats | None:
    """The public weight of each class; 1 where none is given.

    Raises:
        ParameterError: no mapping of classes to numbers. "balanced" would count the data.
    """
    if class_weight is None:
        return None
    if not isinstance(class_weight, Mapping):
        allowed = "public weights by class, such as {0: 1.0, 1: 5.0}; counts are not public"
        raise ParameterError("class_weight", class_weight, allowed)
    known = classes.tolist()
    for name, weight in class_weight.items():
        if name not in known:
            raise ParameterError("class_weight", name, f"of the classes {known}")
        real(f"class_weight[{name!r}]", weight, 0.0, math.inf, closed=(True, False))
    weights = np.array([float(class_weight.get(name, 1.0)) for name in known])
    if not weights.max() > 0:
        raise ParameterError("class_weight", class_weight, "above 0 for some class")
    return weights


def weighted(loss: Callable[[float], Loss], bound: float) -> Callable[[float], Loss]:
    """The weighted loss for a given bound of the features."""
    return lambda features: Weighted(loss(features), bound)
