"""Counting tasks on one axis: registered protocols, one message a user, no trust, and a curator.

A protocol of counts is in them by its own registration alone. What runs nowhere here is by
formulas: each noise is one variance of a count, and a task makes its error of that.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from protocols.comparison.methods import Method
from protocols.counts.heavy_hitters import usual_levels
from protocols.counts.randomizer import Counting
from protocols.counts.single import Response, Unary
from protocols.counts.task import CountsTask
from protocols.counts.trees import Shape
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.registry import registered_kinds, skipping

_MISS = 1e-3  # the chances of a missed item and of a false one, as of heavy hitters
_KEPT = 100  # prefixes of a level, likewise
_Variance = Callable[[int, int], float]
"""Of the count of a bin: of so many users' levels, and of the bins of one level."""


@dataclass(frozen=True)
class _Noise:
    """How counts get their noise without a protocol of this house.

    Attributes:
        name: of it.
        trust: who adds it.
        variance: of one count.
        reach: how far one malicious user moves a count, of so many levels and bins.
        bits: of a user, of so many levels and bins.
        centred: variance of sums that a user moves by 1/2 in each of two groups, for half of the
            privacy; None: users send one coin each.
    """

    name: str
    trust: Trust
    variance: _Variance
    reach: _Variance
    bits: _Variance
    centred: float | None = None


def count_methods(
    task: str, n: int, domain: int, privacy: Privacy, attackers: int = 0, rounds: int = 1
) -> list[Method]:
    """Every registered protocol of a task, then one message a user, a curator, the local model.

    Errors are as tasks have them (docs: Counts). Without a protocol they are of formulas: users of
    several levels are parted over them, whose error is not counted, where each sends one message.

    Args:
        task: one of TASKS.
        n: users.
        domain: categories, cells, groups, or items; heavy hitters count their bits.
        privacy: of all rounds; delta above 0.
        attackers: malicious users.
        rounds: such reports, as of days, that a user answers.

    Raises:
        ParameterError: another task, or a size that it cannot have.
    """
    if task not in TASKS:
        raise ParameterError("task", task, f"one of sum, {', '.join(TASKS)}")
    integer("n", n, 2)
    integer("domain", domain, 2, 2**64)
    integer("rounds", rounds)
    return [
        *_protocols(task, n, domain, privacy, attackers, rounds),
        *_formulas(task, n, domain, privacy, attackers, rounds),
    ]


def task_kinds(task: str) -> dict[str, type[CountsTask]]:
    """Registered protocols of a task, by name."""
    kinds: dict[str, type[CountsTask]] = registered_kinds("protocol", CountsTask)
    return {name: kind for name, kind in kinds.items() if kind.task == task}


def _protocols(
    task: str, n: int, domain: int, privacy: Privacy, attackers: int, rounds: int
) -> Iterator[Method]:
    for name, kind in task_kinds(task).items():
        with skipping("protocol", name):
            for setting, make in kind.settings(n, domain, privacy).items():
                numbers = partial(_numbers, partial(make, **_rounds(rounds)), attackers, rounds)
                yield Method.tried(name, setting, kind.trust, numbers)


def _rounds(rounds: int) -> dict[str, int]:
    """What is asked of a protocol, which may know of one round only."""
    return {"rounds": rounds} if rounds > 1 else {}


def _numbers(make: Callable[[], CountsTask], attackers: int, rounds: int) -> dict[str, Any]:
    """Of a protocol that can be made."""
    made = make()
    return {
        "messages": made.messages_per_user,
        "bits": made.bits_per_user,
        "error": made.error,
        "attacked": made.attacked(attackers),
        "epsilon": made.epsilon_of(rounds),
    }


@dataclass(frozen=True)
class PlannedTask:
    """A protocol beside others, with the parameters that were chosen for each of its parts.

    Attributes:
        method: its numbers; epsilon is of all rounds.
        alone: epsilon of one round.
        parameters: of each part.
    """

    method: Method
    alone: float
    parameters: list[dict[str, Any]]


