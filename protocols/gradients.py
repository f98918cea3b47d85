"""What all optimisers share: the problem, the private average of gradients, and the loop around them.

Users are asked for gradients of the loss alone. A ridge (kappa/2) ||theta||^2 is public: the analyzer adds its gradient itself,
at no privacy and no noise.
"""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocols.binomial import BinomialRandomizer
from protocols.domains import Domain
from protocols.losses import Loss
from shuffle_sim.cohort import Cohort
from shuffle_sim.errors import ParameterError, ShuffleSimError, integer, positive, real
from shuffle_sim.messages import Tally
from shuffle_sim.privacy import gaussian, paper
from shuffle_sim.privacy.events import BinomialSumEvent
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.planner import P, Plan, Task, fewest_bits, honest_users
from shuffle_sim.protocol import Protocol, Query, RoundSpec
from shuffle_sim.randomizer import Floats, Values

NOISE_RATIO = 1.05
"""Noise over the central Gaussian's that the calibrations aim at."""


class DivergedError(ShuffleSimError, RuntimeError):
    """The optimiser's state is not finite any more; what was released until then stays in the ledger."""

    def __init__(self, round_index: int) -> None:
        """Name the round."""
        super().__init__(f"round {round_index}: the state is not finite any more; take smaller steps")
        self.round = round_index


@dataclass(frozen=True)
class Gradient(Query):
    """Asks for the gradient of a loss at theta, or of its Moreau envelope.

    Attributes:
        loss: the loss.
        theta: where.
        smoothing: beta of the envelope; None: the loss itself.
    """

    loss: Loss
    theta: Floats
    smoothing: float | None = None

    def __call__(self, rows: Floats) -> Values:
        """One gradient for each row."""
        return self.loss.gradients(self.theta, np.asarray(rows, np.float64), self.smoothing)


@dataclass(frozen=True)
class Problem:
    """Minimise E l(theta; row) + (ridge/2) ||theta||^2 over a domain.

    Attributes:
        loss: l, convex.
        domain: where theta may be.
        ridge: kappa; makes the objective kappa-strongly convex.
        start: where optimisation starts; None: the domain's centre.
        norm_bound: a bound L of the gradients that replaces the loss's own; longer ones are clipped on the user's side.
        declared_smoothness: a beta that replaces the loss's own; infinite: treat the loss as one with kinks.
        declared_spread: a bound of how far any user's gradient is from the population's mean, if below L: less sampling noise to
            plan for (0: users are all alike, only privacy's noise counts).
    """

    loss: Loss
    domain: Domain
    ridge: float = 0.0
    start: Floats | None = None
    norm_bound: float | None = None
    declared_smoothness: float | None = None
    declared_spread: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not convex, not bounded or not Lipschitz."""
        if not isinstance(self.loss, Loss):
            raise ParameterError("loss", self.loss, "a Loss, such as Logistic()")
        if not isinstance(self.domain, Domain):
            raise ParameterError("domain", self.domain, "a bounded convex Domain, such as L2Ball(d, radius)")
        real("ridge", self.ridge, 0.0, math.inf, closed=(True, False))
        if self.norm_bound is not None:
            positive("norm_bound", self.norm_bound)
        for name, value in (("declared_smoothness", self.declared_smoothness), ("declared_spread", self.declared_spread)):
            if value is not None and not value >= 0:
                raise ParameterError(name, value, "at least 0, or None")
        if not 0 <= self.loss.strong_convexity() < math.inf:
            raise ParameterError("strong_convexity", self.loss.strong_convexity(), "at least 0: the loss must be convex")
        beta = self.loss.smoothness()
        if beta is not None and not max(0.0, self.loss.strong_convexity()) <= beta < math.inf:
            raise ParameterError("smoothness", beta, "at least the strong convexity, or None for a loss that is not smooth")
        if not 0 < self.lipschitz < math.inf:
            allowed = "finite and above 0: bound the features, the labels and the domain, or give norm_bound"
            raise ParameterError("lipschitz", self.lipschitz, allowed)
        if self.start is not None:
            start = np.asarray(self.start, np.float64)
            if start.shape != (self.d,) or not np.isfinite(start).all():
                raise ParameterError("start", self.start, f"{self.d} finite numbers")
            object.__setattr__(self, "start", self.domain.project(start))

    @property
    def d(self) -> int:
        """Number of parameters."""
        return self.domain.d

    @property
    def origin(self) -> Floats:
        """Where optimisation starts."""
        return self.domain.center if self.start is None else self.start

    @property
    def reach(self) -> float:
        """Distance from the start to the minimiser at most."""
        return min(self.domain.reach(self.origin), self.domain.diameter)

    @property
    def lipschitz(self) -> float:
        """L of what users send."""
        return self.loss.lipschitz(self.domain.radius) if self.norm_bound is None else self.norm_bound

    @property
    def objective_lipschitz(self) -> float:
        """L of the objective, with the ridge."""
        return self.lipschitz + self.ridge * self.domain.radius

    @property
    def smooth(self) -> bool:
        """Whether the objective is smooth as it is."""
        return self.smoothness() < math.inf

    @property
    def spread(self) -> float:
        """Root of the bound of the variance of one user's gradient: L, or as declared."""
        return self.lipschitz if self.declared_spread is None else min(self.lipschitz, self.declared_spread)

    def smoothness(self, smoothing: float | None = None) -> float:
        """beta of the objective, or of its envelope; infinite for a loss with kinks."""
        beta = self.declared_smoothness if self.declared_smoothness is not None else self.loss.smoothness()
        bounds = [each for each in (beta, smoothing) if each is not None]
        return min(bounds, default=math.inf) + self.ridge

    @property
    def strong_convexity(self) -> float:
        """lambda of the objective, with the ridge."""
        return self.loss.strong_convexity() + self.ridge

    def risk(self, theta: Floats, rows: Floats) -> float:
        """The objective on `rows`."""
        return float(self.loss.values(theta, rows).mean()) + self.ridge / 2 * float(theta @ theta)


