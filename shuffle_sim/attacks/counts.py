"""What attacks do to counts, measured beside what they can do at most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, runtime_checkable
from typing import Protocol as Interface

import numpy as np

from shuffle_sim.attacks.studies import at_fraction
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.execution.engine import run
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.sampling.randomness import entropy_of

ATTACKS = "promote", "claim", "no-noise"
"""The largest gain, a lie about the datum, and noise left out."""


@runtime_checkable
class HasReach(Interface):
    """A randomizer of counts that says how far a user moves the estimate of a bin."""

    reach: tuple[float, float]
    """Anybody, and an honest user."""


@dataclass(frozen=True)
class GainRow:
    """How far a corrupted user moves the estimate of the first bin, in users.

    Attributes:
        attack: by name.
        measured: mean shift for each corrupted user, from what honest ones would have sent.
        error: standard error of it.
        bound: the largest for each, whatever it sends.
    """

    attack: str
    measured: float
    error: float
    bound: float


def gain_study(
    protocol: Protocol[Any],
    attacks: Sequence[str] = ATTACKS,
    *,
    fraction: float = 0.05,
    repeats: int = 10,
    seed: int | None = None,
) -> list[GainRow]:
    """Shifts of the first bin of a histogram whose users are all in the second one.

    Args:
        protocol: of counts, in one round; its result is an array of them.
        attacks: by name; those that do not apply to the protocol are refused.
        fraction: of the users that attack.
        repeats: runs of each attack.
        seed: to reproduce it.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    integer("repeats", repeats, 2)
    real("fraction", fraction, 0.0, 1.0)
    spec = protocol.plan(protocol.init())
    if spec is None or not isinstance(spec.randomizer, HasReach):
        allowed = "counts whose randomizer states its reach"
        raise ParameterError("protocol", type(protocol).__name__, allowed)
    # Nobody is in the first bin: what is counted there is the attack, and noise of mean 0.
    entropy, rows = entropy_of(seed), np.ones(protocol.users)
    found = []
    for name in attacks:
        shifts = []
        for index in range(repeats):
            adversary, own = at_fraction(name, fraction), (entropy + index) % 2**128
            result = run(protocol, rows, adversary=adversary, fidelity="aggregate", seed=own)
            if not result.reports.corrupted:
                raise ParameterError("fraction", fraction, "so large that some are corrupted")
            shifts.append(float(np.ravel(result.value)[0]) / result.reports.corrupted)
        error = float(np.std(shifts, ddof=1)) / repeats**0.5
        bound = spec.randomizer.reach[0]
        found.append(GainRow(name, float(np.mean(shifts)), error, bound))
    return found
