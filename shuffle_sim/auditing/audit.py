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
from shuffle_sim.auditing.bench import LAW, Bench
from shuffle_sim.auditing.checks import Checks
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.empirical import best_threshold, canaries
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

FALSE_ALARM = 1e-6
"""Of a whole audit, at most."""
_CHECKS = 33  # that share it: 12 of the first round, 5 of each other randomizer, and the last
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
class Check:
    """One comparison: what was looked at, whether it held, and what was seen if not.

    `passed` is None where it could not be checked; `detail` says why.
    """

    name: str
    passed: bool | None
    detail: str = ""


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
        checked: whether what users send was held to a law; if not, nothing is said of its noise.
    """

    theorem: float
    exact: float
    empirical: float
    delta: float
    repeats: int
    checks: tuple[Check, ...]
    users: int = 0
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
    *,
    repeats: int = 4000,
    seed: int | None = None,
    shard: type[UserShard] = UserShard,
    shuffler: type[Shuffler] = Shuffler,
) -> AuditReport:
    """Audit a protocol: its randomizers, users' shard and shuffler, and its whole run.

    All is looked at on the first round's randomizer. Of those that only later rounds have, up to
    four are drawn from and judged; the report says if there are more.

    The false-alarm rate is at most 1e-6 for the whole audit.

    Args:
        protocol: whose planned randomizers are audited; the empirical bound is of all its rounds.
        repeats: samples of the tally's law; at least 1,000.
        seed: to reproduce the audit.
        shard: the implementation of the users.
        shuffler: the implementation of the shuffler.

    Raises:
        ParameterError: a protocol without a round, or too few repeats. Where a law cannot be
            enumerated, the report says what could be checked and what not.
    """
    integer("repeats", repeats, 1000)
    spec = protocol.plan(protocol.init())
    if spec is None:
        raise ParameterError("protocol", type(protocol).__name__, "one with a round")
    delta, event, entropy = protocol.delta, spec.event, entropy_of(seed)
    alarm = FALSE_ALARM / _CHECKS
    if spec.randomizer.view != "sums":
        counted = WordChecks(spec, entropy, repeats, alarm, shard, shuffler)
        return _of_words(protocol, spec, counted, repeats)
    bench = Checks(protocol, spec, entropy, repeats, alarm, shard, shuffler)
    checks = [
        _bound(protocol, spec),
        *(_held(name, check) for name, check in bench.checks()),
    ]

    def later(spec: RoundSpec) -> Checks:
        return Checks(protocol, spec, entropy, repeats, alarm, shard, shuffler)

    checks += _later(protocol, spec, later)
    if not bench.known:
        return _without_law(protocol, spec, repeats, checks, bench.users)
    checks.append(
        _held("the event's own law is the randomizer's", partial(_event_law, bench, event))
    )
    exact = theorem_of(type(event)).exact(event, delta)
    theorem = _theorem(protocol)
    seen = canaries(protocol, seed=entropy)
    empirical, sure = seen.epsilon(), seen.epsilon(alarm)
    lower = exact if exact is not None else 0.0
    # One round's exact epsilon is a lower bound of the whole run's; so is the empirical one.
    single = protocol.claims_sequential
    ordered = theorem * (1 + 1e-9) >= max(lower, sure) and (
        not single or exact is None or sure <= exact * 1.02 + 1e-3
    )
    words = f"theorem {theorem:.4f}, exact {lower:.4f}, empirical {empirical:.4f}"
    checks.append(
        Check("theorem >= exact >= empirical lower bound", ordered, "" if ordered else words)
    )
    known = float("nan") if exact is None else exact
    return AuditReport(theorem, known, empirical, delta, repeats, tuple(checks), bench.users)


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


def _of_words(
    protocol: Protocol[Any], spec: RoundSpec, bench: WordChecks, repeats: int
) -> AuditReport:
    """Of a view of words; rounds after the first are not looked at."""
    checks = [_bound(protocol, spec)]
    for name, check in bench.checks():
        checks.append(Check(name, None, bench.missing) if check is None else _held(name, check))
    if others(protocol, spec)[0]:
        later = "randomizers of later rounds are not looked at"
        checks.append(Check("every planned randomizer has its exact law", None, later))
    known = theorem_of(type(spec.event)).exact(spec.event, protocol.delta)
    exact, nan = float("nan") if known is None else known, float("nan")
    told = _theorem(protocol), exact, nan, protocol.delta, repeats, tuple(checks)
    return AuditReport(*told, checked=bench.known)


def _without_law(
    protocol: Protocol[Any], spec: RoundSpec, repeats: int, checks: list[Check], users: int
) -> AuditReport:
    """What can be said of a protocol whose law cannot be enumerated, and what cannot."""
    unchecked = (
        "data outside the domain are brought into it",
        "each user's report has its exact law",
        "the sums over all users have their exact law",
        "two rounds over the same data draw independent noise",
        "the event's own law is the randomizer's",
        "theorem >= exact >= empirical lower bound",
    )
    every = (*checks, *(Check(name, None, _missing(spec)) for name in unchecked))
    exact, nan = theorem_of(type(spec.event)).exact(spec.event, protocol.delta), float("nan")
    known = nan if exact is None else exact
    theorem, delta = _theorem(protocol), protocol.delta
    return AuditReport(theorem, known, nan, delta, repeats, every, users, checked=False)


def _theorem(protocol: Protocol[Any]) -> float:
    """epsilon of the whole run, its rounds planned on the way that no data would give."""
    if protocol.claim is not None:
        return protocol.claim.epsilon
    ledger = PrivacyLedger()
    for spec in walked(protocol):
        ledger.charge(spec.cohort, spec.event)
    return ledger.guarantee(protocol.delta, settled=False).epsilon


def _later(
    protocol: Protocol[Any], first: RoundSpec, bench: Callable[[RoundSpec], Checks]
) -> Iterator[Check]:
    """Randomizers that only later rounds have."""
    rounds, left = others(protocol, first)
    for index, spec in rounds:
        try:
            of_round = bench(spec)
        except Exception as error:  # what is audited may do anything
            words = f"{type(error).__name__}: {error}"
            yield Check(f"round {index:,}: its randomizer says its law", False, words)
            continue
        event = "the event's own law is the randomizer's"
        found = [_bound(protocol, spec), *(_held(*each) for each in of_round.brief())]
        if of_round.known:
            found.append(_held(event, partial(_event_law, of_round, spec.event)))
        else:
            found.append(Check("each user's report has its exact law", None, _missing(spec)))
        yield from (replace(each, name=f"round {index:,}: {each.name}") for each in found)
    if left:
        few = f"{left:,} more randomizers are planned than the {MOST + 1} that are looked at"
        yield Check("every planned randomizer has its exact law", None, few)


def _missing(spec: RoundSpec) -> str:
    return f"its randomizer has not {', '.join(LAW)}: its law is not known"


def _bound(protocol: Protocol[Any], spec: RoundSpec) -> Check:
    """The event is the randomizer's."""
    name, event = "the event is the one that the randomizer derives", spec.event
    try:
        honest = protocol.honest_fraction
        known = checked_event(event, spec.randomizer, spec.query, spec.cohort, honest)
    except ParameterError as error:
        return Check(name, False, str(error))
    return Check(name, True) if known else Check(name, None, UNCHECKED)


def _event_law(bench: Bench, event: PrivacyEvent) -> None:
    """epsilon of the worst pair by the randomizer's own pmf is at most the event's, and near it."""
    honest = min(_HONEST, getattr(event, "honest", _HONEST))
    small = event.with_honest(honest)
    first, second = (kind[0] for kind in bench.pmfs[:2])
    others = summed([(first, honest - 1)])
    pair = [summed([(others, 1), (each, 1)]) for each in (first, second)]
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


def _held(name: str, check: Callable[[], None]) -> Check:
    try:
        check()
    except (LawError, FrameError, ParameterError) as error:
        return Check(name, False, str(error))
    except Exception as error:  # what is audited may do anything
        return Check(name, False, f"{type(error).__name__}: {error}")
    return Check(name, True)
