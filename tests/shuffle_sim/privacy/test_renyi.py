"""The Renyi bound of a round with few coins: its parts against brute force, the whole against
enumeration.
"""

import math

import numpy as np
import pytest
from scipy.stats import binom

from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import renyi
from shuffle_sim.privacy.bounds.binomial import delta as exact_in_one_dimension
from shuffle_sim.privacy.bounds.binomial import epsilon as exact_epsilon_in_one_dimension
from shuffle_sim.privacy.bounds.domination import dominating_sigma
from shuffle_sim.privacy.bounds.renyi import applies, delta_few_coins, epsilon_few_coins
from shuffle_sim.privacy.bounds.rounding import delta_many_rounds
from shuffle_sim.privacy.events import BinomialSumEvent

NU = 1e-12


def law(m: int, p: float, g: int, w: float) -> np.ndarray:
    """P_w on 0..m+g, by the definition."""
    floor = min(math.floor(w), g - 1)
    pmf, out = binom.pmf(np.arange(m + 1), m, p), np.zeros(m + g + 1)
    out[floor : floor + m + 1] += (floor + 1 - w) * pmf
    out[floor + 1 : floor + m + 2] += (w - floor) * pmf
    return out


def hockey_stick(p: list[np.ndarray], q: list[np.ndarray], epsilon: float) -> float:
    first, second = p[0], q[0]
    for a, b in zip(p[1:], q[1:], strict=True):
        first, second = np.multiply.outer(first, a).ravel(), np.multiply.outer(second, b).ravel()
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def ball_pair(d: int, rng: np.random.Generator) -> np.ndarray:
    """Two points of the unit ball, most often near opposite ends."""
    x, y = rng.normal(size=(2, d))
    y = -x + y * rng.choice([0.0, 0.1, 1.0])
    return np.array(
        [
            v / max(np.linalg.norm(v), 1e-9) * rng.choice([1.0, 1.0, rng.uniform(0.5, 1)])
            for v in (x, y)
        ]
    )


@pytest.mark.parametrize(("m", "p", "g"), [(30, 0.5, 3), (40, 0.1, 2), (25, 0.3, 1)])
def test_a_wider_pair_reveals_more_at_every_epsilon(m, p, g):
    rng = np.random.default_rng(1)
    for _ in range(60):
        outer_low, low, high, outer_high = np.sort(rng.uniform(0, g, 4))
        inner, outer = (
            [law(m, p, g, w) for w in pair] for pair in ((low, high), (outer_low, outer_high))
        )
        for epsilon in (-1.0, 0.0, 0.5, 2.0):
            for step in (1, -1):
                narrow, wide = (
                    hockey_stick([pair[::step][0]], [pair[::step][1]], epsilon)
                    for pair in (inner, outer)
                )
                assert narrow <= wide + 1e-14


@pytest.mark.parametrize(
    ("m", "p", "g", "theta"), [(60, 0.5, 2, 5.0), (60, 0.5, 3, 1.2), (80, 0.2, 2, 3.0)]
)
def test_moment_and_exact_factor_are_what_they_are_called(m, p, g, theta):
    low, high = g + 3, m - 5
    for w, v in ((g, 0.0), (0.8 * g, 0.3 * g)):
        p_law, q_law = (law(m, p, g, x)[low : high + 1] for x in (w, v))
        log_p, log_q = (renyi._log_laws(np.array([x]), m, p, low, high) for x in (w, v))
        moment, exact = (float(table[0, 0]) for table in renyi._tables(log_p, log_q, theta))
        assert moment == pytest.approx(
            math.log((p_law ** (1 + theta) * q_law**-theta).sum()), rel=1e-10
        )
        epsilons = np.linspace(-5, 12, 4001)
        sticks = np.maximum(p_law - np.exp(epsilons)[:, None] * q_law, 0).sum(axis=1)
        with np.errstate(divide="ignore"):
            brute = float((theta * epsilons + np.log(sticks)).max())
        assert brute <= exact + 1e-12
        assert exact == pytest.approx(brute, abs=1e-3)