def planned_task(
    task: str,
    n: int,
    domain: int,
    privacy: Privacy,
    *,
    objective: str | None = None,
    honest_fraction: float = 1.0,
    rounds: int = 1,
) -> PlannedTask:
    """The protocol of a task, planned for n users; by default as `calibrated` makes it.

    Raises:
        ParameterError: what it cannot do.
    """
    (name, kind), *_ = task_kinds(task).items()
    size = kind.size(n, domain, privacy)
    if objective is not None:
        size |= {"objective": objective}
    made: Any = kind.calibrated(**size, honest_fraction=honest_fraction, **_rounds(rounds))
    method = Method(name, "the plan", made.trust, **_numbers(lambda: made, 1, rounds))
    return PlannedTask(method, made.epsilon, [asdict(each) for each in made.parts])


def _formulas(
    task: str, n: int, domain: int, privacy: Privacy, attackers: int, rounds: int
) -> Iterator[Method]:
    for noise in _noises(n, privacy, rounds):
        if task == "histogram" and noise.trust is Trust.SHUFFLE:
            continue  # a setting of the histogram itself

        def numbers(noise: _Noise = noise) -> dict[str, Any]:
            error, attacked, bits = TASKS[task](noise, n, domain, attackers)
            named = {"error": error, "attacked": attacked, "bits": bits}
            return {"messages": 1, "epsilon": privacy.epsilon, **named}

        yield Method.tried(str(noise.trust), noise.name, noise.trust, numbers)


