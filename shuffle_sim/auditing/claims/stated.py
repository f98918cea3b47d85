"""What is stated: events by the randomizers' own laws, and the order of the three epsilons."""

import math
from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.curves import check_curves, least_delta
from shuffle_sim.auditing.claims.empirical import Seen, sampled
from shuffle_sim.auditing.claims.plan import Check, CheckStep, Planned, UncheckedError
from shuffle_sim.auditing.laws.evidence import spared
from shuffle_sim.auditing.laws.losses import hockey, repeated
from shuffle_sim.auditing.laws.scores import summed
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.execution.plain import plain
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import BlanketEvent, PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import Charge, PrivacyLedger
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.binding import UNCHECKED, checked_event
from shuffle_sim.protocol.task import walked

HONEST = 60
"""Users, at most, in the comparison of an event's law with the randomizer's."""
_LEVELS = 0.1, 0.3, 0.5, 0.7, 0.9  # quantiles of odds
_BESIDE = "seed", "privacy", "promised", "reports", "standard_error", "sensitivity"
_CURVE = 1e-6  # of delta, by roundings of a curve and its inverse
_DELTAS = (1e-2, 1e-4)  # of it: where Fourier transforms keep their digits
_AGAIN, _RARE = 30, 1e-6  # releases of one event, and a delta of them together
_LEAST = 1e-13  # of a law by transforms: what is below is not sure
ORDERED = Planned(
    "theorem >= exact >= empirical lower bound",
    "canaries in whole runs",
    "8,000 pairs of samples, or 20,000 for thresholds; fewer of long runs",
    "half the noise, whatever the reason",
)


_WITHIN = Planned(
    "no more is stated than was asked for",
    "epsilon of the whole run, as it is planned, at the delta that was asked for",
    "exact",
    "a plan that takes more than its budget",
)


def within(epsilon: float, delta: float, asked: Privacy | None) -> list[CheckStep]:
    """The check that no more is stated than was asked for, if something was."""
    if asked is None:
        return []
    return [CheckStep(_WITHIN, partial(check_within, epsilon, delta, asked))]


def check_within(epsilon: float, delta: float, asked: Privacy) -> None:
    """What is stated is no more than the budget.

    Raises:
        LawError: it is.
    """
    if not (epsilon <= asked.epsilon * (1 + 1e-9) and delta <= asked.delta):
        raise LawError(
            f"asked for is ({asked.epsilon:g}, {asked.delta:g}), stated ({epsilon:.6g}, {delta:g})"
        )


ODDS = Planned(
    "views have the odds that are stated of them",
    "canaries in whole runs: how often odds come on either table",
    "20,000 views; fewer of long runs",
    "noise that two kinds of messages share; less of it",
)


