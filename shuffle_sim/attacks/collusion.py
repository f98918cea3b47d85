"""Users whose noise protects nobody: the analyzer knows it, or there is none."""

from typing import Protocol, runtime_checkable

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError
from shuffle_sim.protocol.adversary import CallNext, Coalition, Report
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.wire.messages import Messages


class Collude(Coalition):
    """They follow the protocol, but the analyzer knows and subtracts their messages."""

    colludes = True


@runtime_checkable
class Noiseless(Protocol):
    """A randomizer that can be run without its noise."""

    def noiseless(self, x: Floats, rng: np.random.Generator) -> Messages:
        """A report on `x` whose noise is zero."""


class NoNoise(Coalition):
    """They encode their value and leave out the noise."""

    def check(self, spec: RoundSpec, row: Floats) -> None:
        if not isinstance(spec.randomizer, Noiseless):
            raise ParameterError(
                "attack", "no-noise", "used on a randomizer with a method noiseless(x, rng)"
            )

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        randomizer = call_next.context.randomizer
        return randomizer.noiseless(x, rng) if isinstance(randomizer, Noiseless) else None