def demand(problem: Problem, privacy: Privacy) -> None:
    """Refuse what is not a problem, or not a privacy target.

    Raises:
        ParameterError: naming which.
    """
    if not isinstance(problem, Problem):
        raise ParameterError("problem", problem, "a Problem(loss, domain)")
    if not isinstance(privacy, Privacy):
        raise ParameterError("privacy", privacy, "a Privacy(epsilon, delta)")


MODELS = ("shuffle", "central", "local", "none")
"""Who adds the noise: every user a little of it, a trusted curator, every user all of it, nobody."""


@dataclass(frozen=True)
class Noise:
    """How much noise an average of gradients will carry, before any parameters are searched.

    Attributes:
        d: coordinates.
        norm_bound: L.
        privacy: of the whole run.
        ratio: of the shuffle model's noise over the central Gaussian's.
        model: one of MODELS.
        honest_fraction: of the users that add their noise.
    """

    d: int
    norm_bound: float
    privacy: Privacy
    ratio: float = NOISE_RATIO
    model: str = "shuffle"
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Check the model's name."""
        if self.model not in MODELS:
            raise ParameterError("model", self.model, f"one of {', '.join(MODELS)}")

    @classmethod
    def of_problem(cls, problem: Problem, privacy: Privacy, ratio: float, model: str, honest_fraction: float) -> "Noise":
        """For the gradients of a problem."""
        demand(problem, privacy)
        return cls(problem.d, problem.lipschitz, privacy, ratio, model, honest_fraction)

    def squared(self, batch: int, rounds: int = 1) -> float:
        """rho^2 = E ||noise of the average of `batch` gradients||^2 where each user answers in `rounds` rounds."""
        if self.model == "none":
            return 0.0
        unit = math.sqrt(rounds) / gaussian_mu(self.privacy.epsilon, self.privacy.delta)
        unit *= {"shuffle": self.ratio, "central": 1.0, "local": math.sqrt(batch)}[self.model]
        return self.d * (2 * self.norm_bound * unit / batch) ** 2

    def mean(self, batch: int, rounds: int = 1) -> "NoisyMean":
        """The shuffle model's average with that noise."""
        task = Task(batch, self.d, self.privacy, rounds, self.honest_fraction)
        return NoisyMean.calibrated(task, self.norm_bound, self.ratio)

    def of(self, mean: "NoisyMean", rounds: int = 1) -> float:
        """rho^2 once the parameters are known: exact in the shuffle model."""
        return mean.squared_noise if self.model == "shuffle" else self.squared(mean.batch, rounds)


