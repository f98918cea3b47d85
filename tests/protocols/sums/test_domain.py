"""A range or ball that floats do not hold is no randomizer: a broadcast may ask for it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols import CarryVectorSum, SingleMessageSum, SplitAndMixSum, VectorSum
from protocols.sums.encoding import Box
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.arrays import Scaled
from shuffle_sim.roles.users import admitted

PRIVACY = Privacy(3.0, 1e-4)
BALL: Any = VectorSum(n=50, d=2, g=3, b=9).randomizer
CARRY: Any = CarryVectorSum.calibrated(n=3000, d=2, privacy=PRIVACY, noise_ratio=1.2).randomizer
SPLIT: Any = SplitAndMixSum.calibrated(n=60, privacy=PRIVACY, rounding=0.3).randomizer
SINGLE: Any = SingleMessageSum(n=1000, steps=10, gamma=0.1).randomizer


@pytest.mark.parametrize(
    ("randomizer", "values", "names"),
    [
        *((each, {"norm_bound": 1e-300}, "norm_bound") for each in (BALL, CARRY)),
        *((each, {"norm_bound": 1.2}, "norm_bound") for each in (BALL, CARRY)),
        *((each, {"lower": -9.0}, "norm_bound") for each in (BALL, CARRY)),
        *((each, {"lower": 1e200}, "lower") for each in (BALL, CARRY, SPLIT)),
        *((each, {"width": 1e-300}, "width") for each in (BALL, CARRY, SPLIT, SINGLE)),
        *((each, {"width": 1e300}, "width") for each in (BALL, CARRY, SPLIT, SINGLE)),
    ],
)
def test_a_domain_that_floats_do_not_hold_is_refused(randomizer, values, names):
    with pytest.raises(ParameterError, match=names):
        replace(randomizer, **values)


def test_a_ball_whose_square_is_zero_would_hold_longer_rows(monkeypatch):
    """Power: without the check a row far outside is not clipped: it sends beyond [0, g + b]."""
    monkeypatch.setattr(Box, "check", lambda _: None)
    made = replace(BALL, norm_bound=1e-300, lower=-1e-300, width=2e-300)
    with np.errstate(all="ignore"):
        inside, _ = made.admit(np.full((3, 2), 1e-170))
        sent = made.counts(inside, np.random.default_rng(1))
    assert np.abs(np.asarray(sent, np.int64)).max() > made.g + made.b


@pytest.mark.parametrize("norm_bound", [1e-9, 1e-50, 1.0])
@pytest.mark.parametrize("length", [1e-162, 1e-170, 1e-300, 1e-320])
def test_multiples_whose_squares_vanish_are_clipped_as_well(norm_bound, length):
    made = replace(BALL, norm_bound=norm_bound, lower=-norm_bound, width=2 * norm_bound)
    rows = np.array([[length, 0.0], [-length, length], [0.3, 0.0], [1.0, 1.0]])
    factors = np.array([1e153, -1e300, 0.5, np.nan])
    inside, clipped, nonfinite = admitted(Scaled(rows, factors), made)
    lengths = np.linalg.norm(np.asarray(inside.dense()), axis=1)
    assert (lengths <= norm_bound * (1 + 1e-9)).all()
    assert nonfinite == 1
    exact = np.hypot.reduce(rows * factors[:, None], axis=1)[:3]
    assert clipped == (exact > norm_bound * (1 + 1e-12)).sum()


def test_all_randomizers_of_sums_say_whether_they_have_a_ball():
    found = [randomizer.norm_bound for randomizer in (BALL, CARRY, SPLIT, SINGLE)]
    assert found == [1.0, 1.0, None, None]


def test_split_and_mix_without_a_delta_is_refused():
    with pytest.raises(ParameterError, match="delta"):
        SplitAndMixSum.calibrated(n=60, privacy=Privacy(1.0, 0.0))
