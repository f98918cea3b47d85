"""The shuffler's uniform permutation: the plain one, and the same law drawn faster for one-bit messages.

One-bit messages under one label are indistinguishable but for their value. A uniform permutation of N of them, K of them
ones, is a uniform arrangement of K ones among N places, so drawing the arrangement *is* permuting. `permute` is the plain
reference (it moves every message); tests hold `arrange` to its law.
"""

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint8]


def permute(symbols: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
    """All messages of a round, permuted uniformly inside each label.

    Args:
        symbols: (reports, labels, per_label).
        rng: the shuffler's stream.

    Returns:
        (labels, reports * per_label).
    """
    labels = symbols.shape[1]
    by_label = symbols.transpose(1, 0, 2).reshape(labels, -1)
    return np.stack([rng.permutation(row) for row in by_label])


def arrange(ones: int, size: int, rng: np.random.Generator) -> Bits:
    """A uniformly random arrangement of `ones` ones among `size` places, packed (big-endian, zero padding).

    Draws independent bits of a dyadic probability t / 2^r near ones / size, r random words a word, then removes or adds
    uniformly chosen ones until the number is right. Given its number of ones C, a string of independent equal bits is a
    uniform C-subset, and a uniform subset (superset) of that of the right size is uniform: the result is exact.
    """
    words, share = (size + 63) // 64, ones / size
    # More precision costs r random words per word; less costs a random flip per surplus bit (about 60 words' time).
    precision = min(range(1, 17), key=lambda r: r * words + 60 * size * abs(share - _nearest(share, r) / 2**r))
    bits = _dyadic(_nearest(share, precision), precision, words, rng).view(np.uint8)[: (size + 7) // 8].copy()
    if size % 8:
        bits[-1] &= 0xFF << (8 - size % 8) & 0xFF
    surplus = int(np.bitwise_count(bits).sum(dtype=np.int64)) - ones
    wrong, missing = (1, surplus) if surplus > 0 else (0, -surplus)
    while missing:
        places = rng.integers(0, size, int(missing * 2.5) + 16)
        at = places >> 3
        mask = (128 >> (places & 7)).astype(np.uint8)
        hits = np.flatnonzero(((bits[at] & mask) != 0) == wrong)
        _, first = np.unique(places[hits], return_index=True)  # a place drawn twice counts once, at its first draw
        chosen = hits[np.sort(first)[:missing]]
        np.bitwise_xor.at(bits, at[chosen], mask[chosen])
        missing -= chosen.size
    return bits


def _nearest(share: float, precision: int) -> int:
    return round(share * (1 << precision))


def _dyadic(numerator: int, precision: int, words: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Words of independent bits that are one with probability numerator / 2^precision."""
    if numerator in (0, 2**precision):
        return np.full(words, 0 if numerator == 0 else 2**64 - 1, np.uint64)
    result: NDArray[np.uint64] | None = None
    for digit in range(precision):  # from the least significant binary digit: u < t / 2^r, digit by digit
        if result is None and not numerator >> digit & 1:
            continue  # below the last one-digit nothing is set yet
        draw = np.frombuffer(rng.bytes(8 * words), np.uint64)
        result = draw if result is None else (result | draw if numerator >> digit & 1 else result & draw)
    assert result is not None  # numerator > 0 has a one-digit
    return result
