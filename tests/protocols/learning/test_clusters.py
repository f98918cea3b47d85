"""Private k-means: exact sensitivity and clipping, one charge a round, refusals, conventions."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils.estimator_checks import check_estimator

from protocols import PrivateKMeans, ShuffleKMeans
from protocols.learning import clusters
from protocols.optimisation.lloyd import ClusterSpread, Nearest
from shuffle_sim import ParameterError, run

KINDS = (ShuffleKMeans, PrivateKMeans)
CENTRES = np.array([[4.0, 0.0], [-4.0, 3.0], [-4.0, -3.0]])


def rows(n=6000):
    """Three piles in the ball of radius 10."""
    rng = np.random.default_rng(0)
    return CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_piles_are_found_in_the_data_s_units(kind):
    x = rows()
    model = kind(3, epsilon=2.0, feature_bound=10.0, random_state=3).fit(x)
    for centre in CENTRES:
        assert np.linalg.norm(model.cluster_centers_ - centre, axis=1).min() < 0.3
    best = KMeans(3, n_init=4, random_state=0).fit(x)
    assert model.score(x) == pytest.approx(best.score(x) / 100, rel=0.1)  # of the unit ball
    assert np.array_equal(model.predict(x), model.labels_)
    assert model.transform(x[:5]).shape == (5, 3)
    assert model.shares_ == pytest.approx(np.full(3, 1 / 3), abs=0.05)
    assert (model.clipped_, model.n_features_in_) == (0, 2)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_has_a_charge_a_round_within_epsilon(kind, delta):
    model = kind(3, epsilon=2.0, delta=delta, rounds=4, feature_bound=10.0, random_state=1)
    if kind is ShuffleKMeans and delta == 0:
        with pytest.raises(ParameterError, match="delta"):
            model.fit(rows())
        return
    model.fit(rows())
    assert (model.n_iter_, len(model.result_.ledger.charges)) == (4, 4)
    assert 1.9 < model.privacy_.epsilon <= 2.0
    assert model.privacy_.delta == delta


def test_answers_are_no_longer_and_no_farther_than_stated():
    """Rows at the ends of the ball, far beyond it and huge; the extremes are met (control)."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(-0.5, 0.5, (3, 2))
    x = rng.normal(size=(300, 2)) * 10.0 ** rng.integers(-3, 200, (300, 1))
    x = np.concatenate([x, [[1.0, 0.0], [-1.0, 0.0]], centres + 1e-9, centres[0] + np.eye(2) / 9])
    for mark in (0.3, 1.0, 3.0):
        asked = Nearest(centres, 0.1, mark, 10)
        found = asked(x)
        assert np.linalg.norm(found, axis=1).max() <= math.hypot(1, mark) * (1 + 1e-12)
        apart = np.linalg.norm(found[:, None] - found[None], axis=2).max()
        assert apart <= asked.apart * (1 + 1e-12)
        assert apart > 0.9 * asked.apart
        assert (np.count_nonzero(found[:, [2, 5, 8]], axis=1) == 1).all()
        assert not found[:, 9].any()
    found = ClusterSpread(9)(x)
    apart = np.linalg.norm(found[:, None] - found[None], axis=2).max()
    assert 1 < apart <= ClusterSpread(9).apart
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_a_round_is_a_step_of_lloyd(kind):
    made = kind(2, rounds=2, random_state=0).fit(np.zeros((500, 2))).protocol_
    x = np.array([[0.5, 0.0], [0.4, 0.1], [-0.3, 0.0]])
    made.noise = 0.0
    state = made.update(made.init(), made.query(made.init())(x).mean(axis=0))
    after = made.update(state, made.query(state)(x).mean(axis=0))
    nearest = ((x[:, None] - state.centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    away = x - state.centres[nearest]
    away *= np.minimum(1, state.reach / np.maximum(np.linalg.norm(away, axis=1), 1e-9))[:, None]
    for place in np.unique(nearest):
        expected = state.centres[place] + away[nearest == place].mean(axis=0)
        assert after.centres[place] == pytest.approx(expected)
    assert after.shares.sum() == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::protocols.learning.notes.ClippingWarning")
def test_first_centres_follow_from_seed_and_releases_alone(monkeypatch):
    asked = []

    def seen(made, x, **how):
        asked.append(made)
        return run(made, x, **how)

    monkeypatch.setattr(clusters, "run", seen)
    for x in (rows(500), np.zeros((500, 2))):
        ShuffleKMeans(3, random_state=5).fit(x)
    released = np.linspace(-0.1, 0.1, asked[0].coordinates)
    first, other = (made.update(made.init(), released) for made in asked)
    assert np.array_equal(first.centres, other.centres)


def test_tables_are_clustered_by_name_in_their_units():
    x = rows()
    table = pd.DataFrame({"b": x[:, 1], "a": x[:, 0], "unused": "x"})
    schema = {"a": (-8, 8), "b": (-8, 8)}
    model = PrivateKMeans(3, epsilon=4.0, schema=schema, random_state=3).fit(table)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    for centre in CENTRES:
        assert np.linalg.norm(model.cluster_centers_ - centre, axis=1).min() < 0.3
    assert np.array_equal(model.predict(table), model.labels_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given", "n", "parameter"),
    [
        ({"n_clusters": 7}, 6, "X"),
        ({"n_clusters": 0}, 60, "n_clusters"),
        ({"rounds": 1}, 60, "rounds"),
        ({"feature_bound": 0.0}, 60, "feature_bound"),
        ({"epsilon": 0.0}, 60, "epsilon"),
        ({"schema": {"a": None, "b": (0, 1)}}, 60, "bounds of a"),
    ],
)
def test_bad_input_is_refused_by_name(kind, given, n, parameter):
    with pytest.raises(ParameterError) as caught:
        kind(**given).fit(rows(n))
    assert caught.value.parameter == parameter


@pytest.mark.slow_parameters("ShuffleKMeans")
@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learn_s_own_checks_pass(kind):
    """With little noise: one of them asks fifty rows for their clusters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(epsilon=50.0, rounds=4)
        found = check_estimator(clone(model), on_fail=None, on_skip=None)
    failed = [each["check_name"] for each in found if each["status"] not in ("passed", "skipped")]
    assert failed == []
    assert len(found) > 35
