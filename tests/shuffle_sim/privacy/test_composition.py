"""Composition of several kinds against discretised whole mechanisms, and theorems by contract."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outside import forget, installed
from scipy.special import expit, log_expit, log_ndtr, ndtr
from scipy.stats import binom

from shuffle_sim import ParameterError, ShuffleSimError
from shuffle_sim.auditing import LawError, check_theorem
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds.gaussian import mu_of
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import (
    BinomialSumEvent,
    GaussianEvent,
    GaussianPairEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    RangeEvent,
    SplitMixEvent,
)
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.theorems import Theorem, theorem_of
from shuffle_sim.registry import names


def pair(parts, cells=4001, reach=12.0):
    """Two laws on a grid: all revealing randomised responses of the steps, and the Gaussian."""
    edges = np.linspace(-reach, reach + parts.mu, cells)
    laws = [np.diff(ndtr(edges - shift)) for shift in (parts.mu, 0.0)] if parts.mu else [[1], [1]]
    here, there = (np.array(law, float) for law in laws)
    for e, d, count in parts.steps:
        w = expit(e)
        for _ in range(count):
            here = np.outer(here, [d, (1 - d) * w, (1 - d) * (1 - w), 0]).ravel()
            there = np.outer(there, [0, (1 - d) * (1 - w), (1 - d) * w, d]).ravel()
    return here, there


def hockey_stick(here, there, epsilon):
    return float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())


CASES = [
    Parts(((0.3, 2e-7, 1),), 0.15),
    Parts(((0.5, 0.0, 3),)),
    Parts(((0.2, 1e-3, 2), (0.7, 0.0, 1)), 0.8),
    Parts((), 1.3),
    Parts(((1.0, 0.05, 4),)),
]


@pytest.mark.parametrize("parts", CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_delta_is_the_whole_mechanism_s_in_both_directions(parts, epsilon):
    here, there = pair(parts)
    for found in (hockey_stick(here, there, epsilon), hockey_stick(there, here, epsilon)):
        assert parts.delta(epsilon) == pytest.approx(found, rel=2e-3, abs=1e-12)


def test_the_sheets_numbers_for_a_test_beside_a_gaussian():
    assert Parts(((0.3, 2e-7, 1),), 0.15).delta(1.0) == pytest.approx(2.369677e-7, rel=1e-5)
    for test, mu in (((0.3, 2e-7), 0.1728064), ((0.1, 2e-7), 0.2191053)):
        assert Parts(((*test, 1),), mu).epsilon(1e-6) == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 1.5), st.sampled_from([0.0, 1e-7]), st.integers(1, 5)),
        max_size=3,
    ),
    st.floats(0.0, 2.0),
)
@pytest.mark.full
def test_many_shifts_are_rounded_up_never_down(steps, mu):
    parts = Parts(tuple(steps), mu)
    for delta in (1e-8, 1e-5):
        epsilon = parts.epsilon(delta)
        assert parts.delta(epsilon) <= delta * (1 + 1e-8) or math.isinf(epsilon)
    here = Parts(tuple(steps) * 9, mu)  # more values of the sum than are kept apart
    few = Parts(tuple((e, d, 9 * count) for e, d, count in steps), mu)
    assert here.epsilon(1e-5) >= few.epsilon(1e-5) - 1e-9


@pytest.mark.parametrize("count", [5000, 2**40])
@pytest.mark.parametrize("reach", [0.5, 3.0])
def test_very_many_steps_are_rounded_up_by_little(count, reach):
    """They come near their Gaussian limit, of mu = e sqrt(count)."""
    step = reach / math.sqrt(count)
    many, limit = Parts(((step, 0.0, count),)), Parts((), reach)
    for delta in (1e-9, 1e-5, 1e-2):
        assert limit.epsilon(delta) * (1 - 2e-2) < many.epsilon(delta) < limit.epsilon(delta) * 1.03
    if count < 10**4:  # the exact law, by the sum over all of its values
        up = np.arange(count + 1.0)
        law, shifts = binom.pmf(up, count, expit(step)), (2 * up - count) * step
        for epsilon in (0.0, 1.0, 5.0):
            exact = law @ np.maximum(0.0, -np.expm1(epsilon - shifts))
            assert exact * (1 - 1e-9) <= many.delta(epsilon) <= exact * 1.1 + 1e-12


@pytest.mark.parametrize("pure", [1e-300, 1e-17, 1e-9, 1e-5, 0.01, 1.0, 20.0, 36.0, 37.0, 700.0])
def test_the_gaussian_of_a_pure_epsilon_dominates_its_response(pure):
    mu = theorem_of(LaplaceEvent).mu(LaplaceEvent(pure))
    if pure < 1e-5:  # TV is tanh(pure/4) or less, and 2 Phi(mu/2) - 1 of the Gaussian
        assert mu / math.sqrt(2 * math.pi) >= pure / 2 * (1 - 1e-12)
    assert log_ndtr(-mu / 2) <= log_expit(-pure) + 1e-15


@pytest.mark.parametrize(
    "event",
    [GaussianEvent(10.0**power) for power in (-200, -7, 6, 7, 9, 100, 200)]
    + [LaplaceEvent(10.0**power) for power in (-300, -17, -7, -6, 2, 200, 308)],
    ids=repr,
)
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_extreme_noise_has_bounds_that_are_each_others_inverse(event, count):
    made = ShuffleAccountant().compose(event, count)
    for delta in (1e-320, 1e-100, 1e-9, 0.5):
        epsilon = made.get_epsilon(delta)
        assert epsilon >= 0
        if epsilon < math.inf:
            assert made.get_delta(epsilon) <= delta * 1.01  # differences lose digits there
    assert 0 <= made.get_delta(0.1) <= 1


def test_an_accurate_secure_sum_is_not_said_to_be_pure():
    """Its messages are within 2^-s, which underflows, of those that are private."""
    secure = SplitMixEvent(10_000, 10_000, 0.02, 50, 250, 2**30)
    made = ShuffleAccountant().compose(secure)
    assert secure.security > 1100
    assert 0 < made.get_delta(2.0) < 1e-290
    assert math.isinf(made.get_epsilon(0.0))


def accountant(*events):
    made = ShuffleAccountant()
    for event in events:
        made.compose(event)
    return made


KINDS = [
    BinomialSumEvent(10_000, 14, 0.5, 44, 10),
    BinomialSumEvent(1000, 20, 0.5, 10),
    GaussianEvent(5.0),
    LaplaceEvent(0.4),
    RangeEvent(0.5, "stated"),
    PureEvent(0.3, "stated"),
    GaussianPairEvent(0.2, "stated"),
    SplitMixEvent(10_000, 10_000, 1e-3, 100, 12, 2**22),
]


@pytest.mark.parametrize(("first", "second"), list(product(KINDS, KINDS)))
@pytest.mark.full
def test_two_kinds_cost_more_than_each_and_less_than_a_split(first, second):
    if type(first) is type(second):
        return
    both = accountant(first, second).get_epsilon(1e-6)
    alone = [accountant(event).get_epsilon(1e-6) for event in (first, second)]
    split = sum(accountant(event).get_epsilon(5e-7) for event in (first, second))
    assert max(alone) * (1 - 1e-9) < both <= split * (1 + 1e-9)


def test_composition_of_kinds_gains_where_an_even_split_wastes():
    gaussian, laplace = GaussianEvent(5.0), LaplaceEvent(0.1)
    both = accountant(gaussian, laplace).get_epsilon(1e-6)
    split = accountant(gaussian).get_epsilon(5e-7) + accountant(laplace).get_epsilon(5e-7)
    assert both < 0.96 * split


def test_pure_events_of_several_kinds_add_up_at_delta_0():
    pure = accountant(LaplaceEvent(0.4), RangeEvent(0.5, "stated"), PureEvent(0.3, "stated"))
    assert pure.get_epsilon(0.0) == pytest.approx(1.2, rel=1e-12)
    assert pure.get_delta(1.2 * (1 + 1e-9)) == 0.0
    assert math.isinf(accountant(LaplaceEvent(0.4), GaussianEvent(5.0)).get_epsilon(0.0))
    assert math.isinf(accountant(KINDS[0]).get_epsilon(0.0))


def test_many_pure_releases_compose_better_than_they_add_up():
    many = ShuffleAccountant().compose(LaplaceEvent(0.05), 400)
    assert many.get_epsilon(0.0) == pytest.approx(20.0)
    assert many.get_epsilon(1e-6) < 6.0


def test_a_mixed_delta_is_the_least_whose_epsilon_is_enough():
    both = accountant(GaussianEvent(5.0), LaplaceEvent(0.4))
    delta = both.get_delta(1.0)
    assert both.get_epsilon(delta * 1.001) <= 1.0 < both.get_epsilon(delta * 0.99)


@pytest.mark.parametrize("name", names("theorem"))
@pytest.mark.full
def test_every_registered_theorem_keeps_its_contract(name):
    from shuffle_sim.registry import registered

    check_theorem(registered("theorem", name)())


class Wrong(Theorem):
    """Its examples are Gaussian events."""

    event = GaussianEvent
    source = "none"
    examples = (GaussianEvent(2.0),)


GOOD = theorem_of(GaussianEvent)
DEFECTS: dict[str, dict[str, Any]] = {
    "epsilon falls with the count": {
        "epsilon": lambda self, events, delta: GOOD.epsilon(events, delta) / events[0][1]
    },
    "delta is too small": {"delta": lambda self, events, e: GOOD.delta(events, e) / 2},
    "epsilon grows with delta": {"epsilon": lambda self, events, delta: 0.1 + delta},
    "exact is undercut": {
        "epsilon": lambda self, events, delta: GOOD.epsilon(events, delta) * 0.99,
        "exact": lambda self, event, delta: GOOD.epsilon(((event, 1),), delta),
    },
    "no examples": {"examples": ()},
    "examples of another kind": {"examples": (LaplaceEvent(1.0),)},
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_contract_catches_a_planted_defect(defect):
    sound: dict[str, Any] = {
        "epsilon": lambda self, events, delta: GOOD.epsilon(events, delta),
        "delta": lambda self, events, epsilon: GOOD.delta(events, epsilon),
    }
    check_theorem(type("Right", (Wrong,), sound)())
    with pytest.raises(LawError):
        check_theorem(type("Defective", (Wrong,), sound | DEFECTS[defect])())


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0, 8.0])
def test_the_gaussian_of_a_pure_release_dominates_a_response(epsilon):
    mu = theorem_of(RangeEvent).mu(RangeEvent(epsilon, "stated"))
    pure, gaussian = Parts(((epsilon, 0.0, 1),)), Parts((), mu)
    grid = np.linspace(0.0, epsilon * 1.2, 60)
    assert all(gaussian.delta(e) >= pure.delta(e) - 1e-12 for e in grid)
    closer = Parts((), mu * 0.97)  # a smaller mu would not
    assert any(closer.delta(e) < pure.delta(e) for e in np.linspace(0.0, 1e-3, 5))


OUTSIDE = """
from dataclasses import dataclass
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.theorems import Theorem

