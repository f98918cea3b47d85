"""Private mean, covariance and principal components: one vector sum, whoever is trusted.

A user with a row z of the unit ball sends (z, upper triangle of z z') as one vector. Off the
diagonal the triangle counts sqrt 2 times, so its length is |z|^2. Both parts are divided by sqrt 2:
the vector lies in the unit ball, and one sum with one charge releases mean and covariance together.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import validation

from protocols.learning.linear_model import of_one_fit, seed_of, validate_data
from protocols.learning.notes import Outside, tell_of_clipped, tell_of_noise, tell_of_search
from protocols.learning.tabular import beyond_limits, encoded, fitted_rows, in_order
from protocols.sums.planned import planned_sum
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats, lengths
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import ParameterError, flag, integer, positive
from shuffle_sim.privacy.guarantee import DELTA
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.registry import registered


@dataclass(kw_only=True, eq=False, repr=False)
class InBall(BaseEstimator):
    """What learns from rows in the unit ball, with public bounds; not for use by itself.

    Args:
        epsilon, delta: of the whole fit.
        feature_bound: public l2 bound of a row; longer rows are clipped on the user's side.
        schema: what is public of a table, as of the linear models; None: rows are numbers.
        random_state: None takes entropy from the operating system; anything else makes the fit
            reproducible, and therefore not private.

    Attributes:
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        schema_: with `schema`, how rows are encoded; else None.
        protocol_: what was run.
        result_: of the run.
        privacy_: the guarantee.
        clipped_: rows beyond the bounds; the simulator's view, no part of the release.
    """

    epsilon: float = 1.0
    delta: float = DELTA
    feature_bound: float = 1.0
    schema: Any = None
    random_state: Any = None

    trust: ClassVar[Trust]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.schema is not None
        return tags

    def _scaled(self, X: Any) -> tuple[Floats, Floats, Floats, Outside]:
        """Rows of `fit` in the unit ball; center and factor back to the data's units; clipped."""
        self.schema_: Schema | None = None
        if self.schema is not None:
            rows, known = fitted_rows(self, X), cast(Schema, self.schema_)
            scale, beyond = known.scale, beyond_limits(rows, known)
            return known.scaled(rows), scale.center, scale.half * scale.norm, beyond
        bound = positive("feature_bound", self.feature_bound)
        rows = validate_data(self, X, dtype=np.float64)
        norms = lengths(rows)
        d, beyond = rows.shape[1], {"feature_bound": norms > bound * (1 + 1e-9)}
        rows = rows / np.maximum(norms, bound)[:, None]
        return rows, np.zeros(d), np.full(d, float(bound)), beyond

    def _tell(self, n: int, d: int, privacy: Privacy, beyond: Outside) -> None:
        """What people are told after `fit`: d numbers of n users were summed."""
        self.clipped_ = tell_of_clipped(n, beyond)
        tell_of_noise(n, d, privacy, "answer")

    def _rows(self, X: Any) -> Floats:
        """Rows of a fitted estimator in their own units; they are not clipped."""
        validation.check_is_fitted(self)
        if self.schema_ is not None:
            return encoded(X, self.schema_)
        found = validate_data(self, in_order(self, X), dtype=np.float64, reset=False)
        return np.asarray(found)