def test_a_cell_is_bounded_for_every_multilinear_function():
    # The worst case of a convex one; where its values follow the prices the bound is nearly met,
    # and no part of it can go.
    rng = np.random.default_rng(9)
    a, prices = np.array([0.2, 1.0]), np.array([0.5, 0.8])
    costs = prices[0] * a[:, None] ** 2 + prices[1] * a**2
    closest = math.inf
    for tilt in (0.0, 0.5, 1.0, 1.5):
        for table in (tilt * costs, tilt * costs + rng.normal(size=(2, 2))):
            bound = float(renyi._cells(table, a, prices)[0, 0])
            for _ in range(300):
                x, y = rng.uniform(0, 1, 2)
                value = np.array([1 - x, x]) @ np.exp(table) @ np.array([1 - y, y])
                here = prices @ (a[0] + (a[1] - a[0]) * np.array([x, y])) ** 2
                closest = min(closest, bound - math.log(value) + here)
    assert 0 <= closest < 0.02


@pytest.mark.parametrize("cells", [3, 8, 48])
@pytest.mark.parametrize(
    ("m", "p", "g", "d", "order"),
    [(100, 0.5, 1, 3, 60), (100, 0.5, 3, 2, 25), (150, 0.2, 2, 3, 20)],
)
@pytest.mark.full
def test_the_dual_bounds_the_supremum_between_grid_points(m, p, g, d, order, cells, monkeypatch):
    monkeypatch.setattr(renyi, "_CELLS", cells)
    low, high, theta = g, m, renyi._FINER**order
    bound = renyi._bound.__wrapped__(m, p, g, d, order, low, high)
    rng = np.random.default_rng(6)
    largest = -math.inf
    for x, y in (ball_pair(d, rng) for _ in range(400)):
        log_p, log_q = (renyi._log_laws(g / 2 * (1 + v), m, p, low, high) for v in (x, y))
        tables = []
        for rows, others, up in zip(log_p, log_q, x > y, strict=True):
            step = 1 if up else -1
            tables.append(
                [
                    float(t[0, 0])
                    for t in renyi._tables(rows[None, ::step], others[None, ::step], theta)
                ]
            )
        moment, exact = np.array(tables).T
        largest = max(largest, float((moment.sum() + exact - moment).min()))
    assert largest <= bound
    if cells == 48:
        assert bound <= largest + 0.9 * math.log(d) + 0.1


@pytest.mark.parametrize(
    ("m", "p", "g", "d"),
    [
        (100, 0.5, 1, 2),
        (150, 0.5, 3, 2),
        (60, 0.3, 2, 2),
        (100, 0.15, 2, 2),
        (20, 0.5, 3, 2),
        (30, 0.5, 1, 3),
        (200, 0.05, 1, 2),
    ],
)
@pytest.mark.full
def test_no_pair_of_the_ball_exceeds_the_bound_at_any_p(m, p, g, d):
    rng = np.random.default_rng(7)
    pairs = [
        *(np.array([s * np.eye(d)[0], -s * np.eye(d)[0]]) for s in (1, -1)),
        *(ball_pair(d, rng) for _ in range(40)),
    ]
    laws = [[[law(m, p, g, w) for w in g / 2 * (1 + v)] for v in pair] for pair in pairs]
    for epsilon in (0.1, 0.7, 1.5, 3.0):
        truth = max(hockey_stick(here, there, epsilon) for here, there in laws)
        assert truth <= delta_few_coins(epsilon, m, p, g, d) <= (2.1 if epsilon < 3 else 5) * truth


def test_every_order_and_window_gives_a_bound():
    m, p, g, d, epsilon = 120, 0.5, 2, 2, 1.0
    truth = exact_in_one_dimension(m, p, g, epsilon) * (1 - 1e-9)  # along an axis
    assert truth <= delta_few_coins(epsilon, m, p, g, d)
    for order in (-5, 0, 20, 60):
        for low, high in ((g, m), (30, 90), (45, 77), (58, 64)):
            revealed = d * renyi._outside(m, p, g, low, high)
            assert (
                truth
                <= math.exp(
                    min(
                        50.0,
                        renyi._bound(m, p, g, d, order, low, high) - renyi._FINER**order * epsilon,
                    )
                )
                + revealed
            )


@pytest.mark.full
def test_a_fifth_more_coins_than_there_are_is_caught():
    # Power control of the comparisons above: the bound for noise overstated by a tenth falls below
    # the exact delta.
    for epsilon in (1.0, 1.5):
        truth = exact_in_one_dimension(100, 0.5, 1, epsilon)
        assert (
            delta_few_coins(epsilon, 121, 0.5, 1, 2)
            < truth
            <= delta_few_coins(epsilon, 100, 0.5, 1, 2)
        )


