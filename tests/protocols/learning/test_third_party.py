"""A loss and a mechanism of others, registered, work in the estimators, in Trainer and commands."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from outside import forget, installed

from protocols import (
    HeavyTailedClassifier,
    HeavyTailedRegressor,
    Logistic,
    OutputPerturbation,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleRegressor,
    Squared,
    Trainer,
)
from protocols.problems import Softmax
from shuffle_sim import ParameterError, Privacy, register
from shuffle_sim.cli.app import app

PRIVACY = Privacy(1.0, 1e-6)
SOURCE = '''
from dataclasses import dataclass
from protocols import GaussianGD, Squared

@dataclass(frozen=True)
class Scaled(Squared):
    """The squared loss; `unit` is a parameter that no shipped loss has."""

    unit: float = 1.0

class Descent(GaussianGD):
    """A curator's algorithm under a name of its own."""
'''


@dataclass(frozen=True)
class Steep(Logistic):
    """The logistic loss of others."""

    steepness: float = 1.0


@pytest.fixture
def notebook():
    yield
    forget()


def rows(n=400):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return x, (x[:, 0] > 0).astype(int), np.clip(x[:, 0], -1, 1)


@pytest.mark.full
def test_a_registered_loss_of_numbers_gives_our_loss_s_model(notebook):
    register("loss", "mine", Squared)
    x, _, z = rows()
    for kind, given in (
        (ShuffleRegressor, {"rounds": 3}),
        (PrivateRidge, {}),
        (HeavyTailedRegressor, {"moments": (4, 2.0)}),
    ):
        mine, ours = (
            kind(loss=loss, random_state=1, **given).fit(x, z) for loss in ("mine", "squared")
        )
        assert np.array_equal(mine.coef_, ours.coef_)
        assert mine.privacy_ == ours.privacy_


@pytest.mark.full
def test_a_registered_loss_of_classes_gives_our_loss_s_model(notebook):
    register("loss", "mine", Steep)
    x, y, _ = rows()
    for kind, ours, given in (
        (ShuffleLinearSVC, ShuffleLogisticRegression, {"rounds": 3}),
        (PrivateLinearSVC, PrivateLogisticRegression, {"mechanism": "output"}),
    ):
        mine = kind(loss="mine", random_state=1, **given).fit(x, y)
        assert np.array_equal(mine.coef_, ours(random_state=1, **given).fit(x, y).coef_)
    mine = HeavyTailedClassifier(loss="mine", random_state=1, feature_bound=1.0).fit(x, y)
    logistic = HeavyTailedClassifier(random_state=1, feature_bound=1.0).fit(x, y)
    assert np.array_equal(mine.coef_, logistic.coef_)


@pytest.mark.full
def test_a_loss_may_be_given_itself_with_its_own_parameters():
    x, y, _ = rows()
    model = ShuffleLinearSVC(loss=Steep(steepness=3.0), rounds=2, random_state=1).fit(x, y)
    assert model.protocol_.problem.loss.steepness == 3.0
    assert model.protocol_.problem.loss.features > 1.0  # the bound is the estimator's


@pytest.mark.full
def test_several_classes_take_a_registered_joint_loss(notebook):
    x, y, _ = rows()
    y = y + (x[:, 1] > 0)
    register("loss", "mine", Steep)
    with pytest.raises(ParameterError, match="hinge or logistic, for several classes"):
        ShuffleLinearSVC(loss="mine", rounds=2).fit(x, y)
    register("multiclass_loss", "mine", Softmax)
    mine = ShuffleLinearSVC(loss="mine", rounds=2, random_state=1).fit(x, y)
    ours = ShuffleLogisticRegression(rounds=2, random_state=1).fit(x, y)
    assert np.array_equal(mine.coef_, ours.coef_)


def test_a_registered_mechanism_works_in_the_private_estimators(notebook):
    register("algorithm", "mine", OutputPerturbation)
    x, y, z = rows()
    for kind, labels in ((PrivateLogisticRegression, y), (PrivateRidge, z), (PrivateLinearSVC, y)):
        mine, ours = (
            kind(mechanism=name, ridge=0.01, random_state=1).fit(x, labels)
            for name in ("mine", "output")
        )
        assert np.array_equal(mine.coef_, ours.coef_)
        assert type(mine.algorithm_) is OutputPerturbation
    with pytest.raises(ParameterError, match=r"mechanism = 'magic'.*mine.*output-perturbation"):
        PrivateRidge(mechanism="magic").fit(x, z)


@pytest.mark.full
def test_an_entry_point_serves_estimators_and_commands(tmp_path, monkeypatch, capsys):
    module = installed(
        tmp_path,
        monkeypatch,
        "third_party",
        SOURCE,
        losses={"scaled": "Scaled"},
        algorithms={"their-descent": "Descent"},
    )
    x, _, z = rows()
    model = ShuffleRegressor(loss="scaled", rounds=3, random_state=1).fit(x, z)
    assert type(model.protocol_.problem.loss) is module.Scaled
    trainer = Trainer.of("scaled", 3, PRIVACY, unit=2.0, labels=2.0)
    loss: Any = trainer.loss
    assert (loss.unit, loss.label_bound) == (2.0, 2.0)
    with pytest.raises(ParameterError, match="squared has none"):
        Trainer.of("squared", 3, PRIVACY, unit=2.0)
    words = ["train", "--table", "diabetes", "--loss", "scaled", "--seed", "1", "--json"]
    app([*words, "--trust", "central", "--mechanism", "their-descent"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (found["model"]["loss"]["name"], found["protocol"]["name"]) == ("Scaled", "Descent")
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(
    ("kind", "loss", "known"),
    [
        (ShuffleRegressor, "hinge", "absolute, huber, pinball, squared"),
        (ShuffleLinearSVC, "squared", "hinge, logistic"),
        (HeavyTailedClassifier, "huber", "hinge, logistic"),
        (PrivateRidge, "magic", "absolute"),
    ],
)
def test_a_loss_of_other_labels_is_refused(kind, loss, known):
    x, y, _ = rows()
    with pytest.raises(ParameterError, match=f"^loss = '{loss}'.*{known}"):
        kind(loss=loss).fit(x, y)
