"""Heavy tails under pure privacy: sensitivity by brute force, bounds, phases, pilot, refusals."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from protocols import (
    Absolute,
    GaussianGD,
    HeavyTailedERM,
    L2Ball,
    Logistic,
    PopLocalize,
    Problem,
    PureSGD,
    Squared,
)
from protocols.central.heavy_tails.clipped_minimiser import ClippedMinimiser
from protocols.central.heavy_tails.heavy_tailed_erm import SOLVERS
from protocols.central.heavy_tails.pilot import PilotHistogram
from protocols.central.heavy_tails.plan import (
    HeavyTailedPhase,
    NoiseSize,
    Phasing,
    blocks_for,
    bound,
    likely_bound,
    plan,
)
from protocols.central.heavy_tails.unbounded import aggregate
from protocols.optimisation.base import Optimiser
from protocols.optimisation.tails import EDGES, Tails
from protocols.problems import Linear, Softmax  # fmt: skip
from protocols.problems.domains import Box, Intersection
from protocols.problems.losses import MeanEstimation
from protocols.problems.moments import Moments, kappa
from protocols.problems.polytope import Polytope
from protocols.problems.surrogates import Surrogate
from protocols.shuffle.optimiser import optimisers
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.mechanisms import L2Laplace
from shuffle_sim.registry import registered_kinds

D = 3
BALL = L2Ball(D, 2.0)
LOSSES = [Logistic(math.inf), Absolute(math.inf), Squared(math.inf), MeanEstimation(math.inf)]
PURE = Privacy(1.0)
MOMENTS = Moments(4, 1.45, 1.0, 0.9)


def problem_of(loss, d=D, radius=2.0, **others):
    return Problem(loss, L2Ball(d, radius), norm_bound=math.inf, **others)


def heavy(rng, n, columns, signs):
    """Rows of index 1.2, some of them far beyond anything: what a curator may meet."""
    rows = rng.standard_t(1.2, size=(n, columns)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
    for place, bad in enumerate((1e300, math.inf, math.nan, 0.0, -1e300)):
        if n > 6:
            rows[place + 1, rng.integers(columns)] = bad
    if signs:
        rows[:, -1] = rng.choice([-1.0, 1.0], n)
    return rows


def minimiser(statistic, rows):
    return statistic(lambda part: part(rows), len(rows))


def statistic_of(loss, users, clip=1.0, strong=0.5, steps=None, users_beta=None):
    phase = HeavyTailedPhase.of(users, strong, clip)
    return ClippedMinimiser(
        Surrogate(loss, clip, strong * (users_beta or users)),
        BALL, np.zeros(D), strong, 0.0, phase.tau, users, steps,
    )  # fmt: skip


# Privacy: the sensitivity, by brute force


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.full
def test_minimisers_of_neighbours_are_apart_as_stated(loss, solver):
    rng, n, widest = np.random.default_rng(1), 12, 0.0
    statistic = statistic_of(loss, n, steps=15 if solver == "fixed" else None)
    signs, columns = isinstance(loss, Logistic), loss.columns(D)
    for _ in range(2):
        rows = heavy(rng, n, columns, signs)
        first = minimiser(statistic, rows)
        assert np.isfinite(first).all()
        for place in range(n):  # neighbours at every position
            other = rows.copy()
            other[place] = heavy(rng, 1, columns, signs)[0]
            widest = max(widest, float(np.linalg.norm(minimiser(statistic, other) - first)))
    assert widest <= statistic.sensitivity.value
    assert widest > 0.05 * statistic.sensitivity.value  # the search is not idle


def opposite(n, clip):
    """Neighbours whose exact minimisers are 2 C/(lambda m) apart: losses +-C w (d = 1)."""
    rows = np.column_stack([np.full(n, clip), np.zeros(n)])
    rows[: n // 2, 0] *= -1
    other = rows.copy()
    other[0, 0] *= -1
    return rows, other


def test_the_sensitivity_is_attained_and_less_is_caught():
    n, clip, strong = 100, 1.0, 0.5
    tau = 0.01 * 2 * clip / (strong * n)
    made = [
        ClippedMinimiser(
            Surrogate(Linear(math.inf), clip, strong * n),
            L2Ball(1, 3.0), np.zeros(1), strong, 0.0, tau, n, steps,
        )
        for steps in (None, 20)
    ]  # fmt: skip
    rows, other = opposite(n, clip)
    certified, stepped = (
        abs(float((minimiser(each, rows) - minimiser(each, other))[0])) for each in made
    )
    exact = 2 * clip / (strong * n)
    assert exact - 2 * tau <= certified <= made[0].sensitivity.value
    assert certified > 0.9 * made[0].sensitivity.value  # a sensitivity 10 % too small is caught
    # Twenty steps of length 2/(beta + 2 lambda): attained to rounding.
    eta = 2 / (strong * n + 2 * strong)
    assert stepped == pytest.approx(exact * (1 - (1 - eta * strong) ** 20), rel=1e-9)
    assert stepped <= made[1].sensitivity.value


LENS = Intersection(L2Ball(D, 1.0), L2Ball(D, 1.0, [1.99, 0.0, 0.0]))
RIM = math.sqrt(1 - 0.995**2)
"""Of the lens where both spheres meet: the minimiser of whatever pulls outward lies on it."""


CUBE = Polytope(np.vstack([np.eye(D), -np.eye(D)]), np.ones(2 * D))


@pytest.mark.parametrize("steps", [None, 400])
@pytest.mark.full
def test_a_polytope_that_is_a_box_has_the_minimisers_of_a_box(steps):
    rng, users, apart = np.random.default_rng(11), 40, 0.0
    for _ in range(6):
        rows = rng.standard_t(2, size=(users, D + 1))
        tau = 0.01 * 2 / (0.5 * users)
        surrogate = Surrogate(Linear(math.inf), 1.0, 0.5 * users)
        found = [
            minimiser(
                ClippedMinimiser(surrogate, domain, np.ones(D), 0.5, 0.0, tau, users, steps), rows
            )
            for domain in (CUBE, Box(D, -1.0, 1.0))
        ]
        assert (np.abs(found[1]) == 1).any()  # on a face
        apart = max(apart, float(np.linalg.norm(found[0] - found[1])))
    assert apart <= 2 * tau


def test_phases_run_on_a_polytope():
    """Their tau is one that can be proven; with that of a ball they are refused."""
    triangle = Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0.0, 0.0])
    problem = Problem(Linear(math.inf), triangle, norm_bound=math.inf)
    rows = np.random.default_rng(0).standard_t(5, size=(20_000, 3)) - 0.8
    made = HeavyTailedERM.calibrated(n=20_000, problem=problem, privacy=PURE, moments=MOMENTS)
    last = made.phases[-1]
    planned = HeavyTailedPhase.of(last.users, last.strong, last.clip)
    assert planned.tau < last.tau < 10 * planned.tau
    with pytest.raises(ParameterError, match="rounding errors"):
        HeavyTailedERM(problem=problem, n=20_000, privacy=PURE, phases=(planned,))
    value = run(made, rows, seed=1).value
    assert (triangle.matrix @ value <= triangle.bounds + 1e-12).all()
    assert value.sum() > 0.9  # the mean gradient is negative: the far side is best


def lens_statistic(clip, steps=None, n=100):
    tau = 0.01 * 2 * clip / (0.5 * n)
    surrogate = Surrogate(Linear(math.inf), clip, 0.5 * n)
    return ClippedMinimiser(surrogate, LENS, np.zeros(D), 0.5, 0.0, tau, n, steps)


@pytest.mark.parametrize("steps", [None, 40])
def test_a_certified_point_of_a_thin_intersection_is_in_it(steps):
    statistic = lens_statistic(1.0, steps)
    pull = np.array([0.3, 0.6, -0.7])
    rows = np.column_stack([np.tile(pull, (100, 1)), np.zeros(100)])
    found = minimiser(statistic, rows)
    outward = -pull[1:] / np.linalg.norm(pull[1:])
    exact = np.array([0.995, *(RIM * outward)])
    assert np.linalg.norm(found) <= 1 + 1e-14
    assert np.linalg.norm(found - LENS._sets[1].center) <= 1 + 1e-14
    assert np.linalg.norm(found - exact) <= statistic.tau


@dataclass(init=False, eq=False)
class Guessed(L2Ball):
    """A domain of a user whose projection iterates until it is tired, and says so."""

    def slack(self, far):
        return math.inf


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_cannot_be_certified_is_refused_before_reading(solver):
    given = {"n": 100, "privacy": PURE, "moments": MOMENTS, "solver": solver}
    guessed = Problem(Absolute(math.inf), Guessed(D, 1.0), norm_bound=math.inf)
    with pytest.raises(ParameterError, match=r"^domain = .Guessed.: .*proven"):
        HeavyTailedERM.calibrated(problem=guessed, **given)
    with pytest.raises(ParameterError, match="tau = 2e-12"):  # below what the lens can prove
        lens_statistic(5e-9, 40 if solver == "fixed" else None)


def loss_of_privacy(noise_rate, sensitivity, first, second, grid):
    """ln of the ratio of the densities of two releases, on a grid (d = 1)."""
    at = [noise_rate / sensitivity * np.abs(grid - each) for each in (first, second)]
    return at[1] - at[0]


def test_the_density_ratio_is_at_most_epsilon():
    n, epsilon = 50, 1.0
    statistic = ClippedMinimiser(
        Surrogate(Linear(math.inf), 1.0, 25.0), L2Ball(1, 3.0), np.zeros(1), 0.5, 0.0, 1e-6, n
    )
    rows, other = opposite(n, 1.0)
    first, second = (float(minimiser(statistic, each)[0]) for each in (rows, other))
    grid, size = np.linspace(-3, 3, 2001), statistic.sensitivity.value
    worst = np.abs(loss_of_privacy(L2Laplace(epsilon, 1).rate, size, first, second, grid)).max()
    assert 0.999 * epsilon < worst <= epsilon
    assert np.abs(loss_of_privacy(epsilon, 0.9 * size, first, second, grid)).max() > epsilon


def test_epsilon_does_not_depend_on_wrong_moments():
    problem, rows = problem_of(Absolute(math.inf)), heavy(np.random.default_rng(2), 40, 4, False)
    for factor in (0.01, 1.0, 100.0):
        moments = Moments(4, 1.45 * factor, factor, 0.9 * factor)
        made = HeavyTailedERM.calibrated(n=40, problem=problem, privacy=PURE, moments=moments)
        result = run(made, rows, seed=1)
        assert (result.privacy.epsilon, result.privacy.delta) == (1.0, 0.0)
        assert result.reports.nonfinite == 2
        (phase, *_) = made.phases
        statistic = made.plan(made.init()).statistic
        first = minimiser(statistic, rows[: phase.users])
        for place in range(0, phase.users, 5):
            other = rows[: phase.users].copy()
            other[place] = heavy(np.random.default_rng(place), 1, 4, False)[0]
            apart = np.linalg.norm(minimiser(statistic, other) - first)
            assert apart <= statistic.sensitivity.value


# Surrogates and the lemma


@pytest.mark.parametrize("smoothing", [None, 20.0])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_clipped_gradients_are_monotone_short_and_smooth(loss, smoothing):
    rng, h = np.random.default_rng(3), Surrogate(loss, 1.3, smoothing)
    rows = heavy(rng, 300, loss.columns(D), isinstance(loss, Logistic))
    for _ in range(20):
        w, v = rng.normal(size=(2, D))
        at_w, at_v = (np.asarray(_dense(h.each(each, rows))) for each in (w, v))
        assert (np.linalg.norm(at_w, axis=1) <= 1.3 * (1 + 1e-12)).all()
        moved = (at_w - at_v) @ (w - v)
        assert moved.min() >= -1e-9
        if smoothing is not None:
            steep = np.linalg.norm(at_w - at_v, axis=1) / np.linalg.norm(w - v)
            assert steep.max() <= smoothing * (1 + 1e-6)


def _dense(values):
    return values.dense() if hasattr(values, "dense") else values


def test_a_clipped_softmax_gradient_is_no_gradient():
    # The Jacobian of a gradient is symmetric. That of the clipped softmax gradient is not.
    loss, row, clip = Softmax(3, 5.0), np.array([[1.0, 2.0, 0.0]]), 0.5
    w = np.array([0.3, -0.2, 0.1, 0.4, -0.5, 0.2])

    def clipped(w):
        g = _dense(loss.gradients(w, row, None))[0]
        return g * min(1.0, clip / np.linalg.norm(g))

    steps = 1e-5 * np.eye(6)
    jacobian = np.array([(clipped(w + e) - clipped(w - e)) / 2e-5 for e in steps])
    assert np.abs(jacobian - jacobian.T).max() > 1e-3
    with pytest.raises(ParameterError, match="clipping_is_convex"):
        Surrogate(loss, 1.0)


@pytest.mark.full
def test_the_surrogates_minimiser_is_within_the_mean_bias():
    rng, largest = np.random.default_rng(4), 0.0
    loss, m, strong = Absolute(math.inf), 40, 0.3
    for _ in range(300):
        x = rng.standard_t(1.5, size=(m, 2)) * 3
        rows = np.column_stack([x, rng.normal(size=m) * 5])
        found = []
        for clip in (1e6, 1.0):
            statistic = ClippedMinimiser(
                Surrogate(loss, clip, 30.0), L2Ball(2, 2.0), np.zeros(2), strong, 0.0, 1e-3, m
            )
            found.append(minimiser(statistic, rows))
        bias = np.maximum(loss.reach_norms(rows, 2.0) - 1.0, 0).mean()
        largest = max(largest, np.linalg.norm(found[0] - found[1]) * strong / bias)
    assert 0.01 < largest <= 1.0


def test_a_bias_on_a_localised_set_needs_the_whole_domain():
    # E1: f = 2 w on [0, 1], C = 1: the bias at w = 1 is 1, and 0.1 if y stays in [0.9, 1].
    y = np.linspace(0, 1, 1001)
    whole = 2.0 - (2 * y + np.abs(1 - y)).min()
    local = 2.0 - (2 * y[900:] + np.abs(1 - y[900:])).min()
    assert whole == pytest.approx(1.0)
    assert local == pytest.approx(0.1)


# Numbers of the sheet


def test_kappa_gamma_tails_and_quantiles():
    assert [kappa(k) for k in (2, 3, 4)] == pytest.approx([1 / 4, 4 / 27, 27 / 256])
    a = np.linspace(1.01, 9, 40001)
    for k in (2, 3, 4):
        ratio = (a - 1) / a**k
        assert a[ratio.argmax()] == pytest.approx(k / (k - 1), abs=1e-3)
        assert ratio.max() == pytest.approx(kappa(k), rel=1e-6)
    # E3: P(Gamma(d) > d + t) is not below e^-t.
    assert stats.gamma(10).sf(13) == pytest.approx(0.165811877)
    assert stats.gamma(100).sf(103) == pytest.approx(0.370582766)
    assert stats.gamma(10).sf(13) > math.exp(-3)
    quantiles = [float(stats.gamma(d).ppf(0.95)) for d in (1, 2, 10, 50)]
    assert quantiles == pytest.approx([2.99573, 4.74386, 15.70522, 62.17106], abs=1e-5)


def test_blocks_noise_and_lower_bound():
    assert (blocks_for(0.1), blocks_for(0.1, share=0.6)) == (53, 226)
    assert L2Laplace(1.0, 10).spread(10) == pytest.approx(10.48809, abs=1e-5)
    assert math.sqrt(2) * 10 == pytest.approx(14.14214, abs=1e-5)  # independent Laplace of l1
    # The lower bound's p: negative in d = 1 at delta' = 0.2 (E7).
    assert math.log(1023 / (0.4 * math.e)) / 1e4 == pytest.approx(6.847e-4, rel=1e-3)
    assert math.log(1 / (0.8 * math.e)) == pytest.approx(-0.777, abs=1e-3)
    # Appendix F spends 0.782 of its epsilon.
    assert pytest.approx(0.782227, abs=1e-6) == 0.5 + 0.25 + 2 * (1 / 2048 + 1 / 64)


def test_the_best_clip_is_a_quantile():
    for u, clip in ((100, 6.30957), (1000, 15.84893)):
        c = np.geomspace(1, 100, 200001)
        cost = c**-1.5 / 1.5 + c / u  # E (A - c)_+ of Pareto(2.5), and the noise
        assert c[cost.argmin()] == pytest.approx(clip, rel=1e-3)
        assert u * clip**-2.5 == pytest.approx(1.0, rel=1e-5)


# The planner


def setting_of(n, d, moments, epsilon=1.0):
    return Phasing(n, NoiseSize.l2(epsilon, d), moments, 1.0)


def test_the_theorems_bound_by_hand():
    phase = HeavyTailedPhase(1000, 0.25, 1.5, 0.0)
    assert bound((phase,), setting_of(1000, 10, Moments(2, 1.0))) == pytest.approx(0.3085556)


def test_the_planner_finds_the_sheets_bounds():
    for k, d, gk, n, known in (
        (4, 10, 1.3, 10**4, 0.053), (2, 10, 1.0, 10**5, 0.029), (math.inf, 10, 3.0, 10**4, 0.058),
        (4, 50, 1.3, 10**5, 0.027),
    ):  # fmt: skip
        setting = setting_of(n, d, Moments(k, gk, 1.0, 1.0))
        phases, least = plan(setting)
        assert least == pytest.approx(bound(phases, setting), rel=1e-9)
        bare = tuple(HeavyTailedPhase(p.users, p.strong, p.clip, 0.0) for p in phases)
        assert bound(bare, setting) == pytest.approx(known, rel=0.02)  # the sheet has no envelope
        for worse in (0.5, 2.0):
            clips = tuple(HeavyTailedPhase.of(p.users, p.strong, worse * p.clip) for p in phases)
            strong = tuple(HeavyTailedPhase.of(p.users, worse * p.strong, p.clip) for p in phases)
            assert bound(clips, setting) >= least or math.isinf(k)
            assert bound(strong, setting) >= least
    rate = math.sqrt(2e-6) + 1e-3
    assert plan(setting_of(10**6, 2, Moments(2, 1.0)))[1] / rate == pytest.approx(2.05, rel=0.05)


def test_blocks_are_planned_by_the_bound_that_holds_likely():
    setting = setting_of(10**6, 5, MOMENTS)
    phases, least = plan(setting, 53)
    assert least == pytest.approx(likely_bound(phases, setting), rel=1e-9)
    assert sum(p.users * p.blocks for p in phases) <= 10**6
    assert {p.blocks for p in phases} == {53}


def test_the_aggregate_is_near_a_majority():
    rng = np.random.default_rng(5)
    for blocks in (3, 4, 7, 10):
        good = blocks // 2 + 1
        points = rng.normal(size=(blocks, D)) * 100
        points[:good] = rng.normal(size=(good, D))
        points[:good] /= np.maximum(1, np.linalg.norm(points[:good], axis=1, keepdims=True))
        order = rng.permutation(blocks)
        assert np.linalg.norm(aggregate(tuple(points[order]))) <= 3.0
    # Two clusters of half: the strict majority takes a point, whichever.
    assert aggregate(tuple(np.array([[0.0], [0.1], [9.0], [9.1]]))).shape == (1,)


# Runs


def logistic_rows(rng, n, d=5, index=5.0):
    x = rng.standard_t(index, size=(n, d)) / math.sqrt(d * index / (index - 2))
    odds = 1 / (1 + np.exp(-2 / math.sqrt(d) * x.sum(axis=1)))
    return np.column_stack([x, np.where(rng.random(n) < odds, 1.0, -1.0)])


@pytest.mark.full
@pytest.mark.parametrize("noise", ["float", "discrete"])
def test_measured_excess_is_below_the_bound(noise):
    problem, test = (
        problem_of(Logistic(math.inf), 5, 3.0),
        logistic_rows(np.random.default_rng(0), 50_000),
    )
    best = problem.risk(np.full(5, 2 / math.sqrt(5)), test)
    for n in (1000, 10_000):
        made = HeavyTailedERM.calibrated(
            n=n, problem=problem, privacy=PURE, moments=MOMENTS, noise=noise
        )
        excess = []
        for seed in range(6):
            rows = logistic_rows(np.random.default_rng(seed + 1), n)
            result = run(made, rows, seed=seed)
            excess.append(problem.risk(result.value, test) - best)
            assert (result.privacy.epsilon, result.privacy.delta) == (1.0, 0.0)
        assert max(excess) <= made.bound
        assert np.median(excess) < 0.6 * (problem.risk(np.zeros(5), test) - best)
        exact = "integer noise, drawn exactly" in result.privacy.assumptions
        assert exact == (noise == "discrete")


def test_blocks_run_and_their_users_are_disjoint():
    problem, rng = problem_of(Absolute(math.inf)), np.random.default_rng(6)
    rows = np.column_stack([rng.normal(size=(600, D)), np.zeros(600)])
    made = HeavyTailedERM.calibrated(
        n=600, problem=problem, privacy=PURE, moments=MOMENTS, blocks=5
    )
    result = run(made, rows, seed=1)
    assert result.privacy.epsilon == 1.0  # parallel: a user is in one block
    assert result.rounds == made.rounds == 5 * len(made.phases)


def test_a_ridge_is_public_and_part_of_what_is_minimised():
    rng, m = np.random.default_rng(7), 200
    rows = np.column_stack([rng.normal(size=(m, D)), rng.normal(size=m)])
    surrogate = Surrogate(Absolute(math.inf), 2.0, 50.0)
    centre = np.array([0.5, 0.0, -0.5])
    made = ClippedMinimiser(surrogate, BALL, centre, 0.3, 0.7, 1e-7, m)
    w = minimiser(made, rows)
    slope = surrogate.gradient(w, rows) / m + 0.7 * w + 0.3 * (w - centre)
    assert np.linalg.norm(slope) < 1e-6


@pytest.mark.full
def test_ray_workers_give_the_bits_of_one_process():
    problem, rng = problem_of(Absolute(math.inf)), np.random.default_rng(11)
    rows = heavy(rng, 400, D + 1, False)
    made = HeavyTailedERM.calibrated(n=400, problem=problem, privacy=PURE, pilot=True)
    alone = run(made, rows, seed=3)
    there = run(made, rows, seed=3, runtime="ray", workers=2)
    assert (there.value.tobytes(), there.runtime) == (alone.value.tobytes(), "ray")


def test_a_run_that_stopped_goes_on_from_its_checkpoint(tmp_path):
    problem, rng = problem_of(Absolute(math.inf)), np.random.default_rng(12)
    rows = heavy(rng, 300, D + 1, False)
    made = HeavyTailedERM.calibrated(
        n=300, problem=problem, privacy=PURE, pilot=True, noise="discrete"
    )

    class StoppedError(Exception):
        pass

    def stop(index, *_):
        if index == 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(made, rows, seed=4, checkpoint=tmp_path / "run", execution=Execution(on_round=stop))
    resumed = run(made, rows, seed=4, checkpoint=tmp_path / "run", resume=True)
    assert resumed.value.tobytes() == run(made, rows, seed=4).value.tobytes()
    assert resumed.privacy.epsilon == 1.0
    assert "integer noise, drawn exactly" in resumed.privacy.assumptions


# The pilot


def test_the_pilots_histogram_moves_by_two():
    histogram = PilotHistogram(Absolute(math.inf), 1, 2.0)
    rows = heavy(np.random.default_rng(8), 50, D + 1, False)
    counts = histogram.part(rows)
    assert counts.sum() == 50
    for bad, place in ((math.nan, 0), (1e308, EDGES.size), (0.0, 0)):
        other = rows.copy()
        other[3] = 0.0
        other[3, :3] = bad
        moved = histogram.part(other) - counts
        assert np.abs(moved).sum() <= histogram.sensitivity.value
        assert histogram.part(other[3:4])[place] == 1


def test_the_pilots_clip_is_a_quantile_within_its_target():
    rng, users = np.random.default_rng(9), 50_000
    a = rng.pareto(2.5, users) + 1
    counts = np.bincount(np.searchsorted(EDGES, a), minlength=EDGES.size + 1).astype(float)
    tails = Tails(counts + rng.laplace(scale=2.0, size=counts.size), users, 1.0)
    for phase in (10**4, 10**6):
        clip, share = tails.clip(phase, 5), tails.target(phase, 5) / users
        assert clip**-2.5 <= 1.3 * share
        assert (clip / math.sqrt(2)) ** -2.5 >= 0.7 * share


@pytest.mark.full
def test_unknown_moments_cost_at_most_a_factor_of_four():
    problem = problem_of(Logistic(math.inf), 5, 3.0)
    for index in (2.2, 5.0, 30.0):
        rng = np.random.default_rng(10)
        test = logistic_rows(rng, 100_000, index=index)
        k = min(index - 0.1, 4.0)
        norms = np.linalg.norm(logistic_rows(rng, 10**5, index=index)[:, :-1], axis=1)
        known = Moments(k, float((norms**k).mean() ** (1 / k)), float(np.sqrt((norms**2).mean())),
                        float(norms.mean()))  # fmt: skip
        best = problem.risk(np.full(5, 2 / math.sqrt(5)), test)
        medians = []
        for given in ({"moments": known}, {"pilot": True}):
            made = HeavyTailedERM.calibrated(n=50_000, problem=problem, privacy=PURE, **given)
            excess = []
            for seed in range(3):
                rows = logistic_rows(np.random.default_rng(seed), 50_000, index=index)
                excess.append(problem.risk(run(made, rows, seed=seed).value, test) - best)
            medians.append(float(np.median(excess)))
        assert medians[1] <= 4 * medians[0], (index, medians)


# Bad input


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("moments", {}),
        ("timeout", {"moments": MOMENTS, "timeout": 3.0}),
        ("blocks", {"moments": MOMENTS, "blocks": 101}),
        ("noise", {"moments": MOMENTS, "noise": "gaussian"}),
        ("solver", {"moments": MOMENTS, "solver": "lbfgs"}),
        ("moments", {"moments": MOMENTS, "pilot": True}),
        ("pilot", {"pilot": 1.5}),
        ("steps", {"moments": MOMENTS, "steps": 3}),
    ],
)
def test_bad_parameters_are_refused_by_name(name, given):
    with pytest.raises(ParameterError) as refused:
        HeavyTailedERM.calibrated(
            n=100, problem=problem_of(Absolute(math.inf)), privacy=PURE, **given
        )
    assert refused.value.parameter == name


@dataclass(frozen=True)
class Undeclared(MeanEstimation):
    """A user's loss that says nothing of its clipped gradients, nor how smooth it is."""

    clipping_is_convex: ClassVar[bool] = False

    def smoothness(self):
        return None


