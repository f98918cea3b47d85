"""One-shot optimisation: persons send their own minimisers, clipped around a center."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

from protocols import L2Ball, Logistic, Problem, UserLevelOneShot
from protocols.learning import Baseline
from protocols.problems.per_person import LocalMinimiser
from protocols.sums.encoding import SumRandomizer
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import dense
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.roles.users import admitted

D = 3
PROBLEM = Problem(Logistic(), L2Ball(D, 2.0), ridge=0.2, records=200)
PRIVACY = Privacy(2.0, 1e-6)


def persons(n=300, m=50, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, m, D))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
    noisy = x @ [1.0, -0.5, 0.2] + 0.5 * rng.normal(size=(n, m))
    return np.concatenate([x, np.where(noisy > 0, 1.0, -1.0)[:, :, None]], axis=2)


def test_the_query_is_each_persons_own_minimiser():
    rows = persons(3)
    query = LocalMinimiser(Logistic(), 0.2, 2.0, np.full(D, 0.1), 300)
    for row, found in zip(rows, dense(query(rows)), strict=True):

        def risk(theta, row=row):
            return Logistic().values(theta, row).mean() + 0.1 * theta @ theta

        exact = minimize(risk, np.zeros(D), options={"gtol": 1e-8}).x
        assert found + 0.1 == pytest.approx(exact, abs=1e-5)


def test_what_a_person_sends_depends_on_its_own_records_alone():
    """Or a replaced person would move more than its own clipped value. Ragged persons, too."""
    rows = persons(4, 5)
    ragged = Persons.in_memory([rows[0], rows[1, :2], *rows[2:]]).rows(0, 4)
    query = LocalMinimiser(Logistic(), 0.2, 2.0, np.zeros(D), 40)
    for given in (rows, ragged):
        whole = dense(query(given))
        for bad in (1e9, np.nan, 0.5):
            other = given.copy()
            other[0] = np.full_like(given[0], bad)
            assert (dense(query(other))[1:] == whole[1:]).all()
    alone = dense(query(rows[1:2, :2]))[0]
    assert dense(query(ragged))[1] == pytest.approx(alone, abs=1e-12)


@pytest.mark.full
def test_a_replaced_person_moves_each_sum_by_at_most_two_radii():
    made = UserLevelOneShot.calibrated(n=300, problem=PROBLEM, privacy=PRIVACY, rounds=3)
    rows, worst, state = persons(4), 0.0, made.init()
    while (spec := made.plan(state)) is not None:
        ends = []
        for bad in (1e9, -1e9, np.nan, np.inf, 0.5):
            other = rows[:1].copy()
            other[0] = bad
            ends.append(dense(admitted(spec.query(other), spec.randomizer)[0])[0])
        ends += [-each for each in ends]
        assert isinstance(spec.randomizer, SumRandomizer)
        bound = 2 * spec.randomizer.norm_bound
        worst = max([worst, *(float(np.linalg.norm(a - b)) / bound for a in ends for b in ends)])
        state = made.update(state, np.full(D, 1.0))
    assert 0.9 < worst <= 1 + 1e-12  # a bound a tenth smaller would be exceeded


@pytest.mark.full
def test_few_rounds_come_near_the_common_minimiser():
    """The distance of one run at epsilon 8; the noise alone is below 0.02."""
    made = UserLevelOneShot.calibrated(n=300, problem=PROBLEM, privacy=Privacy(8.0, 1e-6))
    assert 2 <= made.rounds <= 6
    rows = persons()
    result = run(made, rows, seed=1, fidelity="aggregate")
    assert result.unit is Unit.PERSON
    assert result.privacy.epsilon <= 8.0
    flat = rows.reshape(-1, D + 1)
    exact = minimize(lambda theta: PROBLEM.risk(theta, flat), np.zeros(D)).x
    assert np.linalg.norm(result.value - exact) < 0.15
    quiet = run(Baseline(made, "none"), rows).value
    assert np.linalg.norm(quiet - exact) < 0.05


def test_what_it_cannot_have_is_refused():
    for problem in (dataclasses.replace(PROBLEM, ridge=0.0),):
        with pytest.raises(ParameterError, match="strong_convexity"):
            UserLevelOneShot.calibrated(n=300, problem=problem, privacy=PRIVACY)
    made = UserLevelOneShot.calibrated(n=300, problem=PROBLEM, privacy=PRIVACY, rounds=2)
    with pytest.raises(ParameterError, match=r"data"):
        run(made, persons()[:, 0])
    with pytest.raises(ParameterError, match="mean"):
        dataclasses.replace(made, n=200)
