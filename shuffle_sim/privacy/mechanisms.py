"""Mechanisms of the trusted curator: event, sampler and error; the event's theorem is registered.

To bound a sensitivity and to add noise are two steps. The statistic bounds its sensitivity, in the
norm that the mechanism names. The mechanism draws noise of a scale proportional to it.

The samplers draw floating point numbers, for which the theorems do not hold to the last bit. They
are open to the attacks of Mironov (2012) and of Haney et al. (2022).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.bounds import gamma, gaussian
from shuffle_sim.privacy.events import (
    GammaEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PrivacyEvent,
    RangeEvent,
)
from shuffle_sim.privacy.guarantee import Privacy

Norm = Literal["l2", "l1", "range", "gradient"]
"""How a sensitivity is measured: a norm of an array's change, the largest change of any utility
("range"; the losses then lie in a range of epsilon), the largest l2 norm of the change of a
function's gradient ("gradient").
"""
EXPONENTIAL = "exponential mechanism (McSherry and Talwar 2007; Dong, Durfee and Rogers 2020)"
"""Why its losses lie in a range of length epsilon."""
Released = TypeVar("Released")


class Mechanism(ABC, Generic[Released]):
    """A way to release a value of bounded sensitivity.

    Attributes:
        norm: in which the sensitivity is stated.
        sessions: whether one charge pays for several queries; then `sample` takes `opened`.
        exact: whether it draws from its law by integers; else floating point is open to attacks.
    """

    norm: ClassVar[Norm]
    sessions: ClassVar[bool] = False
    exact: ClassVar[bool] = False

    @property
    @abstractmethod
    def event(self) -> PrivacyEvent:
        """What one release costs."""

    @abstractmethod
    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Released:
        """The released value, drawn once.

        Args:
            value: of the statistic, not yet private.
            sensitivity: the largest change of the value between neighbours, in `norm`.
            rng: the curator's generator.

        Raises:
            ParameterError: before any draw, if the value or the sensitivity is not finite, or the
                sensitivity not above 0.
        """


def checked(value: Any, sensitivity: float) -> Floats:
    """`value` as an array of finite floats.

    Raises:
        ParameterError: if it is not finite, or the sensitivity not finite and above 0.
    """
    positive("sensitivity", sensitivity)
    array: Floats = np.asarray(value, float)
    if not np.isfinite(array).all():
        raise ParameterError("value", f"of shape {array.shape}", "finite everywhere")
    return array


@dataclass(frozen=True)
class PureMechanism(Mechanism[Released]):
    """A mechanism with a pure guarantee.

    Attributes:
        epsilon: of it, above 0.

    Raises:
        ParameterError: epsilon not finite and above 0.
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)


class Noise(Mechanism[Floats]):
    """A mechanism that adds noise to an array; the released array has the same shape."""

    @abstractmethod
    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        """d floats of noise for sensitivity 1."""

    @abstractmethod
    def spread(self, d: int) -> float:
        """Root mean square of the l2 norm of d floats of noise for sensitivity 1."""

    def mean_norm(self, d: int) -> float:
        """Mean l2 norm of d floats of noise for sensitivity 1, or a bound of it."""
        return self.spread(d)

    def error(self, sensitivity: float, d: int) -> float:
        """Root mean square l2 error of a release of d floats."""
        return sensitivity * self.spread(d)

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        exact = checked(value, sensitivity)
        noisy: Floats = exact + sensitivity * self.noise(rng, exact.size).reshape(exact.shape)
        return noisy


@dataclass(frozen=True)
class Gaussian(Noise):
    """The Gaussian mechanism (Balle and Wang 2018).

    Attributes:
        noise_multiplier: standard deviation in units of the sensitivity.

    Raises:
        ParameterError: noise_multiplier not finite and above 0.
    """

    norm: ClassVar[Norm] = "l2"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    @classmethod
    def calibrated(cls, privacy: Privacy, releases: int = 1) -> Self:
        """The least noise with which so many releases are private together.

        Raises:
            ParameterError: delta = 0, or less than one release.
        """
        if not privacy.delta:
            allowed = "above 0: a pure guarantee asked of a Gaussian; take L2Laplace or Laplace"
            raise ParameterError("delta", privacy.delta, allowed)
        root = math.sqrt(integer("releases", releases))
        # A little more, so that what the accountant rounds up stays below what was asked for.
        return cls((1 + 5e-13) * root * gaussian.sigma(privacy.epsilon, privacy.delta))

    @property
    def event(self) -> PrivacyEvent:
        return GaussianEvent(self.noise_multiplier)

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        return self.noise_multiplier * rng.standard_normal(d)

    def spread(self, d: int) -> float:
        """noise_multiplier sqrt(d)."""
        return self.noise_multiplier * math.sqrt(d)

    def mean_norm(self, d: int) -> float:
        """noise_multiplier sqrt(2) Gamma((d + 1)/2) / Gamma(d/2)."""
        # By logarithms: Gamma overflows beyond d = 342.
        ratio = math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
        return self.noise_multiplier * math.sqrt(2) * ratio


