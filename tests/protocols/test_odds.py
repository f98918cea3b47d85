"""Odds of views that are counts, and what whole runs of them show."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from protocols import Histogram
from protocols.comparison.named import named_protocol
from protocols.counts.two_sided import TwoSided
from protocols.sums.laplace_sum import LaplaceScalarSum, LaplaceVectorSum
from protocols.sums.sparse_sum import SparseVectorSum
from shuffle_sim import Privacy
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.claims.stated import (
    check_odds,
    check_within,
    ordered,
    stated_epsilon,
    worst_of,
)
from shuffle_sim.auditing.shuffle import canaries as canary
from shuffle_sim.auditing.shuffle.canaries import canaries, odds_known, pair_table
from shuffle_sim.cli.app import app
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds import buckets
from shuffle_sim.privacy.events import LaplaceEvent
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.privacy.theorems import theorem_of

BUDGET = Privacy(2.0, 1e-6)
NOISE = {"decay": 0.3, "flood": 150.0, "pairs": 150.0, "batch": 8, "pair_batch": 8, "cap": 3000}
ONE_PLANE = {"base": 2, "low": 0, "high": 0, "top": 3, "smooth": 0.0, **NOISE}
SUMS: dict[str, Any] = {
    "one plane": LaplaceScalarSum(n=60, **ONE_PLANE),
    "planes": LaplaceScalarSum(n=60, **(ONE_PLANE | {"low": 1, "high": 1, "smooth": 3.0})),
    "packed": LaplaceScalarSum(n=60, packed=True, **ONE_PLANE),
    "fewer are honest": LaplaceScalarSum(n=60, honest_fraction=0.5, **ONE_PLANE),
    "vector": LaplaceVectorSum.calibrated(n=1000, d=2, privacy=Privacy(1.0, 1e-6)),
    "buckets": SparseVectorSum(n=60, d=8, bucket=4, a=0.2, span=0.8),
    "buckets of one": SparseVectorSum(n=60, d=2, bucket=1, a=0.3),
    "histogram": named_protocol("histogram", 300, 4, BUDGET),
    "quantiles": named_protocol("quantiles", 300, 8, BUDGET),
    "kept back": Histogram.calibrated(n=300, categories=3, privacy=BUDGET, kept_back=0.1),
    "response": Histogram.calibrated(n=300, categories=4, privacy=BUDGET, method="response"),
    "two-sided": Histogram.calibrated(n=300, categories=3, privacy=BUDGET, method="two-sided"),
    "blanket": Histogram.calibrated(n=300, categories=4, privacy=BUDGET, method="fixed-blanket"),
}
_DRAWS, _FAR = 1500, 5.5  # standard deviations: all events together are off in 1 of 100,000 cases


def _farthest(name, factor=1.0):
    """Of events by the odds and by one count: E e^odds on the first table less P on the second, in
    standard deviations.
    """
    made = SUMS[name]
    randomizer = made.plan(made.init()).randomizer
    rng, users = np.random.default_rng(8), math.ceil(made.honest_fraction * made.n)
    ends, found = [], []
    for second in (False, True):
        rows = pair_table(randomizer, users, high=second)
        tallies = [randomizer.tallied(rows, rng) for _ in range(_DRAWS)]
        counts = [tally.dense(randomizer.alphabet.symbols)[0] for tally in tallies]
        odds = [factor * randomizer.pair_odds(tally) for tally in tallies]
        ends.append((np.array(odds), np.array(counts, float)))
    for which in (0, 1):
        both = np.concatenate([end[which] for end in ends])
        for level in (-np.inf, *np.quantile(both, [0.2, 0.5, 0.8])):
            first = np.exp(ends[0][0]) * (ends[0][which] > level)
            second = ends[1][which] > level
            spread = math.sqrt((first.var() + second.var()) / _DRAWS)
            found.append(abs(first.mean() - second.mean()) / max(spread, 1e-12))
    return max(found)


@pytest.mark.slow_parameters("two-sided")
@pytest.mark.parametrize("name", SUMS)
def test_odds_are_those_of_the_two_tables(name):
    assert _farthest(name) < _FAR


_TWICE = "one plane", "planes", "buckets of one", "response"


@pytest.mark.parametrize(
    ("name", "factor"), [*((each, 2.0) for each in _TWICE), ("histogram", -1.0), ("planes", -1.0)]
)
def test_other_odds_are_seen(name, factor):
    """Power: odds that are twice as large, or of the other table."""
    assert _farthest(name, factor) > _FAR


def test_one_bucket_is_counted_exactly():
    """Over all that four users can say."""
    a, low = 0.3, 0.2
    laws = np.zeros((2, 5))
    for signs in itertools.product((0, 1), repeat=4):
        for end, first in enumerate((low, 1 - low)):
            chances = [first, low, low, low]
            laws[end, sum(signs)] += math.prod(
                p if sign else 1 - p for p, sign in zip(chances, signs, strict=True)
            )
    np.testing.assert_allclose(buckets.ends(4, a), laws, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ratio"), [("one plane", 0.8), ("buckets of one", 0.5)])
def test_whole_runs_show_most_of_the_exact_epsilon(name, ratio):
    made = SUMS[name]
    event = made.plan(made.init()).event
    exact = theorem_of(type(event)).exact(event, made.delta)
    seen = canaries(made, seed=2)
    assert ratio * exact < seen.epsilon() <= exact <= stated_epsilon(made)
    assert ordered(made, stated_epsilon(made), exact, seen, 1e-6).passed


@pytest.mark.full
def test_half_of_the_two_sided_noise_is_seen(monkeypatch):
    """Power: what is counted on both tables does not take the law for granted."""
    made = SUMS["one plane"]
    stated, less = stated_epsilon(made), replace(made.randomizer, decay=0.6)
    assert made.randomizer._heights.size  # of the noise that is stated
    monkeypatch.setitem(vars(made.randomizer), "kinds", less.kinds)
    assert not ordered(made, stated, stated, canaries(made, seed=2), 1e-6).passed


@pytest.mark.slow_parameters("pollution")
@pytest.mark.full
@pytest.mark.parametrize("method", ["pollution", "response"])
def test_an_event_that_states_half_is_seen(method):
    """A word's tally alone, and sixty users, would not show it."""
    made = Histogram.calibrated(n=300, categories=3, privacy=BUDGET, method=method)
    seen, stated = canaries(made, seed=2), stated_epsilon(made)
    assert ordered(made, stated, None, seen, 1e-7).passed
    assert not ordered(made, stated / 2, None, seen, 1e-7).passed


