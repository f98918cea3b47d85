"""Auditing what is implemented: the joint law of what users send, and of what the shuffler shows.

Sampling cannot reach delta = 1e-6, so the audit does two things. It compares what all users send
with its exact law: every user and label, sums and differences of them, at every fidelity and on
data outside what is allowed. That is what catches wrong noise, and noise that is shared. And it
bounds epsilon from below by canaries: theorem >= exact >= empirical must hold.
"""

import math
import typing
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.empirical import Seen, best_threshold
from shuffle_sim.auditing.claims.plan import FALSE_ALARM, Check, CheckStep, Planned, steps_of
from shuffle_sim.auditing.claims.stated import (
    ODDS,
    ORDERED,
    bound,
    check_odds,
    ordered,
    stated_epsilon,
    within,
)
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.auditing.shuffle.bench import of_categories
from shuffle_sim.auditing.shuffle.canaries import odds_known
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.auditing.shuffle.words import WordChecks
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import walked
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.sampling.randomness import entropy_of

MOST = 8
"""Other randomizers that are looked at: running totals of a year have so many. Those of a class
that was not seen yet come first."""
_BACK = 64  # randomizers that a new one is compared with


@typing.runtime_checkable
class Auditable(typing.Protocol):
    """What a randomizer must say of itself to be audited.

    Its domain is a ball (of scalars, a range) whose ends are the worst pair. `label_group` may say
    how many labels in a row depend on each other; by default labels of a user are independent.
    """

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Two data that are hardest to tell apart, ends of coordinate 0 that are not rounded."""

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of `count_index` under `label` of one report on the admitted datum `x`."""

    def count_index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        """Sums of the symbols of so many reports, counted from the lowest that can be."""


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        theorem: epsilon that the run would state.
        exact: epsilon of the worst pair that is known of one round, by exact arithmetic; else NaN.
        empirical: a lower bound of epsilon of the whole run, from samples at confidence 1 - 1e-4.
        delta: at which the three hold.
        repeats: samples of the tallies' laws; of every user's there are fewer.
        checks: all comparisons, the order of the three epsilons last.
        users: how many were looked at, one by one and together.
        plan: of all checks of the first round: what they look at, samples and power.
        checked: whether what users send was held to a law; if not, nothing is said of its noise.
    """

    theorem: float
    exact: float
    empirical: float
    delta: float
    repeats: int
    checks: tuple[Check, ...]
    users: int = 0
    plan: tuple[Planned, ...] = ()
    checked: bool = True

    @property
    def passed(self) -> bool:
        """Whether no check failed, and what users send was held to a law at all."""
        return self.checked and all(check.passed is not False for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether everything could be checked."""
        return all(check.passed is not None for check in self.checks)


