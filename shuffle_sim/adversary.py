"""Users that do not follow the protocol: optional hooks around an honest user, shaped like middleware."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import real
from shuffle_sim.messages import Messages, Tally
from shuffle_sim.randomizer import Floats

Report = Messages | bytes | None
CallNext = Callable[[Floats], Messages]


class Adversary:
    """Override what the attack needs; everything left alone is honest.

    A corrupted user is simulated literally at every fidelity, and its report is added to the honest ones.
    Adversaries must be picklable when they run on Ray actors.
    """

    def corrupt(self, round_index: int, users: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Which of `users` (one block's part of the cohort, ascending) are corrupted in this round; none by default.

        `rng` is the adversary's own stream for this round and block.
        """
        return users[:0]

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        """What a corrupted user sends: messages, raw bytes, or None to stay silent.

        Args:
            user: index of the user.
            x: the user's admitted value for this round's query.
            call_next: the honest randomizer (or the next hook): value -> messages.
            rng: the user's stream.
        """
        return call_next(x)

    def observe(self, tally: Tally) -> None:
        """Sees what the analyzer sees, after each round."""


class Dropout(Adversary):
    """Each user stays silent independently with probability `rate` in each round, after seeing the query."""

    def __init__(self, rate: float) -> None:
        """Refuse rates outside [0, 1]."""
        self.rate = real("rate", rate, 0.0, 1.0, closed=(True, True))

    def corrupt(self, round_index: int, users: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A binomial part of the block."""
        return users[rng.random(users.size) < self.rate]

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        """Silence."""
        return None
