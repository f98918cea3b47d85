"""What a linear model learns from: labelled rows in the l2 unit ball, and people held out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.tables import Table, first_gap, numeric
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
        clipped_labels: how many labels lay outside the public bounds.
    """

    table: Table
    rows: Floats
    rule: str
    half_range: float | None = None
    clipped_labels: int = 0

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
            "each column is mapped from its public bounds to [-1, 1] (and clipped there); the "
            f"{count} columns and a constant 1 "
            f"are divided by the square root of {count + 1}, so every row lies in the l2 ball of "
            "radius 1"
        )

    def weights(self, theta: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept of the margin in the table's units, for values in the bounds.

        The margin predicts the label: for a real target, in units of `half_range` around the middle
        of its bounds.
        """
        middle, half = (
            (self.table.upper + self.table.lower) / 2,
            (self.table.upper - self.table.lower) / 2,
        )
        scaled = theta / np.sqrt(len(self.table.columns) + 1)
        return np.asarray(scaled[:-1] / half), float(scaled[-1] - scaled[:-1] @ (middle / half))


def labelled(table: Table, *, classes: bool, positive: Sequence[str] = ()) -> Labelled:
    """The rows of `table` with labels in [-1, 1].

    For `classes` a label is -1 or +1; else it is the target, mapped from its public bounds.

    Args:
        table: with a target.
        classes: whether the target names classes.
        positive: the classes that become +1, all others -1; where none is given there must be two,
            and the last becomes +1.

    Raises:
        ParameterError: a target of the wrong kind, naming its values.
    """
    if table.target is None:
        raise ParameterError("label", None, "given: the column to predict")
    features, d = table.scaled(), len(table.columns)
    inside = np.column_stack([features * np.sqrt(d), np.ones(len(features))]) / np.sqrt(d + 1)
    if classes:
        labels, rule = _classes(table, positive)
        return Labelled(table=table, rows=np.column_stack([inside, labels]), rule=rule)
    if positive:
        raise ParameterError(
            "positive", list(positive), "given for losses of classes: logistic or hinge"
        )
    if table.target_bounds is None:
        raise ParameterError(
            "label",
            WITHHELD,
            "a number with public bounds, for this loss",
        )
    target, (low, high) = numeric(table.target_name, table.target), table.target_bounds
    labels = (target - (low + high) / 2) * (2 / (high - low))
    return Labelled(
        table=table,
        rows=np.column_stack([inside, np.clip(labels, -1.0, 1.0)]),
        rule=f"label mapped from its public bounds {low:g} to {high:g} to [-1, 1]",
        half_range=(high - low) / 2,
        clipped_labels=int((np.abs(labels) > 1).sum()),
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


def _classes(table: Table, positive: Sequence[str]) -> tuple[Floats, str]:
    texts = _texts(table)
    found = sorted(set(texts.tolist()))
    for name in positive:
        if name not in found:
            raise ParameterError("positive", name, "one of the classes in the label column")
    if len(found) < 2 or (len(found) > 2 and not positive):
        allowed = (
            "of two classes; or give --positive (repeatable), those that become +1; or a loss for "
            "numbers: squared, huber ..."
        )
        raise ParameterError("label", f"{len(found)} classes", allowed)
    chosen = list(positive) or found[-1:]
    others = [name for name in found if name not in chosen]
    if not others:
        raise ParameterError("positive", chosen, "not all of the classes")
    return np.where(
        np.isin(texts, chosen), 1.0, -1.0
    ), f"{' '.join(chosen)} = +1, {_named(others)} = -1"


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
