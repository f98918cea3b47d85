"""No sensitivity rests on a constant that is declared and not enforced: by brute force.

Neighbours differ in one user, whose records are extremes. Rows of the others are chosen step by
step, such that two descents part most.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from protocols import (
    Absolute,
    DeletionStability,
    ExponentialMechanism,
    Gibbs,
    Hinge,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    ObjectivePerturbation,
    OutputPerturbation,
    PanPrivateACSA,
    PhasedERM,
    PhasedSCO,
    Problem,
    Squared,
    TiltedERM,
)
from protocols.central.person.grouped_descent import PlainDescent
from protocols.central.person.linear_time_plan import LinearTimePhase
from protocols.erm.tilted import TiltedRisk
from protocols.problems import MeanEstimation, OneVsRestHinge, Softmax, Weighted
from protocols.problems.surrogates import Clipped
from protocols.shuffle import OneShotAverage
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.mechanisms import Gaussian

D = 6
FAR = L2Ball(D, 1e5)
PRIVACY = Privacy(1.0, 1e-6)


class Raw(Clipped):
    """The defect: gradients as they are."""

    def each(self, points, rows):
        at = np.tile(points, (len(rows), 1)) if points.ndim == 1 else points
        return dense(self.loss.gradients_at(at, rows))


def extremes(columns, m):
    """Records of a person, (m, columns): extremes, all mass in one column, labels flipped."""
    ends = (1e300, -1e300, np.nan, np.inf, -np.inf, 0.0, 5e-324)
    found = [np.full((m, columns), end) for end in ends]
    for sign in (-1.0, 1.0):
        for x, y in ((1e300, 1.0), (np.nan, 1.0), (1.0, 1e9), (1.0, 1.0)):
            records = np.zeros((m, columns))
            records[:, -1], records[:, 0] = sign * y, x
            if columns == D:
                records[:] = sign * x * y * np.eye(D)[0]
            found.append(records)
    return found


def parting(asked, seed):
    """Rows of the others, (users - 1, m, columns), under which two descents part most."""
    rng, loss, m = np.random.default_rng(seed), asked.slopes.loss, asked.records
    columns = loss.columns(D)

    def stepped(thetas, rows):
        slopes = dense(asked.slopes.each(thetas, rows)) + asked.ridge * thetas
        return np.asarray(thetas - asked.eta * slopes)

    points, chosen = np.tile(asked.start, (2, 1)), []
    for pair in zip(*extremes(columns, m)[-5::4], strict=True):
        points = stepped(points, np.array(pair))
    for _ in range((asked.users - 1) * m):
        tried = np.zeros((200, columns))
        x = tried[:, :D]
        x[:] = rng.normal(size=x.shape) * rng.random(x.shape) ** 4
        if columns > D:  # small slopes along the way, and margins on both sides of 0
            apart, middle = points[0] - points[1], points.mean(axis=0)
            for way, share in ((apart, rng.random((200, 1))), (middle, 1.0)):
                x -= np.outer(x @ way / max(1e-9, way @ way), way) * share
            tried[:, -1] = rng.choice([-1.0, 1.0], 200)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        after = [stepped(np.tile(each, (200, 1)), tried) for each in points]
        best = int(np.argmax(np.linalg.norm(after[0] - after[1], axis=1)))
        chosen.append(tried[best])
        points = np.array([each[best] for each in after])
    return np.array(chosen).reshape(asked.users - 1, m, columns)


def moved(asked, seed=0):
    """The largest move over neighbours, in units of the stated sensitivity."""
    columns, found = asked.slopes.loss.columns(D), []
    flat = np.zeros((asked.users - 1, asked.records, columns))
    for rest in (flat, parting(asked, seed)):
        points = []
        for end in extremes(columns, asked.records):
            rows = np.concatenate([end[None], rest])
            points.append(asked(lambda part, rows=rows: part(rows), asked.users))
        assert np.isfinite(points).all()
        found += [float(np.linalg.norm(a - b)) for a in points for b in points]
    return max(found) / asked.sensitivity.value


def plain(loss, clip=1.0, smoothing=None, ridge=0.0, users=10, records=10):
    """A pass of which nothing is left out, with the longest step that it takes."""
    slopes = Clipped(loss, clip, smoothing)
    eta = min(100.0, 2 / max(slopes.smoothness + ridge, 1e-3))
    place, start = FAR, np.zeros(D)
    return PlainDescent(slopes, place, start, eta, ridge, users, users, records)


@pytest.mark.parametrize(
    ("asked", "least"),
    [
        (plain(Logistic(), users=200, records=1), 0.45),
        (plain(Logistic(), 0.01), 0.9),
        (plain(Logistic(), 0.01, ridge=1e-4), 0.9),
        (plain(Hinge(), 0.01, smoothing=2.0), 0.9),
        (plain(Squared(), 0.01), 0.9),
        (plain(Squared(math.inf), 1.0, smoothing=0.5), 0.9),
        (plain(MeanEstimation(), 0.01), 0.1),
        (plain(MeanEstimation(math.inf), 0.01), 0.1),
    ],
    ids=str,
)
@pytest.mark.full
def test_a_person_moves_a_pass_by_no_more_than_its_clip(asked, least):
    assert least < moved(asked) <= 1 + 1e-9


def test_a_declared_smoothness_moves_no_condition_of_privacy():
    problem = Problem(Logistic(), FAR, declared_smoothness=1e-6)
    assert (problem.planned_smoothness(), problem.smoothness()) == (1e-6, 0.25)
    for eta in (8.01, 1e3):
        phase = LinearTimePhase(Cohort.of(0, 60), 60, eta, None, Gaussian(1.0))
        with pytest.raises(ParameterError, match="eta"):
            LinearTimePhasedSGD(problem=problem, n=60, privacy=PRIVACY, phases=(phase,))
    kinked = Problem(Hinge(), FAR, declared_smoothness=1e-6)
    kinked = replace(kinked, domain=L2Ball(D, 1e3))
    for each in (problem, kinked):
        made = LinearTimePhasedSGD.calibrated(n=60, problem=each, privacy=PRIVACY, mean="plain")
        for phase in made.phases:
            assert phase.eta * each.smoothness(phase.smoothing) <= 2


def test_where_clipping_is_not_convex_a_norm_bound_is_refused():
    loss, domain = Softmax(3), L2Ball(3 * D, 1.0)
    bound = loss.lipschitz(domain.radius)
    asked = {"n": 60, "privacy": PRIVACY, "mean": "plain"}
    LinearTimePhasedSGD.calibrated(problem=Problem(loss, domain, norm_bound=bound), **asked)
    with pytest.raises(ParameterError, match="clipping_is_convex"):
        LinearTimePhasedSGD.calibrated(problem=Problem(loss, domain, norm_bound=0.1), **asked)


@pytest.mark.parametrize("loss", [MeanEstimation(math.inf), Squared(), Logistic()])
def test_an_element_moves_the_pan_private_state_by_two_clips(loss):
    problem = Problem(loss, L2Ball(D, 2.0), norm_bound=0.1)
    common = {"problem": problem, "n": 40, "privacy": PRIVACY, "batch": 20}

    def states(raw):
        found = []
        for far in (1e300, -1e300, 1e9, -1e9, 1.0, -1.0):
            if isinstance(loss, Logistic) and abs(far) > 1:
                continue
            row = np.eye(loss.columns(D))[0] * far
            if loss.columns(D) > D:
                row[0], row[-1] = 1.0, far
            made = PanPrivateACSA.calibrated(**common)
            if raw:
                made.slopes = Raw(loss, 0.1)
            with np.errstate(over="ignore"):
                memory = made.memory(made.init(), row[None], np.zeros(D))
            found.append(memory.gradient)
        return max(np.hypot.reduce(a - b) for a in found for b in found)

    assert 0.9 < states(raw=False) / (2 * 0.1 / 20) <= 1 + 1e-9
    assert not states(raw=True) <= 2 * 0.1 / 20 * 1.5


@pytest.mark.parametrize("kind", [PhasedERM, PhasedSCO])
def test_a_norm_bound_cuts_the_slopes_of_phased_output(kind):
    """The extension enforces it: gamma of the first release is the norm bound."""
    problem = Problem(Logistic(), L2Ball(2, 5.0), norm_bound=0.05, records=3)
    made = kind.calibrated(n=30, problem=problem, privacy=PRIVACY, phases=1, releases=1)
    asked, found = made.plan(made.init()).statistic, []
    rest = np.zeros((29, 3, 3))
    for end in ([1.0, 0.0, 1.0], [1.0, 0.0, -1.0], [1e300] * 3, [np.nan] * 3, [np.inf] * 3):
        rows = np.concatenate([np.tile(end, (1, 3, 1)), rest])
        found.append(asked(lambda part, rows=rows: part(rows), 30))
    apart = max(float(np.linalg.norm(a - b)) for a in found for b in found)
    assert 0.5 < apart / asked.sensitivity.value <= 1
    assert replace(asked, gamma=1.0).sensitivity.value > 5 * asked.sensitivity.value


@pytest.mark.parametrize("kind", [PhasedERM, PhasedSCO, DeletionStability])
def test_a_norm_bound_does_not_stand_in_for_slopes(kind):
    problem = Problem(MeanEstimation(math.inf), L2Ball(D, 2.0), norm_bound=0.5, records=4)
    with pytest.raises(ParameterError, match="loss"):
        kind.calibrated(n=30, problem=replace(problem, ridge=0.5), privacy=Privacy(9.0, 0.1))


@pytest.mark.parametrize(
    "kind", [OutputPerturbation, ObjectivePerturbation, Gibbs, ExponentialMechanism]
)
def test_minimisers_of_records_take_no_declared_constant(kind):
    problem = Problem(Logistic(), L2Ball(3, 5.0), ridge=0.2)
    asked = {"n": 500, "privacy": Privacy(1.0, 0.0 if kind is ExponentialMechanism else 1e-6)}
    with pytest.raises(ParameterError, match="norm_bound"):
        kind.calibrated(problem=replace(problem, norm_bound=0.01), **asked)
    declared = replace(problem, declared_smoothness=1e-6, declared_spread=0.0, declared_root=1e-3)
    one, other = (kind.calibrated(problem=each, **asked) for each in (problem, declared))
    assert one.plan(one.init()).public() == other.plan(other.init()).public()


CLOSE = Problem(Logistic(), L2Ball(2, 1.0), ridge=0.1, records=3)
PINPOINT = replace(CLOSE, domain=L2Ball(2, 1e-3, 1e8))


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (PhasedERM, PINPOINT),
        (DeletionStability, PINPOINT),
        *(
            (DeletionStability, replace(CLOSE, loss=loss))
            for loss in (Hinge(), Absolute(labels=1.0))
        ),
        (DeletionStability, replace(CLOSE, loss=Weighted(Hinge(), 0.5))),
        (DeletionStability, replace(CLOSE, loss=OneVsRestHinge(3), domain=L2Ball(6, 1.0))),
    ],
)
def test_minimisers_without_certificate_are_refused_uncharged(kind, problem):
    common = {"n": 6, "privacy": Privacy(50.0, 0.1)}
    kind.calibrated(problem=CLOSE, **common)
    with pytest.raises(ParameterError, match=r"radius|loss|domain"):
        kind.calibrated(problem=problem, **common)


def test_minimisers_of_tilted_risks_far_off_are_certified():
    """None is short where 0 is outside the domain."""
    problem = Problem(Logistic(), L2Ball(2, 1e-3, 1e8), ridge=2.0)
    with pytest.raises(ParameterError, match="radius"):
        OutputPerturbation(
            n=4,
            problem=problem,
            privacy=PRIVACY,
            risk=TiltedRisk.of(problem),
            mechanism=Gaussian(1.0),
            radius=1e-9,
        )
    made = TiltedERM.calibrated(n=4, problem=problem, privacy=PRIVACY)
    rows = np.array([[0.6, 0.8, 1.0]] * 4)
    found = made.statistic.of(rows)
    assert np.linalg.norm(found - 1e8) <= problem.domain.widest / 2


@pytest.mark.parametrize("solver", ["sdca", "extragradient"])
def test_a_solver_that_does_not_take_a_loss_is_refused(solver):
    problem = Problem(Logistic(), L2Ball(2, 1.0), ridge=2.0)
    with pytest.raises(ParameterError, match="solver"):
        OneShotAverage.calibrated(
            n=8, records=3, problem=problem, privacy=Privacy(5.0, 1e-3), solver=solver
        )


def test_a_subclass_has_not_by_itself_the_slope_of_its_base():
    """The coupled curve is of the logistic loss alone."""

    class Other(Logistic):
        pass

    laws = []
    for loss in (Logistic(), Other()):
        problem = Problem(loss, L2Ball(3, 5.0), ridge=0.2)
        made = ObjectivePerturbation.calibrated(n=500, problem=problem, privacy=PRIVACY)
        laws.append(made.law.coupled)
    assert laws == [True, False]
