"""Scaled surrogates: softmax and one's own convex loss in phases, by brute force."""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from protocols import HeavyTailedERM, L2Ball, PopLocalize, Problem
from protocols.central.heavy_tails.clipped_minimiser import ClippedMinimiser
from protocols.central.heavy_tails.pilot import PilotHistogram
from protocols.central.heavy_tails.plan import HeavyTailedPhase
from protocols.optimisation.tails import EDGES
from protocols.problems import OneVsRestHinge, Softmax
from protocols.problems.loss import Loss, refuse_rows
from protocols.problems.moments import Moments, kappa
from protocols.problems.multiclass import MultiClass
from protocols.problems.row_slopes import row_slopes
from protocols.problems.surrogates import (
    STATED,
    STATED_ENVELOPE,
    WIDTH,
    ScaledSurrogate,
    bias_factor,
    least_smoothing,
    row_norms,
    widening,
)
from shuffle_sim import Privacy, run
from shuffle_sim.errors import ParameterError

PURE, RADIUS = Privacy(1.0), 1.5
MOMENTS = Moments(4, 2.1, 1.5, 1.3)


@dataclass(frozen=True)
class Joint(Loss):
    """sqrt(1 + ||Theta x - y||^2) for two outputs: rows are x (p), then y (2). One's own loss.

    A <= ||x||, and the gradient is ||x||^2-Lipschitz. `steep` plants a false statement of A.
    """

    steep: float = 1.0

    def columns(self, d):
        return d // 2 + 2

    def _apart(self, theta, rows):
        apart = rows[:, :-2] @ theta.reshape(2, -1).T - rows[:, -2:]
        return apart, np.sqrt(1 + (apart * apart).sum(axis=1))

    def values(self, theta, rows):
        return self._apart(theta, rows)[1]

    def gradients(self, theta, rows, smoothing=None):
        apart, length = self._apart(theta, rows)
        factors = apart / length[:, None]
        return (factors[:, :, None] * rows[:, None, :-2]).reshape(len(rows), -1)

    def lipschitz(self, radius):
        return math.inf

    def smoothness(self):
        return None

    def row_smoothness(self, rows):
        return (rows[:, :-2] ** 2).sum(axis=1)

    def reach_norms(self, rows, radius):
        return self.steep * np.hypot.reduce(rows[:, :-2], axis=1)

    def check(self, rows, d):
        pass


class Concave(Joint):
    """It states that it is convex, and is not."""

    def values(self, theta, rows):
        return -super().values(theta, rows)

    def gradients(self, theta, rows, smoothing=None):
        return -super().gradients(theta, rows)


class Distance(Joint):
    """||Theta x - y|| for two outputs, and its envelope: one's own loss with kinks."""

    has_envelope = True
    row_smoothness = Loss.row_smoothness

    def values(self, theta, rows):
        return np.hypot.reduce(self._apart(theta, rows)[0], axis=1)

    def gradients(self, theta, rows, smoothing=None):
        apart, x = self._apart(theta, rows)[0], rows[:, :-2]
        # The prox moves Theta x by ||x||^2/beta at most, straight towards y.
        least = 1e-300 if smoothing is None else (x * x).sum(axis=1) / smoothing
        factors = apart / np.maximum(np.hypot.reduce(apart, axis=1), least)[:, None]
        return (factors[:, :, None] * x[:, None, :]).reshape(len(rows), -1)


class Bounded(Joint):
    """Rows of length 1 at most: it states one smoothness for all."""

    row_smoothness = Loss.row_smoothness

    def smoothness(self):
        return 1.0

    def check(self, rows, d):
        refuse_rows(np.hypot.reduce(rows[:, :-2], axis=1) > 1 + 1e-9, "of norm 1")


CASES = [
    (Softmax(3, math.inf), 6),
    (Joint(), 4),
    (OneVsRestHinge(3, math.inf), 6),
    (Distance(), 4),
    (Joint(steep=1e-6), 4),
]
NAMES = ["softmax", "own", "hinges", "own kinks", "own that lies of A"]
BOTH = pytest.mark.parametrize(("loss", "d"), CASES, ids=NAMES)
TRUE = pytest.mark.parametrize(("loss", "d"), CASES[:4], ids=NAMES[:4])


