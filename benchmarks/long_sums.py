"""Sums of few bits and of least error: what they err, over what is stated, and what they send.

    python -m benchmarks.long_sums [bits] [million] [numbers] [model]

bits: 16,384 coordinates, by one bit each and by buckets. million: a million coordinates, literal,
in process and on Ray; it takes an hour of a core. numbers: one number, by floods, of 10^4 to 10^7
users. model: a softmax of 10^5 parameters by carries and by buckets, in minutes. Without names, or
as one of all benchmarks, all of it.
"""

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.clock import best
from protocols import CarryVectorSum, LaplaceScalarSum, ShuffleSGD, SparseVectorSum
from protocols.problems.domains import L2Ball
from protocols.problems.multiclass import Softmax
from protocols.problems.problem import Problem
from protocols.shuffle.practice import practical
from protocols.sums.planned import PlannedVectorSum
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Generated, Population
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Tally

N, POINT, SMALL = 10_000, Privacy(1.0, 1e-6), Privacy(1.0, 1e-8)
MILLION = {2.5: 12_000, 1.65: 70_000}
"""Mean square errors over the central Gaussian's, and the most bits of a user."""
RUNS, DRAWS, FEW = 8, 40_000, 2_000
RATIO = 1.3
"""Noise of buckets over the central Gaussian's, in training."""


class Distinct(Population):
    """User i has a one at coordinate i, from the start again beyond the last."""

    def __init__(self, users: int, d: int) -> None:
        """So many rows of d numbers."""
        self._users, self.d = users, d

    users = property(lambda self: self._users)

    def rows(self, start: int, stop: int) -> Floats:
        """Made when they are asked for."""
        found = np.zeros((stop - start, self.d))
        found[np.arange(stop - start), np.arange(start, stop) % self.d] = 1.0
        return found

    def width(self, user: int) -> int:
        """Without making a row."""
        return self.d

    def content(self, start: int, stop: int) -> bytes:
        """They are always the same."""
        return b""

    def total(self) -> Floats:
        """The sum of all."""
        return np.bincount(np.arange(self.users) % self.d, minlength=self.d).astype(float)


