"""What all estimators of linear models share, whoever is trusted: bounds, scores, seeds."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import validation

from protocols.learning.model import named_loss, parameters_of
from protocols.learning.notes import Outside, tell_of_search
from protocols.learning.tabular import beyond_limits, encoded, fitted_rows, in_order, names_of
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import WITHHELD, ParameterError, flag, integer, positive
from shuffle_sim.privacy.guarantee import Guarantee


class _Plain(BaseEstimator):
    """What rows and labels are checked for, where a schema has the columns."""


def of_one_fit(guarantee: Guarantee) -> Guarantee:
    """The guarantee of one fit, which says that a choice among several has none by it."""
    note = "of this fit alone: other fits on these rows, as of a grid search, are not counted"
    return guarantee.assuming(note)


@dataclass(frozen=True)
class Sample:
    """What an estimator trains on.

    Attributes:
        X: the rows, (users, columns).
        labels: (users,); or (users, 2) with weights, for a weighted loss.
        loss: for a given l2 bound of the users' features, the constant included.
        outside: which rows were clipped, by the parameter to widen.
        outputs: parameter vectors of the model.
        groups: whose the rows are, (users,); None: each is a user of its own.
    """

    X: Floats
    labels: Floats
    loss: Callable[[float], Loss]
    outside: Outside = field(default_factory=dict)
    outputs: int = 1
    groups: Any = None


class LinearEstimator(BaseEstimator, ABC):
    """What all estimators of linear models share; not for use by itself."""

    loss_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters of the estimator that are those of a loss which has them."""
    schema: Any = None
    """What is public of a table; None: rows are numbers. Estimators that take one state it."""
    choose_bounds: float | None = None
    feature_bound: Any
    fit_intercept: bool
    coef_: Floats
    intercept_: Any
    clipped_: int
    privacy_: Guarantee
    schema_: Schema | None

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train.

        Args:
            X: (users, columns).
            y: their classes or targets.
            groups: whose the rows are, (rows,); the guarantee then is of persons with all their
                rows. None: each row is a user of its own.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """
        return self._fit(X, y, groups)

    @abstractmethod
    def _fit(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Self:
        """Set what was trained; weights are of estimators that are `WeightedRows`."""

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are taken; each user's own is dense when it is sent."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.schema is None
        tags.input_tags.allow_nan = self.schema is not None
        return tags

    def _model(self, data: Sample) -> tuple[Floats, Floats]:
        """As `_train`, for encoded rows where there is a schema; and what people are told."""
        tell_of_search()
        known = self.schema_
        if known is None or known.free:
            return self._train(data)
        if self.feature_bound not in (None, 1):
            raise ParameterError("feature_bound", self.feature_bound, "1: the schema has bounds")
        if self.choose_bounds is not None:
            allowed = "None: the schema has the bounds of every column"
            raise ParameterError("choose_bounds", self.choose_bounds, allowed)
        beyond, scale = {**data.outside, **beyond_limits(data.X, known)}, known.scale
        coefficients, intercepts = self._train(
            replace(data, X=known.scaled(data.X), outside=beyond)
        )
        # The map of the schema, (x - center)/half/norm, turned back.
        coefficients = coefficients / scale.half / scale.norm
        return coefficients, intercepts - coefficients @ scale.center

    @abstractmethod
    def _train(self, data: Sample) -> tuple[Floats, Floats]:
        """Coefficients (outputs, columns) and intercepts (outputs,)."""

    def _named(self, loss: str | LinearLoss, **how: Any) -> Callable[[float], Loss]:
        """A registered loss with those of its parameters that the estimator has, by features.

        Raises:
            ParameterError: unknown, or for other labels.
        """
        made = named_loss(loss, **how)  # refuses what is unknown
        known = parameters_of(type(made))
        own = {name: getattr(self, name) for name in self.loss_parameters if name in known}
        if isinstance(loss, LinearLoss):
            # A loss that is given has parameters of its own:
            # those of the estimator are others' defaults.
            own = {}
        return partial(named_loss, loss, **how, **own)

    def _bounded(
        self, X: Floats, labels: Floats, constant: float, scale: float = 1.0
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Rows (features, constant, labels), and which features were longer than the bound.

        Features are brought into the ball of radius `scale`; a constant is there with an intercept.

        Raises:
            ParameterError: a parameter that is not in its range.
        """
        bound = positive("feature_bound", self.feature_bound)
        flag("fit_intercept", self.fit_intercept)
        norms = np.hypot.reduce(X, axis=1)  # does not overflow
        (n, columns), intercepts = X.shape, int(self.fit_intercept)
        answers = labels.reshape(n, -1)
        rows = np.empty((n, columns + intercepts + answers.shape[1]))
        np.multiply(X, (scale / np.maximum(norms, bound))[:, None], out=rows[:, :columns])
        rows[:, columns : columns + intercepts] = constant
        rows[:, columns + intercepts :] = answers
        return rows, norms > bound * (1 + 1e-9)  # a rounding error is not outside

    def _scores(self, X: Any) -> Floats:
        """<row, coefficients> + intercept; rows are not clipped: the model is public."""
        validation.check_is_fitted(self)
        if self.schema_ is not None:
            # As in `fit`: the model knows no cell beyond the bounds.
            rows = np.clip(encoded(X, self.schema_), *self.schema_.limits)
            return np.asarray(rows @ self.coef_.T + self.intercept_)
        X = in_order(self, X)
        rows = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        return np.asarray(rows @ self.coef_.T + self.intercept_)


