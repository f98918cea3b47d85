"""How frames and messages are read: no bit of one is free, so nobody can say more in it.

A sender could write who it is into bits that a reader passes over.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import read_reports
from shuffle_sim.roles.onion import Opener, box_bytes, bundles
from shuffle_sim.wire.fingerprint import fingerprint
from shuffle_sim.wire.frames import Context, Frame, parse
from shuffle_sim.wire.messages import Messages
from shuffle_sim.wire.sealing import KeyPair, Purpose, Sealer

_TURNED = 200  # bits of a frame at its beginning, at its end, and anywhere


def check_read(frame: Frame, randomizer: Randomizer, rng: np.random.Generator) -> None:
    """A users' frame with one bit turned is refused, or is read as another one.

    Raises:
        LawError: it is read as the same.
    """
    data = frame.tobytes()
    size = 8 * len(data)
    places = {*range(_TURNED), *range(size - _TURNED, size), *rng.integers(0, size, _TURNED)}
    inside = sorted(int(each) for each in places if 0 <= each < size)
    _check_turned(data, inside, partial(_read, randomizer), f"a {frame.kind.name.lower()} frame")


def _read(randomizer: Randomizer, data: bytes) -> bytes:
    frame = parse(data)
    found: Any = read_reports(frame, randomizer)
    if isinstance(found, Messages):  # their packed bytes are what was sent, not what was read
        found = found.symbols if found.each is None else (found.words, found.each)
    return fingerprint((frame.kind, frame.context, frame.index, frame.reports, found))


def check_opened(reports: Messages, randomizer: Randomizer) -> None:
    """A sealed message with one bit turned is dropped, or is another symbol.

    Args:
        reports: of users; the first one's are looked at.
        randomizer: whose messages they are.

    Raises:
        LawError: it is taken for the same.
    """
    alphabet, keys, context = randomizer.alphabet, KeyPair(), Context(bytes(16), 0, bytes(32))
    sealer, opener = Sealer(keys.public, Purpose.MESSAGE, context), Opener(keys, context)
    bundle, size = next(bundles(reports, sealer)), box_bytes(alphabet)
    labels = [0] if reports.each is not None else alphabet.label_of[[0, -1]].tolist()
    for label, start in zip(labels, (0, len(bundle) - size), strict=False):
        if plain := bundle[start : start + size]:  # of words a user may send none
            plain = keys.open(plain, Purpose.MESSAGE, context)
            opened = partial(_opened, sealer, opener, label, randomizer)
            _check_turned(plain, range(8 * len(plain)), opened, "a sealed message")


def _opened(
    sealer: Sealer, opener: Opener, label: int, randomizer: Randomizer, plain: bytes
) -> int:
    return opener.symbol(sealer.seal(plain), label, randomizer.alphabet)


def _check_turned(
    data: bytes, places: Iterable[int], read: Callable[[bytes], Any], what: str
) -> None:
    own = read(data)
    for place in places:
        turned = bytearray(data)
        turned[place // 8] ^= 128 >> place % 8
        with suppress(FrameError):
            if read(bytes(turned)) == own:
                raise LawError(f"bit {place} of {what} may be anything: senders could tell there")
