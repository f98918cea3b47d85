"""Counts, sums, means and variances by group."""

import math

import numpy as np
import pytest

from protocols import GroupMeans
from protocols.counts.groups import Planes
from shuffle_sim import ParameterError, Privacy, run

PRIVACY = Privacy(1.0, 1e-6)
RANGE = {"low": -10.0, "high": 30.0}


@pytest.mark.full
@pytest.mark.parametrize(
    ("bits", "total", "variance"), [(3, 803.5, 82.50), (5, 3420.2, 81.89), (8, 27_845, 81.79)]
)
def test_plans_of_the_sheet(bits, total, variance):
    made = GroupMeans.calibrated(n=10**5, groups=100, low=0.0, high=1.0, privacy=PRIVACY, bits=bits)
    planes = made.randomizer
    assert sum(planes.rates) == pytest.approx(total, rel=2e-4)
    # Of the sum less half of the count.
    found = planes.sum_variance(made.n) + planes.noise_variance(made.n)[0] / 4
    assert found == pytest.approx(variance, rel=2e-4)


def test_own_messages_are_the_bits():
    planes = Planes((4,) * 4, (5.0,) * 4, 10, 60, bits=3)
    rng = np.random.default_rng(1)
    value = 0.3
    xs = np.tile([[2.0, value]], (4000, 1))
    own = planes.own(xs, rng)
    assert (own[:, 0] == 2).all()
    sums = ((own[:, 1:] == 2) * planes.places).sum(axis=1)
    assert set(np.unique(np.round(sums * 7, 9))) == {2.0, 3.0}
    assert sums.mean() == pytest.approx(value, abs=5 * sums.std() / math.sqrt(4000))
    ends = planes.own(np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.7]]), rng)
    assert ends.tolist() == [[1, -1, -1, -1], [1, 1, 1, 1], [-1, -1, -1, -1]]


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.full
def test_a_run_is_within_its_errors(fidelity):
    n, groups = 20_000, 5
    made = GroupMeans.calibrated(n=n, groups=groups, **RANGE, privacy=PRIVACY, moments=2, bits=4)
    rng = np.random.default_rng(3)
    group = rng.integers(0, groups, n)
    value = rng.normal(5 + group, 3).clip(-10, 30)
    result = run(made, np.stack([group, value], axis=1), fidelity=fidelity, seed=4)
    table = result.value
    assert result.privacy.epsilon <= 1.0
    counts, sums = np.bincount(group), np.bincount(group, value)
    means = sums / counts
    assert np.abs(table.counts - counts).max() < 6 * table.count_error
    assert np.abs((table.sums - sums) / table.sum_errors).max() < 6
    assert np.abs((table.means - means) / table.mean_errors).max() < 6
    spread = np.bincount(group, value**2) / counts - means**2
    assert np.abs((table.variances - spread) / table.variance_errors).max() < 6
    assert table.variance_errors.max() < 12
    ends = made.interval(table)
    for found, true in ((ends.counts, counts), (ends.sums, sums), (ends.means, means)):
        assert ((found[:, 0] <= true) & (true <= found[:, 1])).all()
    assert np.ptp(ends.means, axis=1).max() < 2


@pytest.mark.full
def test_errors_are_those_stated():
    n, groups, repeats = 2000, 4, 60
    made = GroupMeans.calibrated(n=n, groups=groups, **RANGE, privacy=PRIVACY, bits=4)
    rng = np.random.default_rng(5)
    rows = np.stack([np.arange(n) % groups, np.full(n, 10.0)], axis=1)
    xs = made.randomizer.admit(made.query(rows))[0]
    spec = made.plan(made.init())
    tables = [made.answer(spec.analyze(made.randomizer.tallied(xs, rng))) for _ in range(repeats)]
    errors = np.array([each.sums for each in tables]) - 10.0 * n / groups
    ratio = (errors**2).mean() / np.mean([each.sum_errors**2 for each in tables])
    assert ratio == pytest.approx(1.0, abs=5 * math.sqrt(2 / errors.size))
    assert abs(errors.mean()) < 5 * math.sqrt((errors**2).mean() / errors.size)
    held = sum(
        bool((np.abs(made.interval(each).sums.mean(axis=1) - each.sums) < 1e-6).all())
        for each in tables
    )
    assert held == repeats


def test_rows_outside():
    made = GroupMeans.calibrated(n=50, groups=3, **RANGE, privacy=PRIVACY)
    rows = np.zeros((50, 2))
    rows[0] = 7, 0
    result = run(made, rows, seed=1)
    assert result.reports.clipped == 1
    with pytest.raises(ParameterError):
        run(made, rows[:, :1], seed=1)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"groups": 0}, "groups"),
        ({"bits": 0}, "bits"),
        ({"bits": 31}, "bits"),
        ({"moments": 3}, "moments"),
        ({"high": -20.0}, "high"),
        ({"objective": "speed"}, "objective"),
        ({"privacy": Privacy(1.0)}, "delta"),
    ],
)
def test_what_is_refused(options, parameter):
    given = {"n": 100, "groups": 3, **RANGE, "privacy": PRIVACY} | options
    with pytest.raises(ParameterError) as found:
        GroupMeans.calibrated(**given)
    assert found.value.parameter == parameter
