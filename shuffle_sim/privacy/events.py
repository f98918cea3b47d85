"""Privacy events: what one release costs one user, as immutable data (dp_accounting's vocabulary).

The meaning of an event never changes: journals and ledgers hold it. An accountant refuses kinds for
which no theorem is registered. A new kind is a frozen dataclass with its theorem (`theorems`).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from shuffle_sim.errors import integer, positive, real
from shuffle_sim.privacy.bounds import binomial, blanket, carry, gamma, laplace
from shuffle_sim.privacy.bounds.domination import MIN_VARIANCE, dominating_sigma
from shuffle_sim.privacy.bounds.rounding import delta_one_round

MIN_HONEST_SPLIT_MIX = 19
"""Honest users from which the analysis of split and mix holds."""


@dataclass(frozen=True)
class PrivacyEvent:
    """A release on a cohort; accountants refuse kinds they do not know."""

    def with_honest(self, honest: int) -> "PrivacyEvent":
        """The same release when only `honest` users added their noise; unchanged where users add
        none.
        """
        return self


@dataclass(frozen=True)
class NonPrivateEvent(PrivacyEvent):
    """A release that protects nobody."""


@dataclass(frozen=True)
class HonestEvent(PrivacyEvent):
    """A release that rests on the noise of `honest` users."""

    honest: int

    def with_honest(self, honest: int) -> PrivacyEvent:
        """Never more than was counted on: what others send is post-processing (appendix A.3 of the
        paper).
        """
        return replace(self, honest=min(honest, self.honest)) if honest else NonPrivateEvent()


@dataclass(frozen=True)
class BinomialEvent(HonestEvent, ABC):
    """Bin(honest bits, p) added to each coordinate.

    Attributes:
        honest: users whose noise is counted on; 1 for a curator.
        bits: noise bits b of each of them, per coordinate.
        p: success probability of a noise bit.
    """

    bits: int
    p: float

    def __post_init__(self) -> None:
        integer("honest", self.honest)
        integer("b", self.bits)
        integer("n b", self.trials, 1, 2**53)
        real("p", self.p, 0.0, 0.5)

    @property
    def trials(self) -> int:
        """Total trials m = honest b of the noise in each coordinate."""
        return self.honest * self.bits

    @property
    @abstractmethod
    def moves(self) -> tuple[int, float, int]:
        """Neighbours after rounding in a coordinate and before it in l2, and the coordinates."""

    def round(self, nu: float) -> tuple[float, float, int, int]:
        """(sigma, g, d, 1) as `bounds.rounding` takes it; sigma 0 where nothing is proven.

        It dominates but for nu in a coordinate.
        """
        most, shift, coordinates = self.moves
        enough = binomial.variance(self.trials, self.p) >= MIN_VARIANCE
        sigma = dominating_sigma(self.trials, self.p, most, nu) if enough else 0.0
        return sigma, shift, coordinates, 1

    def delta_alone(self, epsilon: float, nu: float) -> float:
        """delta of one such round and no other, by domination but for nu and the rounding bound."""
        sigma, shift, coordinates, _ = self.round(nu)
        return delta_one_round(epsilon, sigma, shift, coordinates, nu)


@dataclass(frozen=True)
class BinomialSumEvent(BinomialEvent):
    """Per-coordinate counts with binomial noise: Bin(honest bits, p) added to encodings in [0,
    steps] per user.

    Attributes:
        steps: rounding steps g over the range; before rounding a user's vector lies in the ball of
            radius g/2 around the middle of [0, g]^d, so that two of them are at most g apart.
        coordinates: d.
    """

    steps: int
    coordinates: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("g", self.steps)
        integer("d", self.coordinates)

    @property
    def moves(self) -> tuple[int, float, int]:
        return self.steps, self.steps, self.coordinates


@dataclass(frozen=True)
class CarrySumEvent(HonestEvent):
    """Per-coordinate sums of floor(w + U_1 + ... + U_r) + Bin(b, 1/2), sent digit by digit with
    fair carries.

    Attributes:
        honest: users whose randomness is counted on, the one who changes among them.
        sensitivity: g, l2 distance of two users' w at most; a real number.
        uniforms: r; with 1 every w lies in the middle of a step, and a number is one bit.
        bits: b.
        levels: L, digits before the rest.
        coordinates: d.
        span: at most this part of g is the difference in one coordinate; in (0, 1].
    """

    sensitivity: float
    uniforms: int = 2
    bits: int = 0
    levels: int = 0
    coordinates: int = 1
    span: float = 1.0

    def __post_init__(self) -> None:
        integer("honest", self.honest, 1, 2**53)
        real("g", self.sensitivity, 0.0, 2.0**40)
        integer("r", self.uniforms, carry.ONE_BIT, max(carry.UNIFORMS))
        integer("b", self.bits, 0, 2**10)
        integer("levels", self.levels, 0, 40)
        integer("d", self.coordinates)
        real("span", self.span, 0.0, 1.0)
        if self.uniforms == carry.ONE_BIT:
            integer("b", self.bits, 0, 0)
            integer("levels", self.levels, 0, 0)
            real("g span", self.sensitivity * self.span, 0.0, 1.0, closed=(False, False))

    @property
    def bound(self) -> carry.Carries:
        """As the bounds take it."""
        shape = self.sensitivity, self.uniforms, self.bits, self.levels, self.coordinates, self.span
        return carry.Carries(self.honest - 1, *shape)


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """Gaussian noise of standard deviation noise_multiplier times the l2 sensitivity
    (replace-one).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class GammaEvent(PrivacyEvent):
    """Noise of density ~ exp(-rate ||z||_2) for sensitivity 1 in l2.

    Attributes:
        rate: at least the epsilon of a pure guarantee; above it the guarantee takes a delta.
        coordinates: d.
    """

    rate: float
    coordinates: int

    def __post_init__(self) -> None:
        gamma.check(self.rate, self.coordinates)


