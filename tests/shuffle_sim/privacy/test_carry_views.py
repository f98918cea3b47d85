"""Exact delta of whole views of sums with carries, whatever the others hold, against the theorem.

A view is one digit sum a level and the sum of the rests. Its law over many users is the power of
one user's characteristic function; the others are mixtures of fractional parts, searched for.
"""

import math
from functools import reduce
from itertools import islice, product

import numpy as np
import pytest
from scipy import fft
from scipy.signal import fftconvolve

from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.bounds.carry import Carries

Law = dict[tuple[int, ...], float]
"""Of one user: (rest, last digit, ..., first digit) with probabilities."""


def user_law(w: float, r: int, levels: int, b: int = 0) -> Law:
    """Of the digits and the rest of one user, coin by coin."""
    law: Law = {(math.floor(w) + j,): mass for j, mass in enumerate(carry.law(w, r, b)) if mass > 0}
    for _ in range(levels):
        following: Law = {}
        for ((number, *digits), mass), coin in product(law.items(), (0, 1)):
            half = (number + coin) // 2
            key = (half, number - 2 * half, *digits)
            following[key] = following.get(key, 0.0) + mass / 2
        law = following
    return law


def moments(law: Law) -> tuple[np.ndarray, np.ndarray]:
    places, masses = np.array(list(law)), np.array(list(law.values()))
    mean = masses @ places
    return mean, masses @ (places - mean) ** 2


