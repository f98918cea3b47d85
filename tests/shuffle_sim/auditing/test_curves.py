"""What events cost, beside formulas of known pairs."""

import math

import pytest

from protocols.comparison.games import game_of
from protocols.comparison.named import named_protocol
from shuffle_sim import Privacy
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.claims import curves
from shuffle_sim.auditing.claims.curves import _alone, _pure_of, check_curves, least_delta
from shuffle_sim.auditing.claims.stated import check_bound, check_event
from shuffle_sim.auditing.curator.curated import Runs
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.privacy.counts import FixedBlanketEvent, PollutionEvent
from shuffle_sim.privacy.events import (
    BlanketEvent,
    GammaEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    PureObjectiveEvent,
    RangeEvent,
)
from shuffle_sim.roles import Shuffler, UserShard

EVENTS: list[tuple[PrivacyEvent, float]] = [
    (GaussianEvent(2.0), 1.0),
    (PureEvent(2.0, ""), 1.0),
    (LaplaceEvent(1.5), 1.0),
    (GammaEvent(1.3, 1), 0.99),
    (GammaEvent(1.3, 5), 0.99),
    (GammaEvent(2.0, 200), 0.99),
    (BlanketEvent(honest=400, gamma=0.17, symbols=4), 0.9),
    (FixedBlanketEvent(honest=200, each=1, bins=4), 0.999),
    (PollutionEvent(honest=100, planned=100, rates=(10.0,)), 0.999),
    (PollutionEvent(honest=90, planned=100, rates=(12.0,), batch=2, kept_back=0.1), 0.999),
    (PollutionEvent(honest=90, planned=100, rates=(9.0, 20.0)), 0.97),
    (PollutionEvent(honest=90, planned=100, rates=(9.0, 9.0, 9.0)), 0.97),
    (PollutionEvent(honest=3000, planned=3000, rates=(12.0,), batch=4), 0.999),
    (ShuffledEvent(300, 2.5), 0.999),
    (ShuffledEvent(400, 3.0, 0.01, 0.5), 0.8),
    (RangeEvent(1.0, ""), 0.0),  # a single one is charged as what is pure
    (RangeEvent(3.0, ""), 0.0),
    (ObjectiveEvent(4.5, 0.025, 0.01), 0.0),
]
UNKNOWN = PollutionEvent(honest=1000, planned=1000, rates=(900.0,), batch=2)
PURE = [
    LaplaceEvent(1.5),
    GammaEvent(1.3, 5),
    PureEvent(2.0, ""),
    PureObjectiveEvent(0.5, 0.25, 0.005),
    PureObjectiveEvent(0.5, 0.25, 0.005, coupled=True),
]


@pytest.mark.parametrize(("event", "share"), EVENTS)
@pytest.mark.long_parameters("event7-*", "event8-*")
def test_formulas_are_what_theorems_say(event, share):
    """No more than what is stated, and of tight theorems no less."""
    check_curves([event], 1e-6)
    alone = ShuffleAccountant().compose(event)
    for level in (0.05, 0.01):
        found = _alone(event, alone.get_epsilon(level))
        assert share * level * (1 - 1e-3) <= found <= level * (1 + 1e-3)


@pytest.mark.parametrize("event", [event for event, share in EVENTS if share])
def test_an_event_that_costs_too_little_is_refused(event, monkeypatch):
    """15 % less of epsilon; settled numbers would see it first."""
    monkeypatch.setattr(curves, "check_settled", lambda kind: None)
    true = ShuffleAccountant.get_epsilon
    monkeypatch.setattr(ShuffleAccountant, "get_epsilon", lambda self, x: 0.85 * true(self, x))
    with pytest.raises(LawError, match="states delta"):
        check_curves([event], 1e-6)


TOGETHER: list[tuple[PrivacyEvent, int, float]] = [
    (GaussianEvent(20.0), 365, 0.999),
    (LaplaceEvent(0.1), 30, 0.5),
    (PureEvent(0.1, ""), 30, 0.95),
    (PollutionEvent(honest=100, planned=100, rates=(400.0,)), 30, 0.97),
    (FixedBlanketEvent(honest=2000, each=1, bins=4), 12, 0.97),
    (ShuffledEvent(5000, 2.0), 30, 0.9),
]


