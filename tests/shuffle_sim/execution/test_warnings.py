"""Who is told that a guarantee promises little: everybody, once."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from protocols import PrivateLogisticRegression, ShuffleLogisticRegression, VectorSum
from shuffle_sim import Privacy, WeakPrivacyWarning, run
from shuffle_sim.cli.app import main
from shuffle_sim.privacy.guarantee import weaknesses

N = 100


def told(call) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if each.category is WeakPrivacyWarning]


def a_sum(epsilon: float, delta: float):
    privacy = Privacy(epsilon, delta)
    made = VectorSum.calibrated(n=N, d=2, privacy=privacy, noise_ratio=1.5)
    return lambda: run(made, np.zeros((N, 2)), seed=1)


def a_model(kind, epsilon: float, delta: float):
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (N, 2))
    made = kind(epsilon=epsilon, delta=delta, classes=[False, True], random_state=1)
    return lambda: made.fit(x, x[:, 0] > 0)


CASES = [
    a_sum,
    lambda *given: a_model(ShuffleLogisticRegression, *given),
    lambda *given: a_model(PrivateLogisticRegression, *given),
]


@pytest.mark.parametrize("case", CASES, ids=["sum", "shuffle estimator", "central estimator"])
@pytest.mark.full
def test_runs_and_estimators_warn_once(case):
    assert told(case(1.0, 1e-6)) == []
    (weak_delta,) = told(case(1.0, 0.01))
    assert "not below 1/n" in weak_delta
    (weak_epsilon,) = told(case(12.0, 1e-6))
    assert "above 10" in weak_epsilon


COUNTED = "--file", "a.csv", "--column", "a", "--seed", "1"
GROUPED = "--bounds", "a=0:1", "--categories", "b=0,1", "--seed", "1"


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--n", "1000", "--noise-ratio", "1.5"),
        ("cost", "--n", "1000"),
        pytest.param(("compare", "--n", "1000"), marks=pytest.mark.full),
        ("sum", "--table", "wine", "--seed", "1"),
        ("histogram", *COUNTED, "--categories", "a=0,1"),
        ("quantiles", *COUNTED, "--bounds", "a=0:1"),
        ("heavy-hitters", *COUNTED, "--bits", "8"),
        ("sum", "--file", "a.csv", "--columns", "a", "--by", "b", *GROUPED),
    ],
)
@pytest.mark.long
def test_commands_say_it_in_json_and_to_people(arguments, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("a,b\n" + "0,0\n1,1\n" * 100)
    for form in ((), ("--json",)):
        given = ["shuffle-sim", *arguments, "--epsilon", "2", "--delta", "0.01", *form]
        monkeypatch.setattr("sys.argv", given)
        with pytest.raises(SystemExit):
            main()
        output, errors = capsys.readouterr()
        assert errors == ""
        told = json.loads(output) if form else {"warnings": [output]}
        found = told.get("run", told).get("warnings", told.get("warnings"))
        assert len(found) == 1
        assert "not below 1/n" in " ".join(found[0].split())


def test_what_promises_nothing_at_all_is_not_called_weak():
    assert weaknesses(np.inf, 0.5, N) == ()
