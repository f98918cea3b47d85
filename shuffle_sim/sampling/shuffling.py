"""The shuffler's uniform permutation: the plain one, and the same law drawn faster.

One-bit messages under one label are indistinguishable but for their value. A uniform permutation of
N of them, K of them ones, is a uniform arrangement of K ones among N places, so drawing the
arrangement *is* permuting. `permute` is the plain reference (it moves every message); tests hold
`arrange` and `permuted` to its law.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.sampling.chacha import ChaCha20
from shuffle_sim.sampling.kernels import compiling, lanes

Bits = NDArray[np.uint8]
_LONG = 1 << 17  # messages from which moving them bucket by bucket pays
_NUMPYS_LIMIT = 10**9  # places of a hypergeometric draw


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


def permuted(parts: Sequence[NDArray[Any]], rng: np.random.Generator) -> NDArray[Any]:
    """A uniformly random permutation of messages, each of them moved.

    The parts in which they come are left alone.

    Where numba is installed and they are many, in two steps that keep to the cache: each message
    goes to a uniformly random one of 256 buckets, and every bucket is permuted where it lies. The
    sizes of the buckets say nothing about what is in them, so that is the uniform permutation
    again, as with a shuffler's shards.

    Args:
        parts: integers of one type, (messages,) each.
        rng: the shuffler's stream.
    """
    size = sum(map(len, parts))
    stretched = not isinstance(rng.bit_generator, ChaCha20)  # a cryptographic one is not
    if not (stretched and _worth_compiling(size)):
        return np.asarray(rng.permutation(np.concatenate(parts)))
    from shuffle_sim.sampling.compiled import draw_buckets, into_buckets, permute_buckets

    state, _ = lanes(rng)
    words = np.empty((-(-size // 128), 16), np.uint64)
    bucket_of, ends = words.reshape(-1).view(np.uint8)[:size], np.zeros(256, np.int64)
    draw_buckets(state, words, bucket_of, ends)
    moved, places, start = np.empty(size, parts[0].dtype), np.concatenate([[0], ends[:-1]]), 0
    for part in parts:
        into_buckets(
            np.ascontiguousarray(part), bucket_of[start : start + len(part)], moved, places
        )
        start += len(part)
    # The words of the buckets are used up: their memory takes new ones.
    permute_buckets(moved, ends, state, words[:64])
    return moved


def order(size: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    """A uniformly random order of so many messages, below 2^32."""
    return permuted([np.arange(size, dtype=np.uint32)], rng)


def gathered(rows: NDArray[np.uint8], chosen: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The chosen ones of rows (messages, bytes), in their order."""
    if not _worth_compiling(len(rows)):
        return rows[chosen]
    from shuffle_sim.sampling.compiled import gather

    out = np.empty((len(chosen), rows.shape[1]), np.uint8)
    gather(rows, chosen, out)
    return out


def _worth_compiling(messages: int) -> bool:
    return messages >= _LONG and find_spec("numba") is not None


