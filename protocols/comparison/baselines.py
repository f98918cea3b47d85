"""What every shuffle result is held against: the same optimiser without privacy, in the central and
in the local model.

Only the noise of the sums changes. Gaussian noise here is in floating point, open to the attacks on
such (Mironov 2012; Haney et al. 2022), and drawn in one place: a baseline is a simulation of a
model, not a deployment of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protocols.optimisation.phases import Phased
from protocols.shuffle.optimiser import FirstOrder
from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Population, population_of
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.events import GaussianEvent, NonPrivateEvent, PrivacyEvent
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.sampling.randomness import Role, entropy_of, stream

BASELINES = tuple(trust for trust in Trust if trust is not Trust.SHUFFLE)

_CHUNK = 65_536  # rows asked at a time


@dataclass(frozen=True)
class Baseline:
    """What a baseline gives.

    Attributes:
        value: the optimiser's output.
        privacy: the guarantee of the whole run: of the output in the central model, of every report
            in the local model.
        rounds: number of rounds.
        model: one of BASELINES.
        ledger: every release, with its cohort.
    """

    value: Any
    privacy: Guarantee
    rounds: int
    model: str
    ledger: PrivacyLedger


def run_baseline(
    protocol: FirstOrder[Any] | Phased,
    data: Population | ArrayLike,
    model: str,
    seed: int | None = None,
    *,
    privacy: Privacy | None = None,
    on_round: Callable[[int, PrivacyLedger], None] | None = None,
) -> Baseline:
    """Run an optimiser's own plan and updates with another model's noise on its sums.

    Steps and batches are the protocol's: to give a baseline its own, make the protocol with
    `calibrated(..., trust=model)`.

    Args:
        protocol: an optimiser.
        data: the users' rows.
        model: "none", "central" (analytic Gaussian noise on each sum) or "local" (on each user's
            vector).
        seed: makes the run reproducible, and therefore not private.
        privacy: by default the one the protocol was made for.
        on_round: called after each round with its index and the ledger.

    Raises:
        ParameterError: for bad parameters or data.
        DivergedError: if the optimiser diverges.
    """
    if model not in BASELINES:
        raise ParameterError("model", model, f"one of {', '.join(BASELINES)}")
    if not isinstance(protocol, FirstOrder | Phased):
        raise ParameterError(
            "protocol", type(protocol).__name__, "an optimiser, such as ShuffleSGD.calibrated(...)"
        )
    population = population_of(data)
    if population.users != protocol.users:
        raise ParameterError("data", population.users, f"the rows of {protocol.users} users")
    protocol.check(population.rows(0, protocol.users))
    target = protocol.privacy if privacy is None else privacy
    multiplier = math.sqrt(protocol.rounds_per_user) / gaussian.mu_of(target.epsilon, target.delta)
    event: PrivacyEvent = NonPrivateEvent() if model == "none" else GaussianEvent(multiplier)
    ledger, entropy, index = PrivacyLedger(), entropy_of(seed), 0
    state = protocol.init()
    while (spec := protocol.plan(state)) is not None:
        ledger.charge(spec.cohort, event)
        total, users = summed(population, spec), spec.cohort.size
        if model != "none":
            # The local model's sum has each user's independent noise in it: sqrt(users) times that
            # of one.
            std = (
                2
                * protocol.problem.lipschitz
                * multiplier
                * (math.sqrt(users) if model == "local" else 1.0)
            )
            total = total + stream(entropy, index, Role.USERS, 0).normal(0.0, std, total.shape)
        state = protocol.update(state, total / users)
        if on_round is not None:
            on_round(index, ledger)
        index += 1
    notes = ["floating-point Gaussian noise"] * (model != "none")
    notes += [
        {
            "none": "no privacy",
            "central": "a trusted curator",
            "local": "no trust: every report is private",
        }[model]
    ]
    notes += ["seeded: reproducible, and therefore not private"] * (seed is not None)
    return Baseline(
        protocol.result(state),
        ledger.guarantee(target.delta, assumptions=tuple(notes)),
        index,
        model,
        ledger,
    )


def summed(population: Population, spec: RoundSpec) -> Floats:
    """The sum of the cohort's admitted values, without any noise."""
    return np.asarray(
        np.sum([_sum(spec, rows) for rows in _chunks(population, spec.cohort)], axis=0)
    )


def _chunks(population: Population, cohort: Cohort) -> list[NDArray[Any]]:
    return [
        population.rows(start, min(start + _CHUNK, stop))
        for low, stop in cohort.ranges
        for start in range(low, stop, _CHUNK)
    ]


def _sum(spec: RoundSpec, rows: NDArray[Any]) -> Floats:
    admitted: Values = spec.randomizer.admit(spec.query(rows))[0]
    if isinstance(admitted, Scaled):
        return np.asarray(admitted.factors @ admitted.rows)
    return np.asarray(admitted.sum(axis=0))
