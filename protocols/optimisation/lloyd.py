"""k-means by noisy sums: Lloyd's steps, whoever adds the noise.

The first round releases the mean and the spread of the columns. The centres start around that mean,
in directions of a public seed. In every other round a user answers in the block of its nearest
centre: how far away it is, and a mark that counts it. So all counts and sums of a round are one
vector, as of Su, Cao, Li, Bertino and Jin (2016), but relative to the centres: distances are
shorter than rows, and counts then matter less.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, lengths
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Algorithm, check_rows
from shuffle_sim.protocol.query import Query

# All tuned by `python -m benchmarks.tuning clusters`, on generated rows alone.
MARK = 0.5
"""Of a user in its block, beside a distance of at most 1."""
_REACH = 0.5
"""Clip of distances, over the root mean square distance from the mean."""
_MOST, _FEWEST = 8, 2
"""Rounds of Lloyd."""
_CENTRE_NOISE = 0.25
"""Noise of the centres, over the distances, up to which there are more rounds."""
_DRAWN = 10
"""Places drawn for each centre that starts; the farthest are taken."""
_EMPTY = 1.5
"""Standard errors of a count from which a cluster is told from an empty one."""


@dataclass(frozen=True)
class ClusterSpread(Query):
    """Asks each user for (x, x^2) / sqrt 2 of its row x, column by column, clipped to the ball.

    Attributes:
        width: of the answers, 2 d at least; what is left over is 0.
    """

    width: int
    proven = True

    @property
    def apart(self) -> float:
        """2: each part is no longer than 1, which is what x is clipped to."""
        return 2.0

    def __call__(self, rows: Floats) -> Floats:
        rows = _within(np.asarray(rows, np.float64), 1.0)
        d, found = rows.shape[1], np.zeros((len(rows), self.width))
        found[:, :d], found[:, d : 2 * d] = rows, rows**2
        return np.asarray(found / math.sqrt(2))


@dataclass(frozen=True)
class Nearest(Query):
    """Asks each user how far it is from its nearest centre, in that centre's block.

    Of k blocks of d + 1 numbers all but one are 0. It holds the distance over `reach`, clipped to
    length 1, and the mark.

    Attributes:
        centres: shape (k, d).
        reach: to which distances are clipped.
        mark: of each user.
        width: of the answers, k (d + 1) at least; what is left over is 0.
    """

    centres: Floats
    reach: float
    mark: float
    width: int
    moves: ClassVar[tuple[str, ...]] = ("centres", "reach")
    proven = True

    @property
    def apart(self) -> float:
        """In one block marks cancel and distances are 2 apart; of two blocks nothing cancels."""
        return max(2.0, math.sqrt(2 * (1 + self.mark**2)))

    def __call__(self, rows: Floats) -> Floats:
        rows = np.asarray(rows, np.float64)
        (users, d), count = rows.shape, len(self.centres)
        # Half of ||x||^2 - ||x - c||^2: the nearest centre is where it is largest.
        closeness = rows @ self.centres.T - (self.centres**2).sum(axis=1) / 2
        nearest = closeness.argmax(axis=1)
        found = np.zeros((users, self.width))
        blocks = found[:, : count * (d + 1)].reshape(users, count, d + 1)
        away = _within((rows - self.centres[nearest]) / self.reach, 1.0)
        blocks[np.arange(users), nearest] = np.column_stack([away, np.full(users, self.mark)])
        return found


def _within(rows: Floats, length: float) -> Floats:
    """Rows of at most a length; longer ones are scaled to it."""
    return np.asarray(rows * (length / np.maximum(lengths(rows), length))[:, None])


@dataclass(frozen=True)
class LloydState:
    """Rounds over, and what follows from them.

    Attributes:
        round: of them.
        centres: (k, d); none before the first round.
        reach: clip of distances.
        shares: of users by centre, noisy, (k,).
    """

    round: int
    centres: Floats
    reach: float
    shares: Floats


class Lloyd(Algorithm[LloydState, Any]):
    """k-means of n rows in the unit ball of R^d; the result is its state, with the centres.

    Formal guarantee: that of one release a round of a vector in a ball, composed; whatever the
    centres are, users answer within it.

    Attributes:
        n: users.
        d: columns.
        clusters: k.
        rounds: the first included.
        privacy: of the whole run.
        start: public seed of the directions in which centres start.
        mark: of a user in its block.
    """

    bound = math.inf
    assumes = ""

    def __init__(
        self,
        *,
        n: int,
        d: int,
        clusters: int,
        privacy: Privacy,
        rounds: int | None = None,
        start: int = 0,
    ) -> None:
        """For n users; without `rounds` as many as noise allows."""
        self.n, self.d, self.privacy = integer("n", n, 2), integer("d", d), privacy
        if integer("n_clusters", clusters) > n:
            raise ParameterError("n_clusters", clusters, f"at most {n}, the number of users")
        self._delta = privacy.delta
        self.clusters, self.start = clusters, integer("start", start, 0)
        if rounds is None:
            rounds = self._affordable()
        self.rounds = integer("rounds", rounds, 2)
        self.noise = self._noise()

    @property
    def coordinates(self) -> int:
        """Of an answer: k (d + 1), or 2 d for the spread."""
        return max(self.clusters * (self.d + 1), 2 * self.d)

    @property
    def length(self) -> float:
        """Of the longest answer."""
        return math.hypot(1.0, self.mark)

    mark: float = MARK

    @abstractmethod
    def _noise(self) -> float:
        """Standard deviation of a coordinate of a round's average."""

    def _affordable(self) -> int:
        """Rounds whose noise of the centres, over distances, is at most _CENTRE_NOISE; or more."""
        whole = self.coordinates
        wide = self.clusters * math.sqrt(self.d) * 2 / self.n
        if self.privacy.delta > 0:
            unit = gaussian.sigma(self.privacy.epsilon, self.privacy.delta) * wide
            most = (_CENTRE_NOISE / unit) ** 2
        else:
            most = _CENTRE_NOISE * self.privacy.epsilon / (math.sqrt(whole) * wide)
        return 1 + int(min(max(most, _FEWEST), _MOST))

    @property
    def rounds_per_user(self) -> int:
        """In how many rounds a user answers: in all."""
        return self.rounds

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen, and why."""
        return {"rounds": f"noise of a round {self.noise:.3g} per coordinate; no bound is proven"}

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n, self.d))

    def init(self) -> LloydState:
        return LloydState(0, np.zeros((self.clusters, self.d)), 2.0, np.zeros(self.clusters))

    def query(self, state: LloydState) -> Query:
        """What is asked in a state's round."""
        if state.round == 0:
            return ClusterSpread(self.coordinates)
        return Nearest(state.centres, state.reach, self.mark, self.coordinates)

    def update(self, state: LloydState, estimate: Any) -> LloydState:
        found = np.asarray(estimate, np.float64)
        if state.round == 0:
            return self._begun(found * math.sqrt(2))
        blocks = found[: self.clusters * (self.d + 1)].reshape(self.clusters, -1)
        shares, least = blocks[:, -1] / self.mark, _EMPTY * self.noise / self.mark
        # A cluster of hardly anybody has noise for a count: its sums are not divided by that.
        moved = state.reach * blocks[:, :-1] / np.maximum(shares, least)[:, None]
        centres = _within(state.centres + _within(moved, state.reach), 1.0)
        after = LloydState(state.round + 1, centres, state.reach, shares)
        return after if after.round >= self.rounds else self._refilled(after, least)

    def _begun(self, found: Floats) -> LloydState:
        """Centres around the mean, as far as the columns are spread, in public directions."""
        mean = _within(found[None, : self.d], 1.0)[0]
        spread = np.sqrt(np.clip(found[self.d : 2 * self.d] - mean**2, 0.0, 1.0))
        reach = min(2.0, max(_REACH * float(np.linalg.norm(spread)), 1e-3))
        centres = _within(mean + self._directions() * spread, 1.0)
        return LloydState(1, centres, reach, np.zeros(self.clusters))

    def _directions(self) -> Floats:
        """Where centres start, in units of the spread: each as far as may be from those before."""
        drawn = np.random.default_rng(self.start).standard_normal((_DRAWN * self.clusters, self.d))
        kept, apart = [0], np.full(len(drawn), np.inf)
        while len(kept) < self.clusters:
            # Squared distance to the nearest one that is kept already.
            apart = np.minimum(apart, ((drawn - drawn[kept[-1]]) ** 2).sum(axis=1))
            kept.append(int(apart.argmax()))
        return np.asarray(drawn[kept])

    def _refilled(self, state: LloydState, least: float) -> LloydState:
        """With centres of too few users beside those of the most: those may be two clusters."""
        centres, shares = state.centres.copy(), state.shares.copy()
        rng = np.random.default_rng([self.start, state.round])
        for empty in np.flatnonzero(shares < least):
            full = int(shares.argmax())
            aside = rng.standard_normal(self.d) * state.reach / (4 * math.sqrt(self.d))
            centres[empty] = _within((centres[full] + aside)[None], 1.0)[0]
            # The next empty one then goes to where most are left.
            shares[full] /= 2
            shares[empty] = shares[full]
        return LloydState(state.round, centres, state.reach, state.shares)

    def result(self, state: LloydState) -> LloydState:
        return state