@pytest.mark.parametrize("kind", [HeavyTailedERM, PureSGD, GaussianGD, PopLocalize])
def test_a_row_of_no_class_is_refused_and_not_shown(kind):
    rows = np.column_stack([np.full((50, 2), 0.625), np.ones(50)])
    rows[7, -1] = 0.4375
    problem = Problem(Logistic(math.inf), L2Ball(2, 1.0), norm_bound=math.inf)
    privacy = Privacy(3.0, 1e-3 if kind is GaussianGD else 0.0)
    made = kind.calibrated(n=50, problem=problem, privacy=privacy, moments=Moments(2, 3.0))
    with pytest.raises(ParameterError, match=r"data\[7\].*labelled") as told:
        run(made, rows)
    assert not any(number in str(told.value) for number in ("0.625", "0.4375"))


def test_a_users_loss_without_the_declared_property_is_refused():
    for make in (HeavyTailedERM.calibrated, HeavyTailedERM.paper):
        with pytest.raises(ParameterError, match="clipping_is_convex"):
            make(n=100, problem=problem_of(Undeclared()), privacy=PURE, moments=MOMENTS)
    declared = problem_of(MeanEstimation(math.inf))
    made = HeavyTailedERM.paper(n=100, problem=declared, privacy=PURE, moments=MOMENTS)
    assert isinstance(made, PopLocalize)


@pytest.mark.parametrize("privacy", [PURE, Privacy(1.0, 1e-6)], ids=["pure", "approximate"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_no_algorithm_takes_a_problem_without_a_bound_unasked(loss, privacy):
    kinds = [*registered_kinds("algorithm", Optimiser).values(), *optimisers().values()]
    assert len(kinds) > 6
    for kind in kinds:
        with pytest.raises(ParameterError):
            kind.calibrated(n=1000, problem=problem_of(loss, ridge=0.1), privacy=privacy)


def test_moments_out_of_order_are_refused():
    for bad in ((2.0, 1.0, 2.0), (4.0, 1.0, 0.5, 0.7), (1.5, 1.0)):
        with pytest.raises(ParameterError, match=r"g1|g2|k = 1\.5"):
            Moments(*bad)
    with pytest.raises(ParameterError, match="rounding errors"):
        ClippedMinimiser(
            Surrogate(Absolute(math.inf), 1.0, 1.0), BALL, np.zeros(D), 1.0, 0.0, 1e-16, 10
        )
