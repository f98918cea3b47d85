"""What is to be summed, and plans for it: parameters that are chosen without running anything."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.notebook import html_table
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import binomial, central, gaussian
from shuffle_sim.privacy.bounds.clipping import clipping_loss, padded
from shuffle_sim.privacy.bounds.domination import (
    MIN_VARIANCE,
    NUS,
    dominating_sigma,
    nus_near,
)
from shuffle_sim.privacy.bounds.gaussian import delta_gdp
from shuffle_sim.privacy.bounds.rounding import delta_many_rounds, delta_one_round
from shuffle_sim.privacy.events import BinomialSumEvent, PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy

SPAN = 3.5
"""Default bound of a rotated coordinate, in norm bounds over the root of their number."""
P = 0.5  # the best choice, and always available
# Below, the parameters leave exact arithmetic; above, nothing is protected.
_EPSILONS = 1e-4, 64.0


def honest_users(honest_fraction: float, n: int) -> int:
    """How many of n users a fraction is, at least.

    Raises:
        ParameterError: not in (0, 1], or not even one user.
    """
    # 1e-9: 0.07 * 100 rounds above 7, and is not 8 users.
    honest = math.ceil(real("honest_fraction", honest_fraction, 0.0, 1.0) * n - 1e-9)
    if honest < 1:
        raise ParameterError("honest_fraction", honest_fraction, f"at least 1/n = {1 / n:g}")
    return honest


def clip_of(d: int, rotation: int | None, span: float | None) -> float:
    """The part of the range to which coordinates are clipped; with a rotation SPAN by default.

    Raises:
        ParameterError: no seed, or a span outside (0, 1].
    """
    if rotation is not None:
        integer("rotation", rotation, 0, 2**63 - 1)
    if span is not None:
        return real("span", span, 0.0, 1.0)
    return 1.0 if rotation is None else min(1.0, SPAN / math.sqrt(padded(integer("d", d))))


def turned(rotation: int | None, span: float) -> dict[str, Any]:
    """What sums take of both; empty where there are none."""
    kept = rotation is None and span == 1
    return {} if kept else {"rotation": rotation, "span": span}


@dataclass(frozen=True)
class SumSpec:
    """What is to be summed, and how privately.

    Attributes:
        n: users in a round.
        d: coordinates; 1 is the scalar sum on [0, upper], more the vector sum in an l2 ball.
        privacy: of the whole run.
        rounds: how many rounds each user answers in.
        honest_fraction: of the users that add their noise, assumed in advance.
        rotation: public seed of a random rotation of vectors; None: there is none.
        span: coordinates are clipped to this part of the range; None: all of it, or with a rotation
            SPAN over the root of their number.
    """

    n: int
    d: int
    privacy: Privacy
    rounds: int = 1
    honest_fraction: float = 1.0
    rotation: int | None = None
    span: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges, and that delta is above what the bounds that are tried can certify."""
        if not isinstance(self.privacy, Privacy):
            raise ParameterError("privacy", self.privacy, "a Privacy(epsilon, delta)")
        integer("n", self.n, 1, 2**40)
        integer("d", self.d, 1, 2**30)
        integer("rounds", self.rounds, 1, 2**30)
        real("epsilon", self.privacy.epsilon, *_EPSILONS, closed=(True, True))
        honest_users(self.honest_fraction, self.n)
        clip_of(self.d, self.rotation, self.span)
        # nu in each coordinate and round takes 1e-10 of delta then, at the least nu that is tried.
        floor = 1e10 * NUS[-1] * self.d * self.rounds
        if self.privacy.delta < floor:
            raise ParameterError(
                "delta",
                self.privacy.delta,
                f"at least {floor:g} for {self.d} coordinates x {self.rounds} rounds",
            )

    @property
    def honest(self) -> int:
        """Users whose noise is counted on."""
        return honest_users(self.honest_fraction, self.n)

    @property
    def sent(self) -> int:
        """Coordinates that are sent: a rotation fills up to a power of two."""
        return self.d if self.rotation is None else padded(self.d)

    @property
    def clip(self) -> float:
        """The part of the range to which a coordinate that is sent is clipped."""
        return clip_of(self.d, self.rotation, self.span)

    @property
    def turned(self) -> dict[str, Any]:
        """Rotation and clip of vectors, as sums take them; empty where there are none."""
        return turned(self.rotation, self.clip)

    def bias_ratio(self, span: float) -> float:
        """Bound of the l2 bias of clipping that n equal vectors share, over the central error."""
        # In norm bounds; the central error sqrt(d) central is in ranges, of two norm bounds.
        loss = 1 - span if self.rotation is None else clipping_loss(self.d, span)
        return self.n * loss / (2 * math.sqrt(self.d) * self.central)

    @cached_property
    def central(self) -> float:
        """Standard deviation of the central analytic Gaussian per round, for sensitivity 1,
        composed over the rounds.
        """
        return math.sqrt(self.rounds) / gaussian.mu_of(self.privacy.epsilon, self.privacy.delta)

    @cached_property
    def best_central(self) -> tuple[float, str]:
        """The least of all central noises, likewise, and which has it."""
        return central.best(self.privacy.epsilon, self.privacy.delta, self.d, self.rounds)

    def noise_ratio(self, g: int, b: int) -> float:
        """Noise of (g, b, 1/2), rounding at its worst included, over the central Gaussian's."""
        # b/4 of the bits and at most 1/4 of the rounding, in g steps a range.
        return math.sqrt(self.n * (b + 1)) / (2 * g * self.central)

    def event(self, g: int, b: int) -> BinomialSumEvent:
        """What one round costs, with the honest users' noise."""
        return BinomialSumEvent(self.honest, b, P, g, self.d)

    def private(self, g: int, b: int) -> bool:
        """Whether (g, b, 1/2) keeps the privacy asked for."""
        # Others' bits are not counted on: they may be known.
        trials = self.honest * b
        if self.d == 1 and self.rounds == 1:
            wanted = self.privacy.epsilon, self.privacy.delta
            if g <= trials and binomial.exceeds(trials, P, g, *wanted):
                return False  # so is most of what a search looks at
            return binomial.epsilon(trials, P, g, wanted[1]) <= wanted[0]
        v = binomial.variance(trials, P)
        # No sigma* is above the noise's own sigma.
        if v < MIN_VARIANCE or not self._enough(math.sqrt(v), g):
            return False
        return self._enough(dominating_sigma(trials, P, g, self._nu), g)

    @cached_property
    def _nu(self) -> float:
        """Given up in a coordinate; the accountant tries more than this."""
        return nus_near(self.privacy.delta, self.d * self.rounds)[0]

    def _enough(self, sigma: float, g: int) -> bool:
        epsilon, delta, nu = self.privacy.epsilon, self.privacy.delta, self._nu
        if self.rounds == 1:
            mean = math.sqrt(g * g + self.d / 4)  # without its tail it is less, and quickly known
            if self.d > 1 and sigma > 0 and delta_gdp(epsilon, mean / sigma) > delta:
                return False
            return delta_one_round(epsilon, sigma, g, self.d, nu) <= delta
        return delta_many_rounds(epsilon, [(sigma, g, self.d, self.rounds)], nu) <= delta


