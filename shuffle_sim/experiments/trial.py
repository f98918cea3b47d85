"""What is run at a point, and what is kept of it."""

import inspect
import math
import time
import warnings
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from shuffle_sim.errors import ParameterError, ShuffleSimError, WeakPrivacyWarning
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.experiments.points import Point

Row = dict[str, Any]
_OF_RUN = frozenset(
    {each.name for each in fields(Costs)}
    | {each.name for each in fields(ReportCounts) if not set(SIMULATOR_VIEW) & set(each.metadata)}
    | {"epsilon", "delta", "promised_epsilon", "basis", "assumptions", "trust", "unit", "fidelity"}
)
_PREFIX = "measured_"
RUN_COLUMNS = _OF_RUN | {_PREFIX + each for each in _OF_RUN}
"""What a row holds that no datum without noise went into; epsilon does not cover the others."""
_PLAIN = (type(None), bool, int, float, str)


def measured_names(names: Iterable[str], parameters: Container[str]) -> dict[str, str]:
    """What tables call these measured columns: apart from the parameters of the same names."""
    return {name: _PREFIX + name if name in parameters else name for name in names}


@dataclass(frozen=True)
class Trial:
    """One run, as `make` gives it.

    Attributes:
        algorithm: a protocol, or a curator's algorithm.
        data: the users' rows.
        options: of `run`, by name: adversary, fidelity, security and others. The seed is the
            point's, and the runtime of a run within a study is this process.
        truth: what the value should be; the row then holds `rmse`, the root mean square error.
        metrics: further numbers of a row, from the result.
    """

    algorithm: Any
    data: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    truth: Any = None
    metrics: Callable[[Result], Mapping[str, Any]] | None = None

    def row(self, seed: int | None) -> Row:
        """Run it.

        Raises:
            ParameterError: a seed among the options.
            ShuffleSimError: those of `run`.
        """
        if "seed" in self.options:
            raise ParameterError("options: seed", self.options["seed"], "left out: points have own")
        result = run(self.algorithm, self.data, seed=seed, **self.options)
        row = row_of(result)
        if self.truth is not None:
            row["rmse"] = _rmse(result.value, self.truth)
        return row | dict(self.metrics(result) if self.metrics is not None else {})


Make = Callable[..., Trial | tuple[Any, ...] | Mapping[str, Any]]
"""From a point's parameters to what is run: a `Trial`, a tuple of its first fields, or, of a study
that runs by itself, the row. A parameter `seed` is given the point's seed.
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a point: its row, or the reason why there is none.

    Attributes:
        row: column to number or text; None: it failed.
        reason: one line; empty where there is a row.
        seconds: taken.
    """

    row: Row | None
    reason: str = ""
    seconds: float = 0.0


def measured(make: Make, point: Point) -> Outcome:
    """Run a point; whatever it raises becomes its reason, and the other points go on."""
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakPrivacyWarning)  # the row says epsilon and delta
            row, reason = _kept(_row(make, point)), ""
    # Not BaseException: Ctrl-C ends the study, not the point.
    except Exception as error:
        kind = "" if isinstance(error, ShuffleSimError) else f"{type(error).__name__}: "
        row, reason = None, " ".join(f"{kind}{error}".split()) or type(error).__name__
    return Outcome(row, reason, time.perf_counter() - started)


def _row(make: Make, point: Point) -> Row:
    given = dict(point.parameters)
    if "seed" in inspect.signature(make).parameters:
        given["seed"] = point.seed
    made = make(**given)
    if isinstance(made, Mapping):
        return dict(made)
    trial = Trial(*made) if isinstance(made, tuple) else made
    if not isinstance(trial, Trial):
        raise ParameterError("make", made, "a Trial, (algorithm, data), or a row")
    return trial.row(point.seed)


def _kept(row: Row) -> Row:
    """A row of plain values: what a table can hold; a number that is none becomes None.

    Raises:
        ParameterError: a value is neither number nor text.
    """
    found: Row = {}
    for name, value in row.items():
        # JSON knows no numbers of numpy.
        one = value.item() if isinstance(value, np.generic) else value
        if not isinstance(one, _PLAIN):
            raise ParameterError(f"row: {name}", value, "a number, a text, or None")
        found[str(name)] = None if isinstance(one, float) and not math.isfinite(one) else one
    return found


def row_of(result: Result) -> Row:
    """What every row holds of a run: guarantee, costs, and what became of the reports."""
    told, promised = result.privacy, result.promised
    reports = {
        name: value for name, value in asdict(result.reports).items() if isinstance(value, int)
    }
    dropped = sum(result.reports.dropped.values())
    return {
        "epsilon": told.epsilon,
        "delta": told.delta,
        "promised_epsilon": promised.epsilon,
        "basis": told.basis,
        "assumptions": "; ".join(told.assumptions),
        "trust": str(result.trust),
        "unit": str(result.unit),
        "fidelity": result.fidelity,
        **asdict(result.costs),
        "rounds": result.rounds,
        **reports,
        "dropped": dropped,
    }


def _rmse(value: Any, truth: Any) -> float:
    found, wanted = np.asarray(value, dtype=float), np.asarray(truth, dtype=float)
    if found.shape != wanted.shape:
        raise ParameterError("truth", f"shape {wanted.shape}", f"of shape {found.shape}")
    return float(np.sqrt(np.mean((found - wanted) ** 2)))