@dataclass(frozen=True)
class StaircaseEvent(PrivacyEvent):
    epsilon: float

class Staircase(Theorem[StaircaseEvent]):
    event = StaircaseEvent
    source = "staircase mechanism (Geng and Viswanath 2014)"
    examples = (StaircaseEvent(0.5),)

    def pure(self, event):
        return event.epsilon
"""


def test_an_event_with_its_theorem_comes_by_an_entry_point(tmp_path, monkeypatch):
    there = {"StaircaseEvent": "Staircase"}
    module = installed(tmp_path, monkeypatch, "staircase", OUTSIDE, theorems=there)
    event = module.StaircaseEvent(0.5)
    check_theorem(theorem_of(type(event)))
    ledger = PrivacyLedger()
    ledger.charge(Cohort.of(0, 10), event)
    ledger.charge(Cohort.of(0, 10), GaussianEvent(1 / mu_of(1.0, 1e-6)))
    guarantee = ledger.guarantee(1e-6)
    assert 1.0 < guarantee.epsilon < 1.5
    assert "Geng and Viswanath" in guarantee.basis
    assert ledger.guarantee(0.0).epsilon == math.inf
    from shuffle_sim.privacy.export import to_gaussian_event, to_pld

    assert to_gaussian_event(ledger).event.noise_multiplier < mu_of(1.0, 1e-6) ** -1
    assert to_pld(event).get_epsilon_for_delta(0.0) == pytest.approx(0.5, abs=2e-4)
    monkeypatch.undo()
    forget()
    with pytest.raises(ParameterError, match=r"StaircaseEvent.*GaussianEvent"):
        PrivacyLedger().charge(Cohort.of(0, 10), event)


def test_an_event_with_only_a_registered_name_is_refused():
    imposter = type("GaussianEvent", (NonPrivateEvent,), {})
    with pytest.raises(ShuffleSimError, match="rename one of the two"):
        ShuffleAccountant().compose(imposter())


def best_strategy(tests, steps, mu, epsilon, test=(0.3, 1e-3), width=0.01):
    """delta at epsilon of the best adaptive strategy: which kind comes next, and how much of mu^2
    a Gaussian takes, may depend on all earlier losses. Dynamic programming on a grid of losses.
    """
    most, (e1, d1) = 900, test
    grid, shift = np.arange(-most, most + 1) * width, round(e1 / width)
    w, unit = math.exp(e1) / (1 + math.exp(e1)), mu * mu / steps
    known: dict[tuple[int, int], np.ndarray] = {}

    def padded(values, by):
        return np.concatenate([np.full(by, values[0]), values, np.zeros(by)])

    def value(left, budget):
        if (left, budget) not in known:
            found = np.maximum(0.0, -np.expm1(grid)) if left == budget == 0 else np.zeros(grid.size)
            if left:
                wide = padded(value(left - 1, budget), shift)
                up, down = wide[: grid.size], wide[2 * shift :]
                found = np.maximum(found, d1 + (1 - d1) * (w * up + (1 - w) * down))
            for taken in range(1, budget + 1):
                root, reach = math.sqrt(taken * unit), 600
                ends = (np.arange(-reach, reach + 2) - 0.5) * width
                law = np.diff(ndtr((ends - root * root / 2) / root))  # of the loss, to the grid
                wide = padded(value(left, budget - taken), reach)
                found = np.maximum(found, np.convolve(wide, law, "valid"))
            known[left, budget] = found
        return known[left, budget]

    return float(value(tests, steps)[most + round(epsilon / width)])


@pytest.mark.parametrize(("tests", "mu"), [(1, 0.5), (3, 1.0)])
def test_no_adaptive_strategy_beats_tests_and_gaussians(tests, mu):
    """The grid errs by less than 0.3 %; less noise by a tenth is seen."""
    for epsilon in (0.5, 1.5):
        best = best_strategy(tests, 3, mu, epsilon)
        assert best <= Parts(((0.3, 1e-3, tests),), mu).delta(epsilon) * 1.003
        assert best > Parts(((0.3, 1e-3, tests),), 0.9 * mu).delta(epsilon)


@pytest.mark.parametrize("changed", [1e-9, 1e-7, 1e-3, 0.5])
def test_what_is_drawn_again_does_not_make_delta_grow(changed):
    """(1 + e^epsilon) changed does: from the turn on, the delta of less epsilon holds."""
    parts = Parts(mu=0.5, changed=changed)
    grid = np.linspace(0.0, 30.0, 301)
    plain = np.array([Parts(mu=0.5).delta(x) for x in grid]) + (1 + np.exp(grid)) * changed
    found = np.array([parts.delta(x) for x in grid])
    assert np.all(np.diff(found) <= 1e-12)
    least = np.minimum(1.0, np.minimum.accumulate(plain))
    assert np.all(found <= least * 1.05)
    assert np.all(found >= least * 0.95)
    assert plain[-1] > 2 * found[-1]


def test_an_epsilon_is_found_where_few_have_the_delta():
    """Between two steps of the search: 1 and 2 have too large a delta."""
    parts = Parts(mu=0.2, changed=1e-5)
    delta = 1.02 * parts.delta(30.0)
    epsilon = parts.epsilon(delta)
    assert parts.delta(epsilon) <= delta < parts.delta(epsilon - 0.05)
