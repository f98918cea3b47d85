"""The rates of Table 1 of Cheu et al. (2022), measured: excess loss against n, d and epsilon.

    python examples/rates.py --out rates            (eight minutes of two cores: n, d and epsilon)
    python examples/rates.py --quick --out rates    (a minute: half a decade of n)
    python examples/rates.py --all --out rates      (an hour: all of n, and losses that people use)

Real runs of the protocols at aggregate fidelity. Writes rates.json and pictures into the folder,
each whole or not at all. With --all it ends with status 1 if a hard instance's slope against n is
farther than 0.1 from theory over three decades.
"""

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rates_studies import DELTA, HARD, REALISTIC, Method, unit_noise
from rich.console import Console
from rich.progress import track
from rich.table import Table
from slopes import fit, mean_and_error

from protocols.learning.baselines import Baseline
from shuffle_sim import Execution, Privacy, WeakPrivacyWarning, run
from shuffle_sim.sampling.kernels import available

TOLERANCE = 0.1
"""Of the slopes against n, over three decades."""

AXES = ("n", "d", "epsilon")
_METHODS = {method.name: method for method in (*HARD, *REALISTIC)}


@dataclass(frozen=True)
class Point:
    """What is run `seeds` times."""

    method: str
    axis: str
    n: int
    d: int
    epsilon: float
    seeds: int


@dataclass(frozen=True)
class Measured:
    """What came of a point.

    Attributes:
        point: the point.
        bound: proven.
        rounds: T.
        noise: A.
        excess: exact excess population loss of every run.
        sampling: the same with the same steps and users, without privacy's noise; none where users
        are all alike.
    """

    point: Point
    bound: float
    rounds: int
    noise: float
    excess: list[float]
    sampling: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Mean excess."""
        return mean_and_error(self.excess)[0]

    @property
    def error(self) -> float:
        """Its standard error."""
        return mean_and_error(self.excess)[1]


@dataclass(frozen=True)
class Slope:
    """A fit of log excess against the log of an axis.

    Attributes:
        method: name.
        axis: n, d or epsilon.
        theory: Table 1's.
        exact: theory with the noise that the accountant really asks for in place of
        sqrt(d)/epsilon.
        slope: fitted by least squares.
        error: its standard error, from the runs' scatter.
        steps: slopes between neighbouring points.
        points: what was fitted.
    """

    method: str
    axis: str
    theory: float
    exact: float
    slope: float
    error: float
    steps: list[float]
    points: list[Measured]

    @property
    def missed(self) -> bool:
        """Whether a hard instance's slope against n over three decades is off."""
        whole = math.log10(self.points[-1].point.n / self.points[0].point.n) > 2.99
        hard = any(self.method == method.name for method in HARD)
        return self.axis == "n" and hard and whole and abs(self.slope - self.theory) > TOLERANCE


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        decades: of n, at most.
        runs: share of a method's runs along n; two at least.
        beside: the same along d and epsilon.
    """

    decades: float = math.inf
    runs: float = 1.0
    beside: float = 1.0


WHOLE, USUAL, QUICK = Size(), Size(2.0, 1.0, 0.5), Size(0.5, 0.0)


def points_of(method: Method, axis: str, size: Size = WHOLE) -> list[Point]:
    """Half decades of n from the method's start; doublings of d and of epsilon at its middle."""
    seeds = max(2, round((size.runs if axis == "n" else size.beside) * method.seeds))
    base = Point(method.name, axis, method.middle, 10, method.epsilon, seeds)
    if axis == "n":
        steps = range(round(2 * min(size.decades, method.decades)) + 1)
        return [replace(base, n=round(method.start * 10 ** (k / 2))) for k in steps]
    if axis == "d":
        return [replace(base, d=d) for d in (4, 8, 16, 32, 64)]
    return [replace(base, epsilon=method.epsilon * 2**k) for k in range(-2, 3)]