@pytest.mark.parametrize(
    ("m", "p", "g", "d"), [(100, 0.5, 1, 3), (150, 0.5, 3, 2), (300, 0.1, 2, 3), (512, 0.5, 8, 10)]
)
@pytest.mark.full
def test_epsilon_and_delta_are_inverse_to_each_other(m, p, g, d):
    for epsilon in (0.3, 1.0, 2.0):
        delta = delta_few_coins(epsilon, m, p, g, d)
        assert epsilon_few_coins(delta, m, p, g, d) == pytest.approx(epsilon, rel=0.01)
    deltas = [delta_few_coins(epsilon, m, p, g, d) for epsilon in (0.0, 0.2, 0.8, 2.0, 6.0)]
    assert deltas == sorted(deltas, reverse=True)


def test_what_no_epsilon_can_cover_is_said():
    # The count 0 has probability 1e-3 and betrays who sent none.
    assert epsilon_few_coins(1e-4, 10, 0.5, 2, 2) == math.inf
    assert delta_few_coins(50.0, 10, 0.5, 2, 2) >= exact_in_one_dimension(10, 0.5, 2, 50.0) > 1e-3


@pytest.mark.parametrize(
    ("m", "p", "g", "d"),
    [(1, 0.5, 1, 2), (512, 2e-4, 1, 2), (512, 0.5, 16, 1000), (16, 0.5, 16, 3)],
)
@pytest.mark.full
def test_the_corners_are_numbers_and_never_below_an_axis(m, p, g, d):
    assert applies(m, p, g, d)
    for epsilon in (0.0, 1e-9, 30.0, 1e300):
        assert (
            exact_in_one_dimension(m, p, g, epsilon) * (1 - 1e-9)
            <= delta_few_coins(epsilon, m, p, g, d)
            <= 1.0
        )
    for delta in (1e-300, 1e-6, 0.999):
        assert (
            epsilon_few_coins(delta, m, p, g, d)
            >= exact_epsilon_in_one_dimension(m, p, g, delta) * (1 - 1e-9)
            >= 0
        )


def test_it_is_for_few_coins_in_two_dimensions_or_more():
    assert applies(100, 0.5, 2, 2)
    assert not applies(100, 0.5, 2, 1)
    assert not applies(renyi.MOST_COINS + 1, 0.5, 2, 2)
    assert not applies(100, 0.0, 2, 2)
    assert not applies(500, 1e-300, 2, 2)
    assert not applies(100, 0.5, renyi.MOST_STEPS + 1, 2)
    assert not applies(3, 0.5, 4, 2)


@pytest.mark.full
def test_the_accountant_takes_whichever_says_less():
    few = ShuffleAccountant().compose(BinomialSumEvent(10, 10, 0.5, 1, 2))
    assert few.get_delta(1.0) == delta_few_coins(1.0, 100, 0.5, 1, 2) < 1e-6
    assert few.get_epsilon(1e-6) == epsilon_few_coins(1e-6, 100, 0.5, 1, 2)
    many = ShuffleAccountant().compose(BinomialSumEvent(64, 8, 0.5, 8, 10))
    assert many.get_delta(0.5) < delta_few_coins(0.5, 512, 0.5, 8, 10)


@pytest.mark.full
def test_composition_over_rounds_never_falls_below_enumeration():
    # Three rounds of one coordinate, exactly; and two rounds of two coordinates with rounding, at
    # opposite ends of an axis and of the diagonal. A sigma one tenth too large is caught.
    m, g = 400, 4
    pair = [[law(m, 0.5, g, w)[120:290]] * 3 for w in (0.0, float(g))]
    sigma = dominating_sigma(m, 0.5, g, NU)
    truth = hockey_stick(pair[0], pair[1], 1.5)
    assert truth <= delta_many_rounds(1.5, [(sigma, g, 1, 3)], NU) <= 2 * truth
    assert truth > delta_many_rounds(1.5, [(1.1 * sigma, g, 1, 3)], NU)
    m, g = 100, 2
    for x in (np.array([1.0, 0.0]), np.ones(2) / math.sqrt(2)):
        pair = [[law(m, 0.5, g, w)[25:78] for w in g / 2 * (1 + s * x)] * 2 for s in (1, -1)]
        assert hockey_stick(pair[0], pair[1], 1.0) <= delta_many_rounds(
            1.0, [(dominating_sigma(m, 0.5, g, NU), g, 2, 2)], NU
        )