@dataclass(kw_only=True, eq=False, repr=False)
class MomentsEstimator(InBall):
    """Mean and covariance by one private sum; not for use by itself.

    Formal guarantee: `privacy_`, of the sum, replace-one. What is made of it is free.

    All of `InBall`, and:

    Args:
        assume_centered: whether the mean is known to be 0: no budget goes to it then.

    Attributes:
        location_: the mean, (columns,), in the data's units.
        covariance_: (columns, columns), in the data's units; negative eigenvalues, which are
            noise, are cut to 0.
    """

    assume_centered: bool = False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sum once.

        Raises:
            ParameterError: naming the parameter or the column, before any release.
        """
        tell_of_search()
        flag("assume_centered", self.assume_centered)
        rows, center, factor, beyond = self._scaled(X)
        n, d = rows.shape
        if n < 2:
            raise ParameterError("X", f"{n} sample", "more than one sample")
        self._check(d)
        upper = np.triu_indices(d)
        weights = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
        vectors = rows[:, upper[0]] * rows[:, upper[1]] * weights
        if not self.assume_centered:
            # |z|^2 + |z|^4 is 2 at most: sqrt(2) brings both parts into the unit ball.
            vectors = np.column_stack([rows, vectors]) / math.sqrt(2)
        privacy = Privacy(self.epsilon, self.delta)
        self.protocol_ = self._sum(n, vectors.shape[1], privacy)
        self.result_ = run(self.protocol_, vectors, seed=seed_of(self.random_state))
        self._tell(n, vectors.shape[1], privacy, beyond)
        self.privacy_ = of_one_fit(self.result_.privacy)
        found = np.asarray(self.result_.value) / n
        mean = np.zeros(d)
        if not self.assume_centered:
            found = found * math.sqrt(2)
            mean, found = found[:d], found[d:]
        second = np.zeros((d, d))
        second[upper] = found / weights
        second = second + second.T - np.diag(np.diag(second))
        values, axes = np.linalg.eigh(second - np.outer(mean, mean))
        # Cutting negative eigenvalues gives the nearest covariance (Frobenius) that there can be.
        kept = axes * np.maximum(values, 0.0) @ axes.T
        self.covariance_ = kept * np.outer(factor, factor)
        self.location_ = center + mean * factor
        return self

    def _check(self, columns: int) -> None:
        """Refuse what does not suit so many columns, before anything is released."""

    def _sum(self, n: int, d: int, privacy: Privacy) -> Any:
        if self.trust is Trust.CENTRAL:
            return registered("algorithm", "central-sum").calibrated(n=n, d=d, privacy=privacy)
        return planned_sum(SumSpec(n, d, privacy), None)


class ShuffleCovariance(MomentsEstimator):
    """Mean and covariance in the shuffle model. All parameters are those of `MomentsEstimator`."""

    trust = Trust.SHUFFLE


class PrivateCovariance(MomentsEstimator):
    """Mean and covariance of a trusted curator, as of `MomentsEstimator`; also at delta = 0."""

    trust = Trust.CENTRAL


@dataclass(eq=False, repr=False)
class Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MomentsEstimator):
    """Principal components of the private covariance; not for use by itself.

    All of `MomentsEstimator`, and:

    Args:
        n_components: kept, the largest; None: all.

    Attributes:
        components_: (n_components, columns), with rows of length 1.
        explained_variance_: along them, (n_components,), decreasing.
        mean_: that is subtracted, `location_`.
    """

    n_components: int | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sum once, and take the components.

        Raises:
            ParameterError: naming the parameter or the column.
        """
        super().fit(X, y)
        count = len(self.location_) if self.n_components is None else self.n_components
        values, axes = np.linalg.eigh(self.covariance_)
        # eigh has them rise.
        self.explained_variance_ = values[::-1][:count].copy()
        kept = axes.T[::-1][:count]
        # An eigenvector has no sign of its own: its largest entry shall be positive.
        signs = np.sign(kept[np.arange(count), np.abs(kept).argmax(axis=1)])
        self.components_, self.mean_ = kept * signs[:, None], self.location_
        return self

    def _check(self, columns: int) -> None:
        if self.n_components is not None:
            integer("n_components", self.n_components, 1, columns)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> Floats:
        """Coordinates along the components, (rows, n_components); rows are not clipped."""
        return np.asarray((self._rows(X) - self.mean_) @ self.components_.T)


class ShufflePCA(Components):
    """Principal components in the shuffle model. All parameters are those of `Components`."""

    trust = Trust.SHUFFLE


class PrivatePCA(Components):
    """Principal components of a trusted curator. All parameters are those of `Components`."""

    trust = Trust.CENTRAL
