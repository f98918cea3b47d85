"""What binds where the default falls short of real_tables.py's aims: the clip, noise, or rounds.

    python examples/real_tables_causes.py fertility clip        # at epsilon 1
    python examples/real_tables_causes.py flights rounds        # at epsilon 4, and without noise

The same descent at a curator, on one split, with one choice at a time.
"""

import argparse
import math
import sys
from typing import Any

import numpy as np
from real_tables_data import SOURCES, Rows, halves, load

from protocols import ShuffleGD
from protocols.learning.baselines import Baseline
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.problems.regression import Squared
from protocols.shuffle.practice import practical
from shuffle_sim import Privacy, run

CONSTANT, DELTA = 0.25, 1e-5


def scored(
    rows: Rows,
    epsilon: float,
    trust: str = "central",
    clip: float | None = None,
    rounds: int | None = None,
) -> float:
    """The score of one split; a clip is a share of the longest gradient at the start."""
    train, test = halves(rows, 0)
    low, high = rows.bounds or (0.0, 1.0)
    labels, norm = (2 * rows.y - low - high) / (high - low), math.hypot(1, CONSTANT)
    loss: Any = Logistic(norm) if rows.bounds is None else Squared(norm, labels=1.0)
    bound = None if clip is None else clip * loss.start_norm()
    constant = np.full(len(labels), CONSTANT)
    table = np.column_stack([rows.X, constant, labels])
    ball = L2Ball(table.shape[1] - 1, 1000.0)
    problem = Problem(loss, ball, norm_bound=bound, constant=CONSTANT)
    privacy, people = Privacy(epsilon, DELTA), table[train]
    made = practical(
        ShuffleGD, n=len(people), problem=problem, privacy=privacy, trust=trust, rounds=rounds
    )
    margins = table[test, :-1] @ run(Baseline(made, trust), people, seed=0).value
    if rows.bounds is None:
        return rows.score((margins > 0).astype(float), rows.y[test])
    return rows.score((margins * (high - low) + low + high) / 2, rows.y[test])


def main() -> None:
    """Print a line for each choice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", choices=list(SOURCES))
    parser.add_argument("choice", choices=["clip", "rounds"])
    asked = parser.parse_args()
    rows = load(SOURCES[asked.table])
    if asked.choice == "clip":
        for clip in (0.35, 0.7, 1.0):
            sys.stdout.write(f"clip {clip:g}: {scored(rows, 1.0, clip=clip):.3f}\n")
        return
    for trust, rounds in (("none", 60), ("none", 240), ("central", 60), ("central", 240)):
        found = scored(rows, 4.0, trust, rounds=rounds)
        sys.stdout.write(f"{rounds} rounds, trust {trust}: {found:.3f}\n")


if __name__ == "__main__":
    main()
