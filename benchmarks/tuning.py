"""How the constants of choose="practice" were found: synthetic rows alone, no real table.

    python -m benchmarks tuning          # what stands in protocols/optimisation/practice.py, and
                                         # 80,000 rows of 50 columns by the default estimator
    python -m benchmarks.tuning          # the grid around it
    python -m benchmarks.tuning lengths  # of centred features, where noise allows a long clip
    python -m benchmarks.tuning pure     # ridges of the pure mechanisms, protocols/learning/pure.py
    python -m benchmarks.tuning clusters # of k-means, protocols/optimisation/lloyd.py

Rows are isotropic, correlated, uniform, binary, skewed, counts near the lower end of their bounds,
within a part of their bounds, categories, nearly equal columns, or categories that say little of
the class; 400 to 100,000 people, 8 to 57 columns, epsilon 0.3 to 4. Targets are also skewed, as
prices are. A curator adds the noise: the shuffle model's is 1.05 times it.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from protocols import (
    CentredObjective,
    ObjectivePerturbation,
    OutputPerturbation,
    PrivateKMeans,
    ShuffleLogisticRegression,
)
from protocols.learning import pure as rule
from protocols.learning.baselines import Baseline
from protocols.optimisation import lloyd, practice
from protocols.problems.domains import L2Ball, RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Hinge, Logistic
from protocols.problems.problem import Problem
from protocols.problems.regression import Absolute, Squared
from protocols.shuffle.gd import ShuffleGD
from protocols.shuffle.optimiser import FirstOrder
from protocols.shuffle.practice import practical
from protocols.shuffle.sgd import ShuffleSGD
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats

SHAPES = (
    "isotropic",
    "correlated",
    "uniform",
    "binary",
    "skewed",
    "counts",
    "shifted",
    "categories",
    "collinear",
    "weak",
)
SIZES = (
    (400, 8, 3),
    (500, 30, 3),
    (2_000, 20, 2),
    (5_000, 57, 2),
    (20_000, 30, 1),
    (100_000, 10, 1),
)
"""People, columns, repeats."""
EPSILONS = (0.3, 1.0, 4.0)
TESTED = 4_000
LONGEST = math.hypot(1, 0.25)
"""Row with its constant."""


@dataclass(frozen=True)
class Case:
    """Synthetic rows (features, label) for training and testing; features in the unit ball."""

    shape: str
    train: Floats
    test: Floats
    classes: bool


def features(shape: str, n: int, d: int, rng: np.random.Generator) -> Floats:
    """Rows in the unit ball, scaled by a public bound."""
    if shape in ("isotropic", "correlated"):
        scales = np.arange(1.0, d + 1) ** -(0.0 if shape == "isotropic" else 0.75)
        rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
        rows = (rng.normal(size=(n, d)) * scales) @ rotation
        norms = np.linalg.norm(rows, axis=1)
        return np.asarray(rows / np.maximum(norms, np.quantile(norms, 0.95))[:, None])
    if shape == "uniform":
        rows = 2 * rng.random((n, d)) ** rng.uniform(0.5, 3, size=d) - 1
    elif shape == "binary":
        rows = (rng.random((n, d)) < rng.uniform(0.02, 0.6, size=d)).astype(float)
    elif shape == "skewed":
        rows = np.minimum(np.exp(rng.normal(size=(n, d)) * rng.uniform(0.3, 1.2, size=d)) / 15, 1)
    elif shape == "counts":  # mapped from their bounds to [-1, 1]
        logarithms = rng.normal(size=(n, d)) * rng.uniform(0.5, 1.5, size=d)
        rows = 2 * np.minimum(np.exp(logarithms) * rng.uniform(0.005, 0.1, size=d), 1) - 1
    elif shape == "shifted":  # with a common factor
        inside = np.clip(rng.normal(size=(n, 1)) / 2 + rng.normal(size=(n, d)), -2.5, 2.5) / 5 + 0.5
        rows = rng.uniform(-1, 0.6, size=d) + rng.uniform(0.1, 0.4, size=d) * inside
    elif shape == "collinear":  # threes of columns that are nearly the same
        factors = np.repeat(rng.normal(size=(n, -(-d // 3))), 3, axis=1)[:, :d]
        own = rng.normal(size=(n, d)) * 10 ** rng.uniform(-2, -0.5, size=d)
        rows = np.clip((factors + own) * rng.uniform(0.1, 0.4, size=d), -1, 1)
    else:  # categories, weak
        return categories(n, d, rng)
    return np.asarray(rows / math.sqrt(d))


def categories(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Columns of 0 and 1 for a few categories, and a few numbers."""
    parts: list[Floats] = []
    left = d
    while left > 4:
        count = int(rng.integers(2, min(left, 9)))
        drawn = rng.choice(count, size=n, p=rng.dirichlet(np.ones(count)))
        parts.append(np.eye(count)[drawn])
        left -= count
    parts.append(2 * rng.beta(1, 4, size=(n, left)) - 1)
    return np.column_stack(parts) / math.sqrt(len(parts) - 1 + left)


