"""Rows of two classes, a loss that counts, and the law of draws by quadrature."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import stats

from protocols.problems.losses import Logistic


def rows_of(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    y = np.where(x[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    return np.column_stack([x, y])


@dataclass(frozen=True)
class Counted(Logistic):
    """A loss that counts how many derivatives are asked for."""

    asked: ClassVar[list[int]] = []

    def believed(self):
        return ()  # as of the loss that it is: rows are not held to it once more

    def derivative(self, margins, labels):
        self.asked.append(np.size(margins))
        return super().derivative(margins, labels)


def law_p_value(draws, grid, energy, sharpness):
    """Of draws of density ~ e^(-sharpness energy), energies at the points of a grid."""
    density = np.exp(-sharpness * (energy - energy.min()))
    cdf = np.cumsum(density) / density.sum()
    return stats.kstest(draws, lambda w: np.interp(w, grid, cdf)).pvalue
