"""Objective perturbation around a released centre: cost, gain and refusals."""

import math

import numpy as np
import pytest

from protocols import CentredObjective, Logistic, ObjectivePerturbation, PrivateLogisticRegression
from protocols.problems.domains import RealSpace
from protocols.problems.problem import Problem
from shuffle_sim import ParameterError, Privacy, run

CONSTANT = 0.25
LOSS = Logistic(math.hypot(1, CONSTANT))
PURE = Privacy(1.0, 0.0)


def people(n=2000, d=6):
    """Rows within a small part of the ball, off its middle, with a constant and labels."""
    rng = np.random.default_rng(0)
    x = 0.25 + 0.04 * rng.normal(size=(n, d))
    y = np.where((x - 0.25) @ np.resize([1.0, -1.0], d) > 0, 1.0, -1.0)
    return np.column_stack([x, np.full(n, CONSTANT), y])


def problem(d=6, **given):
    return Problem(LOSS, RealSpace(d + 1), **({"ridge": 0.01, "constant": CONSTANT} | given))


def accuracy(theta, rows):
    return float(((rows[:, :-1] @ theta > 0) == (rows[:, -1] > 0)).mean())


@pytest.mark.parametrize("privacy", [PURE, Privacy(1.0, 1e-6)])
@pytest.mark.full
def test_two_releases_cost_what_was_asked_for(privacy):
    made = CentredObjective.calibrated(n=2000, problem=problem(), privacy=privacy)
    result = run(made, people(), seed=1)
    charges = result.ledger.charges
    assert len(charges) == 2
    assert 0.98 < result.privacy.epsilon <= 1
    assert result.privacy.delta == privacy.delta
    assert made.inner.privacy.epsilon == pytest.approx(0.8)


def test_rows_off_the_middle_are_told_apart():
    """Ten seeds; without a centre the same budget is near a coin (power)."""
    rows, found = people(), {}
    for kind in (CentredObjective, ObjectivePerturbation):
        made = kind.calibrated(n=2000, problem=problem(), privacy=PURE)
        found[kind] = np.mean([accuracy(run(made, rows, seed=s).value, rows) for s in range(10)])
    assert found[CentredObjective] > 0.85
    assert found[ObjectivePerturbation] < found[CentredObjective] - 0.1


def test_with_little_noise_it_is_the_moved_rows_minimiser():
    made = CentredObjective.calibrated(n=2000, problem=problem(), privacy=Privacy(1e5, 0.0))
    state = made.init()
    released = made.plan(state).statistic(lambda part: part(people()), 2000)
    centred = made._centred(made.update(state, released))
    moved = ObjectivePerturbation.calibrated(n=2000, problem=problem(), privacy=Privacy(8e4, 0.0))
    expected = centred.outward(run(moved, centred.rows(people()), seed=2).value)
    assert run(made, people(), seed=1).value == pytest.approx(expected, rel=0.02, abs=0.02)


def test_an_estimator_takes_it_at_delta_0():
    rows = people()
    x, y = rows[:, :-2], rows[:, -1]
    for intercept, name in ((True, "CentredObjective"), (False, "ObjectivePerturbation")):
        model = PrivateLogisticRegression(delta=0.0, fit_intercept=intercept, random_state=1)
        assert type(model.fit(x, y).algorithm_).__name__ == name
        assert model.privacy_.delta == 0


@pytest.mark.parametrize(
    ("given", "parameter"),
    [({"problem": problem(constant=None)}, "constant"), ({"share": 1.0}, "share")],
)
def test_what_does_not_fit_is_refused_by_name(given, parameter):
    with pytest.raises(ParameterError) as caught:
        CentredObjective.calibrated(**({"n": 50, "problem": problem(), "privacy": PURE} | given))
    assert caught.value.parameter == parameter