def arrange(ones: int, size: int, rng: np.random.Generator) -> Bits:
    """A uniformly random arrangement of `ones` ones among `size` places, packed.

    The bits are big-endian, with zero padding.

    Draws independent bits of a dyadic probability t / 2^r near ones / size, r random words a word,
    then removes or adds uniformly chosen ones until the number is right. Given its number of ones
    C, a string of independent equal bits is a uniform C-subset, and a uniform subset (superset) of
    that of the right size is uniform: the result is exact.
    """
    # A double near the share is enough: what it misses is flipped, exactly.
    share, words = ones / max(size, 1), (size + 63) // 64
    drawn = 0.02 if compiling() else 1.0  # a random word's time, over that of a 60th of a flip
    # More precision costs r random words per word; less costs a random flip per surplus bit (about
    # 60 words' time).
    precision = min(
        range(1, 17),
        key=lambda r: drawn * r * words + 60 * size * abs(share - _nearest(share, r) / 2**r),
    )
    target = _nearest(share, precision), precision
    if compiling() and size < 2**32:
        return _arranged(ones, size, target, rng)
    bits = _dyadic(*target, words, rng).view(np.uint8)[: (size + 7) // 8].copy()
    if size % 8:
        bits[-1] &= 0xFF << (8 - size % 8) & 0xFF
    surplus = int(np.bitwise_count(bits).sum(dtype=np.int64)) - ones
    wrong, missing = (1, surplus) if surplus > 0 else (0, -surplus)
    while missing:
        # More than are missing: places that are right already, or drawn twice, do not count.
        places = rng.integers(0, size, int(missing * 2.5) + 16)
        at = places >> 3
        mask = (128 >> (places & 7)).astype(np.uint8)
        hits = np.flatnonzero(((bits[at] & mask) != 0) == wrong)
        # A place drawn twice counts once, at its first draw.
        _, first = np.unique(places[hits], return_index=True)
        chosen = hits[np.sort(first)[:missing]]
        np.bitwise_xor.at(bits, at[chosen], mask[chosen])
        missing -= chosen.size
    return bits


def _arranged(ones: int, size: int, target: tuple[int, int], rng: np.random.Generator) -> Bits:
    """The same, compiled, from the dyadic probability `target`."""
    from shuffle_sim.sampling.compiled_bits import count_ones, draw_bits, flip_bits

    octets = (size + 7) // 8
    # `draw_bits` takes no probability 0 or 1: its lowest one-digit would not be there.
    if target[0] in (0, 1 << target[1]):
        bits = np.full(octets, 0 if target[0] == 0 else 0xFF, np.uint8)
        state, random = lanes(rng)
    else:
        state, random = lanes(rng)
        words = np.empty((-(-octets // 128), 16), np.uint64)
        draw_bits(*target, state, random, words)
        bits = words.reshape(-1).view(np.uint8)[:octets]
    if size % 8:
        bits[-1] &= 0xFF << (8 - size % 8) & 0xFF
    surplus = int(count_ones(bits)) - ones
    flip_bits(bits, size, surplus > 0, abs(surplus), state, random)
    return bits


def share_out(ones: int, sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """How many of `ones` ones fall into consecutive pieces when all places are permuted.

    `sizes` are those of the pieces.

    Multivariate hypergeometric. From numpy's limit of 10^9 places on independent bits of one
    probability put a binomial number into each piece; given their total they are a uniform subset,
    and removing or adding uniformly chosen ones leaves it uniform.
    """
    size = int(sizes.sum())
    if size < _NUMPYS_LIMIT:
        drawn = rng.multivariate_hypergeometric(sizes, ones, method="marginals")
        return np.asarray(drawn, np.int64)
    # Near the right total, whatever the share exactly is: the rest is moved.
    counts = rng.binomial(sizes, ones / size)
    surplus = int(counts.sum()) - ones
    room = counts if surplus > 0 else sizes - counts
    # numpy refuses to choose from nothing, even none.
    chosen = rng.choice(max(1, int(room.sum())), abs(surplus), replace=False, shuffle=False)
    moved = np.bincount(
        np.searchsorted(np.cumsum(room), chosen, side="right"), minlength=sizes.size
    )
    return np.asarray(counts - np.sign(surplus) * moved)


def _nearest(share: float, precision: int) -> int:
    return round(share * (1 << precision))


def _dyadic(
    numerator: int, precision: int, words: int, rng: np.random.Generator
) -> NDArray[np.uint64]:
    """Words of independent bits that are one with probability numerator / 2^precision."""
    if numerator in (0, 2**precision):
        return np.full(words, 0 if numerator == 0 else 2**64 - 1, np.uint64)
    result: NDArray[np.uint64] | None = None
    # From the least significant binary digit: u < t / 2^r, digit by digit.
    for digit in range(precision):
        if result is None and not numerator >> digit & 1:
            continue  # below the last one-digit nothing is set yet
        draw = np.frombuffer(rng.bytes(8 * words), np.uint64)
        result = (
            draw if result is None else (result | draw if numerator >> digit & 1 else result & draw)
        )
    assert result is not None  # numerator > 0 has a one-digit
    return result
