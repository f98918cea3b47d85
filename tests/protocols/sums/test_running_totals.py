"""Totals until each day: which days a sum is of, what a row costs, and how large the noise is."""

import numpy as np
import pytest
from rounds import outcome

from protocols import CarryVectorSum, RunningTotals
from shuffle_sim import Budget, ParameterError, Privacy, run
from shuffle_sim.execution.inprocess import InProcessRuntime

ASKED = Privacy(1.0, 1e-6)
N = 200
WEEK = RunningTotals.calibrated(n=N, rounds=7, privacy=ASKED, noise_ratio=1.5)
DATA = np.random.default_rng(1).uniform(0, 1, 7 * N)


def until(rows, n=N):
    return rows.reshape(-1, n, *rows.shape[1:]).sum(axis=1).cumsum(axis=0)


def test_totals_are_of_all_days_and_a_day_is_in_few_sums():
    made = RunningTotals.calibrated(n=N, rounds=25, privacy=ASKED, noise_ratio=2.0)
    spans = {day: range(day - made.span(day), day) for day in range(1, 26)}
    for day in range(1, 26):
        found = sorted(each for part in made._path(day) for each in spans[part])
        assert found == list(range(day))
        assert len(list(made._path(day))) == day.bit_count() <= 5
        assert sum(day - 1 in span for span in spans.values()) <= 5
    assert sum(0 in span for span in spans.values()) == 5  # the first day is in one of each size
    assert [spec.users for spec in made.sums] == [N << level for level in range(5)]


def test_a_row_costs_what_was_asked_in_all_totals_together():
    found = run(WEEK, DATA, fidelity="aggregate", seed=1)
    assert found.rounds == 7
    assert 0.95 < found.privacy.epsilon <= 1.0
    assert found.privacy.epsilon == WEEK.epsilon
    alone = [run(each, np.zeros(each.users), seed=1).privacy.epsilon for each in WEEK.sums]
    assert max(alone) < 0.75, alone  # the control: one of three


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.full
def test_the_noise_is_the_one_stated(fidelity):
    """Each day's step beside its own sum: chi-square of 63; outside 0.35 to 2.1 by 5e-7."""
    made = RunningTotals.calibrated(n=N, rounds=63, privacy=ASKED, noise_ratio=2.0)
    data = np.random.default_rng(2).uniform(0, 1, 63 * N)
    totals = run(made, data, fidelity=fidelity, seed=3).value
    noise = np.concatenate([[0.0], totals - until(data)])
    days = range(1, 64)
    steps = [noise[day] - noise[day - made.span(day)] for day in days]
    scaled = np.array(
        [each / made.sum_of(day).standard_error for each, day in zip(steps, days, strict=True)]
    )
    assert 0.35 < (scaled**2).mean() < 2.1
    assert (9 * scaled**2).mean() > 2.1  # the control: three times the noise
    path = [made.sum_of(day).standard_error ** 2 for day in (32, 48, 56, 60, 62, 63)]
    assert made.standard_error[62] == pytest.approx(np.sqrt(np.sum(path)))


@pytest.mark.full
def test_a_year_is_nearer_than_daily_sums():
    """Of 365 days: at most nine sums of nine times the variance, against 365 sums."""
    made = RunningTotals.calibrated(n=1000, rounds=365, privacy=ASKED)
    daily = CarryVectorSum.calibrated(n=1000, d=1, privacy=ASKED, norm_bound=0.5, noise_ratio=1.05)
    assert made.epsilon <= 1.0
    assert made.standard_error.max() < 40
    assert daily.standard_error * np.sqrt(365) > 80


def test_vectors_and_a_runtime_with_processes():
    made = RunningTotals.calibrated(n=N, rounds=3, d=2, privacy=ASKED, noise_ratio=2.0, bound=3.0)
    data = np.random.default_rng(4).uniform(-1, 1, (3 * N, 2))
    found = run(made, data, seed=5)
    assert found.value.shape == (3, 2)
    assert np.abs(found.value - until(data)).max() < 6 * made.standard_error[2]
    other = run(made, data, seed=5, runtime="processes", workers=2)
    assert np.array_equal(found.value, other.value)


def test_a_run_goes_on_on_any_day_and_is_charged_once(tmp_path):
    class Stops(InProcessRuntime):
        left = 4

        def exchange(self, broadcast):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return super().exchange(broadcast)

    budget = Budget.create(tmp_path / "b", privacy=ASKED, population="p", users=7 * N)
    report = budget.report("a week")
    how = {"seed": 6, "checkpoint": tmp_path / "run", "budget": report, "fidelity": "aggregate"}
    with pytest.raises(KeyboardInterrupt):
        run(WEEK, DATA, runtime=Stops(), **how)
    before = budget.path.read_bytes()
    resumed = run(WEEK, DATA, resume=True, **how)
    assert outcome(resumed) == outcome(run(WEEK, DATA, seed=6, fidelity="aggregate"))
    assert budget.path.read_bytes() == before
    assert budget.spent.epsilon == WEEK.epsilon


def test_day_by_day_within_a_budget(tmp_path):
    """Each day is a run of its own, on the days that it sums; together they cost what is asked."""
    budget = Budget.create(tmp_path / "b", privacy=ASKED, population="p", users=7 * N)
    totals = {0: 0.0}
    for day in range(1, 8):
        first = (day - WEEK.span(day)) * N
        report = budget.report(f"day {day}", first=first)
        found = run(WEEK.sum_of(day), DATA[first : day * N], budget=report)
        totals[day] = totals[day - WEEK.span(day)] + found.value
    assert budget.spent.epsilon == WEEK.epsilon
    off = np.array([totals[day] for day in range(1, 8)]) - until(DATA)
    errors = WEEK.standard_error
    assert np.abs(off / errors).max() < 6
    with pytest.raises(ParameterError, match="reported before"):
        run(WEEK.sum_of(7), DATA[-N:], budget=budget.report("day 7", first=6 * N))
    with pytest.raises(ParameterError, match="epsilon would be"):  # the control: who, is not said
        run(WEEK.sum_of(7), DATA[-N:], budget=budget.report("once more"))


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.0}, "rounds"),
        ({"n": 0}, "n"),
        ({"noise_ratio": 1.5, "max_bits": 3}, "noise_ratio, max_bits"),
        ({"encoding": "morse"}, "encoding"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
    ],
)
def test_bad_totals(change, parameter):
    with pytest.raises(ParameterError) as found:
        RunningTotals.calibrated(**{"n": N, "rounds": 3, "privacy": ASKED} | change)
    assert found.value.parameter == parameter


def test_bad_sums_days_and_data():
    with pytest.raises(ParameterError, match="sums"):
        RunningTotals(n=N, rounds=4, sums=WEEK.sums[:2], delta=1e-6)
    with pytest.raises(ParameterError, match="day"):
        WEEK.sum_of(8)
    with pytest.raises(ParameterError, match=r"data\.shape"):
        run(WEEK, DATA.reshape(7, N))