def audit(
    protocol: Protocol[Any],
    data: Any = None,
    *,
    repeats: int = 4000,
    seed: int | None = None,
    shard: type[UserShard] = UserShard,
    shuffler: type[Shuffler] = Shuffler,
    privacy: Privacy | None = None,
    reports: int = 1,
    thorough: bool = False,
    on_check: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> AuditReport:
    """Audit a protocol: its randomizers, users' shard and shuffler, and the run that is asked for.

    All is looked at on the first round's randomizer. Of those that only later rounds have, up to
    four are drawn from and judged; the report says if there are more.

    The false-alarm rate is at most 1e-6 for the whole audit: its checks share it.

    Args:
        protocol: whose planned randomizers are audited; the empirical bound is of all its rounds.
        data: on which its own queries are looked at, as for `run`; None: rows are made.
        repeats: samples of the tally's law; at least 1,000.
        seed: to reproduce the audit, but for the runs that it makes without a seed.
        shard: the implementation of the users.
        shuffler: the implementation of the shuffler.
        privacy: what the protocol was made for; None: what it states is held to no budget.
        reports: runs, as of days, that this privacy is of: each user answers in all of them.
        thorough: more rounds, data and runs: some minutes in place of half of one.
        on_check: called before each check, with its name, its place and how many there are.
        options: of the run that is audited, as for `run`: runtime, workers, fidelity, security,
            shuffler_shards, adversary, execution.

    Raises:
        ParameterError: a protocol without a round, or too few repeats. Where a law cannot be
            enumerated, the report says what could be checked and what not.
    """
    repeats, reports = integer("repeats", repeats, 1000), integer("reports", reports)
    spec = protocol.plan(protocol.init())
    if spec is None:
        raise ParameterError("protocol", type(protocol).__name__, "one with a round")
    entropy = entropy_of(seed)
    given = entropy, repeats * (4 if thorough else 1), FALSE_ALARM, shard, shuffler
    bench = _bench(protocol, spec, given)
    asked = Asked(protocol, data, options, entropy, shard, thorough=thorough)
    bench.asked_for(asked.execution, options, thorough=thorough)
    steps = [bound(protocol, reports), *steps_of(bench), *asked.steps()]
    benches, late = _later(protocol, spec, given)
    theorem, delta, seen = stated_epsilon(protocol), protocol.delta, None
    steps += [*late, *within(stated_epsilon(protocol, reports), delta, privacy)]
    # Two more for views' odds and the order of the three epsilons; checks may depend on each other.
    alarm = FALSE_ALARM / (len(steps) + 2)
    for each in (bench, asked, *benches):
        each.alarm = alarm
    checks, on_check = list[Check](), on_check or (lambda *_: None)
    for step in steps:
        on_check(step.planned.name, len(checks), len(steps) + 1)
        checks.append(step.check())
    exact = theorem_of(type(spec.event)).exact(spec.event, delta)
    if isinstance(bench, Checks) or odds_known(protocol):
        on_check(ORDERED.name, len(checks), len(steps) + 1)
        seen = asked.seen(bench.known, partial(Seen.open_at, claimed=theorem, doubt=alarm / 2))
        if seen is not None and seen.exact:
            steps.append(CheckStep(ODDS, partial(check_odds, seen, alarm)))
            checks.append(steps[-1].check())
        checks.append(ordered(protocol, theorem, exact, seen, alarm / 2))
    return AuditReport(
        theorem,
        math.nan if exact is None else exact,
        math.nan if seen is None else seen.epsilon(),
        delta,
        given[1],
        tuple(checks),
        bench.users,
        (*(step.planned for step in steps), ORDERED),
        bench.known,
    )


def _bench(protocol: Protocol[Any], spec: RoundSpec, given: tuple[Any, ...]) -> Checks | WordChecks:
    """The bench of a round's randomizer: of numbers and vectors, or of categories."""
    kind = WordChecks if of_categories(spec.randomizer) else Checks
    return kind(protocol, spec, *given)


def _later(
    protocol: Protocol[Any], first: RoundSpec, given: tuple[Any, ...]
) -> tuple[list[Checks | WordChecks], list[CheckStep]]:
    """Benches of randomizers that only later rounds have, and their checks in brief."""
    rounds, left = others(protocol, first)
    benches, steps = list[Checks | WordChecks](), list[CheckStep]()
    for index, spec in rounds:
        name = f"round {index:,}: "
        try:
            benches.append(_bench(protocol, spec, given))
        except Exception as error:  # what is audited may do anything
            planned = Planned(f"{name}a later round's randomizer says its law", "", "", "")
            steps.append(CheckStep(planned, partial(_raised, error)))
        else:
            steps += steps_of(benches[-1], name, brief=True)
    if left:
        few = f"{left:,} more randomizers are planned than the {MOST + 1} that are looked at"
        name = "every planned randomizer has its exact law"
        steps.append(CheckStep(Planned(name, "", "", "", few), None))
    return benches, steps


def _raised(error: Exception) -> None:
    raise error


def empirical_epsilon(
    randomizer: Randomizer,
    honest: int,
    delta: float,
    *,
    repeats: int = 4000,
    seed: int | None = None,
) -> float:
    """Clopper-Pearson lower bound of epsilon from tallies of the worst pair.

    The best threshold is chosen on other samples.

    Args:
        randomizer: as implemented; says its worst pair (`Auditable`).
        honest: users whose reports the analyzer does not know: the rest of the view tells it
            nothing.
        delta: at which the bound holds, with confidence 1 - 1e-4.
        repeats: a tenth of the samples a side, at least 100.
        seed: to reproduce it.
    """
    integer("repeats", repeats, 100)
    if not isinstance(randomizer, Auditable):
        raise ParameterError(
            "randomizer", type(randomizer).__name__, "one with worst_pair and count_pmf"
        )
    rng, pair = np.random.default_rng(entropy_of(seed)), randomizer.worst_pair()
    others = np.repeat(pair[0][None], honest - 1, axis=0)
    rows = [np.concatenate([x[None], others]) for x in pair]
    low, high = (
        randomizer.count_index(
            np.array([randomizer.tally(r, rng)[0] for _ in range(10 * repeats)]), 1
        )
        for r in rows
    )
    return best_threshold(low, high, delta)


def others(protocol: Protocol[Any], first: RoundSpec) -> tuple[list[tuple[int, RoundSpec]], int]:
    """Rounds, counted from 1, whose randomizer no round before has, and how many were left out.

    Rounds are planned with sums from the middle of what can be in place of views.
    """
    found = list(_distinct(protocol, first))
    classes = {type(first.randomizer)}
    new: list[tuple[int, RoundSpec]] = []
    known: list[tuple[int, RoundSpec]] = []
    for each in found:
        kind = type(each[1].randomizer)
        (known if kind in classes else new).append(each)
        classes.add(kind)
    room = max(0, MOST - len(new))
    kept = [*new[:MOST], *(known[-1:] + known[:-1])[:room]]  # the last one is farthest
    return sorted(kept, key=lambda each: each[0]), len(found) - len(kept)


def _distinct(protocol: Protocol[Any], first: RoundSpec) -> Iterator[tuple[int, RoundSpec]]:
    seen, ids = [first.randomizer], {id(first.randomizer)}
    for index, spec in enumerate(walked(copy(protocol)), 1):
        one = spec.randomizer
        if id(one) in ids:
            continue
        if not any(type(one) is type(each) and one == each for each in seen[-_BACK:]):
            seen.append(one)  # kept: ids stay their own
            ids.add(id(one))
            yield index, spec
