"""Output perturbation measured: the slopes of its excess, and the attack that its mends answer.

python examples/output_perturbation.py slopes|attack [--quick] [--out FOLDER]

slopes: against n over three decades, against epsilon and d, under pure privacy, and against d at
delta 1e-6, on the hard instance of each case: its minimiser is known, so only noise and ridge are
measured. attack: the membership game on
Algorithms 6 and 8 as printed and as mended, and on a solver without a certificate. Seeds are fixed.
With --out each study writes a picture.
"""

import argparse
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from scipy import stats
from slopes import fit, logarithmic

from protocols import Hinge, Huber, L2Ball, OutputPerturbation, Problem, RealSpace
from protocols.central.record.minimum import Minimum
from protocols.central.record.output_bound import best_bound
from protocols.erm.risk import Risk
from protocols.problems import Linear, MeanEstimation
from protocols.problems.instances import neighbours
from shuffle_sim import Privacy
from shuffle_sim.arrays import Floats
from shuffle_sim.auditing import audit_central
from shuffle_sim.privacy.bounds import gaussian, paper
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace, Noise


@dataclass(frozen=True)
class Point:
    """n rows, d parameters, and noise whose law is for sensitivity 1."""

    n: int
    d: int
    law: Noise

    @property
    def mean(self) -> float:
        """E ||noise||, over n."""
        return self.law.mean_norm(self.d) / self.n

    @property
    def square(self) -> float:
        """E ||noise||^2, over n^2."""
        return (self.law.spread(self.d) / self.n) ** 2


@dataclass(frozen=True)
class Axis:
    """What varies, about 100,000 rows, ten parameters and epsilon = 1.

    Attributes:
        name: what is shown.
        power: of the noise's length over n, along the axis.
        values: of the axis.
        at: the point of a value.
    """

    name: str
    power: float
    values: tuple[float, ...]
    at: Callable[[Any], Point]


N, D = 100_000, 10
SIZES = tuple(np.geomspace(1e3, 1e6, 7).astype(int).tolist())
DIMENSIONS = (4, 8, 16, 32, 64)
APPROXIMATE = Gaussian.calibrated(Privacy(1.0, 1e-6))
AXES = (
    Axis("n", -1.0, SIZES, lambda n: Point(n, D, L2Laplace(1.0, D))),
    Axis("epsilon", -1.0, (0.25, 0.5, 1.0, 2.0, 4.0), lambda e: Point(N, D, L2Laplace(e, D))),
    Axis("d", 1.0, DIMENSIONS, lambda d: Point(N, d, L2Laplace(1.0, d))),
    Axis("d, delta = 1e-6", 0.5, DIMENSIONS, lambda d: Point(N, d, APPROXIMATE)),
)


@dataclass(frozen=True)
class Case:
    """A kind of problem with L = R = beta = 1, and its hard instance: |.| from 0 or from a pole e.

    Attributes:
        name: what is shown.
        problem: of d parameters, whose constants the planner gets.
        minimiser: of the instance with a ridge, along e.
        excess: of points (repeats, d) on the instance, without an added ridge.
        power: of the noise's length over n, in the proven bound.
        printed: the paper's bound under pure privacy.
        ridge: by the theory page.
    """

    name: str
    problem: Callable[[int], Problem]
    minimiser: Callable[[float], float]
    excess: Callable[[Floats], Floats]
    power: float
    printed: Callable[[Point], float]
    ridge: Callable[[Point], float]


def _pole(d: int) -> Floats:
    return np.asarray(np.eye(d)[0])


def _length(points: Floats) -> Floats:
    return np.asarray(np.linalg.norm(points, axis=1))


def _from_pole(points: Floats) -> Floats:
    return _length(points - _pole(points.shape[1]))


def _huber(points: Floats) -> Floats:
    size = _from_pole(points)
    return np.where(size < 1, size**2 / 2, size - 0.5)