def drawn(rng, loss, n, spread=3.0):
    """Rows over many orders of length."""
    x = rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-spread, spread, (n, 1))
    if isinstance(loss, MultiClass):
        return np.column_stack([x, rng.integers(0, 3, n)])
    return np.column_stack([x, rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-2, 2, (n, 1))])


def statistic_of(loss, d, m, clip=1.0, strong=0.5, kind=ScaledSurrogate):
    phase = HeavyTailedPhase.of(m, strong, clip)
    beta = max(strong * m, 10 * least_smoothing(loss, clip))
    surrogate = kind(loss, clip, beta, RADIUS)
    domain = L2Ball(d, RADIUS)
    return ClippedMinimiser(surrogate, domain, np.zeros(d), strong, 0.0, phase.tau, m)


def minimiser(statistic, rows):
    return statistic(lambda part: part(rows), len(rows))


@BOTH
def test_scaled_gradients_are_monotone_short_and_smooth(loss, d):
    rng = np.random.default_rng(1)
    beta = 3.0
    h = ScaledSurrogate(loss, 1.0, beta, RADIUS)
    rows = drawn(rng, loss, 20_000, 2.0)
    at, by = rng.normal(size=(2, len(rows), d))
    at *= RADIUS * rng.uniform(0, 1, (len(rows), 1)) / np.linalg.norm(at, axis=1, keepdims=True)
    to = at + 0.1 * by * rng.uniform(0, 1, (len(rows), 1))
    to *= RADIUS / np.maximum(np.linalg.norm(to, axis=1, keepdims=True), RADIUS)
    a, b = h.each(at, rows), h.each(to, rows)
    inner = np.einsum("ij,ij->i", b - a, to - at)
    assert (inner >= -1e-12).all()
    assert np.linalg.norm(a, axis=1).max() <= 1 + 1e-9
    assert np.linalg.norm(a, axis=1).max() > 0.5
    rates = np.linalg.norm(b - a, axis=1) / np.linalg.norm(to - at, axis=1)
    assert rates.max() <= beta * (1 + 1e-6)
    assert rates.max() > 0.1 * beta


@BOTH
def test_no_gradient_is_longer_than_the_norms_say(loss, d):
    rng = np.random.default_rng(2)
    rows = drawn(rng, loss, 500)
    norms = row_slopes(loss, d, rows, RADIUS)
    longest = np.zeros(len(rows))
    for _ in range(300):
        theta = rng.normal(size=d)
        theta *= RADIUS / np.linalg.norm(theta)
        longest = np.maximum(longest, np.linalg.norm(loss.gradients(theta, rows), axis=1))
    assert (longest <= norms * (1 + 1e-9)).all()
    assert np.median(norms / np.maximum(longest, 1e-300)) < 3


@BOTH
@pytest.mark.parametrize("m", [2, 12])
def test_minimisers_of_neighbours_are_apart_as_stated(loss, d, m):
    rng, widest = np.random.default_rng(3), 0.0
    statistic = statistic_of(loss, d, m)
    extreme = (1e300, -1e300, math.inf, math.nan, 1e12, 0.0)
    for trial in range(25):
        rows, other = drawn(rng, loss, m), None
        rows[:, :2] *= rng.choice([-1, 1], (m, 1))
        for bad in (None, extreme[trial % len(extreme)]):
            other = rows.copy()
            other[0] = drawn(rng, loss, 1)[0]
            other[0, 0] = -10 * rows[0, 0] if bad is None else bad
            apart = np.linalg.norm(minimiser(statistic, rows) - minimiser(statistic, other))
            widest = max(widest, float(apart))
    assert widest <= statistic.sensitivity.value
    assert widest > 0.2 * statistic.sensitivity.value  # the search is not idle


@dataclass(frozen=True)
class Uncapped(ScaledSurrogate):
    """The planted defect: neither scaled nor clipped."""

    def each(self, points, rows):
        return self.loss.gradients(points, rows)


@TRUE
def test_control_without_the_cap_neighbours_are_further_apart(loss, d):
    rng, widest = np.random.default_rng(3), 0.0
    statistic = statistic_of(loss, d, 12, kind=Uncapped)
    rows = drawn(rng, loss, 12, 0.1)
    for size in (5.0, 20.0):
        other = rows.copy()
        other[0, :2] = -size
        points = [
            descent(partial(statistic.surrogate.gradient, rows=each), d, len(each))
            for each in (rows, other)
        ]
        widest = max(widest, float(np.linalg.norm(points[0] - points[1])))
    assert widest > statistic.sensitivity.value


