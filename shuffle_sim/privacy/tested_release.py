"""Test, then release: one release whose sensitivity holds only where a private test passes.

The test is of an integer score k that neighbours change by at most 1. It never passes above K
(`bounds.pass_curve`). So what is released needs its sensitivity only for neighbours with both
scores at most K: where one of them alone can pass, it passes with probability at most delta, which
the test's own delta covers (docs: theory, Tests beside releases).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive, real
from shuffle_sim.privacy.bounds.pass_curve import cutoff, pass_curve
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Mechanism, Norm, checked
from shuffle_sim.privacy.theorems import ByParts, Releases

TEST_SHARES = 0.3, 0.2
"""Of epsilon and of delta, that a calibrated test takes."""
_LEAST = 1e-300  # in place of no chance


@dataclass(frozen=True)
class TestedReleaseEvent(PrivacyEvent):
    """A test of a score, and Gaussian noise on a vector if it passes.

    Attributes:
        epsilon: of the test.
        delta: of the test.
        noise_multiplier: of the Gaussian, in units of the sensitivity that the test assures.
    """

    __test__ = False  # no test case of pytest

    epsilon: float
    delta: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        real("delta", self.delta, 0.0, 1.0, closed=(False, False))
        positive("noise_multiplier", self.noise_multiplier)


class TestedRelease(ByParts[TestedReleaseEvent]):
    """A randomised response that reveals with probability delta, beside a Gaussian pair."""

    __test__ = False

    event = TestedReleaseEvent
    source = "test, then release (docs: theory, User level)"
    examples = (TestedReleaseEvent(0.3, 2e-7, 8.0), TestedReleaseEvent(1.0, 1e-6, 2.0))

    def together(self, events: Releases[TestedReleaseEvent]) -> Parts:
        steps = tuple((event.epsilon, event.delta, count) for event, count in events)
        mus = (math.sqrt(count) / event.noise_multiplier for event, count in events)
        return Parts(steps, math.hypot(*mus))


@dataclass(frozen=True)
class TestedGaussian(Mechanism[Floats | None]):
    """Releases a vector with Gaussian noise if its score passes the test; else nothing.

    The value is an array: the score, then the vector. The sensitivity is that of vectors whose
    scores are both at most `largest`. A vector whose score is larger is never looked at.

    Attributes:
        epsilon: of the test.
        delta: of the test.
        noise_multiplier: standard deviation of the noise, in units of the sensitivity.

    Raises:
        ParameterError: as `bounds.pass_curve` does, or no positive noise.
    """

    __test__ = False

    norm: ClassVar[Norm] = "l2"
    epsilon: float
    delta: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        pass_curve(self.epsilon, self.delta)
        positive("noise_multiplier", self.noise_multiplier)

    @classmethod
    def calibrated(
        cls, privacy: Privacy, releases: int = 1, shares: tuple[float, float] = TEST_SHARES
    ) -> "TestedGaussian":
        """The least noise with which so many of them are private together.

        Args:
            privacy: of all; delta above 0.
            releases: how many one person takes part in.
            shares: of epsilon and delta, that the tests take.
        """
        positive("delta", privacy.delta)
        e, d = shares[0] * privacy.epsilon / releases, shares[1] * privacy.delta / releases
        # mu of all releases together: delta grows with it, and `low` stays private.
        low, high = 1e-9, 1e3
        for _ in range(200):
            middle = math.sqrt(low * high)
            found = Parts(((e, d, releases),), middle).delta(privacy.epsilon)
            low, high = (middle, high) if found <= privacy.delta else (low, middle)
        if not Parts(((e, d, releases),), low).delta(privacy.epsilon) <= privacy.delta:
            raise ParameterError("shares", shares, "smaller: the tests alone cost more")
        # mu^2 = releases/multiplier^2.
        return cls(e, d, math.sqrt(releases) / low)

    @property
    def event(self) -> PrivacyEvent:
        return TestedReleaseEvent(self.epsilon, self.delta, self.noise_multiplier)

    @property
    def largest(self) -> int:
        """K: the largest score that may pass."""
        return cutoff(self.epsilon, self.delta)

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats | None:
        positive("sensitivity", sensitivity)
        found = np.asarray(value, np.float64)
        if found.ndim != 1 or found.size < 2:
            raise ParameterError("value", f"of shape {found.shape}", "a score, then a vector")
        score = float(found[0])
        if not (score >= 0 and score % 1 == 0):
            raise ParameterError("value", "another", "an integer score, at least 0, first")
        # Multiples of 2^-53, as `random` is: the probability is the curve's number exactly.
        passes = rng.random() < self._chance(score)
        # Drawn in any case: what the generator gives later is the same whether it passes or not.
        noise = self.noise_multiplier * sensitivity * rng.standard_normal(found.size - 1)
        return np.asarray(checked(found[1:], sensitivity) + noise) if passes else None

    def odds(self, value: Any, other: Any, sensitivity: float, released: Any) -> tuple[float, bool]:
        """For audits: the logarithm of the odds of another value; exactly."""
        mine, others = (self._chance(float(each[0])) for each in (value, other))
        if released is None:
            return math.log(max(1 - others, _LEAST) / max(1 - mine, _LEAST)), True
        apart = (np.asarray(released) - np.asarray(each)[1:] for each in (value, other))
        squares = [float(each @ each) for each in apart]
        wide = sensitivity * self.noise_multiplier
        told = (squares[0] - squares[1]) / (2 * wide**2)
        return told + math.log(max(others, _LEAST) / max(mine, _LEAST)), True

    def _chance(self, score: float) -> float:
        """With which it passes."""
        curve = pass_curve(self.epsilon, self.delta)
        return float(curve[min(int(score), curve.size - 1)])
