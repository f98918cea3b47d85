"""Carried-centre clipping: values are clipped around what was released before, not around 0.

Persons' mean gradients are near each other, at L/sqrt(m). The released mean of one round is a good
center of the next. The radius follows from what is public: the noise, the spread that is stated,
and how far the question moved. Any center and any radius are private (docs/theory/user-level.md);
a bad one is only inaccurate.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, one_of, positive, real

CENTERS = ("carried", "fixed")
DEVIATIONS, FAIL = (3.0, 4.0, 5.0), 1e-3
"""u that are tried: at 3 the clip bias is 0.0034 L/sqrt(m), at 4 it is 0.00008 L/sqrt(m); and the
chance of noise longer than planned. Where persons are asked again u is as large as keeps the bias
at what it is for epsilon 1.
"""
COARSE, EVERY_COARSE = (2, 4, 8), tuple(range(1, 13))
"""Coarse rounds that are tried; and where the number of rounds is given. Neither depends on n, m
and epsilon: a number that follows from them takes a step away where it grows by one.
"""
MAX_CONTRACTION = 0.7
NEAR = "records of a person are i.i.d. and no noise is longer than planned"
"""What bounds assume that are stated with a center; that privacy does not."""
_RECENTRINGS = 4  # numbers of rounds before each step that are tried where a loss has kinks


@dataclass(frozen=True, kw_only=True)
class Centring:
    """How center and radius go on from round to round, by public numbers only.

    Attributes:
        limit: L, within which every value is.
        spread: tau, how far from the mean persons' values are nearly always; L: no center is used.
        contraction: a, the noise of a released mean as a share of its radius, nearly always.
        drift: beta, by how much values move where the question moves by 1.
        coarse: rounds before the first step, which only find the center.
        recentring: rounds before each step that only renew the center.
    """

    limit: float
    spread: float
    contraction: float = 0.0
    drift: float = 0.0
    coarse: int = 0
    recentring: int = 0

    def __post_init__(self) -> None:
        """Check the ranges; a radius of 0 would let nothing through for ever."""
        positive("norm_bound", self.limit)
        positive("spread", self.spread)
        real("contraction", self.contraction, 0.0, 1.0, closed=(True, False))
        real("drift", self.drift, 0.0, math.inf, closed=(True, True))
        integer("coarse", self.coarse, 0)
        integer("recentring", self.recentring, 0)

    @classmethod
    def fixed(cls, limit: float) -> "Centring":
        """Clipping at L around 0 in every round."""
        return cls(limit=limit, spread=limit)

    @property
    def carried(self) -> bool:
        """Whether a center is ever used."""
        return self.spread < self.limit

    def rounds(self, steps: int) -> int:
        """Of interaction, for so many steps."""
        return self.coarse + steps * (self.recentring + 1)

    def is_step(self, index: int) -> bool:
        """Whether a round takes a step."""
        turn = self.recentring + 1
        return index >= self.coarse and (index - self.coarse) % turn == self.recentring

    def following(self, estimate: Floats, radius: float, moved: float) -> tuple[Floats, float]:
        """(center, radius) of the next round.

        Args:
            estimate: the released mean.
            radius: with which it was asked for.
            moved: how far the next question is from this one.
        """
        after = self.spread + self.contraction * radius
        if moved > 0:  # drift may be infinite
            after += self.drift * moved
        # Around 0 nobody is longer than L: a center with a larger radius would only cost noise.
        if after < self.limit:
            return estimate, after
        return np.zeros_like(estimate), self.limit

    @property
    def rate(self) -> float:
        """By which a radius shrinks from step to step: a^(k+1)."""
        return float(self.contraction ** (self.recentring + 1))

    def first(self) -> float:
        """The radius of the first step."""
        if not self.carried:
            return self.limit
        times = self.coarse + self.recentring
        shrunk = self.contraction**times
        # tau (1 + a + ... + a^(t-1)), and what is left of L after t releases.
        level = self.spread * (1 - shrunk) / (1 - self.contraction)
        return min(self.limit, float(level + shrunk * self.limit))

    def radii(self, moves: Floats) -> Floats:
        """Radii of the steps, at most, where the question moves by `moves` between them.

        Args:
            moves: shape (steps - 1,).
        """
        turn, rate = self.contraction**self.recentring, self.rate
        limit, radius = self.limit, self.first()
        level, found = self.spread * (1 - rate) / (1 - self.contraction), [radius]
        # A move widens the round after it; the k rounds that only renew the center shrink that by
        # a^k. Drift may be infinite.
        pushed = level + turn * np.multiply(self.drift, moves, out=0 * moves, where=moves > 0)
        for each in pushed.tolist():
            radius = min(limit, rate * radius + each)
            found.append(radius)
        return np.array(found)

    def accelerated_radius(self, steps: int, reach: float) -> float:
        """Root mean square of the radii of AC-SA's steps, weighted as their noise is.

        Args:
            steps: T.
            reach: no two points of the steps are farther apart.
        """
        if not self.carried:
            return self.limit
        t = np.arange(1.0, steps + 1)
        # theta_md moves by a_t |theta_t - theta_{t-1}| + a_{t+1} |theta_t - theta_ag| at most, a_t
        # = 2/(t + 1).
        radii = self.radii(4 * reach / (t[:-1] + 1))
        # The proof of AC-SA weights a round's squared noise by t^2.
        return float(np.linalg.norm(t * radii) / np.linalg.norm(t))


def squared_unit(setting: Setting, batch: int, rounds: int) -> float:
    """kappa^2 = E ||noise||^2 of a mean over `batch` values in the unit ball, asked `rounds` times.

    Raises:
        ParameterError: the center would be noise.
    """
    return setting.squared_noise(batch, rounds) / setting.problem.lipschitz**2


@dataclass(frozen=True)
class Spread:
    """What is assumed of persons for radii: docs/theory/user-level.md, "Carried-centre clipping".

    Attributes:
        batch: persons n_b of a round.
        records: m.
        length: bound of the deviation of one record's value from its mean: L, or as declared.
        deviations: u.
        fail: chance of noise longer than planned, in a round.
    """

    batch: int
    records: int
    length: float
    deviations: float = DEVIATIONS[0]
    fail: float = FAIL

    def __post_init__(self) -> None:
        real("deviations", self.deviations, 0.0, math.inf, closed=(True, False))
        real("fail", self.fail, 0.0, 1.0, closed=(False, False))

    @classmethod
    def tried(
        cls, setting: Setting, choices: Choices, batch: int, again: bool = False
    ) -> "list[Spread]":
        """In a setting, asked once or again; `deviations` and `fail` may be given."""
        given, fail = choices["deviations"], choices["fail"]
        usual = DEVIATIONS
        if again:
            # Their bias costs e^epsilon ("Radii"): e^epsilon Phi(-u) is the same for all epsilon.
            rare = scipy.special.ndtr(-np.array(DEVIATIONS)) * math.exp(1 - setting.privacy.epsilon)
            usual = tuple((-scipy.special.ndtri(rare)).tolist())
        problem = setting.problem
        # A spread of 0 is allowed where steps are planned; a radius must stay above 0.
        length = max(problem.spread * math.sqrt(problem.records), 1e-6 * problem.lipschitz)
        return [
            cls(batch, problem.records, length, u, FAIL if fail is None else fail)
            for u in (usual if given is None else (given,))
        ]

    @property
    def tail(self) -> float:
        """sqrt(2 ln(1/fail))."""
        return math.sqrt(2 * math.log(1 / self.fail))

    @property
    def tau(self) -> float:
        """Persons from their mean, and the mean of a batch from the population's."""
        each = self.length / math.sqrt(self.records)
        return each * (
            1 + self.deviations + (1 + max(self.deviations, self.tail)) / math.sqrt(self.batch)
        )

    def contraction(self, squared_noise: float, d: int) -> float:
        """a, for kappa^2 = `squared_noise`."""
        # Noise of a released mean over its radius, but for `fail` ("Radii").
        return math.sqrt(squared_noise / d) * (math.sqrt(d) + self.tail)

    def bias(self, epsilon: float, delta: float, limit: float) -> float:
        """Of a released mean by clipping, at most; persons who are asked again cost e^epsilon."""
        each = self.length / math.sqrt(self.records)
        beyond = math.sqrt(2 * math.pi) * float(scipy.special.ndtr(-self.deviations))
        # sqrt(2 pi) Phi(-u) L/sqrt(m) ("Radii"); p becomes e^epsilon p + delta, and a value is 2 L
        # off at most.
        return math.exp(epsilon) * each * beyond + 2 * limit * delta


