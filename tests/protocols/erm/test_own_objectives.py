"""Tilted softmax and the adversarial hinge: sensitivity, certificates and measured excess."""

import math

import numpy as np
import pytest
import scipy

from protocols import (
    AdversarialERM,
    Hinge,
    L2Ball,
    Logistic,
    OneVsRestHinge,
    Pinball,
    Problem,
    RealSpace,
    Softmax,
    TiltedERM,
)
from protocols.erm.adversarial import NORMS, Perturbation, RobustERM, RobustRisk
from protocols.erm.solver import minimise
from protocols.erm.tilted import TiltedRisk, softmax_spread
from protocols.problems.losses import Linear
from protocols.problems.smoothed import Smoothed
from shuffle_sim import ParameterError, Privacy, run

CORNERS = ((0.2, 0.1), (-0.2, 0.1), (0.0, -0.2))
BUDGETS = [*(Perturbation(norm, 0.2) for norm in NORMS[:3]), Perturbation("polytope", 1.0, CORNERS)]
SPACES = [RealSpace(2), L2Ball(2, 1.0)]


def rows_of(n, seed, classes=0):
    """Unit features in the plane; labels 0, ..., classes - 1, or -1 and +1."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 2 * math.pi, n)
    noisy = angles + 0.4 * rng.normal(size=n)
    if classes:
        labels = np.floor(noisy / (2 * math.pi) * classes) % classes
    else:
        labels = np.where(np.cos(noisy) > 0, 1.0, -1.0)
    return np.column_stack([np.cos(angles), np.sin(angles), labels])


# Tilted softmax


def tilted(classes=3, domain=None, ridge=0.5, tilt=1.0):
    problem = Problem(Softmax(classes), domain or RealSpace(2 * classes), ridge)
    return TiltedRisk.of(problem, tilt=tilt)


@pytest.mark.parametrize(("classes", "reach"), [(2, 1.0), (3, 0.5), (3, 3.0), (4, 2.0), (6, 8.0)])
@pytest.mark.full
def test_no_two_rows_have_losses_further_apart_than_stated(classes, reach):
    """By local search over one model and two rows; a twentieth less is refuted."""
    rng, stated, size = np.random.default_rng(0), softmax_spread(classes, reach), 2 * classes

    def less(z):
        w = z[:size].reshape(classes, 2) * reach / np.linalg.norm(z[:size])
        scores = [w @ x / max(1.0, np.linalg.norm(x)) for x in (z[size:][:2], z[size:][2:])]
        first, second = (scipy.special.logsumexp(each) - each for each in scores)
        return -max(first[0] - second[0], first[0] - second[1])

    worst = -min(scipy.optimize.minimize(less, rng.normal(size=size + 4)).fun for _ in range(12))
    assert 0.95 * stated < worst <= stated * (1 + 1e-9)
    if classes == 2:
        assert stated == pytest.approx(math.sqrt(2) * reach, rel=1e-12)


@pytest.mark.parametrize(("tilt", "n"), [(0.3, 25), (2.0, 200)])
def test_no_swap_moves_a_tilted_softmax_minimiser_further(tilt, n):
    """Alike rows and a hard one, swapped for its mirror image; and random tables."""
    risk, worst = tilted(tilt=tilt), 0.0
    stated, _ = risk.sensitivity(n)
    assert stated < 2 * risk.reach  # not the trivial one
    alike, rng = np.tile([1.0, 0.0, 0.0], (n, 1)), np.random.default_rng(1)
    for case in range(32):
        rows = alike.copy() if case < 24 else rows_of(n, case, 3)
        other, angle = rows.copy(), 0.7 * rng.normal()
        rows[0] = [-math.cos(angle), math.sin(angle), case % 2]
        other[0] = [-math.cos(angle), -math.sin(angle), 0.0]
        points = [minimise(risk.objective(each), 1e-7).point for each in (rows, other)]
        worst = max(worst, float(np.linalg.norm(points[0] - points[1])))
    assert 0.2 * stated < worst <= stated + 2e-7


LOPSIDED = Smoothed.of(Pinball(1.0, labels=3.0, quantile=0.02), 20.0)


@pytest.mark.parametrize(("loss", "ridge", "tilt"), [(LOPSIDED, 1.0, 4.0), (Linear(2.0), 3.0, 1.0)])
def test_no_swap_moves_a_tilted_minimiser_further(loss, ridge, tilt):
    """Steep on one side alone, or below zero: the largest loss is not the spread."""
    risk, n = TiltedRisk.of(Problem(loss, L2Ball(1, 1.0), ridge), tilt=tilt), 50
    far, top = loss.features, loss.label_bound if loss is LOPSIDED else 0.0
    hard = np.array([(x, y) for x in (-far, far) for y in (-top, top)])
    worst = 0.0
    for alike in ((0.0, -top), (0.0, 0.0), (far, -top), (far, top)):
        tables = [np.vstack([row, np.tile(alike, (n - 1, 1))]) for row in hard]
        points = [float(minimise(risk.objective(each), 1e-7).point[0]) for each in tables]
        worst = max(worst, max(points) - min(points))
    assert 0.1 * risk.sensitivity(n)[0] < worst <= risk.sensitivity(n)[0] + 2e-7


def test_derivatives_of_a_tilted_softmax_are_those_of_its_value():
    risk, rng, step = tilted(tilt=1.5), np.random.default_rng(2), 1e-5
    f, w = risk.objective(rows_of(40, 3, 3)), rng.normal(size=6)
    rises = [f.value(w + e) - f.value(w - e) for e in step * np.eye(6)]
    bends = [f.gradient(w + e) - f.gradient(w - e) for e in step * np.eye(6)]
    assert f.gradient(w) == pytest.approx(np.array(rises) / (2 * step), abs=1e-9)
    assert f.hessian(w) == pytest.approx(np.array(bends) / (2 * step), abs=1e-8)
    assert np.linalg.eigvalsh(f.hessian(w))[-1] <= risk.smoothness + risk.ridge
    least = {risk.objective(rows_of(40, seed, 3)).least_radius for seed in range(3)}
    assert len(least) == 1  # public
    for at in (np.zeros(6), w * risk.reach / np.linalg.norm(w)):
        assert f.rounding(at) <= f.least_radius * risk.ridge


# Adversarial hinge


def robust(budget, domain=SPACES[0], ridge=0.3):
    return RobustRisk.of(Problem(Hinge(), domain, ridge), budget=budget)


@pytest.mark.parametrize("domain", SPACES, ids=["space", "ball"])
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda each: each.norm)
@pytest.mark.full
def test_any_point_and_width_bound_the_distance(budget, domain):
    """Against another solver, which has no certificate: a search by polls around each point."""
    risk, rng, tight = robust(budget, domain), np.random.default_rng(3), 0.0
    for seed in range(3):
        f = risk.objective(rows_of(12, seed))
        near = 5e-4 * risk.sensitivity(12)[0]
        truth = minimise(f, near).point

        def outside(z, f=f, domain=domain):
            return f.value(domain.project(z))

        options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000}
        start = truth + 0.1
        found = scipy.optimize.minimize(outside, start, method="Nelder-Mead", options=options)
        assert found.fun >= f.value(truth) - risk.lipschitz * near
        assert np.linalg.norm(domain.project(found.x) - truth) <= 2 * near + 1e-5
        for size in (1.0, 0.1, 1e-3):
            for width in (1e-1, 1e-3, 1e-6):
                point, radius = f.witness(truth + size * rng.normal(size=2), width)
                apart = float(np.linalg.norm(point - truth))
                assert apart <= radius + near
                tight = max(tight, apart / radius)
    assert tight > 0.3  # a third of the radius would be refuted


class Steep(Logistic):
    """Three times the logistic loss."""

    def value(self, margins, labels):
        return 3 * super().value(margins, labels)

    def derivative(self, margins, labels):
        return 3 * super().derivative(margins, labels)

    def second(self, margins, labels):
        return 3 * super().second(margins, labels)

    def slope(self, reach):
        return 3 * super().slope(reach)

    def curvature(self):
        return 0.75

    def pull(self):
        return 3 * super().pull()


@pytest.mark.parametrize(
    ("loss", "budget"),
    [
        (Logistic(), Perturbation("polytope", 1.0, ((3.0, 0.0), (-3.0, 0.0)))),
        (Steep(), Perturbation("l2", 0.2)),
    ],
    ids=["long", "steep"],
)
@pytest.mark.parametrize("width", [1e-2, 1e-4])
def test_smoothed_adversarial_risks_bend_no_more_than_stated(loss, budget, width):
    """Steps follow from the stated smoothness: too small a one would make descent diverge."""
    risk = RobustRisk.of(Problem(loss, SPACES[1], 0.3), budget=budget)
    made = risk.objective(rows_of(20, 1))
    assert isinstance(made, RobustERM)
    smooth = made.smoothed(width)
    for w in (np.zeros(2), np.array([0.0, 1e-3]), np.array([0.3, -0.2])):
        assert np.linalg.eigvalsh(smooth.hessian(w)).max() <= smooth.smoothness
    step = 1e-7 * width * np.array([1.0, 0.0])
    rise = (smooth.gradient(step) - smooth.gradient(-step))[0] / (2 * step[0])
    assert rise == pytest.approx(smooth.hessian(np.zeros(2))[0, 0], 1e-4)


def test_what_a_steep_adversarial_risk_rounds_grows_with_its_slope():
    found = [
        RobustRisk.of(Problem(loss, SPACES[1], 0.3), budget=BUDGETS[1])
        .objective(rows_of(20, 1))
        .rounding(np.array([0.9, 0.1]))
        for loss in (Logistic(), Steep())
    ]
    assert found[1] > 2 * found[0]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda each: each.norm)
@pytest.mark.full
def test_no_swap_moves_an_adversarial_hinge_minimiser_further(budget):
    risk, n, worst = robust(budget, ridge=1.0), 12, 0.0
    stated, _ = risk.sensitivity(n)
    for case in range(12):
        rows = rows_of(n, case)
        rows[:, 2] = 1.0
        if case % 2:  # the rest cancels out: both rows are inside the margin
            rows[1::2, :2] = -rows[::2, :2]
        other = rows.copy()
        other[0, :2] = -rows[0, :2]
        points = [minimise(risk.objective(each), 5e-4 * stated).point for each in (rows, other)]
        worst = max(worst, float(np.linalg.norm(points[0] - points[1])))
    assert 0.5 * stated < worst <= stated * (1 + 1e-3)


# Releases


@pytest.mark.parametrize(
    ("kind", "problem", "own"),
    [
        (TiltedERM, Problem(Softmax(3), RealSpace(6), 0.2), {"tilt": 0.5}),
        (TiltedERM, Problem(Softmax(3), L2Ball(6, 1.0)), {"tilt": 0.5}),
        (AdversarialERM, Problem(Hinge(), RealSpace(2), 0.2), {"norm": "linf", "radius": 0.1}),
        (AdversarialERM, Problem(Hinge(), L2Ball(2, 1.0)), {"radius": 0.1}),
    ],
    ids=["softmax", "softmax-ball", "hinge", "hinge-ball"],
)
@pytest.mark.full
def test_the_excess_of_own_objectives_is_below_the_bound(kind, problem, own):
    """20 seeds, six standard errors: a false alarm in 1e-5; a run exceeds a hundredth of it."""
    n, privacy = 1500, Privacy(1.0, 1e-6)
    rows = rows_of(n, 7, 3 * isinstance(problem.loss, Softmax))
    made = kind.calibrated(n=n, problem=problem, privacy=privacy, **own)
    plain = made.risk.objective(rows)
    more = made.risk.ridge - problem.ridge

    def value(w):
        return plain.value(w) - more / 2 * float(w @ w)

    weak = _with(made.risk, problem, problem.ridge or 1e-2)
    near = [each.sensitivity(n)[0] / 100 for each in (made.risk, weak)]
    points = [minimise(plain, near[0]).point, minimise(weak.objective(rows), near[1]).point]
    best = min(value(each) for each in points)
    found = [run(made, rows, seed=seed).value for seed in range(20)]
    excess = np.array([value(each) - best for each in found])
    error = excess.std() / math.sqrt(len(excess))
    assert excess.mean() + 6 * error <= made.bound
    assert excess.max() > made.bound / 100


def _with(risk, problem, ridge):
    own = {"tilt": risk.tilt} if isinstance(risk, TiltedRisk) else {"budget": risk.budget}
    return type(risk).of(problem, ridge, **own)


@pytest.mark.parametrize(
    ("kind", "loss", "d"),
    [
        (TiltedERM, OneVsRestHinge(3), 6),
        (AdversarialERM, Pinball(labels=1.0), 2),
        (AdversarialERM, Softmax(3), 6),
    ],
)
def test_objectives_without_a_proof_are_refused_by_name(kind, loss, d):
    problem = Problem(loss, L2Ball(d, 1.0), 0.1)
    with pytest.raises(ParameterError, match="loss") as caught:
        kind.calibrated(n=300, problem=problem, privacy=Privacy(1.0))
    assert "\n" not in str(caught.value)


class Rises(Linear):
    """A smooth loss of classes that grows with the margin."""

    classification = True


@pytest.mark.parametrize("domain", [L2Ball(2, 5.0), RealSpace(2)])
def test_rows_are_moved_against_losses_that_fall_alone(domain):
    """Of one that rises the worst perturbation is another: its certificate would be false."""
    with pytest.raises(ParameterError, match="one that falls"):
        AdversarialERM.calibrated(
            n=300, problem=Problem(Rises(), domain, 0.1), privacy=Privacy(1.0, 1e-6)
        )