@pytest.mark.parametrize(("event", "count", "share"), TOGETHER)
def test_many_releases_cost_what_many_pairs_do(event, count, share):
    """Power: an accountant that leaves out one release in six is seen."""
    for delta in (1e-2, 1e-6):
        found = least_delta(
            ((event, count),), ShuffleAccountant().compose(event, count).get_epsilon(delta)
        )
        assert share * delta < found < delta * (1 + 1e-6)
        fewer = ShuffleAccountant().compose(event, count * 5 // 6).get_epsilon(delta)
        assert least_delta(((event, count),), fewer) > 1.1 * delta


@pytest.mark.parametrize(
    "event",
    [
        PureEvent(0.1, ""),
        PureEvent(5.0, ""),
        LaplaceEvent(1.0),
        BlanketEvent(honest=5, gamma=0.1, symbols=2),
        ShuffledEvent(2, 4.0),
        ShuffledEvent(300, 8.0),
        PollutionEvent(honest=1, planned=1, rates=(1.0,), kept_back=0.3),
    ],
)
@pytest.mark.parametrize("count", [2, 3, 30])
def test_losses_near_their_largest_are_no_alarm(event, count):
    """Split between points, some were larger than any: 1e-6 was said to be 2e-2."""
    for delta in (1e-2, 1e-4, 1e-6):
        epsilon = ShuffleAccountant().compose(event, count).get_epsilon(delta)
        if epsilon < math.inf:
            assert least_delta(((event, count),), epsilon) <= delta * (1 + 1e-6)


@pytest.mark.parametrize(
    ("name", "n", "epsilon"), [("single-message", 300, 8.0), ("scalar-sum", 300, 8.0)]
)
def test_reports_that_hide_little_are_no_alarm(name, n, epsilon):
    made = named_protocol(name, n, 1, Privacy(epsilon, 1e-6))
    spec = made.plan(made.init())
    check_event(spec.event, Checks(made, spec, 1, 1000, 1e-6, UserShard, Shuffler).moved_pair)


def test_a_ledger_of_few_releases_is_refused(monkeypatch):
    made = named_protocol("shuffle-gd", 300, 2, Privacy(1.0, 1e-6), rounds=18)
    check_bound(made)
    true = ShuffleAccountant.compose
    monkeypatch.setattr(
        ShuffleAccountant, "compose", lambda self, event, count=1: true(self, event, min(count, 12))
    )
    spec = made.plan(made.init())
    with pytest.raises(LawError, match="30 such releases state"):
        check_event(spec.event, Checks(made, spec, 1, 1000, 1e-6, UserShard, Shuffler).moved_pair)


def test_where_no_law_can_be_computed_nothing_is_demanded():
    """e^-900 is no double: the law was 0 everywhere, and any delta too small."""
    check_curves([UNKNOWN], 1e-6)


@pytest.mark.parametrize("event", PURE)
def test_a_pure_event_costs_the_largest_loss_of_its_pair(event, monkeypatch):
    """Power: 1 % less, where the Jacobian of 0.25 adds a fifth."""
    check_curves([event], 0.0)
    monkeypatch.setattr(curves, "check_settled", lambda kind: None)
    true = ShuffleAccountant.get_epsilon
    assert true(ShuffleAccountant().compose(event), 0.0) <= _pure_of(event) * 1.01

    def less(self, delta):
        return (1.0 if delta else 0.99) * true(self, delta)

    monkeypatch.setattr(ShuffleAccountant, "get_epsilon", less)
    with pytest.raises(LawError, match="at delta 0"):
        check_curves([event], 0.0)


def test_two_proven_curves_of_mixed_events_are_no_alarm():
    """Delta of their epsilon is 1.94 times what epsilon was asked for: both are upper bounds."""
    made, tables = game_of("centred-objective", 100, 2, Privacy(1.0, 1e-6))
    Runs(made, *tables["opposite"], {}).charged()
