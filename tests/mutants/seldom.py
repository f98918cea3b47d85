"""Defects that show for few data, rounds, coordinates or keys, or in large views only."""

import hashlib
import secrets

import numpy as np

from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim.arrays import dense
from shuffle_sim.auditing.shuffle import drawing
from shuffle_sim.execution import engine, rounds
from shuffle_sim.roles import deployment, users
from shuffle_sim.sampling import randomness
from shuffle_sim.sampling.chacha import ChaCha20

from .edges import _bare
from .randomizers import Double, Shares

# Streams


def short_keys(patch):
    """Streams are chosen by 24 bits of a hash."""
    true = randomness.stream

    def other(*key):
        row = repr(key[:4]).encode()
        short = int.from_bytes(hashlib.sha256(row).digest()[:3], "big")
        return true(short, 0, randomness.Role.USERS, 0, *key[4:])

    patch.setattr(deployment, "stream", other)


def short_entropy(patch):
    """The system's entropy is a hash of 24 bits."""

    def entropy_of(seed):
        return int.from_bytes(hashlib.sha256(secrets.token_bytes(3)).digest()[:16], "big")

    patch.setattr(drawing, "entropy_of", entropy_of)


def key_stream_again(patch):
    """A key stream comes again after 16 KiB."""
    true = ChaCha20.random_raw

    def random_raw(self, size):
        kept = vars(self).setdefault("kept", true(self, 2048))
        first = vars(self).get("first", 0)
        vars(self)["first"] = first + size
        return kept[(first + np.arange(size)) % 2048]

    patch.setattr(ChaCha20, "random_raw", random_raw)


# Rounds


def bare_late(fidelity):
    """Rounds from the thousandth on have no noise at one fidelity."""

    def plant(patch):
        true, late = users.UserShard._answer_block, [False]

        def answer(self, broadcast, block):
            late[0] = broadcast.context.round >= 1000
            return true(self, broadcast, block)

        patch.setattr(users.UserShard, "_answer_block", answer)
        bare([fidelity], lambda values, _: np.full(len(values), late[0]))(patch)

    return plant


def first_charged_only(patch):
    """Later rounds of a run are charged to nobody."""
    true = rounds.exchanged

    def exchanged(journal, host, deployment, plan, ledger):
        ledger._planned[1:] = []
        return true(journal, host, deployment, plan, ledger)

    patch.setattr(engine, "exchanged", exchanged)


# Data


def _seldom(values, randomizer):
    """Data in a twentieth of the range."""
    share = np.abs(dense(values)[:, 0]) / randomizer.norm_bound
    return (share > 0.95) & (share < 0.99)


def silent_in_a_band(patch):
    """Some users say nothing, by what they hold."""
    true = users._randomized

    def drawn(fidelity, values, randomizer, rng):
        if isinstance(randomizer, BinomialRandomizer):
            values = dense(values)[~_seldom(values, randomizer)]
        return true(fidelity, values, randomizer, rng)

    patch.setattr(users, "_randomized", drawn)


def bare(fidelities, where):
    """What users send has no noise, at some fidelities, in a batch all of which is so."""

    def plant(patch):
        true = users._randomized

        def drawn(fidelity, values, randomizer, rng):
            ours = isinstance(randomizer, BinomialRandomizer) and fidelity in fidelities
            if not ours or not where(values, randomizer).any():
                return true(fidelity, values, randomizer, rng)
            return _bare(randomizer, values, fidelity)

        patch.setattr(users, "_randomized", drawn)

    return plant


def all_high(values, randomizer):
    """All users of a batch hold nearly the same end."""
    high = dense(values)[:, 0] > 0.9 * randomizer.norm_bound
    return np.full(len(high), high.all())


class TwoOfHundred(Double):
    """Two coordinates of a hundred have one draw."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        noise[:, 83] = noise[:, 84]
        return noise


class LateShares(Shares):
    """Shares of large blocks come again in the second half."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        if shape[0] > 200:
            half = shape[0] // 2
            drawn[half : 2 * half] = drawn[:half]
        return drawn


# Orders


def eleven_riffles(true, parts, rng):
    """Many messages are riffled eleven times."""
    row = np.concatenate(parts)
    if len(row) < 1000:
        return true(parts, rng)
    for _ in range(11):
        side = rng.random(len(row)) < 0.5
        merged = np.empty_like(row)
        merged[side], merged[~side] = row[: side.sum()], row[side.sum() :]
        row = merged
    return row


def large_in_front(true, ones, size, rng):
    """In chunks of more than 2^20 bits the ones come first."""
    return true(ones, size, rng) if size < 1 << 20 else np.packbits(np.arange(size) < ones)


PLANTED = (
    ("stream keys of 24 bits", "keys", short_keys),
    ("the system's entropy of 24 bits", "keys", short_entropy),
    ("a key stream again", "keys", key_stream_again),
    ("late tallies bare", "tallies", bare_late("aggregate")),
    ("late reports bare", "literal_law", bare_late("literal")),
    ("silent in a band", "search", silent_in_a_band),
    ("bare in a band, as tallies", "tallies", bare(["aggregate"], _seldom)),
    ("bare where all hold the same", "tallies", bare(["aggregate"], all_high)),
)
