"""Quantiles, the median and the whole distribution function, from one release."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.counts.one_view import OneView, View
from protocols.counts.trees import Nodes, Shape
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.base import Query, check_rows

_MOST_LEAVES = 2**22


@dataclass(frozen=True)
class Leaf(Query):
    """The number of the cell of a range that a value is in; values outside count as its ends.

    Attributes:
        low: of the range.
        high: of the range.
        leaves: cells.
    """

    low: float
    high: float
    leaves: int

    def __call__(self, rows: Floats) -> Floats:
        part = (np.asarray(rows, np.float64) - self.low) / (self.high - self.low)
        return np.clip(np.floor(part * self.leaves), 0, self.leaves - 1)


@dataclass(frozen=True)
class Distribution:
    """How the values of all users are distributed.

    Attributes:
        edges: of the cells, (leaves + 1,), in the units of the data.
        counts: users in each cell, least squares; they may be negative, (leaves,).
        ranks: users up to each edge: never falling, from 0 to all, (leaves + 1,).
        raw: users up to each edge before they were made to rise: unbiased, (leaves + 1,).
        deviations: standard deviations of `raw`, (leaves + 1,).
        reach: largest single step of the noise in them.
        reports: R.
    """

    edges: Floats
    counts: Floats
    ranks: Floats
    raw: Floats
    deviations: Floats
    reach: float
    reports: int

    def quantile(self, share: float) -> float:
        """The value that a share of all users lies below; linear inside a cell.

        Raises:
            ParameterError: share not in [0, 1].
        """
        rank = real("share", share, 0.0, 1.0, closed=(True, True)) * self.reports
        at = int(np.clip(np.searchsorted(self.ranks, rank) - 1, 0, self.counts.size - 1))
        low, high = self.ranks[at : at + 2]
        part = (rank - low) / (high - low) if high > low else 0.5
        return float(
            self.edges[at] + min(max(part, 0.0), 1.0) * (self.edges[at + 1] - self.edges[at])
        )

    @property
    def median(self) -> float:
        """Half of the users lie below."""
        return self.quantile(0.5)

    def band(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Ends between which all true ranks of edges lie at once, (leaves + 1,) each; certified.

        By Bernstein's inequality for compound Poisson noise, and a union bound over the edges.
        """
        beta = 1 - real("confidence", confidence, 0.0, 1.0, closed=(False, False))
        # Both sides of all inner edges; at the ends the ranks are known.
        x = math.log(2 * (self.edges.size - 2) / beta)
        # t of exp(-t^2/(2 (V + J t/3))) = e^-x; a node
        # counts for at most 1 in a prefix, so J is a batch.
        slope = self.reach * x / 3
        width = np.where(
            self.deviations > 0, slope + np.sqrt(slope**2 + 2 * x * self.deviations**2), 0.0
        )
        # True ranks never fall: a bound at an edge holds to its right, and from above to its left.
        low = np.clip(np.maximum.accumulate(self.raw - width), 0.0, self.reports)
        high = np.minimum.accumulate((self.raw + width)[::-1])[::-1]
        return low, np.clip(high, 0.0, self.reports)

    def interval(self, share: float, confidence: float = 0.95) -> tuple[float, float]:
        """Values between which the quantile lies, together with all others of a run."""
        rank = real("share", share, 0.0, 1.0, closed=(True, True)) * self.reports
        low, high = self.band(confidence)
        # The first edge that may reach the rank, and the first that surely is beyond it.
        first = int(np.searchsorted(high, rank, side="left"))
        last = int(np.searchsorted(low, rank, side="right"))
        size = self.edges.size - 1
        return float(self.edges[max(0, min(first, size) - 1)]), float(self.edges[min(last, size)])


