"""What a users' frame carries at each fidelity, and what it adds to the view."""

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import FrameError
from shuffle_sim.kernels import column_sums
from shuffle_sim.messages import Messages, Tally
from shuffle_sim.randomizer import Randomizer
from shuffle_sim.wire import Frame, Kind

HONEST_KIND = {"literal": Kind.REPORTS, "counts": Kind.COUNTS, "aggregate": Kind.TALLY}
"""What the frames of honest users carry at each fidelity."""


def count_type(randomizer: Randomizer) -> str:
    """The little-endian integers in which counts travel."""
    return "<u2" if randomizer.per_label < 2**16 else "<u4"


def tally_of(frame: Frame, randomizer: Randomizer) -> Tally:
    """What a users' frame adds to the view.

    Raises:
        FrameError: naming why the frame's reports are dropped.
    """
    labels, per_label = randomizer.alphabet.labels, randomizer.per_label
    if frame.kind in (Kind.REPORTS, Kind.REPORT):
        messages = Messages.from_bytes(randomizer.alphabet, per_label, frame.payload, frame.reports)
        return Tally.of_ones(messages.ones_per_label(), per_label, frame.reports)
    if frame.kind is Kind.COUNTS:
        counts = _integers(frame.payload, count_type(randomizer), frame.reports * labels).reshape(frame.reports, labels)
        if counts.size and counts.max() > per_label:
            raise FrameError("count-out-of-range", f"counts must be 0 to {per_label}")
        return Tally.of_ones(column_sums(counts), per_label, frame.reports)
    if frame.kind in (Kind.TALLY, Kind.VIEW_TALLY):
        ones = _integers(frame.payload, "<i8", labels)
        if ones.min() < 0 or ones.max() > per_label * frame.reports:
            raise FrameError("count-out-of-range", f"tallies must be 0 to {per_label * frame.reports}")
        return Tally.of_ones(ones, per_label, frame.reports)
    raise FrameError("wrong-kind", f"{frame.kind.name} carries no reports")


def _integers(payload: bytes, dtype: str, size: int) -> NDArray[np.integer]:
    if len(payload) != size * np.dtype(dtype).itemsize:
        raise FrameError("wrong-length", f"{len(payload)} bytes for {size} integers")
    return np.frombuffer(payload, dtype)
