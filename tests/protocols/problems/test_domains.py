"""Domains: projections against an independent solver and their defining inequality."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from protocols.central.record.minimum import Minimum
from protocols.erm.risk import Risk, shape_of
from protocols.problems.domains import Box, Intersection, L2Ball, Simplex
from protocols.problems.losses import Logistic
from protocols.problems.polytope import Polytope, ProjectionError
from shuffle_sim.errors import ParameterError

D = 4
DOMAINS = {
    "ball": L2Ball(D, 2.0, [1.0, 0.0, -1.0, 0.5]),
    "box": Box(D, [-1.0, 0.0, -2.0, 0.5], 1.0),
    "simplex": Simplex(D, 3.0),
    "box and ball": Intersection(Box(D, -1.0, 1.0), L2Ball(D, 1.3, 0.4)),
    "simplex and ball": Intersection(Simplex(D), L2Ball(D, 0.6, [0.6, 0.2, 0.1, 0.1])),
    "ball and ball": Intersection(L2Ball(D, 1.0), L2Ball(D, 1.0, [1.5, 0.0, 0.0, 0.0])),
    "polytope": Polytope([*np.eye(D), -np.ones(D), [1.0, 1.0, 0.0, 0.0]], [1.0, 1, 1, 1, 2, 1.5]),
}
BARELY = {  # alternating projections need millions of steps here
    "lens": (L2Ball(D, 1.0), L2Ball(D, 1.0, [2 - 1e-6, 0.0, 0.0, 0.0])),
    "corner": (Box(D, 0.0, 1.0), L2Ball(D, 1.0, 1.5 - 1e-7)),
    "face": (Box(D, -1.0, 1.0), L2Ball(D, 1.0 + 1e-9)),
    "edge of the simplex": (Simplex(D), L2Ball(D, 1.0, [1.0, 0.0, 0.0, 0.5])),
    "three": (DOMAINS["box and ball"], L2Ball(D, 0.4, 1.0 - 1e-3)),
}


def inside(domain, theta):
    return np.abs(domain.project(theta) - theta).max() < 1e-9


@pytest.mark.parametrize("far", [0.0, 1e12, 1e17, -1e300])
def test_a_simplex_projects_from_anywhere_along_its_normal(far):
    """Where 1 is below the spacing of doubles, too: a shift of all coordinates changes nothing."""
    simplex = Simplex(4)
    assert np.allclose(simplex.project(np.full(4, far)), simplex.center, atol=1e-15)
    near = simplex.project(far + np.array([0.0, 0.0, 0.25, 0.5]))
    if abs(far) < 1e15:
        assert np.allclose(near, [0.0625, 0.0625, 0.3125, 0.5625], atol=1e-15)


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_projections_are_in_the_set_and_nearest(domain):
    rng = np.random.default_rng(0)
    members = np.array([domain.project(theta) for theta in rng.normal(size=(150, D)) * 3])
    for theta in rng.normal(size=(100, D)) * rng.choice([0.3, 2.0, 50.0], (100, 1)):
        nearest = domain.project(theta)
        assert inside(domain, nearest)
        # The defining inequality of a projection on a convex set: no member lies beyond the
        # supporting hyperplane.
        assert ((members - nearest) @ (theta - nearest)).max() < 1e-6 * (1 + np.linalg.norm(theta))
    assert inside(domain, domain.center)
    spread = np.linalg.norm(members[:, None] - members[None], axis=2).max()
    assert spread <= domain.diameter * (1 + 1e-10)
    assert np.linalg.norm(members, axis=1).max() <= domain.radius * (1 + 1e-10)
    assert np.linalg.norm(members - domain.center, axis=1).max() <= domain.reach(domain.center) * (
        1 + 1e-10
    )


@pytest.mark.parametrize("sets", BARELY.values(), ids=BARELY)
@pytest.mark.full
def test_projections_on_intersections_are_proven(sets):
    """In both sets, and the variational inequality of the nearest point holds up to `slack`."""
    (domain, ball), rng = sets, np.random.default_rng(5)
    both = Intersection(domain, ball)
    members = np.array([both.project(theta) for theta in rng.normal(size=(80, D)) * 3])
    apart = np.linalg.norm(members[:, None] - members[None], axis=2)
    assert apart.max() > 1e-7  # more than a point
    assert both.slack(1.0) < 1e-6
    for theta in rng.normal(size=(120, D)) * rng.choice([0.5, 3.0, 1e4], (120, 1)):
        nearest = both.project(theta)
        assert np.linalg.norm(nearest - ball.center) <= ball.size
        assert np.abs(domain.project(nearest) - nearest).max() < 1e-14
        far = np.linalg.norm(theta - nearest)
        assert ((members - nearest) @ (theta - nearest)).max() <= both.slack(far) + 1e-15


def test_a_point_that_is_only_feasible_breaks_the_inequality():
    """Power: 1e-6 off the nearest point is told."""
    both = Intersection(*BARELY["face"])
    theta = np.array([3.0, 0.5, 0.1, -0.2])
    nearest = both.project(theta)
    off = both.project(nearest - 1e-6 * (nearest - both.center))
    assert (nearest - off) @ (theta - off) > 100 * both.slack(np.linalg.norm(theta - off))


@pytest.mark.parametrize("kind", ["box and ball", "simplex and ball", "simplex", "ball and ball"])
def test_projections_agree_with_a_general_solver(kind):
    domain = DOMAINS[kind]
    ball = {
        "box and ball": (1.3, np.full(D, 0.4)),
        "simplex and ball": (0.6, np.array([0.6, 0.2, 0.1, 0.1])),
    }.get(kind)
    limits = {
        "box and ball": (-1.0, 1.0),
        "simplex": (0.0, None),
        "simplex and ball": (0.0, None),
    }.get(kind, (None, None))
    rules = []
    if ball:
        rules.append({"type": "ineq", "fun": lambda t: ball[0] ** 2 - ((t - ball[1]) ** 2).sum()})
    if kind == "ball and ball":
        rules.append({"type": "ineq", "fun": lambda t: 1 - (t**2).sum()})
        rules.append({"type": "ineq", "fun": lambda t: 1 - ((t - [1.5, 0, 0, 0]) ** 2).sum()})
    if "simplex" in kind:
        rules.append({"type": "eq", "fun": lambda t: t.sum() - (3.0 if kind == "simplex" else 1.0)})
    rng = np.random.default_rng(1)
    for theta in rng.normal(size=(12, D)) * 2:
        solved = minimize(
            lambda t, theta=theta: ((t - theta) ** 2).sum() / 2,
            domain.center,
            jac=lambda t, theta=theta: t - theta,
            bounds=[limits] * D,
            constraints=rules,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert np.abs(domain.project(theta) - solved.x).max() < 1e-5


def random_polytope(rng, index):
    """Rows of all lengths, half of some nearly parallel, some sets thin; with a box around."""
    d, rows = int(rng.integers(1, 8)), int(rng.integers(8, 40))
    a = rng.normal(size=(rows, d)) * 10 ** rng.uniform(-3, 3, (rows, 1))
    if index % 3 == 0:
        half = rows // 2
        a[half:] = a[: rows - half] * (1 + 1e-7 * rng.normal(size=(rows - half, d)))
    a = np.vstack([a, np.eye(d), -np.eye(d)])
    room = 10 ** rng.uniform(-3 if index % 2 else 0, 0.5, len(a))
    middle = rng.normal(size=d) * rng.choice([0, 1, 100])
    return Polytope(a, a @ middle + np.linalg.norm(a, axis=1) * room)


@pytest.mark.full
def test_projections_on_polytopes_are_proven():
    """None is refused, and the variational inequality holds up to `slack` at all corners found."""
    rng, projected = np.random.default_rng(7), 0
    for index in range(40):
        polytope = random_polytope(rng, index)
        d, a, b = polytope.d, polytope.matrix, polytope.bounds
        corners = [linprog(way, a, b, bounds=(None, None)).x for way in rng.normal(size=(8, d))]
        for size in (1e-9, 1e-3, 0.3, 10.0, 1e4, 1e8):
            start = polytope.project(corners[0] + rng.normal(size=d))
            theta = start + rng.normal(size=d) * size * polytope.diameter
            nearest = polytope.project(theta)
            rounding = 1e-14 * (d + 8) * polytope.radius * np.linalg.norm(a, axis=1)
            assert (a @ nearest - b <= rounding).all()
            far = float(np.linalg.norm(theta - nearest))
            beyond = (np.array(corners) - nearest) @ (theta - nearest)
            allowed = polytope.slack(far) + 1e-8 * far * polytope.radius  # linprog's corners
            allowed += 2.0**-51 * polytope.radius * polytope.diameter  # a rounding of points
            assert beyond.max() <= allowed
            projected += far > 0
    assert projected > 150


@pytest.mark.parametrize("slope", [1e-3, 1e-5, 1e-8])
def test_points_beyond_a_sharp_corner_are_not_wider_than_stated(slope):
    """Rows hold to roundings, and the corner of a needle is 1/slope times as far."""
    needle = Polytope([[-1, 0], [slope, 1], [slope, -1]], [0, slope, slope])
    other = np.array([0.0, slope])
    beyond = 1 + np.geomspace(1e-16, 1e-5, 200)
    found = [needle.project(np.array([each, 0.0])) for each in beyond]
    apart = max(float(np.linalg.norm(each - other)) for each in found)
    assert apart <= needle.widest
    if slope < 1e-4:  # power: roundings alone, as of a ball, would not do
        assert apart > needle.diameter + 1e-12


def test_polytopes_of_known_projection():
    rng, low, high = np.random.default_rng(8), -1.0, np.array([1.0, 2.0, 3.0])
    box = Box(3, low, high)
    same = Polytope(np.vstack([np.eye(3), -np.eye(3)]), [*high, 1.0, 1.0, 1.0])
    assert same.diameter == pytest.approx(box.diameter)
    assert same.radius == pytest.approx(box.radius)
    for theta in rng.normal(size=(100, 3)) * rng.choice([0.3, 3.0, 1e5], (100, 1)):
        assert same.project(theta) == pytest.approx(box.project(theta), abs=1e-14)


def test_power_a_feasible_point_not_nearest_is_refused(monkeypatch):
    polytope = DOMAINS["polytope"]
    assert isinstance(polytope, Polytope)
    theta = np.array([3.0, 0.5, 0.1, -0.2])
    nearest = polytope.project(theta)
    far = float(np.linalg.norm(theta - nearest))
    assert polytope._unproven(theta, nearest, far) <= 1
    off = nearest + 1e-6 * (polytope.center - nearest)
    assert polytope._unproven(theta, off, float(np.linalg.norm(theta - off))) > 100
    monkeypatch.setattr(Polytope, "_onto", lambda self, active, point: off - point)
    with pytest.raises(ProjectionError, match="times its stated error"):
        polytope.project(theta)


SQUARE = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]


@pytest.mark.parametrize(
    ("matrix", "bounds", "said"),
    [
        (SQUARE, [1.0, -2.0, 1.0, 1.0], "empty or flat"),
        (SQUARE, [1.0, -1.0, 1.0, 1.0], "empty or flat"),
        (np.eye(2), [1.0, 1.0], r"bounded set: theta\[0\] has no least"),
        (SQUARE[:3], [1.0, 1.0, 1.0], r"bounded set: theta\[1\] has no least"),
        ([[0.0, 0.0]], [1.0], "no row only 0"),
        (SQUARE, [1.0, 1.0, 1.0, np.inf], "finite"),
        (SQUARE, [1.0, 1.0], r"shape \(4,\)"),
        ([["a"]], [1.0], "numbers"),
    ],
)
def test_polytopes_that_are_none_are_refused(matrix, bounds, said):
    with pytest.raises(ParameterError, match=said):
        Polytope(matrix, bounds)


def test_diameters_are_attained():
    assert DOMAINS["ball"].diameter == 4.0
    assert DOMAINS["box"].diameter == pytest.approx(np.linalg.norm([2, 1, 3, 0.5]))
    assert DOMAINS["simplex"].diameter == pytest.approx(np.linalg.norm([3, -3]))
    assert DOMAINS["box"].radius == pytest.approx(np.linalg.norm([1, 1, 2, 1]))
    assert DOMAINS["simplex"].reach(np.zeros(D)) == DOMAINS["simplex"].radius == 3.0


def test_unbounded_empty_or_misshapen_domains_are_refused():
    for make in (
        lambda: L2Ball(3, float("inf")),
        lambda: L2Ball(0, 1.0),
        lambda: L2Ball(3, 1.0, [0.0, 1.0]),
        lambda: Box(3, 0.0, float("inf")),
        lambda: Box(3, 1.0, 1.0),
        lambda: Box(2, "low", 1.0),
        lambda: Simplex(1),
        lambda: Simplex(3, -1.0),
        lambda: Intersection(Box(2, 0.0, 1.0), L2Ball(2, 1.0, 5.0)),
        lambda: Intersection(Box(2, 0.0, 1.0), L2Ball(3, 1.0)),
        lambda: Intersection(Box(2, 0.0, 1.0), L2Ball(2, 1.0, [2.0, 0.0])),  # in one point
    ):
        with pytest.raises(ParameterError):
            make()


@pytest.mark.parametrize(
    "make", [lambda size: L2Ball(2, size, 1e8), lambda size: Box(2, 1e8, 1e8 + 2 * size)]
)
def test_a_set_that_is_a_point_in_doubles_is_refused(make):
    make(1e-3)
    with pytest.raises(ParameterError, match="diameter"):
        make(1e-6)


def test_points_of_a_small_ball_exceed_it_by_roundings_alone():
    """A sensitivity is capped at the larger number."""
    rng, most = np.random.default_rng(0), 0.0
    for _ in range(300):
        ball = L2Ball(2, 1e-11, rng.random(2))
        way = rng.normal(size=2)
        ends = [ball.project(ball.center + sign * way) for sign in (1.0, -1.0)]
        apart = float(np.linalg.norm(ends[0] - ends[1]))
        assert apart <= ball.widest
        most = max(most, apart / ball.diameter)
    assert most > 1 + 1e-6
    small = Risk(Logistic(), 0.01, shape_of(ball))
    assert Minimum(small, 1.0, 2).sensitivity.value == ball.widest
