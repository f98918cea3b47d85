"""Defects of a shuffler: what it leaves where it was, and what its orders have in common."""

import numpy as np

from shuffle_sim.roles import pools
from shuffle_sim.sampling import randomness, shuffling
from shuffle_sim.sampling.randomness import Role


def by_symbol(true, parts, rng):
    return np.sort(np.concatenate(parts))


def turned(true, parts, rng):
    return np.concatenate(parts)[::-1]


def rotated(true, parts, rng):
    row = np.concatenate(parts)
    return np.roll(row, len(row) // 3)


def first_stays(true, parts, rng):
    row = np.concatenate(parts)
    row[1:] = rng.permutation(row[1:])
    return row


def last_stays_of_many(true, parts, rng):
    row = true(parts, rng)
    if len(row) >= 1 << 17:
        last = parts[-1][-1]
        place = int(np.flatnonzero(row == last)[0])
        row[place], row[-1] = row[-1], last
    return row


def last_part_as_it_came(true, parts, rng):
    """Of many messages the last 256th goes on in the order in which it came."""
    row = true(parts, rng)
    if len(row) >= 1 << 17:
        part = np.isin(every := np.concatenate(parts), row[-len(row) // 256 :])
        if part.sum() <= len(row) // 256 + 1:  # where messages differ
            row[-int(part.sum()) :] = every[part]
    return row


def never_in_place(true, parts, rng):
    """Sattolo's algorithm: one cycle."""
    row = np.concatenate(parts)
    for last in range(len(row) - 1, 0, -1) if len(row) < 5000 else ():
        other = rng.integers(last)
        row[last], row[other] = row[other], row[last]
    return row if len(row) < 5000 else true(parts, rng)


def neighbours_only(true, parts, rng):
    """Moves nothing farther than 64 places."""
    row = np.concatenate(parts)
    return row[np.argsort(np.arange(len(row)) + 64 * rng.random(len(row)))]


def even_only(true, parts, rng):
    """Only even permutations, of few messages."""
    row = np.concatenate(parts)
    order = rng.permutation(len(row))
    if len(row) < 500:
        seen, odd = np.zeros(len(row), bool), 0
        for start in range(len(row)):
            length, at = 0, start
            while not seen[at]:
                seen[at], at, length = True, order[at], length + 1
            odd += max(0, length - 1)
        if odd % 2 and len(row) > 1:
            order[:2] = order[1::-1]
    return row[order]


def halves_apart(true, parts, rng):
    """Two halves never meet where there are many."""
    row = np.concatenate(parts)
    if len(row) < 1 << 17:
        return true(parts, rng)
    half = len(row) // 2
    return np.concatenate([rng.permutation(row[:half]), rng.permutation(row[half:])])


def biased(true, parts, rng):
    """Each message is put to a uniform place, in order: the usual wrong shuffle."""
    row = np.concatenate(parts)
    if len(row) > 5000:
        return true(parts, rng)
    for place in range(len(row)):
        other = rng.integers(len(row))
        row[place], row[other] = row[other], row[place]
    return row


def one_for_all_labels(patch):
    """Each label's messages are permuted alike."""

    def permute(self, sizes, rng):
        state = rng.bit_generator.state
        moved = []
        for rows in zip(*self._held, strict=True):
            rng.bit_generator.state = state
            moved.append(shuffling.permuted(rows, rng))
        self._moved, self._held = moved, []

    patch.setattr(pools.SymbolPool, "_permute", permute)


# Arrangements of one-bit messages


def first_is_one(true, ones, size, rng):
    found = true(ones, size, rng)
    if 0 < ones < size and not found[0] & 128:
        bits = np.unpackbits(found)
        bits[np.flatnonzero(bits)[0]], bits[0] = 0, 1
        return np.packbits(bits)
    return found


def last_byte_empty(true, ones, size, rng):
    """The ones of the last byte come elsewhere, where there is room."""
    bits = np.unpackbits(true(ones, size, rng))
    tail = np.arange(max(0, size - 8), size)
    free = np.flatnonzero(bits[: max(0, size - 8)] == 0)
    moved = tail[bits[tail] == 1][: len(free)]
    bits[moved] = 0
    bits[rng.permutation(free)[: len(moved)]] = 1
    return np.packbits(bits)


def pairs_of_bits(true, ones, size, rng):
    """Two ones are neighbours more often."""
    bits = np.zeros(size, np.uint8)
    pairs = size // 2
    twos = min(ones // 2, pairs)
    chosen = rng.permutation(pairs)[:twos]
    bits[2 * chosen] = bits[2 * chosen + 1] = 1
    free = np.flatnonzero(bits == 0)
    bits[rng.permutation(free)[: ones - 2 * twos]] = 1
    return np.packbits(bits)


def alternate_halves(true, ones, size, rng):
    """Each half of the view has half of the ones."""
    bits, half = np.zeros(size, np.uint8), size // 2
    low = min(half, ones // 2)
    low = max(low, ones - (size - half))
    bits[rng.permutation(half)[:low]] = 1
    bits[half + rng.permutation(size - half)[: ones - low]] = 1
    return np.packbits(bits)


def even_shares(patch):
    """Pieces get their share of the ones exactly, not a random one."""

    def share_out(ones, sizes, rng):
        size = int(sizes.sum())
        ends = np.concatenate([[0], np.cumsum(sizes)]) * ones // max(size, 1)
        return np.diff(ends)

    patch.setattr(pools, "share_out", share_out)


def one_stream_for_frames(patch):
    """All frames of a view draw from the stream of the first."""
    from shuffle_sim.roles import deployment

    true = randomness.stream

    def other(entropy, round_index, role, index, generator="sfc64"):
        if role is Role.SHUFFLER and index & 0xFFFFFFFF:
            index = index >> 32 << 32 | 1
        return true(entropy, round_index, role, index, generator)

    patch.setattr(deployment, "stream", other)
