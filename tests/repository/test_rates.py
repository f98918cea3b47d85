"""examples/rates.py: instances are exact, fits find the slope, and the paper's rates show."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from processes import python

from protocols import ShuffleGD
from protocols.learning.baselines import Baseline
from shuffle_sim import Privacy, run

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def rates(example):
    return example("rates")


def named(rates, name):
    return next(method for method in (*rates.HARD, *rates.REALISTIC) if method.name == name)


@pytest.mark.full
def test_minimisers_are_exact_and_users_follow_the_distribution(rates):
    """Frequencies of 20,000 users within 6 standard errors: false alarm below 1e-6 in all."""
    rng = np.random.default_rng(0)
    for method in (*rates.HARD, *rates.REALISTIC):
        instance = method.instance(10)
        domain = instance.problem.domain
        assert instance.weights.sum() == pytest.approx(1.0)
        assert np.abs(domain.project(instance.minimiser) - instance.minimiser).max() < 1e-12
        instance.problem.loss.check(instance.atoms, 10)
        for scale in (1e-3, 1e-1, 1.0):
            around = [
                domain.project(instance.minimiser + scale * rng.normal(size=10)) for _ in range(50)
            ]
            assert min(instance.excess(theta) for theta in around) > -1e-12, method.name
        users = instance.population(20_000, 1).rows(0, 20_000)
        seen = np.array([(users == atom).all(axis=1).mean() for atom in instance.atoms])
        error = np.sqrt(instance.weights * (1 - instance.weights) / 20_000)
        assert (np.abs(seen - instance.weights) <= 6 * error).all()


def test_a_fit_finds_the_slope_and_flags_what_is_off(rates):
    method = named(rates, "SGD, linear on a ball")
    rng = np.random.default_rng(0)

    def drawn(power):
        points = rates.points_of(method, "n")
        runs = [
            [point.n**power * (1 + 0.1 * z) for z in rng.normal(size=10_000)] for point in points
        ]
        return [
            rates.Measured(point, 1.0, 1, 28.0, excess)
            for point, excess in zip(points, runs, strict=True)
        ]

    found = rates.fitted(method, "n", drawn(-0.5))
    assert found.slope == pytest.approx(-0.5, abs=5 * found.error)
    assert found.exact == pytest.approx(-0.5)
    assert not found.missed
    assert rates.fitted(method, "n", drawn(-0.65)).missed
    assert rates.fitted(method, "n", drawn(-0.38)).missed
    short = dataclasses.replace(found, slope=-0.9, points=found.points[:3])
    assert not short.missed  # less than three decades: no claim


def test_theory_of_the_crossover(rates):
    powers = {method.name.split(",")[0]: method.crossover for method in rates.HARD}
    assert powers["GD"] == pytest.approx(2.0)
    assert powers["AC-SA"] == pytest.approx(8 / 3)
    assert powers["smoothed AC-SA"] == pytest.approx(4.0)
    assert powers["phased AC-SA"] == pytest.approx(2.0)
    assert math.isinf(powers["SGD"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seeds"),
    [("smoothed AC-SA, linear on a ball", 2), ("AC-SA, linear on a ball, beta = 1", 5)],
)
def test_three_decades_of_the_quick_methods(rates, name, seeds):
    """The standard error of the slope is below 0.01, a tenth of the tolerance."""
    method = dataclasses.replace(named(rates, name), seeds=seeds)
    points = rates.points_of(method, "n")
    assert points[-1].n == 1000 * points[0].n
    found = rates.fitted(method, "n", [rates.measure(point) for point in points])
    assert found.error < 0.01
    assert not found.missed
    assert all(each.mean <= each.bound for each in found.points)
    # Power of the check: another row of Table 1 is refused.
    wrong = dataclasses.replace(method, power=method.power - 0.25)
    assert rates.fitted(wrong, "n", found.points).missed


@pytest.mark.slow
def test_every_slope_of_the_hard_instances_over_three_decades(rates):
    """The full study, some ten minutes; standard errors are below half the tolerance."""
    for each in rates.study([(method, "n") for method in rates.HARD], workers=2):
        assert each.error < 0.05, each.method
        assert not each.missed, (each.method, each.slope)


@pytest.mark.slow
def test_studies_start_where_the_rule_says(rates):
    for method in rates.HARD:
        below = [round(10 ** (k / 4)) for k in range(8, 20) if round(10 ** (k / 4)) < method.start]
        assert method.in_regime(method.start), method.name
        assert not any(method.in_regime(n) for n in below[-3:]), method.name


@pytest.mark.slow
def test_the_command_writes_whole_files_and_refuses_bad_input(tmp_path):
    command = EXAMPLES / "rates.py", "--out", tmp_path / "out", "--quick"
    done = python(*command, "--workers", 2, timeout=None)
    assert done.returncode == 0, done.stderr
    assert "SGD, linear on a ball" in done.stdout
    document = json.loads((tmp_path / "out" / "rates.json").read_text())
    assert len(document["slopes"]) == 7
    for slope in document["slopes"]:
        assert {"method", "axis", "theory", "exact", "slope", "error", "steps", "points"} <= set(
            slope
        )
        assert all(0 < np.mean(point["excess"]) <= point["bound"] for point in slope["points"])
    assert (tmp_path / "out" / "rates-n.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "rates-n.png",
        "rates.json",
    ]
    for bad, match in (
        (["--workers", "0"], "at least 1"),
        (["--out", __file__], "must be a folder"),
    ):
        done = python(*command, *bad)
        assert done.returncode == 2
        assert match in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_interactive_gd_costs_a_tenth_more_than_central_at_most(rates, rounds):
    """Mean excess population loss of 20 runs each, on the same users, steps and rounds.

    At n = 10^5, d = 10, epsilon = 1, delta = 1e-6.

    The ratio's upper limit at 5 standard errors must be below 1.1 (false alarm below 1e-6, were the
    ratio 1 or less). What noise alone moves is held apart: its square is (noise ratio)^2 times the
    central model's, within 5 standard errors of 200 terms.
    """
    method = named(rates, "GD, logistic")
    instance, n, privacy = method.instance(10), 100_000, Privacy(1.0, 1e-6)
    protocol = ShuffleGD.calibrated(n=n, problem=instance.problem, privacy=privacy, rounds=rounds)
    rows = instance.population(n, 0)
    quiet = run(Baseline(protocol, "none"), rows).value
    values = {
        "shuffle": [
            run(protocol, rows, fidelity="aggregate", seed=seed).value for seed in range(20)
        ],
        "central": [run(Baseline(protocol, "central"), rows, seed=s).value for s in range(20)],
        "local": [run(Baseline(protocol, "local"), rows, seed=s).value for s in range(2)],
    }
    excess = {
        model: np.array([instance.excess(theta) for theta in found])
        for model, found in values.items()
    }
    ratio = excess["shuffle"].mean() / excess["central"].mean()
    error = (
        math.hypot(excess["shuffle"].std(), excess["central"].std())
        / math.sqrt(20)
        / excess["central"].mean()
    )
    assert ratio + 5 * error <= 1.1
    assert excess["local"].mean() / excess["central"].mean() > 1.1  # power: more noise is seen
    moved = {
        model: np.square(np.array(found) - quiet).sum(axis=1).mean()
        for model, found in values.items()
    }
    assert moved["shuffle"] / moved["central"] <= 1.05**2 * (1 + 5 * math.sqrt(2 * 2 / 200))
    assert moved["local"] / moved["central"] > 100


@pytest.mark.slow
def test_smoothed_acsa_beats_sgd_only_where_theory_says_so(rates):
    """Hard instance and hinge at epsilon 1, d = 10: means differ by more than 5 standard errors.

    Theory: (A/n)^(2/3) against (A/n)^(1/2). The proven bounds cross near n = 1,000.
    """

    def compared(names, n, seeds=10):
        found = []
        for name in names:
            method = named(rates, name)
            found.append(
                rates.measure(
                    dataclasses.replace(rates.points_of(method, "n")[0], n=n, seeds=seeds)
                )
            )
        sgd, smoothed = found
        return sgd, smoothed, (sgd.mean - smoothed.mean) / math.hypot(sgd.error, smoothed.error)

    hard = "SGD, linear on a ball", "smoothed AC-SA, linear on a ball"
    sgd, smoothed, margin = compared(hard, 10_000)
    assert smoothed.bound < sgd.bound
    assert margin > 5
    assert smoothed.mean < 0.7 * sgd.mean
    sgd, smoothed, _ = compared(hard, 200)
    assert smoothed.bound > sgd.bound  # too few users: theory does not say so
    _, _, margin = compared(("SGD, hinge", "smoothed AC-SA, hinge"), 300, 20)
    assert abs(margin) < 5  # on an easy loss with as few users, neither is better
    _, _, margin = compared(("SGD, hinge", "smoothed AC-SA, hinge"), 10_000, 20)
    assert margin > 4  # false alarm below 1e-4
