"""Amplification by shuffling: what a permuted view of one message a user costs.

`amplify` answers for any local randomiser; `ShuffledEvent` is the release, for ledgers, and
`Shuffled` its theorem.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce

from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds import clones
from shuffle_sim.privacy.bounds.clones import MAX_EPSILON0, NUMERICAL_ERROR, Corners
from shuffle_sim.privacy.bounds.losses import LossLaw
from shuffle_sim.privacy.composition import least_epsilon
from shuffle_sim.privacy.events import HonestEvent
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.privacy.theorems import Releases, Theorem, alone

_HARDLY = 0.99  # of epsilon0: above, a view promises what the reports do
_STEPS = (40, 160)  # of the grid of losses: parts of their standard deviation


@dataclass(frozen=True)
class ShuffledEvent(HonestEvent):
    """The permuted messages of a round: one of each user, by the same epsilon0-private randomiser.

    The randomiser is fixed before the round. A user who sends nothing does so independently of its
    datum.

    Attributes:
        honest: users whose randomness is counted on, the one who changes among them.
        epsilon0: of the randomiser, pure.
        both: mass of its outcomes that are e^epsilon0 times as likely as least for any two inputs;
            0 promises the least and is always true.
        neither: mass of its outcomes that are as likely as least for any two inputs; 0 likewise.
    """

    epsilon0: float
    both: float = 0.0
    neither: float = 0.0

    def __post_init__(self) -> None:
        clones.check(self.honest, self.epsilon0, self.corners)

    @property
    def corners(self) -> Corners:
        """What is known of the randomiser."""
        return Corners(self.both, self.neither)


class Shuffled(Theorem[ShuffledEvent]):
    """Stronger clones: exact sums for one round; rounds by composing the dominating pair."""

    event = ShuffledEvent
    source = "amplification by shuffling, stronger clones (docs: theory, Amplification)"
    examples = ShuffledEvent(1000, 2.0), ShuffledEvent(5, 1.0), ShuffledEvent(400, 3.0, 0.01, 0.5)

    def pure(self, event: ShuffledEvent) -> float:
        return event.epsilon0

    def epsilon(self, events: Releases[ShuffledEvent], delta: float) -> float:
        found = super().epsilon(events, delta)
        if delta == 0:
            return found
        # Basic composition of what is known of each randomiser: `_laws` takes them as clones.
        share = delta / sum(count for _, count in events)
        basic = sum(
            count * clones.epsilon(event.honest, event.epsilon0, share, event.corners)
            for event, count in events
        )
        composed = (least_epsilon(law.delta, delta) for law in _laws(events))
        return min(found, basic, *composed)

    def delta(self, events: Releases[ShuffledEvent], epsilon: float) -> float:
        # The same the other way round: epsilon in equal parts, deltas added.
        share = epsilon / sum(count for _, count in events)
        basic = sum(
            count * clones.delta(event.honest, event.epsilon0, share, event.corners)
            for event, count in events
        )
        composed = (law.delta(epsilon) for law in _laws(events))
        return min(super().delta(events, epsilon), basic, *composed)


@lru_cache(maxsize=64)
def _laws(events: Releases[ShuffledEvent]) -> tuple[LossLaw, ...]:
    """All rounds' losses, on grids of several steps; none for a single round, which has sums."""
    if alone(events):
        return ()
    pairs = [(clones.pair(event.honest, event.epsilon0), count) for event, count in events]
    # All on one grid: laws of other steps would be put on the coarser one.
    width = min(pair.deviation for pair, _ in pairs)
    return tuple(
        reduce(LossLaw.then, (pair.losses(width / parts).times(count) for pair, count in pairs))
        for parts in _STEPS
    )


@dataclass(frozen=True)
class Amplification:
    """What shuffling makes of a local guarantee.

    Attributes:
        epsilon: proven for the permuted views of all rounds at delta, by `basis`; rounded up.
        least: no theorem can prove less for every such randomiser, or for the response asked for:
            an exact lower bound of one round, rounded down.
        epsilon0: of one report alone.
        delta: as asked.
        users: honest ones.
        error: relative, of both numbers: they are outward by it.
        basis: the theorem.
        rounds: in which a user reports.
    """

    epsilon: float
    least: float
    epsilon0: float
    delta: float
    users: int
    basis: str
    error: float = NUMERICAL_ERROR
    rounds: int = 1

    @property
    def amplified(self) -> bool:
        """Whether shuffling promises noticeably more than the reports themselves do."""
        return self.epsilon < _HARDLY * self.rounds * self.epsilon0

    def __str__(self) -> str:
        if not self.amplified:
            return (
                f"epsilon {self.epsilon:.6g}, of the reports themselves: {self.users:,} users are "
                f"too few to amplify at delta {self.delta:g}"
            )
        each, alone = "", ""
        if self.rounds > 1:
            each, alone = f" in each of {self.rounds:,} rounds", " for one round"
        return (
            f"epsilon {self.epsilon:.6g} at delta {self.delta:g} for {self.users:,} users, from "
            f"epsilon0 {self.epsilon0:.6g}{each}; no theorem can prove less{alone} than "
            f"{self.least:.6g}"
        )


def amplify(
    epsilon0: float,
    n: int,
    delta: float,
    *,
    rounds: int = 1,
    sampling: float = 1.0,
    symbols: int | None = None,
    honest_fraction: float = 1.0,
) -> Amplification:
    """Central privacy of the permuted reports of any pure epsilon0-private local randomiser.

    Formal guarantee: replace-one, all data, adaptively chosen randomisers in later rounds.

    Args:
        epsilon0: of one report, in (0, 30].
        n: users in the round, each with one message.
        delta: of the result, in (0, 1).
        rounds: in which the same users report, each with fresh coins.
        sampling: probability with which a user secretly takes part in a round.
        symbols: k of k-ary randomised response, for which more is proven; None: any randomiser.
        honest_fraction: of the users whose randomness is counted on.

    Raises:
        ParameterError: naming the parameter, its value and what is allowed.
    """
    real("epsilon0", epsilon0, 0.0, MAX_EPSILON0)
    real("delta", delta, 0.0, 1.0, closed=(False, False))
    users = honest_users(honest_fraction, integer("n", n))
    known = Corners() if symbols is None else Corners.of_response(epsilon0, symbols)
    corners = known.sampled(sampling)
    event = ShuffledEvent(users, epsilon0, corners.both, corners.neither)
    releases = ((event, integer("rounds", rounds, 1, 2**20)),)
    proven = Shuffled().epsilon(releases, delta)
    # Two symbols are clones; their worst data are known by enumeration only.
    bound = clones.least_epsilon(users, epsilon0, delta, max(symbols or 3, 3))
    # The bound is of a response that all give: of secret samples it is none.
    least = 0.0 if sampling < 1 or symbols == 2 else bound
    basis = Shuffled().basis(releases)
    return Amplification(proven, least, epsilon0, delta, users, basis, rounds=rounds)
