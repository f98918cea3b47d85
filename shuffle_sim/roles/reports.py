"""What a users' frame carries at each fidelity, and how it is read."""

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.sampling.kernels import column_sums
from shuffle_sim.wire.frames import Frame, Kind
from shuffle_sim.wire.messages import Messages, Tally

HONEST_KIND = {"literal": Kind.REPORTS, "counts": Kind.COUNTS, "aggregate": Kind.TALLY}
"""What the frames of honest users carry at each fidelity."""
_LARGEST = 2**63 - 1


def count_type(randomizer: Randomizer) -> str:
    """The little-endian integers in which a user's sums of symbols travel."""
    return next(f"<u{size}" for size in (2, 4, 8) if randomizer.largest_sum < 256**size)


def user_bytes(fidelity: str, randomizer: Randomizer) -> int:
    """Bytes that a user sends at literal or counts fidelity.

    At aggregate fidelity blocks send sums; then, the bytes of one user's part of the sum.
    """
    if fidelity == "literal":
        return randomizer.report_bytes
    each = np.dtype(count_type(randomizer)).itemsize if fidelity == "counts" else 8
    return each * randomizer.alphabet.labels


def read_reports(frame: Frame, randomizer: Randomizer) -> Messages | Tally:
    """What a users' frame carries.

    Raises:
        FrameError: naming why the frame's reports are dropped.
    """
    if frame.kind in (Kind.REPORTS, Kind.REPORT):
        return Messages.from_bytes(
            randomizer.alphabet, randomizer.per_label, frame.payload, frame.reports
        )
    if frame.kind is Kind.COUNTS:
        labels = randomizer.alphabet.labels
        counts = _integers(frame.payload, count_type(randomizer), frame.reports * labels).reshape(
            frame.reports, labels
        )
        if counts.size and (counts.max(axis=0) > randomizer.largest_sums).any():
            raise FrameError("count-out-of-range", f"counts must be 0 to {randomizer.largest_sum}")
        return Tally(column_sums(counts), frame.reports)
    if frame.kind is Kind.TALLY:
        return Tally(read_sums(frame.payload, randomizer, frame.reports), frame.reports)
    raise FrameError("wrong-kind", f"{frame.kind.name} carries no reports")


def read_sums(payload: Buffer, randomizer: Randomizer, reports: int) -> NDArray[np.int64]:
    """Sums of symbols per label over so many reports, shape (labels,).

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if so many reports cannot have these
            sums.
    """
    sums = _integers(
        payload, "<u8", randomizer.alphabet.labels
    )  # a negative one is larger than any that may be
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


def _integers(payload: Buffer, dtype: str, size: int) -> NDArray[np.integer]:
    if len(payload) != size * np.dtype(dtype).itemsize:
        raise FrameError("wrong-length", f"{len(payload)} bytes for {size} integers")
    return np.frombuffer(payload, dtype)
