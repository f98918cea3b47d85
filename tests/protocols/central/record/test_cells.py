"""Exact draws without a ridge: their laws in closed form, their privacy, their bounds."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from protocols import (
    Absolute,
    Box,
    ExponentialMechanism,
    Gibbs,
    Hinge,
    Huber,
    L2Ball,
    Linear,
    LocalisedExponential,
    Logistic,
    MeanEstimation,
    OneVsRestHinge,
    Problem,
    RealSpace,
    Simplex,
)
from protocols.central.record.density import ExponentialDraw, GibbsDraw
from protocols.erm import cells
from protocols.erm.cells import MOST_SHARP, RowsMean, accepted, covered
from protocols.erm.smooth import ERM
from shuffle_sim import ParameterError, Privacy, run

PURE = Privacy(1.0)


def draws(risk, k, count=1500):
    rng, boxes = np.random.default_rng(5), covered(risk, k)
    return np.array([accepted(rng, risk, k, boxes) for _ in range(count)])


def p_value(found, log_density, low, high):
    """Of Kolmogorov and Smirnov's test against a density on [low, high]."""
    grid = np.linspace(low, high, 20_001)
    logs = log_density(grid)
    cdf = np.cumsum(np.exp(logs - logs.max()))
    return stats.kstest(found, lambda w: np.interp(w, grid, cdf / cdf[-1])).pvalue


@pytest.mark.parametrize("k", [3.0, 200.0])
@pytest.mark.full
def test_one_parameter_with_kinks_on_a_box(k):
    """False alarm 1e-6; twice the sharpness is caught."""
    targets = np.array([-0.4, 0.1, 0.1, 0.1, 0.7])
    rows = np.stack([np.ones(5), targets], axis=1)
    risk = RowsMean(Absolute(labels=1.0), rows, 0.0, Box(1, -0.5, 2.0))
    found = draws(risk, k)[:, 0]

    def value(w):
        return np.abs(w[:, None] - targets).mean(axis=1)

    assert p_value(found, lambda w: -k * value(w), -0.5, 2.0) > 1e-6
    assert p_value(found, lambda w: -2 * k * value(w), -0.5, 2.0) < 1e-6


@pytest.mark.parametrize("k", [2.0, 100.0])
@pytest.mark.full
def test_a_linear_loss_on_a_ball_whose_border_decides(k):
    """Along the slope the density is e^(-k t) times the length of the chord."""
    way = np.array([0.6, 0.8])
    ball = L2Ball(2, 2.0, np.array([1.0, -1.0]))
    risk = RowsMean(Linear(), np.append(way, 0.0)[None], 0.0, ball)
    points = draws(risk, k)
    assert np.linalg.norm(points - ball.center, axis=1).max() <= 2.0

    def chord(sharp):
        return lambda t: -sharp * t + np.log(np.maximum(4 - t * t, 1e-300)) / 2

    found = (points - ball.center) @ way
    assert p_value(found, chord(k), -2.0, 2.0) > 1e-6
    assert p_value(found, chord(2 * k), -2.0, 2.0) < 1e-6


@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_means_on_a_box_are_truncated_normals(ridge):
    """A loss that is no linear model, in three parameters; a ridge only adds to the curvature."""
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (20, 3))
    risk = RowsMean(MeanEstimation(), rows, ridge, Box(3, -0.6, 0.3))
    k = 30.0
    found, mean = draws(risk, k, 400), rows.mean(axis=0) / (1 + ridge)
    for at in range(3):

        def log_density(w, at=at, sharp=k * (1 + ridge)):
            return -sharp / 2 * (w - mean[at]) ** 2

        assert p_value(found[:, at], log_density, -0.6, 0.3) > 1e-6
        shifted = p_value(found[:, at], lambda w: log_density(w - 0.15), -0.6, 0.3)
        assert shifted < 1e-6


def test_losses_of_one_draw_stay_within_epsilon():
    """Densities of opposite linear losses; the range of F - F' is the diameter's."""
    problem = Problem(Linear(), Box(1, -1.0, 1.0))
    made = ExponentialMechanism.calibrated(n=4, problem=problem, privacy=PURE)
    k = made.mechanism.sharpness(0.0, made.statistic.sensitivity.value)
    w = np.linspace(-1, 1, 20_001)

    def log_density(slope):
        logs = -k * slope * w
        return logs - np.logaddexp.reduce(logs)

    worst = np.abs(log_density(0.5) - log_density(0.0)).max()
    assert 0.5 < worst <= 1.0


