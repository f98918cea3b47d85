"""A trusted curator's linear models side by side: accuracy, gradient counts, robust accuracy.

python examples/central_models.py [--splits 20] [--study NAME]

NAME is accuracy, tables, growth (minutes, and run by name only), gradients, robust or tilted.

Tables are bundled with scikit-learn; columns are scaled by their public bounds to [-1, 1], a
constant is added, and each row is divided by its own length. Seeds are fixed: rerun it, and the
same lines come.
"""

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import make_classification

from protocols import (
    AdversarialERM,
    Gibbs,
    Logistic,
    ObjectivePerturbation,
    Optimiser,
    OutputPerturbation,
    Problem,
    RealSpace,
    Squared,
    TiltedERM,
    minimise,
)
from protocols.erm.risk import Risk
from protocols.erm.solver import SOLVERS, OracleCalls, certify, counted
from protocols.problems import Softmax
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.labelled import held_out, labelled
from shuffle_sim.data.tables import bundled

KINDS: dict[str, type[Optimiser[Any]]] = {
    "output": OutputPerturbation,
    "objective": ObjectivePerturbation,
    "gibbs": Gibbs,
}
DELTA = 1e-5


def table(name: str) -> Floats:
    """Rows in the unit ball, with labels -1 and +1; digits are even or odd."""
    source = bundled(name)
    positive = [str(digit) for digit in range(0, 10, 2)] if name == "digits" else []
    rows = labelled(source, classes=True, positive=positive).rows
    rows[:, :-1] /= np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    return rows


