"""Export to Google's dp_accounting (extra `accounting`), so that users compose our runs with
theirs.

dp_accounting states Gaussian events for unit sensitivity, and its accountants disagree on what
replace-one makes of that (PLD doubles the sensitivity, RDP does not). What is exported here already
is the replace-one pair: compose it in an accountant for ADD_OR_REMOVE_ONE, where the event means
exactly N(0, 1) against N(1/noise_multiplier, 1).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError, positive, real
from shuffle_sim.privacy.bounds.binomial import lower_tail, upper_tail
from shuffle_sim.privacy.events import BinomialSumEvent, PrivacyEvent
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.theorems import by_theorem, theorem_of

_MARGIN = 1e-9  # discretised losses may land this far below the truth


@dataclass(frozen=True)
class DominatingGaussian:
    """A Gaussian event that dominates a run, but for `delta`, which is to be added to whatever
    delta the accountant finds.

    Attributes:
        event: a dp_accounting GaussianDpEvent; compose it with relation ADD_OR_REMOVE_ONE.
        delta: probability that is given up: the tail of the rounding and what the domination lemma
            reveals.
    """

    event: Any
    delta: float


def to_gaussian_event(ledger: PrivacyLedger, *, tail: float = 1e-9) -> DominatingGaussian:
    """The Gaussian event that dominates a whole run for its worst-off user.

    Args:
        ledger: of the run.
        tail: probability given up for the rounding's tail; see `rounding.mu_of_rounds`.

    Raises:
        ParameterError: if a release is not private, or has too little noise for the domination
            lemma.
    """
    import dp_accounting

    real("tail", tail, 0.0, 1.0, closed=(False, False))
    # mu and what is given up may be worst for different users: both at their worst cover all.
    worst, given_up = 0.0, 0.0
    for _, events in ledger.users():
        groups = by_theorem(events.items())
        found = [theorem.gaussian(each, tail / len(groups)) for theorem, each in groups]
        worst = max(worst, math.hypot(*(mu for mu, _ in found)))
        given_up = max(given_up, sum(extra for _, extra in found))
    if not 0 < worst < math.inf:
        raise ParameterError("ledger", worst, "of releases that a Gaussian dominates")
    return DominatingGaussian(dp_accounting.GaussianDpEvent(1 / worst), given_up)


def to_pld(event: PrivacyEvent, *, interval: float = 1e-4) -> Any:
    """The privacy loss distribution of one release, in both directions.

    A scalar binomial sum is exact but for the discretisation, which is pessimistic: losses are
    rounded up, tails beyond 1e-15 count as revealed, and 1e-9 is added to every loss (dp_accounting
    keeps one direction by default, and loses). Of other events, what their theorem states of one
    release: (epsilon, delta) as randomised response, or the mu of a Gaussian pair.

    Args:
        event: one release.
        interval: discretisation of the losses.

    Raises:
        ParameterError: the event's theorem states neither.
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    positive("interval", interval)
    theorem = theorem_of(type(event))
    if isinstance(event, BinomialSumEvent) and event.coordinates == 1:
        return _binomial_pld(event, interval)
    if (step := theorem.approximate(event)) is not None:
        stated = common.DifferentialPrivacyParameters(*step)
        return pld.from_privacy_parameters(stated, value_discretization_interval=interval)
    if (mu := theorem.mu(event)) < math.inf:
        return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    allowed = "a scalar binomial sum, or one whose theorem states (epsilon, delta) or mu"
    raise ParameterError("event", event, allowed)


def _binomial_pld(event: BinomialSumEvent, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    m, p, shift = event.trials, event.p, event.steps
    # What lies beyond is missing in the sum of masses, so `_losses` counts it as revealed.
    reach = 9 * math.sqrt(m * p * (1 - p)) + 40
    j = np.arange(max(0, math.floor(m * p - reach)), min(m, math.ceil(m * p + reach)) + 1)
    # The mass of one count is the ratio of neighbouring tails' difference: taken from the smaller
    # tail, it is accurate.
    below = lower_tail(j, m, p) - lower_tail(j - 1, m, p)
    above = upper_tail(j, m, p) - upper_tail(j + 1, m, p)
    mass = np.where(j < m * p, below, above)
    forward, forward_revealed = _losses(
        mass, np.log(mass[shift:] / mass[:-shift]), slice(shift, None), interval
    )
    backward, backward_revealed = _losses(
        mass, np.log(mass[:-shift] / mass[shift:]), slice(None, -shift), interval
    )
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        forward, forward_revealed, interval, True, backward, backward_revealed, symmetric=False
    )


def _losses(
    mass: NDArray[np.float64], loss: NDArray[np.float64], seen: slice, interval: float
) -> tuple[dict[int, float], float]:
    """Losses rounded up to multiples of the interval, and the mass of counts that only one of the
    pair can give.
    """
    steps = np.ceil((loss + _MARGIN) / interval).astype(int)
    values, places = np.unique(steps, return_inverse=True)
    weights = np.bincount(places, mass[seen])
    revealed = max(0.0, 1.0 - float(weights.sum())) + 1e-15
    return dict(zip(values.tolist(), weights.tolist(), strict=True)), revealed
