"""One-shot averaging of certified local minimisers through the shuffler."""

import numpy as np
import pytest

from protocols import Logistic, Problem, RealSpace
from protocols.erm.solver import minimise
from protocols.problems import Linear
from protocols.shuffle import OneShotAverage
from shuffle_sim import Budget, ParameterError, Privacy, run
from shuffle_sim.data.persons import Persons
from shuffle_sim.privacy.bounds import gaussian

N, RECORDS, D = 300, 40, 2


def people():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, RECORDS, D))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
    y = np.where(x[:, :, :1] + 0.2 * rng.normal(size=(N, RECORDS, 1)) > 0, 1.0, -1.0)
    return np.concatenate([x, y], axis=2)


def made(**given):
    problem = Problem(Logistic(), RealSpace(D), 0.2)
    case = {"n": N, "records": RECORDS, "problem": problem, "privacy": Privacy(1.0, 1e-6)}
    return OneShotAverage.calibrated(**(case | given))


@pytest.mark.full
def test_the_result_is_the_mean_of_local_minimisers_and_noise():
    protocol, rows = made(), people()
    locals_ = np.array([minimise(protocol.risk.objective(each), 1e-6).point for each in rows])
    assert np.linalg.norm(locals_, axis=1).max() <= protocol.risk.reach
    result = run(protocol, Persons.in_memory(list(rows)), seed=7, fidelity="aggregate")
    error = protocol.total.standard_error / N
    assert np.abs(result.value - locals_.mean(axis=0)).max() < 6 * error
    assert result.privacy.epsilon <= 1.0
    assert str(result.unit) == "person"
    assert str(result.trust) == "shuffle"
    assert protocol.bound > 0


@pytest.mark.full
def test_one_record_is_protected_with_noise_of_the_central_size():
    protocol, rows = made(protects="record"), people()
    central = protocol.risk.sensitivity(N * RECORDS)[0] * gaussian.sigma(1.0, 1e-6)
    assert 1 < protocol.total.standard_error / N / central < 1.08
    assert protocol.bound < made().bound
    result = run(protocol, Persons.in_memory(list(rows)), seed=7, fidelity="aggregate")
    locals_ = np.array([minimise(protocol.risk.objective(each), 1e-6).point for each in rows])
    assert np.abs(result.value - locals_.mean(axis=0)).max() < 6 * 1.08 * central
    assert result.privacy.epsilon <= 1.0
    assert str(result.unit) == "record"  # of persons, too: the promise is of one record
    assert "nearer neighbours" in result.privacy.basis


@pytest.mark.parametrize(("share", "kept"), [(1.0, True), (0.9, False)])
def test_the_stated_distance_is_that_of_one_record(share, kept):
    """The tight instance, opposite rows of a linear loss; a distance 10 % too small is refuted."""
    problem = Problem(Linear(), RealSpace(D), 0.2)
    protocol = made(problem=problem, protects="record")
    rows = np.zeros((RECORDS, D + 1))
    rows[0, 0] = 1.0
    other = rows.copy()
    other[0, 0] = -1.0
    points = [protocol.query(each[None])[0] for each in (rows, other)]
    apart = float(np.linalg.norm(points[0] - points[1]))
    assert (apart <= share * protocol.query.apart) is kept
    assert apart >= 0.98 * protocol.query.apart
    event = protocol.plan(protocol.init()).event
    stated = event.shift * 2 * protocol.total.norm_bound / protocol.total.g
    assert stated == pytest.approx(protocol.query.apart)


def test_a_budget_of_users_takes_no_guarantee_of_records(tmp_path):
    budget = Budget.create(tmp_path / "b", privacy=Privacy(9.0, 1e-5), population="p", users=N)
    with pytest.raises(ParameterError, match="of one record of each"):
        run(made(protects="record"), people(), budget=budget.report("a"), seed=7)
    assert not budget.reports
    run(made(), people(), budget=budget.report("a"), seed=7, fidelity="aggregate")
    assert budget.reports


def test_one_row_a_user_is_refused_with_a_pointer():
    with pytest.raises(ParameterError, match="ShuffleGD"):
        made(records=1)
    with pytest.raises(ParameterError, match="ShuffleGD"):
        made(records=1, protects="record")
    with pytest.raises(ParameterError, match="protects"):
        made(protects="shard")
    with pytest.raises(ParameterError, match="delta"):
        made(protects="record", privacy=Privacy(1.0))
    with pytest.raises(ParameterError, match="noise_ratio"):
        made(protects="record", noise_ratio=1.0)
    with pytest.raises(ParameterError, match="solver"):
        made(solver="magic")
    with pytest.raises(ParameterError, match="shape"):
        run(made(), np.zeros((N, RECORDS, D)), seed=7)
