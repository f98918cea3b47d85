"""Export to dp_accounting, and agreement with its PLD brackets where both apply."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from protocols import ScalarSum, VectorSum
from shuffle_sim import ParameterError, run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import binomial
from shuffle_sim.privacy.events import BinomialSumEvent, NonPrivateEvent
from shuffle_sim.privacy.export import to_gaussian_event, to_pld
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Datum


@pytest.mark.parametrize(
    ("m", "p", "shift", "delta"),
    [(2000, 0.5, 10, 1e-6), (50_000, 0.01, 8, 1e-6), (20_000, 0.5, 40, 1e-8)],
)
@pytest.mark.full
def test_the_exported_pld_brackets_the_exact_epsilon_from_above(m, p, shift, delta):
    exact = binomial.epsilon(m, p, shift, delta)
    found = to_pld(BinomialSumEvent(m, 1, p, shift)).get_epsilon_for_delta(delta)
    assert exact <= found <= exact + 2e-4
    # and dp_accounting's own two brackets around the same pair agree
    j = np.arange(m + 1)
    log = binom.logpmf(j, m, p)
    here = {int(k): float(v) for k, v in zip(j, log, strict=True) if v > -600}
    there = {k + shift: v for k, v in here.items()}
    both = [
        pld.from_two_probability_mass_functions(
            there, here, pessimistic_estimate=pessimistic, symmetric=False
        )
        for pessimistic in (True, False)
    ]
    high, low = (b.get_epsilon_for_delta(delta) for b in both)
    assert low - 1e-8 <= exact <= high + 1e-8


def test_the_symmetric_default_would_lose_a_direction():
    m, p, shift, delta = 50_000, 0.01, 8, 1e-6
    there, here = (
        {
            int(k) + s: float(v)
            for k, v in zip(range(400, 700), binom.logpmf(range(400, 700), m, p), strict=True)
        }
        for s in (shift, 0)
    )
    directions = [
        pld.from_two_probability_mass_functions(*pair).get_epsilon_for_delta(delta)
        for pair in ((there, here), (here, there))
    ]
    exact = binomial.epsilon(m, p, shift, delta)
    assert min(directions) < exact - 1e-3
    assert to_pld(BinomialSumEvent(m, 1, p, shift)).get_epsilon_for_delta(delta) >= exact


def test_composed_scalar_plds_stay_below_our_composition():
    event = BinomialSumEvent(4000, 5, 0.5, 20)
    theirs = to_pld(event).self_compose(10).get_epsilon_for_delta(1e-6)
    ours = ShuffleAccountant().compose(event, 10).get_epsilon(1e-6)
    assert theirs <= ours * 1.001
    assert ours <= theirs * 1.02


@pytest.mark.full
def test_the_exported_gaussian_dominates_the_run():
    protocol = VectorSum(n=4000, d=5, g=30, b=20)
    result = run(protocol, np.zeros((4000, 5)))
    exported = to_gaussian_event(result.ledger)
    accountant = pld_privacy_accountant.PLDAccountant(
        dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    accountant.compose(exported.event)
    theirs = accountant.get_epsilon(protocol.delta - exported.delta)
    assert result.privacy.epsilon <= theirs * 1.001 < 1.5 * result.privacy.epsilon
    assert 0 < exported.delta < 1e-8


def test_a_ledger_of_many_rounds_exports_its_worst_user():
    event = BinomialSumEvent(10_000, 600, 0.5, 9, 10)
    ledger = PrivacyLedger()
    for _ in range(20):
        ledger.charge(Cohort.of(0, 10_000), event)
    ledger.charge(Cohort.of(0, 5_000), event)
    multiplier = to_gaussian_event(ledger).event.noise_multiplier
    alone = PrivacyLedger()
    alone.charge(Cohort.of(0, 10_000), event)
    assert multiplier == pytest.approx(
        to_gaussian_event(alone).event.noise_multiplier / math.sqrt(21), rel=0.3
    )


def test_what_cannot_be_exported_is_refused():
    ledger = PrivacyLedger()
    ledger.charge(Cohort.of(0, 10), NonPrivateEvent())
    with pytest.raises(ParameterError):
        to_gaussian_event(ledger)
    with pytest.raises(ParameterError):
        to_gaussian_event(PrivacyLedger())
    for event in (BinomialSumEvent(100, 1, 0.5, 3, 2), NonPrivateEvent()):
        with pytest.raises(ParameterError, match="theorem states"):
            to_pld(event)
    assert ScalarSum(n=10, g=2, b=3).randomizer.event(10, Datum()).coordinates == 1
