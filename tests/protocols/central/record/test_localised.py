"""The localised exponential mechanism: both laws, the range that the draw pays for, the bound."""

import math
from functools import partial

import numpy as np
import pytest
from classes import law_p_value, rows_of
from scipy import stats

from protocols import Hinge, L2Ball, LocalisedExponential, Logistic, Problem, RealSpace, Squared
from protocols.erm.risk import Risk
from protocols.erm.solver import minimise
from protocols.problems import Linear
from shuffle_sim import ParameterError, Privacy, run

PURE = Privacy(1.0)


def made(n=60, d=1, ridge=0.3, **given):
    case = {"n": n, "problem": Problem(Logistic(), RealSpace(d), ridge), "privacy": PURE}
    return LocalisedExponential.calibrated(**(case | given))


@pytest.mark.full
def test_both_laws_are_the_stated_ones():
    """Gamma noise of the share, then a density by quadrature in the ball.

    A false alarm has probability 1e-6. Noise 1.4 times too small and a sharpness 5 times too large
    are caught.
    """
    algorithm, rows, rng = made(), rows_of(60, 1, 3), np.random.default_rng(5)
    first = algorithm.plan(algorithm.init())
    exact = first.statistic.of(rows)
    shift = first.sensitivity.value
    centres = np.array([first.mechanism.sample(exact, shift, rng) for _ in range(500)])
    rate = algorithm.share / shift

    def centred(scale):
        return stats.kstest(np.abs(centres - exact)[:, 0], stats.expon(scale=scale / rate).cdf)

    assert centred(1.0).pvalue > 1e-6
    assert centred(1.4).pvalue < 1e-6
    centre = exact + 0.4 * algorithm.size  # the ball cuts the density on one side
    second = algorithm.plan(algorithm.update(algorithm.init(), centre))
    function = second.statistic.of(rows)
    k = algorithm.draw.sharpness(0.3, second.sensitivity.value)
    draws = np.array(
        [second.mechanism.sample(function, second.sensitivity.value, rng)[0] for _ in range(700)]
    )
    grid = np.linspace(centre[0] - algorithm.size, centre[0] + algorithm.size, 3001)
    assert grid[0] <= draws.min() <= draws.max() <= grid[-1]
    energy = np.array([function.value(np.array([w])) for w in grid])
    p_value = partial(law_p_value, draws, grid, energy)
    assert p_value(k) > 1e-6
    assert p_value(5 * k) < 1e-6


def test_the_range_of_a_swap_is_what_the_draw_pays_for():
    """A linear loss attains it: a sharpness that is 10 % too large breaks the claim."""
    problem = Problem(Linear(), RealSpace(2), 0.3)
    algorithm, rows = made(d=2, problem=problem), np.zeros((60, 3))
    other = rows.copy()
    rows[0, 0], other[0, 0] = 1.0, -1.0
    release = algorithm.plan(algorithm.update(algorithm.init(), np.array([0.5, -2.0])))
    functions = [release.statistic.of(each) for each in (rows, other)]
    ball = functions[0].domain
    ends = [ball.center + side * algorithm.size * np.eye(2)[0] for side in (1, -1)]
    changes = [functions[0].value(each) - functions[1].value(each) for each in ends]
    k = algorithm.draw.sharpness(0.3, release.sensitivity.value)
    spent = k * abs(changes[0] - changes[1])
    left = 1 - algorithm.share
    assert left * (1 - 1e-9) < spent <= left
    assert 1.1 * spent > left


def test_epsilon_is_spent_in_two_pure_parts():
    result = run(made(n=400, d=3, ridge=0.05), rows_of(400, 3), seed=7)
    assert result.privacy.epsilon == pytest.approx(1.0)
    assert result.privacy.epsilon <= 1.0
    assert result.privacy.delta == 0
    assert result.rounds == 2
    assert any("time of the draw" in each for each in result.privacy.assumptions)


@pytest.mark.full
@pytest.mark.parametrize(
    "problem",
    [Problem(Logistic(), RealSpace(3), 0.05), Problem(Logistic(), L2Ball(3, 2.0))],
    ids=["ridge", "ball"],
)
def test_the_measured_excess_is_below_the_proven_bound(problem):
    rows = rows_of(400, 3)
    algorithm = made(n=400, problem=problem)
    # Of the problem itself, within 2e-4: not of the ridge that the algorithm adds.
    least = Risk.of(problem, problem.ridge or 1e-4)
    best = minimise(least.objective(rows), 1e-6).point
    losses = [problem.risk(run(algorithm, rows, seed=seed).value, rows) for seed in range(25)]
    excess = np.array(losses) - problem.risk(best, rows)
    error = excess.std() / math.sqrt(len(excess))
    assert excess.mean() - 6 * error <= algorithm.bound
    assert algorithm.bound < 60 * abs(excess.mean())


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"problem": Problem(Hinge(), RealSpace(2), 0.1)}, "loss"),
        ({"problem": Problem(Squared(labels=1.0), RealSpace(2), 0.1)}, "loss"),
        ({"ridge": 1e-5}, "ridge"),
        ({"d": 3000, "n": 10**5}, "d"),
        ({"noise": "gamma"}, "noise"),
        ({"n": 0, "problem": Problem(Logistic(), RealSpace(2), 0.1)}, "n"),
    ],
)
def test_bad_input_is_refused_by_name(given, parameter):
    with pytest.raises(ParameterError) as caught:
        made(**given)
    assert caught.value.parameter == parameter
