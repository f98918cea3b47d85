"""What linear regressors share, whoever is trusted: public bounds of targets, predictions."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from protocols.learning.linear_model import LinearEstimator, Sample, WeightedRows, dense_data
from protocols.learning.weights import of_rows, weighted
from protocols.problems.linear_loss import LinearLoss
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, real


class LinearRegressor(RegressorMixin, LinearEstimator):
    """What regressors share, whoever is trusted; a subclass trains by `_train`."""

    target_bounds: tuple[float, float] | None
    loss: str | LinearLoss

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _fit(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Self:
        X, y = dense_data(self, X, y, y_numeric=True)
        bounded = self.target_bounds is not None
        loss = self._named(self.loss, labels=1.0 if bounded else None, classification=False)
        center, half, labels, outside = 0.0, 1.0, y, np.zeros(len(y), bool)
        if bounded:
            low, high = interval(self.target_bounds)
            # Without an intercept the origin must stay where it is.
            center = (low + high) / 2 if self.fit_intercept else 0.0
            # Around 0 the farther end decides: both must lie in [-1, 1].
            half = max(high - center, center - low)
            labels, outside = (np.clip(y, low, high) - center) / half, (y < low) | (y > high)
        if sample_weight is not None and isinstance(self, WeightedRows):
            own = of_rows(sample_weight, len(y), self.weight_bound)
            labels, loss = np.column_stack([labels, own]), weighted(loss, self.weight_bound)
        told = {"target_bounds": outside}
        coef, intercept = self._model(Sample(X, labels, loss, told, groups=groups))
        # Targets were mapped by (y - center)/half; predictions are mapped back.
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
