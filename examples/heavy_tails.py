"""Heavy tails under pure privacy: excess risks of all methods, slopes, pilot, and a real table.

    python examples/heavy_tails.py --study slopes [--quick] [--out FOLDER]
    python examples/heavy_tails.py --study excess [--quick] --most 100000
    python examples/heavy_tails.py --study pilot --runs 10
    python examples/heavy_tails.py --study table --runs 20 --file randhie.csv

The table is the RAND health insurance experiment: 20,190 person-years and their visits to a doctor,
0 to 77 of them. It ships in the package statsmodels (datasets/randhie/randhie.csv).

`slopes` is the rate of the paper on its hard instance, against n, d and epsilon: 100 runs a point,
in ten seconds, or 20 with --quick. Others have 20 runs, or 4. Every study is seeded and prints a
table, of medians and 90 % points where it does not say another thing. A method whose parameters
were tuned on the true risk is labelled so: it can not be had in practice.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from slopes import Fit, draw

from protocols import (
    Absolute,
    GaussianGD,
    HeavyTailedERM,
    L2Ball,
    LinearLoss,
    Logistic,
    Moments,
    PopLocalize,
    Problem,
    PureSGD,
    Squared,
)
from protocols.problems.instances import RareDirection
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.protocol.release import CentralAlgorithm

PURE, APPROXIMATE = Privacy(1.0), Privacy(1.0, 1e-6)
D, RADIUS, MOMENTS = 5, 3.0, Moments(4, 1.45, 1.0)
TUNED = "oracle-tuned"


# Slopes on the hard instance


def rare(instance: RareDirection, algorithm: CentralAlgorithm[Any], seed: int) -> float:
    """The excess of one run: a cohort's rows are a binomial number of copies of one point."""
    rng, state = np.random.default_rng(seed), algorithm.init()
    while (release := algorithm.plan(state)) is not None:
        copies = int(rng.binomial(release.cohort.size, instance.share))

        def total(part: Callable[[Floats], Floats], copies: int = copies) -> Floats:
            return copies * part(instance.row)

        value = release.statistic(total, release.cohort.size)
        released = release.mechanism.sample(value, release.sensitivity.value, rng)
        state = algorithm.update(state, released)
    return instance.excess(algorithm.result(state))


def phases(instance: RareDirection) -> CentralAlgorithm[Any]:
    """Section 4 of the sheet: planned for the instance's moments."""
    return HeavyTailedERM.calibrated(
        n=instance.n,
        problem=instance.problem,
        privacy=Privacy(instance.epsilon),
        moments=instance.moments,
    )


def noisy_sgd(instance: RareDirection) -> CentralAlgorithm[Any]:
    """Ten rounds of noisy clipped SGD, without clipping the instance."""
    return PureSGD.calibrated(
        n=instance.n, problem=instance.problem, privacy=PURE, moments=instance.moments,
        rounds=10, clip=instance.size,
    )  # fmt: skip


SIZES = (2_000, 20_000, 200_000, 2_000_000)
AXES: dict[str, tuple[tuple[float, ...], float]] = {
    "n": (SIZES, -1.0),
    "d": ((4, 8, 16, 32, 64), 1.0),
    "epsilon": ((0.25, 0.5, 1.0, 2.0, 4.0), -1.0),
}
"""Values about n = 200,000, d = 10 and epsilon = 1; and the power of p = 16 d/(n epsilon)."""


def instances(k: float, axis: str, values: Sequence[float]) -> list[RareDirection]:
    """By value of the axis."""
    middle = RareDirection(200_000, 10, PURE.epsilon, k)
    return [replace(middle, **{axis: value}) for value in values]


def risks(instance: RareDirection, runs: int, make: Callable[[RareDirection], Any]) -> list[float]:
    """Excess of each run."""
    algorithm = make(instance)
    return [rare(instance, algorithm, 1000 * seed + instance.n) for seed in range(runs)]


def slopes(runs: int, sizes: tuple[int, ...] = SIZES, out: Path | None = None) -> None:
    """Mean excess over p a against each axis, and the slope of the excess itself with its error."""
    fits = []
    for axis, (values, power) in (AXES | {"n": (sizes, -1.0)}).items():
        heads = "".join(f"{value:>10}" for value in values)
        print(f"{'method':10}{'k':>5}  {heads}     slope in {axis:7}   promised")
        for name, make in (("phases", phases), ("noisy SGD", noisy_sgd)):
            if make is noisy_sgd and axis != "n":
                continue  # it is nowhere optimal
            for k in (2.0, 4.0, math.inf):
                there = instances(k, axis, values)
                found = [risks(each, runs, make) for each in there]
                fits.append(Fit(f"{name}, k = {k:g}", axis, power * (1 - 1 / k), values, found))
                shares = np.divide(fits[-1].points[0], [each.range for each in there])
                slope, error = fits[-1].slope
                cells = "".join(f"{each:10.3f}" for each in shares)
                promised = f"{fits[-1].theory:8.2f}"
                print(
                    f"{name:10}{k:5g}  {cells}  {slope:8.3f} ± {error:.3f} {promised}", flush=True
                )
    if out is not None:
        draw(fits, out / "heavy-tails-slopes.png")