def test_a_label_that_turns_moves_logistic_losses_by_no_more_than_is_charged():
    """F - F' is linear there: its range is all that is charged, half of 2 L times the diameter."""
    made: Any = ExponentialMechanism.calibrated(
        n=4, problem=Problem(Logistic(), L2Ball(1, 3.0)), privacy=PURE
    )
    rows = np.array([[1.0, 1.0], [0.3, -1.0], [-1.0, 1.0], [0.0, 1.0]])
    other = rows.copy()
    other[0, 1] = -1.0
    functions = [made.statistic.of(each) for each in (rows, other)]
    k = made.mechanism.sharpness(0.0, made.statistic.sensitivity.value)
    w = np.linspace(-3, 3, 4001)
    changes = np.array([functions[0].value(w[i : i + 1]) for i in range(len(w))])
    changes -= [functions[1].value(w[i : i + 1]) for i in range(len(w))]
    assert k * (changes.max() - changes.min()) == pytest.approx(1.0)


@pytest.mark.slow_parameters("loss2-3")
@pytest.mark.parametrize(("loss", "d"), [(Hinge(), 1), (Hinge(), 2), (Logistic(), 3)])
@pytest.mark.full
def test_no_ridge_is_needed_and_the_bound_d_over_k_holds(loss, d):
    """Mean excess of 20 runs; the bound is on the expectation."""
    problem = Problem(loss, L2Ball(d, 1.0))
    made = ExponentialMechanism.calibrated(n=400, problem=problem, privacy=PURE)
    assert made.ridge == 0
    assert made.bound == pytest.approx(d * 2 * loss.swing(1.0) / 400)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, d))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    rows = np.column_stack([x, np.where(x[:, 0] + rng.normal(size=400) > 0, 1.0, -1.0)])
    results = [run(made, rows, seed=seed) for seed in range(20)]
    assert results[0].privacy.epsilon == pytest.approx(1.0)
    cloud = rng.normal(size=(4000, d))
    cloud *= (rng.random(4000) ** (1 / d) / np.linalg.norm(cloud, axis=1))[:, None]
    best = min(problem.risk(each, rows) for each in cloud)
    excess = np.mean([problem.risk(each.value, rows) for each in results]) - best
    assert excess < made.bound
    flat = problem.risk(np.zeros(d), rows) - best  # a draw that ignored the data
    assert flat > 3 * made.bound


def test_what_boxes_do_not_serve_is_refused_by_name():
    def made(**own):
        return ExponentialMechanism.calibrated(n=400, problem=Problem(**own), privacy=PURE)

    with pytest.raises(ParameterError, match=r"Simplex of 3.*L2Ball or a Box"):
        made(loss=Hinge(), domain=Simplex(3))
    with pytest.raises(ParameterError, match="larger, or the ball"):
        made(loss=Hinge(), domain=L2Ball(4, 1.0), ridge=0.1)
    with pytest.raises(ParameterError, match="smooth"):
        made(loss=OneVsRestHinge(2), domain=L2Ball(4, 1.0), ridge=0.1)
    with pytest.raises(ParameterError, match="epsilon"):
        ExponentialMechanism.calibrated(
            n=400, problem=Problem(Hinge(), L2Ball(2, 1.0)), privacy=Privacy(0.0)
        )


def test_what_is_too_sharp_for_boxes_takes_an_envelope():
    """Three parameters are served where four are: 100,000 rows."""
    problem = Problem(Hinge(), L2Ball(3, 9.0), 0.2)
    made = ExponentialMechanism.calibrated(n=100_000, problem=problem, privacy=PURE)
    given = ExponentialMechanism.calibrated(n=400, problem=problem, privacy=PURE, smoothing=2.0)
    few = ExponentialMechanism.calibrated(n=400, problem=problem, privacy=PURE)
    assert made.smoothing == pytest.approx(120.0)
    assert (given.smoothing, few.smoothing) == (2.0, None)