CASES = (
    Case(
        "strongly convex: |w| + |w|^2/2",
        lambda d: Problem(Hinge(), RealSpace(d), 1.0),
        lambda ridge: 0.0,
        lambda w: _length(w) + _length(w) ** 2 / 2,
        1.0,
        lambda at: 2 * at.mean,
        lambda at: 1.0,
    ),
    Case(
        "smooth, strongly convex: |w|^2/2",
        lambda d: Problem(MeanEstimation(), L2Ball(d, 1.0)),
        lambda ridge: 0.0,
        lambda w: _length(w) ** 2 / 2,
        2.0,
        lambda at: 2 * at.square,
        lambda at: 0.0,
    ),
    Case(
        "convex: |w - e|",
        lambda d: Problem(Hinge(), L2Ball(d, 1.0)),
        lambda ridge: min(1.0, 1 / ridge),
        _from_pole,
        1 / 2,
        lambda at: 8.5 * math.sqrt(at.mean),
        lambda at: 2 * math.sqrt(at.mean),
    ),
    Case(
        "convex, smooth: Huber(w - e)",
        lambda d: Problem(Huber(threshold=1.0), L2Ball(d, 1.0)),
        lambda ridge: 1 / (1 + ridge),
        _huber,
        2 / 3,
        lambda at: 48.5 * at.mean ** (2 / 3),
        lambda at: (8 * at.square) ** (1 / 3),
    ),
)


def measured(case: Case, at: Point, noise: Floats) -> tuple[float, float, float, float]:
    """Mean excess, its standard error, the proven bound, and the paper's (nan if not pure)."""
    problem, ridge = case.problem(at.d), case.ridge(at)
    risk = Risk.of(problem, ridge)
    bound = best_bound(risk, at.n, at.law, 0.0, problem.ridge, False)
    w = case.minimiser(ridge) * _pole(at.d) + risk.sensitivity(at.n)[0] * noise
    if bound.projected:
        w /= np.maximum(1.0, _length(w))[:, None]
    excess = case.excess(w)
    error = float(excess.std() / math.sqrt(len(noise)))
    printed = case.printed(at) if isinstance(at.law, L2Laplace) else math.nan
    return float(excess.mean()), error, bound.excess, printed


def slopes(quick: bool) -> Any:
    """Excess against n, epsilon and d: measured, the proven bound and the paper's."""
    repeats = 2000 if quick else 20_000
    found: dict[tuple[Axis, Case], Floats] = {}
    for axis in AXES:
        rows: dict[Case, list[tuple[float, ...]]] = {case: [] for case in CASES}
        for value in axis.values:
            at = axis.at(value)
            rng = np.random.default_rng([at.n, at.d, round(8 * value)])
            noise = np.array([at.law.noise(rng, at.d) for _ in range(repeats)])
            for case, table in rows.items():
                table.append((value, *measured(case, at, noise)))
        for case, table in rows.items():
            found[axis, case] = points = np.array(table)
            slope, error = fit(*points.T[:3])
            over = float(((points[:, 1] - points[:, 3]) / points[:, 2]).max())
            share = float((points[:, 1] / points[:, 3]).mean())
            theory = axis.power * case.power
            shown = f"slope {slope:.3f} ± {error:.3f} (theory {theory:.3f})"
            print(f"{case.name:34} in {axis.name}: {shown}, {share:.3f} of the bound")
            print(f"{'':34} at most {max(over, 0.0):.1f} standard errors above it", flush=True)
    return found


def _draw_slopes(figure: Any, found: Any) -> None:
    for place, ((axis, case), table) in enumerate(found.items(), 1):
        panel = figure.add_subplot(len(AXES), len(CASES), place)
        values, mean, error, bound, printed = table.T
        panel.errorbar(values, mean, 2 * error, fmt="o", ms=4, label="measured, 2 standard errors")
        panel.plot(values, bound, color="tab:gray", label="proven bound")
        panel.plot(values, printed, ":", color="tab:red", label="paper's bound")
        slope, theory = fit(values, mean, error)[0], axis.power * case.power
        panel.set_title(f"{case.name}\nslope {slope:.2f}, theory {theory:.2f}")
        logarithmic(panel, axis.values)
        panel.set_xlabel("rows n" if axis.name == "n" else axis.name)
    figure.supylabel("excess loss")
    lines = figure.axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=3)


class Stopped(Minimum):
    """A solver that stops at the far end of its radius, which the paper allows."""

    def of(self, rows: Floats) -> Floats:
        """The point."""
        exact = super().of(rows)
        return np.asarray(exact + np.sign(exact[0]) * self.radius * np.eye(len(exact))[0])


