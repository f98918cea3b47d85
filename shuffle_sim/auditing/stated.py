"""What is stated: events by the randomizers' own laws, and the order of the three epsilons."""

import math
from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.empirical import Seen
from shuffle_sim.auditing.plan import Check, CheckStep, Planned, UncheckedError
from shuffle_sim.auditing.scores import summed
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.ledger import Charge, PrivacyLedger
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.binding import UNCHECKED, checked_event
from shuffle_sim.protocol.task import walked

HONEST = 60
"""Users, at most, in the comparison of an event's law with the randomizer's."""
_DELTAS = (1e-2, 1e-4)  # of it: where Fourier transforms keep their digits
ORDERED = Planned(
    "theorem >= exact >= empirical lower bound",
    "canaries in whole runs",
    "8,000 pairs of samples, or 20,000 for thresholds; fewer of long runs",
    "half the noise, whatever the reason",
)


def bound(protocol: Protocol[Any]) -> CheckStep:
    """The check that the events of all rounds are those of their randomizers."""
    planned = Planned(
        "the event is the one that the randomizer derives",
        "the events of all rounds, as they are planned",
        "exact",
        "an event of more noise, of other values or of more honest users",
    )
    return CheckStep(planned, partial(check_bound, protocol))


def check_bound(protocol: Protocol[Any]) -> None:
    """The events of all rounds are their randomizers'.

    Raises:
        ParameterError: one is not, and why.
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
    if not known:
        raise UncheckedError(UNCHECKED)


def check_rounds(found: Result, protocol: Protocol[Any]) -> None:
    """A run charges all rounds, where these do not depend on answers.

    Raises:
        LawError: it does not.
    """
    if not protocol.adaptive and protocol.claim is None:
        planned = [Charge(each.cohort, each.event) for each in walked(copy(protocol))]
        check_charged(found, planned)
        honest = found.reports.asked - found.reports.corrupted
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
    ledger, stated = PrivacyLedger(), found.promised
    for each in charges:
        ledger.charge(each.cohort, each.event)
    costs = ledger.guarantee(stated.delta, settled=False).epsilon
    if not stated.epsilon >= costs * (1 - 1e-9):
        raise LawError(
            f"the run states epsilon {stated.epsilon:.6g}, its releases cost {costs:.6g}"
        )


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
    honest = min(HONEST, getattr(event, "honest", HONEST))
    small = event.with_honest(honest)
    rest = summed([(pair[0], honest - 1)])
    found = [summed([(rest, 1), (each, 1)]) for each in pair]
    size = max(map(len, found))
    p, q = (np.pad(each, (0, size - len(each))) for each in found)
    theorem = theorem_of(type(small))
    for delta in _DELTAS:
        least, stated = max(_hockey(p, q, delta), _hockey(q, p, delta)), theorem.exact(small, delta)
        if stated is None:
            stated = ShuffleAccountant().compose(small).get_epsilon(delta)
        # Accountants on grids round up, Fourier transforms either way: room for those.
        if stated < least * (1 - 1e-3) - 1e-4:
            raise LawError(
                f"of {honest} users at delta {delta:g}: the event states {stated:.4f}, the "
                f"randomizer has {least:.4f}"
            )


def _hockey(p: Floats, q: Floats, delta: float) -> float:
    """The least epsilon with sum (p - e^epsilon q)+ <= delta; at most 50."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        over = float(np.maximum(p - np.exp(middle) * q, 0.0).sum())
        low, high = (low, middle) if over <= delta else (middle, high)
    return high


def ordered(
    protocol: Protocol[Any], theorem: float, exact: float | None, seen: Seen | None, alarm: float
) -> Check:
    """One round's exact epsilon is a lower bound of the whole run's; so is the empirical one."""
    name = ORDERED.name
    if seen is None:
        return Check(name, None, "no value that a user may send could be made for its canaries")
    sure, lower = seen.counted(alarm), exact if exact is not None else 0.0
    # What is exact speaks of a pair in one coordinate; a canary may move in several.
    single = protocol.claims_sequential and seen.single
    fine = theorem * (1 + 1e-9) >= max(lower, sure) and (
        not single or exact is None or sure <= exact * 1.02 + 1e-3
    )
    words = f"theorem {theorem:.4f}, exact {lower:.4f}, empirical {seen.epsilon():.4f}"
    return Check(name, fine, "" if fine else words)


def stated_epsilon(protocol: Protocol[Any]) -> float:
    """epsilon of the whole run, its rounds planned on the way that no data would give."""
    if protocol.claim is not None:
        return protocol.claim.epsilon
    ledger = PrivacyLedger()
    for spec in walked(protocol):
        ledger.charge(spec.cohort, spec.event)
    return ledger.guarantee(protocol.delta, settled=False).epsilon
