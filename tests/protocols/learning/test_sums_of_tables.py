"""Covariance, components and clusters of data frames, in pipelines, and what people are told."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from protocols import (
    PrivateCovariance,
    PrivateKMeans,
    PrivatePCA,
    PublicScaler,
    ShuffleCovariance,
    ShuffleKMeans,
    ShuffleLogisticRegression,
    ShufflePCA,
)
from protocols.learning.notes import ClippingWarning, NoiseWarning
from shuffle_sim import ParameterError
from shuffle_sim.privacy.ledger import PrivacyLedger

COVARIANCES, COMPONENTS = (ShuffleCovariance, PrivateCovariance), (ShufflePCA, PrivatePCA)
CLUSTERS = (ShuffleKMeans, PrivateKMeans)
EVERY = (*COVARIANCES, *COMPONENTS, *CLUSTERS)
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
SCHEMA = {"age": (18, 98), "job": ["clerk", "cook"], "missing": "midpoint"}


def cells(n=2000):
    rng = np.random.default_rng(0)
    age, job = rng.uniform(18, 98, n), rng.choice(["clerk", "cook"], n)
    blank = [None if at % 50 == 0 else float(each) for at, each in enumerate(age)]
    return {"age": blank, "job": job.tolist(), "note": ["-"] * n}, (age > 58).astype(int)


def made(kind, **given):
    few = {"n_clusters": 3} if kind in CLUSTERS else {}
    return kind(random_state=1, **few, **given)


def learnt(model):
    return model.cluster_centers_ if hasattr(model, "cluster_centers_") else model.covariance_


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.full
def test_all_kinds_of_tables_give_the_same(kind):
    table, _ = cells()
    turned = dict(reversed(table.items()))
    found = [
        made(kind, schema=SCHEMA).fit(make(each))
        for make in FRAMES.values()
        for each in (table, turned)
    ]
    for model in found:
        assert np.array_equal(learnt(model), learnt(found[0]))
        assert model.feature_names_in_.tolist() == ["age", "job"]
    if kind not in COVARIANCES:
        every = [found[0].transform(make(turned)) for make in FRAMES.values()]
        assert all(np.array_equal(each, every[0]) for each in every)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", [*COMPONENTS, *CLUSTERS])
@pytest.mark.full
def test_numbers_in_frames_are_found_by_name_without_a_schema(kind, make):
    x = np.random.default_rng(0).uniform(-0.6, 0.6, (2000, 2))
    model = made(kind).fit(make({"a": x[:, 0], "b": x[:, 1]}))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    turned = make({"b": x[:, 1], "a": x[:, 0]})
    plain = clone(model).fit(x)
    assert model.transform(turned) == pytest.approx(plain.transform(x))  # layouts sum in turn


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", [*COMPONENTS, *CLUSTERS])
@pytest.mark.full
def test_pipelines_take_them_first_and_last(kind, make):
    table, y = cells()
    frame = make(table)
    line = make_pipeline(PublicScaler(schema=SCHEMA), made(kind))
    assert len(line.fit_transform(frame)) == len(y)
    assert line[-1].clipped_ == 0
    parts = ColumnTransformer(
        [("sums", made(kind, schema=SCHEMA), ["age", "job"])], verbose_feature_names_out=False
    )
    halved = FunctionTransformer(lambda rows: rows / 200)
    model = make_pipeline(parts, halved, ShuffleLogisticRegression(epsilon=4.0, random_state=1))
    assert model.fit(frame, y).predict(frame).shape == y.shape
    assert list(parts.fit(frame).get_feature_names_out()) == [
        f"{kind.__name__.lower()}{at}" for at in range(3 if kind in CLUSTERS else 4)
    ]


@pytest.mark.parametrize("kind", COVARIANCES)
def test_a_covariance_ends_a_pipeline(kind):
    table, _ = cells()
    line = make_pipeline(PublicScaler(schema=SCHEMA), made(kind)).fit(pl.DataFrame(table))
    assert line[-1].covariance_.shape == (4, 4)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.full
def test_warnings_name_the_bound_to_widen(kind):
    x = np.random.default_rng(0).uniform(-0.6, 0.6, (2000, 2))
    with pytest.warns(ClippingWarning, match=r"2,000 of 2,000 rows .* by feature_bound; state w"):
        made(kind).fit(x * 1e4)
    with pytest.warns(ClippingWarning, match="by bounds of a in schema"):
        made(kind, schema={"a": (0, 1), "b": (-1, 1)}).fit(x)
    with pytest.warns(NoiseWarning, match=r"of 5 users .* longest answer; \d+ users, or epsilon"):
        made(kind).fit(x[:5])


@pytest.mark.parametrize("kind", EVERY)
def test_a_column_of_blanks_alone_is_refused(kind):
    table = pd.DataFrame({"age": np.linspace(20, 90, 50), "dose": np.full(50, np.nan)})
    for rule in ("midpoint", "indicator"):
        schema = {"age": (18, 98), "dose": (0, 1), "missing": rule}
        with pytest.raises(ParameterError, match=r"^column dose = 'all blank': .* leave the col"):
            made(kind, schema=schema).fit(table)


@pytest.mark.parametrize("kind", EVERY)
def test_advice_is_what_the_estimator_takes(kind):
    with pytest.raises(ParameterError, match=r"^bounds of age") as caught:
        made(kind, schema={"age": None}).fit(pd.DataFrame({"age": [20.0, 30.0]}))
    assert "choose_bounds" not in str(caught.value)


@pytest.mark.parametrize("kind", COMPONENTS)
def test_too_many_components_are_refused_uncharged(kind, monkeypatch):
    charged = []
    monkeypatch.setattr(PrivacyLedger, "charge", lambda *given, **more: charged.append(given))
    with pytest.raises(ParameterError, match=r"n_components = 3: must be an integer from 1 to 2"):
        kind(3).fit(np.full((50, 2), 0.1))
    assert charged == []
