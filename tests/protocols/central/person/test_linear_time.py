"""Linear-time phased SGD: concentration, sensitivity of releases, gradient counts, refusals."""

import dataclasses
import math

import numpy as np
import pytest
import scipy
from classes import Counted

from protocols import Hinge, L2Ball, LinearTimePhasedSGD, Logistic, Problem
from protocols.central.person.chained_mean import ChainedMean, clipped
from protocols.central.person.friendly import FriendlyMean
from protocols.central.person.grouped_descent import ClippedPoints, GroupedDescent, PlainDescent
from protocols.central.person.linear_time import printed_groups
from protocols.central.person.linear_time_plan import LinearTimePhase
from protocols.problems import Linear, MeanEstimation
from protocols.problems.surrogates import Clipped
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.privacy.bounds.gaussian import mu_of
from shuffle_sim.privacy.events import GaussianEvent
from shuffle_sim.privacy.mechanisms import Gaussian
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
    slopes = Clipped(loss, loss.lipschitz(1.0), smoothing)
    return GroupedDescent(slopes, L2Ball(D, 1.0), start, eta, 0.1, group, mean)


def test_roundings_are_in_the_sensitivity_of_a_tiny_radius():
    rows, moved = np.tile(persons(1), (200, 1, 1)), []
    other = rows.copy()
    other[0, :, :D] *= -1
    for seed in range(10):
        start = np.random.default_rng(seed).uniform(0.1, 0.5, D)
        asked = dataclasses.replace(
            statistic(Logistic(), group=1), mean=FriendlyMean(200, 1e-15, 20), start=start
        )
        before, after = (asked(lambda part, each=each: part(each), 200) for each in (rows, other))
        assert {before[0], after[0]} == {0.0, 1.0}  # both pass the test
        moved.append(np.linalg.norm(before[1:] - after[1:]))
    assert max(moved) > 5 * asked.mean.sensitivity  # the control: what was stated
    assert max(moved) <= asked.sensitivity.value
    usual = FriendlyMean(200, 0.01, 20)
    assert usual.rounded(1.0) == pytest.approx(usual.sensitivity, rel=1e-9)


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
            theta = asked.domain.project(theta - 0.3 * (slope + 0.1 * theta))
        expected.append(np.mean(seen, axis=0))
    assert np.allclose(asked.iterates(rows), expected, atol=1e-12)


def test_a_replaced_person_changes_one_point():
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


