"""What every optimiser shares, whoever adds the noise: its state, how it fails, and how users are
batched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from shuffle_sim.errors import ParameterError, ShuffleSimError, integer


class DivergedError(ShuffleSimError, RuntimeError):
    """The optimiser's state is not finite any more; what was released until then stays in the
    ledger.
    """

    def __init__(self, round_index: int) -> None:
        """Name the round."""
        super().__init__(
            f"round {round_index}: the state is not finite any more; take smaller steps"
        )
        self.round = round_index


@dataclass(frozen=True)
class OptimiserState:
    """State of any optimiser: how many rounds are over."""

    round: int


StateT = TypeVar("StateT", bound=OptimiserState)


def batching(n: int, batch: int | None, rounds: int | None) -> tuple[int, int]:
    """(batch, rounds) of a sequential protocol where one or both are given: every user answers
    once.

    Raises:
        ParameterError: if there are not enough users.
    """
    if batch is not None and integer("batch", batch) > n:
        raise ParameterError("batch", batch, f"at most the number of users ({n})")
    if rounds is not None and integer("rounds", rounds) > n // (batch or 1):
        allowed = (
            f"at most {n // (batch or 1)}: sequentially, each of {n} users answers once, in "
            f"batches of {batch or 1}"
        )
        raise ParameterError("rounds", rounds, allowed)
    if batch is None:
        if rounds is None:
            raise ParameterError("batch, rounds", None, "given, one of the two at least")
        return n // rounds, rounds
    return batch, rounds if rounds is not None else n // batch


def grid(n: int, batch: int | None, rounds: int | None) -> Sequence[tuple[int, int]]:
    """The (batch, rounds) worth trying: what is given, else rounds on a geometric grid."""
    if batch is not None or rounds is not None:
        return [batching(n, batch, rounds)]
    return [(n // int(t), int(t)) for t in np.unique(np.geomspace(1, n, 500).round().astype(int))]
