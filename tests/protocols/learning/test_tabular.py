"""Tables as they are: data frames by a public schema, public scaling, and what people are told."""

import math
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from protocols import (
    PrivateLogisticRegression,
    PrivateRidge,
    PublicScaler,
    ShuffleLogisticRegression,
    ShuffleRegressor,
)
from protocols.learning.notes import ClippingWarning, NoiseWarning, drowned, noise_over_signal
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.data.schema import Schema

N = 3000
SCHEMA = {
    "age": (18, 98),
    "job": ["clerk", "cook", "other work"],
    "seen": {"type": "date", "bounds": ["2020-01-01", "2026-01-01"]},
    "missing": "midpoint",
}
CLOSED = {"type": "category", "categories": ["cook", "smith"], "other": False}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def cells(n=N):
    rng = np.random.default_rng(0)
    age, job = rng.uniform(18, 98, n), rng.choice(["clerk", "cook"], n)
    days = rng.integers(18262, 20454, n)
    score = (age - 58) / 10 + 2 * (job == "cook") + (days - 19300) / 1000 + rng.logistic(size=n)
    blank = [None if at % 50 == 0 else float(each) for at, each in enumerate(age)]
    seen = [date.fromordinal(int(each) + date(1970, 1, 1).toordinal()) for each in days]
    return {"age": blank, "job": job.tolist(), "seen": seen}, (score > 1).astype(int)


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, PrivateLogisticRegression])
@pytest.mark.full
def test_all_kinds_of_tables_give_the_same_model(kind):
    table, y = cells()
    found = {}
    for name, make in KINDS.items():
        model = kind(schema=SCHEMA, random_state=1).fit(make(table), y)
        turned = make({each: table[each] for each in ("seen", "job", "age")})
        assert np.array_equal(model.predict(turned), model.predict(make(table)))
        assert model.feature_names_in_.tolist() == ["age", "job", "seen"]
        assert model.n_features_in_ == 3
        found[name] = model
    assert np.array_equal(found["pandas"].coef_, found["polars"].coef_)
    assert np.array_equal(found["pandas"].coef_, found["pyarrow"].coef_)
    model = found["pandas"]
    assert model.score(make(table), y) > 0.8
    effects = dict(zip(model.schema_.names, model.coef_[0], strict=True))
    assert min(effects["age"], effects["seen"], effects["job=cook"]) > 0
    categories = pd.DataFrame(table).astype({"job": "category"})
    assert np.array_equal(model.predict(categories), model.predict(pd.DataFrame(table)))


@pytest.mark.full
def test_a_schema_of_the_command_line_is_taken_as_it_is(tmp_path):
    table, y = cells()
    path = tmp_path / "schema.toml"
    path.write_text(
        'missing = "midpoint"\ntarget = "ill"\n[columns.age]\ntype = "number"\nbounds = [18, 98]\n'
        '[columns.ill]\ntype = "boolean"\n'
    )
    from_file = ShuffleLogisticRegression(schema=str(path), random_state=1)
    plain = {"age": (18, 98), "missing": "midpoint"}
    by_name = ShuffleLogisticRegression(schema=plain, random_state=1)
    both = [each.fit(pd.DataFrame(table), y).coef_ for each in (from_file, by_name)]
    assert np.array_equal(*both)
    assert isinstance(by_name.schema_, Schema)


def test_encoded_rows_are_those_of_numbers_stated_by_hand():
    rng = np.random.default_rng(0)
    X = rng.uniform([18, 0], [98, 5], size=(2000, 2))
    y = (X[:, 0] > 60) * 1.0
    schema = {"age": (18, 98), "dose": (0, 5)}
    for kind in (ShuffleRegressor, PrivateRidge):
        one = kind(schema=schema, random_state=1).fit(X, y)  # an array: columns in order
        scaled = PublicScaler(bounds=[(18, 98), (0, 5)]).fit_transform(X)
        other = kind(random_state=1).fit(scaled, y)
        assert np.linalg.norm(scaled, axis=1).max() <= 1
        assert one.predict(X) == pytest.approx(other.predict(scaled))
        far = X.copy()
        far[0] = 1e6
        assert one.predict(far)[0] == pytest.approx(one.predict([[98, 5]])[0])  # clipped


@pytest.mark.full
def test_bounds_that_a_schema_leaves_open_are_paid_for():
    table, y = cells()
    schema = {"age": None, "job": ["clerk", "cook"]}
    frame = pd.DataFrame(table).assign(age=pd.DataFrame(table)["age"].fillna(58.0))
    for kind in (ShuffleLogisticRegression, PrivateLogisticRegression):
        model = kind(schema=schema, choose_bounds=0.2, random_state=1).fit(frame, y)
        assert model.bounds_[:, 0].tolist() == [16.0, 128.0]
        assert model.score(frame, y) > 0.75
        assert model.privacy_.epsilon <= 1.0
        with pytest.raises(ParameterError, match=r"^bounds of age.*choose_bounds"):
            kind(schema=schema).fit(frame, y)