gaussian_mu = lru_cache(gaussian.mu_of)
_fewest_bits = lru_cache(fewest_bits)


@dataclass(frozen=True)
class NoisyMean:
    """The average of a batch of vectors in an l2 ball, from one-bit messages (P_vec, divided by the reports received).

    Attributes:
        batch: users n_b in a round.
        d: coordinates.
        norm_bound: L.
        g: rounding steps.
        b: noise bits per user and coordinate.
        p: their success probability.
        honest_fraction: of the users that add their noise, in every batch.
    """

    batch: int
    d: int
    norm_bound: float
    g: int
    b: int
    p: float = P
    honest_fraction: float = 1.0
    randomizer: BinomialRandomizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the ranges."""
        integer("batch", self.batch)
        width = 2 * positive("norm_bound", self.norm_bound)
        made = BinomialRandomizer(self.d, self.g, self.b, self.p, -self.norm_bound, width, self.norm_bound)
        object.__setattr__(self, "randomizer", made)
        honest_users(self.honest_fraction, self.batch)
        made.event(self.batch)  # refuses trials beyond exact arithmetic

    @classmethod
    def calibrated(cls, task: Task, norm_bound: float, noise_ratio: float = NOISE_RATIO) -> "NoisyMean":
        """The fewest bits with at most `noise_ratio` times the central Gaussian's noise; task.n is the batch."""
        plan: Plan = _fewest_bits(task, noise_ratio)
        return cls(task.n, task.d, norm_bound, plan.g, plan.b, honest_fraction=task.honest_fraction)

    @classmethod
    def paper(cls, batch: int, d: int, norm_bound: float, epsilon: float, delta: float) -> "NoisyMean":
        """The constants of Theorem 3.2 with n the batch."""
        chosen = paper.theorem_3_2(batch, d, epsilon, delta)
        return cls(batch, d, norm_bound, chosen.g, chosen.b, chosen.p)

    @property
    def honest(self) -> int:
        """Users whose noise is counted on."""
        return honest_users(self.honest_fraction, self.batch)

    @property
    def event(self) -> BinomialSumEvent:
        """What a round costs."""
        return self.randomizer.event(self.honest)

    @property
    def squared_noise(self) -> float:
        """rho^2 = E ||noise of the average||^2 = d (2L/g)^2 (n_b b p (1-p) + n_b/4)/n_b^2, rounding at its worst."""
        return float(self.randomizer.variance(self.batch).sum()) / self.batch**2

    def estimate(self, tally: Tally) -> Floats:
        """The average over the reports received."""
        return self.randomizer.estimate(tally) / max(tally.reports, 1)

    def spec(self, cohort: Cohort, query: Query) -> RoundSpec:
        """A round of it."""
        # Only an honest fraction below 1 agrees on a floor; at 1 any dropout is stated in the result's epsilon instead.
        minimum = self.honest if self.honest_fraction < 1 else 1
        return RoundSpec(cohort, query, self.randomizer, self.event, self.estimate, minimum)


@dataclass(frozen=True)
class OptimiserState:
    """State of any optimiser: how many rounds are over."""

    round: int


StateT = TypeVar("StateT", bound=OptimiserState)