@pytest.mark.slow
def test_counts_of_one_draw_have_other_odds(monkeypatch):
    """Power: what is for a bin and against it is one draw, so their difference has no noise."""
    made = SUMS["two-sided"]
    check_odds(canaries(made, seed=2), 1e-7)
    true = TwoSided.kinds

    def kinds(randomizer, users, rng):
        own, _, flood = true(randomizer, users, rng)
        yield replace(own, words=((0, 2), (1, 2)))
        yield flood

    monkeypatch.setattr(TwoSided, "kinds", kinds)
    with pytest.raises(LawError, match="odds above"):
        check_odds(canaries(made, seed=2), 1e-7)


def test_odds_are_taken_only_where_all_rounds_have_them(monkeypatch):
    made = [named_protocol(name, 300, 4, BUDGET) for name in ("histogram", "vector-sum")]
    assert list(map(odds_known, made)) == [True, False]
    rounds = [each.plan(each.init()) for each in made]
    monkeypatch.setattr(canary, "walked", lambda _: iter(rounds))
    assert not odds_known(made[0])


def test_more_than_was_asked_for_is_seen():
    for epsilon, delta in ((1.0, 1e-6), (0.9, 1e-7)):
        check_within(epsilon, delta, Privacy(1.0, 1e-6))
    for epsilon, delta in ((1.001, 1e-6), (0.9, 2e-6), (math.nan, 1e-6)):
        with pytest.raises(LawError):
            check_within(epsilon, delta, Privacy(1.0, 1e-6))


def test_the_worst_user_is_found_without_the_ledger():
    """Two releases on one half of the users; a ledger that takes the largest event for all."""
    cohorts = Cohort.of(0, 10), Cohort.of(5, 10)
    charges = tuple(Charge(each, LaplaceEvent(0.5)) for each in cohorts)
    assert worst_of(charges, 0.0) == pytest.approx(1.0)


def test_reports_are_held_to_what_is_asked_for_all_of_them():
    of_a_week, of_a_day = (
        Histogram.calibrated(n=300, categories=4, privacy=BUDGET, rounds=rounds)
        for rounds in (7, 1)
    )
    check_within(stated_epsilon(of_a_week, 7), of_a_week.delta, BUDGET)
    check_within(stated_epsilon(of_a_day), of_a_day.delta, BUDGET)
    with pytest.raises(LawError):
        check_within(stated_epsilon(of_a_day, 7), of_a_day.delta, BUDGET)


RUNS = [("histogram", 7), ("shuffle-gd", 1), ("running-totals", 1)]


@pytest.mark.parametrize(("name", "reports"), RUNS)
def test_rounds_of_counts_are_reports_and_of_optimisers_part_of_a_run(monkeypatch, name, reports):
    given = {}

    def audit(made, **options):
        given.update(options)
        raise ParameterError("seen", made, "no more")

    monkeypatch.setattr("shuffle_sim.auditing.audit.audit", audit)
    asked = ["audit", "--protocol", name, "--n", "300", "--rounds", "7"]
    assert isinstance(CliRunner().invoke(app, asked).exception, ParameterError)
    assert "repeats" in given
    assert given.get("reports", 1) == reports
