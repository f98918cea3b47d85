"""A competitor of real_tables.py: DP-SGD in the manner of Opacus, in an environment of its own.

Reads names of files from standard input. Batches are drawn by Poisson sampling, each gradient is
clipped, and Gaussian noise is added to the sum of a batch, with plain steps (Abadi et al. 2016).
The noise is the least with which dp-accounting's privacy loss distributions give epsilon at
delta = 1e-5 for neighbours that differ in one row: their gradients are opposite, so the losses are
those of the mixtures (1 - q) N(0, s^2) + q N(1, s^2) and (1 - q) N(0, s^2) + q N(-1, s^2). Opacus
itself needs torch, of some gigabytes; its own relation adds or removes a row and asks for less.
"""

import json
import sys
from pathlib import Path

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

DELTA, CLIP, CONSTANT = 1e-5, 0.5, 0.5
PLANS = {"q 0.1, 100 steps": (0.1, 100), "q 0.5, 40 steps": (0.5, 40)}
STEPS = (2.0, 8.0, 32.0)


def delta_of(noise, q, steps, epsilon):
    """Of the composed pair of mixtures; numbers are on a grid of 4,000 cells."""
    edges = np.linspace(-1 - 9 * noise, 1 + 9 * noise, 4_001)
    middle = (edges[1:] + edges[:-1]) / 2
    width = edges[1] - edges[0]

    def masses(centre):
        at = [np.exp(-(((middle - c) / noise) ** 2) / 2) for c in (0.0, centre)]
        return ((1 - q) * at[0] + q * at[1]) * width / noise / np.sqrt(2 * np.pi)

    lower, upper = (
        dict(enumerate(np.log(np.maximum(masses(centre), 1e-300)).tolist()))
        for centre in (1.0, -1.0)
    )
    made = pld.from_two_probability_mass_functions(
        lower,
        upper,
        value_discretization_interval=1e-4,
        symmetric=True,  # mirrored
    )
    return float(made.self_compose(steps).get_delta_for_epsilon(epsilon))


def noise_of(folder, q, steps, epsilon):
    """The least noise multiplier, to 1 %; kept in a file, for it takes a while."""
    place = Path(folder, "dpsgd-noise.json")
    known = json.loads(place.read_text()) if place.exists() else {}
    key = f"{q} {steps} {epsilon}"
    if key not in known:
        low, high = 0.3, 2_000.0
        while high > 1.01 * low:
            middle = np.sqrt(low * high)
            enough = delta_of(middle, q, steps, epsilon) < DELTA
            low, high = (low, middle) if enough else (middle, high)
        known[key] = float(high)
        place.write_text(json.dumps(known))
    return known[key]


def trained(X, y, q, steps, noise, eta, classes, rng):
    """Parameters after plain steps; targets are 0 and 1, or in [-1, 1]."""
    theta = np.zeros(X.shape[1])
    for _ in range(steps):
        chosen = np.flatnonzero(rng.random(len(X)) < q)
        rows = X[chosen]
        margins = rows @ theta
        factors = (1 / (1 + np.exp(-np.clip(margins, -50, 50))) if classes else margins) - y[chosen]
        norms = np.linalg.norm(rows, axis=1) * np.abs(factors)
        factors *= np.minimum(1, CLIP / np.maximum(norms, 1e-12))
        total = factors @ rows + CLIP * noise * rng.normal(size=theta.size)
        theta -= eta * total / (q * len(X))
    return theta


def main(folder):
    """Answer each line."""
    for line in sys.stdin:
        given = np.load(line.strip())
        X, test = (
            np.column_stack([given[name], np.full(len(given[name]), CONSTANT)])
            for name in ("X", "test")
        )
        y, classes = given["y"], not given["bounds"].size
        rng = np.random.default_rng(int(given["seed"]))
        middle, half = 0.0, 1.0
        if not classes:
            middle, half = given["bounds"].mean(), np.diff(given["bounds"])[0] / 2
        answers, found = (y - middle) / half, {}
        for name, (q, steps) in PLANS.items():
            for eta in STEPS:
                key = f"{name}, eta {eta:g}"
                found[key] = np.empty((len(given["epsilons"]), len(test)))
                for place, epsilon in enumerate(given["epsilons"]):
                    noise = noise_of(folder, q, steps, float(epsilon))
                    theta = trained(X, answers, q, steps, noise, eta, classes, rng)
                    margins = test @ theta
                    found[key][place] = margins > 0 if classes else margins * half + middle
        answer = line.strip() + ".answer.npz"
        np.savez(answer, **found)
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
