"""One budget for several parts of a run: what each gets, and what all of them really spend."""

import math
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, TypeVar

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds.gaussian import epsilon_gdp, mu_of
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.task import walked

_PASSES, _CREEP = 60, 0.9995  # of the search for a budget that fits

Kind = TypeVar("Kind")


def rest(privacy: Privacy, spent: Privacy) -> Privacy:
    """What is left beside a part that spends less, as Gaussian releases compose."""
    # The mu^2 of Gaussian releases add up.
    left = mu_of(privacy.epsilon, privacy.delta) ** 2 - mu_of(spent.epsilon, spent.delta) ** 2
    return Privacy(epsilon_gdp(privacy.delta, math.sqrt(left)), privacy.delta)


def each_of(privacy: Privacy, count: int) -> Privacy:
    """What each of `count` equal parts gets, as Gaussian releases compose."""
    # count releases of mu^2/count each.
    mu = mu_of(privacy.epsilon, privacy.delta) / math.sqrt(count)
    return Privacy(epsilon_gdp(privacy.delta, mu), privacy.delta)


def charged(protocol: Protocol[Any]) -> list[tuple[Cohort, PrivacyEvent]]:
    """What a ledger of all planned rounds has."""
    return [(spec.cohort, spec.event) for spec in walked(copy(protocol))]


def spends(protocol: Protocol[Any]) -> float:
    """The epsilon that a ledger of all planned rounds shows, at the protocol's delta."""
    return _total(charged(protocol), protocol.delta)


def _total(charges: Iterable[tuple[Cohort, PrivacyEvent]], delta: float) -> float:
    ledger = PrivacyLedger()
    for cohort, event in charges:
        ledger.charge(cohort, event)
    return ledger.guarantee(delta).epsilon


def within(
    make: Callable[[Privacy], Kind],
    privacy: Privacy,
    first: Privacy,
    charges: Callable[[Any], Iterable[tuple[Cohort, PrivacyEvent]]] = charged,
) -> Kind:
    """What is made of parts such that a ledger shows at most the epsilon that is asked for.

    Args:
        make: makes it, from what its parts get.
        privacy: of the whole run.
        first: what the parts get at most; less is tried until the ledger agrees.
        charges: of its ledger.

    Raises:
        ParameterError: nothing that was tried fits.
    """
    epsilon = first.epsilon
    for _ in range(_PASSES):
        made = make(Privacy(epsilon, first.delta))
        total = _total(charges(made), privacy.delta)
        if total <= privacy.epsilon:
            return made
        # In proportion to what is too much, and a little
        # less: composed, epsilon is no straight line.
        epsilon *= _CREEP * privacy.epsilon / total
    raise ParameterError("epsilon", privacy.epsilon, "larger: the parts of this run do not fit")