def acceptance(risk, k, boxes, count=2000):
    """The share of proposals that is accepted."""
    rng = np.random.default_rng(3)
    which = rng.choice(len(boxes.shares), size=count, p=boxes.shares)
    steep, half = k * boxes.slopes[which], boxes.halves[which]
    points = boxes.middles[which] + cells._tilted(rng.random(half.shape), steep, half)
    inside = cells._inside(risk.domain, points)
    excess = k * risk.above(points[inside], boxes.bases[which[inside]])
    return np.exp(-excess).sum() / count


@pytest.mark.parametrize("d", MOST_SHARP)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.full
def test_many_proposals_are_accepted_up_to_the_limit(d, seed):
    """Few rows and many, kinks and none, small balls and large; without a split hardly any are."""
    rng, radius = np.random.default_rng(seed), (1.0, 20.0)[seed // 2 % 2]
    x = rng.normal(size=((4, 40)[seed % 2], d))
    x *= rng.uniform(0.2, 1.0, (len(x), 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    rows = np.c_[x, np.sign(rng.normal(size=len(x)))]
    loss = (Hinge(), Logistic())[seed // 4]
    risk = RowsMean(loss, rows, 0.0, L2Ball(d, radius))
    k = MOST_SHARP[d] / (4 * radius)
    assert acceptance(risk, k, covered(risk, k)) > 1 / 256  # one of a batch, on average
    if d > 1:  # along a line F may be a tangent of its own
        whole = cells._weighed(risk, k, np.zeros((1, d)), np.full((1, d), radius), None)
        assert acceptance(risk, k, whole) < 1 / 256


def test_a_density_beyond_the_limit_is_refused():
    problem = Problem(Hinge(), L2Ball(3, 1.0))
    with pytest.raises(ParameterError, match="epsilon \\* n"):
        ExponentialMechanism.calibrated(n=60_000, problem=problem, privacy=PURE)


@pytest.mark.parametrize("k", [1.0, 3e3])
@pytest.mark.parametrize(
    "domain",
    [L2Ball(1, 3.0), L2Ball(2, 3.0), Box(2, -1.0, 3.0), L2Ball(3, 3.0), Box(3, -1.0, 3.0)],
    ids=["interval", "disc", "square", "ball", "box"],
)
@pytest.mark.long
def test_audits_see_uniform_numbers(domain, k):
    """Also where the domain's border decides. False alarm 1e-6; twice the sharpness is caught."""
    rng, d = np.random.default_rng(2), domain.d
    x = rng.standard_normal((200, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.sign(x[:, 0] + rng.standard_normal(200))
    risk = RowsMean(Hinge(), np.column_stack([x, y]), 0.0, domain)
    points, mechanism = draws(risk, k), ExponentialDraw(k)  # of range 1
    uniform = np.array([mechanism.uniform(risk, 1.0, each, rng) for each in points])
    assert all(stats.kstest(each, "uniform").pvalue > 1e-6 for each in uniform.T)
    wrong = ExponentialDraw(2 * mechanism.epsilon)
    told = np.array([wrong.uniform(risk, 1.0, each, rng) for each in points])
    if k > 1:
        assert min(stats.kstest(each, "uniform").pvalue for each in told.T) < 1e-6
    found, exact = wrong.odds(risk, risk, 1.0, points[0])
    assert exact == (d < 3)
    assert found == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("domain", [RealSpace(5), L2Ball(5, 0.8)], ids=["space", "ball"])
@pytest.mark.full
def test_audits_see_one_uniform_number_of_many_parameters(domain):
    """False alarm 1e-6; twice the noise is caught, and a point that is not drawn."""
    rng, d = np.random.default_rng(4), domain.d
    x = rng.standard_normal((40, d))
    rows = np.column_stack([x / np.linalg.norm(x, axis=1, keepdims=True), np.sign(x[:, 0])])
    objective = ERM(Logistic(), rows, 0.5, domain)
    right, wrong = GibbsDraw(5.0), GibbsDraw(10.0)
    points = [right.sample(objective, 1.0, rng) for _ in range(600)]
    still = [objective.domain.project(np.full(d, 0.1))] * 250

    def p_value(law, drawn):
        found = np.concatenate([law.uniform(objective, 1.0, each, rng) for each in drawn])
        assert found.shape == (len(drawn),)
        return stats.kstest(found, "uniform").pvalue

    assert p_value(right, points) > 1e-6
    assert p_value(wrong, points) < 1e-6
    assert p_value(right, still) < 1e-6


@pytest.mark.parametrize("domain", [L2Ball(1, 3.0), L2Ball(2, 3.0), Box(2, -1.0, 3.0)])
@pytest.mark.slow
def test_odds_of_draws_average_to_one(domain):
    """The mean of e^odds is 1 (Hoeffding: 1e-6). Power: without the constant it is far off."""
    x = np.tile(np.eye(1, domain.d), (30, 1))
    rows = np.column_stack([x, np.ones(30)])
    other = rows.copy()
    other[0, :-1] *= -1
    risk, changed = (RowsMean(Hinge(), each, 0.0, domain) for each in (rows, other))
    k, count = 5.0, 6000
    odds = [ExponentialDraw(k).odds(risk, changed, 1.0, each) for each in draws(risk, k, count)]
    assert all(exact for _, exact in odds)
    found = np.exp([each for each, _ in odds])
    # Margins are 3 at most, so two hinges are 4 apart, of 30 rows.
    limit = 2 * np.sinh(2 * k * 4 / 30) * np.sqrt(np.log(2e6) / (2 * count))
    assert abs(found.mean() - 1) < limit
    plain = [k * (risk.value(each) - changed.value(each)) for each in draws(risk, k, count)]
    assert abs(np.exp(plain).mean() - 1) > limit


@pytest.mark.parametrize("loss", [Absolute(), Huber(threshold=0.5)])
def test_no_label_takes_the_digits_of_other_rows(loss):
    """Neighbours' potentials are at most 2 L D/n apart; by plain means they are further apart."""
    n, domain = 1000, L2Ball(1, 1.0)
    made = ExponentialMechanism.calibrated(n=n, problem=Problem(loss, domain), privacy=PURE)
    rows = np.column_stack([np.ones(n), np.random.default_rng(3).uniform(-1, 1, n)])
    points = np.linspace(-1, 1, 401)[:, None]
    most = 2 * made.risk.lipschitz * domain.diameter / n
    first, plain = RowsMean(loss, rows, 0.0, domain).at(points)[0], loss.value
    apart = []
    for label in (1.0, 1e12, 1e15, 1e17, 1e19, 1e300):
        other = rows.copy()
        other[0, 1] = label
        moved = first - RowsMean(loss, other, 0.0, domain).at(points)[0]
        assert np.ptp(moved) <= most * (1 + 1e-6)
        before, after = (plain(points @ [[1.0]], x[:, 1]).mean(axis=1) for x in (rows, other))
        apart.append(np.ptp(before - after))
        if label > 1e3:
            with pytest.raises(ParameterError, match=r"data\[0\]"):
                made.check(other)
    assert max(apart) > 1.5 * most  # power
    made.check(rows)


@pytest.mark.parametrize("ridge", [-0.1, np.nan, np.inf])
def test_a_ridge_that_bends_the_risk_down_is_refused(ridge):
    """Below 0 tangents are not below F, so draws would follow the boxes, which follow the rows."""
    problem = Problem(Hinge(), L2Ball(1, 4.0))
    with pytest.raises(ParameterError, match="ridge"):
        ExponentialMechanism(n=1000, problem=problem, privacy=PURE, ridge=ridge)


@pytest.mark.parametrize("kind", [Gibbs, ExponentialMechanism, LocalisedExponential])
def test_a_loss_without_digits_is_refused_with_a_ridge_too(kind):
    problem = Problem(Huber(), L2Ball(1, 1.0), ridge=1.0)
    privacy = Privacy(1.0, 1e-6) if kind is Gibbs else PURE
    made = kind.calibrated(n=1000, problem=problem, privacy=privacy)
    rows = np.column_stack([np.ones(1000), np.full(1000, 0.3)])
    made.check(rows)
    rows[7, 1] = 1e16
    with pytest.raises(ParameterError, match=r"data\[7\]"):
        made.check(rows)
