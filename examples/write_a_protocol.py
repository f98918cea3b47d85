"""Write a protocol of your own: the mean in one round, the variance around it in the next.

Each half of the users answers one round, so the protocol is sequentially interactive and its
epsilon is that of one round.

python examples/write_a_protocol.py
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols import ScalarSum
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.protocol.base import Datum, Protocol, Query, RoundSpec, check_rows
from shuffle_sim.wire.messages import Tally


@dataclass(frozen=True)
class SquaredDistance(Query):
    """Asks each user for the squared distance of its number from a public center."""

    center: float
    moves = ("center",)  # it follows from the first round; users agree to all other fields

    def __call__(self, rows: Values) -> Floats:
        return (dense(rows) - self.center) ** 2


Means = tuple[float, ...]  # the state: the means of the rounds so far


class MeanAndVariance(Protocol[Means]):
    """Mean and variance of n numbers in [0, 1]; data of shape (n,)."""

    users: int = 0
    delta: float = 0.0
    vocabulary = (Datum, SquaredDistance, BinomialRandomizer)  # what a round may broadcast
    claims_sequential = True  # the ledger refuses to ask a user twice

    def __init__(self, n: int, privacy: Privacy) -> None:
        self.users, self.delta, self.half = n, privacy.delta, n // 2
        self.sum = ScalarSum.calibrated(n=self.half, privacy=privacy, noise_ratio=1.1).randomizer

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.users,))

    def init(self) -> Means:
        return ()

    def plan(self, state: Means) -> RoundSpec | None:
        if len(state) == 2:
            return None
        query = SquaredDistance(min(1.0, max(0.0, state[0]))) if state else Datum()
        cohort = Cohort.of(len(state) * self.half, (len(state) + 1) * self.half)
        return RoundSpec(cohort, query, self.sum, self.sum.event(self.half, query), self.mean)

    def mean(self, tally: Tally) -> float:
        """The mean over the reports that came."""
        return float(self.sum.estimate(tally)[0]) / tally.reports

    def update(self, state: Means, estimate: float) -> Means:
        return (*state, estimate)

    def result(self, state: Means) -> Means:
        return state


n = 20_000
numbers = np.random.default_rng(0).beta(2, 5, size=n)
result = run(MeanAndVariance(n, Privacy(1.0, 1e-6)), numbers, seed=3)
mean, variance = result.value
print(f"mean      {mean:.4f}   true {numbers.mean():.4f}")
print(f"variance  {variance:.4f}   true {numbers.var():.4f}")
print(f"rounds    {result.rounds}, sequential {result.ledger.sequentially_interactive}")
print(f"privacy   epsilon {result.privacy.epsilon:.3f} at delta {result.privacy.delta:g}")
