"""Where draws come from: the entropy of a run, who asks for a stream, how much reports take."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from shuffle_sim.arrays import Values
from shuffle_sim.auditing.claims.entropy import taken
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.roles import Deployment
from shuffle_sim.sampling.kernels import KERNELS, using
from shuffle_sim.sampling.randomness import Role

WORDS = 4
"""Of 64 bits: what is drawn from fewer can be tried out."""


@dataclass(frozen=True)
class Noted(Deployment):
    """Notes which streams its roles ask for: round, role and index."""

    asked: list[tuple[int, Role, int]] = field(default_factory=list)

    @classmethod
    def of(cls, deployment: Deployment) -> Self:
        """The same, which has noted nothing."""
        return cls(**{each.name: getattr(deployment, each.name) for each in fields(Deployment)})

    def stream(self, round_index: int, role: Role, index: int) -> np.random.Generator:
        self.asked.append((round_index, role, index))
        return super().stream(round_index, role, index)

    @property
    def again(self) -> list[tuple[int, Role, int]]:
        """Streams that were asked for more than once."""
        return [key for key, times in Counter(self.asked).items() if times > 1]


def check_drawn(
    randomizer: Any, values: Values, kernel: str, entropy: int, bits: float, shares: float
) -> None:
    """Reports of users are drawn from the users' stream, word by word, by a kernel.

    A compiled kernel begins generators of its own by a few words; numpy stretches none.

    Args:
        randomizer: of the users.
        values: of some users, admitted.
        kernel: that draws.
        entropy: of the stream.
        bits: of chance in the sums of all that they send, at least.
        shares: more of them in messages whose sums these are.

    Raises:
        LawError: from fewer bits: from a seed that can be tried out.
    """
    acts: dict[str, Callable[[Any], Any]] = {}
    if randomizer.view == "sums":
        acts["counts"] = lambda rng: randomizer.counts(values, rng)
    acts["reports"] = lambda rng: randomizer.reports(values, rng)
    before = 0  # words of the sums, which reports take, too
    for name, act in acts.items():
        with using(kernel):
            act(rng := np.random.Generator(np.random.SFC64(entropy)))
        words = taken(rng)
        least = max(bits / 64, before + shares / 64 * (name == "reports"))
        if words < math.floor(least if kernel == KERNELS[0] else min(WORDS, bits / 64)):
            raise LawError(f"{name} of {len(values):,} users take {words} words of their stream")
        before = words if shares else 0
