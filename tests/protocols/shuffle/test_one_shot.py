"""One-shot averaging of certified local minimisers through the shuffler."""

import numpy as np
import pytest

from protocols import Logistic, OneShotAverage, Problem, RealSpace
from protocols.optimisation.solver import minimise
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data.persons import Persons

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


def test_one_row_a_user_is_refused_with_a_pointer_to_the_optimisers():
    with pytest.raises(ParameterError, match="ShuffleGD"):
        made(records=1)
    with pytest.raises(ParameterError, match="solver"):
        made(solver="magic")
    with pytest.raises(ParameterError, match="shape"):
        run(made(), np.zeros((N, RECORDS, D)), seed=7)
