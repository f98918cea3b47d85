"""Linear models in files: plain JSON with names, units and a version; and their predictions.

A released model is public: predictions with it cost no privacy. Scores on people's rows are not
released, and no epsilon covers them.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.column_kinds import Number
from shuffle_sim.data.columns import LARGEST
from shuffle_sim.data.file_columns import cells_of, gaps
from shuffle_sim.data.files import read_whole
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import WITHHELD, ParameterError

FORMAT, VERSION = "shuffle-sim linear model", 1
_PROBABILISTIC = ("Logistic", "Softmax")
_FILE_BYTES = 1 << 28  # bytes of a model file
_LEAST = 1e-15  # of a probability in a loss
_RULE = "train with a rule for missing values, or leave such rows out of the file"


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearModel:
    """A linear model in the units of its table.

    Attributes:
        loss: that it was trained with, its name.
        schema: how rows are encoded.
        weights: shape (columns,), or for several classes (classes, columns).
        intercept: shape (), or (classes,).
        classes: labels that each score stands for: below and above 0, or of each class; None: the
            model predicts a number.
        target: the name of what it predicts.
        labels: how labels were made, for people.
        target_bounds: of a number; the margin -1 stands for the lower one, +1 for the upper.
        privacy: the guarantee, as it was written.
        private: false where the run was seeded.
    """

    loss: str
    schema: Schema
    weights: Floats
    intercept: Floats
    classes: tuple[tuple[str, ...], ...] | None
    target: str
    labels: str
    target_bounds: tuple[float, float] | None
    privacy: Mapping[str, Any]
    private: bool

    def table(self, path: Path) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """The encoded rows of a file, NaN where a blank has no place in the model; and its columns.

        Raises:
            ParameterError: unreadable file, or one that does not fit the model's schema.
        """
        cells = cells_of(path, self.schema)
        return self.schema.encode(cells, _RULE), cells

    def scored_by(self, label: str | None) -> Self:
        """The same model, whose true values stand in this column; None: in its own."""
        if label is None:
            return self
        known = self.schema.target
        target = None if known is None else replace(known, name=label)
        return replace(self, target=label, schema=replace(self.schema, target=target))

    def margins(self, rows: Floats) -> Floats:
        """Scores of encoded rows, clipped to the public bounds: (rows,) or (rows, classes).

        Raises:
            ParameterError: rows of another shape.
        """
        rows = np.asarray(rows, np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.schema.names):
            columns = len(self.schema.names)
            raise ParameterError("rows.shape", rows.shape, f"(rows, {columns}): encoded columns")
        inside = np.clip(rows, *self.schema.limits)
        return np.asarray(inside @ self.weights.T + self.intercept)

    def probabilities(self, rows: Floats) -> Floats | None:
        """Of each class, (rows, classes); None where the loss gives none."""
        if self.loss not in _PROBABILISTIC:
            return None
        margins = self.margins(rows)
        # Of two classes one has the score 0: their softmax is the logistic function.
        scores = margins if margins.ndim == 2 else np.column_stack([np.zeros(len(rows)), margins])
        return np.asarray(scipy.special.softmax(scores, axis=1))

    def predict(self, rows: Floats) -> NDArray[Any]:
        """Names of classes, or numbers in the target's units; None or NaN for a row with NaN."""
        margins = self.margins(rows)
        if self.classes is None:
            assert self.target_bounds is not None
            low, high = self.target_bounds
            return np.asarray((low + high) / 2 + margins * (high - low) / 2)
        names = np.array([*(" ".join(each) for each in self.classes), None], object)
        return np.asarray(names[np.where(_lost(margins), len(self.classes), _places(margins))])

    def scores(self, rows: Floats, target: NDArray[Any]) -> dict[str, float]:
        """Accuracy and, where there are probabilities, log loss; or errors and R^2 of a number.

        Numbers outside the label's public bounds count as its ends, as in training.

        Raises:
            ParameterError: a blank, a class that the model does not know, or no number.
        """
        # Rows that the model cannot read have no prediction, so no score.
        kept = np.flatnonzero(~_lost(self.margins(rows)))
        rows, target = rows[kept], target[kept]
        if not len(rows):
            raise ParameterError("file", WITHHELD, "a table with a row that the model can score")
        if gaps(target).any():
            where = f"column {self.target}, row {kept[np.argmax(gaps(target))] + 1}"
            raise ParameterError(where, None, "given; leave rows without it out of the file")
        found = {"rows": float(len(rows))}
        if self.classes is None:
            return found | self._errors(rows, target)
        known = {label: at for at, labels in enumerate(self.classes) for label in labels}
        texts = [str(label) for label in target.tolist()]
        if unknown := [row for row, label in enumerate(texts) if label not in known]:
            where = f"column {self.target}, row {kept[unknown[0]] + 1}"
            raise ParameterError(where, WITHHELD, f"one of the model's classes: {', '.join(known)}")
        labels = np.array([known[label] for label in texts])
        found["accuracy"] = float((_places(self.margins(rows)) == labels).mean())
        shares = np.bincount(labels, minlength=len(self.classes)) / len(labels)
        found["accuracy_of_the_commonest_class"] = float(shares.max())
        probabilities = self.probabilities(rows)
        if probabilities is not None:
            chosen = probabilities[np.arange(len(labels)), labels]
            found["log_loss"] = float(-np.log(np.maximum(chosen, _LEAST)).mean())
        return found

    def _errors(self, rows: Floats, target: NDArray[Any]) -> dict[str, float]:
        assert self.target_bounds is not None
        column = Number(name=self.target, limits=self.target_bounds)
        given = column.values(target, self.schema.layout.marks)[:, 0]
        true = np.clip(given, *self.target_bounds)  # as in training
        error, spread = self.predict(rows) - true, float(((true - true.mean()) ** 2).mean())
        squared = float((error**2).mean())
        return {
            "labels_outside_the_bounds": float((given != true).sum()),
            "mean_absolute_error": float(np.abs(error).mean()),
            "root_mean_squared_error": math.sqrt(squared),
            "r2": 1 - squared / spread if spread else math.nan,
        }

    def public(self) -> dict[str, Any]:
        """As JSON holds it."""
        units = {each.name: each.unit for each in self.schema.columns if each.unit}
        return {
            "format": FORMAT,
            "version": VERSION,
            "loss": self.loss,
            "schema": self.schema.public(),
            "columns": list(self.schema.names),
            "units": units,
            "weights": self.weights.tolist(),
            "intercept": self.intercept.tolist(),
            "classes": None if self.classes is None else [list(each) for each in self.classes],
            "target": self.target,
            "labels": self.labels,
            "target_bounds": None if self.target_bounds is None else list(self.target_bounds),
            "privacy": dict(self.privacy),
            "private": self.private,
        }

    @classmethod
    def from_public(cls, given: Mapping[str, Any]) -> Self:
        """What `public` gave.

        Raises:
            LookupError, TypeError, ValueError, ArithmeticError: something is missing, or is not
                what it should be.
        """
        schema, bounds = Schema.from_public(given["schema"]), given["target_bounds"]
        weights = np.asarray(given["weights"], np.float64)
        intercept = np.asarray(given["intercept"], np.float64)
        classes = given["classes"]
        if classes is not None:
            classes = tuple(tuple(str(label) for label in each) for each in classes)
            if len(classes) < 2 or not all(classes):
                raise ValueError("fewer than two classes, or one without a label")
        several = 1 if classes is None or len(classes) == 2 else len(classes)
        shape = (several, len(schema.names)) if several > 1 else (len(schema.names),)
        if weights.shape != shape or intercept.shape != shape[:-1]:
            raise ValueError(f"weights of shape {weights.shape} in place of {shape}")
        # NaN fails the comparison, too.
        if not all((abs(each) <= LARGEST).all() for each in (weights, intercept)):
            raise ValueError(f"weights that are not finite, or beyond {LARGEST:g}")
        if (classes is None) == (bounds is None):
            raise ValueError("classes or target_bounds, and not both, must be there")
        return cls(
            loss=str(given["loss"]),
            schema=schema,
            weights=weights,
            intercept=intercept,
            classes=classes,
            target=str(given["target"]),
            labels=str(given["labels"]),
            target_bounds=None if bounds is None else (float(bounds[0]), float(bounds[1])),
            privacy=dict(given["privacy"]),
            private=bool(given["private"]),
        )


def load_model(path: str | Path) -> LinearModel:
    """A model that `shuffle-sim train --model-out` wrote.

    Raises:
        ParameterError: no such file, a truncated one, or one of another version.
    """
    try:
        given = json.loads(read_whole(Path(path), "model", _FILE_BYTES))
    except ParameterError:
        raise
    except (ValueError, RecursionError) as error:
        allowed = "a whole model file: this one is truncated, or is no JSON"
        raise ParameterError("model", str(path), allowed) from error
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        allowed = f"a model file, with format {FORMAT!r}; train --model-out writes one"
        raise ParameterError("model", str(path), allowed)
    if given.get("version") != VERSION:
        allowed = f"of version {VERSION}, not {given.get('version')!r}: train it anew, or take the "
        raise ParameterError("model", str(path), allowed + "release that wrote it")
    try:
        return LinearModel.from_public(given)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ParameterError("model", str(path), f"a whole model file ({reason})") from error


def _places(margins: Floats) -> NDArray[np.intp]:
    if margins.ndim == 1:
        return np.asarray(margins > 0, np.intp)
    return np.asarray(np.nan_to_num(margins).argmax(axis=1))


def _lost(margins: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.isnan(margins) if margins.ndim == 1 else np.isnan(margins).any(axis=1))
