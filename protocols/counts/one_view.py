"""What protocols of counts share: one round over all users, and what follows from its view."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from protocols.counts.randomizer import Counting
from protocols.counts.task import CountsTask
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds.cells import cap
from shuffle_sim.privacy.count_planner import spare
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.one_round import OneRound
from shuffle_sim.wire.messages import Tally

RandomizerT = TypeVar("RandomizerT", bound=Counting)


@dataclass(frozen=True)
class View:
    """What an analyzer has of a round.

    Attributes:
        estimates: unbiased counts, (bins,).
        reports: R.
    """

    estimates: Floats
    reports: int


class OneView(OneRound, CountsTask, Generic[RandomizerT]):
    """Counts of all users in one round.

    Attributes:
        n: users.
        randomizer: of the round.
        honest: users whose noise is counted on.
    """

    randomizer: RandomizerT

    def __init__(
        self, n: int, randomizer: RandomizerT, delta: float, honest_fraction: float
    ) -> None:
        super().__init__(integer("n", n, 2), randomizer, delta, honest_fraction)
        planned = getattr(randomizer, "planned", self.honest)
        if planned != self.honest:
            allowed = f"{self.honest}, the honest users: each makes its share of the noise"
            raise ParameterError("planned", planned, allowed)

    @property
    def parts(self) -> tuple[RandomizerT, ...]:
        return (self.randomizer,)

    def analyze(self, tally: Tally) -> View:
        return View(self.randomizer.estimate(tally), tally.reports)

    @abstractmethod
    def answer(self, view: View) -> Any:
        """What it outputs."""


def capped(own: int, law: Floats, users: int, privacy: Privacy, releases: int = 1) -> int:
    """Messages of a user at most, so that noise of a law is hardly ever drawn again."""
    # At least one of noise, which a randomizer without room could not send.
    return own + max(1, cap(law, users, spare(privacy, releases)))


def interval_error(confidence: float, bins: int, independent: bool) -> float:
    """What each of so many intervals may fail with, so that all hold together."""
    beta = 1 - real("confidence", confidence, 0.0, 1.0, closed=(False, False))
    # Independent cells: an equality, by which it is no more than a union bound.
    return -math.expm1(math.log1p(-beta) / bins) if independent else beta / bins


def with_known_total(estimates: Floats, total: float) -> Floats:
    """The same shift of all bins, so that they add up: variance falls by 1/k of itself."""
    return np.asarray(estimates + (total - estimates.sum()) / estimates.size)


def plausible(estimates: Floats, total: float) -> Floats:
    """The nearest counts that are nowhere negative and add up to `total`; biased.

    Least squares: max(estimate - tau, 0). Never farther from the truth than the estimates are.
    """
    # The projection on a simplex: of the largest k the mean excess is tau, k the last for which all
    # k stay above it. With a total of 0 none does, and tau is the largest.
    falling = np.sort(estimates)[::-1]
    taus = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    kept = np.flatnonzero(falling > taus)
    tau = taus[kept[-1]] if kept.size else taus[0]
    return np.asarray(np.maximum(estimates - tau, 0.0))
