"""Integers of exact laws, from uniform integers alone: no step rests on floating point.

After Canonne, Kamath and Steinke (2020): a Bernoulli of probability e^-x for a rational x, and a
geometric from it. A negative binomial of a rational shape below 1 comes from it by rejection.
Probabilities are rationals or e^-rational; rates are multiples of 2^-FRACTION.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
FRACTION = 40
"""Rates are counted in multiples of 2^-40; a rate is rounded down to one, for more noise."""
_UNIT = 1 << FRACTION
_BATCH = 1 << 18  # proposals drawn at once, at most
_AT_ONCE = 20  # its factorial is the last below 2^62
_FACTORIALS = np.array([math.factorial(k) for k in range(_AT_ONCE + 1)])


def below(bound: int | Ints, size: int, rng: np.random.Generator) -> Ints:
    """Uniform integers from 0 to bound - 1, shape (size,); each bound at most 2^62."""
    source: Any = rng.bit_generator
    bounds = np.broadcast_to(np.asarray(bound, np.uint64), size)
    # A word is taken where it lies in a whole number of bounds: then its rest is uniform.
    limit = ~np.uint64(0) - (~np.uint64(0) % bounds + np.uint64(1)) % bounds
    words = np.asarray(source.random_raw(size), np.uint64)
    while (wrong := np.flatnonzero(words > limit)).size:
        words[wrong] = source.random_raw(wrong.size)
    return (words % bounds).astype(np.int64)


def bernoulli_exp(number: Ints, rng: np.random.Generator) -> NDArray[np.bool_]:
    """True with probability e^-x, x = number/2^40 in [0, 1] (Algorithm 1 there)."""
    found, going = np.ones(number.size, bool), np.arange(number.size)
    step = 1
    while going.size:
        # Goes on with probability x/step: the first that does not has an odd index, or an even one.
        going = going[below(_UNIT * step, going.size, rng) < number[going]]
        found[going] ^= True
        step += 1
    return found


def geometric(number: int, size: int, rng: np.random.Generator) -> Ints:
    """P(k) = (1 - e^-x) e^(-x k), k = 0, 1, ..., with x = number/2^40 > 0 (as in Algorithm 2).

    U + 2^40 V has the rate 2^-40, U of its rest and V of its whole units; its part by `number` has
    the rate asked for.
    """
    rest, waiting = np.empty(size, np.int64), np.arange(size)
    while waiting.size:
        tried = below(_UNIT, waiting.size, rng)
        taken = bernoulli_exp(tried, rng)
        rest[waiting[taken]] = tried[taken]
        waiting = waiting[~taken]
    units, going = np.zeros(size, np.int64), np.arange(size)
    while going.size:
        going = going[bernoulli_exp(np.full(going.size, _UNIT), rng)]
        units[going] += 1
    return (rest + (units << FRACTION)) // number


def negative_binomial(
    numerator: int, denominator: int, rate: float, size: int, rng: np.random.Generator
) -> Ints:
    """P(k) = Gamma(k + r)/(k! Gamma(r)) (1 - q)^r q^k with r = numerator/denominator, q = e^-rate.

    The whole part of r is a sum of geometrics. For the rest a geometric k is taken with probability
    (r/1) ((1 + r)/2) ... ((k - 1 + r)/k): a fraction (1 - q)^(1 - r) of them is, so a share costs
    1/rate draws or so.

    Args:
        numerator: of r, at least 1.
        denominator: of r.
        rate: above 2^-40; rounded down to a multiple of it.
        size: how many.
        rng: whose source gives uniform words (`random_raw`).
    """
    # Rounded down: a smaller rate is wider noise.
    number = math.floor(rate * _UNIT)
    whole, rest = divmod(numerator, denominator)
    found = np.zeros(size, np.int64)
    for _ in range(whole):
        found += geometric(number, size, rng)
    if not rest:
        return found
    parts: list[Ints] = []
    # How many to propose: a double, which decides nothing of the law.
    missing, share = size, (-math.expm1(-rate)) ** (1 - rest / denominator)
    while missing > 0:
        proposals = min(_BATCH, math.ceil((missing + 8) / share))
        parts.append(_taken(number, rest, denominator, proposals, rng)[:missing])
        missing -= parts[-1].size
    return found + np.concatenate(parts)


def _taken(number: int, rest: int, denominator: int, size: int, rng: np.random.Generator) -> Ints:
    """Those of so many proposals that are taken, in order."""
    # First only whether k is 0: most others are not taken, with probability 1 - r.
    small = min(number, _UNIT)
    more = np.ones(size, bool)
    # e^-x as a product of factors with exponents up to 1, which Algorithm 1 asks for.
    for part in [_UNIT] * ((number - small) // _UNIT) + [small, (number - small) % _UNIT]:
        more[more] = bernoulli_exp(np.full(int(more.sum()), part), rng)
    # k = 0 has the empty product: always taken.
    values = np.where(more, -1, 0)
    kept = np.flatnonzero(more)
    kept = kept[below(denominator, kept.size, rng) < rest]
    drawn = 1 + geometric(number, kept.size, rng)  # a geometric forgets that it is above 0
    step = 1
    while kept.size:
        values[kept[drawn == step]] = step
        going = drawn > step
        kept, drawn = kept[going], drawn[going]
        # (step + r)/(step + 1) in whole numbers.
        passed = below(denominator * (step + 1), kept.size, rng) < rest + step * denominator
        kept, drawn = kept[passed], drawn[passed]
        step += 1
    return values[values >= 0]


def poisson(number: int, rng: np.random.Generator) -> int:
    """One draw of mean number/2^40: as many of mean 1 as it holds, and a part of another."""
    units, rest = divmod(number, _UNIT)
    total = 0
    while units:
        size = min(units, _BATCH)
        total, units = total + int(_poisson_ones(size, rng).sum()), units - size
    if rest:  # each of them counts with the probability that is missing
        last = int(_poisson_ones(1, rng)[0])
        total += int((below(_UNIT, last, rng) < rest).sum())
    return total


def _poisson_ones(size: int, rng: np.random.Generator) -> Ints:
    """P(k) = e^-1/k!: a k of probability 2^-(k+1) is taken with probability 2^(k-1)/k!."""
    source: Any = rng.bit_generator
    parts: list[Ints] = []
    missing = size
    while missing > 0:
        # e/4 = 0.68 of them are taken; trailing zeros of a word are k with probability 2^-(k+1).
        words = np.asarray(source.random_raw(math.ceil(1.5 * missing) + 8), np.uint64)
        least = (words & (~words + np.uint64(1))).astype(np.float64)  # a power of two: exact
        k = np.frexp(least)[1].astype(np.int64) - 1
        # Of k = 0 the word's first bit decides, which k left free; k of 1 and 2 are all taken. All
        # zeros stand for k of 64 and more, taken with less than 2^63/64! < 1e-70: left out.
        taken = (words > 0) & ((k > 0) | (words >> np.uint64(63) == 0))
        more = np.flatnonzero(k > 2)
        small = np.minimum(k[more], _AT_ONCE)
        taken[more] &= below(_FACTORIALS[small], more.size, rng) < 1 << (small - 1)
        for step in range(_AT_ONCE + 1, int(k.max()) + 1):  # 2/21, 2/22, ..., 2/k
            going = np.flatnonzero((k >= step) & taken)
            taken[going] = below(step, going.size, rng) < 2
        parts.append(k[taken][:missing])
        missing -= parts[-1].size
    return np.concatenate([np.empty(0, np.int64), *parts])


def log_series(rate: float, size: int, rng: np.random.Generator) -> Ints:
    """P(k) ~ q^k/k, k = 1, 2, ..., q = e^-rate: a geometric k is taken with probability 1/k."""
    number = math.floor(rate * _UNIT)
    found = np.empty(size, np.int64)
    waiting = np.arange(size)
    while waiting.size:
        tried = 1 + geometric(number, waiting.size, rng)
        taken = below(tried, waiting.size, rng) == 0
        found[waiting[taken]] = tried[taken]
        waiting = waiting[~taken]
    return found