class WeightedRows(LinearEstimator):
    """An estimator whose rows count by weights."""

    weight_bound: float

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Args:
            X: (users, columns), dense or sparse.
            y: their classes or targets.
            groups: whose the rows are, (rows,); the guarantee then is of persons with all their
                rows. None: each row is a user of its own.
            sample_weight: how much each row counts, (rows,); private, and at most `weight_bound`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed, before any release.
        """
        return self._fit(X, y, groups, sample_weight)


_BLANKS = "Input contains NaN", "boolean value of NA is ambiguous"
"""What is said of y with texts and blanks; X, and numbers, are named."""


def validate_data(estimator: BaseEstimator, *data: Any, **checks: Any) -> Any:
    """As scikit-learn's, whose errors show a cell that is no number.

    Raises:
        ParameterError: there is one; or a blank cell, or a label that is blank or, with
            `y_numeric`, no number.
        ValueError, TypeError: as scikit-learn's.
    """
    try:
        found = validation.validate_data(estimator, *data, **checks)
    except (ValueError, TypeError) as error:
        message = str(error)
        if message in _BLANKS:
            raise ParameterError("y", WITHHELD, "without blanks") from None
        if "could not convert" in message:
            raise ParameterError(_column(data, _no_number), WITHHELD, "numbers, not text") from None
        if message.startswith(("Input X contains NaN", "Input X contains infinity")):
            allowed = "of finite numbers, without NaN or infinity; or state a schema for blanks"
            raise ParameterError(_column(data, _not_finite), WITHHELD, allowed) from None
        raise
    if checks.get("y_numeric") and found[1].dtype.kind not in "fiub":
        raise ParameterError("y", str(found[1].dtype), "of numbers")
    if checks.get("y_numeric") and not np.isfinite(found[1]).all():
        raise ParameterError("y", WITHHELD, "finite numbers, without blanks")
    return found


def _column(data: tuple[Any, ...], wrong: Callable[[NDArray[Any]], bool]) -> str:
    """Which column of X is wrong; else it is y."""
    if issparse(data[0]):
        return "X"
    names = names_of(data[0])
    for place, column in enumerate(np.asarray(data[0], object).T):
        if wrong(column):
            return f"X[:, {place}]" if names is None else f"X[{names[place]!r}]"
    return "y"


def _no_number(column: NDArray[Any]) -> bool:
    try:
        column.astype(np.float64)
    except (ValueError, TypeError):
        return True
    return False


def _not_finite(column: NDArray[Any]) -> bool:
    return not np.isfinite(column.astype(np.float64)).all()


def dense_data(estimator: LinearEstimator, X: Any, y: Any, **checks: Any) -> tuple[Floats, Any]:
    """Checked rows, dense, and their labels; by a schema, encoded in their own units.

    Raises:
        ParameterError: as of `validate_data`, or of the schema, naming a column.
    """
    estimator.schema_ = None
    if estimator.schema is not None:
        rows = fitted_rows(estimator, X)
        _, y = validate_data(_Plain(), rows, y, dtype=np.float64, **checks)
        return rows, y
    X, y = validate_data(estimator, X, y, dtype=np.float64, accept_sparse="csr", **checks)
    return (X.toarray() if issparse(X) else X), y


def seed_of(random_state: Any) -> int | None:
    """The seed of a scikit-learn `random_state`; None: entropy from the operating system."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        # Drawn, so that the same generator gives another seed for the next fit.
        return int(random_state.randint(2**31 - 1))
    return integer("random_state", random_state, 0, 2**128 - 1)


def refuse_groups(groups: Any) -> None:
    """Refuse persons, where neighbours differ in one row.

    Raises:
        ParameterError: groups are given; it names what takes them.
    """
    if groups is not None:
        allowed = (
            "None: neighbours differ in one row, not in all rows of a person; for persons take "
            "fit(X, y, groups) of ShuffleLogisticRegression, or of PrivateLogisticRegression with "
            "mechanism 'gradient', or protocols.PhasedERM at a curator"
        )
        raise ParameterError("groups", WITHHELD, allowed)
