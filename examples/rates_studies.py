"""What `rates.py` measures: instances whose population loss is known exactly, and the methods of
Table 1 on them.

The privacy term of every rate is a power of one number, A/n with A = sqrt(d) times the noise of one
user's vector (about 2 sqrt(d) sigma_1; THEORY): excess loss ~ (A/n)^a. Against n the slope is -a,
against d a/2, against epsilon about -a.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.special import expit

from protocols import ShuffleACSA, ShuffleGD, ShuffleSGD
from protocols.optimisation import Phased
from protocols.optimisation.setting import NOISE_RATIO
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Hinge, Linear, Logistic, MeanEstimation
from protocols.problems.problem import Problem
from protocols.problems.regression import Absolute
from shuffle_sim import Privacy
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.protocol.base import Protocol

DELTA = 1e-6
REGIME = 1 / 4


@dataclass(frozen=True)
class Instance:
    """A population with an exact loss.

    Attributes:
        problem: loss and domain.
        atoms: the distinct rows users may have, (m, columns).
        weights: their probabilities.
        minimiser: of the population loss over the domain.
    """

    problem: Problem
    atoms: Floats
    weights: Floats
    minimiser: Floats

    def risk(self, theta: Floats) -> float:
        """The population loss: a finite sum."""
        return float(
            self.weights @ self.problem.loss.values(theta, self.atoms)
        ) + self.problem.ridge / 2 * float(theta @ theta)

    def excess(self, theta: Floats) -> float:
        """Above the least."""
        return self.risk(theta) - self.risk(self.minimiser)

    def population(self, n: int, seed: int) -> Population:
        """n users, each with an atom of its own drawing."""
        if len(self.atoms) == 1:
            return Alike(self.atoms[0], n)
        return InMemory(
            self.atoms[np.random.default_rng(seed).choice(len(self.atoms), n, p=self.weights)]
        )


class Alike(Population):
    """n users with the same row, in no memory: without sampling noise, what is left is
    privacy's.
    """

    def __init__(self, row: Floats, n: int) -> None:
        """Keep the row."""
        self._row, self._n = row, n

    @property
    def users(self) -> int:
        """How many."""
        return self._n

    def rows(self, start: int, stop: int) -> Floats:
        """The row again and again."""
        return np.broadcast_to(self._row, (stop - start, len(self._row)))

    @property
    def resident(self) -> bool:
        """Made once and kept where all users answer in every round."""
        return True

    def content(self, start: int, stop: int) -> bytes:
        """Nothing to watch: rows never change."""
        return b""


def _alike(problem: Problem, row: Floats, minimiser: Floats) -> Instance:
    return Instance(problem, row[None], np.ones(1), minimiser)


def _unit(d: int, scale: float = 1.0) -> Floats:
    return np.eye(1, d)[0] * scale


def linear(d: int, beta: float | None = None) -> Instance:
    """<x, theta> on the unit ball, least at -x; as smooth as declared (beta infinite: treated as if
    it had kinks).
    """
    problem = Problem(Linear(), L2Ball(d, 1.0), declared_smoothness=beta, declared_spread=0.0)
    return _alike(problem, _unit(d + 1), _unit(d, -1.0))


def kinked(d: int) -> Instance:
    """||theta||^2/4 + |theta_1 - 1/2|/2 on the unit ball, from theta_1 = -0.8: strongly convex, its
    kink at the minimiser.
    """
    problem = Problem(
        Absolute(0.5, 0.5), L2Ball(d, 1.0), ridge=0.5, declared_spread=0.0, start=_unit(d, -0.8)
    )
    row = _unit(d + 1, 0.5)
    row[-1] = 0.25
    return _alike(problem, row, _unit(d, 0.5))


def quadratic(d: int) -> Instance:
    """||theta - x||^2/2 on the unit ball, ||x|| = 1/2."""
    return _alike(
        Problem(MeanEstimation(), L2Ball(d, 1.0), declared_spread=0.0), _unit(d, 0.5), _unit(d, 0.5)
    )


def _sphere(d: int, count: int) -> Floats:
    points = np.random.default_rng(d).normal(size=(count, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def mean(d: int) -> Instance:
    """Mean estimation of 64 points on the unit sphere, shifted to a mean of norm 1/2 and shrunk
    back into the ball.
    """
    points = 0.5 * _sphere(d, 64)
    points += _unit(d, 0.5) - points.mean(axis=0)
    points /= np.linalg.norm(points, axis=1).max()
    return Instance(
        Problem(MeanEstimation(), L2Ball(d, 1.0)), points, np.full(64, 1 / 64), points.mean(axis=0)
    )


def _labelled(d: int) -> tuple[Floats, Floats, Floats]:
    """64 directions with labels of probability expit(<x, truth>): rows, weights, truth."""
    x, truth = _sphere(d, 64), _unit(d, 3.0)
    weights = np.concatenate([expit(x @ truth), expit(-x @ truth)]) / 64
    return np.c_[np.r_[x, x], np.repeat([1.0, -1.0], 64)], weights, truth


def logistic(d: int) -> Instance:
    """Well specified: the truth is the minimiser."""
    rows, weights, truth = _labelled(d)
    return Instance(Problem(Logistic(), L2Ball(d, 4.0)), rows, weights, truth)


def hinge(d: int) -> Instance:
    """The same users with the hinge loss, minimised as a linear program; the minimiser lies inside
    the ball.
    """
    rows, weights, _ = _labelled(d)
    slack = np.c_[-rows[:, :-1] * rows[:, -1:], -np.eye(len(rows))]
    bounds = [(None, None)] * d + [(0, None)] * len(rows)
    found = linprog(np.r_[np.zeros(d), weights], slack, np.full(len(rows), -1.0), bounds=bounds).x[
        :d
    ]
    return Instance(Problem(Hinge(), L2Ball(d, 4.0)), rows, weights, found)


def unit_noise(d: int, privacy: Privacy) -> float:
    """A: root of the expected squared noise of an average over n users, times n/L."""
    return 2 * NOISE_RATIO * math.sqrt(d) / gaussian.mu_of(privacy.epsilon, privacy.delta)


def sgd(n: int, problem: Problem, privacy: Privacy) -> ShuffleSGD:
    """Theorem 4.1."""
    return ShuffleSGD.calibrated(n=n, problem=problem, privacy=privacy)


def acsa(n: int, problem: Problem, privacy: Privacy) -> ShuffleACSA:
    """Theorem 4.3, or 4.7 where the loss has kinks."""
    return ShuffleACSA.calibrated(n=n, problem=problem, privacy=privacy)


def gd(n: int, problem: Problem, privacy: Privacy) -> ShuffleGD:
    """Theorem 4.9, in the rounds chosen: at most 1,000."""
    return ShuffleGD.calibrated(n=n, problem=problem, privacy=privacy)


def long_gd(n: int, problem: Problem, privacy: Privacy) -> ShuffleGD:
    """Theorem 4.9 in n/(1.2 A) rounds: theta_0 is one of the T iterates averaged, so that the gap
    cannot fall below L R/T.

    At delta = 1e-6 and d = 10 the accountant takes up to 10,000 rounds; three decades need a little
    less.
    """
    rounds = math.ceil(n / (1.2 * unit_noise(problem.d, privacy)))
    return ShuffleGD.calibrated(n=n, problem=problem, privacy=privacy, rounds=rounds)


def phased(n: int, problem: Problem, privacy: Privacy) -> Phased:
    """Theorem 4.8."""
    return Phased.calibrated(n=n, problem=problem, privacy=privacy, optimiser=ShuffleACSA)


def phased_gd(n: int, problem: Problem, privacy: Privacy) -> Phased:
    """Theorem 4.9, strongly convex."""
    return Phased.calibrated(n=n, problem=problem, privacy=privacy, optimiser=ShuffleGD)


def standing(n: int, problem: Problem, privacy: Privacy) -> float:
    """The guarantee of the start: L times the distance."""
    return problem.objective_lipschitz * problem.reach


def one_phase(n: int, problem: Problem, privacy: Privacy) -> float:
    """The guarantee without phases, which is that of a convex loss."""
    return Phased.calibrated(
        n=n, problem=problem, privacy=privacy, optimiser=ShuffleACSA, phases=1
    ).bound


def one_phase_gd(n: int, problem: Problem, privacy: Privacy) -> float:
    """The same, interactively."""
    return Phased.calibrated(
        n=n, problem=problem, privacy=privacy, optimiser=ShuffleGD, phases=1
    ).bound


@dataclass(frozen=True)
class Method:
    """A row of Table 1 on an instance.

    Attributes:
        name: of both.
        power: a, of the privacy term (A/n)^a.
        sampling: s, of the sampling term n^-s.
        instance: the instance in d dimensions.
        protocol: (n, problem, privacy) -> what is run.
        weaker: (n, problem, privacy) -> the guarantee of the next weaker method: the rate is looked
            for where the proven bound is at most REGIME times that, which is settled before
            anything is run.
        start: the first n on a grid of quarter decades where it is, for d = 10 and `epsilon`.
        seeds: runs of each point.
        middle: n at which d and epsilon vary.
        interactive: whether users answer in several rounds.
        epsilon: at which n and d vary.
        decades: of n.
    """

    name: str
    power: float
    sampling: float
    instance: Callable[[int], Instance]
    protocol: Callable[[int, Problem, Privacy], Protocol[Any]]
    weaker: Callable[[int, Problem, Privacy], float] = standing
    start: int = 1000
    seeds: int = 5
    middle: int = 0
    interactive: bool = False
    epsilon: float = 1.0
    decades: float = 3.0

    @property
    def crossover(self) -> float:
        """The power c of A at which the sampling term takes over, n = A^c; infinite where it never
        does.
        """
        return (
            math.inf if self.power <= self.sampling else self.power / (self.power - self.sampling)
        )

    def in_regime(self, n: int, d: int = 10) -> bool:
        """Whether the bound is at most REGIME times that of the next weaker method."""
        problem, privacy = self.instance(d).problem, Privacy(self.epsilon, DELTA)
        made: Any = self.protocol(n, problem, privacy)
        return bool(made.bound <= REGIME * self.weaker(n, problem, privacy))


def _linear_kinked(d: int) -> Instance:
    return linear(d, math.inf)


def _linear_smooth(d: int) -> Instance:
    return linear(d, 1.0)


HARD = (
    Method("SGD, linear on a ball", 1 / 2, 1 / 2, linear, sgd, start=1_000, middle=20_000),
    Method(
        "smoothed AC-SA, linear on a ball",
        2 / 3,
        1 / 2,
        _linear_kinked,
        acsa,
        start=1_000,
        middle=100_000,
    ),
    Method(
        "AC-SA, linear on a ball, beta = 1",
        4 / 5,
        1 / 2,
        _linear_smooth,
        acsa,
        start=562,
        middle=100_000,
    ),
    Method(
        "GD, linear on a ball",
        1.0,
        1 / 2,
        linear,
        long_gd,
        start=316,
        seeds=2,
        middle=10_000,
        interactive=True,
    ),
    Method(
        "phased smoothed AC-SA, r^2 + |.|",
        4 / 3,
        1.0,
        kinked,
        phased,
        one_phase,
        17_783,
        5,
        200_000,
    ),
    Method(
        "phased AC-SA, quadratic", 2.0, 1.0, quadratic, phased, one_phase, 17_783, 40, 1_000_000
    ),
    Method(
        "phased GD, quadratic",
        2.0,
        1.0,
        quadratic,
        phased_gd,
        one_phase_gd,
        3_162,
        4,
        30_000,
        True,
        4.0,
    ),
)
"""The hard instances: users are all alike, so that only privacy's noise counts."""

REALISTIC = (
    Method("SGD, logistic", 1 / 2, 1 / 2, logistic, sgd, start=3_162, decades=2),
    Method("AC-SA, logistic", 4 / 5, 1 / 2, logistic, acsa, start=3_162, decades=2),
    Method(
        "GD, logistic", 1.0, 1 / 2, logistic, gd, start=1_000, seeds=3, interactive=True, decades=2
    ),
    Method("SGD, hinge", 1 / 2, 1 / 2, hinge, sgd, start=3_162, decades=2),
    Method("smoothed AC-SA, hinge", 2 / 3, 1 / 2, hinge, acsa, start=3_162, decades=2),
    Method("GD, hinge", 1.0, 1 / 2, hinge, gd, start=1_000, seeds=3, interactive=True, decades=2),
    Method("phased AC-SA, mean", 2.0, 1.0, mean, phased, start=3_162, seeds=10),
    Method(
        "phased GD, mean",
        2.0,
        1.0,
        mean,
        phased_gd,
        start=1_000,
        seeds=3,
        interactive=True,
        decades=2,
    ),
)
"""Losses people use, with sampling variance: users are drawn from a distribution on 64 directions.
"""
