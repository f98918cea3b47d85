"""The paper's own systems: fidelity, exact sensitivities, and the printed defects."""

import math

import numpy as np
import pytest

from protocols import Absolute, ExponentialGrid, L2Ball, Logistic, PopLocalize, Problem
from protocols.central.heavy_tails.exponential_grid import GridScore, net
from protocols.problems import Softmax
from protocols.problems.moments import Moments
from protocols.problems.surrogates import Clipped
from shuffle_sim import Privacy, run
from shuffle_sim.errors import ParameterError

PURE, MOMENTS = Privacy(1.0), Moments(4, 1.45, 1.0, 0.9)


def problem_of(loss, d=3, radius=2.0):
    return Problem(loss, L2Ball(d, radius), norm_bound=math.inf)


def rows_of(rng, n, d=3):
    x = rng.standard_t(5, size=(n, d)) / math.sqrt(d * 5 / 3)
    return np.column_stack([x, x @ np.full(d, 0.5) + 0.1 * rng.normal(size=n)])


# Pop-Localize


def test_printed_noise_is_the_papers_and_spends_half_epsilon():
    made = PopLocalize.paper(
        n=4000, problem=problem_of(Absolute(math.inf)), privacy=PURE, moments=MOMENTS
    )
    first = made.plan(made.init())
    m, lam, clip = made.sizes[0], made.first, made.clip(0)
    assert m == 2000
    assert len(made.sizes) == 5  # no empty blocks (E5); of later ones doubles certify no projection
    assert made.stage(len(made.sizes) - 1, False).scale < 1e-5
    assert clip == pytest.approx(1.45 * (2000 / 3) ** 0.25)
    stage = made.stage(0, False)
    assert stage.scale == pytest.approx(6 * clip / (lam * m * 0.5))
    # E4: the radius is 600, so the diameter of the ball is 1200 C d/(lambda n epsilon).
    assert stage.radius == pytest.approx(600 * clip * 3 / (lam * m))
    assert first.sensitivity.value == pytest.approx(4 * clip / (lam * m))
    second = made.plan(made.update(made.init(), np.zeros(3)))
    assert second.cohort == first.cohort
    # E9: stage 2 needs 7/3 C/(lambda m) and has noise for 6: epsilon/3 + 7 epsilon/36 are spent.
    spent = sum(each.event.rate for each in (first, second))
    assert spent == pytest.approx(1 / 3 + 7 / 36)


@pytest.mark.parametrize("system", ["double", "single"])
@pytest.mark.parametrize("tight", [False, True])
def test_pop_localize_runs_and_the_ledger_says_what_it_spends(system, tight):
    make = PopLocalize.calibrated if tight else PopLocalize.paper
    made = make(
        n=2000, problem=problem_of(Absolute(math.inf)), privacy=PURE, moments=MOMENTS,
        system=system, blocks=3,
    )  # fmt: skip
    result = run(made, rows_of(np.random.default_rng(0), 2000), seed=1)
    spent = {("double", False): 19 / 36, ("single", False): 2 / 3}.get((system, tight), 1.0)
    assert result.privacy.epsilon == pytest.approx(spent)
    assert result.privacy.delta == 0
    assert result.rounds == len(made.sizes) * 3 * made.stages
    assert np.linalg.norm(result.value) <= 2.0


def test_blocks_larger_than_the_people_are_refused():
    with pytest.raises(ParameterError, match="blocks = 60"):
        PopLocalize.paper(
            n=100, problem=problem_of(Absolute(math.inf)), privacy=PURE, moments=MOMENTS, blocks=60
        )


# The exponential mechanism


