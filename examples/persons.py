"""Persons, not records: what clipping around the last release gains, in the shuffle model.

    python examples/persons.py logistic --seeds 20      # some 15 minutes
    python examples/persons.py slopes                   # some 5 minutes
    python examples/persons.py slopes --quick           # in m alone, 3 seconds
    python examples/persons.py extension                # some 10 minutes
    python examples/persons.py extension --quick        # in m alone, 30 seconds
    python examples/persons.py gradients                # seconds

`logistic` compares, at epsilon 1 and delta 1e-6, n = 2000 and d = 10, 25 steps of descent with real
shuffle noise: clipped at L, clipped at 0.3 L (DP-FedSGD, tuned by hand), and with a carried center.
`slopes` fits the excess loss of mean estimation, and of a linear loss on the unit ball, over three
decades in n and in m. `extension` does so for the curator's phases with the centred Lipschitz
extension. `gradients` counts the gradients of one record that each algorithm takes, beside those of
the theorems.
"""

import argparse
import dataclasses
import math

import numpy as np

from protocols import (
    AcceleratedPhasedERM,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    PhasedERM,
    Problem,
    UserLevelGD,
)
from protocols.learning import Baseline
from protocols.problems import Linear, MeanEstimation
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats

PRIVACY = Privacy(1.0, 1e-6)
D = 10
ITEM_SPREAD = 0.1
"""Of records in `extension`: small, so that sampling errors do not hide those of privacy."""
EXTENSION = {
    ("quadratic", "carried", "n"): [1000, 10_000, 100_000, 1_000_000],
    ("quadratic", "carried", "m"): [100, 1000, 10_000, 100_000],
    ("edge", "carried", "n"): [1000, 10_000, 100_000, 1_000_000],
    ("edge", "carried", "m"): [100, 1000, 10_000, 100_000],
    ("quadratic", "fixed", "m"): [100, 1000, 10_000, 100_000],
    ("edge", "fixed", "m"): [100, 1000, 10_000, 100_000],
}
"""Sizes: n at m = 10,000, and m at n = 20,000."""


