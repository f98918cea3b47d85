"""Empirical over proven epsilon of every sum, optimiser and curator's mechanism that is registered.

python -m benchmarks ratios; or some: python -m benchmarks.ratios vector-sum output
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from protocols import CentralSum, SaddleERM
from protocols.comparison.named import named_protocol
from protocols.erm import Grouped
from protocols.learning.training import Trainer
from protocols.problems import L2Ball, Linear, Problem
from protocols.problems.instances import crossed, leaning, neighbours
from shuffle_sim.arrays import Floats
from shuffle_sim.auditing import audit_central
from shuffle_sim.auditing.asked import Asked
from shuffle_sim.auditing.bench import LAW, of_categories
from shuffle_sim.auditing.stated import stated_epsilon
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.registry import loaded, registered

Tables = dict[str, tuple[Floats, Floats]]
USERS, PRIVACY = 1000, Privacy(1.0, 1e-6)
REPEATS = 4000
RECORDS = 4  # of a person
PULLS = {"leaning": 12, "bordering": 72, "pulled": USERS - 1}
"""How many rows pull: such that an exponential mechanism is at the other end once in e^6 draws;
such that the minimiser of a grid's first phase is next to the border (by its exact law); or all.
"""
MORE: tuple[dict[str, Any], ...] = ({}, {"intercept": 0.5}, {"ridge": 0.5})
"""Options that some algorithms need."""
LOSSES = Linear(), "hinge", "logistic"
"""The first that an algorithm takes. The linear loss attains the proofs' distances; slopes of the
logistic loss are half of L where models begin."""


def of_shuffle(name: str) -> dict[str, Any]:
    """A sum or an optimiser: whole runs with canaries; `exact` is of one round's worst pair."""
    made = None
    for d in (2, 1):
        try:
            made = named_protocol(name, USERS, d, PRIVACY)
            break
        except ParameterError as error:
            refused = error
    if made is None:
        raise refused
    spec = made.plan(made.init())
    exact = theorem_of(type(spec.event)).exact(spec.event, made.delta)
    if of_categories(spec.randomizer):
        raise ParameterError("protocol", name, "a sum: of counts, laws are compared exactly")
    seen = Asked(made, None, {}, 1).seen(all(hasattr(spec.randomizer, each) for each in LAW))
    assert seen is not None
    return {"proven": stated_epsilon(made), "exact": exact, "empirical": seen.epsilon()}


class Sides(Linear):
    """The linear loss of two classes."""

    classification = True


def more_tables(d: int) -> Tables:
    """Beside a trainer's: those that are hard for one kind of mechanism."""
    found = {which: leaning(USERS, d, many) for which, many in PULLS.items()}
    return found | ({"crossed": crossed(USERS)} if d == 2 else {})


def sums() -> tuple[Any, Tables]:
    """Rows of two features."""
    rows = np.zeros((USERS, 2))
    rows[0, 0] = 1.0
    return CentralSum.calibrated(n=USERS, d=2, privacy=PRIVACY), {"opposite": (rows, -rows)}


def saddles() -> tuple[Any, Tables]:
    """Two groups, and one row is a group of its own."""
    problem = Problem(Grouped(Sides(), 2), L2Ball(2, 20.0))
    groups = np.minimum(np.arange(USERS), 1)
    tables: Tables = {}
    for which, pair in (neighbours(USERS, 2) | more_tables(2)).items():
        first, second = (np.column_stack([rows, groups]) for rows in pair)
        tables[which] = first, second
    return SaddleERM.calibrated(n=USERS, problem=problem, privacy=PRIVACY), tables


OWN: dict[str, Callable[[], tuple[Any, Tables]]] = {
    "central-sum": sums,
    "saddle-erm": saddles,
}
"""Of those that no `Trainer` makes for these users."""


def trained(name: str) -> tuple[Any, Tables]:
    """A curator's algorithm of a linear model."""
    records = RECORDS if registered("algorithm", name).unit is Unit.PERSON else None
    for loss, more in product(LOSSES, MORE):
        trainer = Trainer.of(loss, 2, PRIVACY, records=records, **more)
        try:
            made = trainer.central(name, USERS)
            break
        except ParameterError as error:
            if (loss, more) == (LOSSES[-1], MORE[-1]):
                raise error from None
    return made, trainer.neighbours(USERS) | ({} if records else more_tables(trainer.d))


def of_curator(name: str) -> dict[str, Any]:
    """A curator's algorithm: the membership game, on the hardest of the tables tried."""
    made, tables = OWN[name]() if name in OWN else trained(name)
    found = {
        which: audit_central(made, *pair, repeats=REPEATS, seed=1) for which, pair in tables.items()
    }
    which, best = max(found.items(), key=lambda each: each[1].empirical)
    return {"proven": best.claimed, "empirical": best.empirical, "tables": which}


def rows(names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each name."""
    shuffled, curated = (list(loaded(kind)) for kind in ("protocol", "algorithm"))
    for name in names or [*shuffled, *curated]:
        began, row = time.process_time(), dict[str, Any](name=name)
        try:
            row |= of_shuffle(name) if name in shuffled else of_curator(name)
            row["ratio"] = row["empirical"] / row["proven"]
        except ParameterError as error:
            row["refused"] = str(error)
        yield row | {"seconds": time.process_time() - began}


def measure(names: list[str] | None = None) -> dict[str, Any]:
    """All of them, printed as they are done."""
    warnings.simplefilter("ignore")
    found = []
    for row in rows(names or []):
        print(
            {key: round(x, 4) if isinstance(x, float) else x for key, x in row.items()}, flush=True
        )
        found.append(row)
    return {"rows": found}


if __name__ == "__main__":
    measure(sys.argv[1:])