def utilities(score, rows):
    return score(lambda part: part(rows), len(rows))


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("loss", [Absolute(math.inf), Logistic(math.inf)], ids=["kink", "smooth"])
def test_log_ratios_of_the_choice_are_at_most_epsilon(loss, d):
    rng, n, worst = np.random.default_rng(3), 5, 0.0
    ball = L2Ball(d, 1.0)
    points = net(ball, 0.2)
    score = GridScore(Clipped(loss, 1.0), ball, points, np.zeros(d), 0.5, n, 0.3)
    signs = rng.choice([-1.0, 1.0], (40 // d**2, n + 1))
    for sign in signs:
        wild = rng.standard_t(1.2, size=(n + 1, d)) * 10.0 ** rng.uniform(-3, 3, (n + 1, 1))
        rows = np.column_stack([wild, sign])
        rows[0, 0] = rng.choice([1e300, math.nan, math.inf, 0.0])
        pair = [np.delete(rows, each, axis=0) for each in (0, n)]
        pair[1] = np.concatenate([pair[1][1:], pair[1][:1]])  # neighbours: one row differs
        logs = []
        for each in pair:
            u = utilities(score, each) / score.sensitivity.value
            logs.append(u - np.logaddexp.reduce(u))
        worst = max(worst, float(np.abs(logs[0] - logs[1]).max()))
    assert 0.05 < worst <= 1.0


def test_a_sensitivity_ten_per_cent_too_small_is_caught():
    # d = 1, far from the domain's ends: the score of one point rises by 2 C/m, another's falls.
    ball, n = L2Ball(1, 5.0), 4
    points = np.array([[-1.0], [1.0]])
    score = GridScore(Clipped(Absolute(math.inf), 1.0), ball, points, np.zeros(1), 2.0, n, 0.1)
    rows = np.column_stack([np.full(n, 1.0), np.full(n, 9.0)])
    other = rows.copy()
    other[0, 1] = -9.0
    moved = utilities(score, rows) - utilities(score, other)
    assert np.ptp(moved) == pytest.approx(score.sensitivity.value)
    assert np.ptp(moved) > 0.9 * score.sensitivity.value


@pytest.mark.parametrize(("gamma", "center"), [(1e-14, 0.0), (1e-13, 0.0), (0.5, 1e11)])
def test_scores_of_rounded_steps_move_as_stated(gamma, center):
    rng, n = np.random.default_rng(5), 5000
    ball = L2Ball(1, 1.0, center)
    score = GridScore(Clipped(Logistic(), 1.0), ball, net(ball, 0.05), ball.center, 0.5, n, gamma)
    worst = 0.0
    for _ in range(10):
        rows = np.column_stack([rng.uniform(-1, 1, n), rng.choice([-1.0, 1.0], n)])
        pair = [np.vstack([[1.0, label], rows[1:]]) for label in (-1.0, 1.0)]
        worst = max(worst, float(np.ptp(utilities(score, pair[0]) - utilities(score, pair[1]))))
    assert 0 < worst <= score.sensitivity.value
    if not center:  # 4 C/m alone is not enough
        assert worst > 1.1 * 4 / n


def test_a_net_from_the_data_gives_neighbours_other_supports():
    # E2: gamma = 1/(lambda + H_Z) and a net of step ~ gamma, H_Z from the longest row.
    def support(rows):
        h = np.abs(rows[:, 0]).max()
        return {round(float(each), 12) for each in net(L2Ball(1, 1.0), 1 / (1 + h)).ravel()}

    rows = np.array([[1.0], [2.0]])
    apart = support(rows) ^ support(np.array([[1.0], [2.5]]))
    assert apart  # a choice that one neighbour can give and the other cannot: epsilon is infinite


def test_the_grid_learns_in_one_dimension():
    rng, n = np.random.default_rng(4), 3000
    x = rng.standard_t(5, size=n) / math.sqrt(5 / 3)
    rows = np.column_stack([x, 0.8 * x + 0.1 * rng.normal(size=n)])
    problem = problem_of(Absolute(math.inf), 1, 3.0)
    made = ExponentialGrid.calibrated(
        n=n, problem=problem, privacy=PURE, moments=MOMENTS, step=0.05
    )
    result = run(made, rows, seed=1)
    assert result.privacy.epsilon == pytest.approx(1.0)
    assert result.privacy.delta == 0
    excess = problem.risk(result.value, rows) - problem.risk(np.array([0.8]), rows)
    trivial = problem.risk(np.zeros(1), rows) - problem.risk(np.array([0.8]), rows)
    assert excess < 0.5 * trivial


def test_any_loss_is_clipped_on_a_grid_and_large_nets_refused():
    softmax = Problem(Softmax(2), L2Ball(2, 1.0))
    made = ExponentialGrid.calibrated(n=200, problem=softmax, privacy=PURE, step=0.25)
    rows = np.column_stack([np.ones(200), np.zeros(200)])
    assert run(made, rows, seed=1).value.shape == (2,)
    for bad, problem, match in (
        ({"step": 1e-4}, problem_of(Absolute(math.inf), 2), "net above 1000000"),
        ({}, problem_of(Absolute(math.inf), 3), "1 or 2"),
    ):
        with pytest.raises(ParameterError, match=match):
            ExponentialGrid.calibrated(n=100, problem=problem, privacy=PURE, moments=MOMENTS, **bad)