@pytest.mark.full
def test_average_iterates_concentrate_as_the_radius_assumes():
    """The sheet: logistic, d = 10, T = 400, eta = 1: the largest deviation of 300 averages is some
    2.08, the bound 11.5 (1 + s). At s = 3.5 the false alarm is 0.07 % by the theorem, far less in
    truth; a bound 40 times smaller would fail.
    """
    points, group, m, d = 300, 100, 4, 10
    rng = np.random.default_rng(0)
    x = rng.normal(size=(points * group, m, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
    y = np.where(x @ np.linspace(-1, 1, d) + 0.3 * rng.normal(size=x.shape[:2]) > 0, 1.0, -1.0)
    mean = FriendlyMean(points, 1.0, 0)
    place = L2Ball(d, 100.0)
    asked = GroupedDescent(Clipped(Logistic(), 1.0), place, np.zeros(d), 1.0, 0.0, group, mean)
    found = asked.iterates(np.concatenate([x, y[:, :, None]], axis=2))
    largest = np.linalg.norm(found - found.mean(axis=0), axis=1).max()
    bound = math.sqrt(group * m / 3)
    assert bound == pytest.approx(11.5, abs=0.06)
    assert 1.0 < largest < 3.2 < bound * (1 + 3.5)
    assert bound * (1 + 3.5) / 40 < largest


@pytest.mark.parametrize(("n", "best", "asked"), [(100_000, 2230, 3393), (200_000, 4205, 3462)])
def test_printed_phases_fit_from_some_200_000_persons(n, best, asked):
    """The sheet: the largest last phase over q, and the groups that it must hold."""
    count = math.floor(math.log2(n))
    last = max((1 - 2**-q) * n / 2 ** (count * q) for q in np.linspace(0.005, 0.5, 991))
    assert last == pytest.approx(best, rel=0.01)
    assert printed_groups(n, 100, Privacy(1.0, 1e-6)) == pytest.approx(asked, rel=1e-3)
    assert (last >= asked) == (n == 200_000)


def test_the_printed_audit_of_algorithm_1():
    """The sheet: C(10^4, 100) = 3162.675; at n = 10^6 the 1 - delta/(10 e) quantile of the groups
    whose inclusion flips is 23 of Bin(3622, 6/C), so a mean moves by 150 tau/C; the noise printed
    beside it is 76,347 tau/C, which is 100 times too much.
    """
    privacy = Privacy(1.0, 1e-6)
    assert printed_groups(10_000, 100, privacy) == pytest.approx(3162.675, abs=1e-3)
    C = printed_groups(1_000_000, 100, privacy)
    assert math.floor(C) - 1 == 3622 or math.floor(C) == 3623
    flips = scipy.stats.binom.ppf(1 - 1e-6 / (10 * math.e), 3622, 6 / C)
    assert flips == 23
    assert 6 * (flips + 2) == 150
    noise = 100 * math.log(1_000_000 / 1e-6) ** 2
    assert noise == pytest.approx(76_347, rel=1e-4)
    assert 150 / noise == pytest.approx(0.00196, rel=5e-3)  # mu; 0.2 is asked for
    assert mu_of(1.0, 1e-6) / (150 / noise) > 100


@pytest.mark.full
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
    made = LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY, mean="friendly")
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
    phase = LinearTimePhase(
        Cohort.of(0, 80), 1, 1.0, None, FriendlyMean(80, 0.2, mechanism.largest)
    )
    problem = Problem(MeanEstimation(), L2Ball(D, 2.0), records=4)
    own = {"problem": problem, "n": 80, "privacy": Privacy(9.0, 0.1), "mechanism": mechanism}
    made = LinearTimePhasedSGD(phases=(phase,), **own)
    apart = np.concatenate([np.full((40, 4, D), 0.5), np.full((40, 4, D), -0.5)])
    assert (run(made, apart, seed=1).value == problem.origin).all()
    assert not (run(made, np.abs(apart), seed=1).value == problem.origin).all()


@pytest.mark.full
def test_a_chain_has_the_numbers_of_the_sheet():
    """In units L R, at epsilon 1, delta 1e-6, m = 100, d = 10, u = 3.5; chains have a little less,
    as the number of their rounds is searched.
    """
    problem = Problem(Linear(), L2Ball(10, 1.0), records=100)
    for n, mean, expected in (
        (1_000_000, "friendly", 0.0078),
        (1_000_000, "chain", 0.0049),
        (100_000, "friendly", 0.0245),
        (100_000, "chain", 0.015),
        (10_000, "chain", 0.051),
    ):
        made = LinearTimePhasedSGD.calibrated(
            n=n, problem=problem, privacy=Privacy(1.0, 1e-6), mean=mean
        )
        assert 0.84 * expected < made.bound < 1.02 * expected
        assert made.gradients <= n * 100


ROWS = np.vstack([np.full((1, D), np.nan), np.full((1, D), 1e9), np.full((1, D), -1e9), np.eye(D)])


def chain_move(share=1.0, ratio=0.3):
    """Over neighbours and centers: the largest move of a mean over share times the bound."""
    rng, worst = np.random.default_rng(0), 0.0
    chain = ChainedMean(8, (1.0, ratio), 5.0)
    for _ in range(50):
        rest, center = rng.normal(size=(7, D)), rng.normal(size=D) / 3
        means = []
        for end in (*ROWS, center + ROWS[3], center - ROWS[3]):
            rows = clipped(np.vstack([end, rest]), 1.0)  # what `ClippedPoints` gives
            means.append(clipped(rows - center, ratio * 2 / 2).mean(axis=0))
        worst = max(worst, *(float(np.linalg.norm(a - b)) for a in means for b in means))
    return worst / (share * ratio * 2 / chain.points)


def test_a_replaced_group_moves_each_mean_by_two_radii_at_most():
    assert 0.95 < chain_move() <= 1 + 1e-12
    assert chain_move(share=0.9) > 1  # a tenth less would be seen
    place, slopes = L2Ball(D, 1.0), Clipped(Logistic(), 1.0)
    asked = ClippedPoints(slopes, place, np.zeros(D), 0.3, 0.1, 2, 8, 0.2)
    rows = persons(16)
    rows[3] = np.nan
    points = asked(lambda part: part(rows), 16)
    assert np.isfinite(points).all()
    assert np.linalg.norm(points, axis=1).max() <= 0.2 + 1e-12
    assert asked.sensitivity.value == 0.4


def test_the_noise_of_a_chain_has_its_law():
    """2,000 x 3 draws: the variance's standard error is 1.8 %; 5 of them: 6e-7. A multiplier a
    tenth larger would be seen.
    """
    rows = np.tile([0.1, 0.2, -0.1], (50, 1))
    for ratios in ((1.0,), (1.0, 0.6, 0.5)):
        chain = ChainedMean(50, ratios, 2.0)
        drawn = np.array(
            [chain.sample(rows, 1.0, np.random.default_rng((7, at))) for at in range(2000)]
        )
        noise = (drawn - rows[0]).var() / chain.spread**2
        assert abs(noise - 1) < 0.092 < abs(1.21 * noise - 1)
        assert chain.spread == pytest.approx(2.0 * math.sqrt(len(ratios)) * ratios[-1] / 50)
    assert chain.event == GaussianEvent(2.0)


def test_noise_of_a_chain_is_added_before_the_center_rounds_it():
    """The mean is 0.6 of the spacing of doubles beside the center, and so is the noise."""
    space, chain = np.spacing(1.0), ChainedMean(10, (1.0, 1e-14), 1.0)
    rows = np.array([[1 + space]] * 6 + [[1.0]] * 4)
    sizes = iter((-1.0, 0.6))
    units = iter(math.sqrt(2) * 4 * ratio / 10 for ratio in chain.ratios)

    class Noise:
        def standard_normal(self, size):
            return np.full(size, next(sizes) * space / next(units))

    added_last = (1 + 0.6 * space) + 0.6 * space
    assert added_last == 1 + 2 * space
    assert chain.sample(rows, 4.0, Noise())[0] == 1 + space


def test_a_run_by_chains_spends_what_was_asked_for():
    """Half of the persons disagree with the others: a friendly mean would not pass."""
    made = LinearTimePhasedSGD.calibrated(n=800, problem=PROBLEM, privacy=PRIVACY, mean="chain")
    assert "no noise is longer" in made.assumes
    rows = persons(800)
    result = run(made, rows, seed=1)
    assert result.unit is Unit.PERSON
    assert 1.99 < result.privacy.epsilon <= 2.0
    assert (run(made, rows, seed=1, workers=3).value == result.value).all()
    rows[::2, :, -1] *= -1
    assert not (run(made, rows, seed=1).value == PROBLEM.origin).all()
    for bad in ({"ratios": ()}, {"ratios": (0.5,)}, {"ratios": (1.0, 0.0)}, {"points": 0}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            ChainedMean(**{"points": 5, "ratios": (1.0,), "noise_multiplier": 1.0} | bad)
    with pytest.raises(ParameterError, match="5 rows"):
        ChainedMean(5, (1.0,), 1.0).sample(np.zeros((4, 2)), 1.0, np.random.default_rng(0))


def plain_move(share=1.0):
    """Over neighbours: the largest move of a pass of which nothing is left out, over the bound."""
    ends = [*(np.full((4, D + 1), end) for end in (np.nan, 1e9, -1e9))]
    ends += [np.tile([x, 0, 0, 0.0], (count, 1)) for x in (1.0, -1.0) for count in (1, 4, 9)]
    place, start = L2Ball(D, 5.0), np.zeros(D)
    asked = PlainDescent(Clipped(Linear(), 1.0), place, start, 0.01, 0.0, 60, 60, 4)
    rest, found = [each * [0.5, 0.5, 0.5, 0.0] for each in persons(59)], []
    for end in ends:
        rows = Persons.in_memory([np.nan_to_num(end), *rest]).rows(0, 60).copy()
        rows[0] = end

        def total(part, rows=rows):
            return part(rows)

        found.append(asked(total, 60))
    moved = max(float(np.linalg.norm(a - b)) for a in found for b in found)
    return moved / (share * asked.sensitivity.value)


def test_without_removal_a_person_moves_a_pass_by_two_eta_l_m():
    """Ragged persons count with as many records as are stated, so later ones are not shifted."""
    assert 0.95 < plain_move() <= 1
    assert plain_move(share=0.9) > 1  # a tenth less would be seen


def test_roundings_are_in_the_sensitivity_of_a_tiny_step():
    """Above 1 a double is coarser than below: one path stays where it is, the other goes on."""
    rows, ends = np.zeros((2000, 1, 2)), []
    rows[:, 0, 0] = 0.9
    eta, n = 2.0**-53 * 1.001, len(rows)
    asked = PlainDescent(Clipped(Linear(), 1.0), L2Ball(1, 2.0), np.ones(1), eta, 0.0, n, n, 1)
    for end in (1.0, -1.0):
        rows[0, 0, 0] = end
        ends.append(asked(lambda part: part(rows), n))
    moved = float(np.linalg.norm(ends[0] - ends[1]))
    assert moved > 600 * 2 * eta  # the control: what was stated
    assert moved <= asked.sensitivity.value
    usual = dataclasses.replace(asked, eta=0.01).sensitivity.value
    assert usual == pytest.approx(2 * 0.01, rel=1e-6)


@pytest.mark.full
def test_phases_without_removal_are_a_baseline():
    """Its noise does not fall with m; the planner takes it where persons have few records."""
    private, bounds = Privacy(1.0, 1e-6), {}
    for m in (10, 100_000):
        problem = Problem(Linear(), L2Ball(10, 1.0), records=m)
        common = {"n": 2000, "problem": problem, "privacy": private}
        rows = dict(LinearTimePhasedSGD.settings(**common))
        assert [*rows] == ["friendly", "chain", "plain"]
        bounds[m] = [rows[mean]().bound for mean in ("chain", "plain")]
        best = LinearTimePhasedSGD.calibrated(**common)
        assert best.bound == min(bounds[m])
        assert best.choices["mean"].startswith("plain" if m == 10 else "chain")
    assert bounds[100_000][0] < bounds[10][0] / 10
    assert bounds[100_000][1] > bounds[10][1] / 2
    small = LinearTimePhasedSGD.calibrated(n=60, problem=PROBLEM, privacy=PRIVACY, mean="plain")
    result = run(small, persons(60), seed=1)
    assert 1.99 < result.privacy.epsilon <= 2.0
    with pytest.raises(ParameterError, match="eta"):
        LinearTimePhasedSGD(
            problem=PROBLEM,
            n=60,
            privacy=PRIVACY,
            phases=(LinearTimePhase(Cohort.of(0, 60), 60, 1e3, None, Gaussian(1.0)),),
        )


@pytest.mark.full
def test_bounds_fall_with_persons_and_gaps_lie_below():
    """Mean of 4 runs; the bound has slack of more than 2 here."""
    problem = Problem(MeanEstimation(), L2Ball(D, 0.5), records=16)
    bounds = [
        LinearTimePhasedSGD.calibrated(n=n, problem=problem, privacy=PRIVACY).bound
        for n in (1000, 16_000)
    ]
    assert bounds[0] > bounds[1]
    made = LinearTimePhasedSGD.calibrated(n=1000, problem=problem, privacy=PRIVACY)
    rows = 0.2 + 0.2 * np.random.default_rng(2).uniform(-1.8, 1.8, (1000, 16, D))
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
        LinearTimePhasedSGD.calibrated(n=100, problem=PROBLEM, privacy=PRIVACY, mean="friendly")
    with pytest.raises(ParameterError, match="n = 5"):
        LinearTimePhasedSGD.calibrated(n=5, problem=PROBLEM, privacy=PRIVACY, mean="chain")
    with pytest.raises(ParameterError, match="mean = 'median'"):
        LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY, mean="median")
    with pytest.raises(ParameterError, match="rounds = 3"):
        LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY, rounds=3)
    with pytest.raises(ParameterError, match="delta"):
        LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=Privacy(1.0, 0.0))
    made = LinearTimePhasedSGD.calibrated(n=1500, problem=PROBLEM, privacy=PRIVACY, mean="friendly")
    with pytest.raises(ParameterError, match=r"data.*of persons"):
        run(made, persons(1500)[:, 0])
    twice = {"problem": PROBLEM, "n": 1500, "privacy": PRIVACY, "mechanism": made.mechanism}
    with pytest.raises(ParameterError, match="disjoint"):
        LinearTimePhasedSGD(phases=(made.phases[0], made.phases[0]), **twice)
