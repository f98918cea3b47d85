"""Proposals for domains that are far from a Gaussian's centre: the same law, and draws that end."""

import numpy as np
import pytest
from scipy import stats

from protocols import Box, L2Ball, RealSpace
from protocols.central.record.proposals import between, proposed
from shuffle_sim.auditing import LawError, check_pmf, check_same_law

CELLS = 32


def cells(draws, law, low, high):
    """The shares of the law between two numbers into which draws fall."""
    first, last = law(low), law(high)
    return np.minimum((law(draws) - first) / (last - first) * CELLS, CELLS - 1).astype(int)


@pytest.mark.parametrize(
    ("low", "high"), [(-10.0, -9.5), (-12.0, -9.9), (-1.0, 0.5), (-np.inf, -30.0), (4.0, np.inf)]
)
def test_numbers_between_two_have_the_law_given_that(low, high):
    """Power: numbers of a standard deviation 5 % larger; and of the wrong tail."""
    draws = between(np.random.default_rng(1), low, high, 40_000)
    assert ((draws >= low) & (draws <= high)).all()
    # exp(log cdf) - relative to the end's: 1 at the likely end, in all digits.
    near, sign = (high, 1) if low < 0 else (low, -1)

    def law(x):
        return np.exp(stats.norm.logcdf(sign * x) - stats.norm.logcdf(sign * near))

    ends = (low, high) if sign > 0 else (high, low)
    check_pmf(cells(draws, law, *ends), np.full(CELLS, 1 / CELLS))
    wrong = near + 1.05 * (draws - near)
    with pytest.raises(LawError):
        check_pmf(cells(np.clip(wrong, low, high), law, *ends), np.full(CELLS, 1 / CELLS))


@pytest.mark.parametrize("domain", [L2Ball(3, 1.0, 0.2), Box(3, -0.5, [0.4, 0.8, 1.0])])
def test_a_centre_outside_gives_the_law_of_plain_rejection(domain):
    """Each coordinate of what is kept; power: the slab's numbers without their condition."""
    rng, centre, scale = np.random.default_rng(2), np.array([0.9, 1.1, 0.3]), 0.6
    points, kept = proposed(rng, domain, centre, scale, 60_000)
    plain = centre + scale * rng.standard_normal((200_000, 3))
    inside = np.array([np.array_equal(domain.project(each), each) for each in plain])
    assert kept.mean() > 1.5 * inside.mean()
    for place in range(3):
        ours, theirs = (np.round(8 * each[:, place]) for each in (points[kept], plain[inside]))
        check_same_law(ours, theirs)
        with pytest.raises(LawError):
            check_same_law(np.round(8 * (0.97 * points[kept][:, place] + 0.04)), theirs)


@pytest.mark.parametrize("domain", [L2Ball(2, 1.0), Box(2, -1.0, 1.0)])
@pytest.mark.parametrize("far", [12.0, 1e3])
def test_ten_deviations_away_points_are_found(domain, far):
    """One in 10^22, and never, without the condition."""
    points, kept = proposed(np.random.default_rng(3), domain, np.array([far, 0.1]), 0.9, 4000)
    assert kept.sum() > 40
    assert (np.abs(points[kept]) <= 1).all()


def test_the_whole_space_keeps_all():
    assert proposed(np.random.default_rng(4), RealSpace(2), np.zeros(2), 1.0, 9)[1].all()