def check_odds(seen: Seen, alarm: float) -> None:
    """Odds o of the second table over the first come as odds do.

    For any set of odds the mean of min(1, e^o) on the first table is that of min(1, e^-o) on the
    second: both are what the two laws share there.

    Raises:
        LawError: they do not, by the empirical Bernstein inequality (Maurer and Pontil 2009).
    """
    odds = [each.sum(axis=1) for each in (seen.low, seen.high)]
    # Levels are chosen on the first fifth of the draws, and nothing else is.
    parted = [np.split(each, [len(each) // 5]) for each in odds]
    few = np.concatenate([some for some, _ in parted])
    levels = -np.inf, *sampled(few, np.array(_LEVELS))
    odds = [rest for _, rest in parted]
    shared = [np.exp(np.minimum(each, 0.0)) for each in (odds[0], -odds[1])]
    for level in levels:
        parts = [part * (each > level) for part, each in zip(shared, odds, strict=True)]
        gap = abs(float(parts[0].mean() - parts[1].mean()))
        # Parts lie in [0, 1]; two means with two sides each, at all levels.
        room = sum(spared(part, alarm / 8 / len(levels)) for part in parts)
        if gap > room:
            raise LawError(f"odds above {level:.3g}: {gap:.3g} apart, allowed {room:.3g}")


def bound(protocol: Protocol[Any], runs: int = 1) -> CheckStep:
    """The check that the events of all rounds of so many runs are those of their randomizers."""
    planned = Planned(
        "the event is the one that the randomizer derives",
        "the events of all rounds, as they are planned",
        "exact",
        "an event of more noise, of other values or of more honest users; a ledger that leaves some"
        " out",
    )
    return CheckStep(planned, partial(check_bound, protocol, runs))


def check_bound(protocol: Protocol[Any], runs: int = 1) -> None:
    """The events of all rounds are their randomizers', and no ledger states less of them together.

    Raises:
        LawError, ParameterError: one is not, and why.
        UncheckedError: there is a randomizer that derives none.
    """
    known, seen = True, list[tuple[Any, ...]]()
    for spec in walked(copy(protocol)):
        stated = spec.event, spec.randomizer, spec.query, spec.cohort
        if any(all(map(_same, stated, each)) for each in seen[-2:]):
            continue
        seen.append(stated)
        known &= checked_event(*stated, protocol.honest_fraction)
        most = math.ceil(protocol.honest_fraction * spec.cohort.size - 1e-9)
        if (honest := getattr(spec.event, "honest", 0)) > most:
            raise LawError(f"an event counts on {honest:,} honest users, there are {most:,}")
        if protocol.honest_fraction < 1 and spec.minimum < honest:
            raise LawError(f"{spec.minimum:,} reports are released, {honest:,} are counted on")
    check_curves((event for event, *_ in seen), protocol.delta)
    if protocol.claim is None:
        charges = [Charge(each.cohort, each.event) for each in walked(copy(protocol))]
        costs = worst_of((*charges,) * runs, protocol.delta)
        epsilon = stated_epsilon(protocol, runs)
        if not epsilon >= costs * (1 - 1e-9):
            raise LawError(f"all rounds cost {costs:.6g} together, stated is epsilon {epsilon:.6g}")
    if not known:
        raise UncheckedError(UNCHECKED)


def check_rounds(found: Result, protocol: Protocol[Any]) -> None:
    """A run charges all rounds, where these do not depend on answers.

    Raises:
        LawError: it does not.
    """
    if protocol.protects is not None and found.unit is not protocol.protects:
        raise LawError(f"what is stated of one {protocol.protects} is called one {found.unit}'s")
    if not protocol.adaptive and protocol.claim is None:
        planned = [Charge(each.cohort, each.event) for each in walked(copy(protocol))]
        check_charged(found, planned)
        honest = found.reports.asked - found.reports.corrupted
        if found.rounds == 1:  # of several it is not known when they were honest
            least = [Charge(each.cohort, each.event.with_honest(honest)) for each in planned]
            costs = worst_of(tuple(least), found.privacy.delta)
            if not found.privacy.epsilon >= costs * (1 - 1e-9):
                raise LawError(
                    f"with {honest:,} honest reports the round costs {costs:.6g}, stated is "
                    f"epsilon {found.privacy.epsilon:.6g}"
                )
        fewer = honest < protocol.honest_fraction * found.reports.asked * (1 - 1e-9)
        counted = any(getattr(each.event, "honest", 0) > 1 for each in planned)
        if fewer and counted and not found.privacy.epsilon > found.promised.epsilon:
            raise LawError(
                f"{honest:,} of {found.reports.asked:,} reports are honest, and the run states no "
                f"more than was promised, epsilon {found.promised.epsilon:.6g}"
            )


def check_charged(found: Result, planned: Iterable[Charge]) -> None:
    """A run charges all that it asks for, and states no smaller epsilon than that costs.

    Raises:
        LawError: it does not.
    """
    charges = tuple(planned)
    left = Counter(charges) - Counter(found.ledger.charges)
    if left:
        raise LawError(f"{left.total():,} of {len(charges):,} releases are not charged")
    for stated in (found.promised, found.privacy):
        costs = worst_of(charges, stated.delta)
        if not stated.epsilon >= costs * (1 - 1e-9):
            raise LawError(
                f"the run states epsilon {stated.epsilon:.6g}, its releases cost {costs:.6g}"
            )


def worst_of(charges: tuple[Charge, ...], delta: float) -> float:
    """The largest epsilon of a user, by all releases that ask it; no ledger is believed."""
    edges = sorted({edge for each in charges for span in each.cohort.ranges for edge in span})
    histories: set[frozenset[tuple[PrivacyEvent, int]]] = {
        frozenset(Counter(each.event for each in charges if any(each.cohort.within(*ends))).items())
        for ends in pairwise(edges)
    }
    found = 0.0
    for history in histories:
        accountant = ShuffleAccountant()
        for event, count in history:
            accountant.compose(event, count)
        epsilon = accountant.get_epsilon(delta)
        curves: list[Any] = [partial(least_delta, history)]
        if len({type(event) for event, _ in history}) == 1:
            # Of several kinds both curves are proven, by other shares: no inverse of each other.
            curves.append(accountant.get_delta)
        for left in (curve(epsilon) for curve in curves if math.isfinite(epsilon)):
            if left > delta * (1 + _CURVE):
                raise LawError(f"at epsilon {epsilon:.6g} delta is {left:.3g}, stated {delta:.3g}")
        found = max(found, epsilon)
    return found


def _same(one: Any, other: Any) -> bool:
    return one is other


def check_event(event: PrivacyEvent, pair: tuple[Floats, Floats]) -> None:
    """epsilon of two neighbours by the randomizer's own laws is at most the event's.

    Args:
        event: as it is charged.
        pair: laws of what a user sends, of two data as far apart as neighbours can be.

    Raises:
        LawError: the event states less.
    """
    if isinstance(event, BlanketEvent):  # what is summed here hides which symbols come
        common = float(np.minimum(*pair).min())
        if common < event.gamma / event.symbols * (1 - 1e-9):
            raise LawError(f"a blanket of {event.symbols} symbols is charged, one has {common:.4g}")
    honest = min(HONEST, getattr(event, "honest", HONEST))
    small: Any = event.with_honest(honest)
    small = getattr(small, "of_one", small)  # the pair is of one number
    rest = summed([(pair[0], honest - 1)])
    found = [summed([(rest, 1), (each, 1)]) for each in pair]
    size = max(map(len, found))
    p, q = (np.pad(each, (0, size - len(each))) for each in found)
    theorem = theorem_of(type(small))
    for delta in _DELTAS:
        least = max(_least_epsilon(p, q, delta), _least_epsilon(q, p, delta))
        stated = theorem.exact(small, delta)
        if stated is None:
            stated = ShuffleAccountant().compose(small).get_epsilon(delta)
        # Accountants on grids round up, Fourier transforms either way: room for those.
        if stated < least * (1 - 1e-3) - 1e-4:
            raise LawError(
                f"of {honest} users at delta {delta:g}: the event states {stated:.4f}, the "
                f"randomizer has {least:.4f}"
            )
    _check_again(small, p, q)


def _check_again(event: PrivacyEvent, p: Floats, q: Floats) -> None:
    """Many releases cost at least what many of this pair do."""
    accountant = ShuffleAccountant().compose(event, _AGAIN)
    for delta in (*_DELTAS, _RARE):
        epsilon = accountant.get_epsilon(delta)
        if not 0 < epsilon < math.inf:
            continue
        # What is next to nothing is a transform's rounding: of the first law it is left out, and of
        # the second it may be more. Both let less be told.
        pairs = (
            (np.where(one > _LEAST, one, 0.0), np.maximum(other, _LEAST / 100), _AGAIN)
            for one, other in ((p, q), (q, p))
        )
        least = max(repeated([pair], epsilon) for pair in pairs)
        if least > delta * (1 + _CURVE):
            raise LawError(
                f"{_AGAIN} such releases state delta {delta:g} at {epsilon:.6g}: it is {least:.3g}"
            )


def _least_epsilon(p: Floats, q: Floats, delta: float) -> float:
    """The least epsilon with sum (p - e^epsilon q)+ <= delta; at most 50."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if hockey(p, q, middle) <= delta else (middle, high)
    return high


def check_beside(found: Result, other: Result) -> None:
    """Two runs on different rows tell the same beside their values, where they have as many rounds.

    Raises:
        LawError: what is shown of a result follows from rows.
    """
    if found.rounds != other.rounds:
        return  # as views may decide
    for name in _BESIDE:
        if plain(getattr(found, name)) != plain(getattr(other, name)):
            raise LawError(f"what a result states as its {name} follows from rows")


def ordered(
    protocol: Protocol[Any], theorem: float, exact: float | None, seen: Seen | None, alarm: float
) -> Check:
    """One round's exact epsilon is a lower bound of the whole run's; so is the empirical one."""
    name = ORDERED.name
    if seen is None:
        return Check(name, None, "no value that a user may send could be made for its canaries")
    sure, lower = seen.epsilon(alarm), exact if exact is not None else 0.0
    # What is exact speaks of a pair in one coordinate; a canary may move in several.
    single = protocol.claims_sequential and seen.single
    fine = theorem * (1 + 1e-9) >= max(lower, sure) and (
        not single or exact is None or sure <= exact * 1.02 + 1e-3
    )
    words = f"theorem {theorem:.4f}, exact {lower:.4f}, empirical {seen.epsilon():.4f}"
    if fine and seen.open_at(theorem, alarm):
        return Check(name, None, f"the bound is above what is stated, not for sure: {words}")
    return Check(name, fine, "" if fine else words)


def stated_epsilon(protocol: Protocol[Any], runs: int = 1) -> float:
    """epsilon of so many whole runs, their rounds planned on the way that no data would give."""
    if protocol.claim is not None:
        return runs * protocol.claim.epsilon
    ledger = PrivacyLedger()
    for spec in [*walked(protocol)] * runs:
        ledger.charge(spec.cohort, spec.event)
    return ledger.guarantee(protocol.delta, settled=False).epsilon
