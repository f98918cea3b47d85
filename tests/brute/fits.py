"""Estimators: two neighbouring tables are fitted, up to the run; what would run is walked on both.

Rows are finite numbers: others are refused. What an estimator makes of its parameters must not
depend on the rows, and what it makes of the rows must not mix them.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from protocols.learning import clusters, descent, moments, private, robust
from protocols.optimisation.base import Optimiser
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.registry import registered_kinds
from shuffle_sim.wire.fingerprint import fingerprint

from .walks import Answer, walk

ROOMS = (private, descent, moments, robust, clusters)
N, COLUMNS, PERSONS = 60, 2, 20

IRRELEVANT = {
    "random_state": "the seed of the run: the walk draws by itself",
    "runtime": "where roles run; every runtime gives the same bits",
    "workers": "shards of the users; any number gives the same law",
    "fidelity": "how reports are simulated; one law",
    "schema": "how a user encodes its own row, which then is one as without it",
}
"""Parameters that enter nothing that is asked, and why."""
VALUES: dict[str, tuple[Any, ...]] = {
    "epsilon": (30.0,),
    "delta": (1e-4, 0.0),
    "mechanism": tuple(
        name.removesuffix("-perturbation")
        for name, kind in registered_kinds("algorithm", Optimiser).items()
        if kind.unit is Unit.RECORD
    ),
    "solver": ("lbfgs",),
    "ridge": (0.3,),
    "C": (10.0,),
    "feature_bound": (0.1, 50.0),
    "fit_intercept": (False,),
    "classes": ((-1, 1), (-1, 0, 1)),
    "class_weight": ({-1: 1.0, 1: 5.0},),
    "loss": ("huber", "absolute", "hinge", "logistic"),
    "target_bounds": ((-5.0, 0.5),),
    "threshold": (0.3,),
    "quantile": (0.9,),
    "protocol": ("sgd", "acsa"),
    "phases": (True,),
    "rounds": (2,),
    "batch": (20,),
    "eta": (0.5,),
    "choose": ("bound",),
    "radius": (0.5,),
    "records": (2,),
    "weight_bound": (3.0,),
    "noise_ratio": (2.0,),
    "encoding": ("unary",),
    "rotation": (3,),
    "honest_fraction": (0.8,),
    "select": ({"radius": [1.0, 5.0]},),
    "select_fraction": (0.3,),
    "choose_bounds": (0.3,),
    "moments": ((2, 3.0), (2, 3.0, 3.0, 1.0)),
    "scale": (10.0,),
    "assume_centered": (True,),
    "n_components": (1,),
    "n_clusters": (2, 5),
    "noise": ("discrete",),
}
"""At which a parameter is tried, for every estimator that has it."""
WITH: dict[str, dict[str, Any]] = {
    "C": {"ridge": None},
    "solver": {"mechanism": "output"},
    "batch": {"protocol": "sgd", "rounds": 3},
    "phases": {"ridge": 0.3, "choose": "bound", "rounds": None},
    "records": {"groups": True},
    "weight_bound": {"weights": True},
    "select_fraction": {"select": {"radius": [1.0, 5.0]}},
    "threshold": {"loss": "huber"},
    "quantile": {"loss": "pinball"},
    "class_weight": {"classes": (-1, 1)},
}
"""What a parameter needs besides."""
BASE: dict[str, dict[str, Any]] = {
    "PrivateCovariance": {"epsilon": 5.0, "delta": 1e-3},
    "PrivateKMeans": {"epsilon": 5.0, "delta": 1e-3, "n_clusters": 3},
    "PrivatePCA": {"epsilon": 5.0, "delta": 1e-3},
    "ShuffleKMeans": {"epsilon": 50.0, "delta": 1e-3, "n_clusters": 3},
    "ShuffleCovariance": {"epsilon": 5.0, "delta": 1e-3},
    "ShufflePCA": {"epsilon": 5.0, "delta": 1e-3},
    "Private": {"epsilon": 5.0, "delta": 1e-3},
    "Shuffle": {"epsilon": 50.0, "delta": 1e-3, "rounds": 4, "noise_ratio": 1.5},
    "HeavyTailed": {"epsilon": 5.0},
}


class CaughtError(Exception):
    """What would run, and on which data."""


@dataclass(frozen=True)
class Fit:
    """An estimator with one parameter changed.

    Attributes:
        kind: its class.
        option: what was changed; "": nothing.
        value: to what.
    """

    kind: type
    option: str = ""
    value: Any = None

    def caught(self, table: Any) -> tuple[Any, Any]:
        """(algorithm, data) of the run on (X, y, weights)."""
        X, y, weights = table
        name = next(each for each in BASE if self.kind.__name__.startswith(each))
        given = BASE[name] | WITH.get(self.option, {})
        given |= {self.option: self.value} if self.option else {}
        if hasattr(self.kind(), "classes"):
            given = {"classes": (-1, 1)} | given
            y = np.where(y >= 0, 1, -1)
        own: dict[str, Any] = {"groups": np.arange(N) % PERSONS} if given.pop("groups", 0) else {}
        own |= {"sample_weight": weights} if given.pop("weights", 0) else {}

        def run(algorithm: Any, data: Any, **how: Any) -> None:
            raise CaughtError(algorithm, data)

        with ExitStack() as stack:
            for room in ROOMS:
                stack.enter_context(mock.patch.object(room, "run", run))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            try:
                self.kind(random_state=1, **given).fit(X, y, **own)
            except CaughtError as caught:
                return caught.args[0], caught.args[1]
        raise AssertionError("nothing was run")

    def answers(self, seed: int, count: int) -> Iterator[Answer]:
        """Of runs on neighbours; none where the parameter is refused."""
        rng = np.random.default_rng(seed)
        for _ in range(count):
            try:
                made = [self.caught(table) for table in _tables(rng)]
            except ParameterError:
                return
            if fingerprint(made[0][0]) != fingerprint(made[1][0]):
                yield Answer(-1, "what is run depends on the rows", np.inf)
                return
            pair = tuple(_rows(data) for _, data in made)
            yield from walk(made[0][0], pair, rng)


def _tables(rng: np.random.Generator) -> list[tuple[Any, Any, Any]]:
    """Neighbours: features, targets and weights at the ends and far beyond; one row differs."""
    ends = rng.normal(size=(2, COLUMNS)) * 10.0 ** rng.uniform(-3, 2)
    X = ends[rng.integers(0, 2, N)]
    y, weights = rng.choice([-1.0, 1.0], N), rng.choice([0.0, 1.0, 3.0], N)
    y[:2] = -1.0, 1.0  # both classes
    other = X.copy(), y.copy(), weights.copy()
    at = int(rng.integers(2, N))
    for each in (X, other[0]):
        each[at] = rng.choice([-1.0, 0.0, 1.0], COLUMNS) * rng.choice([1e-3, 1.0, 1e3, 1e200])
    other[1][at], other[2][at] = -y[at], 3.0 - weights[at]
    return [(X, y, weights), other]


def _rows(data: Any) -> Any:
    return data if not isinstance(data, Persons) else list(data.rows(0, data.users))


def broken(kind: type, count: int) -> list[str]:
    """What moves more than is stated, or has no values, for each parameter of an estimator."""
    found = []
    for option in ("", *sorted(kind().get_params())):
        if option in IRRELEVANT:
            continue
        tried = 0
        for value in VALUES.get(option, ()) if option else (None,):
            answers = list(Fit(kind, option, value).answers(1, count))
            tried += len(answers)
            moved = [each for each in answers if each.ratio > 1 + 1e-6]
            found += [f"{kind.__name__} {option}={value}: {each}" for each in moved]
        if not tried:
            found.append(f"{option} of {kind.__name__} is not tried, nor said to be irrelevant")
    return found
