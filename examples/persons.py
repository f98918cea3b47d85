"""Persons, not records: what their records gain, in the shuffle model and with a curator.

    python examples/persons.py slopes [--quick] [--out FOLDER]       # some 5 minutes
    python examples/persons.py extension [--quick] [--out FOLDER]    # some 4 minutes
    python examples/persons.py accelerated [--quick] [--out FOLDER]  # some 7 minutes
    python examples/persons.py logistic --seeds 20                   # some 15 minutes
    python examples/persons.py batches --seeds 10                    # half a minute
    python examples/persons.py gradients                             # seconds

The first three fit excess losses against n and m over three decades, with standard errors: descent
with real shuffle noise; the curator's phases with the centred Lipschitz extension (Ghazi et al.
2023); accelerated phases and, over fewer decades, the one pass (Lowy, Liu and Asi 2024). With
--quick they have fewer sizes and take a minute at most. With --out they write a picture. `logistic`
compares, at epsilon 1 and delta 1e-6, n = 2000 and d = 10, 25 steps of descent with real shuffle
noise: clipped at L, clipped at 0.3 L (DP-FedSGD, tuned by hand), and with a carried center.
`batches` compares accelerated phases that ask all persons in each round with those that ask each
person once. `gradients` counts the gradients of one record that each algorithm takes, beside those
of the theorems.
"""

import argparse
import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from slopes import Fit, draw, mean_and_error

from protocols import (
    AcceleratedPhasedERM,
    Hinge,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    PhasedERM,
    Problem,
    UserLevelGD,
)
from protocols.learning import Baseline
from protocols.problems import Linear, MeanEstimation
from shuffle_sim import Privacy, WeakPrivacyWarning, run
from shuffle_sim.arrays import Floats, dense

PRIVACY = Privacy(1.0, 1e-6)
D = 10
ITEM_SPREAD = 0.1
"""Of records of the curator's studies: small, so that sampling does not hide privacy's errors."""
BATCHES = (Logistic(), 3000, 20), (Logistic(), 20_000, 50), (Hinge(), 3000, 20)
HEIGHTS = (1 / 4, 1 / 2, 1)
"""Means of the linear loss in `accelerated`, over the proven bound: the worst of them counts."""


def table(n: int, m: int, seed: int, d: int = D) -> Floats:
    """Persons (n, m, d + 1) whose labels follow a direction that the ball |theta| <= 3 cuts off."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d)
    direction *= 30 / np.linalg.norm(direction)
    x = rng.normal(size=(n * m, d))
    x /= np.maximum(np.linalg.norm(x, axis=1), 1.0)[:, None]
    odds = 1 / (1 + np.exp(-np.clip(x @ direction, -500, 500)))
    y = np.where(rng.random(n * m) < odds, 1.0, -1.0)
    return np.column_stack([x, y]).reshape(n, m, d + 1)


def best_of(problem: Problem, rows: Floats) -> Floats:
    """The minimiser over the ball, by accelerated descent."""
    theta = ahead = np.zeros(D)
    x, y = rows[:, :-1], rows[:, -1]
    for k in range(150):
        slope = x.T @ (-y / (1 + np.exp(y * (x @ ahead)))) / len(y)
        after = problem.domain.project(ahead - 4 * slope)
        ahead, theta = after + k / (k + 3) * (after - theta), after
    return theta


def logistic(n: int, m: int, seeds: int) -> dict[str, list[float]]:
    """Excess losses on the persons' own objective, a method each, a seed each."""
    problem = Problem(Logistic(), L2Ball(D, 3.0), records=m)
    persons = table(n, m, 0)
    rows = persons.reshape(-1, D + 1)
    least = problem.risk(best_of(problem, rows), rows)
    clipped = dataclasses.replace(problem, norm_bound=0.3 * problem.lipschitz)
    common = {"n": n, "privacy": PRIVACY, "eta": 3.8}
    methods = {
        "clip at L": UserLevelGD.calibrated(problem=problem, center="fixed", rounds=25, **common),
        "clip at 0.3 L": UserLevelGD.calibrated(
            problem=clipped, center="fixed", rounds=25, **common
        ),
        "carried, u = 3": UserLevelGD.calibrated(
            problem=problem, center="carried", deviations=3.0, rounds=27, **common
        ),
        "carried, u = 1": UserLevelGD.calibrated(
            problem=problem, center="carried", deviations=1.0, rounds=27, **common
        ),
    }
    found = {
        name: [
            problem.risk(run(made, persons, seed=seed, fidelity="aggregate").value, rows) - least
            for seed in range(seeds)
        ]
        for name, made in methods.items()
    }
    quiet = run(Baseline(methods["clip at L"], "none"), persons).value
    return found | {"not private": [problem.risk(quiet, rows) - least]}


