"""What linear classifiers and regressors share, whoever is trusted: targets, weights, predictions.

Classes, bounds of targets and bounds of weights are public; weights are their users' own.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from protocols.learning.linear_model import LinearEstimator, Sample, WeightedRows, dense_data
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import WITHHELD, ParameterError, positive, real


class LinearClassifier(ClassifierMixin, LinearEstimator):
    """What classifiers share, whoever is trusted: public classes, one joint model for them.

    A subclass trains by `_train`.
    """

    classes: Sequence[Any] | None
    loss: str | LinearLoss

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def _fit(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Self:
        X, y = dense_data(self, X, y)
        _check_labels(y)
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
        loss = self._named(self.loss, classes=len(classes), classification=True)
        labels = 2.0 * places - 1 if two else places
        if (found := self._weights(places, classes, sample_weight)) is not None:
            labels, loss = np.column_stack([labels, found[0]]), weighted(loss, found[1])
        outputs = 1 if two else len(classes)
        data = Sample(X, labels, loss, outputs=outputs, groups=groups)
        self.coef_, self.intercept_ = self._model(data)
        whence = "taken from y" if self.classes is None else "given"
        self.classes_ = classes
        self.privacy_ = self.privacy_.assuming(f"the set of classes is public ({whence})")
        return self

    def _weights(
        self, places: NDArray[Any], classes: NDArray[Any], sample_weight: Any
    ) -> tuple[Floats, float] | None:
        """From the places of labels among the classes to weights and their bound."""
        return None

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


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class WeightedClassifier(WeightedRows, LinearClassifier):
    """A classifier whose rows count by weights.

    Args:
        classes: the public set of labels; None takes those in y and assumes that they are public.
        class_weight: public weights by class, such as {0: 1.0, 1: 5.0}; None: all count alike.
    """

    classes: Sequence[Any] | None = None
    class_weight: Any = None
    weight_bound: float = 1.0

    def _weights(
        self, places: NDArray[Any], classes: NDArray[Any], sample_weight: Any
    ) -> tuple[Floats, float] | None:
        by_class = of_classes(self.class_weight, classes)
        if by_class is None and sample_weight is None:
            return None
        heavy = np.ones(len(classes)) if by_class is None else by_class
        if sample_weight is None:
            return heavy[places], float(heavy.max())
        own = of_rows(sample_weight, len(places), self.weight_bound)
        # The bound is of public numbers: the largest product that there is would tell of data.
        return heavy[places] * own, float(heavy.max()) * self.weight_bound


class LogisticModel(LinearClassifier):
    """What logistic models add: probabilities."""

    loss = "logistic"

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the classes' probabilities, (rows, classes)."""
        scores = self.decision_function(X)
        return np.asarray(
            log_softmax(
                # Of two classes one has the score 0: their softmax is the logistic function.
                scores if scores.ndim == 2 else np.column_stack([np.zeros_like(scores), scores]),
                axis=1,
            )
        )

    def predict_proba(self, X: Any) -> Floats:
        """The classes' probabilities, (rows, classes)."""
        return np.exp(self.predict_log_proba(X))


def _check_labels(y: NDArray[Any]) -> None:
    """Refuse labels that cannot be told apart as classes.

    Raises:
        ParameterError: a label is blank, or some are text and others numbers.
    """
    if y.dtype != object:
        return
    blank = np.array(
        [each is None or (isinstance(each, float) and math.isnan(each)) for each in y], bool
    )
    if blank.any():
        raise ParameterError(f"y[{np.argmax(blank)}]", WITHHELD, "a class, not blank")
    if len({isinstance(each, str) for each in y}) > 1:
        raise ParameterError("y", WITHHELD, "classes of one kind, text or numbers")


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
