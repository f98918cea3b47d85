"""Privacy events: what the release of one round costs one user, as immutable data (the vocabulary of dp_accounting)."""

from dataclasses import dataclass, replace

from shuffle_sim.errors import integer, positive, real


@dataclass(frozen=True)
class PrivacyEvent:
    """A release on a cohort; accountants refuse kinds they do not know."""

    def with_honest(self, honest: int) -> "PrivacyEvent":
        """The same release when only `honest` users added their noise; unchanged where users add none."""
        return self


@dataclass(frozen=True)
class NonPrivateEvent(PrivacyEvent):
    """A release that protects nobody."""


@dataclass(frozen=True)
class BinomialSumEvent(PrivacyEvent):
    """Per-coordinate counts with binomial noise: Bin(honest bits, p) added to encodings in [0, steps] per user.

    Attributes:
        honest: users whose noise is counted on.
        bits: noise bits b of each of them, per coordinate.
        p: success probability of a noise bit.
        steps: rounding steps g over the range; before rounding a user's vector lies in the ball of radius g/2 around the middle
            of [0, g]^d, so that two of them are at most g apart.
        coordinates: d.
    """

    honest: int
    bits: int
    p: float
    steps: int
    coordinates: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        integer("honest", self.honest)
        integer("b", self.bits)
        integer("n b", self.trials, 1, 2**53)
        real("p", self.p, 0.0, 0.5)
        integer("g", self.steps)
        integer("d", self.coordinates)

    @property
    def trials(self) -> int:
        """Total trials m = honest b of the noise in each coordinate."""
        return self.honest * self.bits

    def with_honest(self, honest: int) -> PrivacyEvent:
        """Never more than was counted on: what others send is post-processing (appendix A.3 of the paper)."""
        return replace(self, honest=min(honest, self.honest)) if honest else NonPrivateEvent()


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """Gaussian noise of standard deviation noise_multiplier times the l2 sensitivity (replace-one)."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        """Check the range."""
        positive("noise_multiplier", self.noise_multiplier)
