"""Composition of releases of several kinds over one user.

Each kind is dominated by simple parts: (epsilon, delta)-private steps by randomised response that
reveals the datum with probability delta, pairs whose losses are known as a law on a grid, and
everything else by one Gaussian pair. Together they give (docs: theory, Composition)

    delta(eps) = 1 - q + q E delta_GDP(eps - S; mu) + given up + (1 + e^eps) changed,

with q the probability that no step reveals, and S the sum of the steps' signed epsilons and of the
losses known. The order,
the kinds and the queries may be chosen adaptively, and interactive releases may be interleaved:
concurrent composition costs no more (Vadhan and Wang 2021; Lyu 2022; Vadhan and Zhang 2023).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.privacy.bounds.gaussian import delta_gdp, epsilon_gdp
from shuffle_sim.privacy.bounds.losses import LossLaw

_MOST_SHIFTS = 4096
_POINTS, _STEPS = 2048, 800  # of known losses beside steps; in a mu beside them
_FAR = 40.0  # of mu: e^-800 of a Gaussian lies beyond
MAX_EPSILON = 1e4
"""Beyond it nothing is called private."""
_MAX_MU = 1e8  # beyond, the curve's digits are lost


@dataclass(frozen=True)
class Parts:
    """What dominates some releases over one user.

    Attributes:
        steps: (epsilon, delta, count) of releases that are (epsilon, delta)-private each.
        mu: of the Gaussian pair that dominates all the others.
        given_up: probability with which neither of them does.
        changed: total variation of each world from one that they dominate.
        losses: of the pairs whose losses are known.
    """

    steps: tuple[tuple[float, float, int], ...] = ()
    mu: float = 0.0
    given_up: float = 0.0
    changed: float = 0.0
    losses: LossLaw | None = None

    def __add__(self, other: "Parts") -> "Parts":
        """Both groups of releases."""
        both = self.losses.then(other.losses) if self.losses and other.losses else None
        return Parts(
            self.steps + other.steps,
            math.hypot(self.mu, other.mu),
            self.given_up + other.given_up,
            self.changed + other.changed,
            both or self.losses or other.losses,
        )

    def delta(self, epsilon: float) -> float:
        """delta at `epsilon`, at most 1."""
        if not self.finite:
            return 1.0
        falling, found = self._at(epsilon)
        if falling < self.changed and self._turn < epsilon:
            return self._at(self._turn)[1]
        return found

    def keeps(self, epsilon: float, delta: float) -> bool:
        """Whether delta at `epsilon` is at most this; mostly one evaluation says so."""
        return self.finite and (self._at(epsilon)[1] <= delta or self.delta(epsilon) <= delta)

    @cached_property
    def _turn(self) -> float:
        return turn(lambda epsilon: self._at(epsilon)[1], self.changed)

    def _at(self, epsilon: float) -> tuple[float, float]:
        """The part of delta that falls with epsilon, and delta by the formula at this epsilon."""
        # ln q; log1p, as 1 - d of a delta would lose its digits.
        hidden = math.fsum(count * math.log1p(-d) for _, d, count in self.steps)
        shifts, weights = self._shifts
        # Of the steps alone delta_GDP is (1 - e^(epsilon - S))_+.
        left = epsilon - shifts
        each = -np.expm1(np.minimum(left, 0.0))
        if self.mu:  # farther away it says nothing that a double could hold
            near = np.abs(left) < self.mu * (self.mu / 2 + _FAR)
            each[near] = delta_gdp(left[near], np.full(np.count_nonzero(near), self.mu))
        mixture = float(weights @ each)
        lost = self.given_up + (1 + math.exp(min(epsilon, 700.0))) * self.changed
        if self.losses:
            mixture, lost = mixture * (1 + 1e-9), lost + self.losses.lost
        falling = math.exp(hidden) * mixture
        return falling, min(1.0, -math.expm1(hidden) + falling + lost)

    def epsilon(self, delta: float, most: float = math.inf) -> float:
        """The least epsilon at `delta`, rounded up; infinite where there is none up to `most`."""
        if not self.finite:
            return math.inf
        if delta == 0:
            if self.losses:
                return math.inf
            lost = max(self.mu, self.given_up, self.changed, *(d for _, d, _ in self.steps), 0.0)
            return math.inf if lost else math.fsum(e * count for e, _, count in self.steps)
        if not self.steps and not self.changed and not self.losses:
            left = delta - self.given_up
            return epsilon_gdp(left, self.mu) if left > 0 else math.inf
        return least_epsilon(self.delta, delta, most)

    @property
    def finite(self) -> bool:
        """Whether anything is promised."""
        return self.mu <= _MAX_MU and all(e * n < 1e300 and d < 1 for e, d, n in self.steps)

    @cached_property
    def _shifts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The values of S with their probabilities; values are rounded up where there are many."""
        shifts: NDArray[Any] = np.zeros(1)
        weights: NDArray[Any] = np.ones(1)
        if self.losses:
            law, size = self.losses, self.losses.masses.size
            # Split outward once more, so still an upper bound: the steps multiply the points, and
            # beside a wide Gaussian a fine grid says no more.
            times = size / _POINTS if self.steps else self.mu / _STEPS / law.step / 2
            times = min(times, 1 / law.step)  # e^step is a double
            # By powers of 2: a law is kept on some grids, and mu takes many values.
            law = law.on(law.step * 2 ** max(0, math.ceil(math.log2(max(times, 1.0)))))
            shifts, weights = law.losses, law.masses
        for e, _, count in self.steps:
            up, chances = _upward(count, float(scipy.special.expit(e)))
            # So many steps say "rather x", the others "rather x'": their difference times epsilon.
            shifts = np.add.outer(shifts, (2 * up - count) * e).ravel()
            weights = np.outer(weights, chances).ravel()
            if shifts.size > _MOST_SHIFTS:
                width = (shifts.max() - shifts.min()) / (_MOST_SHIFTS // 2)
                # Upward: delta_GDP(epsilon - S) grows with S.
                cells = np.ceil((shifts - shifts.min()) / width).astype(int)
                weights = np.bincount(cells, weights)
                shifts = shifts.min() + width * np.arange(weights.size)
        return shifts, weights


def _upward(count: int, p: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many of `count` steps go up, with probabilities; rounded up where there are many."""
    if count < _MOST_SHIFTS:
        up = np.arange(count + 1.0)
        return up, scipy.stats.binom.pmf(up, count, p)
    mean, reach = count * p, 40 * math.sqrt(count * p * (1 - p)) + 40
    ends = max(0.0, mean - reach), min(float(count), mean + reach)
    # `count` is the last, so that what lies beyond the window counts as all up.
    up = np.unique([*np.linspace(*ends, _MOST_SHIFTS // 2).round(), float(count)])
    # The mass between two of them is the difference of tails: it is accurate from the smaller one.
    below = np.diff(scipy.stats.binom.cdf(up, count, p), prepend=0.0)
    above = -np.diff(scipy.stats.binom.sf(up, count, p), prepend=1.0)
    return up, np.where(up < mean, below, above)


def turn(delta_of: Callable[[float], float], changed: float) -> float:
    """The epsilon at which delta is least, where (1 + e^epsilon) changed is a part of it.

    That part grows, so from there on less epsilon says more. A delta at any smaller epsilon holds:
    the minimum need not be exact.
    """
    if not 0 < changed < 1:
        return 0.0 if changed else math.inf
    # Beyond the end nothing is promised; where delta is 1 no search would find its way.
    ends = 0.0, -math.log(changed)
    return float(scipy.optimize.minimize_scalar(delta_of, bounds=ends, method="bounded").x)


def least_epsilon(
    delta_of: Callable[[float], float], delta: float, most: float = math.inf
) -> float:
    """The least epsilon whose delta is enough, to 1e-10 above: bisection on a decreasing function;
    infinite beyond MAX_EPSILON and, without a search, beyond `most`.
    """
    # delta falls: its root is beyond `most` then.
    if most < MAX_EPSILON and delta_of(most) > delta:
        return math.inf
    low, high = 0.0, 1.0
    if delta_of(0.0) <= delta:
        return 0.0
    while delta_of(high) > delta:
        low, high = high, 2 * high
        if high > MAX_EPSILON:
            return math.inf
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high