@pytest.mark.parametrize(
    ("schema", "change", "named"),
    [
        ({"job": (0, 1)}, {}, "column job"),
        ({"age": (98, 18)}, {}, "bounds of age"),
        ({"age": "wide"}, {}, "schema of column age"),
        ({"age": (18, 98), "height": (0, 2)}, {}, "column height"),
        ({"age": (18, 98)}, {}, "column age, row 1"),
        ({"age": (18, 98), "missing": "drop"}, {}, "missing of the schema"),
        (
            {"job": {"type": "category", "categories": ["cook", "smith"], "other": False}},
            {},
            "column job",
        ),
        ({"seen": {"type": "number"}}, {}, "column seen of the schema"),
        (3, {}, "schema"),
        ({}, {}, "schema"),
        ({"job": ["clerk"]}, {"feature_bound": 2.0}, "feature_bound"),
        ({"job": ["clerk"]}, {"choose_bounds": 0.2}, "choose_bounds"),
    ],
)
@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, PrivateLogisticRegression])
def test_what_does_not_fit_is_refused_by_the_name_of_its_column(kind, schema, change, named):
    table, y = cells(200)
    with pytest.raises(ParameterError) as caught:
        kind(schema=schema, **change).fit(pd.DataFrame(table), y)
    assert caught.value.parameter.startswith(named)
    assert "\n" not in str(caught.value)


@pytest.mark.full
def test_public_scaling_is_fitted_on_nothing():
    table, y = cells()
    frame = pd.DataFrame(table)
    scaler = PublicScaler(schema=SCHEMA)
    alone = scaler.transform(frame)  # without a fit
    assert np.array_equal(alone, scaler.fit(frame.iloc[:1]).transform(frame))
    assert scaler.get_feature_names_out().tolist()[0] == "age"
    line = make_pipeline(PublicScaler(schema=SCHEMA), ShuffleLogisticRegression(random_state=1))
    assert line.fit(frame, y).score(frame, y) > 0.8
    assert line[-1].clipped_ == 0
    parts = ColumnTransformer(
        [
            ("age", PublicScaler(schema={"age": (18, 98), "missing": "midpoint"}), ["age"]),
            ("job", PublicScaler(schema={"job": ["clerk", "cook"]}), ["job"]),
        ]
    )
    both = make_pipeline(parts, ShuffleLogisticRegression(feature_bound=math.sqrt(2)))
    assert both.fit(frame, y).score(frame, y) > 0.7
    for bounds in ((1.0, -1.0), (0, math.inf), [(0, 1)] * 3):
        with pytest.raises(ParameterError, match="bounds"):
            PublicScaler(bounds=bounds).fit(np.zeros((4, 2)))


@pytest.mark.full
def test_scikit_learn_s_own_checks_pass_for_the_scaler():
    found = check_estimator(PublicScaler(), on_fail=None, on_skip=None)
    failed = [each["check_name"] for each in found if each["status"] not in ("passed", "skipped")]
    assert failed == []
    assert len(found) > 30


def test_a_warning_counts_clipped_rows_by_parameter():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2000, 2))
    y = 2 * X[:, 0]
    expected = r"by feature_bound, [\d,]+ by target_bounds; state wider"
    for kind in (ShuffleRegressor, PrivateRidge):
        with pytest.warns(ClippingWarning, match=expected):
            kind(random_state=1).fit(X, y)
        with pytest.warns(ClippingWarning, match="by bounds of a in schema"):
            kind(schema={"a": (0, 1), "b": (-1, 1)}, random_state=1).fit(X, y / 2)


def test_a_fit_that_noise_drowns_says_what_would_do():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(10, 3))
    for kind in (ShuffleLogisticRegression, PrivateLogisticRegression):
        with pytest.warns(NoiseWarning, match=r"of 10 users and 4 parameters.*users, or epsilon"):
            kind(random_state=1).fit(X, np.resize([0, 1], 10))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_what_would_do_does(delta):
    for n, d, epsilon in ((10, 4, 1.0), (300, 40, 0.2), (50, 3, 0.1)):
        told = drowned(n, d, Privacy(epsilon, delta))
        words = told.replace(",", "").replace(";", "").split()
        enough, larger = int(words[words.index("users", 8) - 1]), float(words[-5])
        assert drowned(enough, d, Privacy(epsilon, delta)) is None
        assert drowned(enough - 1, d, Privacy(epsilon, delta)) is not None
        assert noise_over_signal(n, d, Privacy(larger * 1.05, delta)) < 0.5
        assert noise_over_signal(n, d, Privacy(larger * 0.9, delta)) > 0.5


def test_groups_and_weights_are_routed_through_pipelines():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(600, 2))
    y, groups = (X[:, 0] > 0).astype(int), np.arange(600) // 2
    with sklearn.config_context(enable_metadata_routing=True):
        for kind in (ShuffleLogisticRegression, PrivateLogisticRegression):
            model = kind(records=2, random_state=1)
            model.set_fit_request(groups=True, sample_weight=True)
            line = make_pipeline(PublicScaler(), model)
            line.fit(X, y, groups=groups, sample_weight=np.ones(600))
            assert str(line[-1].result_.unit) == "person"
