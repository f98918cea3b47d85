"""What an optimiser is chosen for, and how its users are batched."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.problems.problem import Problem, demand, demand_diameter
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.privacy.trust import Trust

NOISE_RATIO = 1.05
"""Noise over the central Gaussian's that the calibrations aim at."""

MAX_ROUNDS = 1000
"""More rounds with the same users are not chosen unasked: each costs every user a report."""

ADAPTABLE = (
    "trust",
    "noise_ratio",
    "encoding",
    "rotation",
    "honest_fraction",
    "initial_distance",
    "max_rounds_per_user",
)
"""Attributes of a `Setting` that optimisers of the shuffle model adapt to."""

_mu_of = lru_cache(gaussian.mu_of)
_APART = 1.04  # numbers of rounds, and sizes of batches, that are tried


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the parameters of an optimiser are chosen for.

    Attributes:
        n: users.
        problem: loss and domain.
        privacy: of the whole run.
        trust: whose noise is expected.
        noise_ratio: of the shuffle model's noise over the central Gaussian's.
        encoding: of a sum's numbers as messages; None: that of the fewest bits.
        rotation: public seed of a rotation of the gradients, for sums of few bits; None: there is
            none. The clipping that comes with it is no part of proven bounds.
        honest_fraction: of the users that add their noise, in every round.
        initial_distance: R, from the start to the minimiser at most; None: what the domain allows.
        max_rounds_per_user: rounds that a user answers in at most, where rounds are chosen.
    """

    n: int
    problem: Problem
    privacy: Privacy
    trust: Trust = Trust.SHUFFLE
    noise_ratio: float = NOISE_RATIO
    encoding: str | None = None
    rotation: int | None = None
    honest_fraction: float = 1.0
    initial_distance: float | None = None
    max_rounds_per_user: int = MAX_ROUNDS

    def __post_init__(self) -> None:
        """Check what no optimiser checks; a trust model may be given by name."""
        demand(self.problem, self.privacy)
        object.__setattr__(self, "n", integer("n", self.n))
        object.__setattr__(self, "trust", Trust.of(self.trust))
        if self.initial_distance is not None:
            positive("initial_distance", self.initial_distance)
        integer("max_rounds_per_user", self.max_rounds_per_user, 1, MAX_ROUNDS)

    @property
    def distance(self) -> float:
        """R, from the start to the minimiser at most.

        Raises:
            ParameterError: neither is it stated, nor is the domain bounded.
        """
        if self.initial_distance is not None:
            return self.initial_distance
        demand_diameter(self.problem)
        return self.problem.reach

    @property
    def width(self) -> float:
        """What papers write D for: the distance as stated, else the domain's diameter."""
        stated = self.initial_distance
        return self.problem.domain.diameter if stated is None else stated

    def sum_of(self, batch: int, rounds: int = 1) -> SumSpec:
        """The sums of gradients that a batch answers, each user in so many rounds."""
        shared = self.honest_fraction, self.rotation
        return SumSpec(batch, self.problem.d, self.privacy, rounds, *shared)

    @cached_property
    def _mu(self) -> float:
        return _mu_of(self.privacy.epsilon, self.privacy.delta)

    def squared_noise(self, batch: int, rounds: int = 1) -> float:
        """rho^2 = E ||noise of an average of `batch` gradients||^2, all asked `rounds` times."""
        # Squares of mu add up over the rounds; the trust model says how much more than a curator's
        # it is.
        unit = math.sqrt(rounds) / self._mu * self.trust.noise(batch, self.noise_ratio)
        return self.problem.d * (2 * self.problem.lipschitz * unit / batch) ** 2

    def best_batch(
        self, choices: Choices, bound: Callable[[int, int], float]
    ) -> tuple[int, int, float]:
        """(batch, rounds, bound): the smallest of `bound(batch, rounds)`, every user asked once.

        Tried is what is given, else rounds, or sizes, on a geometric grid. It is the same for all
        n: what is tried for few users is tried for more, with no smaller batches or fewer rounds.
        """
        batch, rounds = choices["batch"], choices["rounds"]
        if batch is None and rounds is None:
            sizes = powers(_APART, self.n)
            tried = [(self.n // t, t) for t in sizes] + [(b, self.n // b) for b in sizes]
        else:
            tried = [batching(self.n, batch, rounds)]
        value, ((batch, rounds),) = least(lambda each: bound(*each), tried)
        return batch, rounds, value


def powers(ratio: float, most: int) -> list[int]:
    """Whole numbers next to the powers of a ratio, from 1 to at most `most`."""
    count = math.ceil(math.log(most) / math.log(ratio)) + 1
    found = np.unique((ratio ** np.arange(count)).round().astype(int)).tolist()
    return [each for each in found if each <= most]


def batching(n: int, batch: int | None, rounds: int | None) -> tuple[int, int]:
    """(batch, rounds) where one or both are given, and each of n users answers once.

    Raises:
        ParameterError: there are not enough users.
    """
    if batch is not None and integer("batch", batch) > n:
        raise ParameterError("batch", batch, f"at most the number of users ({n})")
    most = n // (batch or 1)
    if rounds is not None and integer("rounds", rounds) > most:
        allowed = (
            f"at most {most}: sequentially, each of {n} users answers once, in batches of "
            f"{batch or 1}"
        )
        raise ParameterError("rounds", rounds, allowed)
    if batch is None:
        if rounds is None:
            raise ParameterError("batch, rounds", None, "given, one of the two at least")
        return n // rounds, rounds
    return batch, rounds if rounds is not None else most