def descent(gradient, d, m, strong=0.5, step=0.01, steps=4000):
    """Plain, for small curvatures."""
    w, domain = np.zeros(d), L2Ball(d, RADIUS)
    for _ in range(steps):
        w = domain.project(w - step * (gradient(w) / m + strong * w))
    return w


def test_a_row_that_refutes_convexity_adds_nothing():
    rng = np.random.default_rng(4)
    rows = drawn(rng, Joint(), 200, 1.0)
    assert np.isinf(row_slopes(Concave(), 4, rows, RADIUS)).all()
    assert np.isfinite(row_slopes(Joint(), 4, rows, RADIUS)).all()
    h = ScaledSurrogate(Concave(), 1.0, 5.0, RADIUS)
    assert not h.gradient(np.ones(4), rows).any()
    assert ScaledSurrogate(Joint(), 1.0, 5.0, RADIUS).gradient(np.ones(4), rows).any()


@pytest.mark.parametrize("k", [2.0, 3.0, 6.0])
def test_the_bias_of_a_scaled_loss_is_factor_times_clips(k):
    loss, clip = Softmax(3, math.inf), 1.0
    for ratio in (1.5, 4.0, WIDTH):
        beta = ratio * 0.25 * clip**2
        a = np.geomspace(1e-2, 1e6, 40_001)
        rows = np.column_stack([a / math.sqrt(2), np.zeros_like(a), np.zeros_like(a)])
        lost = (1 - ScaledSurrogate(loss, clip, beta, RADIUS).factors(6, rows)) * a
        factor = bias_factor(loss, clip, beta)
        assert factor <= ratio / (ratio - 1)
        assert (lost <= factor * np.maximum(a - clip, 0) * (1 + 1e-9) + 1e-12).all()
        assert (lost / a**k).max() <= factor * kappa(k) / clip ** (k - 1)
        short = bias_factor(loss, clip, ratio * beta)  # a control: of a larger beta
        assert (lost > short * np.maximum(a - clip, 0) * (1 + 1e-9)).any()
    assert widening(WIDTH) == pytest.approx(1.0718, abs=1e-4)
    assert math.isinf(bias_factor(loss, clip, 0.2 * clip**2))
    assert least_smoothing(loss, clip) == pytest.approx(WIDTH / 4)
    assert row_norms(loss, 6, rows, RADIUS) == pytest.approx(a)


def problem_of(loss, d):
    return Problem(loss, L2Ball(d, RADIUS), norm_bound=math.inf)


@TRUE
def test_bounds_fall_in_n_and_epsilon(loss, d):
    bounds = np.array([
        [
            HeavyTailedERM.calibrated(
                n=n, problem=problem_of(loss, d), privacy=Privacy(epsilon), moments=MOMENTS
            ).bound
            for n in (500, 1000, 3000, 10_000, 100_000, 1_000_000)
        ]
        for epsilon in (0.3, 1.0, 3.0)
    ])  # fmt: skip
    assert (np.diff(bounds, axis=0) < 0).all()
    assert (np.diff(bounds, axis=1) < 0).all()
    assert bounds[1, -1] < 0.05 * bounds[1, 0]


def population(rng, loss, n):
    x = rng.standard_t(5, size=(n, 2)) * math.sqrt(3 / 5 / 2)
    if isinstance(loss, MultiClass):
        scores = x @ np.array([[1.0, 0], [-0.5, 0.5], [0, -1.0]]).T
        return np.column_stack([x, (scores + rng.gumbel(size=(n, 3))).argmax(axis=1)])
    y = x @ np.array([[0.5, 0.5], [0.5, -0.5]]) + 0.3 * rng.standard_t(5, size=(n, 2))
    return np.column_stack([x, y])