def generated(n: int, d: int, seed: int = 0) -> Floats:
    """A logistic model in the unit ball."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.maximum(np.linalg.norm(x, axis=1), 1.0)[:, None]
    odds = 8 * x @ (rng.normal(size=d) / np.sqrt(d)) * np.sqrt(d)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), 1.0, -1.0)
    return np.column_stack([x, y])


def correct(theta: Floats, rows: Floats) -> float:
    """Accuracy."""
    return float(((rows[:, :-1] @ theta > 0) == (rows[:, -1] > 0)).mean())


def accuracy(splits: int, ridge: float = 0.003) -> None:
    """Held-out accuracy at epsilon 1 and 3, mean and standard deviation over splits."""
    for name in ("breast-cancer", "digits"):
        rows = table(name)
        found: dict[str, list[float]] = {}
        for seed in range(splits):
            train, test = held_out(rows, 0.2, seed)
            problem = Problem(Logistic(), RealSpace(rows.shape[1] - 1), ridge)
            exact = minimise(Risk.of(problem).objective(train), 1e-6).point
            found.setdefault("exact", []).append(correct(exact, test))
            for epsilon in (1.0, 3.0):
                for label, kind in KINDS.items():
                    privacy = Privacy(epsilon, DELTA)
                    made = kind.calibrated(n=len(train), problem=problem, privacy=privacy)
                    theta = run(made, train, seed=seed).value
                    found.setdefault(f"{label} {epsilon:g}", []).append(correct(theta, test))
        print(f"{name}, ridge {ridge:g}, {splits} splits: held-out accuracy, spread")
        for label, values in found.items():
            print(f"  {label:>12} {np.mean(values):.3f} {np.std(values):.3f}")


def tables(splits: int) -> None:
    """Three classes (wine, softmax) and a real target (diabetes, ridge regression)."""
    wine = bundled("wine")
    names = sorted({str(each) for each in np.asarray(wine.target)})
    one_each = [labelled(wine, classes=True, positive=[name]).rows for name in names]
    classes = np.array([rows[:, -1] for rows in one_each]).argmax(axis=0)
    numbers = labelled(bundled("diabetes"), classes=False).rows
    cases = (
        ("wine", np.column_stack([one_each[0][:, :-1], classes]), Softmax(3), 0.03, most_likely),
        ("diabetes", numbers, Squared(labels=1.0), 0.1, explained),
    )
    for name, rows, loss, ridge, score in cases:
        rows[:, :-1] /= np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
        d = (rows.shape[1] - 1) * getattr(loss, "classes", 1)
        problem, found = Problem(loss, RealSpace(d), ridge), {}
        for seed in range(splits):
            train, test = held_out(rows, 0.2, seed)
            exact = minimise(Risk.of(problem).objective(train), 1e-6).point
            found.setdefault("exact", []).append(score(exact, test))
            for epsilon in (1.0, 3.0, 10.0):
                for label in ("output", "gibbs") if name == "wine" else ("output",):
                    made = KINDS[label].calibrated(
                        n=len(train), problem=problem, privacy=Privacy(epsilon, DELTA)
                    )
                    theta = run(made, train, seed=seed).value
                    found.setdefault(f"{label} {epsilon:g}", []).append(score(theta, test))
        print(f"{name}, ridge {ridge:g}, {splits} splits: held-out {score.__doc__} spread")
        for label, values in found.items():
            print(f"  {label:>12} {np.mean(values):.3f} {np.std(values):.3f}")


def most_likely(theta: Floats, rows: Floats) -> float:
    """accuracy,"""
    scores = rows[:, :-1] @ theta.reshape(3, -1).T
    return float((scores.argmax(axis=1) == rows[:, -1]).mean())


def explained(theta: Floats, rows: Floats) -> float:
    """share of the variance,"""
    label = rows[:, -1]
    left = ((label - rows[:, :-1] @ theta) ** 2).mean()
    return float(1 - left / label.var())


def growth(splits: int) -> None:
    """More rows: sensitivity falls as 1/n, and all mechanisms agree."""
    print(f"make_classification, d 20, ridge 0.03, epsilon 1, {splits} seeds, 1 at a million rows")
    problem = Problem(Logistic(), RealSpace(21), 0.03)
    for n in (1000, 10_000, 100_000, 1_000_000):
        found: dict[str, list[float]] = {}
        for seed in range(1 if n == 1_000_000 else splits):
            x, y = make_classification(n, 20, class_sep=0.7, random_state=seed)
            x = np.column_stack([x, np.ones(n)])
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            train, test = held_out(np.column_stack([x, 2.0 * y - 1]), 0.2, seed)
            exact = minimise(Risk.of(problem).objective(train), 1e-5).point
            found.setdefault("exact", []).append(correct(exact, test))
            for label, kind in KINDS.items():
                made = kind.calibrated(n=len(train), problem=problem, privacy=Privacy(1.0, DELTA))
                theta = run(made, train, seed=seed).value
                found.setdefault(label, []).append(correct(theta, test))
        shown = ", ".join(f"{label} {np.mean(values):.3f}" for label, values in found.items())
        print(f"  n {n:,}: {shown}")


def gradients(splits: int) -> None:
    """Passes over the rows until a certificate of 0.05 D."""
    others = ("sdca", "extragradient")  # of kinks, and of saddle points
    names = [each for each in SOLVERS if each not in others and "subgradient" not in each]
    print("passes to a certificate of 0.05 D:", " ".join(names))
    for n, ridge in ((1000, 0.01), (1000, 0.001), (4000, 0.01)):
        rows = generated(n, 10)
        objective = Risk.of(Problem(Logistic(), RealSpace(10), ridge)).objective(rows)
        radius, passes = 0.05 * 2 / (ridge * n), []
        for name in names:
            tally = OracleCalls()
            watched = counted(objective, tally)
            w = SOLVERS[name](watched, radius, objective.start, np.random.default_rng(0))
            reached = certify(objective, w).radius <= radius
            passes.append(f"{tally.passes:.0f}" if reached else f">{tally.passes:.0f}")
        print(f"  n {n:,}, ridge {ridge:g}:", " ".join(passes))


def robust(splits: int) -> None:
    """Accuracy on rows moved as badly as a budget of l-infinity allows."""
    rows = table("breast-cancer")
    print(f"breast-cancer, epsilon 3, {splits} splits: accuracy, and under attack of 0.02 linf")
    for radius in (0.0, 0.02):
        scores = []
        for seed in range(splits):
            train, test = held_out(rows, 0.2, seed)
            problem = Problem(Logistic(), RealSpace(rows.shape[1] - 1), 0.03)
            case = {"n": len(train), "problem": problem, "privacy": Privacy(3.0, DELTA)}
            made = AdversarialERM.calibrated(**case, norm="linf", radius=radius)
            theta = run(made, train, seed=seed).value
            margins = test[:, -1] * (test[:, :-1] @ theta)
            attacked = margins - 0.02 * np.abs(theta).sum()
            scores.append([(margins > 0).mean(), (attacked > 0).mean()])
        mean = np.mean(scores, axis=0)
        print(f"  trained for {radius:g}: {mean[0]:.3f} {mean[1]:.3f}")


def tilted(splits: int) -> None:
    """Worst-group loss of tilted training: one row in twenty is of a group of its own."""
    print(f"generated, epsilon 1, {splits} seeds: loss of the common and of the rare group")
    for tilt in (0.0, 0.5, 1.0, 2.0):
        losses = []
        for seed in range(splits):
            rows = generated(20_000, 5, seed)
            rare = np.arange(len(rows)) % 20 == 0
            rows[rare, -1] *= -1
            problem = Problem(Logistic(), RealSpace(5), 0.05)
            case = {"n": len(rows), "problem": problem, "privacy": Privacy(1.0, DELTA)}
            kind = TiltedERM if tilt else OutputPerturbation
            made = kind.calibrated(**case, **({"tilt": tilt} if tilt else {}))
            theta = run(made, rows, seed=seed).value
            each = Logistic().values(theta, rows)
            losses.append([each[~rare].mean(), each[rare].mean()])
        mean = np.mean(losses, axis=0)
        print(f"  tilt {tilt:g}: {mean[0]:.3f} {mean[1]:.3f}")


STUDIES = {
    "accuracy": accuracy,
    "tables": tables,
    "growth": growth,
    "gradients": gradients,
    "robust": robust,
    "tilted": tilted,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--study", choices=list(STUDIES))
    given = parser.parse_args()
    for name, study in STUDIES.items():
        if given.study == name or (given.study is None and name != "growth"):  # minutes
            study(given.splits)
