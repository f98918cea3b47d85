"""The methods of real_tables.py: everything that this house runs itself, on the same splits.

Each is a function of rows in the unit ball, answers and names of persons; it gives predictions.
Competitors with a ridge are tried with three; the study then takes the best in hindsight.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from real_tables_data import Rows
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

from protocols import (
    PrivateLogisticRegression,
    PrivateRidge,
    ShuffleGD,
    ShuffleLogisticRegression,
    ShuffleRegressor,
)
from protocols.learning.baselines import Baseline
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.problems.regression import Squared
from protocols.shuffle.practice import practical
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats

DELTA = 1e-5
RIDGES = (1e-4, 1e-3, 1e-2)
GIBBS = (14, 20_000)
"""Columns and rows up to which a Gibbs draw takes a second or so."""
PROVEN = 10_000
"""Rows up to which the proven bound's hundred rounds are run, at epsilon 1."""
CONSTANT = 0.25
_RADIUS = 1000.0
Model = Callable[[Floats, Floats, NDArray[Any] | None], Callable[[Floats], Floats]]


def methods(rows: Rows, epsilon: float, seed: int) -> Iterator[tuple[str, str, Model]]:
    """(name, setting, model) of all at an epsilon; a setting is chosen in hindsight."""
    numbers = rows.bounds is not None
    common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
    ours: Any = ShuffleLogisticRegression
    if numbers:
        ours, common = ShuffleRegressor, common | {"target_bounds": rows.bounds}
    trusted: Any = (PrivateRidge if numbers else PrivateLogisticRegression)(**common)
    yield "shuffle", "", lambda X, y, who: ours(**common).fit(X, y).predict
    yield (
        "shuffle, sequential",
        "",
        lambda X, y, who: ours(protocol="sgd", **common).fit(X, y).predict,
    )
    if epsilon == 1 and len(rows.X) <= PROVEN:
        yield (
            "shuffle, proven bound",
            "",
            lambda X, y, who: ours(choose="bound", **common).fit(X, y).predict,
        )
    if rows.persons is not None:
        yield "shuffle, persons", "", lambda X, y, who: ours(**common).fit(X, y, who).predict
        yield "central descent, persons", "", lambda X, y, who: trusted.fit(X, y, who).predict
    yield "central descent", "", lambda X, y, who: clone(trusted).fit(X, y).predict
    pure = clone(trusted).set_params(delta=0.0)
    yield "central, delta 0", "", lambda X, y, who: clone(pure).fit(X, y).predict
    if rows.classes > 2:
        return
    yield "local", "", _local(rows, epsilon, seed)
    for ridge in RIDGES:
        for mechanism in ("output",) if numbers else ("output", "objective", "gibbs"):
            large = rows.X.shape[1] > GIBBS[0] or len(rows.X) > GIBBS[1] or ridge < 1e-3
            if mechanism == "gibbs" and large:
                continue
            yield mechanism, f"ridge {ridge:g}", _erm(common, mechanism, ridge)


def free(rows: Rows) -> Iterator[tuple[str, Model]]:
    """Without privacy, and without features."""
    plain: Any = LinearRegression()
    if rows.bounds is None:
        plain = LogisticRegression(C=1e4, max_iter=1000)
    yield "not private", lambda X, y, who: plain.fit(X, y).predict

    def constant(X: Floats, y: Floats, who: Any) -> Callable[[Floats], Floats]:
        guess = y.mean() if rows.bounds is not None else float(y.mean() > 0.5)
        return lambda others: np.full(len(others), guess)

    yield "constant", constant


def _erm(common: dict[str, Any], mechanism: str, ridge: float) -> Model:
    """A curator's output or objective perturbation, or its Gibbs draw."""
    given = common | {"ridge": ridge, "mechanism": mechanism}
    kind: Any = PrivateRidge if "target_bounds" in common else PrivateLogisticRegression
    return lambda X, y, who: kind(**given).fit(X, y).predict


def _local(rows: Rows, epsilon: float, seed: int) -> Model:
    """The same tuned descent with the noise of nobody trusted."""
    middle, half = 0.0, 1.0
    if rows.bounds is not None:
        low, high = rows.bounds
        middle, half = (low + high) / 2, (high - low) / 2

    def fit(X: Floats, y: Floats, who: NDArray[Any] | None) -> Callable[[Floats], Floats]:
        labels = 2 * y - 1 if rows.bounds is None else (y - middle) / half
        table = np.column_stack([X, np.full(len(X), CONSTANT), labels])
        norm = math.hypot(1, CONSTANT)
        loss = Logistic(norm) if rows.bounds is None else Squared(norm, labels=1.0)
        problem = Problem(loss, L2Ball(X.shape[1] + 1, _RADIUS), constant=CONSTANT)
        common: dict[str, Any] = {"problem": problem, "privacy": Privacy(epsilon, DELTA)}
        made = practical(ShuffleGD, n=len(table), trust="local", **common)
        theta = run(Baseline(made, "local"), table, seed=seed).value

        def predict(others: Floats) -> Floats:
            margins = others @ theta[:-1] + CONSTANT * theta[-1]
            classes = rows.bounds is None
            return np.asarray((margins > 0).astype(float) if classes else margins * half + middle)

        return predict

    return fit