def batches(loss: Any, n: int, m: int, seeds: int) -> dict[str, tuple[float, list[float]]]:
    """Bounds and excess losses on the persons' own objective, of both kinds of batches."""
    problem = Problem(loss, L2Ball(5, 1.0), records=m)
    persons = table(n, m, 0, 5)
    rows = persons.reshape(-1, 6)
    inside = {"type": "ineq", "fun": lambda w: 1 - w @ w, "jac": lambda w: -2 * w}
    # The rows are so many that a loss with kinks is smooth to this solver, too.
    found = scipy.optimize.minimize(
        lambda w: problem.risk(w, rows),
        np.zeros(5),
        jac=lambda w: dense(problem.loss.gradients(w, rows)).mean(axis=0),
        method="SLSQP",
        constraints=inside,
        options={"ftol": 1e-10},
    )
    least, kinds = found.fun, {}
    for kind in ("all", "once"):
        made = AcceleratedPhasedERM.calibrated(n=n, problem=problem, privacy=PRIVACY, batches=kind)
        gaps = [
            problem.risk(run(made, persons, seed=seed).value, rows) - least for seed in range(seeds)
        ]
        kinds[kind] = made.bound, gaps
    return kinds


def descent(loss: str, center: str, *, n: int, m: int, seeds: int) -> tuple[list[float], float]:
    """Excess losses of `UserLevelGD` on the population, and its bound.

    A person's mean gradient is that of the mean of its records, so persons are drawn as one mean.
    The linear loss has its mean at the height of the noise, and steps go to the border.
    """
    quadratic = loss == "quadratic"
    problem = Problem(MeanEstimation() if quadratic else Linear(), L2Ball(D, 1.0), records=m)
    made = UserLevelGD.calibrated(
        n=n, problem=problem, privacy=PRIVACY, rounds=12, center=center, deviations=3.0,
        eta=0.9 if quadratic else 1e9,
    )  # fmt: skip
    radius = made.centring.spread / (1 - made.centring.contraction)
    noise = math.sqrt(made.mean.squared_noise) / problem.lipschitz * radius
    mean = np.full(D, 0.1) if quadratic else noise * np.eye(D)[0]
    gaps = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed + 1000 * n)
        noisy = 0.5 / math.sqrt(D * m) * rng.normal(size=(n, 1, D))
        rows = mean + noisy if quadratic else _linear(noisy - mean, 0.0)
        gaps.append(_gap(made, rows, mean, seed, quadratic, fidelity="aggregate"))
    return gaps, made.bound


def _linear(x: Floats, label: float = 1.0) -> Floats:
    return np.concatenate([x, np.full((*x.shape[:2], 1), label)], axis=2)


def _gap(made: Any, rows: Floats, mean: Floats, seed: int, quadratic: bool, **how: Any) -> float:
    value = run(made, rows, seed=seed, **how).value
    if quadratic:
        return float((value - mean) @ (value - mean)) / 2
    return float(np.linalg.norm(mean) - mean @ value)


