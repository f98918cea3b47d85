"""Accountant, ledger and the paper's bounds."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy import sum_theorems as rules
from shuffle_sim.privacy.accountant import MIXED, ShuffleAccountant
from shuffle_sim.privacy.bounds import binomial, paper
from shuffle_sim.privacy.bounds.gaussian import epsilon_gdp
from shuffle_sim.privacy.central_theorems import GaussianTheorem, NonPrivate
from shuffle_sim.privacy.events import (
    BinomialSumEvent,
    GaussianEvent,
    NonPrivateEvent,
    PrivacyEvent,
)
from shuffle_sim.privacy.ledger import PrivacyLedger

SCALAR = BinomialSumEvent(1000, 20, 0.5, 10)
VECTOR = BinomialSumEvent(10_000, 14, 0.5, 44, 10)


def epsilon(*events: tuple[PrivacyEvent, int], delta: float = 1e-6) -> float:
    accountant = ShuffleAccountant()
    for event, count in events:
        accountant.compose(event, count)
    return accountant.get_epsilon(delta)


def test_each_rule_is_named_and_used():
    cases: list[tuple[list[tuple], str]] = [
        ([(SCALAR, 1)], rules.EXACT),
        ([(VECTOR, 1)], rules.ONE_ROUND),
        ([(VECTOR, 3)], rules.MANY_ROUNDS),
        ([(VECTOR, 1), (SCALAR, 1)], rules.MANY_ROUNDS),
        ([(GaussianEvent(4.0), 7)], GaussianTheorem.source),
        ([(BinomialSumEvent(300, 4, 0.01, 2, 2), 1)], rules.BASIC),
        ([(BinomialSumEvent(3, 4, 0.5, 2, 2), 1)], rules.BASIC + rules.FEW_COINS),
        ([(BinomialSumEvent(10, 10, 0.5, 2, 2), 1)], rules.ONE_ROUND + rules.FEW_COINS),
        ([(NonPrivateEvent(), 2)], NonPrivate.source),
        (
            [(VECTOR, 1), (NonPrivateEvent(), 1)],
            f"{MIXED}: {rules.ONE_ROUND}; {NonPrivate.source}",
        ),
    ]
    for events, basis in cases:
        accountant = ShuffleAccountant()
        for event, count in events:
            accountant.compose(event, count)
        assert accountant.basis == basis


def test_a_single_scalar_release_is_exact():
    assert epsilon((SCALAR, 1)) == binomial.epsilon(20_000, 0.5, 10, 1e-6)


def test_gaussian_events_compose_exactly():
    assert epsilon((GaussianEvent(5.0), 100)) == pytest.approx(10.997151214220651, abs=1e-9)


def test_composition_grows_and_never_undercuts_the_limit():
    sigma = math.sqrt(35_000)
    last = 0.0
    for rounds in (1, 2, 5, 50):
        found = epsilon((VECTOR, rounds))
        assert found > max(last, epsilon_gdp(1e-6, 44 / sigma * math.sqrt(rounds)))
        last = found


@pytest.mark.full
def test_mixed_rounds_cost_more_than_each_alone():
    both = epsilon((VECTOR, 1), (GaussianEvent(5.0), 1))
    assert both > max(epsilon((VECTOR, 1)), epsilon((GaussianEvent(5.0), 1)))


@settings(max_examples=40, deadline=None)
@given(
    honest=st.integers(20, 2000),
    bits=st.integers(1, 40),
    steps=st.integers(1, 30),
    d=st.integers(1, 5),
    count=st.integers(1, 4),
    target=st.floats(0.05, 5.0),
)
# The total variations near a first, larger delta are not those near the least one.
@example(honest=40, bits=10, steps=6, d=5, count=3, target=0.8125)
@pytest.mark.full
def test_get_delta_and_get_epsilon_agree(honest, bits, steps, d, count, target):
    accountant = ShuffleAccountant().compose(BinomialSumEvent(honest, bits, 0.5, steps, d), count)
    delta = accountant.get_delta(target)
    if 1e-8 < delta < 0.5:
        # Each is rounded up on its own; going around must not gain privacy, and not lose more than
        # a little.
        assert accountant.get_epsilon(delta * (1 - 1e-6)) >= target * (1 - 1e-3) - 1e-6
        assert accountant.get_epsilon(min(delta * 1.01, 0.9)) <= target * 1.01 + 1e-4


def test_fewer_honest_users_cost_epsilon():
    found = [epsilon((VECTOR.with_honest(honest), 1)) for honest in (10_000, 9_000, 5_000, 3_334)]
    assert found == sorted(found)
    assert VECTOR.with_honest(20_000) == VECTOR  # what was not counted on does not count
    assert math.isinf(epsilon((VECTOR.with_honest(0), 1)))


@pytest.mark.parametrize("event", [PrivacyEvent(), "sum", None])
def test_unknown_events_are_refused(event):
    with pytest.raises(ParameterError, match="event"):
        ShuffleAccountant().compose(event)
    with pytest.raises(ParameterError, match="event"):
        PrivacyLedger().charge(Cohort.of(0, 1), event)


@pytest.mark.parametrize("delta", [1.0, -1e-9, math.nan])
def test_deltas_out_of_range_are_refused(delta):
    with pytest.raises(ParameterError):
        ShuffleAccountant().compose(VECTOR).get_epsilon(delta)


def test_a_delta_that_cannot_be_certified_gives_no_epsilon():
    assert math.isinf(epsilon((VECTOR, 1), delta=1e-60))
    assert epsilon((VECTOR, 1), delta=1e-12) < epsilon((VECTOR, 1), delta=1e-40) < 10


def test_disjoint_cohorts_compose_in_parallel_others_not():
    one = epsilon((VECTOR, 1))
    ledger = PrivacyLedger()
    for start in range(0, 50_000, 10_000):
        ledger.charge(Cohort.of(start, start + 10_000), VECTOR)
    assert ledger.guarantee(1e-6).epsilon == one
    assert ledger.sequentially_interactive
    # Users 10,000 to 19,998 a second time, 9,999 too.
    ledger.charge(Cohort.of(9_999, 19_999), VECTOR)
    assert ledger.guarantee(1e-6).epsilon == epsilon((VECTOR, 2)) > one
    assert not ledger.sequentially_interactive


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=8))
def test_the_ledger_finds_every_users_history(spans):
    ledger = PrivacyLedger()
    for start, length in spans:
        ledger.charge(Cohort.of(start, start + length), SCALAR)
    counts = [sum(start <= user < start + length for start, length in spans) for user in range(45)]
    assert max(sum(events.values()) for _, events in ledger.users()) == max(counts)
    for first, events in ledger.users():
        assert sum(events.values()) == counts[first]


def test_a_protocol_that_wrongly_claims_sequential_is_caught():
    ledger = PrivacyLedger(sequential=True)
    ledger.charge(Cohort.of(0, 100), VECTOR)
    ledger.charge(Cohort.of(100, 200), VECTOR)
    with pytest.raises(ParameterError, match="sequential"):
        ledger.charge(Cohort.of(199, 300), VECTOR)
    assert len(ledger.charges) == 3  # refused, but never uncounted


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=3),
        max_size=12,
    )
)
@settings(deadline=None)
def test_a_sequential_ledger_refuses_to_ask_somebody_again(cohorts):
    """Against a set of users, in any order and with gaps."""
    ledger, asked = PrivacyLedger(sequential=True), set()
    for parts in cohorts:
        users = {user for start, size in parts for user in range(start, start + size)}
        starts = sorted(user for user in users if user - 1 not in users)
        stops = sorted(user + 1 for user in users if user + 1 not in users)
        cohort = Cohort(tuple(zip(starts, stops, strict=True)))
        if users & asked:
            with pytest.raises(ParameterError, match="sequential"):
                ledger.charge(cohort, VECTOR)  # refused, but counted
        else:
            ledger.charge(cohort, VECTOR)
        asked |= users
        assert ledger.sequentially_interactive is (
            sum(each.cohort.size for each in ledger.charges) == len(asked)
        )


def test_a_charge_counts_even_if_the_round_never_settles():
    ledger = PrivacyLedger()
    ledger.charge(Cohort.of(0, 10_000), VECTOR)
    assert ledger.guarantee(1e-6).epsilon == epsilon((VECTOR, 1))
    ledger.settle(5_000)
    assert ledger.guarantee(1e-6).epsilon == epsilon((VECTOR.with_honest(5_000), 1))
    assert ledger.guarantee(1e-6, settled=False).epsilon == epsilon((VECTOR, 1))


def test_the_papers_constants():
    chosen = paper.theorem_3_2(10_000, 10, 1.0, 1e-6)
    assert (chosen.g, chosen.b) == (200, 63_945_036)
    assert 0.4999 < chosen.p < 0.5
    scalar = paper.lemma_3_1(10_000, 1.0, 1e-6)
    assert scalar.g == 100
    assert scalar.b == math.floor(180 * 100**2 * math.log(2e6) / 10_000) + 1
    assert paper.robust_epsilon(0.9, 1 / 3) == pytest.approx(2.7)


def test_the_papers_bounds_are_valid_where_they_apply():
    for n, epsilon_asked in ((100, 0.5), (10_000, 1.0), (2500, 10.0)):
        chosen = paper.lemma_3_1(n, epsilon_asked, 1e-6)
        assert binomial.epsilon(n * chosen.b, chosen.p, chosen.g, 1e-6) <= epsilon_asked


def test_the_hidden_condition_of_lemma_3_1_is_enforced():
    # g = 4, epsilon = 15: a = epsilon/(3 g) = 1.25, where the proof's inequality is false though
    # epsilon <= 15.
    with pytest.raises(ParameterError, match="proof"):
        paper.lemma_3_1(16, 15.0, 1e-6)
    assert paper.lemma_3_1(16, 15.0, 1e-6, g=6).g == 6


def test_the_papers_budget_split():
    each, share = paper.interactive_budget(1.0, 1e-6, 1000)
    assert each == pytest.approx(1 / (2 * math.sqrt(2000 * math.log(1e6))))
    assert share == pytest.approx(1e-6 / 1001)
    with pytest.raises(ParameterError, match="spend"):
        paper.interactive_budget(1.0, 0.1, 10_000)


@pytest.mark.parametrize(
    "call",
    [
        lambda: paper.theorem_3_2(100, 2, 15.1, 1e-6),
        lambda: paper.theorem_3_2(100, 2, 1.0, 0.5),
        lambda: paper.lemma_3_1(100, 1.0, 1e-6, g=9),
        lambda: paper.robust_epsilon(1.1, 0.5),
        lambda: paper.robust_epsilon(0.5, 0.33),
        lambda: BinomialSumEvent(10, 10, 0.51, 1),
        lambda: BinomialSumEvent(0, 10, 0.5, 1),
        lambda: GaussianEvent(0.0),
    ],
)
def test_outside_a_theorems_range_is_refused(call):
    with pytest.raises(ParameterError):
        call()
