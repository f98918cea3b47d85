"""What a users' frame carries at each fidelity, and how it is read."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.sampling.kernels import column_sums
from shuffle_sim.wire.frames import Frame, Kind
from shuffle_sim.wire.messages import Messages, Tally
from shuffle_sim.wire.words import word_bytes

HONEST_KIND = {"literal": Kind.REPORTS, "counts": Kind.COUNTS, "aggregate": Kind.TALLY}
"""What the frames of honest users carry at each fidelity."""
_LARGEST = 2**63 - 1
_COUNTED = 16  # bytes of a word and how often it came
_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)
_MOST_COUNTED = 2**62


def count_type(randomizer: Randomizer) -> str:
    """The little-endian integers in which a user's sums of symbols travel."""
    return next(f"<u{size}" for size in (1, 2, 4, 8) if randomizer.largest_sum < 256**size)


def user_bytes(fidelity: str, randomizer: Randomizer) -> int:
    """Bytes that a user sends at literal or counts fidelity; of words, on average.

    At aggregate fidelity blocks send sums; then, the bytes of one user's part of the sum.
    """
    if randomizer.view != "sums":
        word = _COUNTED if fidelity == "aggregate" else word_bytes(randomizer.alphabet.symbols)
        return math.ceil(randomizer.head_bytes + randomizer.usual_messages * word)
    if fidelity == "literal":
        return randomizer.report_bytes
    each = np.dtype(count_type(randomizer)).itemsize if fidelity == "counts" else 8
    return each * randomizer.alphabet.labels


def most_bytes(fidelity: str, randomizer: Randomizer, users: int) -> int:
    """Bytes of the payload in which so many users of a block send, at most."""
    if randomizer.view == "sums":
        return (1 if fidelity == "aggregate" else users) * user_bytes(fidelity, randomizer)
    if fidelity == "aggregate":
        return _COUNTED * min(randomizer.alphabet.symbols, users * randomizer.per_label)
    return users * randomizer.report_bytes


def read_messages(payload: Buffer, randomizer: Randomizer, reports: int) -> Messages:
    """Reports as users send them.

    Raises:
        FrameError: naming why they are dropped.
    """
    sums = randomizer.view == "sums"
    read = Messages.from_bytes if sums else Messages.singly_from_bytes
    found = read(randomizer.alphabet, randomizer.per_label, payload, reports)
    if not sums and not randomizer.proper(found):
        raise FrameError("malformed-report", "words that no user sends together")
    return found


def read_reports(frame: Frame, randomizer: Randomizer) -> Messages | Tally:
    """What a users' frame carries.

    Raises:
        FrameError: naming why the frame's reports are dropped.
    """
    words = randomizer.view != "sums"
    if frame.kind in (Kind.REPORTS, Kind.REPORT) or (words and frame.kind is Kind.COUNTS):
        return read_messages(frame.payload, randomizer, frame.reports)
    if words and frame.kind is Kind.TALLY:
        tally = replace(read_counts(frame.payload, randomizer), reports=frame.reports)
        if tally.messages > (most := frame.reports * randomizer.per_label):
            raise FrameError("count-out-of-range", f"{tally.messages} messages, at most {most}")
        return tally
    if frame.kind is Kind.COUNTS:
        labels = randomizer.alphabet.labels
        counts = _integers(frame.payload, count_type(randomizer), frame.reports * labels).reshape(
            frame.reports, labels
        )
        sums, largest = column_sums(counts)
        if (largest > randomizer.largest_sums).any():
            raise FrameError("count-out-of-range", f"counts must be 0 to {randomizer.largest_sum}")
        return Tally(sums, frame.reports)
    if frame.kind is Kind.TALLY:
        return Tally(read_sums(frame.payload, randomizer, frame.reports), frame.reports)
    raise FrameError("wrong-kind", f"{frame.kind.name} carries no reports")


def read_sums(payload: Buffer, randomizer: Randomizer, reports: int) -> NDArray[np.int64]:
    """Sums of symbols per label over so many reports, shape (labels,).

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if so many reports cannot have these
            sums.
    """
    # A negative one is larger than any that may be.
    sums = _integers(payload, "<u8", randomizer.alphabet.labels)
    # Where the largest fits the smallest room, no label need be looked at by itself.
    quick = int(sums.max(initial=0)) <= min(randomizer.least_largest_sum * reports, _LARGEST)
    if not quick and (sums > np.minimum(randomizer.largest_sums * reports, _LARGEST)).any():
        raise FrameError(
            "count-out-of-range", f"tallies must be 0 to {randomizer.largest_sum * reports}"
        )
    return sums.astype(np.int64)


def read_ones(payload: Buffer, room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ones among so many one-bit messages under each label.

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if there are more than messages.
    """
    ones = _integers(payload, "<u8", len(room))
    if (ones > room.astype(np.uint64)).any():
        raise FrameError("count-out-of-range", "more ones than messages")
    return ones.astype(np.int64)


def count_bytes(tally: Tally) -> bytes:
    """How often each word came, as it is sent: the words, then their counts."""
    assert tally.words is not None
    return tally.words.astype("<u8").tobytes() + tally.sums.astype("<u8").tobytes()


def read_counts(payload: Buffer, randomizer: Randomizer) -> Tally:
    """How often each word came; of no report yet.

    Raises:
        FrameError: `wrong-length`, `malformed-counts` where words do not ascend, or
            `symbol-out-of-range`, or `count-out-of-range` where one did not come.
    """
    distinct = len(payload) // _COUNTED
    both = _integers(payload, "<u8", 2 * distinct).astype(np.uint64)
    words, counts = both[:distinct], both[distinct:]
    # One form of a tally, in which no word has two counts.
    if (words[1:] <= words[:-1]).any():
        raise FrameError("malformed-counts", "words do not ascend")
    if distinct and int(words[-1]) >= randomizer.alphabet.symbols:
        most = randomizer.alphabet.symbols
        raise FrameError("symbol-out-of-range", f"symbols must be below {most}")
    # In halves: a sum of hostile counts must not wrap.
    low, high = (int(half.sum(dtype=np.uint64)) for half in (counts & _LOW, counts >> _HALF))
    if (counts == 0).any() or low + (high << 32) > _MOST_COUNTED:
        raise FrameError("count-out-of-range", "a count must be 1 or more, all together below 2^62")
    return Tally(counts.astype(np.int64), 0, words)


def _integers(payload: Buffer, dtype: str, size: int) -> NDArray[np.integer]:
    if len(payload) != size * np.dtype(dtype).itemsize:
        raise FrameError("wrong-length", f"{len(payload)} bytes for {size} integers")
    return np.frombuffer(payload, dtype)
