"""Losses of linear models with several classes: one parameter vector per class, stacked.

A user answers for all classes at once: the K gradients are one vector, whose l2 norm the protocol
bounds. So there is one release and one guarantee, nothing is composed over classes, and a
sequential protocol still asks every user once.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.problems.loss import Loss
from protocols.problems.losses import Hinge, Linear
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.errors import WITHHELD, ParameterError, integer, positive

Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class MultiClass(Loss):
    """phi(scores, y) with scores_k = <x, theta_k>, ||x||_2 <= features and y in 0, ..., K - 1.

    theta is theta_0, ..., theta_{K-1}, one after the other; rows are x, then y.

    Attributes:
        classes: K, at least 2.
        features: l2 bound of x; infinite: none.
    """

    classes: int
    features: float = 1.0
    classification: ClassVar[bool] = True

    def __post_init__(self) -> None:
        integer("classes", self.classes, 2)
        if self.features != math.inf:
            positive("features", self.features)

    @abstractmethod
    def value(self, scores: Floats, chosen: Marks) -> Floats:
        """phi of scores (users, K), where `chosen` marks each user's class."""

    @abstractmethod
    def derivative(
        self, scores: Floats, chosen: Marks, squared_norms: Floats, smoothing: float | None
    ) -> Floats:
        """A subgradient of phi in the scores, (users, K).

        With `smoothing`: the factors of x in the gradient of the Moreau envelope.
        """

    def columns(self, d: int) -> int:
        return d // self.classes + 1

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return self.value(*self._scored(theta, rows))

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        return self.value(*self._scored_at(thetas, rows))

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        return self._by_scores(self._scored(theta, rows), rows, smoothing)

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        return self._by_scores(self._scored_at(thetas, rows), rows, None)

    def _by_scores(
        self, scored: tuple[Floats, Marks], rows: Floats, smoothing: float | None
    ) -> Values:
        x = rows[:, :-1]
        factors = self.derivative(*scored, np.einsum("ij,ij->i", x, x)[:, None], smoothing)
        # Class after class, as theta is.
        return np.asarray((factors[:, :, None] * x[:, None, :]).reshape(len(rows), -1))

    def check(self, rows: NDArray[Any], d: int) -> None:
        # Features are bounded as those of one linear model.
        Linear(self.features).check(rows, d // self.classes)
        self.check_labels(rows[:, -1])

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Refuse labels that are no classes.

        Raises:
            ParameterError: naming the first one's row; the label is withheld.
        """
        bad = ~np.isin(labels, np.arange(self.classes))
        if bad.any():
            first = int(np.argmax(bad))
            allowed = f"labelled 0, ..., {self.classes - 1} (last column)"
            raise ParameterError(f"data[{first}]", WITHHELD, allowed)

    def _scored(self, theta: Floats, rows: Floats) -> tuple[Floats, Marks]:
        scores = rows[:, :-1] @ theta.reshape(self.classes, -1).T
        return scores, rows[:, -1:] == np.arange(self.classes)

    def _scored_at(self, thetas: Floats, rows: Floats) -> tuple[Floats, Marks]:
        models = thetas.reshape(len(rows), self.classes, -1)
        scores = np.einsum("ij,ikj->ik", rows[:, :-1], models)
        return scores, rows[:, -1:] == np.arange(self.classes)


@dataclass(frozen=True)
class Softmax(MultiClass):
    """ln(sum_k e^(scores_k)) - scores_y: multinomial logistic regression."""

    def value(self, scores: Floats, chosen: Marks) -> Floats:
        return np.asarray(scipy.special.logsumexp(scores, axis=1) - scores[chosen])

    def derivative(
        self, scores: Floats, chosen: Marks, squared_norms: Floats, smoothing: float | None
    ) -> Floats:
        """The probabilities, less 1 for the class."""
        if smoothing is not None:
            raise ParameterError(
                "smoothing", smoothing, "None: the softmax loss is smooth as it is"
            )
        return np.asarray(scipy.special.softmax(scores, axis=1) - chosen)

    def pull(self) -> float:
        """W((K - 1)/e), of Lambert's function."""
        # max of m (K - 1) e^-m/(1 + (K - 1) e^-m): the others' scores are equal, m below the
        # class's own.
        return float(scipy.special.lambertw((self.classes - 1) / math.e).real)

    def lipschitz(self, radius: float) -> float:
        """sqrt(2) ||x||: the factors are -(1 - p_y) and the other p_k, which sum to 1 - p_y."""
        return math.sqrt(2) * self.features

    def start_norm(self) -> float:
        """sqrt((K - 1)/K) ||x||: every class has the probability 1/K."""
        return math.sqrt(1 - 1 / self.classes) * self.features

    def smoothness(self) -> float | None:
        """||x||^2/2: diag(p) - p p^T has no eigenvalue above 1/2 (Gershgorin: 2 p_k (1 - p_k))."""
        return None if math.isinf(self.features) else self.features**2 / 2

    def row_smoothness(self, rows: Floats) -> Floats:
        x = rows[:, :-1]
        return np.asarray(np.einsum("ij,ij->i", x, x) / 2)

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        return np.asarray(math.sqrt(2) * np.hypot.reduce(rows[:, :-1], axis=1))


@dataclass(frozen=True)
class OneVsRestHinge(MultiClass):
    """sum_k max(0, 1 - y_k scores_k), with y_k = 1 for the class and -1 for the rest."""

    has_envelope: ClassVar[bool] = True

    def value(self, scores: Floats, chosen: Marks) -> Floats:
        return np.asarray(Hinge().value(scores, _signs(chosen)).sum(axis=1))

    def derivative(
        self, scores: Floats, chosen: Marks, squared_norms: Floats, smoothing: float | None
    ) -> Floats:
        if smoothing is None:
            return Hinge().derivative(scores, _signs(chosen))
        # Classes have parameters of their own: the envelope of the sum is the sum of the envelopes.
        return Hinge().prox(scores, _signs(chosen), squared_norms, smoothing)

    def lipschitz(self, radius: float) -> float:
        """sqrt(K) ||x||: every class short of its margin."""
        return math.sqrt(self.classes) * self.features

    def smoothness(self) -> float | None:
        return None

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        return np.asarray(math.sqrt(self.classes) * np.hypot.reduce(rows[:, :-1], axis=1))


def _signs(chosen: Marks) -> Floats:
    return np.where(chosen, 1.0, -1.0)
