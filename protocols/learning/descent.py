"""What estimators by tuned descent share, whoever is trusted: rows, people, parameters, results.

Rows in their own units get bounds by a private choice; the model is then mapped back.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.learning.linear_model import LinearEstimator, Sample, of_one_fit, seed_of
from protocols.learning.notes import tell_of_clipped, tell_of_noise
from protocols.learning.training import Trained, Trainer
from protocols.optimisation import practice
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import WITHHELD, ParameterError, flag
from shuffle_sim.privacy.guarantee import DELTA

CONSTANT = {"practice": 0.25, "bound": 1.0}
"""What a user holds beside its features, for the intercept: a small one costs little noise."""


@dataclass(kw_only=True, eq=False, repr=False)
class DescentModel(LinearEstimator):
    """What the shuffle estimators and those of a curator share; not for use by itself.

    Formal guarantee: `privacy_`, of the whole training, replace-one: neighbours differ in one row
    and its target. What is public: every parameter, the numbers of rows and columns, the column
    names and the classes.

    Args:
        epsilon: of the whole training.
        delta: of the whole training; keep it below 1 over the number of users.
        rounds: of training; chosen where not given: at most 240, or 100 by proven bounds.
        radius: l2 bound of all parameters together, intercepts included; by default 1000, with
            choose="bound" 10, for the regressor 2.
        records: nominal number of records of a person, where `fit` is given groups; public. As many
            count, its first ones; 1,024 where it is 1. More let gradients be clipped nearer to
            their mean. `result_.reports.left_out` says how many records did not count.
        feature_bound: l2 bound of a row; longer rows are clipped on the user's side.
        weight_bound: public bound of `sample_weight`; larger weights are clipped to it on the
            user's side. Noise grows with it.
        fit_intercept: whether a constant is fitted.
        choose_bounds: share of epsilon, such as 0.2, for a private choice of every column's bounds
            (`ChosenBounds`); rows then are in their own units, finite, without a `feature_bound`.
            None: rows lie within `feature_bound`.
        schema: what is public of a table, so that `fit` takes data frames of pandas, polars or
            pyarrow with categories, dates and blanks: a `Schema`, the path of a schema file, or a
            mapping such as {"age": (18, 98), "job": ["clerk", "cook"]}. Rows need no
            `feature_bound` then, and `coef_` is of the encoded columns, `schema_.names`.
        random_state: None takes entropy from the operating system; anything else makes the training
            reproducible, and therefore not private.

    Attributes:
        coef_, intercept_: the model.
        n_iter_: rounds taken.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        result_: of the run.
        privacy_: the guarantee.
        bounds_: with `choose_bounds`, what was chosen, (2, columns), released; else None.
        schema_: with `schema`, how rows are encoded; else None.
        clipped_: rows with features or target outside the public bounds; the simulator's view, no
            part of the release.
    """

    epsilon: float = 1.0
    delta: float = DELTA
    rounds: int | None = None
    radius: float | None = None
    records: int = 1
    feature_bound: float = 1.0
    weight_bound: float = 1.0
    fit_intercept: bool = True
    choose_bounds: float | None = None
    schema: Any = None
    random_state: Any = None

    _proven_radius: ClassVar[float] = 10.0

    def _descend(
        self,
        data: Sample,
        *,
        make: Callable[[Trainer, int, RowMap], Any],
        chosen: str = "practice",
        host: dict[str, Any] | None = None,
        **others: Any,
    ) -> tuple[Any, Floats, Floats]:
        """What was run, coefficients (outputs, columns) and intercepts (outputs,).

        Args:
            data: as of `_train`.
            make: from a trainer, the number of users and how they map their rows.
            chosen: how the trainer chooses parameters.
            host: options of the run.
            others: attributes of the trainer.
        """
        X, labels, outputs, groups = data.X, data.labels, data.outputs, data.groups
        (n, columns), constant = X.shape, CONSTANT[chosen]
        unit = Unit.RECORD if groups is None else Unit.PERSON
        if self.choose_bounds is None:
            users, outside_ball = self._bounded(X, labels, constant)
        else:
            users, outside_ball = self._raw(X, labels, constant, unit), np.zeros(n, bool)
        # A row of the unit ball and the constant behind it.
        norm = math.hypot(1.0, constant) if self.fit_intercept else 1.0
        persons = None if groups is None else Persons.grouped(users, groups, "groups")
        trainer = Trainer(
            data.loss(norm),
            outputs * (columns + int(self.fit_intercept)),
            Privacy(self.epsilon, self.delta),
            radius=self._radius(chosen),
            records=None if persons is None else self.records,
            choose=chosen,
            intercept=constant if self.fit_intercept else None,
            **others,
        )
        asked, seed = n if persons is None else persons.users, seed_of(self.random_state)
        by = free_columns(columns, users.shape[1] - columns)
        if self.schema_ is not None and self.schema_.free:
            by = of_schema(self.schema_, users.shape[1] - columns)
        made = make(trainer, asked, by)
        # Batches of neighbouring rows would be no sample.
        order = np.random.default_rng(seed).permutation(asked)
        rows = users[order] if persons is None else persons.chosen(order)
        result = run(made, rows, seed=seed, **(host or {}))
        self.result_, self.privacy_ = result, of_one_fit(result.privacy)
        self.n_iter_ = result.rounds
        found, self.bounds_ = Trained.of(result.value), None
        # Bounds were released, so the map by them is public: `clipped_` still looks at the rows.
        if found.low is not None and found.high is not None:
            by = by.bounded(found.low, found.high)
            self.bounds_ = np.array([by.lower[:columns], by.upper[:columns]])
            outside_ball = beyond(users, by)
        self.clipped_ = tell_of_clipped(n, {"feature_bound": outside_ball, **data.outside})
        tell_of_noise(asked, trainer.d, trainer.privacy)
        theta = found.theta.reshape(outputs, -1)
        if self.bounds_ is not None:
            return made, *in_own_units(theta, by, columns, constant)
        # Without an intercept there is no column: the sum is then 0.
        intercepts = theta[:, columns:].sum(axis=1) * constant
        return made, theta[:, :columns] / self.feature_bound, intercepts

    def _raw(self, X: Floats, labels: Floats, constant: float, unit: Unit) -> Floats:
        """Rows (features, constant, labels) in their own units.

        Raises:
            ParameterError: persons, a bound of rows, or no intercept.
        """
        flag("fit_intercept", self.fit_intercept)
        refused = {
            "groups": (unit is Unit.PERSON, WITHHELD, "None with choose_bounds"),
            "feature_bound": (self.feature_bound != 1, self.feature_bound, "1: rows have none"),
            "fit_intercept": (not self.fit_intercept, False, "True: bounds have a middle"),
        }
        for name, (wrong, value, allowed) in refused.items():
            if wrong:
                raise ParameterError(name, value, f"{allowed} (choose_bounds)")
        n = len(X)
        return np.column_stack([X, np.full(n, constant), labels.reshape(n, -1)])

    def _radius(self, chosen: str) -> float:
        if self.radius is not None:
            return self.radius
        return practice.RADIUS if chosen == "practice" else self._proven_radius


def free_columns(columns: int, others: int) -> RowMap:
    """A map whose first columns have no bounds yet; within any, these lie in the unit ball.

    Args:
        columns: of features.
        others: after them, left as they are: a constant, labels, weights.
    """
    every, free = columns + others, np.arange(columns)
    wide = np.full(every, np.inf)
    reach = np.full(columns, 1 / math.sqrt(columns))
    return RowMap(-wide, wide, np.zeros(every), np.ones(every), free, reach)


def of_schema(schema: Schema, others: int) -> RowMap:
    """A map whose first columns are those of a schema, into the unit ball; some have no bounds yet.

    Args:
        schema: of the features.
        others: as of `free_columns`.
    """
    scale, (lower, upper), free = schema.scale, schema.limits, np.array(schema.free, np.int64)
    wide = np.full(others, np.inf)
    return RowMap(
        np.concatenate([lower, -wide]),
        np.concatenate([upper, wide]),
        np.concatenate([scale.center, np.zeros(others)]),
        np.concatenate([1 / scale.half / scale.norm, np.ones(others)]),
        free,
        np.full(len(free), 1 / scale.norm),
    )


def in_own_units(theta: Floats, by: RowMap, columns: int, constant: float) -> tuple[Floats, Floats]:
    """Coefficients (outputs, columns) and intercepts (outputs,) for rows as they are.

    Args:
        theta: for mapped rows with a constant behind their features, (outputs, columns + 1).
        by: the map, with bounds.
        columns: of features.
        constant: its value.
    """
    # <theta, (x - center) factor> + theta_c constant, sorted by x.
    coefficients = theta[:, :columns] * by.factor[:columns]
    return coefficients, theta[:, columns] * constant - coefficients @ by.center[:columns]


def beyond(rows: Floats, by: RowMap) -> NDArray[np.bool_]:
    """Which rows have a cell outside the bounds."""
    return np.asarray(((rows < by.lower) | (rows > by.upper)).any(axis=1))