def cases(*, classes: bool, seed: int = 0) -> Iterator[Case]:
    """All shapes and sizes."""
    for shape in SHAPES:
        for n, d, repeats in SIZES:
            for repeat in range(repeats):
                key = [seed, SHAPES.index(shape), n, repeat, classes]
                rng = np.random.default_rng(key)
                rows = features(shape, n + TESTED, d, rng)
                moved = rows - rows.mean(axis=0)
                if shape == "collinear":  # so that small differences may matter
                    moved = moved @ np.linalg.eigh(moved.T @ moved)[1]
                spread = moved.std(axis=0)
                heavy = np.maximum(spread, 0.02 * spread.max()) ** rng.choice([0.0, 0.5, 1.0])
                score = moved @ (rng.normal(size=d) / heavy)
                score /= score.std()
                if classes:
                    strength = 0.3 if shape == "weak" else rng.choice([1.0, 2.0, 4.0])
                    score = score * strength + rng.normal() / 2
                    labels = np.where(rng.random(len(rows)) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
                else:  # bounds that are wider than the targets, as people state them
                    noise = rng.normal(size=len(rows)) * rng.choice([0.3, 1.0])
                    scaled = (score + noise) / rng.uniform(3, 8) + rng.uniform(-0.5, 0.5)
                    if rng.random() < 0.5:  # skewed
                        scaled = np.exp(score + 0.6 * rng.normal(size=len(rows))) / 6 - 1
                    labels = np.clip(scaled, -1, 1)
                both = np.column_stack([rows, labels])
                yield Case(shape, both[:n], both[n:], classes)


def score(case: Case, theta: Floats, constant: float) -> float:
    """Accuracy, or R^2, on people who were not asked."""
    margins = case.test[:, :-1] @ theta[:-1] + constant * theta[-1]
    labels = case.test[:, -1]
    if case.classes:
        return float(((margins > 0) == (labels > 0)).mean())
    return 1 - float(((labels - margins) ** 2).mean() / labels.var())


def trained(
    case: Case,
    loss: type[LinearLoss],
    epsilon: float,
    kind: type[FirstOrder[Any]],
    constant: float,
    seed: int,
    **given: Any,
) -> Floats:
    """Parameters by the tuned optimiser at an epsilon; infinite: without noise."""
    rows = np.insert(case.train, -1, constant, axis=1)
    n, d, bound = len(rows), rows.shape[1] - 1, math.hypot(1, constant)
    more = {} if case.classes else {"labels": 1.0}
    problem = Problem(loss(bound, **more), L2Ball(d, practice.RADIUS), constant=constant)
    trust = "none" if math.isinf(epsilon) else "central"
    privacy = Privacy(min(epsilon, 10.0), 1e-5)
    common: dict[str, Any] = {"n": n, "problem": problem, "privacy": privacy, "trust": trust}
    made = practical(kind, **common, noise_ratio=1.2, **given)
    return np.asarray(run(Baseline(made, trust), rows, seed=seed).value)


def mean_score(
    losses: tuple[type[LinearLoss], ...] = (Logistic,),
    kind: type[FirstOrder[Any]] = ShuffleGD,
    constant: float = 0.25,
    epsilons: tuple[float, ...] = EPSILONS,
    seed: int = 0,
    **given: Any,
) -> dict[float, float]:
    """By epsilon, over all cases."""
    found: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
    for loss in losses:
        for case in cases(classes=loss.classification, seed=seed):
            for epsilon in epsilons:
                theta = trained(case, loss, epsilon, kind, constant, seed, **given)
                found[epsilon].append(max(score(case, theta, constant), -1.0))
    return {epsilon: float(np.mean(each)) for epsilon, each in found.items()}


def wide(shape: str) -> dict[str, float]:
    """Held-out accuracy of the default estimator on 80,000 rows of 50 columns, by epsilon."""
    rng, d = np.random.default_rng(0), 50
    X = rng.normal(size=(100_000, d))
    if shape == "correlated":
        rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
        X = X * np.arange(1, d + 1) ** -0.5 @ rotation
    margins = X @ rng.normal(size=d)
    y = rng.random(len(X)) < 1 / (1 + np.exp(-2.2 * margins / margins.std()))
    bound = float(np.quantile(np.linalg.norm(X, axis=1), 0.95))
    kept, others = slice(0, 80_000), slice(80_000, None)
    free = LogisticRegression().fit(X[kept], y[kept])
    found = {"not private": float(free.score(X[others], y[others]))}
    for epsilon in (0.1, 1.0, 4.0):
        model = ShuffleLogisticRegression(
            epsilon=epsilon, delta=1e-5, feature_bound=bound, random_state=1
        )
        found[f"epsilon {epsilon:g}"] = model.fit(X[kept], y[kept]).score(X[others], y[others])
    return found


def measure() -> dict[str, object]:
    """Mean scores of the constants that stand, as a share of those without noise; and `wide`."""
    ratios: dict[str, object] = {each: wide(each) for each in ("isotropic", "correlated")}
    for name, loss in (("logistic", Logistic), ("squared", Squared)):
        found = mean_score((loss,), epsilons=(1.0, math.inf))
        ratios[f"{name}_epsilon_1_over_no_noise"] = found[1.0] / found[math.inf]
    return ratios


def grid() -> None:
    """The constants, one at a time."""
    wanted = sys.argv[1:] or ["Logistic", "Hinge", "Squared", "Absolute"]
    for loss in (Logistic, Hinge, Squared, Absolute):
        if loss.__name__ not in wanted:
            continue
        classes = loss.classification
        for name, kind in (("everybody", ShuffleGD), ("disjoint", ShuffleSGD)):
            for clip in (0.05, 0.07, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0):
                for reach in (0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0):
                    practice.CLIP[classes], practice.REACH[classes] = clip, reach
                    found = mean_score((loss,), kind)
                    shown = "  ".join(f"{key:g}: {value:.4f}" for key, value in found.items())
                    print(f"{loss.__name__} {name} clip {clip} reach {reach}: {shown}", flush=True)


def lengths(epsilon: float = 4.0, large: int = 100_000, constant: float = 0.25) -> None:
    """Accuracy and log loss of many people, by how long centred features may be."""
    for longest in (1.0, 1.5, 2.0, 3.0):
        practice._CENTRED_LENGTH[True], found = (1.0, longest), []
        for case in cases(classes=True):
            if len(case.train) >= large:
                theta = trained(case, Logistic, epsilon, ShuffleGD, constant, 0)
                rows = np.insert(case.test, -1, constant, axis=1)
                loss = Logistic(LONGEST).values(theta, rows).mean()
                found.append((score(case, theta, constant), loss))
        print(longest, *np.mean(found, axis=0).round(4), flush=True)


def pure(
    cases_of: Iterator[Case],
    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0),
    shares: tuple[float, ...] = (0.1, 0.2, 0.4),
) -> None:
    """Mean accuracy of the pure mechanisms at multiples of the ridge that stands, by epsilon."""
    all_of_them = list(cases_of)
    kinds: list[tuple[type[Any], str, dict[str, Any]]] = [
        *((CentredObjective, rule.CENTRED, {"share": share}) for share in shares),
        (ObjectivePerturbation, rule.OBJECTIVE, {}),
        (OutputPerturbation, rule.OUTPUT, {}),
    ]
    for kind, name, own in kinds:
        for factor in factors:
            means = {}
            for epsilon in EPSILONS:
                privacy, found = Privacy(epsilon, 0.0), []
                for case in all_of_them:
                    rows = np.insert(case.train, -1, 0.25, axis=1)
                    n, d = len(rows), rows.shape[1] - 1
                    ridge, loss = factor * rule.ridge(name, n, d, privacy), Logistic(LONGEST)
                    problem = Problem(loss, RealSpace(d), ridge=ridge, constant=0.25)
                    made = kind.calibrated(n=n, problem=problem, privacy=privacy, **own)
                    found.append(score(case, run(made, rows, seed=0).value, 0.25))
                means[epsilon] = float(np.mean(found))
            shown = "  ".join(f"{key:g}: {value:.4f}" for key, value in means.items())
            print(f"{name} {own} ridge x {factor:g}: {shown}", flush=True)


