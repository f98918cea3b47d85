"""A plan in people's units: how near a mean is, what is sent, what dropouts and attackers do."""

from dataclasses import dataclass
from typing import Any

from shuffle_sim.data.moments import NORMAL_95
from shuffle_sim.execution.budget import Budget
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.planner import Plan
from shuffle_sim.registry import registered

DROPPED, MALICIOUS = 0.1, 0.01
"""Fractions of users whom plans speak of: who drop out, and who send what they like."""


@dataclass(frozen=True)
class Horizon:
    """What one of many rounds costs, and what is left after some of them.

    Attributes:
        word: what a round is, such as a day.
        alone: epsilon of one round, at the delta of all.
        after: rounds, epsilon spent, and what is left of the total.
        fit: how many rounds like this fit in a budget on disk, if one was named.
    """

    word: str
    alone: float
    after: list[tuple[int, float, float]]
    fit: int | None = None

    @classmethod
    def of(cls, plan: Plan, word: str, budget: Budget | None) -> "Horizon":
        """Of all rounds of a plan."""
        rounds, total = plan.spec.rounds, plan.spec.privacy

        def spent(many: int) -> float:
            return ShuffleAccountant().compose(plan.event, many).get_epsilon(total.delta)

        looked = sorted({1, *(max(1, rounds * part // 12) for part in (1, 3, 6, 9, 12))})
        after = [(many, spent(many), max(0.0, total.epsilon - spent(many))) for many in looked]
        return cls(word, spent(1), after, None if budget is None else budget.more(plan.event))


@dataclass(frozen=True)
class PeoplePlan:
    """A plan in units of the data.

    Attributes:
        unit: of the data.
        range: length of the public bounds.
        error: of a mean, 95 %, in units; the noise alone.
        messages: of a user, in all rounds.
        user_bytes: of a user on the wire, in all rounds.
        bytes: of all hops and rounds.
        dropouts_epsilon: if a tenth of the users drop out of every round; None: nothing is
            released then, as more are assumed to be honest.
        dropouts_error: of a mean then.
        moved: by how much a hundredth of the users can move a mean, at most.
    """

    users: int
    rounds: int
    unit: str
    range: float
    error: float
    messages: float
    user_bytes: float
    bytes: int
    epsilon: float
    dropouts_epsilon: float | None
    dropouts_error: float
    moved: float

    @classmethod
    def of(cls, name: str, plan: Plan, low: float, high: float, unit: str) -> "PeoplePlan":
        """Of a planned sum of columns with these bounds.

        Columns are scaled into the unit ball, as `sum` does it: a range is 2/sqrt(d) of it.
        """
        spec, made = plan.spec, registered("protocol", name).planned(plan)
        scale = (high - low) * (1.0 if spec.d == 1 else spec.d**0.5 / 2)
        mean = scale / spec.n
        stay, found = int(spec.n * (1 - DROPPED)), forecast(made)
        left = plan.event.with_honest(min(stay, spec.honest))
        spent = ShuffleAccountant().compose(left, spec.rounds)
        fewer = (1 - DROPPED) ** -0.5  # n (1 - f) users add noise to a mean of as many
        return cls(
            users=spec.n,
            rounds=spec.rounds,
            unit=unit,
            range=high - low,
            error=NORMAL_95 * made.standard_error * mean,
            messages=found.messages * spec.rounds,
            user_bytes=found.user_wire_bytes * spec.rounds,
            bytes=sum(hop.wire for hop in found.hops) * spec.rounds,
            epsilon=plan.epsilon,
            dropouts_epsilon=None if stay < made.minimum else spent.get_epsilon(spec.privacy.delta),
            dropouts_error=NORMAL_95 * made.standard_error * mean * fewer,
            moved=MALICIOUS * _reach(made) * scale,
        )


def _reach(made: Any) -> float:
    """How far one user can move a coordinate of the sum from what its datum adds, at most.

    Of a datum in the middle a randomizer says it; at the other end of the range it is farther.
    """
    randomizer, half = made.randomizer, made.norm_bound / made.d**0.5 if not made.scalar else 0.0
    # Under a rotation all that is sent may push one column; others may not say what one can do.
    if getattr(randomizer, "rotation", None) is not None or not hasattr(randomizer, "reach"):
        return float(randomizer.manipulation(1, made.n)) + half
    up, down = randomizer.reach()
    return float(max(up, down + made.upper) if made.scalar else max(up, down) + half)
