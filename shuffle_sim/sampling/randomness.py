"""Where randomness comes from: one independent stream for each (round, role, index).

Streams are the same on any number of workers.
"""

import hashlib
import secrets
import struct
from enum import IntEnum
from typing import cast

import numpy as np

from shuffle_sim.errors import ParameterError, integer, one_of
from shuffle_sim.sampling.chacha import ChaCha20

GENERATORS = "sfc64", "chacha20"
"""What draws: a quick statistical generator, or a cryptographic one."""


class Role(IntEnum):
    """Who draws; part of every stream's key."""

    USERS = 0  # index: the user block
    CORRUPTED = 1  # index: the user
    SHUFFLER = 2  # index: the shuffler shard << 32, plus the frame of the view + 1
    ADVERSARY = 3  # index: the user block
    DATA = 4  # index: the page of generated rows, in round 0
    ROUTER = 5  # index: the shuffler shard << 32, plus the part it has collected
    COALITION = 6  # index: the user block, in round 0: who is corrupted for the whole run
    CURATOR = 7  # index: the release's draw
    SPLIT = 8  # index: 0, in round 0: who is held out


def entropy_of(seed: int | None) -> int:
    """The run's entropy: the seed, or 128 bits from the operating system.

    Raises:
        ParameterError: if the seed is not a non-negative integer below 2^128.
    """
    if seed is None:
        return secrets.randbits(128)
    try:
        return integer("seed", seed, 0, 2**128 - 1)
    except ParameterError as error:
        raise ParameterError("seed", seed, "None or an integer from 0 to 2^128 - 1") from error


def check_generator(generator: str, seed: int | None) -> str:
    """A generator by name.

    Raises:
        ParameterError: an unknown one, or a seed for the cryptographic one.
    """
    one_of("generator", generator, GENERATORS)
    if generator != GENERATORS[0] and seed is not None:
        allowed = f"{GENERATORS[0]} with a seed: a seeded run is not private, whatever draws"
        raise ParameterError("generator", generator, allowed)
    return generator


def stream(
    entropy: int, round_index: int, role: Role, index: int, generator: str = GENERATORS[0]
) -> np.random.Generator:
    """The generator of one role in one round; nothing else ever uses the same key."""
    if generator == "chacha20":
        # Fields of fixed length: no two places give the same bytes, so no two streams have one key.
        place = struct.pack(">QBQ", round_index, role, index)
        key = hashlib.sha256(b"shuffle-sim chacha20" + entropy.to_bytes(16, "big") + place).digest()
        # All that numpy takes is a `capsule` and a `lock`; its stubs ask for a class of its own.
        return np.random.Generator(cast("np.random.BitGenerator", ChaCha20(key)))
    return np.random.Generator(
        np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=(round_index, role, index)))
    )
