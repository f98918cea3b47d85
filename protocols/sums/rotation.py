"""A public random rotation of vectors: no coordinate is then much larger than another.

It is the randomized Hadamard transform: random signs, then the Hadamard matrix over the root of its
size, which is a power of two. It is orthogonal, so distances and with them privacy stay; the signs
are public.
"""

import math
from functools import lru_cache

import numpy as np

from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds.clipping import padded
from shuffle_sim.sampling.kernels import compiling


def rotated(values: Values, seed: int) -> Floats:
    """Each vector, filled up with zeros, with the signs of `seed`, transformed.

    Both kernels add the same pairs in the same order, so their results are the same bits.

    Args:
        values: a vector for each user, shape (users, d).
        seed: of the signs.

    Returns:
        Shape (users, padded(d)); each row of the same norm, independent of the other rows.
    """
    rows = values.rows if isinstance(values, Scaled) else values.reshape(len(values), -1)
    users, d = rows.shape
    size = padded(d)
    if compiling():
        from shuffle_sim.sampling.compiled_rows import turned

        factors = values.factors if isinstance(values, Scaled) else np.ones(users)
        out = np.empty((users, size))
        turned(rows.T, factors, _signs(seed, size), out)
        return out
    filled = np.zeros((users, size))
    filled[:, :d] = dense(values).reshape(users, d) * _signs(seed, size)[:d]
    return _hadamard(filled)


def unrotated(vector: Floats, seed: int, d: int) -> Floats:
    """What `rotated` made `vector`, shape (padded(d),), of: shape (d,)."""
    size = len(vector)
    if compiling():
        from shuffle_sim.sampling.compiled_rows import hadamard

        turned = np.array(vector, np.float64)
        hadamard(turned)
    else:
        turned = _hadamard(vector[None])[0]
    return np.asarray((turned * _signs(seed, size))[:d])


def _hadamard(rows: Floats) -> Floats:
    """The fast transform along rows; in Sylvester's order, so it is its own inverse."""
    users, size = rows.shape
    for _ in range(size.bit_length() - 1):
        # Pairs differ in the highest bit of their place; side by side it becomes the lowest. After
        # log2(size) passes each bit has had its turn, and all stand where they did.
        halves = rows.reshape(users, 2, size // 2)
        sums, differences = halves[:, 0] + halves[:, 1], halves[:, 0] - halves[:, 1]
        rows = np.stack((sums, differences), axis=-1).reshape(users, size)
    return np.asarray(rows / math.sqrt(size))


@lru_cache(maxsize=8)
def _signs(seed: int, size: int) -> Floats:
    """The bits of a generator whose words no version of numpy changes."""
    words = np.random.PCG64(seed).random_raw(-(-size // 64))
    # Bytes of little-endian words: the same signs on every machine.
    bits = np.unpackbits(np.asarray(words, "<u8").view(np.uint8))[:size]
    signs: Floats = 1.0 - 2.0 * bits.astype(np.float64)
    # Cached: a caller that wrote to it would change the signs of all later calls.
    signs.setflags(write=False)
    return signs


def clipping_probability(users: int, d: int, span: float) -> float:
    """Bound of the chance that any coordinate of any user is clipped, at most 1.

    By Hoeffding's inequality, over the signs and for data chosen without them.

    Args:
        users: n.
        d: coordinates before the rotation.
        span: bound of a rotated coordinate over the norm bound.
    """
    size = padded(d)
    # Lemma (clipping) in docs/theory/carry.md with k = span sqrt(size). At span 1 no coordinate of
    # a vector in the ball is longer.
    return 0.0 if span >= 1 else min(1.0, 2 * users * size * math.exp(-(span**2) * size / 2))


def span_without_clipping(users: int, d: int, probability: float) -> float:
    """The span at which nothing is clipped, but for `probability` over the signs.

    Args:
        users: n.
        d: coordinates before the rotation.
        probability: in (0, 1).

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    integer("users", users)
    integer("d", d)
    real("probability", probability, 0.0, 1.0, closed=(False, False))
    size = padded(d)
    # The same bound, solved for k.
    return min(1.0, math.sqrt(2 * math.log(2 * size * users / probability) / size))
