"""Categories that a search finds: what is counted, and what all rounds cost together."""

import numpy as np
import pytest

from protocols.counts import FoundHistogram, HeavyHitters, columns_of
from protocols.counts.found import Among
from protocols.counts.pollution import Categories
from shuffle_sim import Budget, ParameterError, Privacy, run
from shuffle_sim.privacy.accountant import ShuffleAccountant

SMALL = Privacy(2.0, 1e-4)
N, BITS = 4000, 16


@pytest.fixture(scope="module")
def made():
    return FoundHistogram.calibrated(n=N, privacy=SMALL, bits=BITS, kept=8)


@pytest.fixture
def rows():
    items = np.random.default_rng(1).integers(100, 60_000, N)
    items[:900], items[900:1500] = 7, 65_535
    return items.astype(float)


@pytest.mark.long
def test_all_rounds_are_charged_and_need_what_was_asked_for(made, rows):
    result = run(made, rows, seed=2)
    assert result.rounds == len(made.search.levels) + 1
    spent = ShuffleAccountant()
    for each in (*made.search.randomizers, made.counting):
        spent.compose(each.event(N, None))
    assert result.privacy.epsilon == pytest.approx(spent.get_epsilon(1e-4), rel=1e-9)
    assert 0.999 * 2 < result.privacy.epsilon <= 2.0
    search = ShuffleAccountant()
    for each in made.search.randomizers:
        search.compose(each.event(N, None))
    assert search.get_epsilon(1e-4) < 1.8  # the search alone would cost less


@pytest.mark.parametrize("kind", [FoundHistogram, HeavyHitters])
def test_runs_of_a_year_make_the_privacy_together(kind):
    size = {"n": N, "privacy": SMALL, "bits": BITS, "kept": 8}
    made, once = kind.calibrated(**size, rounds=52), kind.calibrated(**size)
    assert 0.999 * 2 < epsilon_of(made, 52) <= 2.0
    assert epsilon_of(made, 1) < 0.4
    assert epsilon_of(once, 52) > 10  # what a year of noise for one run would cost


def epsilon_of(made, runs):
    """Of so many runs."""
    parts = made.parts if isinstance(made, HeavyHitters) else (*made.search.parts, made.counting)
    spent = ShuffleAccountant()
    for each in parts:
        spent.compose(each.event(N, None), runs)
    return spent.get_epsilon(SMALL.delta)


@pytest.mark.parametrize("fidelity", ["literal", "aggregate"])
def test_found_items_are_counted_and_the_others_together(made, rows, fidelity):
    found = run(made, rows, fidelity=fidelity, seed=3).value
    assert found.items.tolist() == [7, 65_535]
    true = np.array([900, 600, 2500])
    assert np.abs(found.counts - true).max() < 7 * made.variance() ** 0.5


@pytest.mark.full
@pytest.mark.parametrize("fidelity", ["literal", "aggregate"])
def test_intervals_of_found_items_hold_as_often_as_they_say(made, rows, fidelity):
    """Of 40 runs at 95 % 12 are wrong with probability 1e-6; at half the width more are."""
    true = np.array([900, 600, 2500])
    found = [run(made, rows, fidelity=fidelity, seed=seed).value for seed in range(40)]
    wrong = [((each.low > true) | (each.high < true)).any() for each in found]
    halves = [np.abs(each.counts - true) > (each.high - each.low) / 4 for each in found]
    assert sum(wrong) < 12 <= sum(half.any() for half in halves)


def test_nothing_found_needs_no_more_rounds(made):
    rows = np.random.default_rng(4).integers(0, 2**BITS, N).astype(float)
    result = run(made, rows, seed=1)
    assert result.rounds < len(made.search.levels) + 1
    assert result.value.counts.tolist() == [N]


@pytest.mark.parametrize("kind", [FoundHistogram, HeavyHitters])
@pytest.mark.long
def test_what_a_search_costs_does_not_follow_from_what_it_finds(kind):
    made = kind.calibrated(n=N, privacy=SMALL, bits=32, kept=8)
    scattered = np.random.default_rng(4).integers(0, 2**32, N).astype(float)
    stopped, whole = (run(made, rows, seed=1) for rows in (scattered, np.full(N, 7.0)))
    assert stopped.rounds < whole.rounds
    assert stopped.privacy == whole.privacy
    assert stopped.promised == whole.promised
    assert len(stopped.ledger.charges) == whole.rounds
    asked, every = ShuffleAccountant(), ShuffleAccountant()  # the control: what was drawn
    for at, each in enumerate(whole.ledger.charges):
        every.compose(each.event)
        if at < stopped.rounds:
            asked.compose(each.event)
    claimed = asked.get_epsilon(SMALL.delta)
    assert claimed < 0.95 * whole.privacy.epsilon
    assert every.get_delta(claimed) > 1.2 * SMALL.delta  # an exact curve: the claim was false


def test_a_budget_pays_for_rounds_that_nothing_found_left_out(made, tmp_path):
    budget = Budget.create(tmp_path / "b", privacy=SMALL, population="towns", users=N)
    rows = np.random.default_rng(4).integers(0, 2**BITS, N).astype(float)
    run(made, rows, budget=budget.report("monday"), seed=1)
    (report,) = budget.reports
    assert len(report.charges) == len(made.search.levels) + 1


def test_places_in_a_list():
    last = 2**64 - 1
    query = Among(64, np.array([3, 9, last, last], np.uint64))
    assert query(columns_of([3, 4, 9, last, last - 1])).tolist() == [0, 4, 1, 2, 4]
    assert Among(8, np.array([3], np.uint64))(np.array([3.0, 2.5, 256, 7])).tolist() == [
        0,
        -2,
        -2,
        1,
    ]


def test_counts_must_fit_the_search(made):
    with pytest.raises(ParameterError):
        FoundHistogram(made.search, Categories((8,), (9.0,), N, 40), 1e-4)
    with pytest.raises(ParameterError):
        made.result(made.init())