def candidates(
    setting: Setting, choices: Choices, batch: int, rounds: int, squared_noise: float
) -> Iterator[tuple[Centring, int, float]]:
    """(centring, steps, clip bias) that fit in `rounds`, with drift 0 yet: none, then carried ones.

    Args:
        setting: what for.
        choices: `center`, `coarse`, `deviations` and `fail` may be given.
        batch: persons of a round.
        rounds: of interaction.
        squared_noise: kappa^2 in each of them.
    """
    problem, asked = setting.problem, choices["center"]
    one_of("center", asked, CENTERS, None)
    limit, again = problem.lipschitz, batch == setting.n and rounds > 1
    spreads = Spread.tried(setting, choices, batch, again)
    if asked != "carried":
        yield Centring.fixed(limit), rounds, 0.0
    if asked == "fixed":
        return
    # Disjoint batches see a point that knows nothing of their persons.
    asked_again = (setting.privacy.epsilon, setting.privacy.delta) if again else (0.0, 0.0)
    usual: tuple[int, ...] = COARSE if choices["rounds"] is None else EVERY_COARSE
    given = choices["coarse"]
    counts = usual if given is None else (integer("coarse", given, 0),)
    for spread in spreads:
        a, tau = spread.contraction(squared_noise, problem.d), spread.tau
        if tau >= limit or a >= MAX_CONTRACTION:
            continue
        for k in range(1 if problem.smooth else _RECENTRINGS):
            # Fewer coarse rounds may leave as many steps: what is over is coarse, too.
            tried = {(rounds - each) // (k + 1) for each in counts}
            for steps in sorted(each for each in tried if each >= 1):
                made = Centring(
                    limit=limit,
                    spread=tau,
                    contraction=a,
                    # Rounds that make no whole step look for the center, too.
                    coarse=rounds - steps * (k + 1),
                    recentring=k,
                )
                yield made, steps, spread.bias(*asked_again, limit)


def with_drift(centring: Centring, beta: float) -> Centring:
    """The same where values move by beta; without a center nothing follows them."""
    return dataclasses.replace(centring, drift=beta) if centring.carried else centring
