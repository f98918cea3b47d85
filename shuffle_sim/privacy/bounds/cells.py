"""Counts by bin under noise that users share: what is seen of one bin, and what that costs.

The views of histogram protocols are independent cells, one a bin. Only the cell of a user's own bin
knows of its datum. So the worst neighbours differ in two cells: for p1, p0 the laws of a cell with
the user in it and without, they are p1 x p0 against p0 x p1. Other users' data are known shifts.

The noise is compound Poisson: Poisson(rate) batches, of sizes uniform on 1 .. J. Its parts by users
add up to it exactly, whatever the number of users (docs: theory, Counts).
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds.losses import LossLaw

MAX_UNITS = 2.0**53
"""Noise messages that a plan may count on: doubles count no further."""
_DEPTH = 46.0  # e^-46 of a law lies beyond its window
_FALSE = 3e-16  # of a transform: what is below is its error
_BLOCK = 64  # places of a recursion at once
_HIGH, _GROWTH = 1e150, 350.0  # where a recursion is scaled down; e^350 of it is a double
_LARGEST = 2**25  # entries of a table
_PLANNED = 2**25, 2**19  # noise in a bin that is planned for: single messages, and in batches
_WIDEST = 2**26, 2**21  # likewise that a law is made of: of all users, where few were counted on
_DEEPEST = 690.0  # e^-690 is a double


@lru_cache(maxsize=64)
def batches(size: int) -> Floats:
    """The uniform law on 1 .. size, (size,)."""
    return np.full(size, 1 / size)


def compound(rate: float, sizes: Floats) -> Floats:
    """P(0), P(1), ... of the sum of Poisson(rate) batches; sizes[i] is the chance of size i + 1.

    Single messages by ratios; else Panjer's recursion j g(j) = rate sum_i i sizes(i) g(j - i):
    every digit counts, as no term is negative. What lies beyond the window is below e^-46, by
    Bernstein's inequality.

    Raises:
        ParameterError: a law of too many numbers.
    """
    reach, integers = _reach(rate, sizes), np.arange(1, sizes.size + 1)
    integer("noise", reach, 1, _WIDEST[sizes.size > 1])
    if sizes.size == 1:
        start, law = _poisson(rate, _DEEPEST)
        return np.concatenate([np.zeros(start), law])
    # As many zeros before P(0) as there are sizes: the recursion reaches back so far.
    weights, first = rate * integers * sizes, sizes.size
    found = np.zeros(first + reach + _BLOCK)
    found[first] = 1.0  # e^-rate, which may be too small for a double: the sum makes it so
    # g(j) is at most the mean times the largest before it: a block stays below the doubles' end.
    block = min(_BLOCK, int(_GROWTH / math.log(float(weights.sum()) + math.e)))
    before, within = _steps(weights, block)
    for j in range(1, reach, block):
        behind = before @ found[j : j + first]
        within[np.diag_indices(block)] = np.arange(j, j + block)
        values = scipy.linalg.blas.dtrsv(within, behind, lower=1)
        found[first + j : first + j + block] = values
        if values.max() > _HIGH:
            found *= 1 / _HIGH
    law = found[first : first + reach]
    return np.asarray(law / law.sum())


def _steps(weights: Floats, block: int) -> tuple[Floats, Floats]:
    """Of Panjer's recursion for a block of places: what it takes of those before, and of its own.

    The second times the block's law, with j on its diagonal, is the first times the law before it.
    """
    first, steps = weights.size, np.append(weights, np.zeros(block))  # i - 1 is the place of i
    back = np.arange(block)[:, None] - np.arange(-first, block)  # of a place from one before
    every = np.where(back > 0, steps[np.clip(back - 1, 0, first)], 0.0)
    return np.ascontiguousarray(every[:, :first]), np.asfortranarray(-every[:, first:])


def _reach(rate: float, sizes: Floats) -> int:
    """Beyond which there is less than e^-46 of Poisson(rate) batches."""
    integers = np.arange(1, sizes.size + 1)
    mean, variance = rate * float(sizes @ integers), rate * float(sizes @ integers**2)
    real("noise", mean, 0.0, MAX_UNITS, closed=(True, True))
    # t solves t^2/(2 (v + J t/3)) = 46: Bernstein's inequality for batches up to J.
    slope = sizes.size * _DEPTH / 3
    return math.ceil(mean + slope + math.sqrt(slope**2 + 2 * variance * _DEPTH)) + 1


def _poisson(rate: float, depth: float = _DEPTH) -> tuple[int, Floats]:
    """The first place and the law from there on; below it there is less than e^-depth.

    By its ratios, from the mode outward, and its sum: each place is right to some u times its
    distance from the mode. By logarithms of factorials it would be to u times `rate`.
    """
    # P(N <= rate - x) <= e^(-x^2 / (2 rate)).
    start, reach = max(0, math.floor(rate - math.sqrt(2 * depth * rate))), _reach(rate, batches(1))
    mode = int(rate)
    above = np.cumprod(rate / np.arange(mode + 1, reach))
    below = np.cumprod(np.arange(mode, start, -1) / rate) if rate else above[:0]
    law = np.concatenate([below[::-1], [1.0], above])
    return start, law / law.sum()


@dataclass(frozen=True)
class Cell:
    """What is seen of a bin.

    Attributes:
        inside: law of the outcomes where the user is in the bin, (outcomes,).
        outside: where it is not.
    """

    inside: Floats
    outside: Floats

    @cached_property
    def _sorted(self) -> tuple[Floats, Floats, Floats]:
        """Losses ascending, and both laws in that order; what nobody sees is left out."""
        seen = (self.inside > 0) | (self.outside > 0)
        inside, outside = self.inside[seen], self.outside[seen]
        with np.errstate(divide="ignore"):
            losses = np.log(inside) - np.log(outside)
        order = np.argsort(losses)
        return losses[order], inside[order], outside[order]

    def delta(self, epsilon: float) -> float:
        """Of two cells between which one user moves; exact but for rounding, which is upward.

        The loss of outcomes o, o' of the two cells is l(o) - l(o'), so that a prefix of the second
        cell counts for each outcome of the first.
        """
        losses, inside, outside = self._sorted
        # l(o) - l(o') > epsilon: places from the left, as a loss of exactly epsilon gains nothing.
        first = np.searchsorted(losses, losses - epsilon)
        below_in, below_out = (np.concatenate([[0.0], np.cumsum(p)]) for p in (inside, outside))
        factor = math.exp(min(epsilon, 700.0))
        gains = inside * below_out[first] - factor * outside * below_in[first]
        # An outcome of the pair is missing where either cell's is: both count as told.
        lost = max(0.0, 1 - float(inside.sum())) + max(0.0, 1 - float(outside.sum()))
        found = float(gains[first > 0].clip(0.0).sum()) + lost
        return min(1.0, found * (1 + 1e-9) + 1e-15)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the loss of the two cells, where it is finite."""
        losses, inside, outside = self._sorted
        if not (known := np.isfinite(losses)).any():
            return 0.0
        total = 0.0
        for law in (inside[known], outside[known]):
            mean = law @ losses[known] / law.sum()
            total += float(law @ (losses[known] - mean) ** 2 / law.sum())
        return math.sqrt(total)

    def losses(self, step: float) -> LossLaw:
        """The law of the loss of the two cells on a grid."""
        there = LossLaw.of(self.inside, self.outside, step)
        return there.then(LossLaw.of(self.outside, self.inside, step))