class Quantiles(OneView[Nodes]):
    """The distribution of numbers in [low, high]; data of shape (n,), values outside are clipped.

    Every user sends the node that it is under at each level of a tree, all in one release.

    Formal guarantee: exact pairs of noisy counts, of all levels together (docs: theory, Counts).

    Attributes:
        shape: of the tree.
        value: of a run: a `Distribution`.
    """

    task: ClassVar[str] = "quantiles"
    usual_size: ClassVar[int] = 16

    def __init__(
        self,
        *,
        n: int,
        low: float,
        high: float,
        randomizer: Nodes,
        fans: Sequence[int],
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        super().__init__(n, randomizer, delta, honest_fraction)
        self.low, self.high = ends(low, high)
        self.shape = Shape(tuple(fans))
        if randomizer.sizes != self.shape.nodes or len(set(randomizer.rates)) != 1:
            raise ParameterError("fans", fans, "those of the randomizer, with one rate")

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        low: float,
        high: float,
        privacy: Privacy,
        leaves: int = 1024,
        fans: Sequence[int] | None = None,
        objective: str = "error",
        honest_fraction: float = 1.0,
        rounds: int = 1,
    ) -> Self:
        """The least noise, or the fewest messages, for the privacy.

        Args:
            n: users.
            low: end of the range, public.
            high: end of the range, public.
            privacy: of the view.
            leaves: cells of the range at least; a power of 4 is taken.
            fans: children of a node at each level; None: 4 at each.
            objective: "error", or "messages" for noise in batches.
            honest_fraction: of the users whose noise is counted on.
            rounds: such reports, as of days, that a user answers; the privacy is of all.
        """
        span, honest = ends(low, high), honest_users(honest_fraction, integer("n", n, 2))
        if fans is None:
            integer("leaves", leaves, 2, _MOST_LEAVES)
            # 1e-9: a quotient of logarithms may be a little above the whole number that it is.
            fans = (4,) * max(1, math.ceil(math.log(leaves) / math.log(4) - 1e-9))
        shape = Shape(tuple(integer("fans", each, 2, _MOST_LEAVES) for each in fans))
        integer("fans", shape.leaves, 2, _MOST_LEAVES)
        weights = (1.0,) * len(shape.fans)
        plan = count_planner.one_sided(privacy, objective, integer("rounds", rounds), weights)
        return cls(
            n=n,
            low=span[0],
            high=span[1],
            randomizer=Nodes.of_plan(plan, shape.nodes, honest, privacy, releases=rounds),
            fans=shape.fans,
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )

    @classmethod
    def size(cls, n: int, domain: int, privacy: Privacy) -> dict[str, Any]:
        return {"n": n, "low": 0.0, "high": 1.0, "privacy": privacy, "leaves": domain}

    @property
    def error(self) -> float:
        return float(self.standard_errors.max())

    @property
    def query(self) -> Query:
        return Leaf(self.low, self.high, self.shape.leaves)

    @property
    def standard_errors(self) -> Floats:
        """Predicted standard deviations of the ranks of inner edges, (leaves - 1,)."""
        noise = self.randomizer.noise_variance(self.n)[0]
        return np.sqrt(noise * self.shape.prefix_variances)

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n,))

    def answer(self, view: View) -> Distribution:
        counts = self.shape.fitted(view.estimates, view.reports)
        raw = np.concatenate([[0.0], np.cumsum(counts)[:-1], [view.reports]])
        ranks = np.asarray(scipy.optimize.isotonic_regression(raw[1:-1]).x, np.float64)
        ranks = np.concatenate([[0.0], np.clip(ranks, 0.0, view.reports), [view.reports]])
        noise = self.randomizer.noise_variance(view.reports)[0]
        inner = np.sqrt(noise * self.shape.prefix_variances)
        return Distribution(
            np.linspace(self.low, self.high, self.shape.leaves + 1),
            counts,
            ranks,
            raw,
            np.concatenate([[0.0], inner, [0.0]]),
            float(self.randomizer.batch),
            view.reports,
        )


def ends(low: float, high: float, most: float = 1e300) -> tuple[float, float]:
    """Ends of a range, none beyond `most`."""
    bottom = real("low", low, -most, most, closed=(True, True))
    top = real("high", high, -most, most, closed=(True, True))
    if not bottom < top:
        raise ParameterError("high", high, f"above low = {low!r}")
    return bottom, top