def measure(point: Point) -> Measured:
    """Run the protocol on fresh users and noise for every seed."""
    method, privacy = _METHODS[point.method], Privacy(point.epsilon, DELTA)
    instance = method.instance(point.d)
    protocol: Any = method.protocol(point.n, instance.problem, privacy)
    # Small batches: each reads its block, and all blocks are looked through; neither should
    # dominate.
    block = None if method.interactive else 8 * math.isqrt(point.n)
    # Where all users answer in thousands of rounds, compiled loops pay for their start.
    kernel = available(None, math.inf) if method.interactive else None
    how = Execution(block_size=block, kernel=kernel)
    excess, sampling = [], []
    for seed in range(point.seeds):
        users = instance.population(point.n, seed)
        done = run(protocol, users, fidelity="aggregate", seed=seed, execution=how)
        excess.append(instance.excess(done.value))
        if len(instance.atoms) > 1:
            sampling.append(
                instance.excess(run(Baseline(protocol, "none"), users, seed=seed).value)
            )
    return Measured(
        point, protocol.bound, protocol.rounds, unit_noise(point.d, privacy), excess, sampling
    )


def fitted(method: Method, axis: str, measured: Sequence[Measured]) -> Slope:
    """The slopes of one method along one axis."""
    sizes = [getattr(each.point, axis) for each in measured]
    means = [each.mean for each in measured]
    slope, error = fit(sizes, means, [each.error for each in measured])
    theory = {"n": -method.power, "d": method.power / 2, "epsilon": -method.power}[axis]
    noise = [(each.noise / each.point.n) ** method.power for each in measured]
    return Slope(
        method.name,
        axis,
        theory,
        float(fit(sizes, noise, np.zeros(len(noise)))[0]),
        float(slope),
        float(error),
        (np.diff(np.log(means)) / np.diff(np.log(sizes))).tolist(),
        list(measured),
    )


def study(
    wanted: Sequence[tuple[Method, str]],
    *,
    size: Size = WHOLE,
    workers: int = 1,
    show: bool = False,
) -> list[Slope]:
    """Measure methods along axes, the largest runs first so that all cores end together."""
    jobs = [point for method, axis in wanted for point in points_of(method, axis, size)]
    jobs.sort(
        key=lambda point: -point.n * point.seeds * (30 if _METHODS[point.method].interactive else 1)
    )
    found = {}
    with ProcessPoolExecutor(workers) as pool:
        running = [pool.submit(measure, job) for job in jobs]
        console = Console(stderr=True)
        for done in track(
            as_completed(running), "runs", len(jobs), console=console, disable=not show
        ):
            found[done.result().point] = done.result()
    return [
        fitted(method, axis, [found[point] for point in points_of(method, axis, size)])
        for method, axis in wanted
    ]


def table(slopes: Sequence[Slope]) -> Table:
    """Theory beside measurement."""
    shown = Table(
        "method", "axis", "from", "to", "theory", "exact noise", "measured", "step by step"
    )
    for each in slopes:
        first, last = (f"{getattr(each.points[i].point, each.axis):g}" for i in (0, -1))
        mark = " !" if each.missed else ""
        steps = " ".join(f"{step:.2f}" for step in each.steps)
        measured = f"{each.slope:.3f} ± {each.error:.3f}{mark}"
        shown.add_row(
            each.method,
            each.axis,
            first,
            last,
            f"{each.theory:.3f}",
            f"{each.exact:.3f}",
            measured,
            steps,
        )
    return shown


def write(folder: Path, slopes: Sequence[Slope]) -> None:
    """rates.json and the pictures; a file is there whole or not at all."""
    from rates_pictures import pictures

    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(
        {"delta": DELTA, "tolerance": TOLERANCE, "slopes": [asdict(each) for each in slopes]},
        indent=1,
    )
    for name, content in {"rates.json": document.encode(), **pictures(slopes)}.items():
        part = folder / f".{name}.part"
        try:
            part.write_bytes(content)
            os.replace(part, folder / name)
        finally:
            part.unlink(missing_ok=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="half a decade of n, two runs a point, the hard instances only",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="three decades of n, more runs, and realistic losses: an hour of two cores",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("rates"),
        metavar="DIR",
        help="where to write (default: rates)",
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    if options.workers < 1:
        parser.error(f"--workers {options.workers}: must be at least 1")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out {options.out}: must be a folder")
    wanted = [(method, axis) for method in HARD for axis in (AXES[:1] if options.quick else AXES)]
    wanted += [(method, "n") for method in REALISTIC] if options.all else []
    warnings.simplefilter("ignore", WeakPrivacyWarning)  # slopes are measured up to n = 1/delta
    size = QUICK if options.quick else WHOLE if options.all else USUAL
    slopes = study(wanted, size=size, workers=options.workers, show=True)
    write(options.out, slopes)
    Console(width=170).print(table(slopes))
    print(f"written to {options.out}")
    sys.exit(any(each.missed for each in slopes))


if __name__ == "__main__":
    main()