@dataclass(frozen=True)
class Piles:
    """Generated rows around centres, in the unit ball, and their clusters as they were drawn."""

    rows: Floats
    clusters: int


def piles(seed: int = 0) -> Iterator[Piles]:
    """Of several sizes, clusters and columns; apart, touching, uneven, off the middle."""
    shapes = ((1_000, 2, 3), (5_000, 3, 5), (5_000, 8, 4), (20_000, 10, 8), (20_000, 2, 8))
    for place, (n, d, clusters) in enumerate(shapes):
        for repeat, (wide, even) in enumerate(((0.05, 10.0), (0.12, 10.0), (0.1, 1.0))):
            rng = np.random.default_rng([seed, place, repeat])
            centres = rng.uniform(-1, 1, (clusters, d)) * rng.uniform(0.2, 1) / math.sqrt(d)
            centres += rng.uniform(-0.3, 0.3, d) / math.sqrt(d)
            of = rng.choice(clusters, n, p=rng.dirichlet(np.full(clusters, even)))
            rows = centres[of] + wide * rng.normal(size=(n, d)) * np.linalg.norm(
                centres.std(axis=0)
            )
            rows /= np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
            yield Piles(rows, clusters)


def clusters() -> None:
    """Inertia of private k-means over that of k-means, by the constants of `lloyd`, by epsilon."""
    given = [(each, KMeans(each.clusters, n_init=10, random_state=0)) for each in piles()]
    least = [-plain.fit(each.rows).score(each.rows) for each, plain in given]
    grid = {
        "_REACH": (0.5, 0.8, 1.0, 1.5, 2.0),
        "_CENTRE_NOISE": (0.1, 0.2, 0.4, 0.8, 1.6),
        "_MOST": (4, 6, 8, 12),
        "_EMPTY": (1.0, 2.0, 3.0, 5.0),
    }
    for name, values in grid.items():
        stands = getattr(lloyd, name)
        for value in values:
            setattr(lloyd, name, value)
            shown = []
            for epsilon, delta in ((0.3, 1e-6), (1.0, 1e-6), (4.0, 1e-6), (1.0, 0.0), (4.0, 0.0)):
                ratios = []
                for (each, _), best in zip(given, least, strict=True):
                    for seed in range(6):
                        model = PrivateKMeans(
                            each.clusters, epsilon=epsilon, delta=delta, random_state=seed
                        ).fit(each.rows)
                        ratios.append(math.log(-model.score(each.rows) / best))
                shown.append(f"{epsilon:g}, {delta:g}: {math.exp(np.mean(ratios)):.3f}")
            print(f"{name} {value:g} (stands {stands:g}): {'  '.join(shown)}", flush=True)
        setattr(lloyd, name, stands)


if __name__ == "__main__":
    if sys.argv[1:] == ["pure"]:
        pure(case for case in cases(classes=True) if len(case.train) <= 20_000)
    else:
        {"lengths": lengths, "clusters": clusters}.get("".join(sys.argv[1:]), grid)()
