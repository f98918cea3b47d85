"""Output perturbation measured: the slopes of its excess, and the attack that its mends answer.

python examples/output_perturbation.py slopes|attack [--quick] [--out FOLDER]

slopes: pure noise at epsilon 1, d = 10, against n over three decades, on the hard instance of each
case: its minimiser is known, so only noise and ridge are measured. attack: the membership game on
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
from slopes import fit

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
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace

D = 10
AXIS: Floats = np.eye(D)[0]


@dataclass(frozen=True)
class Case:
    """A kind of problem with L = R = beta = 1, and its hard instance.

    Attributes:
        name: what is shown.
        problem: whose constants the planner gets.
        minimiser: of the instance with a ridge.
        excess: of points (repeats, D) on the instance, without an added ridge.
        slope: of the proven bound.
        printed: the paper's bound.
        ridge: for n rows, by the theory page.
    """

    name: str
    problem: Problem
    minimiser: Callable[[float], Floats]
    excess: Callable[[Floats], Floats]
    slope: float
    printed: Callable[[int], float]
    ridge: Callable[[int], float]


def _length(points: Floats) -> Floats:
    return np.asarray(np.linalg.norm(points, axis=1))


def _huber(points: Floats) -> Floats:
    size = _length(points - AXIS)
    return np.where(size < 1, size**2 / 2, size - 0.5)


CASES = (
    Case(
        "strongly convex: |w| + |w|^2/2",
        Problem(Hinge(), RealSpace(D), 1.0),
        lambda ridge: np.zeros(D),
        lambda w: _length(w) + _length(w) ** 2 / 2,
        -1.0,
        lambda n: 2 * D / n,
        lambda n: 1.0,
    ),
    Case(
        "smooth, strongly convex: |w|^2/2",
        Problem(MeanEstimation(), L2Ball(D, 1.0)),
        lambda ridge: np.zeros(D),
        lambda w: _length(w) ** 2 / 2,
        -2.0,
        lambda n: 2 * D * (D + 1) / n**2,
        lambda n: 0.0,
    ),
    Case(
        "convex: |w - e|",
        Problem(Hinge(), L2Ball(D, 1.0)),
        lambda ridge: min(1.0, 1 / ridge) * AXIS,
        lambda w: _length(w - AXIS),
        -1 / 2,
        lambda n: 8.5 * math.sqrt(D / n),
        lambda n: 2 * math.sqrt(D / n),
    ),
    Case(
        "convex, smooth: Huber(w - e)",
        Problem(Huber(threshold=1.0), L2Ball(D, 1.0)),
        lambda ridge: AXIS / (1 + ridge),
        _huber,
        -2 / 3,
        lambda n: 48.5 * (D / n) ** (2 / 3),
        lambda n: (8 * D * (D + 1) / n**2) ** (1 / 3),
    ),
)


def slopes(quick: bool) -> Any:
    """Excess against n: measured, the proven bound and the paper's."""
    repeats = 2000 if quick else 20_000
    found = {}
    for case in CASES:
        points = []
        for n in np.geomspace(1e3, 1e6, 7).astype(int).tolist():
            ridge, rng = case.ridge(n), np.random.default_rng(n)
            risk, law = Risk.of(case.problem, ridge), L2Laplace(1.0, D)
            bound = best_bound(risk, n, law, 0.0, case.problem.ridge, False)
            noise = np.array([law.noise(rng, D) for _ in range(repeats)])
            w = case.minimiser(ridge) + risk.sensitivity(n)[0] * noise
            if bound.projected:
                w /= np.maximum(1.0, _length(w))[:, None]
            excess = case.excess(w)
            error = float(excess.std() / math.sqrt(repeats))
            points.append((n, float(excess.mean()), error, bound.excess, case.printed(n)))
        found[case] = table = np.array(points)
        slope, error = fit(*table.T[:3])
        over = float(((table[:, 1] - table[:, 3]) / table[:, 2]).max())
        share = float((table[:, 1] / table[:, 3]).mean())
        shown = f"slope {slope:.3f} ± {error:.3f} (theory {case.slope:.3f})"
        print(f"{case.name:34} {shown}, {share:.3f} of the bound")
        print(f"{'':34} at most {max(over, 0.0):.1f} standard errors above it")
    return found


def _draw_slopes(figure: Any, found: Any) -> None:
    for place, (case, table) in enumerate(found.items(), 1):
        panel = figure.add_subplot(1, 4, place)
        n, mean, error, bound, printed = table.T
        panel.errorbar(n, mean, 2 * error, fmt="o", ms=4, label="measured, 2 standard errors")
        panel.plot(n, bound, color="tab:gray", label="proven bound")
        panel.plot(n, printed, ":", color="tab:red", label="paper's bound")
        slope = fit(n, mean, error)[0]
        panel.set_title(f"{case.name}\nslope {slope:.2f}, theory {case.slope:.2f}")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("rows n")
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
    "slopes": (slopes, _draw_slopes, (12, 3.6)),
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
