"""Batches of messages that users draw, and the laws of their sizes (docs/theory/floods.md)."""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.privacy.bounds.cells import batches, compound

Ints = NDArray[np.int64]
DEPTH = 46.0
"""e^-46 of a geometric law lies beyond its window."""


@dataclass(frozen=True)
class BatchKind:
    """Batches of messages of which all users draw some.

    Attributes:
        rate: mean number of batches of all users who are planned.
        symbols: messages of a batch of one: how many of each symbol, (symbols,).
        batch: sizes are uniform on 1 .. batch; or
        ratio: of a log-series, if it is above 0.
    """

    rate: float
    symbols: Ints
    batch: int = 1
    ratio: float = 0.0

    def drawn(self, users: float, shape: int | tuple[int, ...], rng: np.random.Generator) -> Ints:
        """All sizes together, of so many times the users who are planned; as often as `shape`."""
        drawn = rng.poisson(self.rate * users, shape)
        if not self.ratio and self.batch == 1:
            return drawn
        many = int(drawn.sum())
        if self.ratio:
            # A Poisson number of log-series sizes is negative
            # binomial, so shares add up to a geometric.
            sizes = rng.logseries(self.ratio, many)
        else:
            sizes = rng.integers(1, self.batch + 1, many)
        whose = np.repeat(np.arange(drawn.size), drawn.ravel())
        total = np.zeros(drawn.size, np.int64)
        np.add.at(total, whose, sizes)
        return total.reshape(shape)

    def law(self, users: float) -> Floats:
        """Of what is drawn, (sizes,)."""
        if self.ratio:
            reach = math.ceil(DEPTH / -math.log(self.ratio)) + 2
            return np.asarray(scipy.stats.nbinom.pmf(np.arange(reach), users, 1 - self.ratio))
        return compound(self.rate * users, batches(self.batch))
