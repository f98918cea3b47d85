"""Linear-time phased SGD: concentration, sensitivity of releases, gradient counts, refusals."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from protocols import Hinge, L2Ball, LinearTimePhasedSGD, Logistic, MeanEstimation, Problem
from protocols.central.friendly import FriendlyMean
from protocols.central.grouped_descent import GroupedDescent
from protocols.central.linear_time import Phase
from protocols.central.places import Place
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.privacy.tested_release import TestedGaussian

D = 3
PRIVACY = Privacy(2.0, 1e-6)
PROBLEM = Problem(Logistic(), L2Ball(D, 2.0), records=4)


def persons(n, m=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, m, D))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
    noisy = x @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=(n, m))
    return np.concatenate([x, np.where(noisy > 0, 1.0, -1.0)[:, :, None]], axis=2)


def statistic(loss, points=8, group=2, eta=0.3, smoothing=None):
    mean = FriendlyMean(points, 0.5, 0)
    start = np.full(D, 0.1)
    return GroupedDescent(loss, Place.of(L2Ball(D, 1.0)), start, eta, 0.1, smoothing, group, mean)


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), MeanEstimation()])
@pytest.mark.parametrize("smoothing", [None, 3.0])
def test_iterates_are_those_of_a_plain_loop(loss, smoothing):
    asked = statistic(loss, smoothing=smoothing)
    rows = persons(16)[:, :, : loss.columns(D)]
    expected = []
    for at in range(8):
        theta, seen = np.full(D, 0.1), []
        for row in rows[2 * at : 2 * at + 2].reshape(-1, rows.shape[2]):
            seen.append(theta)
            slope = loss.gradients(theta, row[None], smoothing)
            slope = slope.dense()[0] if hasattr(slope, "dense") else slope[0]
            theta = asked.place.domain.project(theta - 0.3 * (slope + 0.1 * theta))
        expected.append(np.mean(seen, axis=0))
    assert np.allclose(asked.iterates(rows), expected, atol=1e-12)


def test_a_replaced_person_changes_one_point_whatever_its_records():
    asked, rows = statistic(Logistic()), persons(16)
    before = asked.iterates(rows)
    for bad in (1e9, -1e9, np.nan, np.inf):
        other = rows.copy()
        other[5] = bad
        changed = ~np.isclose(asked.iterates(other), before, equal_nan=True).all(axis=1)
        assert np.flatnonzero(changed).tolist() in ([2], [])
        score, *value = asked(lambda part, rows=other: part(rows), 16)
        assert score >= 0
        assert np.isfinite(value).all()


def test_average_iterates_concentrate_as_the_radius_assumes():
    """T5: 300 groups; the largest deviation stays below the bound at s = 3.5 (false alarm 0.07 %
    by the theorem, far less in truth), and a bound 10 times smaller would fail.
    """
    eta, group, m = 1.0, 25, 4
    points = 300
    mean = FriendlyMean(points, 1.0, 0)
    place = Place.of(L2Ball(D, 100.0))
    asked = GroupedDescent(Logistic(), place, np.zeros(D), eta, 0.0, None, group, mean)
    found = asked.iterates(persons(points * group, m))
    largest = np.linalg.norm(found - found.mean(axis=0), axis=1).max()
    bound = eta * 1.0 * math.sqrt(group * m / 3) * (1 + 3.5)
    assert bound / 40 < largest < bound


@dataclass(frozen=True)
class Counted(Logistic):
    """A loss that counts how many derivatives are asked for."""

    asked: ClassVar[list[int]] = []

    def derivative(self, margins, labels):
        self.asked.append(np.size(margins))
        return super().derivative(margins, labels)


def test_it_takes_fewer_gradients_than_there_are_records():
    problem = dataclasses.replace(PROBLEM, loss=Counted())
    made = LinearTimePhasedSGD.calibrated(n=1500, problem=problem, privacy=Privacy(4.0, 1e-6))
    rows = persons(1500)
    Counted.asked.clear()
    run(made, rows, seed=1)
    checked = 8 * len(made.phases)  # of the check of the first row, before the run
    assert 1500 * 2 < sum(Counted.asked) <= made.gradients + checked <= 1500 * 4 + checked
    assert sum(Counted.asked) < 2 * 1500 * 4


def test_a_run_on_equal_and_ragged_persons_is_of_persons():
    made = LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY)
    rows = persons(1500)
    counts = np.random.default_rng(1).integers(1, 5, 1500)
    ragged = [each[:count] for each, count in zip(rows, counts, strict=True)]
    for data in (rows, ragged):
        result = run(made, data, seed=1)
        assert result.unit is Unit.PERSON
        assert 1.9 < result.privacy.epsilon <= 2.0
        assert np.linalg.norm(result.value) <= 2.0 + 1e-9
    again = run(made, rows, seed=1, workers=3)
    assert (again.value == run(made, rows, seed=1).value).all()


def test_where_the_test_fails_the_phase_is_left_out():
    """Half of the groups disagree: Q is 0, the score is C/3, above K."""
    mechanism = TestedGaussian(3.0, 0.01, 0.1)
    phase = Phase(Cohort.of(0, 80), 1, 1.0, None, FriendlyMean(80, 0.2, mechanism.largest))
    problem = Problem(MeanEstimation(), L2Ball(D, 2.0), records=4)
    own = {"problem": problem, "n": 80, "privacy": Privacy(9.0, 0.1), "mechanism": mechanism}
    made = LinearTimePhasedSGD(phases=(phase,), **own)
    apart = np.concatenate([np.full((40, 4, D), 0.5), np.full((40, 4, D), -0.5)])
    assert (run(made, apart, seed=1).value == problem.origin).all()
    assert not (run(made, np.abs(apart), seed=1).value == problem.origin).all()


@pytest.mark.full
def test_bounds_fall_with_persons_and_gaps_lie_below():
    """Mean of 4 runs; the bound has slack of more than 2 here."""
    problem = Problem(MeanEstimation(), L2Ball(D, 0.5), records=16)
    bounds = [
        LinearTimePhasedSGD.calibrated(n=n, problem=problem, privacy=PRIVACY).bound
        for n in (1000, 4000, 16_000)
    ]
    assert bounds[0] > bounds[1] > bounds[2]
    made = LinearTimePhasedSGD.calibrated(n=1000, problem=problem, privacy=PRIVACY)
    rows = 0.2 + 0.2 * np.random.default_rng(2).normal(size=(1000, 16, D))
    best = rows.reshape(-1, D).mean(axis=0)
    gaps = [((run(made, rows, seed=s).value - best) ** 2).sum() / 2 for s in range(4)]
    assert np.mean(gaps) < made.bound


def test_printed_constants_are_refused_outside_the_theorem():
    big = {"n": 1_000_000, "problem": dataclasses.replace(PROBLEM, records=100)}
    made = LinearTimePhasedSGD.paper(**big, privacy=Privacy(1.0, 1e-9))
    assert made.phases[0].mean.points > 3162
    for changed, named in (
        ({"privacy": Privacy(11.0, 1e-9)}, "epsilon = 11"),
        ({"privacy": Privacy(1.0, 1e-3)}, "delta = "),
        ({"n": 100_000}, r"n\^\(1-q\)"),
        ({"n": 100_000, "q": 0.05}, "n = 100000"),
        ({"problem": Problem(Hinge(), L2Ball(D, 2.0), records=100)}, "smoothness"),
    ):
        with pytest.raises(ParameterError, match=named):
            LinearTimePhasedSGD.paper(**big | {"privacy": Privacy(1.0, 1e-9)} | changed)


def test_what_it_cannot_have_is_refused():
    with pytest.raises(ParameterError, match="n = 100"):
        LinearTimePhasedSGD.calibrated(n=100, problem=PROBLEM, privacy=PRIVACY)
    with pytest.raises(ParameterError, match="rounds = 3"):
        LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY, rounds=3)
    with pytest.raises(ParameterError, match="delta"):
        LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=Privacy(1.0, 0.0))
    made = LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY)
    with pytest.raises(ParameterError, match=r"data.*of persons"):
        run(made, persons(1500)[:, 0])
    twice = {"problem": PROBLEM, "n": 1500, "privacy": PRIVACY, "mechanism": made.mechanism}
    with pytest.raises(ParameterError, match="disjoint"):
        LinearTimePhasedSGD(phases=(made.phases[0], made.phases[0]), **twice)
