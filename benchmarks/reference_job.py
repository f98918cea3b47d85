"""The reference job, private and not: the sum of clipped logistic gradients at theta.

Rows are label times features, so that the gradient of user i at theta is -z_i / (1 + exp(<z_i,
theta>)).
"""

from dataclasses import dataclass

import numpy as np

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.encoding import SumRandomizer
from shuffle_sim.arrays import Floats, Scaled
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.binomial_planner import fewest_bits
from shuffle_sim.privacy.carry_planner import choose_carries
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec, check_rows
from shuffle_sim.sampling.kernels import margins_and_norms

D = 10


def rows(rng: np.random.Generator, count: int, d: int = D) -> Floats:
    """Data of `count` users, (count, d)."""
    return rng.normal(scale=0.3, size=(count, d))


@dataclass(frozen=True)
class SignedLogistic(Query):
    """Logistic gradients at theta."""

    theta: Floats
    moves = ("theta",)

    def __call__(self, rows: Floats) -> Scaled:
        """Multiples of the rows."""
        margins, norms = margins_and_norms(rows, self.theta)
        np.exp(margins, out=margins)
        margins += 1
        np.divide(-1, margins, out=margins)
        return Scaled(rows, margins, norms)


class LogisticSum(Protocol[tuple[int, Floats]]):
    """So many rounds of the job, each at the next theta; the estimates are averaged."""

    def __init__(
        self, n: int, rounds: int, encoding: str = "unary", planned: int | None = None, d: int = D
    ) -> None:
        """Choose the randomizer: that of `planned` users, or of n."""
        self.n, self.rounds, self.d = n, rounds, d
        spec, ball = SumSpec(planned or n, d, Privacy(1.0, 1e-6)), (-1.0, 2.0, 1.0)
        if encoding == "carry":
            few = choose_carries(spec, 1.05)
            self.randomizer: SumRandomizer = CarryRandomizer(
                d, few.g, few.r, few.b, few.levels, *ball
            )
        else:
            plan = fewest_bits(spec, 1.05)
            self.randomizer = BinomialRandomizer(d, plan.g, plan.b, 0.5, *ball)

    users = property(lambda self: self.n)
    delta = property(lambda self: 1e-6)
    vocabulary = property(lambda self: (SignedLogistic, type(self.randomizer)))

    def check(self, rows: Floats) -> None:
        """Rows of d numbers."""
        check_rows(rows, (self.n, self.d))

    def init(self) -> tuple[int, Floats]:
        """Nothing yet."""
        return 0, np.zeros(self.d)

    def plan(self, state: tuple[int, Floats]) -> RoundSpec | None:
        """The next round."""
        done, _ = state
        if done == self.rounds:
            return None
        query = SignedLogistic(np.full(self.d, 0.01 * done))
        return RoundSpec(
            Cohort.of(0, self.n),
            query,
            self.randomizer,
            self.randomizer.event(self.n, query),
            self.randomizer.estimate,
        )

    def update(self, state: tuple[int, Floats], estimate: Floats) -> tuple[int, Floats]:
        """Add the estimate."""
        return state[0] + 1, state[1] + estimate

    def result(self, state: tuple[int, Floats]) -> Floats:
        """The mean of the estimates."""
        return state[1] / self.rounds


def without_privacy(data: Floats, theta: Floats, block: int = 8192) -> Floats:
    """The same job in blocked numpy: margins, coefficients, clipping, c @ X."""
    total = np.zeros(D)
    for start in range(0, len(data), block):
        part = data[start : start + block]
        c = part @ theta
        np.exp(c, out=c)
        c += 1
        np.divide(-1, c, out=c)
        norms = np.sqrt(np.einsum("ij,ij->i", part, part))
        norms *= -c
        np.maximum(norms, 1.0, out=norms)
        c /= norms
        total += c @ part
    return total
