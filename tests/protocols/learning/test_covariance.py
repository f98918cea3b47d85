"""Mean, covariance and principal components by one private sum: exact units, noise, refusals."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from protocols import (
    PrivateCovariance,
    PrivatePCA,
    ShuffleCovariance,
    ShuffleLogisticRegression,
    ShufflePCA,
)
from protocols.learning import moments
from shuffle_sim import ParameterError, run

COVARIANCES, COMPONENTS = (ShuffleCovariance, PrivateCovariance), (ShufflePCA, PrivatePCA)


def rows(n=20_000, d=3):
    """Within the ball of radius 10, with a mean, and with one long direction."""
    rng = np.random.default_rng(0)
    spread = np.array([2.0, 0.5, 0.5])[:d]
    return np.clip(rng.normal(size=(n, d)) * spread + [3.0, 0.0, -1.0][:d], -5.7, 5.7)


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.full
def test_with_little_noise_it_is_the_mean_and_the_covariance(kind):
    x = rows()
    model = kind(epsilon=30.0, feature_bound=10.0, random_state=1).fit(x)
    assert model.clipped_ == 0
    assert model.location_ == pytest.approx(x.mean(axis=0), abs=0.02)
    assert model.covariance_ == pytest.approx(np.cov(x.T, bias=True), abs=0.1)
    assert len(model.result_.ledger.charges) == 1
    about_0 = kind(epsilon=30.0, feature_bound=10.0, assume_centered=True, random_state=1).fit(x)
    assert about_0.covariance_ == pytest.approx(x.T @ x / len(x), abs=0.1)


@pytest.mark.filterwarnings("ignore::protocols.learning.notes.ClippingWarning")
@pytest.mark.parametrize("kind", COVARIANCES)
def test_every_vector_that_is_sent_lies_in_the_ball_of_the_sum(kind, monkeypatch):
    """Rows on the sphere, and far beyond it: what they send is 1 long, and never more."""
    sent = {}
    genuine = run

    def seen(made, x, **how):
        sent["x"] = x
        return genuine(made, x, **how)

    monkeypatch.setattr(moments, "run", seen)
    rng = np.random.default_rng(0)
    for centred in (False, True):
        kind(assume_centered=centred, random_state=1).fit(rng.normal(size=(500, 4)) * 100)
        assert np.linalg.norm(sent["x"], axis=1) == pytest.approx(np.ones(500))
        assert sent["x"].shape[1] == 10 + 4 * (not centred)


@pytest.mark.full
def test_noise_has_the_stated_size_and_a_curator_has_less():
    """Of 200 fits on zeros: sums of 10 squared normals, within 6 standard errors (1e-8)."""
    found = {}
    for kind in COVARIANCES:
        squares = []
        for seed in range(200):
            model = kind(epsilon=1.0, random_state=seed).fit(np.zeros((2000, 2)))
            squares.append(model.result_.value @ model.result_.value)
        stated = model.protocol_.standard_error**2 * 5
        assert np.mean(squares) == pytest.approx(stated, rel=6 * math.sqrt(2 / 1000))
        assert np.mean(squares) != pytest.approx(2 * stated, rel=6 * math.sqrt(2 / 1000))  # power
        found[kind] = stated
    assert found[PrivateCovariance] < found[ShuffleCovariance]


@pytest.mark.parametrize("kind", COMPONENTS)
@pytest.mark.full
def test_components_find_the_long_direction(kind):
    x = rows()
    model = kind(1, epsilon=2.0, feature_bound=10.0, random_state=1)
    flat = model.fit_transform(x)
    assert abs(model.components_[0] @ [1, 0, 0]) > 0.98
    assert model.explained_variance_[0] == pytest.approx(x[:, 0].var(), abs=0.4)
    assert flat.shape == (len(x), 1)
    assert model.get_feature_names_out().shape == (1,)
    y = (x[:, 0] > 3).astype(int)
    line = make_pipeline(model, ShuffleLogisticRegression(feature_bound=8.0, random_state=1))
    assert line.fit(x, y).score(x, y) > 0.9


def test_tables_give_covariances_in_their_own_units():
    x = rows(d=2)
    table = pd.DataFrame({"b": x[:, 1], "a": x[:, 0]})
    schema = {"a": (-4, 10), "b": (-3, 3)}
    for kind in COVARIANCES:
        model = kind(epsilon=30.0, schema=schema, random_state=1).fit(table)
        assert model.feature_names_in_.tolist() == ["a", "b"]
        assert model.location_ == pytest.approx(x.mean(axis=0), abs=0.05)
        assert model.covariance_ == pytest.approx(np.cov(x.T, bias=True), abs=0.15)


def test_a_curator_s_is_pure_at_delta_0():
    assert PrivateCovariance(delta=0.0, random_state=1).fit(rows(500) / 10).privacy_.delta == 0


@pytest.mark.parametrize(
    ("made", "parameter"),
    [
        (lambda x: ShufflePCA(4).fit(x), "n_components"),
        (lambda x: PrivatePCA(0).fit(x), "n_components"),
        (lambda x: PrivatePCA(assume_centered="no").fit(x), "assume_centered"),
        (lambda x: ShuffleCovariance(feature_bound=0).fit(x), "feature_bound"),
        (lambda x: ShuffleCovariance(delta=0.0).fit(x), "delta"),
        (lambda x: PrivateCovariance(schema={"a": None}).fit(pd.DataFrame({"a": [1.0]})), "bounds"),
        (lambda x: PrivateCovariance().fit(x[:1]), "X"),
    ],
)
def test_bad_input_is_refused_by_name(made, parameter):
    with pytest.raises(ParameterError) as caught:
        made(rows(50))
    assert caught.value.parameter.startswith(parameter)


@pytest.mark.slow_parameters("ShuffleCovariance")
@pytest.mark.full
@pytest.mark.filterwarnings(  # the checks' rows are few, and ignore the default bound
    "ignore::protocols.learning.notes.ClippingWarning",
    "ignore::protocols.learning.notes.NoiseWarning",
)
@pytest.mark.parametrize("kind", [*COVARIANCES, *COMPONENTS])
@pytest.mark.long
def test_scikit_learn_s_own_checks_pass(kind):
    found = check_estimator(kind(), on_fail=None, on_skip=None)
    failed = [each["check_name"] for each in found if each["status"] not in ("passed", "skipped")]
    assert failed == []
    assert len(found) > 30