def table(n: int, m: int, seed: int) -> Floats:
    """Persons (n, m, D + 1) whose labels follow a direction that the ball |theta| <= 3 cuts off."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=D)
    direction *= 30 / np.linalg.norm(direction)
    x = rng.normal(size=(n * m, D))
    x /= np.maximum(np.linalg.norm(x, axis=1), 1.0)[:, None]
    odds = 1 / (1 + np.exp(-np.clip(x @ direction, -500, 500)))
    y = np.where(rng.random(n * m) < odds, 1.0, -1.0)
    return np.column_stack([x, y]).reshape(n, m, D + 1)


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


def excess(
    loss: str, n: int, m: int, center: str, seeds: int, rounds: int = 12
) -> tuple[float, float]:
    """Mean excess on the population, and its standard error.

    A person's mean gradient is that of the mean of its records, so persons are drawn as one mean.
    """
    gaps = []
    if loss == "quadratic":
        problem = Problem(MeanEstimation(), L2Ball(D, 1.0), records=m)
        eta = 0.9
    else:
        problem = Problem(Linear(), L2Ball(D, 1.0), records=m)
        eta = 1e9  # each step goes to the border, along the released gradient
    made = UserLevelGD.calibrated(
        n=n, problem=problem, privacy=PRIVACY, rounds=rounds, center=center, deviations=3.0, eta=eta
    )
    radius = made.centring.spread / (1 - made.centring.contraction)
    noise = math.sqrt(made.mean.squared_noise) / problem.lipschitz * radius
    for seed in range(seeds):
        rng = np.random.default_rng(seed + 1000 * n)
        spread = 0.5 / math.sqrt(D * m)
        if loss == "quadratic":
            mean = np.full(D, 0.1)
            rows = mean + spread * rng.normal(size=(n, 1, D))
            value = run(made, rows, seed=seed, fidelity="aggregate").value
            gaps.append(float((value - mean) @ (value - mean)) / 2)
            continue
        mean = noise * np.eye(D)[0]
        x = -mean + spread * rng.normal(size=(n, 1, D))
        rows = np.concatenate([x, np.zeros((n, 1, 1))], axis=2)
        value = run(made, rows, seed=seed, fidelity="aggregate").value
        gaps.append(float(np.linalg.norm(mean) - mean @ value))
    return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / math.sqrt(seeds))


def extension(
    loss: str, n: int, m: int, seeds: int, center: str = "carried"
) -> tuple[float, float]:
    """The same for `PhasedERM`, over 3 parameters; a fixed center is output perturbation at L.

    The quadratic is -<z, theta> with a ridge of 1, so one phase and several centres serve it. The
    mean of the linear loss is as high as the noise of its mean gradient, 2 gamma sigma sqrt(d)/n.
    """
    d, spread = 3, ITEM_SPREAD / math.sqrt(3 * m)
    ridge = 1.0 if loss == "quadratic" else 0.0
    problem = Problem(Linear(), L2Ball(d, 1.0), records=m, ridge=ridge)
    made = PhasedERM.calibrated(
        n=n,
        problem=problem,
        privacy=PRIVACY,
        phases=1 if ridge else None,
        releases=3 if center == "carried" else 1,
    )
    gamma = problem.lipschitz
    for _ in range(made.releases - 1):
        gamma = min(problem.lipschitz, made.tau + made.contraction * gamma)
    height = 2 * gamma * made.mechanism.noise_multiplier * math.sqrt(d) / n
    mean = np.full(d, 0.1) if ridge else height * np.eye(d)[0]
    gaps = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed + 1000 * n)
        x = -mean + spread * rng.normal(size=(n, 1, d))
        value = run(made, np.concatenate([x, np.ones((n, 1, 1))], axis=2), seed=seed).value
        if ridge:
            gaps.append(float((value - mean) @ (value - mean)) / 2)
        else:
            gaps.append(float(np.linalg.norm(mean) - mean @ value))
    return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / math.sqrt(seeds))


def extension_slope(loss: str, center: str, axis: str, seeds: int) -> tuple[list[float], float]:
    """Mean excesses over three decades, and the slope."""
    sizes = EXTENSION[loss, center, axis]
    pairs = [(size, 10_000) if axis == "n" else (20_000, size) for size in sizes]
    gaps = [extension(loss, n, m, seeds, center)[0] for n, m in pairs]
    return gaps, slope(sizes, gaps)


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


def slope(sizes: list[int], gaps: list[float]) -> float:
    """Of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(gaps), 1)[0])


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("logistic", "slopes", "extension", "gradients"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--m", type=int, nargs="*", default=[25, 100, 400])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="slopes: of the quadratic, in m")
    given = parser.parse_args()
    if given.study == "logistic":
        for m in given.m:
            for name, gaps in logistic(given.n, m, given.seeds).items():
                error = np.std(gaps, ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
                print(f"m = {m}, {name}: {np.mean(gaps):.2e} +- {2 * error:.1e}", flush=True)
        return
    if given.study == "gradients":
        for name, count in gradients(given.n, given.m[0]).items():
            print(f"{name}: {count:.3g}")
        return
    if given.study == "extension":
        for loss, center, axis in EXTENSION:
            if axis == "m" or not given.quick:
                gaps, found = extension_slope(loss, center, axis, given.seeds)
                shown = ", ".join(f"{gap:.2e}" for gap in gaps)
                print(f"{loss}, {center}, in {axis}: slope {found:.2f} ({shown})", flush=True)
        return
    for loss in ("quadratic",) if given.quick else ("quadratic", "edge"):
        for center in ("carried", "fixed"):
            for axis in ("m",) if given.quick else ("n", "m"):
                sizes = (
                    [1000, 10_000, 100_000, 1_000_000] if axis == "n" else [25, 250, 2500, 25_000]
                )
                pairs = [(size, 400) if axis == "n" else (4000, size) for size in sizes]
                gaps = [excess(loss, n, m, center, given.seeds)[0] for n, m in pairs]
                shown = ", ".join(f"{gap:.2e}" for gap in gaps)
                found = slope(sizes, gaps)
                print(f"{loss}, {center}, in {axis}: slope {found:.2f} ({shown})", flush=True)


if __name__ == "__main__":
    main()
