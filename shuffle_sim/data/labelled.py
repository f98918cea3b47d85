"""What a linear model learns from: labelled rows in the l2 unit ball, and people held out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.file_columns import first_gap, numeric
from shuffle_sim.data.model import LinearModel
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import WITHHELD, ParameterError, real
from shuffle_sim.sampling.randomness import Role, entropy_of, stream

_SHOWN = 12  # classes named in an error


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A table as rows (features, constant, label) for a linear model.

    Attributes:
        table: where the rows come from.
        rows: shape (records, columns + 2): features and constant in the l2 unit ball, then the
            label in [-1, 1].
        rule: how labels were made.
        half_range: units of the target per unit of the label; None for classes.
        names: labels below and labels above a margin of 0, or those of each class; None for a
            number.
        clipped_labels: how many labels lay outside the public bounds.
        by: where bounds are to be chosen privately, how users then map their rows, which are in the
            table's own units; None: they are mapped.
    """

    table: Table
    rows: Floats
    rule: str
    half_range: float | None = None
    names: tuple[tuple[str, ...], ...] | None = None
    clipped_labels: int = 0
    by: RowMap | None = None

    def bounded(self, low: Floats, high: Floats) -> "Labelled":
        """With the bounds that were chosen, in the order of the free columns of `by`."""
        assert self.by is not None
        by, columns = self.by.bounded(low, high), len(self.table.columns)
        count = int((self.by.free < columns).sum())
        table = self.table.bounded(low[:count], high[:count])
        found = replace(self, table=table, rows=by(self.rows), by=None)
        if count == len(low):
            return found
        ends = float(low[-1]), float(high[-1])
        outside = (self.rows[:, -1] < ends[0]) | (self.rows[:, -1] > ends[1])
        return replace(
            found,
            table=replace(
                table,
                target_bounds=ends,
                chosen_bounds=table.chosen_bounds | {table.target_name: ends},
            ),
            rule=_mapped(*ends, "privately chosen"),
            half_range=(ends[1] - ends[0]) / 2,
            clipped_labels=int(outside.sum()),
        )

    @property
    def persons(self) -> Persons:
        """The rows by person.

        Raises:
            ParameterError: the table names no persons, or not those of all rows.
        """
        if self.table.person is None:
            raise ParameterError("person", None, "given: the column that names the person")
        return Persons.grouped(self.rows, self.table.person)

    @property
    def scaling(self) -> str:
        """The public rule by which features were scaled."""
        count = len(self.table.columns)
        return (
            f"{self.table.rule}; the {count} columns and a constant 1 "
            f"are divided by the square root of {self.table.scale.norm**2 + 1:.6g}, so every row "
            "lies in the l2 ball of radius 1"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee for these rows takes to be public, beside bounds."""
        classes = () if self.half_range is not None else ("the classes of labels are public",)
        return *classes, *self.table.assumptions

    def weights(self, theta: Floats) -> tuple[Floats, Floats]:
        """Coefficients and intercept of the margin in the table's units, for values in the bounds.

        The margin predicts the label: for a real target, in units of `half_range` around the middle
        of its bounds. Several classes have a row of coefficients and an intercept each.
        """
        scale = self.table.scale
        # <theta, (norm scaled row, 1)/length>, sorted by the row's own units.
        scaled = theta.reshape(-1, len(self.table.columns) + 1) / np.hypot(scale.norm, 1)
        weights, constant = scaled[:, :-1] / scale.half, scaled[:, -1]
        intercepts = constant - weights @ scale.center
        if len(scaled) == 1:
            return np.asarray(weights[0]), np.asarray(intercepts[0])
        return np.asarray(weights), np.asarray(intercepts)

    def model(
        self, theta: Floats, loss: str, privacy: Mapping[str, Any], *, private: bool
    ) -> LinearModel:
        """What was trained, in the units of the table: with its guarantee as JSON has it."""
        weights, intercept = self.weights(theta)
        return LinearModel(
            loss=loss,
            schema=self.table.schema,
            weights=weights,
            intercept=intercept,
            classes=self.names,
            target=self.table.target_name,
            labels=self.rule,
            target_bounds=self.table.target_bounds if self.names is None else None,
            privacy=privacy,
            private=private,
        )


def labelled(
    table: Table, *, classes: bool, positive: Sequence[str] = (), names: Sequence[str] = ()
) -> Labelled:
    """The rows of `table` with labels in [-1, 1].

    For `classes` a label is -1 or +1, or for three public names or more the place of its name; else
    it is the target, mapped from its public bounds.

    Args:
        table: with a target.
        classes: whether the target names classes.
        positive: the classes that become +1, all others -1; where none is given there must be two,
            and the last becomes +1.
        names: the public classes; by default those of the table's schema, else those that occur.

    Raises:
        ParameterError: a target of the wrong kind, naming its values.
    """
    if table.target is None:
        raise ParameterError("label", None, "given: the column to predict")
    # Features are norm long at most and the constant is 1:
    # both together, so divided, lie in the ball.
    length = float(np.hypot(table.scale.norm, 1))
    by = None
    if table.free:
        by = _beside(table.row_map(length), not classes and table.target_bounds is None)
        features = table.rows
    else:
        features = table.scaled() * table.scale.norm / length
    inside = np.column_stack([features, np.full(len(features), 1 / length)])
    if classes:
        labels, levels, rule = _classes(table, positive, names or table.classes)
        rows = np.column_stack([inside, labels])
        return Labelled(table=table, rows=rows, rule=rule, names=levels, by=by)
    for name, given in (("positive", positive), ("classes", names)):
        if given:
            allowed = "given for losses of classes: logistic or hinge"
            raise ParameterError(name, list(given), allowed)
    target = table.target
    if table.target_bounds is None:
        if by is None:
            raise ParameterError("label", WITHHELD, "a number with public bounds, for this loss")
        target = numeric(table.target_name, target)
        rows = np.column_stack([inside, target])
        return Labelled(table=table, rows=rows, rule="label to be mapped", half_range=1.0, by=by)
    target, (low, high) = numeric(table.target_name, target), table.target_bounds
    labels = (target - (low + high) / 2) * (2 / (high - low))
    return Labelled(
        table=table,
        rows=np.column_stack([inside, np.clip(labels, -1.0, 1.0)]),
        rule=_mapped(low, high, "public"),
        half_range=(high - low) / 2,
        clipped_labels=int((np.abs(labels) > 1).sum()),
        by=by,
    )


def _mapped(low: float, high: float, whose: str) -> str:
    return f"label mapped from its {whose} bounds {low:g} to {high:g} to [-1, 1]"


def _beside(by: RowMap, label: bool) -> RowMap:
    """A map of features, with a constant and a label behind that stay; or a label to be bounded."""
    ends, free = np.full(2, np.inf), len(by.lower) + 1
    return RowMap(
        np.concatenate([by.lower, -ends]),
        np.concatenate([by.upper, ends]),
        np.concatenate([by.center, [0.0, 0.0]]),
        np.concatenate([by.factor, [1.0, 1.0]]),
        np.append(by.free, [free] if label else []).astype(np.int64),
        np.append(by.reach, [1.0] if label else []),
    )


@overload
def held_out(data: Persons, fraction: float, seed: int | None) -> tuple[Persons, Persons]: ...


@overload
def held_out(data: Floats, fraction: float, seed: int | None) -> tuple[Floats, Floats]: ...


def held_out(
    data: Persons | Floats, fraction: float, seed: int | None
) -> tuple[Persons | Floats, Persons | Floats]:
    """(train, test): a random `fraction` is held out, and the others are put in random order.

    Args:
        data: rows of one record each, or persons, who are held out with all their records.
        fraction: how much is held out.
        seed: of the choice; None: entropy of the operating system.

    Raises:
        ParameterError: the fraction leaves nobody on one side.
    """
    real("test_fraction", fraction, 0.0, 1.0, closed=(False, False))
    people = data.users if isinstance(data, Persons) else len(data)
    count = round(fraction * people)
    if not 0 < count < people:
        allowed = f"such that of {people} people some are held out and some are not"
        raise ParameterError("test_fraction", fraction, allowed)
    if isinstance(data, Persons):
        order = stream(entropy_of(seed), 0, Role.SPLIT, 0).permutation(people)
        return data.chosen(order[count:]), data.chosen(order[:count])
    shuffled = np.random.default_rng(entropy_of(seed)).permutation(data)
    return shuffled[count:], shuffled[:count]


def _classes(
    table: Table, positive: Sequence[str], names: Sequence[str] | None
) -> tuple[Floats, tuple[tuple[str, ...], ...], str]:
    """Numbers for labels, the labels of each class, and the rule."""
    texts = _texts(table)
    found = list(names or sorted(set(texts.tolist())))
    unknown = ~np.isin(texts, found)
    if unknown.any():
        where = f"column {table.target_name}, row {int(np.argmax(unknown)) + 1}"
        raise ParameterError(where, WITHHELD, f"one of the classes {_named(found)}")
    if names is not None and len(found) > 2 and not positive:
        labels = (texts[:, None] == np.array(found)).argmax(axis=1).astype(np.float64)
        rule = f"one of {len(found)} classes: {_named(found)}"
        return labels, tuple((name,) for name in found), rule
    for name in positive:
        if name not in found:
            raise ParameterError("positive", name, "one of the classes in the label column")
    if len(found) < 2 or (len(found) > 2 and not positive):
        allowed = (
            "of two classes; or give --positive (repeatable), those that become +1; or --classes, "
            "the public list; or a loss for numbers: squared, huber ..."
        )
        raise ParameterError("label", f"{len(found)} classes", allowed)
    chosen = list(positive) or found[-1:]
    others = [name for name in found if name not in chosen]
    if not others:
        raise ParameterError("positive", chosen, "not all of the classes")
    # -1 and +1: the sign of the margin is the prediction.
    labels = np.where(np.isin(texts, chosen), 1.0, -1.0)
    rule = f"{' '.join(chosen)} = +1, {_named(others)} = -1"
    return labels, (tuple(others), tuple(chosen)), rule


def _texts(table: Table) -> NDArray[np.str_]:
    """Labels as text; gaps are refused."""
    values = np.asarray(table.target)
    missing = first_gap(values)
    if missing is not None:
        where = f"column {table.target_name}, row {missing + 1}"
        raise ParameterError(
            where, None, "given: nobody can learn from a row without a label (the first row is 1)"
        )
    return values.astype(str)


def _named(values: Sequence[str]) -> str:
    return " ".join(values[:_SHOWN]) + (
        f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    )