def released(privacy: Privacy, name: str) -> OutputPerturbation:
    """Algorithm 6 or 8 as printed, or mended, on the tight instance of 50 rows; ridge 1."""
    problem, n = Problem(Linear(), RealSpace(2), 1.0), 50
    risk = Risk.of(problem)
    exact = risk.sensitivity(n)[0]
    radius = exact / math.sqrt(2)  # of the paper's alpha
    printed = paper.output_sigma(privacy.epsilon, privacy.delta)
    believed, sigma = {
        "6, printed": (exact + 2 * radius, printed / math.sqrt(2)),
        "8, printed": (exact + radius**2, printed),
        "mended": (exact + 2 * radius, gaussian.sigma(privacy.epsilon, privacy.delta)),
    }[name]
    made = OutputPerturbation(
        n=n,
        problem=problem,
        privacy=privacy,
        risk=risk,
        mechanism=Gaussian(sigma * believed / (exact + 2 * radius)),
        radius=radius,
    )
    made.statistic = Stopped(risk, radius, n)
    return made


def attack(quick: bool) -> Any:
    """Empirical epsilon of the game at several claims, delta 1e-6."""
    repeats = 6000 if quick else 80_000
    tables, found = neighbours(50, 2)["opposite"], []
    print("claimed epsilon: lower bounds at confidence 0.9999, delta 1e-6")
    for epsilon in (1.0, 2.0, 4.0):
        privacy, line = Privacy(epsilon, 1e-6), {}
        for name in ("6, printed", "8, printed", "mended"):
            made = released(privacy, name)
            game = audit_central(made, *tables, epsilon=epsilon, repeats=repeats, seed=3)
            line[name] = game.empirical
        found.append((epsilon, line))
        shown = ", ".join(f"{name} {value:.2f}" for name, value in line.items())
        print(f"  {epsilon:g}: {shown}")
    print("a solver that fails with probability p; claimed epsilon 1, its expected gap as printed")
    for scales in (6, 10, 20, 40):
        p, real = careless(scales)
        print(f"  p = {p:.2g}: real epsilon {real:.1f}")
    return found


def careless(scales: float) -> tuple[float, float]:
    """p and the log odds of a failure at so many scales of the noise, exactly; d = 1, pure.

    The radius is r = sqrt(2 alpha/mu) = D/sqrt 2; a failure at R has probability p = (r/R)^2, so
    the expected gap is alpha.
    """
    exact = 1.0
    radius = exact / math.sqrt(2)
    scale = exact + 2 * radius
    far = scales * scale
    p = (radius / far) ** 2
    fails = (1 - p) * stats.laplace.sf(far, scale=scale) + p * stats.laplace.sf(far, far, scale)
    return p, float(math.log(fails / stats.laplace.sf(far, exact, scale)))


def _draw_attack(figure: Any, found: Any) -> None:
    panel = figure.add_subplot()
    claims = [epsilon for epsilon, _ in found]
    for name, mark in (("8, printed", "s"), ("6, printed", "o"), ("mended", "^")):
        values = [line[name] for _, line in found]
        label = name if name == "mended" else f"Algorithm {name}"
        panel.plot(claims, values, mark, label=label, ls="-", lw=0.8)
    panel.plot(claims, claims, "--", color="black", label="claimed")
    panel.set_xlabel("claimed epsilon at delta 1e-6")
    panel.set_ylabel("epsilon found by the attack, at least")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log", base=2)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter("{x:g}")
    panel.legend()


STUDIES = {
    "slopes": (slopes, _draw_slopes, (12, 11)),
    "attack": (attack, _draw_attack, (5, 4)),
}


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    study, draw, size = STUDIES[given.study]
    found = study(given.quick)
    if given.out is None:
        return
    with mpl.rc_context({"backend": "agg", "font.size": 8, "axes.titlesize": 8}):
        from matplotlib.figure import Figure

        figure, buffer = Figure(figsize=size, layout="constrained"), io.BytesIO()
        draw(figure, found)
        figure.savefig(buffer, format="png", dpi=100)
    given.out.mkdir(exist_ok=True)
    (given.out / f"output-perturbation-{given.study}.png").write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
