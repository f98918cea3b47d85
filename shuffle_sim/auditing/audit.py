"""Auditing what is implemented: the joint law of what users send, and of what the shuffler shows.

Sampling cannot reach delta = 1e-6, so the audit does two things. It compares what all users send
with its exact law: every user and label, sums and differences of them, at every fidelity and on
data outside what is allowed. That is what catches wrong noise, and noise that is shared. And it
bounds epsilon from below by canaries: theorem >= exact >= empirical must hold.
"""

import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.asked import Asked
from shuffle_sim.auditing.checks import Checks
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.empirical import Seen, best_threshold
from shuffle_sim.auditing.plan import FALSE_ALARM, Check, Planned, Step, UncheckedError, plan_of
from shuffle_sim.auditing.planned import MOST, others
from shuffle_sim.auditing.scores import summed
from shuffle_sim.auditing.words import WordChecks
from shuffle_sim.errors import FrameError, ParameterError, integer
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.binding import UNCHECKED, checked_event
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import walked
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.sampling.randomness import entropy_of

_HONEST = 60  # users in the comparison of the event's law with the randomizer's
_DELTAS = (1e-2, 1e-4)  # of it: where Fourier transforms keep their digits


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
        thorough: more rounds, data and runs: some minutes in place of half of one.
        on_check: called before each check, with its name, its place and how many there are.
        options: of the run that is audited, as for `run`: runtime, workers, fidelity, security,
            shuffler_shards, adversary, execution.

    Raises:
        ParameterError: a protocol without a round, or too few repeats. Where a law cannot be
            enumerated, the report says what could be checked and what not.
    """
    integer("repeats", repeats, 1000)
    spec = protocol.plan(protocol.init())
    if spec is None:
        raise ParameterError("protocol", type(protocol).__name__, "one with a round")
    entropy = entropy_of(seed)
    given = entropy, repeats * (4 if thorough else 1), FALSE_ALARM, shard, shuffler
    if spec.randomizer.view != "sums":
        return _of_words(protocol, spec, given)
    bench = Checks(protocol, spec, *given)
    asked = Asked(protocol, data, options, entropy, shard, thorough=thorough)
    bench.asked_for(asked.execution, options, thorough=thorough)
    steps = [*_steps(bench), *asked.steps()]
    later, left = others(protocol, spec)
    benches = [(index, _later(protocol, each, given)) for index, each in later]
    more = [
        (index, step)
        for index, each in benches
        if isinstance(each, Checks)
        for step in _steps(each, brief=True)
    ]
    ends = (_event_step(bench, spec.event), _ORDERED)
    alarm = FALSE_ALARM / (len(steps) + len(more) + 1 + len(ends) + len(benches))
    asked.alarm = alarm
    for one in (bench, *(each for _, each in benches if isinstance(each, Checks))):
        one.alarm = alarm
    every, checks = len(steps) + len(more) + 2, [_bound(protocol, spec)]

    def made(step: Step, name: str) -> Check:
        if on_check is not None:
            on_check(name, len(checks), every)
        return replace(_held(step), name=name)

    checks += [made(step, step.planned.name) for step in steps]
    for index, each in benches:
        name = f"round {index:,}: "
        if isinstance(each, Check):
            checks.append(each)
            continue
        at = _bound(protocol, each.spec)
        checks.append(replace(at, name=name + at.name))
        own = [
            *(step for place, step in more if place == index),
            _event_step(each, each.spec.event),
        ]
        checks += [made(step, name + step.planned.name) for step in own]
    if left:
        few = f"{left:,} more randomizers are planned than the {MOST + 1} that are looked at"
        checks.append(Check("every planned randomizer has its exact law", None, few))
    checks.append(made(ends[0], ends[0].planned.name))
    theorem, delta = _theorem(protocol), protocol.delta
    if on_check is not None:
        on_check(_ORDERED.planned.name, len(checks), every)
    seen = asked.seen(bench.known)
    exact = theorem_of(type(spec.event)).exact(spec.event, delta)
    empirical = float("nan") if seen is None else seen.epsilon()
    checks.append(_ordered(protocol, theorem, exact, seen, alarm))
    known = float("nan") if exact is None else exact
    plan = tuple(step.planned for step in (*steps, *ends))
    return AuditReport(
        theorem, known, empirical, delta, given[1], tuple(checks), bench.users, plan, bench.known
    )


def _of_words(protocol: Protocol[Any], spec: RoundSpec, given: tuple[Any, ...]) -> AuditReport:
    """Of a view of words; rounds after the first are not looked at."""
    entropy, repeats, alarm, *roles = given
    bench = WordChecks(spec, entropy, repeats, alarm / 16, *roles)
    checks = [_bound(protocol, spec)]
    for name, check in bench.checks():
        planned = Planned(name, "words of a few users", f"{repeats:,} rounds", "", bench.missing)
        checks.append(_held(Step(planned, check)))
    if others(protocol, spec)[0]:
        later = "randomizers of later rounds are not looked at"
        checks.append(Check("every planned randomizer has its exact law", None, later))
    known = theorem_of(type(spec.event)).exact(spec.event, protocol.delta)
    exact, nan = float("nan") if known is None else known, float("nan")
    told = _theorem(protocol), exact, nan, protocol.delta, repeats, tuple(checks)
    return AuditReport(*told, checked=bench.known)


def _steps(bench: Checks, *, brief: bool = False) -> Iterator[Step]:
    for kind, planned in plan_of(bench, brief=brief):
        yield Step(planned, None if planned.missing else getattr(bench, kind.method))


def _event_step(bench: Checks, event: PrivacyEvent) -> Step:
    """The event against the randomizer's own law."""
    planned = Planned(
        "the event's own law is the randomizer's",
        "epsilon of the worst pair by the randomizer's law, and by the event's theorem",
        f"exact, for {_HONEST} users",
        "an event of more bits, steps or honest users",
        "" if bench.known else bench.lawless,
    )
    return Step(planned, partial(_event_law, bench, event) if bench.known else None)