@dataclass(frozen=True)
class LaplaceEvent(PrivacyEvent):
    """Noise of density ~ exp(-rate |z|) in each coordinate, for sensitivity 1 in l1."""

    rate: float

    def __post_init__(self) -> None:
        positive("rate", self.rate)


@dataclass(frozen=True)
class ObjectiveEvent(PrivacyEvent):
    """The minimiser of an objective with a Gaussian linear term, plus l2-Laplace noise of `rate`.

    Attributes:
        noise_multiplier: standard deviation of the linear term over the distance 2 L of two rows'
            gradients.
        curvature: a row's largest second derivative c B^2 over the ridge of the sum.
        rate: of the noise that pays for the certified distance from the minimiser; pure.
        coupled: whether a row of slope s L has a second derivative of at most 4 s (1 - s) times the
            largest, as logistic loss has: a steep row is then a flat one.
    """

    noise_multiplier: float
    curvature: float
    rate: float
    coupled: bool = False

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        real("curvature", self.curvature, 0.0, math.inf, closed=(True, False))
        positive("rate", self.rate)


@dataclass(frozen=True)
class PureObjectiveEvent(PrivacyEvent):
    """As `ObjectiveEvent`, with a linear term of density ~ exp(-tilt ||b||/(2 L)).

    Attributes:
        tilt: of the linear term's density.
        curvature: as there.
        rate: as there.
        coupled: as there.
    """

    tilt: float
    curvature: float
    rate: float
    coupled: bool = False

    def __post_init__(self) -> None:
        positive("tilt", self.tilt)
        real("curvature", self.curvature, 0.0, math.inf, closed=(True, False))
        positive("rate", self.rate)


@dataclass(frozen=True)
class PureEvent(PrivacyEvent):
    """A release that is epsilon-differentially private, and of which nothing more is known.

    Attributes:
        epsilon: above 0.
        proof: the theorem in words, with its source.
    """

    epsilon: float
    proof: str

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class RangeEvent(PureEvent):
    """A release whose losses lie in a range of length epsilon, as of the exponential mechanism."""


@dataclass(frozen=True)
class GaussianPairEvent(PrivacyEvent):
    """A release that a Gaussian pair of distance mu dominates.

    Attributes:
        mu: above 0.
        proof: the theorem in words, with its source.
    """

    mu: float
    proof: str

    def __post_init__(self) -> None:
        positive("mu", self.mu)


@dataclass(frozen=True)
class SplitMixEvent(HonestEvent):
    """Per-coordinate sums modulo q with discrete Laplace noise in shares, every share of a sum in m
    messages.

    Attributes:
        honest: users whose noise is counted on.
        planned: users whose shares add up to discrete Laplace noise; each share has shape
            1/planned.
        rate: of that noise, pmf ~ e^{-rate |z|}.
        steps: rounding steps k over the range; the l2 distance of two users' vectors is at most k
            steps before rounding.
        messages: m, each user's messages per coordinate.
        modulus: q.
        coordinates: d.
    """

    planned: int
    rate: float
    steps: int
    messages: int
    modulus: int
    coordinates: int = 1

    def __post_init__(self) -> None:
        integer("honest", self.honest)
        integer("planned", self.planned)
        real("rate", self.rate, laplace.MIN_RATE, math.inf, closed=(True, False))
        integer("steps", self.steps)
        integer("messages", self.messages, 3)
        integer("modulus", self.modulus, 2, 2**62)
        integer("d", self.coordinates)

    @property
    def shape(self) -> float:
        """Of the honest users' noise, at most 1: what is more is post-processing."""
        return min(1.0, self.honest / self.planned)

    @property
    def security(self) -> float:
        """s: the messages of two inputs with the same sum are within 2^-s in total variation (Balle
        et al. 2020).

        From m = (2 s + log2 q)/(log2 honest - log2 e) + 1, for 19 honest users or more; below,
        nothing is promised.
        """
        if self.honest < MIN_HONEST_SPLIT_MIX:
            return 0.0
        return max(
            0.0,
            ((self.messages - 1) * math.log2(self.honest / math.e) - math.log2(self.modulus)) / 2,
        )


@dataclass(frozen=True)
class BlanketEvent(HonestEvent):
    """One message a user by randomised response: kept with probability 1 - gamma, else one of
    `symbols` drawn uniformly.

    Attributes:
        honest: users whose randomness is counted on.
        gamma: probability of a uniform message.
        symbols: K.
    """

    gamma: float
    symbols: int

    def __post_init__(self) -> None:
        blanket.check(self.honest, self.gamma, self.symbols)
