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
    number = math.floor(rate * _UNIT)
    whole, rest = divmod(numerator, denominator)
    found = np.zeros(size, np.int64)
    for _ in range(whole):
        found += geometric(number, size, rng)
    if not rest:
        return found
    parts: list[Ints] = []
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
    for part in [_UNIT] * ((number - small) // _UNIT) + [small, (number - small) % _UNIT]:
        more[more] = bernoulli_exp(np.full(int(more.sum()), part), rng)
    values = np.where(more, -1, 0)
    kept = np.flatnonzero(more)
    kept = kept[below(denominator, kept.size, rng) < rest]
    drawn = 1 + geometric(number, kept.size, rng)  # a geometric forgets that it is above 0
    step = 1
    while kept.size:
        values[kept[drawn == step]] = step
        going = drawn > step
        kept, drawn = kept[going], drawn[going]
        passed = below(denominator * (step + 1), kept.size, rng) < rest + step * denominator
        kept, drawn = kept[passed], drawn[passed]
        step += 1
    return values[values >= 0]