@lru_cache(maxsize=256)
def one_sided(rate: float, batch: int = 1, kept_back: float = 0.0) -> Cell:
    """A count under noise; the user's own message is kept back with probability `kept_back`.

    Raises:
        ParameterError: a rate below 0, batches of less than 1, kept_back not in [0, 1).
    """
    real("rate", rate, 0.0, math.inf, closed=(True, False))
    real("kept_back", kept_back, 0.0, 1.0, closed=(True, False))
    sizes = batches(integer("batch", batch, 1, 2**20))
    # Beyond it, a law of all users would be too wide, where more report than were counted on.
    integer("noise", _reach(rate, sizes), 1, _PLANNED[batch > 1])
    # Where it begins is the same for both.
    noise = _poisson(rate)[1] if batch == 1 else compound(rate, sizes)
    # The 0 that is appended rolls to the front: a user in the bin is one count more.
    outside = np.append(noise, 0.0)
    inside = (1 - kept_back) * np.roll(outside, 1) + kept_back * outside
    return Cell(inside, outside)


@lru_cache(maxsize=256)
def two_sided(decay: float, rate: float, batch: int = 1, shape: float = 1.0) -> Cell:
    """Messages for and against a bin: (x + A + C, B + C), A and B negative binomial, C the flood.

    Of shape 1, P(A = a) ~ decay^a, what matters is U where U <= V, and else that U > V:
    given min(A, B), which A - B is independent of, the rest is symmetric.

    Args:
        decay: rho, in (0, 1).
        rate: of the flood.
        batch: of the flood.
        shape: of A and B; below 1 where honest users are fewer than was planned.

    Raises:
        ParameterError: naming the parameter, its value and what is allowed.
    """
    rho = real("decay", decay, 0.0, 1.0, closed=(False, False))
    flood = compound(rate, batches(integer("batch", batch, 1, 2**20)))
    if real("shape", shape, 0.0, 1.0) < 1:
        return _table(rho, flood, shape)
    return geometric_under(rho, flood)