def extension(
    loss: str, center: str, *, n: int, m: int, seeds: int, d: int = 3, epsilon: float = 1.0
) -> tuple[list[float], float]:
    """The same for `PhasedERM`; a fixed center is output perturbation at L.

    The quadratic is -<z, theta> with a ridge of 1, so one phase and several centres serve it. The
    mean of the linear loss is as high as the noise of its mean gradient, 2 gamma sigma sqrt(d)/n.
    """
    ridge = 1.0 if loss == "quadratic" else 0.0
    problem = Problem(Linear(), L2Ball(d, 1.0), records=m, ridge=ridge)
    made = PhasedERM.calibrated(
        n=n,
        problem=problem,
        privacy=Privacy(epsilon, PRIVACY.delta),
        phases=1 if ridge else None,
        releases=3 if center == "carried" else 1,
    )
    gamma = problem.lipschitz
    for _ in range(made.releases - 1):
        gamma = min(problem.lipschitz, made.tau + made.contraction * gamma)
    height = 2 * gamma * made.mechanism.noise_multiplier * math.sqrt(d) / n
    mean = np.full(d, 0.1) if ridge else height * np.eye(d)[0]
    return _drawn(made, mean, n, 1, m, seeds, ridge > 0), made.bound


def _drawn(
    made: Any, mean: Floats, n: int, records: int, m: int, seeds: int, quadratic: bool = False
) -> list[float]:
    """A gap a seed; each of the records of a person is the mean of m/records of them."""
    spread, gaps = ITEM_SPREAD / math.sqrt(len(mean) * m / records), []
    for seed in range(seeds):
        rng = np.random.default_rng(seed + 1000 * n)
        x = spread * rng.normal(size=(n, records, len(mean))) - mean
        gaps.append(_gap(made, _linear(x), mean, seed, quadratic))
    return gaps


def accelerated(
    kind: Any, *, n: int, m: int, seeds: int, d: int = 3, epsilon: float = 1.0
) -> tuple[list[float], float]:
    """The same for a linear loss, at the worst height of its mean.

    `LinearTimePhasedSGD` takes a step a record, so that all records are drawn.
    """
    problem = Problem(Linear(), L2Ball(d, 1.0), records=m)
    made = kind.calibrated(n=n, problem=problem, privacy=Privacy(epsilon, PRIVACY.delta))
    records = m if kind is LinearTimePhasedSGD else 1
    heights = [min(share * made.bound, 0.5) for share in HEIGHTS]
    found = [_drawn(made, height * np.eye(d)[0], n, records, m, seeds) for height in heights]
    return max(found, key=np.mean), made.bound


@dataclass(frozen=True)
class Line:
    """What is fitted: names, what stays, sizes of the axis, and those of a quick study."""

    name: str
    axis: str
    promised: float
    fixed: dict[str, int]
    sizes: Sequence[float]
    quick: Sequence[float]
    excess: Callable[..., tuple[list[float], float]]

    def fit(self, seeds: int, quick: bool) -> Fit:
        """Measure it."""
        sizes = self.quick if quick else self.sizes
        found = [self.excess(**self.fixed, **{self.axis: size}, seeds=seeds) for size in sizes]
        runs, bounds = zip(*found, strict=True)
        return Fit(self.name, self.axis, self.promised, sizes, runs, bounds)


def decades(first: int, count: int = 4) -> list[int]:
    """Sizes, each ten times the one before."""
    return [first * 10**power for power in range(count)]


def half_decades(first: int, count: int = 7) -> list[int]:
    """Sizes, each 10^(1/2) times the one before."""
    return [round(first * 10 ** (power / 2)) for power in range(count)]


DIMENSIONS, EPSILONS = (3, 6, 12, 24), (0.25, 0.5, 1.0, 2.0, 4.0)


def _beside(name: str, power: float, excess: Any, **fixed: int) -> list[Line]:
    """Against d and epsilon: the Gaussian's noise has sqrt(d)/epsilon, to a power."""
    axes = ("d", power / 2, DIMENSIONS), ("epsilon", -power, EPSILONS)
    return [Line(name, axis, slope, fixed, sizes, [], excess) for axis, slope, sizes in axes]


