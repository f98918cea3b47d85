"""Persons in the estimators: what `groups` protects, and what is refused."""

import numpy as np
import pytest

from protocols import (
    HeavyTailedClassifier,
    PrivateRidge,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleRegressor,
)
from shuffle_sim import ParameterError
from shuffle_sim.data.population import Unit


def visits(persons=300, most=6, seed=0):
    """Rows, classes and the person of each row, in random order."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(persons), rng.integers(1, most + 1, persons))
    groups = rng.permutation(groups)
    X = rng.normal(size=(len(groups), 3)) / 4
    return X, np.where(X @ [2.0, -1.0, 0.5] + 0.1 * rng.normal(size=len(X)) > 0, "b", "a"), groups


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleLinearSVC])
@pytest.mark.parametrize("protocol", ["gd", "acsa"])
@pytest.mark.full
def test_the_guarantee_is_of_persons(kind, protocol):
    X, y, groups = visits()
    fitted = kind(random_state=1, rounds=4, protocol=protocol, epsilon=4.0).fit(X, y, groups)
    assert fitted.privacy_.unit is Unit.PERSON
    assert fitted.privacy_.epsilon <= 4.0
    assert fitted.protocol_.users == 300
    assert "person" in str(fitted.privacy_)
    assert kind(random_state=1, rounds=4, epsilon=4.0).fit(X, y).privacy_.unit is Unit.RECORD


@pytest.mark.full
def test_names_of_persons_are_only_names():
    X, y, groups = visits()
    models = [
        ShuffleLogisticRegression(random_state=1, rounds=4).fit(X, y, groups=named).coef_
        for named in (groups, groups * 7 + 3, np.array([f"p{each:04}" for each in groups]))
    ]
    assert np.allclose(models[0], models[1], atol=0)
    assert np.allclose(models[0], models[2], atol=0)


@pytest.mark.full
def test_a_person_with_many_rows_counts_once():
    """Copies of one person's rows change its mean, and so nothing."""
    X, _, groups = visits()
    own = groups == 5
    longer, names = np.r_[X, X[own], X[own]], np.r_[groups, groups[own], groups[own]]
    plain = ShuffleRegressor(random_state=1, rounds=3).fit(X, X[:, 0], groups)
    more = ShuffleRegressor(random_state=1, rounds=3).fit(longer, longer[:, 0], names)
    assert np.allclose(plain.coef_, more.coef_, atol=1e-12)


def test_bad_groups_are_refused_before_anything_is_drawn():
    X, y, groups = visits()
    for bad, allowed in (
        (groups[:-1], "groups = "),
        (np.where(groups == 3, np.nan, groups.astype(float)), r"groups, row \d+"),
        (np.where(groups == 3, "", groups.astype(str)), r"groups, row \d+"),
        (np.c_[groups, groups], "groups = "),
    ):
        with pytest.raises(ParameterError, match=allowed):
            ShuffleLogisticRegression(rounds=3).fit(X, y, groups=bad)
    for of_records in (
        PrivateRidge(mechanism="output"),
        PrivateRidge(delta=0.0),
        HeavyTailedClassifier(),
    ):
        with pytest.raises(ParameterError, match=r"groups.*PhasedERM"):
            of_records.fit(X, (y == "b") * 1.0, groups)  # a curator's, with a pointer
    with pytest.raises(ParameterError, match="records = 0"):
        ShuffleLogisticRegression(rounds=3, records=0).fit(X, y, groups)
    with pytest.raises(ParameterError, match=r"protocol = 'sgd'.*user-level-gd"):
        ShuffleLogisticRegression(rounds=3, protocol="sgd").fit(X, y, groups)