def _noises(n: int, privacy: Privacy, rounds: int) -> Iterator[_Noise]:
    """One shuffled message, a curator's two laws, and the best of two local randomisers."""
    each_round = privacy.epsilon / rounds  # where privacy is pure

    def local(levels: int, bins: int) -> Counting:
        return min(
            (Response(bins, each_round), Unary(bins, each_round)),
            key=lambda each: _parted(each, n, levels),
        )

    def shuffled(levels: int, bins: int) -> Counting:
        if rounds > 1:
            raise ParameterError("rounds", rounds, "1: of one message a user none is planned")
        return Response(bins, count_planner.local(privacy, n // levels, bins))

    def single(name: str, trust: Trust, one: Callable[[int, int], Counting]) -> _Noise:
        return _Noise(
            name,
            trust,
            lambda levels, bins: _parted(one(levels, bins), n, levels),
            lambda levels, bins: levels * one(levels, bins).reach[0],
            lambda levels, bins: one(levels, bins).usual_bits,
        )

    yield single("randomised response", Trust.SHUFFLE, shuffled)
    yield single("best of response and unary", Trust.LOCAL, local)

    def sent(levels: int, bins: int) -> float:
        return math.ceil(math.log2(bins))

    def laplace(levels: int, bins: int) -> float:
        # Who is replaced leaves a bin and enters another, at each level: l1 is 2 levels,
        rho = math.exp(-each_round / (2 * levels))
        return 2 * rho / (1 - rho) ** 2

    def normal(levels: int, bins: int) -> float:
        # and l2 is sqrt(2 levels); of Gaussians the squares of all rounds add up.
        moved = math.sqrt(2 * levels * rounds)
        return gaussian.sigma(privacy.epsilon, privacy.delta, moved) ** 2

    spread = gaussian.sigma(privacy.epsilon, privacy.delta, math.sqrt(rounds))
    for name, variance, centred in (
        # Half of epsilon at l1 = 1/2 + 1/2: 2 (2/epsilon)^2;
        # a Gaussian at l2 = 1/sqrt(2), half of mu^2.
        ("discrete Laplace", laplace, 8 / each_round**2),
        ("Gaussian", normal, spread**2),
    ):
        yield _Noise(name, Trust.CENTRAL, variance, lambda levels, bins: 1.0, sent, centred)


def _parted(one: Counting, n: int, levels: int) -> float:
    """Variance of the count of an average bin, by the users who are at its level."""
    count = np.full(one.bins, n / levels / one.bins)
    # The count of a level's users times `levels` stands for all: its variance times levels^2.
    return levels**2 * float(one.variance(n // levels, count)[0])


_Found = tuple[float, float, float]
"""An error, the error under attack, and bits of a user."""


def _histogram(noise: _Noise, n: int, domain: int, attackers: int) -> _Found:
    """The standard error of a bin that an average number of users is in."""
    error = math.sqrt(noise.variance(1, domain))
    return error, math.hypot(error, attackers * noise.reach(1, domain)), noise.bits(1, domain)


def _quantiles(noise: _Noise, n: int, domain: int, attackers: int) -> _Found:
    """The largest standard error of a rank, by the best tree of equal fans."""
    # As of `Quantiles`: a power of 4, with 1e-9 for the rounding of logarithms.
    bits = 2 * max(1, math.ceil(math.log(domain) / math.log(4) - 1e-9))
    found = []
    for fan in (each for each in range(2, bits + 1) if bits % each == 0):
        levels = bits // fan
        unit = float(Shape((2**fan,) * levels).prefix_variances.max())
        most = max(noise.variance(levels, bins) for bins in (2**fan, 2**bits))
        error = math.sqrt(unit * most)
        moved = attackers * noise.reach(levels, 2**bits)
        found.append((error, math.hypot(error, moved), noise.bits(levels, 2**bits)))
    return min(found)


def _heavy(noise: _Noise, n: int, domain: int, attackers: int) -> _Found:
    """The count from which items are found, by thresholds of normal noise."""
    parts = usual_levels(n, max(2, (domain - 1).bit_length()))
    bins = [(_KEPT if level else 1) << bits for level, bits in enumerate(parts)]
    sds = [math.sqrt(noise.variance(len(parts), each)) for each in bins]
    allowed = [_KEPT / 10] * (len(parts) - 1) + [_MISS]
    normal = NormalDist()
    thresholds = [
        # 1/2 at most: no threshold lies below what noise has on average.
        -sd * normal.inv_cdf(min(may / each, 0.5))
        for sd, may, each in zip(sds, allowed, bins, strict=True)
    ]

    def missed(count: float) -> float:
        return sum(normal.cdf((t - count) / sd) for t, sd in zip(thresholds, sds, strict=True))

    # At twice the threshold and ten deviations nothing is missed.
    low, high = 0.0, 2 * max(thresholds) + 10 * max(sds)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if missed(middle) <= _MISS else (middle, high)
    filled = attackers * noise.reach(len(parts), bins[-1]) >= _KEPT * thresholds[-1]
    return high, math.inf if filled else high, noise.bits(len(parts), bins[-1])


def _group_means(noise: _Noise, n: int, domain: int, attackers: int) -> _Found:
    """The standard error of the mean of a group of average size, 1/2, in ranges."""
    users, coins = n / domain, 2 * domain
    variance = noise.centred
    if variance is None:  # of half the difference of a group's two coins, and of rounding
        variance = noise.variance(1, coins) / 2 + users / 4
    error = math.sqrt(variance) / users
    moved = attackers * noise.reach(1, coins) / 2 / users
    return error, math.hypot(error, moved), noise.bits(1, coins)


TASKS = {
    "histogram": _histogram,
    "heavy-hitters": _heavy,
    "quantiles": _quantiles,
    "group-means": _group_means,
}
"""Questions, and how errors follow from the noise of a count."""
ERRORS = {
    "histogram": "standard error of a category that an average number of users is in",
    "heavy-hitters": "count from which an item is found, but for a chance of 0.001",
    "quantiles": "largest standard error of a rank",
    "group-means": "standard error of a mean in the middle of the range, in ranges",
}
"""What the error of a task is."""