def _centred(measure: Any, in_n: int, in_m: int, first: int) -> list[Line]:
    """Two losses with both centres; a fixed center gains nothing from records."""
    lines = []
    for loss, power in (("quadratic", 2.0), ("linear", 1.0)):
        for center in ("carried", "fixed"):
            name, excess = f"{loss}, {center}", partial(measure, loss, center)
            if center == "carried" or measure is descent:
                lines.append(Line(name, "n", -power, {"m": in_n}, decades(1000), [], excess))
            quick = decades(first) if loss == "quadratic" or measure is extension else []
            promised = -power / 2 if center == "carried" else 0.0
            lines.append(Line(name, "m", promised, {"n": in_m}, decades(first), quick, excess))
            if center == "carried" and measure is extension:
                lines += _beside(name, power, excess, n=in_m, m=in_n)
    return lines


_PHASES, _PASS = (
    partial(accelerated, each) for each in (AcceleratedPhasedERM, LinearTimePhasedSGD)
)
FEW, MANY = half_decades(1000, 3), half_decades(1000)
STUDIES = {
    "slopes": _centred(descent, 400, 4000, 25),
    "extension": _centred(extension, 10_000, 20_000, 100),
    "accelerated": [
        Line("accelerated", "n", -1.0, {"m": 10_000}, MANY, FEW, _PHASES),
        Line("accelerated", "m", -1 / 2, {"n": 20_000}, half_decades(100), decades(100), _PHASES),
        *_beside("accelerated", 1.0, _PHASES, n=20_000, m=10_000),
        Line("linear time", "n", -1 / 2, {"m": 10}, MANY[:4], [500, 1000, 1500], _PASS),
        Line("linear time", "m", -1 / 4, {"n": 1000}, half_decades(10, 4), [], _PASS),
    ],
}


def gradients(n: int, m: int) -> dict[str, float]:
    """Gradients of one record: planned ones, and those of the theorems."""
    problem = Problem(Logistic(), L2Ball(D, 1.0), records=m)
    common = {"n": n, "problem": problem, "privacy": PRIVACY}
    one_pass = LinearTimePhasedSGD.calibrated(**common)
    accelerated = AcceleratedPhasedERM.calibrated(**common)
    carried = UserLevelGD.calibrated(**common)
    return {
        "n m": n * m,
        "LinearTimePhasedSGD": one_pass.gradients,
        "(n m)^(9/8)": (n * m) ** (9 / 8),
        "n^(11/8) m^(5/4)": n ** (11 / 8) * m ** (5 / 4),
        "AcceleratedPhasedERM": accelerated.gradients,
        "UserLevelGD": carried.rounds * n * m,
    }


def study(name: str, seeds: int, quick: bool, out: Path | None) -> None:
    """Print each line as it is fitted, and draw them."""
    fits = []
    for line in STUDIES[name]:
        if line.quick or not quick:
            fits.append(line.fit(seeds, quick))
            print(fits[-1], flush=True)
    if out is not None:
        draw(fits, out / f"persons-{name}.png")


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=(*STUDIES, "logistic", "batches", "gradients"))
    parser.add_argument("--seeds", type=int, help="runs of a point: 20, or 3 of `accelerated`")
    parser.add_argument("--m", type=int, nargs="*", default=[25, 100, 400])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the picture goes")
    given = parser.parse_args()
    warnings.simplefilter("ignore", WeakPrivacyWarning)  # slopes are measured up to n = 1/delta
    seeds = given.seeds or (3 if given.study == "accelerated" else 20)
    if given.study in STUDIES:
        study(given.study, seeds, given.quick, given.out)
    elif given.study == "batches":
        for loss, n, m in BATCHES[: 1 if given.quick else None]:
            for kind, (bound, gaps) in batches(loss, n, m, seeds).items():
                mean, error = mean_and_error(gaps)
                name = f"{type(loss).__name__}, n = {n:,}, m = {m}, {kind}"
                print(f"{name}: bound {bound:.2g}, measured {mean:.2g} ± {error:.1g}", flush=True)
    elif given.study == "gradients":
        for name, count in gradients(given.n, given.m[0]).items():
            print(f"{name}: {count:.3g}")
    else:
        for m in given.m:
            for name, gaps in logistic(given.n, m, seeds).items():
                mean, error = mean_and_error(gaps)
                print(f"m = {m}, {name}: {mean:.2e} +- {2 * error:.1e}", flush=True)


if __name__ == "__main__":
    main()