@dataclass(frozen=True)
class LocalGaussian(Gaussian):
    """A sum of users' values, each with Gaussian noise of its own: the local model.

    Attributes:
        noise_multiplier: of one user's noise, in units of one value's sensitivity.
        users: who add noise.

    Raises:
        ParameterError: noise_multiplier not finite and above 0, or no user.
    """

    users: int

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("users", self.users)

    @classmethod
    def calibrated(cls, privacy: Privacy, releases: int = 1, users: int = 1) -> Self:
        return cls(Gaussian.calibrated(privacy, releases).noise_multiplier, users)

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        return math.sqrt(self.users) * super().noise(rng, d)

    def spread(self, d: int) -> float:
        return math.sqrt(self.users) * super().spread(d)

    def mean_norm(self, d: int) -> float:
        return math.sqrt(self.users) * super().mean_norm(d)


@dataclass(frozen=True)
class L2Laplace(Noise):
    """Noise of density ~ e^{-rate ||z||_2} for sensitivity 1: rate-differentially private.

    Its law and its exact curve are in `bounds.gamma`.

    Attributes:
        rate: epsilon of the pure guarantee.
        coordinates: d, of all values that are released.

    Raises:
        ParameterError: rate not in [1e-6, 1e6], coordinates not in 1 ... 10^6.
    """

    norm: ClassVar[Norm] = "l2"
    rate: float
    coordinates: int

    def __post_init__(self) -> None:
        gamma.check(self.rate, self.coordinates)

    @property
    def event(self) -> PrivacyEvent:
        return GammaEvent(self.rate, self.coordinates)

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        """A uniform direction times a Gamma(d, 1/rate) norm."""
        self._check(d)
        return gamma.draw(rng, self.rate, d)

    def spread(self, d: int) -> float:
        """sqrt(d (d + 1)) / rate."""
        self._check(d)
        return math.sqrt(gamma.mean_square(self.rate, d))

    def mean_norm(self, d: int) -> float:
        """d / rate."""
        self._check(d)
        return gamma.mean_norm(self.rate, d)

    def _check(self, d: int) -> None:
        if d != self.coordinates:
            raise ParameterError("d", d, f"{self.coordinates}, as the mechanism states")


@dataclass(frozen=True)
class RelaxedGamma(L2Laplace):
    """The noise of `L2Laplace` at a rate above epsilon: (epsilon, delta)-private."""

    @classmethod
    def calibrated(cls, privacy: Privacy, coordinates: int) -> Self:
        """The least noise of one release; it is that of L2Laplace at delta = 0."""
        return cls(gamma.rate_for(privacy.epsilon, privacy.delta, coordinates), coordinates)


@dataclass(frozen=True)
class Laplace(PureMechanism[Floats], Noise):
    """The Laplace mechanism, pure (Dwork, McSherry, Nissim and Smith 2006)."""

    norm: ClassVar[Norm] = "l1"

    @property
    def event(self) -> PrivacyEvent:
        return LaplaceEvent(self.epsilon)

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        """Independent Laplace numbers of scale 1/epsilon."""
        return rng.laplace(scale=1 / self.epsilon, size=d)

    def spread(self, d: int) -> float:
        """sqrt(2 d) / epsilon."""
        return math.sqrt(2 * d) / self.epsilon


@dataclass(frozen=True)
class WithoutNoise(Noise):
    """The value itself: what a comparison without privacy releases."""

    norm: ClassVar[Norm] = "l2"

    @property
    def event(self) -> PrivacyEvent:
        return NonPrivateEvent()

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        return np.zeros(d)

    def spread(self, d: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Exponential(PureMechanism[int]):
    """The exponential mechanism on a finite set (McSherry and Talwar 2007).

    The value is the array of the utilities u of all choices, and the release an index of it. An
    index has probability ~ e^{epsilon u / S}. S is the range of the changes: the largest change of
    any utility less the least; it is at most twice the largest change in absolute value. Losses
    lie in a range of length epsilon (Dong, Durfee and Rogers 2020).
    """

    norm: ClassVar[Norm] = "range"

    @property
    def event(self) -> PrivacyEvent:
        return RangeEvent(self.epsilon, EXPONENTIAL)

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> int:
        utilities = checked(value, sensitivity)
        if utilities.ndim != 1 or not utilities.size:
            allowed = "one utility for each of one or more choices"
            raise ParameterError("value", f"of shape {utilities.shape}", allowed)
        with np.errstate(over="ignore"):  # a choice that is so much worse is never drawn
            scores = self.epsilon * ((utilities - utilities.max()) / sensitivity)
        # The largest of scores plus Gumbel numbers has the law ~ e^score.
        return int(np.argmax(scores + rng.gumbel(size=utilities.size)))
