"""Intervals that hold what they are for, by the runs themselves; false-alarm rate 1e-6 each."""

import numpy as np
import pytest
import scipy.stats

from protocols import CarryVectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.data.moments import MomentIntervals, encoded, per_user, released
from shuffle_sim.data.schema import Schema
from shuffle_sim.data.tables import Table

PEOPLE, COLUMNS, RUNS = 400, 4, 80


def table() -> Table:
    rng = np.random.default_rng(5)
    rows = rng.beta([1, 2, 5, 0.5], [3, 2, 1, 0.5], size=(PEOPLE, COLUMNS)) * 30 - 5
    lower, upper = np.array([-5.0, 0, -5, -5]), np.array([25.0, 12, 30, 25])
    return Table(name="t", schema=Schema.within("abcd", lower, upper), rows=rows)


def test_squares_keep_rows_in_the_unit_ball_and_reach_its_edge():
    made = table()
    sent = encoded(made)
    assert np.linalg.norm(sent, axis=1).max() <= 1 + 1e-12
    corner = Table(name="t", schema=Schema.within("a", [0.0], [1.0]), rows=np.ones((1, 1)))
    assert np.linalg.norm(encoded(corner)) == pytest.approx(1)


def test_without_noise_moments_are_those_of_the_clipped_rows():
    made = table()
    inside = np.clip(made.rows, made.lower, made.upper)
    means, _, found = released(made, encoded(made).sum(axis=0), 0.0, PEOPLE, variance=True)
    assert found is not None
    np.testing.assert_allclose(means, inside.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.private, inside.var(axis=0), rtol=1e-10)
    assert (abs(inside.mean(axis=0) - made.rows.mean(axis=0)) > 0.1).any()  # clipping is a bias


def covered(variance: bool, epsilon: float) -> tuple[int, int]:
    """How many intervals hold the truth, of clipped rows; and with 0.6 of the noise stated."""
    made = table()
    rows = encoded(made) if variance else made.scaled()
    protocol = CarryVectorSum.calibrated(
        n=PEOPLE,
        d=rows.shape[1],
        norm_bound=1.0,
        privacy=Privacy(epsilon, 1e-6),
        noise_ratio=1.1,
    )
    inside = np.clip(made.rows, made.lower, made.upper)
    truth = inside.var(axis=0) if variance else inside.mean(axis=0)
    held = [0, 0]
    for seed in range(RUNS):
        sums = run(protocol, rows, fidelity="aggregate", seed=seed).value
        for at, stated in enumerate((1.0, 0.6)):
            error = protocol.standard_error * stated
            means, spread, found = released(made, sums, error, PEOPLE, variance=variance)
            interval = MomentIntervals.of(means, spread) if found is None else found.interval
            held[at] += int(((interval.low <= truth) & (truth <= interval.high)).sum())
    return held[0], held[1]


@pytest.mark.full
@pytest.mark.parametrize("variance", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_intervals_of_95_percent_hold_the_truth_as_often(variance, epsilon):
    # Fewer than the quantile would have chance 1e-6 if each held with 95 %.
    least = scipy.stats.binom.ppf(1e-6, RUNS * COLUMNS, 0.95)
    whole, understated = covered(variance, epsilon)
    assert whole >= least
    assert understated < least  # the control


def test_a_variance_is_not_below_zero():
    made = table()
    for shift in (-1e3, 1e3):
        sums = encoded(made).sum(axis=0) + shift
        _, _, found = released(made, sums, 1e3, PEOPLE, variance=True)
        assert found is not None
        assert (found.private >= 0).all()
        assert (found.interval.low >= 0).all()


def test_the_true_mean_of_persons_is_that_of_their_own_records():
    """Clipped records of persons show no bias of the bounds."""
    schema = Schema.within("a", np.zeros(1), np.full(1, 10.0))
    rows, person = np.array([[1.0], [3.0], [1e6]]), np.array(["ann", "ann", "bob"])
    made = Table(name="t", schema=schema, rows=rows, person=person)
    assert sorted(per_user(made).rows[:, 0].tolist()) == [2.0, 10.0]
    assert sorted(per_user(made, clip=False).rows[:, 0].tolist()) == [2.0, 1e6]
