"""What linear classifiers share, whoever is trusted: public classes, predictions, probabilities."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from protocols.learning.linear_model import LinearEstimator, Sample, WeightedRows, dense_data
from protocols.learning.weights import of_classes, of_rows, weighted
from protocols.problems.linear_loss import LinearLoss
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import WITHHELD, ParameterError


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
        assumptions = (*self.privacy_.assumptions, f"the set of classes is public ({whence})")
        self.classes_ = classes
        self.privacy_ = dataclasses.replace(self.privacy_, assumptions=assumptions)
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
