"""examples/heavy_tails.py on the hard instance P_nu: slopes in n, and relative excess."""

import math

import numpy as np
import pytest

from protocols.problems.instances import RareDirection
from shuffle_sim.errors import ParameterError


@pytest.fixture(scope="module")
def study(example):
    return example("heavy_tails")


SIZES = (2_000, 20_000, 200_000, 2_000_000)


def shares(study, k, make, runs):
    """Mean excess over p a for each n."""
    found = []
    for n in SIZES:
        instance = RareDirection(n, 10, 1.0, k)
        made = make(instance)
        risks = [study.rare(instance, made, 7919 * seed + n) for seed in range(runs)]
        assert max(risks) <= 2 * instance.range
        if make is study.phases:
            assert np.mean(risks) <= made.bound
        found.append(float(np.mean(risks)) / instance.range)
    return np.array(found)


def slope(k, found):
    ranges = [RareDirection(n, 10, 1.0, k).range for n in SIZES]
    return float(np.polyfit(np.log(SIZES), np.log(found * ranges), 1)[0])


@pytest.mark.full
@pytest.mark.parametrize("k", [2.0, 4.0, math.inf])
def test_phases_have_the_optimal_slope_and_a_flat_excess(study, k):
    # Standard error of a mean of 150 runs: 8 %; that of the slope: 0.016.
    found = shares(study, k, study.phases, 150)
    assert slope(k, found) == pytest.approx(-(1 - 1 / k), abs=0.05)
    assert found.max() < 0.08
    assert found.max() / found.min() < 1.6


def test_noisy_sgd_is_not_flat_on_it(study):
    found = shares(study, 4.0, study.noisy_sgd, 10)
    assert (np.diff(found) > 0).all()
    assert found[-1] > 0.95


def test_the_instance_has_the_moments_that_it_states():
    instance = RareDirection(10_000, 10, 1.0, 4.0)
    p, a = instance.share, instance.size
    assert p * a**4 == pytest.approx(1.0)
    assert instance.moments.mean == pytest.approx(p * a)
    assert instance.excess(-instance.direction) == pytest.approx(0.0, abs=1e-12)
    assert np.linalg.norm(instance.row[0, :-1]) == pytest.approx(a)
    with pytest.raises(ParameterError, match="2 kappa d/epsilon"):
        RareDirection(100, 10, 1.0, 4.0)


@pytest.mark.full
def test_the_study_prints_its_table(study, capsys):
    study.slopes(2, (2_000, 20_000))
    lines = capsys.readouterr().out.splitlines()
    kinds = ["method", *["phases"] * 3]
    assert [line.split()[0] for line in lines] == [*kinds, *["noisy"] * 3, *kinds, *kinds]


@pytest.mark.full
@pytest.mark.parametrize("k", [2.0, math.inf])
def test_phases_have_the_optimal_slope_in_epsilon_and_no_more_in_d(study, k):
    """40 runs a point: standard errors of the slopes near 0.07."""
    found = {}
    for axis in ("epsilon", "d"):
        values, _ = study.AXES[axis]
        means = [
            np.mean(study.risks(each, 40, study.phases))
            for each in study.instances(k, axis, values)
        ]
        found[axis] = float(np.polyfit(np.log(values), np.log(means), 1)[0])
    assert found["epsilon"] == pytest.approx(-(1 - 1 / k), abs=0.25)
    assert found["d"] < 1 - 1 / k + 0.15