class FirstOrder(Protocol[StateT]):
    """A protocol that asks for one private average gradient a round; subclasses say where, of whom, and what they do with it.

    Attributes:
        problem: what is minimised.
        n: users.
        rounds: T.
        mean: the private average.
        smoothing: beta of the Moreau envelope, or None.
        privacy: asked for.
        bound: proven bound of the expected gap, where the parameters were chosen with one; infinite otherwise.
        choices: what was chosen, and why.
    """

    one_shot: ClassVar[bool] = True
    """Whether every user is asked once at most, in disjoint batches."""

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        rounds: int,
        mean: NoisyMean,
        privacy: Privacy,
        smoothing: float | None = None,
        bound: float = math.inf,
        choices: dict[str, str] | None = None,
        claim: Guarantee | None = None,
    ) -> None:
        """Keep the parameters; subclasses add theirs."""
        demand(problem, privacy)
        self.problem, self.mean, self.privacy, self.bound = problem, mean, privacy, bound
        self.n, self.rounds = integer("n", n), integer("rounds", rounds)
        if mean.batch > self.n:
            raise ParameterError("batch", mean.batch, f"at most the number of users ({self.n})")
        if self.one_shot:
            split(self.n, mean.batch, self.rounds)
        self.smoothing = None if smoothing is None else positive("smoothing", smoothing)
        self.honest_fraction = mean.honest_fraction
        self.choices = {"rounds": "given", "batch": "given", **(choices or {})}
        self._claim = claim

    @property
    def users(self) -> int:
        """Number of users n."""
        return self.n

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self.privacy.delta

    @property
    def claim(self) -> Guarantee | None:
        """What the paper's theorem promises, where `paper` set the parameters."""
        return self._claim

    @property
    def speaks(self) -> tuple[type, ...]:
        """What a round may broadcast."""
        return (Gradient, BinomialRandomizer, type(self.problem.loss))

    @property
    def rounds_per_user(self) -> int:
        """In how many rounds a user answers at most."""
        return 1

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows of the wrong shape, or for which the loss's constants do not hold."""
        d = self.problem.d
        columns = self.problem.loss.columns(d)
        if rows.shape != (self.n, columns):
            raise ParameterError("data.shape", rows.shape, f"({self.n}, {columns})")
        self.problem.loss.check(rows, d)

    def init(self) -> StateT:
        """At the problem's start."""
        return self.init_at(self.problem.origin)

    @abstractmethod
    def init_at(self, theta: Floats) -> StateT:
        """At another start."""

    @abstractmethod
    def point(self, state: StateT) -> Floats:
        """Where the next gradient is asked for."""

    def cohort(self, state: StateT) -> Cohort:
        """The next batch of users not asked before."""
        return Cohort.of(state.round * self.mean.batch, (state.round + 1) * self.mean.batch)

    @abstractmethod
    def step(self, state: StateT, gradient: Floats) -> StateT:
        """The state after a gradient of the objective at `point`."""

    def plan(self, state: StateT) -> RoundSpec | None:
        """The next round's gradient."""
        if state.round >= self.rounds:
            return None
        return self.mean.spec(self.cohort(state), Gradient(self.problem.loss, self.point(state), self.smoothing))

    def update(self, state: StateT, estimate: Any) -> StateT:
        """One step of descent along the estimated average gradient.

        Raises:
            DivergedError: if the state is not finite any more.
        """
        gradient = np.asarray(estimate, np.float64) + self.problem.ridge * self.point(state)
        if not np.isfinite(gradient).all():
            raise DivergedError(state.round)
        after = self.step(state, gradient)
        values = [getattr(after, each.name) for each in dataclasses.fields(after)]
        if not all(np.isfinite(value).all() for value in values if isinstance(value, np.ndarray)):
            raise DivergedError(state.round)
        return after


def split(n: int, batch: int | None, rounds: int | None) -> tuple[int, int]:
    """(batch, rounds) of a sequential protocol where one or both are given: every user answers once.

    Raises:
        ParameterError: if there are not enough users.
    """
    if batch is not None and integer("batch", batch) > n:
        raise ParameterError("batch", batch, f"at most the number of users ({n})")
    if rounds is not None and integer("rounds", rounds) > n // (batch or 1):
        allowed = f"at most {n // (batch or 1)}: sequentially, each of {n} users answers once, in batches of {batch or 1}"
        raise ParameterError("rounds", rounds, allowed)
    if batch is None:
        if rounds is None:
            raise ParameterError("batch, rounds", None, "given, one of the two at least")
        return n // rounds, rounds
    return batch, rounds if rounds is not None else n // batch


def grid(n: int, batch: int | None, rounds: int | None) -> Sequence[tuple[int, int]]:
    """The (batch, rounds) worth trying: what is given, else rounds on a geometric grid."""
    if batch is not None or rounds is not None:
        return [split(n, batch, rounds)]
    return [(n // int(t), int(t)) for t in np.unique(np.geomspace(1, n, 500).round().astype(int))]
