"""Streams by their keys: of every run, round, role and place, and of the system's entropy."""

import math
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.auditing.claims.entropy import check_entropy
from shuffle_sim.auditing.laws.sequences import check_frames
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.sampling.randomness import GENERATORS, Role, entropy_of

ROUNDS = *range(24), 31, 32, 33, 64, 128, 256, 1 << 10, 1 << 16, 1 << 20, (1 << 31) - 1
_FAR, _LATE = (0, *(1 << power for power in range(41))), (0, 1, 2, 1 << 10, 1 << 31)
"""Places and rounds: of few bits, so that fields of a key that share bits meet."""
_CHANGED = 24  # bits of the shuffler's entropy that one bit of the users' turns, at least
_STREAMS, _SYSTEMS = 1 << 15, 1 << 17  # streams, and entropies of the system, two by two
_RAW, _SINGLE = 1 << 18, 1 << 16  # words of a stream: at once, and one by one
_NEAR, _STRETCH = 8, 1 << 11  # rounds whose streams may begin amid each other's; words of each
_WAYS = 1 << 9  # words that are taken of a stream in each way


def check_keys(deployment: Deployment, alarm: float) -> None:
    """Streams of every run, round, role and place begin differently, and are independent.

    Args:
        deployment: whose streams they are.
        alarm: probability of a false alarm.

    Raises:
        LawError: naming the generator.
    """
    places = [0, 1, 2, 3, 255, 256, 1 << 16, 1 << 32, (1 << 32) + 1, 2 << 32]
    keys = list(product(ROUNDS[::2], Role, places))
    seen = set[type]()  # of what draws, by other generators
    for generator in GENERATORS:
        drawn = replace(deployment, generator=generator)
        begun = [drawn.stream(*key) for key in keys]
        begun += [drawn.of_shuffler.stream(0, role, 0) for role in Role]
        # Each bit by itself: a key that leaves out some of them repeats.
        turned = [replace(drawn, entropy=deployment.entropy ^ 1 << bit) for bit in range(128)]
        begun += [each.stream(1, Role.USERS, 0) for each in turned]
        begun += [each.of_shuffler.stream(1, Role.SHUFFLER, 0) for each in turned]
        hidden = drawn.of_shuffler.entropy
        apart = ((each.of_shuffler.entropy ^ hidden).bit_count() for each in turned)
        # Of a hash 64 of 128 bits turn: fewer than 24 with chance 4e-13 each.
        if min(apart) < _CHANGED:
            raise LawError("the users' entropy is computed from the shuffler's")
        found = {type(rng.bit_generator) for rng in begun}
        if len(found) > 1 or found & seen:
            raise LawError(f"some roles do not draw by {generator}")
        seen |= found
        whole = replace(drawn, entropy=deployment.entropy | 1 << 127)
        if any(_seed_bits(whole.stream(*key)) < 128 for key in keys):
            raise LawError(f"{generator}: streams begin with fewer bits than their entropy has")
        far = [drawn.stream(one, Role.USERS, at) for one, at in product(_LATE, _FAR)]
        for some in (begun, far):
            words = np.array([rng.bytes(32) for rng in some])
            if len(np.unique(words)) < len(words):
                raise LawError(f"{generator}: two streams with other keys are one")
        many = (drawn.stream(key, Role.USERS, 0).bit_generator for key in range(_STREAMS))
        first = np.array([each.random_raw(1)[0] for each in many])
        long = [drawn.stream(1 << 20, Role.USERS, 0) for _ in range(2)]
        row = np.concatenate([long[0].bit_generator.random_raw(_RAW)])
        one = long[1].integers(0, 1 << 64, _SINGLE, np.uint64)
        mixed = _in_every_way(drawn.stream(1 << 19, Role.USERS, 0))
        near = (drawn.stream(*key).bit_generator for key in product(range(_NEAR), Role, range(2)))
        amid = np.concatenate([each.random_raw(_STRETCH) for each in near])
        # 2^36 pairs of 64 bits: chance 4e-9 of a generator, within half of the alarm.
        if any(len(np.unique(each)) < len(each) for each in (first, row, one, mixed, amid)):
            raise LawError(f"{generator}: words of a stream, or of two, are the same")
        bits = np.array([np.frombuffer(rng.bytes(256), np.uint8) for rng in begun[-300:]])
        signs = np.asarray(2.0 * np.unpackbits(bits, axis=1) - 1, np.float64)
        check_frames(signs, np.ones(signs.shape[1]), alarm / 4, f"{generator}: streams")
    fresh = np.array([list(entropy_of(None).to_bytes(16, "big")) for _ in range(256)], np.uint8)
    ones = np.unpackbits(fresh, axis=1).sum(axis=0)
    if (
        len({entropy_of(None) for _ in range(_SYSTEMS)}) < _SYSTEMS
        # Hoeffding: 128 coins of 256 leave that range with chance 4e-12 in all.
        or not ((ones > 64) & (ones < 192)).all()
    ):
        raise LawError("the entropy of runs without a seed is not random")
    check_entropy(partial(entropy_of, None))


def _in_every_way(rng: np.random.Generator) -> NDArray[np.uint64]:
    """Words of a stream that are taken in turn by each way to take them."""
    raw = rng.bit_generator.random_raw
    words = [raw(_WAYS), rng.integers(0, 1 << 64, _WAYS, np.uint64), raw(_WAYS)]
    return np.concatenate([*words, np.frombuffer(rng.bytes(8 * _WAYS), np.uint64), raw(_WAYS)])


def _seed_bits(rng: np.random.Generator) -> float:
    """Bits that a stream begins with, at most; infinite where it does not show them."""
    sequence = getattr(rng.bit_generator, "seed_seq", None)
    if not isinstance(sequence, np.random.SeedSequence):
        return math.inf
    words = np.ravel(np.array(sequence.entropy, object)).tolist()
    # As numpy takes them: an integer by its words of 32 bits.
    return 32.0 * sum(max(1, -(-int(each or 0).bit_length() // 32)) for each in words)
