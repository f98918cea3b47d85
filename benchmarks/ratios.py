"""Empirical over proven epsilon of every sum, optimiser and curator's mechanism that is registered.

python -m benchmarks ratios; or some: python -m benchmarks.ratios vector-sum output
"""

import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from protocols.comparison.games import game_of
from protocols.comparison.named import named_protocol
from shuffle_sim.auditing import audit_central
from shuffle_sim.auditing.claims.stated import stated_epsilon
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.auditing.shuffle.bench import LAW, of_categories
from shuffle_sim.auditing.shuffle.canaries import odds_known
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.registry import loaded

USERS, PRIVACY = 1000, Privacy(1.0, 1e-6)
REPEATS = 4000


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
    known = all(hasattr(spec.randomizer, each) for each in LAW)
    if of_categories(spec.randomizer) and not (known := odds_known(made)):
        raise ParameterError("protocol", name, "a sum: of counts, laws are compared exactly")
    seen = Asked(made, None, {}, 1).seen(known)
    assert seen is not None
    return {"proven": stated_epsilon(made), "exact": exact, "empirical": seen.epsilon()}


def of_curator(name: str) -> dict[str, Any]:
    """A curator's algorithm: the membership game, on the hardest of the tables tried."""
    made, tables = game_of(name, USERS, 2, PRIVACY, hardest=True)
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