def geometric_under(decay: float, flood: Floats) -> Cell:
    """`two_sided` of shape 1 under a flood of any law (counts,)."""
    rho = decay
    # Behind the flood's end g falls by rho^2 each step, down to e^-46.
    tail = np.zeros(math.ceil(_DEPTH / (-2 * math.log(rho))))
    # g(j) = rho^2 g(j - 1) + P(C = j); the first outcome is *, U > V ("Two-sided noise").
    least = np.append(scipy.signal.lfilter([1.0], [1.0, -rho * rho], np.append(flood, tail)), 0.0)
    inside = np.append(1 / (1 + rho), (1 - rho) * rho * np.roll(least, 1))
    outside = np.append(rho / (1 + rho), (1 - rho) * least)
    return Cell(inside, outside)


def _table(rho: float, flood: Floats, shape: float) -> Cell:
    """All outcomes (U, V), by their distance and the lesser of the two."""
    reach = math.ceil(_DEPTH / -math.log(rho)) + 2
    if (flood.size + reach) * reach > _LARGEST:
        return Cell(np.array([1.0, 0.0]), np.array([0.0, 1.0]))  # nothing is promised
    noise = scipy.stats.nbinom.pmf(np.arange(reach), shape, 1 - rho)
    # By |A - B| and min(A, B): the flood adds to the lesser alone, so it is one convolution.
    products = np.zeros((reach, reach))
    for distance in range(reach):
        products[distance, : reach - distance] = noise[: reach - distance] * noise[distance:]
    table = scipy.signal.fftconvolve(products, flood[None], axes=1)
    table[table < _FALSE] = 0.0  # counts as lost
    # A user for the bin makes a distance of d - 1 one of d; and d + 1 one of d, from below.
    behind = np.hstack([np.zeros((reach, 1)), table])
    wide = np.hstack([table, np.zeros((reach, 1))])
    inside = np.concatenate([wide[:-1].ravel(), behind[1:].ravel()])
    outside = np.concatenate([wide[1:].ravel(), wide[:-1].ravel()])
    return Cell(inside, outside)


def cap(law: Floats, users: int, failure: float) -> int:
    """The least number that no one of so many draws of a law (values,) exceeds, but for `failure`.

    The law may end where it has e^-46 left: that is added.
    """
    # A union over users; beyond[k] is of more than k.
    beyond = users * (np.append(np.cumsum(law[:0:-1])[::-1], 0.0) + math.exp(-_DEPTH))
    return int(np.argmax(beyond <= failure)) if beyond[-1] <= failure else law.size