_ORDERED = Step(
    Planned(
        "theorem >= exact >= empirical lower bound",
        "canaries in whole runs",
        "2,000 pairs of samples, or 12,000 for thresholds",
        "half the noise, whatever the reason",
    ),
    None,
)


def _ordered(
    protocol: Protocol[Any], theorem: float, exact: float | None, seen: Seen | None, alarm: float
) -> Check:
    """One round's exact epsilon is a lower bound of the whole run's; so is the empirical one."""
    name = _ORDERED.planned.name
    if seen is None:
        return Check(name, None, "no value that a user may send could be made for its canaries")
    sure, lower = seen.epsilon(alarm), exact if exact is not None else 0.0
    single = protocol.claims_sequential
    ordered = theorem * (1 + 1e-9) >= max(lower, sure) and (
        not single or exact is None or sure <= exact * 1.02 + 1e-3
    )
    words = f"theorem {theorem:.4f}, exact {lower:.4f}, empirical {seen.epsilon():.4f}"
    return Check(name, ordered, "" if ordered else words)


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


def _theorem(protocol: Protocol[Any]) -> float:
    """epsilon of the whole run, its rounds planned on the way that no data would give."""
    if protocol.claim is not None:
        return protocol.claim.epsilon
    ledger = PrivacyLedger()
    for spec in walked(protocol):
        ledger.charge(spec.cohort, spec.event)
    return ledger.guarantee(protocol.delta, settled=False).epsilon


def _later(protocol: Protocol[Any], spec: RoundSpec, given: tuple[Any, ...]) -> "Checks | Check":
    """The bench of a randomizer that only later rounds have, or why there is none."""
    try:
        return Checks(protocol, spec, *given)
    except Exception as error:  # what is audited may do anything
        words = f"{type(error).__name__}: {error}"
        return Check("a later round's randomizer says its law", False, words)


def _bound(protocol: Protocol[Any], spec: RoundSpec) -> Check:
    """The event is the randomizer's."""
    name, event = "the event is the one that the randomizer derives", spec.event
    try:
        honest = protocol.honest_fraction
        known = checked_event(event, spec.randomizer, spec.query, spec.cohort, honest)
    except ParameterError as error:
        return Check(name, False, str(error))
    return Check(name, True) if known else Check(name, None, UNCHECKED)


def _event_law(bench: Checks, event: PrivacyEvent) -> None:
    """epsilon of the worst pair by the randomizer's own pmf is at most the event's, and near it."""
    honest = min(_HONEST, getattr(event, "honest", _HONEST))
    small = event.with_honest(honest)
    first, second = bench.moved_pair
    rest = summed([(first, honest - 1)])
    pair = [summed([(rest, 1), (each, 1)]) for each in (first, second)]
    size = max(map(len, pair))
    p, q = (np.pad(each, (0, size - len(each))) for each in pair)
    theorem = theorem_of(type(small))
    for delta in _DELTAS:
        found, stated = max(_hockey(p, q, delta), _hockey(q, p, delta)), theorem.exact(small, delta)
        if stated is None:
            stated = ShuffleAccountant().compose(small).get_epsilon(delta)
        if stated < found * (1 - 1e-3) - 1e-4:
            raise LawError(
                f"of {honest} users at delta {delta:g}: the event states {stated:.4f}, the "
                f"randomizer has {found:.4f}"
            )


def _hockey(p: Floats, q: Floats, delta: float) -> float:
    """The least epsilon with sum (p - e^epsilon q)+ <= delta; at most 50."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        over = float(np.maximum(p - np.exp(middle) * q, 0.0).sum())
        low, high = (low, middle) if over <= delta else (middle, high)
    return high


def _held(step: Step) -> Check:
    name = step.planned.name
    if step.make is None:
        return Check(name, None, step.planned.missing)
    try:
        step.make()
    except UncheckedError as error:
        return Check(name, None, str(error))
    except (LawError, FrameError, ParameterError) as error:
        return Check(name, False, str(error))
    except Exception as error:  # what is audited may do anything
        return Check(name, False, f"{type(error).__name__}: {error}")
    return Check(name, True)
