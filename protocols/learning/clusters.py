"""Private k-means: Lloyd's steps over noisy counts and sums, whoever is trusted."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin

from protocols.central.record.lloyd import CentralLloyd
from protocols.learning.linear_model import of_one_fit, seed_of
from protocols.learning.moments import InBall
from protocols.learning.notes import tell_of_search
from protocols.shuffle.lloyd import ShuffleLloyd
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.trust import Trust


@dataclass(eq=False, repr=False)
class Clusters(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, InBall):
    """k-means by private sums; not for use by itself.

    Formal guarantee: `privacy_`, replace-one, of all rounds: of the centres, and of what is made of
    them without looking at the rows of `fit` again. `labels_` does look at them: it says where each
    row lies and is the simulator's view, no part of the release. So is `clipped_`.

    All of `InBall`, and:

    Args:
        n_clusters: k; at most the rows.
        rounds: each user answers in every one; None: as many as noise allows, at most 9.

    Attributes:
        cluster_centers_: (n_clusters, columns), in the data's units.
        shares_: of the rows by cluster in the last round, noisy.
        labels_: of the rows of `fit`, (rows,); see above.
        n_iter_: rounds.
        protocol_: what was run; its `start` is the public seed of the first centres.
    """

    n_clusters: int = 8
    rounds: int | None = field(default=None, kw_only=True)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Take the steps.

        Raises:
            ParameterError: naming the parameter or the column, before any release.
        """
        tell_of_search()
        integer("n_clusters", self.n_clusters)
        rows, center, factor, beyond = self._scaled(X)
        n, d = rows.shape
        if n < max(2, self.n_clusters):
            allowed = f"at least {max(2, self.n_clusters)}, for n_clusters = {self.n_clusters}"
            raise ParameterError("X", f"{n} sample" + "s" * (n > 1), allowed)
        seed = seed_of(self.random_state)
        # Where centres start is public: drawn from the seed alone, whatever the rows are.
        start = int(np.random.default_rng(seed).integers(2**31))
        made: dict[str, Any] = {"n": n, "d": d, "clusters": self.n_clusters}
        privacy = Privacy(self.epsilon, self.delta)
        made |= {"privacy": privacy, "rounds": self.rounds}
        kind: Any = CentralLloyd if self.trust is Trust.CENTRAL else ShuffleLloyd
        self.protocol_ = kind(start=start, **made)
        self.result_ = run(self.protocol_, rows, seed=seed)
        self._tell(n, self.protocol_.coordinates, privacy, beyond)
        self.privacy_ = of_one_fit(self.result_.privacy)
        found, self.n_iter_ = self.result_.value, self.result_.rounds
        # Centres are released numbers: mapping them back looks at no row.
        self.cluster_centers_ = center + found.centres * factor
        self.shares_, self._factor = found.shares, factor
        self.labels_ = _nearest(rows, found.centres)
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The nearest centre of each row, (rows,)."""
        rows = self._rows(X) / self._factor
        return _nearest(rows, self.cluster_centers_ / self._factor)

    def transform(self, X: Any) -> Floats:
        """Distances from the centres, (rows, n_clusters), in units of the unit ball."""
        apart = self._rows(X)[:, None] - self.cluster_centers_
        return np.asarray(np.linalg.norm(apart / self._factor, axis=2))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the sum of squared distances from the nearest centres, in these units."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())


def _nearest(rows: Floats, centres: Floats) -> NDArray[np.int64]:
    # |x - c|^2 is |x|^2 - 2 <x, c> + |c|^2: the least is where half of that is, without |x|^2.
    closeness = rows @ centres.T - (centres**2).sum(axis=1) / 2
    return np.asarray(closeness.argmax(axis=1))


class ShuffleKMeans(Clusters):
    """k-means in the shuffle model. All parameters are those of `Clusters`."""

    trust = Trust.SHUFFLE


class PrivateKMeans(Clusters):
    """k-means of a trusted curator; also pure, at delta = 0. All parameters are of `Clusters`."""

    trust = Trust.CENTRAL