@dataclass(frozen=True)
class Plan(ABC):
    """Parameters of a sum for a spec, with what they cost and give.

    Attributes:
        spec: the spec.
        noise_ratio: standard deviation per coordinate (rounding at its worst) over the central
            analytic Gaussian's.
        epsilon: proven at the spec's delta, at most the epsilon asked for.
    """

    spec: SumSpec
    noise_ratio: float
    epsilon: float

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Of the randomizer, by name."""

    @property
    @abstractmethod
    def event(self) -> PrivacyEvent:
        """What one round costs, with the honest users' noise."""

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits per user, coordinate that is sent and round."""

    def proven(self) -> Self:
        """With the epsilon that the accountant finds at the spec's delta."""
        spent = ShuffleAccountant().compose(self.event, self.spec.rounds)
        return replace(self, epsilon=spent.get_epsilon(self.spec.privacy.delta))

    @property
    def report_bits(self) -> int:
        """Bits per user and round."""
        return math.ceil(self.bits * self.spec.sent)

    @property
    def error_ratio(self) -> float:
        """Noise and bias (l2, the worst data) over the central Gaussian's error."""
        return self.noise_ratio

    @property
    def best_ratio(self) -> float:
        """The noise over the best central noise's, Laplace, staircase or Gaussian."""
        return self.noise_ratio * self.spec.central / self.spec.best_central[0]

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of a round's sum, for sensitivity 1 (multiply by
        upper, or by 2 norm_bound).
        """
        return self.noise_ratio * self.spec.central

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        spec = self.spec
        return html_table(
            {
                "of": f"{spec.n:,} users, {spec.d:,} coordinates, {spec.rounds:,} round(s)",
                "parameters": ", ".join(f"{k} = {v:g}" for k, v in self.parameters.items()),
                "bits": f"{self.bits:,.4g} per user, coordinate and round",
                "noise": f"{self.noise_ratio:.4f} x the central Gaussian, {self.best_ratio:.4f} x "
                f"the best central noise ({spec.best_central[1]})",
                "privacy": f"epsilon {self.epsilon:.4g} at delta {spec.privacy.delta:g}",
            }
        )


def one_wish(noise_ratio: float | None, max_bits: float | None) -> None:
    """Refuse a wish for both a noise ratio and bits, or for neither.

    Raises:
        ParameterError: naming both.
    """
    if (noise_ratio is None) == (max_bits is None):
        given = noise_ratio, max_bits
        raise ParameterError("noise_ratio, max_bits", given, "exactly one of the two")