@pytest.mark.slow_parameters("own", "own kinks", "hinges")
@pytest.mark.full
@TRUE
def test_measured_excess_is_below_the_bound(loss, d):
    rng = np.random.default_rng(5)
    fresh = population(rng, loss, 100_000)
    norms = row_norms(loss, d, fresh[:20_000], RADIUS)
    g1, g2, g4 = ((norms**k).mean() ** (1 / k) for k in (1, 2, 4))
    moments = Moments(4, 1.2 * g4, 1.05 * g2, 1.05 * g1)
    problem = problem_of(loss, d)
    near = fresh[:20_000]
    best = descent(lambda w: loss.gradients(w, near).mean(axis=0), d, 1, 0.0, 0.5, 300)
    least = problem.risk(best, fresh)
    for n in (1000, 8000):
        made = HeavyTailedERM.calibrated(n=n, problem=problem, privacy=PURE, moments=moments)
        excess = [
            problem.risk(run(made, population(rng, loss, n), seed=seed).value, fresh) - least
            for seed in range(10)
        ]
        assert max(excess) < made.bound
    assert np.mean(excess) < 0.7 * (problem.risk(np.zeros(d), fresh) - least)
    assert made.bound < 1e3 * np.mean(excess)


def test_fixed_steps_are_few_and_end_where_certified_ones_do():
    """They grow like beta/lambda: the bound is the same for the least beta, and it is taken."""
    problem, n = problem_of(Softmax(3, math.inf), 6), 4000
    asked = {"n": n, "problem": problem, "privacy": PURE, "moments": MOMENTS}
    made, other = (HeavyTailedERM.calibrated(solver=s, **asked) for s in ("fixed", "certified"))
    assert made.bound == other.bound
    steps = [made._steps(phase) for phase in made.phases]
    assert made.choices["steps"].startswith(str(steps))
    assert sum(steps) < 1500
    assert sum(made._steps(phase) for phase in other.phases) > 10 * sum(steps)  # power
    rows = population(np.random.default_rng(7), problem.loss, n)

    def missed(phase, steps):
        statistic = replace(made._statistic(phase, problem.origin), steps=steps)
        exact = replace(statistic, steps=None)
        ends = [
            each(lambda ask: ask(rows[: phase.users]), phase.users) for each in (statistic, exact)
        ]
        return float(np.linalg.norm(ends[0] - ends[1])) / phase.tau

    for phase, many in zip(made.phases, steps, strict=True):
        smoothing = made._statistic(phase, problem.origin).surrogate.smoothing
        assert smoothing == pytest.approx(WIDTH / 4 * phase.clip**2)
        assert bias_factor(problem.loss, phase.clip, smoothing) <= widening(WIDTH)
        assert missed(phase, many) < 4
    assert missed(made.phases[0], steps[0] // 10) > 4  # power
    result = run(made, rows, seed=1)
    assert result.privacy.epsilon <= 1.0
    assert problem.risk(result.value, rows) < problem.risk(problem.origin, rows)


def test_what_rests_on_an_author_is_said_or_refused():
    own = HeavyTailedERM.calibrated(
        n=500, problem=problem_of(Joint(), 4), privacy=PURE, moments=MOMENTS
    )
    assert any(STATED in each for each in own.assumptions)
    several = problem_of(Softmax(3, math.inf), 6)
    soft = HeavyTailedERM.calibrated(n=500, problem=several, privacy=PURE, moments=MOMENTS)
    assert not any(STATED in each for each in soft.assumptions)
    with pytest.raises(ParameterError, match="solver"):
        HeavyTailedERM.calibrated(
            n=500, problem=problem_of(Joint(), 4), privacy=PURE, moments=MOMENTS, solver="fixed"
        )
    kinks = HeavyTailedERM.calibrated(
        n=500, problem=problem_of(Distance(), 4), privacy=PURE, moments=MOMENTS
    )
    assert any(STATED_ENVELOPE in each for each in kinks.assumptions)
    with pytest.raises(ParameterError, match="smoothing"):
        ScaledSurrogate(Softmax(3), 1.0)
    small = tuple(replace(phase, smoothing=1e-3) for phase in soft.phases)
    asked = {"n": 500, "problem": several, "privacy": PURE, "moments": MOMENTS}
    assert math.isinf(HeavyTailedERM.calibrated(phases=small, **asked).bound)
    assert HeavyTailedERM.calibrated(phases=soft.phases, **asked).bound <= soft.bound * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Softmax(3, math.inf), OneVsRestHinge(3, math.inf)])
