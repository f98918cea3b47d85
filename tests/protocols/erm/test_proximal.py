"""Descent with a public number of steps: certificates, sensitivity, and what ends a run."""

import math
from functools import partial

import numpy as np
import pytest

from protocols import Absolute, HeavyTailedERM, L2Ball, Moments, Problem
from protocols.erm import proximal
from protocols.erm.proximal import ProximalObjective, certified, fixed, fixed_sensitivity
from protocols.erm.solver import UncertifiedError
from protocols.problems.surrogates import Surrogate
from shuffle_sim import Privacy, run
from shuffle_sim.errors import ParameterError


def regression(rng, m=100, d=3):
    """An absolute regression with heavy features, some of them scaled up to a thousand."""
    x = rng.standard_t(1.2, size=(m, d)) * 10.0 ** rng.uniform(-1, 3, (m, 1))
    rows = np.column_stack([x, rng.normal(size=m)])
    surrogate = Surrogate(Absolute(math.inf), 1.0, 0.5 * m)
    objective = ProximalObjective(L2Ball(d, 2.0), rng.normal(size=d) * 0.3, 0.5, 1.0, 0.5 * m, m)
    return objective, lambda w: surrogate.gradient(w, rows) / m


def mean_of(surrogate, rows, w):
    return surrogate.gradient(w, rows) / len(rows)


def test_the_residual_is_never_below_the_distance():
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(30):
        objective, mean = regression(rng)
        exact = certified(objective, mean, 1e-9)
        w = objective.domain.project(rng.normal(size=3))
        for step in (1e-3, 0.02, 1.0):
            at_w = objective.gradient(mean(w), w)
            after = objective.domain.project(w - step * at_w)
            at_after = objective.gradient(mean(after), after)
            proven = proximal._proof(objective, w, at_w, step, after, at_after)
            largest = max(largest, float(np.linalg.norm(after - exact)) / proven)
    assert 0.5 < largest <= 1.0 + 1e-6


def test_every_way_comes_within_what_it_promises():
    rng = np.random.default_rng(1)
    for _ in range(5):
        objective, mean = regression(rng)
        exact, far = certified(objective, mean, 1e-10), 1e-4
        found = certified(objective, mean, far)
        assert np.linalg.norm(found - exact) <= far
        budget = objective.budget(far)
        slow = proximal._constant(objective, mean, far, budget, objective.start)
        assert slow is not None  # the public number of steps does, for every data set
        assert np.linalg.norm(slow - exact) <= far


def test_plain_descent_of_neighbours_stays_within_sensitivity():
    rng, m, widest = np.random.default_rng(2), 40, 0.0
    surrogate = Surrogate(Absolute(math.inf), 1.0, 0.5 * m)
    objective = ProximalObjective(L2Ball(3, 2.0), np.zeros(3), 0.5, 1.0, 0.5 * m, m)
    for _ in range(40):
        x = np.tile(rng.normal(size=3), (m, 1)) * 10.0 ** rng.uniform(0, 3)
        rows = np.column_stack([x, rng.choice([-1e5, 1e5], m)])
        other = rows.copy()
        other[0, -1] *= -1
        steps = int(rng.integers(1, 60))
        ends = [
            fixed(objective, partial(mean_of, surrogate, each), steps) for each in (rows, other)
        ]
        bound = fixed_sensitivity(1.0, 0.5, m, 0.5 * m, steps)
        widest = max(widest, float(np.linalg.norm(ends[0] - ends[1])) / bound)
    assert 0.9 < widest <= 1 + 1e-9  # attained: a bound 10 % smaller would be caught


def test_a_run_not_certified_releases_nothing_but_is_charged(monkeypatch):
    monkeypatch.setattr(proximal, "_adaptive", lambda *_: (None, np.zeros(3)))
    monkeypatch.setattr(proximal, "_constant", lambda *_: None)
    problem = Problem(Absolute(math.inf), L2Ball(3, 2.0), norm_bound=math.inf)
    made = HeavyTailedERM.calibrated(
        n=50, problem=problem, privacy=Privacy(1.0), moments=Moments(4, 1.4, 1.0)
    )
    with pytest.raises(UncertifiedError) as caught:
        run(made, np.ones((50, 4)), seed=1)
    assert caught.value.ledger.guarantee(0.0).epsilon == 1.0


def test_what_rests_on_no_smoothness_is_refused():
    kinks = ProximalObjective(L2Ball(3, 2.0), np.zeros(3), 0.5, 1.0)
    for act in (lambda: kinks.budget(0.1), lambda: fixed(kinks, np.ones_like, 3)):
        with pytest.raises(ParameterError, match="smoothing"):
            act()
    steep = ProximalObjective(L2Ball(3, 2.0), np.zeros(3), 1e-6, 1.0, 1e6)
    with pytest.raises(ParameterError, match=r"rounding errors|steps of descent"):
        steep.budget(1e-3)


def test_closeness_in_total_variation_is_not_pure():
    # E8: a sampler within 1e-9 of a pure one may give a point that the neighbour's never gives.
    exact, sampled = np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.5 - 1e-9, 1e-9])
    assert np.abs(exact - sampled).sum() / 2 == pytest.approx(1e-9)
    with np.errstate(divide="ignore"):
        assert np.log(sampled / exact).max() == math.inf


def test_the_impossibility_proofs_oracle_reveals_its_direction():
    # E6: f(y) = -a s + phi(s) with s = <v, y> and phi flat at 0. The proof keeps all queries at
    # s = 0, but there the gradient is -a v: the next query need not be orthogonal to v.
    v, a = np.array([0.6, 0.8]), 3.0

    def f(y):
        s = float(v @ y)
        return -a * s + (math.exp(-1 / s**2) if abs(s) > 1e-3 else 0.0)

    query = np.array([-0.8, 0.6])
    assert v @ query == pytest.approx(0.0)
    slope = [(f(query + step) - f(query)) / 1e-6 for step in 1e-6 * np.eye(2)]
    assert slope == pytest.approx(-a * v, abs=1e-6)