def view_law(
    people: list[tuple[Law, int]], centre: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """The law of the sum over people, on a window around `centre`; what is outside wraps around."""
    frequencies = [fft.fftfreq(size) for size in shape[:-1]] + [fft.rfftfreq(shape[-1])]

    def transform(law: Law) -> np.ndarray:
        places = np.array(list(law))
        low = places.min(axis=0)
        found = np.zeros(places.max(axis=0) - low + 1, complex)
        found[tuple((places - low).T)] = list(law.values())
        for axis, f in enumerate(frequencies):
            at = low[axis] + np.arange(found.shape[0])
            found = np.tensordot(found, np.exp(-2j * np.pi * np.outer(at, f)), (0, 0))
        return found

    start = np.rint(centre).astype(int) - np.array(shape) // 2
    total = transform({tuple(-start): 1.0})
    for law, count in people:
        if count:
            total *= transform(law) ** count
    return np.maximum(fft.irfftn(total, shape), 0.0)


def two_worlds(
    m: int,
    r: int,
    levels: int,
    mixture: list[tuple[float, float]],
    pair: tuple[float, float],
    b: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The views with one user at either end of `pair`; the others are a mixture of (w, share)."""
    others = [(user_law(w, r, levels, b), round(share * m)) for w, share in mixture]
    found = [moments(law) for law, _ in others]
    mean = sum(count * mean for (mean, _), (_, count) in zip(found, others, strict=True))
    spread = np.sqrt(sum(count * var for (_, var), (_, count) in zip(found, others, strict=True)))
    # What is beyond wraps around: that is post-processing of less than 1e-13, at two levels 1e-8.
    reach = 15 if levels < 2 else 12
    sizes = (math.ceil(reach * each) + 2 * math.ceil(pair[1]) + 12 for each in spread)
    shape = tuple(fft.next_fast_len(size, real=True) for size in sizes)
    ends = [[*others, (user_law(w, r, levels, b), 1)] for w in pair]
    one, other = (view_law(people, mean, shape) for people in ends)
    return one, other


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """delta by the definition, the worse direction, but for rounding errors of 1e-15 a cell."""
    factor = math.exp(epsilon)
    return max(
        float((one - factor * other)[one > 1e-14].clip(min=0).sum())
        for one, other in ((p, q), (q, p))
    )


def promised(
    m: int, g: float, r: int, levels: int, epsilon: float, d: int = 1, b: int = 0
) -> float:
    return carry.delta(((Carries(m, g, r, b, levels, d), 1),), epsilon)


def mixtures(g: float, rng: np.random.Generator, count: int):
    """Extremes first: all alike, few carries at a level, two parts; then random ones."""
    yield from ([(0.0, 1.0)], [(g, 1.0)], [(0.5, 1.0)], [(0.0, 0.5), (0.5, 0.5)])
    yield from ([(math.floor(g) + t, 1.0)] for t in (-0.79, -0.5, -0.21) if g > 1)
    for _ in range(count):
        parts = rng.integers(1, 4)
        yield list(
            zip(
                (rng.random(parts) * g).tolist(),
                rng.dirichlet(np.ones(parts)).tolist(),
                strict=True,
            )
        )


CASES = [
    # (m, g, r, levels, epsilons): noise for which delta is between 1e-2 and 1e-12
    (600, 3.1, 3, 0, (0.1, 1.0)),
    (2000, 5.3, 2, 0, (0.5, 1.0)),
    (3000, 0.4, 2, 0, (0.02, 0.05)),
    (200, 2.5, 5, 0, (1.0,)),
    (9999, 11.5, 2, 1, (1.0,)),
    (3640, 3.5456, 3, 1, (0.17, 0.3)),  # 0.89 of what is promised: the tightest found with levels
]


def worst_deltas(m, g, r, levels, epsilons, scale=1.0, most=13):
    """The largest delta found at each epsilon, with pairs `scale` times as far apart."""
    rng = np.random.default_rng(m)
    worst = np.zeros(len(epsilons))
    for index, mixture in enumerate(islice(mixtures(g, rng, 6), most)):
        low = float(rng.random() * 0.3 * g) if index % 3 == 2 else 0.0
        views = two_worlds(m, r, levels, mixture, (scale * low, scale * g))
        worst = np.maximum(worst, [hockey_stick(*views, epsilon) for epsilon in epsilons])
    return worst


@pytest.mark.parametrize(("m", "g", "r", "levels", "epsilons"), CASES)
@pytest.mark.full
def test_no_view_has_more_delta_than_promised(m, g, r, levels, epsilons):
    """Whatever the others hold and where the pair is; with the noise 10 % too small, more.

    The noise is planted too small as a pair 1/0.9 times as far apart as the promise says.
    """
    limits = [promised(m, g, r, levels, epsilon) for epsilon in epsilons]
    most = 13 if levels == 0 else 3
    worst = worst_deltas(m, g, r, levels, epsilons, most=most)
    assert (worst > 1e-12).all()
    assert (worst <= limits).all()
    assert (worst_deltas(m, g, r, levels, epsilons, 1 / 0.9, most) > limits).any()


@pytest.mark.parametrize(
    ("m", "g", "r", "levels", "epsilon"),
    [
        (150, 2.0, 3, 0, 0.5),
        pytest.param(700, 1.7, 2, 1, 0.1, marks=pytest.mark.full),
        pytest.param(700, 1.7, 2, 1, 0.5, marks=pytest.mark.full),
        pytest.param(1500, 4.6, 2, 1, 1.0, marks=pytest.mark.full),
        pytest.param(900, 3.0, 4, 1, 0.5, marks=pytest.mark.full),
        pytest.param(700, 2.0, 5, 2, 0.5, marks=pytest.mark.full),
    ],
)
def test_where_few_users_carry_less_is_told_than_promised(m, g, r, levels, epsilon):
    """Near the fewest users for which anything is proven; there the bound is not tight."""
    (worst,) = worst_deltas(m, g, r, levels, [epsilon], most=7 if levels < 2 else 1)
    assert 1e-10 < worst <= promised(m, g, r, levels, epsilon) < 0.1


def losses(p: np.ndarray, q: np.ndarray, width: float) -> tuple[int, np.ndarray]:
    """Privacy losses under p, rounded up to multiples of `width`: the lowest, and their masses."""
    inside = p > 1e-14
    cells = np.ceil(np.log(p[inside] / np.maximum(q[inside], 1e-17)) / width).astype(int)
    cells = np.clip(cells, -200_000, 200_000)
    return int(cells.min()), np.bincount(cells - cells.min(), p[inside])


def delta_of_products(pairs: list[tuple[np.ndarray, np.ndarray]], epsilon: float) -> float:
    """delta of independent coordinates, never below the truth, the worse direction."""
    width, found = 2e-4, 0.0
    for turn in (False, True):
        parts = [losses(*(pair[::-1] if turn else pair), width) for pair in pairs]
        low = sum(start for start, _ in parts)
        masses = reduce(fftconvolve, [mass for _, mass in parts])
        at = width * (low + np.arange(len(masses)))
        gains = -np.expm1(np.minimum(epsilon - at, 0.0))
        found = max(found, float(gains @ np.maximum(masses, 0.0)))
    return found


@pytest.mark.parametrize(
    ("m", "g", "r", "levels", "epsilon"),
    [(300, 2.4, 3, 0, 1.0), (1500, 4.0, 2, 0, 0.5), (9999, 11.5, 2, 1, 1.0)],
)
@pytest.mark.full
def test_two_coordinates_have_at_most_the_delta_promised(m, g, r, levels, epsilon):
    """Antipodal pairs in several directions; with the noise 10 % too small, more."""
    rng = np.random.default_rng(levels)
    worst = planted = 0.0
    for mixture in list(mixtures(g, rng, 0))[2 : 3 if levels else 7]:
        for angle in (math.pi / 4, float(rng.uniform(0, math.pi / 4))):
            for scale in (1.0, 1 / 0.9):
                pairs = []
                for part in (math.cos(angle), math.sin(angle)):
                    ends = g / 2 - scale * part * g / 2, g / 2 + scale * part * g / 2
                    if scale > 1:  # shifted by whole steps, so that nothing is negative
                        ends = ends[0] + 2, ends[1] + 2
                    pairs.append(two_worlds(m, r, levels, mixture, ends))
                found = delta_of_products(pairs, epsilon)
                if scale == 1:
                    worst = max(worst, found)
                else:
                    planted = max(planted, found)
    limit = promised(m, g, r, levels, epsilon, d=2)
    assert 1e-12 < worst <= limit < planted


@pytest.mark.slow_parameters("0-300-0.95")
@pytest.mark.parametrize(("levels", "cases", "tightest"), [(0, 300, 0.95), (1, 12, 0.2)])
@pytest.mark.full
def test_a_search_finds_no_view_above_the_promise(levels, cases, tightest):
    """Random sizes, shapes, epsilons, others and pairs, where the promise is a delta of use."""
    rng, ratios = np.random.default_rng(levels), []
    while len(ratios) < cases:
        m = int(np.exp(rng.uniform(*np.log((700, 3000) if levels else (60, 6000)))))
        r, b = int(rng.choice(carry.UNIFORMS)), int(rng.choice((0, 0, 1, 3)))
        epsilon = float(np.exp(rng.uniform(*np.log((0.1, 6.0)))))
        g = math.sqrt(m) * float(np.exp(rng.uniform(*np.log((0.005, 0.5)))))
        limit = promised(m, g, r, levels, epsilon, b=b)
        if not 1e-9 < limit < 1e-2:
            continue
        mixture = list(mixtures(g, rng, 6))[int(rng.integers(10))]
        pair = (0.0, g) if rng.random() < 0.6 else (0.1 * g * rng.random(), g)
        views = two_worlds(m, r, levels, mixture, pair, b)
        ratios.append(hockey_stick(*views, epsilon) / limit)
    assert tightest < max(ratios) <= 1


@pytest.mark.parametrize(
    ("m", "g", "r", "levels", "span"),
    [(600, 7.0, 3, 0, 0.4), (1500, 5.0, 2, 0, 0.72), (3640, 3.5456, 3, 1, math.sqrt(0.5))],
)
@pytest.mark.full
def test_clipped_coordinates_have_at_most_the_delta_promised(m, g, r, levels, span):
    """Both coordinates go from end to end; with the noise 10 % too small, more."""
    far = min(span, math.sqrt(0.5)) * g
    rounds = ((Carries(m, g, r, 0, levels, 2, span), 1),)
    for epsilon in (0.2, 0.5):
        found = {}
        for scale in (1.0, 1 / 0.9):
            views = two_worlds(m, r, levels, [(round(far) / 2, 1.0)], (0.0, scale * far))
            found[scale] = delta_of_products([views, views], epsilon)
        assert 1e-12 < found[1.0] <= carry.delta(rounds, epsilon) < found[1 / 0.9]


def test_the_view_of_three_users_by_enumeration():
    """Every outcome of every coin, against the transform that the other tests use."""
    laws = [user_law(w, 2, 2) for w in (0.3, 2.71, 1.0)]
    exact: dict[tuple[int, ...], float] = {}
    for parts in product(*(law.items() for law in laws)):
        key = tuple(sum(column) for column in zip(*(places for places, _ in parts), strict=True))
        exact[key] = exact.get(key, 0.0) + math.prod(mass for _, mass in parts)
    shape, centre = (16, 16, 16), np.array([4, 0, 0])
    found = view_law([(law, 1) for law in laws], centre, shape)
    start = centre - np.array(shape) // 2
    assert sum(exact.values()) == pytest.approx(1)
    for key, mass in exact.items():
        assert found[tuple(np.array(key) - start)] == pytest.approx(mass, abs=1e-15)
    assert len(exact) == (found > 1e-14).sum()


def test_the_points_of_the_sheet():
    """Exact delta of the total, and what one carry level adds to it at n = 400."""
    fractions = (0.0, 0.17, 0.33, 0.5, 0.67, 0.83)
    total = max(
        hockey_stick(*two_worlds(9999, 2, 0, [(11.5 / 2 + t, 1.0)], (0.0, 11.5)), 1.0)
        for t in fractions
    )
    assert total == pytest.approx(6.0756e-7, rel=0.02)
    assert 7.8078e-7 < promised(9999, 11.5, 2, 0, 1.0) < 8.1e-7
    assert 9.9486e-7 < promised(9999, 11.5, 2, 1, 1.0) < 1.03e-6
    alone = hockey_stick(*two_worlds(399, 2, 0, [(0.0, 1.0)], (0.0, 3.0)), 0.5)
    whole = hockey_stick(*two_worlds(399, 2, 1, [(0.0, 1.0)], (0.0, 3.0)), 0.5)
    assert alone == pytest.approx(7.609924e-3, rel=1e-6)
    assert whole == pytest.approx(7.648051e-3, rel=1e-6)