def squares(made: PlannedVectorSum, runs: int, **how: Any) -> tuple[dict[str, float], Floats]:
    """Mean square error over what is stated, and over the central Gaussian's; the last sum."""
    data = Distinct(made.n, made.d)
    seen, start = [], perf_counter()
    # A block of users holds its rows, which are worked on faster where they stay in a cache.
    execution = Execution(block_size=max(1, (1 << 20) // made.d))
    for seed in range(runs):
        result = run(made, data, seed=seed, execution=execution, **how)
        seen.append(float(np.mean((result.value - data.total()) ** 2)))
    central = 2 * SumSpec(made.n, made.d, POINT).central
    # On these data: all rows are equally long, and equally flat when they are rotated.
    stated = made.n * float(made.randomizer.variance(1, data.rows(0, 1))[0])
    found = {
        "bits": result.costs.payload_bits_per_user,
        "messages": result.costs.messages_per_user,
        "square_over_stated": float(np.mean(seen)) / stated,
        "square_over_central": float(np.mean(seen)) / central**2,
        "epsilon": result.privacy.epsilon,
        "seconds": perf_counter() - start,
    }
    return found, result.value


def bits(n: int = N, d: int = 1 << 14) -> dict[str, Any]:
    """One bit a coordinate, and buckets of four; with 131,072 errors the mean is within 0.4 %."""
    given: dict[str, Any] = {"n": n, "d": d, "privacy": POINT, "rotation": 0}
    sums = {
        "one bit": CarryVectorSum.calibrated(max_bits=1, **given),
        "buckets": SparseVectorSum.calibrated(max_bits=0.75, **given),
    }
    return {name: squares(made, RUNS, fidelity="aggregate")[0] for name, made in sums.items()}


def million(n: int = N, d: int = 10**6, **how: Any) -> dict[str, Any]:
    """Every message is sent and permuted; Ray's two actors give the same bits."""
    found = {}
    for wish, most in MILLION.items():
        made = SparseVectorSum.calibrated(n=n, d=d, privacy=POINT, noise_ratio=math.sqrt(wish))
        given = how | {"fidelity": "literal"}
        here, value = squares(made, 1, **given)
        # A round takes minutes here, and beside other work more than the usual deadline.
        there, other = squares(made, 1, runtime="ray", workers=2, round_timeout=3600.0, **given)
        assert np.array_equal(value, other)
        assert here["bits"] <= most
        biased = (
            here["square_over_central"]
            + SumSpec(n, d, POINT, rotation=0).bias_ratio(made.randomizer.span) ** 2
        )
        found[f"{wish:g}"] = here | {"with_bias": biased, "seconds_on_ray": there["seconds"]}
    return found


def numbers(users: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7)) -> dict[str, Any]:
    """The noise of all users, as aggregate rounds draw it; the rounding counts n/4 steps^2."""
    found = {}
    for n in users:
        made = LaplaceScalarSum.calibrated(n=n, privacy=SMALL)
        randomizer, rng = made.randomizer, np.random.default_rng(n)
        places = np.arange(randomizer.worth.size)
        rounding = n / 4 / randomizer.digits.steps**2
        drawn = np.array(
            [
                randomizer.estimate(Tally.counted(places, randomizer._drawn(n, rng)[0], reports=n))[
                    0
                ]
                for _ in range(DRAWS)
            ]
        )
        square = float(np.mean(drawn**2)) + rounding
        one = run(made, np.full(n, 0.3), fidelity="aggregate", seed=1)
        few = np.full(FEW, 0.3)
        alone = best(partial(Randomizer.reports, randomizer, few, rng))
        at_once = best(partial(randomizer.reports, few, rng))
        found[f"{n:.0e}"] = {
            "error_over_laplace": math.sqrt(square / 2),
            "square_over_stated": square / made.standard_error**2,
            "bits": randomizer.usual_bits,
            "one_run_in_standard_errors": abs(one.value - 0.3 * n) / made.standard_error,
            "epsilon": one.privacy.epsilon,
            "one_by_one_over_at_once": alone / at_once,
        }
    return found


def labelled(rng: np.random.Generator, count: int, *, features: int, classes: int) -> Floats:
    """Features on the unit sphere near the middle of their class, and the class."""
    middles = np.random.default_rng(0).normal(size=(classes, features))
    labels = rng.integers(classes, size=count)
    x = middles[labels] + rng.normal(size=(count, features))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found: Floats = np.c_[x, labels]
    return found


def model(n: int = 100_000, features: int = 1000, classes: int = 100) -> dict[str, Any]:
    """Held-out loss and bits of a user; every user answers once, half of them in a round."""
    problem = Problem(Softmax(classes), L2Ball(features * classes, 10.0))
    rows = partial(labelled, features=features, classes=classes)
    unseen, found = rows(np.random.default_rng(1), 5_000), {}
    ways: dict[str, dict[str, Any]] = {
        "carries": {"encoding": "carry"},
        "carries, rotated": {"encoding": "carry", "rotation": 0},
        "buckets": {"encoding": "buckets", "rotation": 0, "noise_ratio": RATIO},
    }
    for name, how in ways.items():
        made = practical(ShuffleSGD, n=n, problem=problem, privacy=POINT, batch=n // 2, **how)
        execution = Execution(block_size=max(1, (1 << 23) // problem.d))
        start = perf_counter()
        result = run(made, Generated(n, rows), fidelity="aggregate", execution=execution, seed=1)
        found[name] = {
            "bits": result.costs.payload_bits_per_user,
            "held_out_loss": float(problem.loss.values(result.value, unseen).mean()),
            "epsilon": result.privacy.epsilon,
            "seconds": perf_counter() - start,
        }
    found["untrained"] = {"held_out_loss": math.log(classes)}
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "bits": bits,
    "million": million,
    "numbers": numbers,
    "model": model,
}


def measure(*names: str) -> dict[str, Any]:
    """The parts, by name."""
    return {name: PARTS[name]() for name in names or PARTS}


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:]), indent=2))