def test_the_printed_algorithm_and_a_pilot_take_several_classes(loss):
    rng = np.random.default_rng(6)
    rows = population(rng, loss, 2000)
    rows[3, 0], rows[4, 1] = 1e300, math.nan
    common = {"n": 2000, "problem": problem_of(loss, 6), "privacy": PURE}
    printed = run(HeavyTailedERM.paper(moments=MOMENTS, **common), rows, seed=1)
    piloted = run(HeavyTailedERM.calibrated(pilot=True, **common), rows, seed=1)
    for result in (printed, piloted):
        assert result.privacy.delta == 0
        assert result.privacy.epsilon <= 1
        assert np.isfinite(result.value).all()
    rows[7, -1] = 3.0
    with pytest.raises(ParameterError, match=r"data\[7\]"):
        run(HeavyTailedERM.calibrated(moments=MOMENTS, **common), rows)


class Kinked(Joint):
    """Its gradient jumps, and it says so of every row."""

    def row_smoothness(self, rows):
        return np.full(len(rows), math.inf)


@pytest.mark.parametrize("kind", [HeavyTailedERM, PopLocalize])
def test_kinks_of_ones_own_are_refused_before_every_row_counts_nothing(kind):
    with pytest.raises(ParameterError, match=r"states a finite row_smoothness.*PureSGD"):
        kind.calibrated(n=500, problem=problem_of(Kinked(), 4), privacy=PURE, moments=MOMENTS)


def test_one_smoothness_for_all_rows_serves():
    rng = np.random.default_rng(8)
    rows = np.clip(population(rng, Joint(), 3000), -0.7, 0.7)
    problem = problem_of(Bounded(), 4)
    made = HeavyTailedERM.calibrated(n=3000, problem=problem, privacy=PURE, moments=MOMENTS)
    assert any(STATED in each for each in made.assumptions)
    assert math.isfinite(made.bound)
    found = run(made, rows, seed=1)
    assert problem.risk(found.value, rows) < problem.risk(problem.origin, rows)
    assert np.array_equal(Bounded().row_smoothness(rows), np.ones(3000))


class Without(Distance):
    """It says that it has an envelope, and passes over the smoothing."""

    def gradients(self, theta, rows, smoothing=None):
        return super().gradients(theta, rows)


class Unwritten(Distance):
    """It says so, and never wrote it."""

    def gradients(self, theta, rows, smoothing=None):
        if smoothing is not None:
            raise NotImplementedError
        return super().gradients(theta, rows)


class Long(Distance):
    """Gradients of its envelope are longer than its own."""

    def gradients(self, theta, rows, smoothing=None):
        return super().gradients(theta, rows, smoothing) * (2 if smoothing else 1)


class Falling(Distance):
    """Theirs is no convex function."""

    def gradients(self, theta, rows, smoothing=None):
        return super().gradients(theta, rows, smoothing) * (-1 if smoothing else 1)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (Without(), "turn by beta"),
        (Unwritten(), r"\(n, 4\)"),
        (Long(), "no longer"),
        (Falling(), "do not fall"),
    ],
)
@pytest.mark.parametrize("kind", [HeavyTailedERM, PopLocalize])
def test_what_is_seen_to_be_no_envelope_is_refused(kind, loss, said):
    with pytest.raises(ParameterError, match=said):
        kind.calibrated(n=500, problem=problem_of(loss, 4), privacy=PURE, moments=MOMENTS)


class Unstated(Joint):
    """Of its gradients nothing is stated but how smooth they are."""

    reach_norms = Loss.reach_norms


def test_a_pilot_counts_what_the_moments_of_a_scaled_loss_are_of():
    """`row_norms`, which needs no statement of the loss and heeds no false one."""
    rows = np.random.default_rng(5).standard_t(3, (3000, 4))
    counts = [
        PilotHistogram(loss, 4, 1.0).part(rows) for loss in (Unstated(), Joint(), Joint(1e-6))
    ]
    assert np.array_equal(counts[0], counts[1])
    assert np.array_equal(counts[0], counts[2])
    norms = row_norms(Unstated(), 4, rows, 1.0)
    assert np.array_equal(counts[0][:-1], np.histogram(norms, [0.0, *EDGES])[0])
    assert (norms >= 2 * np.hypot.reduce(rows[:, :2], axis=1) - 1e-9).all()
    far = np.array([[1e308, 1.0, 0.0, 0.0]])
    assert PilotHistogram(Unstated(), 4, 1.0).part(far)[-1] == 1

    problem = problem_of(Unstated(), 4)
    made = HeavyTailedERM.calibrated(n=3000, problem=problem, privacy=PURE, pilot=True)
    found = run(made, rows, seed=1)
    assert found.privacy.epsilon <= 1.0
    assert np.isfinite(found.value).all()