# Excess of all methods


def people(kind: str, n: int, seed: int, index: float = 5.0) -> Floats:
    """Features of Student's t with E ||x||^2 = 1, and labels of a model of norm 2."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(index, size=(n, D)) / math.sqrt(D * index / (index - 2))
    margins = 2 / math.sqrt(D) * x.sum(axis=1)
    if kind == "logistic":
        labels = np.where(rng.random(n) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)
    else:
        labels = margins + 0.3 * rng.standard_t(3, size=n)
    return np.column_stack([x, labels])


LOSSES: dict[str, LinearLoss] = {
    "logistic": Logistic(math.inf),
    "absolute": Absolute(labels=None, features=math.inf),
}


class Instance:
    """A loss, its test people and the risk of the best model."""

    def __init__(self, kind: str, index: float = 5.0) -> None:
        self.kind, self.index = kind, index
        self.problem = Problem(LOSSES[kind], L2Ball(D, RADIUS), norm_bound=math.inf)
        self.test = people(kind, 200_000, 10**6, index)
        self.best = self.problem.risk(np.full(D, 2 / math.sqrt(D)), self.test)

    def excess(self, algorithm: CentralAlgorithm[Any], n: int, seed: int) -> float:
        rows = people(self.kind, n, seed, self.index)
        return self.problem.risk(run(algorithm, rows, seed=seed).value, self.test) - self.best

    @property
    def trivial(self) -> float:
        return self.problem.risk(np.zeros(D), self.test) - self.best


def methods(where: Instance, n: int) -> Iterator[tuple[str, Callable[[], CentralAlgorithm[Any]]]]:
    """Names and how to make them; comparators of the sheet."""
    common: dict[str, Any] = {"n": n, "problem": where.problem, "moments": MOMENTS}
    pure = common | {"privacy": PURE}
    yield "phases, planned", partial(HeavyTailedERM.calibrated, **pure)
    yield "one phase, planned", partial(HeavyTailedERM.calibrated, phases=1, **pure)
    yield "phases, discrete noise", partial(HeavyTailedERM.calibrated, noise="discrete", **pure)
    yield "paper, J = 1", partial(PopLocalize.paper, **pure)
    yield "paper, J = 1, tight noise", partial(PopLocalize.calibrated, **pure)
    yield "paper, J = 53", partial(PopLocalize.paper, blocks=53, **pure)
    yield "noisy SGD, pure", partial(PureSGD.calibrated, **pure)
    yield "GD, (1, 1e-6)", partial(GaussianGD.calibrated, **common, privacy=APPROXIMATE)
    yield f"noisy SGD, pure, {TUNED}", lambda: tuned(where, n, PureSGD, pure)
    approximate = common | {"privacy": APPROXIMATE}
    yield f"GD, (1, 1e-6), {TUNED}", lambda: tuned(where, n, GaussianGD, approximate)


def tuned(where: Instance, n: int, kind: Any, common: dict[str, Any]) -> CentralAlgorithm[Any]:
    """The best of 36 rounds, clips and steps on the true risk of two seeds."""
    tried = [
        kind.calibrated(rounds=t, clip=clip, eta=eta, **common)
        for t, clip, eta in itertools.product((3, 5, 10, 30), (0.5, 1.0, 2.0), (0.5, 2.0, 8.0))
    ]
    risks = [np.mean([where.excess(each, n, 500 + seed) for seed in range(2)]) for each in tried]
    chosen: CentralAlgorithm[Any] = tried[int(np.argmin(risks))]
    return chosen


def spread(found: list[float]) -> str:
    """Median and 90 % point."""
    return f"{np.median(found):9.4f} {np.quantile(found, 0.9):8.4f}"


def excess(runs: int, most: int) -> None:
    """Medians and 90 % points of the excess, by loss, method and n."""
    sizes = [n for n in (10**3, 10**4, 10**5) if n <= most]
    for kind in LOSSES:
        where = Instance(kind)
        print(f"{kind}, trivial {where.trivial:.3f}: median and 90 % point of {runs} seeds")
        print(f"{'':34}" + "".join(f"{'n = ' + str(n):>18}" for n in sizes))
        table: dict[str, list[str]] = {}
        for n in sizes:
            for name, make in methods(where, n):
                try:
                    made = make()
                    found = [where.excess(made, n, seed) for seed in range(runs)]
                    cell = spread(found)
                    bound = getattr(made, "bound", math.inf)
                    assert max(found) <= bound, (name, n, max(found), bound)
                except ParameterError:
                    cell = f"{'-':>18}"
                table.setdefault(name, []).append(cell)
        for name, cells in table.items():
            print(f"{name:34}" + "".join(cells), flush=True)


def pilot(runs: int) -> None:
    """Known against unknown moments at n = 5e4."""
    n = 50_000
    print(f"{'index':>6}{'trivial':>9}{'known moments':>19}{'pilot':>19}   ratio of medians")
    for index in (2.2, 3.0, 5.0, 30.0):
        where = Instance("logistic", index)
        norms = np.linalg.norm(where.test[:, :-1], axis=1)
        k = min(4.0, index - 0.1)
        moments = [float((norms**power).mean() ** (1 / power)) for power in (k, 2.0, 1.0)]
        common: dict[str, Any] = {"n": n, "problem": where.problem, "privacy": PURE}
        cells = []
        for given in ({"moments": Moments(k, *moments)}, {"pilot": True}):
            made = HeavyTailedERM.calibrated(**common, **given)
            cells.append([where.excess(made, n, seed) for seed in range(runs)])
        ratio = float(np.median(cells[1]) / np.median(cells[0]))
        shown = " ".join(spread(each) for each in cells)
        print(f"{index:6g}{where.trivial:9.4f} {shown} {ratio:10.2f}", flush=True)


# A real table

UNITS = np.array([5.0, 1.0, 7.0, 8.0, 1.0, 20.0, 1.0, 1.0, 1.0])
"""Public units of the features of the health table, set without a look at the data."""


def visits(path: Path) -> Floats:
    """Features, a constant, and visits in units of five."""
    raw = np.loadtxt(path, delimiter=",", skiprows=1)
    x = np.column_stack([raw[:, 1:] / UNITS, np.ones(len(raw))])
    return np.column_stack([x, raw[:, 0] / 5])


def clipped_rows(rows: Floats, features: float, labels: float) -> Floats:
    """Rows shortened to a public bound, and labels clipped to another."""
    x, y = rows[:, :-1], rows[:, -1]
    shrink = features / np.maximum(np.linalg.norm(x, axis=1), features)
    return np.column_stack([x * shrink[:, None], np.clip(y, -labels, labels)])


def table(runs: int, path: Path) -> None:
    """Held-out squared loss of visits, by method; mean over random splits, and the paired gain over
    a constant with its 95 % interval.
    """
    rows, d, radius, bound = visits(path), 10, 2.0, 3.0
    n = round(0.8 * len(rows))
    loose = Problem(Squared(math.inf), L2Ball(d, radius), norm_bound=math.inf)
    common: dict[str, Any] = {"n": n, "privacy": PURE}
    made: dict[str, tuple[CentralAlgorithm[Any] | None, float]] = {
        "phases, pilot, pure": (
            HeavyTailedERM.calibrated(problem=loose, pilot=True, **common), math.inf
        ),
    }  # fmt: skip
    for most in (15.4, 2.0, 0.6):
        tight = Problem(Squared(bound, most), L2Ball(d, radius))
        name = f"labels clipped to {most:g}"
        made[f"phases, {name}, pure"] = HeavyTailedERM.calibrated(problem=tight, **common), most
        made[f"noisy SGD, {name}, pure"] = PureSGD.calibrated(problem=tight, **common), most
        made[f"GD, {name}, (1, 1e-6)"] = (
            GaussianGD.calibrated(problem=tight, n=n, privacy=APPROXIMATE), most
        )  # fmt: skip
    made["not private"] = None, math.inf
    found: dict[str, list[float]] = {name: [] for name in ("constant", *made)}
    for seed in range(runs):
        order = np.random.default_rng(seed).permutation(len(rows))
        train, test = rows[order[:n]], rows[order[n:]]
        found["constant"].append(float(((test[:, -1] - train[:, -1].mean()) ** 2).mean() / 2))
        for name, (algorithm, most) in made.items():
            if algorithm is None:
                theta = np.linalg.lstsq(train[:, :-1], train[:, -1], rcond=None)[0]
            else:
                kept = train if most == math.inf else clipped_rows(train, bound, most)
                theta = run(algorithm, kept, seed=seed).value
            found[name].append(float(loose.loss.values(theta, test).mean()))
    print(f"{'':40}{'loss':>8}   less than a constant's, on the same splits")
    for name, losses in found.items():
        gains = np.subtract(found["constant"], losses)
        half = 1.96 * float(np.std(gains, ddof=1)) / math.sqrt(runs)
        print(f"{name:40}{np.mean(losses):8.4f} {gains.mean():10.4f} ± {half:.4f}")


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", choices=("slopes", "excess", "pilot", "table"), default="slopes")
    parser.add_argument("--quick", action="store_true", help="a fifth of the runs")
    parser.add_argument("--runs", type=int, help="seeds: 100 of `slopes`, else 20")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where `slopes` draws")
    parser.add_argument("--most", type=int, default=100_000, help="largest n of `excess`")
    parser.add_argument("--file", type=Path, help="randhie.csv, for `table`")
    asked = parser.parse_args()
    usual = 100 if asked.study == "slopes" else 20
    runs = asked.runs or (usual // 5 if asked.quick else usual)
    if asked.study == "slopes":
        slopes(runs, out=asked.out)
    elif asked.study == "excess":
        excess(runs, asked.most)
    elif asked.study == "pilot":
        pilot(runs)
    elif asked.file is None:
        parser.error("--file is missing: statsmodels has it in datasets/randhie/randhie.csv")
    else:
        table(runs, asked.file)


if __name__ == "__main__":
    main()
