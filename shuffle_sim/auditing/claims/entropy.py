"""What an unseeded run draws from: the operating system's random bits, all of them."""

import math
import os
import random
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from shuffle_sim.auditing.laws.statistics import LawError

_BYTES = 16  # of entropy
_BEGINS = 13  # SFC64 counts from 1, and takes 12 words to begin
_GLOBAL = vars(np.random)  # whose own generator is nobody's here
_SOURCES: tuple[tuple[Any, str], ...] = ((os, "urandom"), (random, "_urandom"))


def spread(entropy: int) -> int:
    """A seed of all bits: one of few bits stands in frames that know nothing of it."""
    return int.from_bytes(sha256(b"%d" % entropy).digest()[:_BYTES])


def check_entropy(drawn: Callable[[], Any], bits: Collection[int] = range(128)) -> None:
    """What a run draws from is made of 128 bits of the operating system, and of nothing else.

    Args:
        drawn: it, anew.
        bits: that are looked at.

    Raises:
        LawError: of a clock, of fewer bits, or of something else.
    """
    with _given(bytes(_BYTES)):
        if drawn() != drawn():
            raise LawError("the entropy of runs is not the operating system's")
    found = set()
    for bit in bits:
        with _given((1 << bit).to_bytes(_BYTES, "big")):
            found.add(drawn())
    if len(found) < len(bits):
        raise LawError(f"of {len(bits)} bits of the operating system {len(found)} are in it")


@contextmanager
def _alike(name: str, drawn: Callable[..., Any]) -> Iterator[None]:
    before = getattr(secrets, name)
    vars(secrets)[name] = drawn
    try:
        yield
    finally:
        vars(secrets)[name] = before


named_alike = partial(_alike, "token_bytes", lambda size=32: bytes(size))
"""All bytes that name a run, and are drawn as such, are 0 within."""
drawn_alike = partial(_alike, "randbits", lambda bits: 5 << bits - 3)
"""The entropy of all runs is one within."""


def check_own(drawn: Callable[[], Any], what: str) -> None:
    """What is drawn does not follow from the global generators, which any script may seed.

    Raises:
        LawError: it does.
    """
    found = []
    for _ in range(2):
        before = random.getstate(), _GLOBAL["get_state"]()
        try:
            random.seed(0)
            _GLOBAL["seed"](0)
            found.append(drawn())
        finally:
            random.setstate(before[0])
            _GLOBAL["set_state"](before[1])
    if found[0] == found[1]:
        raise LawError(f"{what} follow from a generator that any script may seed")


@contextmanager
def _given(source: bytes) -> Iterator[None]:
    """The operating system's random bytes are these."""

    def drawn(size: int) -> bytes:
        return (source * math.ceil(size / len(source)))[:size]

    before = [getattr(module, name) for module, name in _SOURCES]
    try:
        for module, name in _SOURCES:
            setattr(module, name, drawn)
        yield
    finally:
        for (module, name), each in zip(_SOURCES, before, strict=True):
            setattr(module, name, each)


def taken(rng: np.random.Generator) -> int:
    """Words of 64 bits that were taken from a stream of SFC64, which counts them."""
    state: Any = rng.bit_generator.state
    return int(state["state"]["state"][3]) - _BEGINS
