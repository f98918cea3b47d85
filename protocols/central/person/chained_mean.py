"""The mean of points by a chain of centres: each release clips around the one before.

The alternative to `FriendlyMean` without a test, where points are at least some 4 sigma sqrt(d): a
point is clipped, so any points are protected (docs/theory/user-level.md, "Linear time").
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive, real
from shuffle_sim.privacy.events import GaussianEvent, PrivacyEvent
from shuffle_sim.privacy.mechanisms import Mechanism, Norm, checked

MAX_CONTRACTION, MAX_ROUNDS, FAIL = 0.7, 4, 1e-3


@dataclass(frozen=True)
class ChainedMean(Mechanism[Floats]):
    """Releases the mean of C points in rounds; the value is a matrix, a row for each point.

    Neighbours differ in one row, and no row is longer than half of the sensitivity. In round k rows
    are clipped to ratios[k] of that about the last mean, so its mean moves by ratios[k] times the
    sensitivity over C. Formal guarantee: rounds are Gaussian mechanisms of equal noise in units of
    their own sensitivities; adaptively they are one of noise_multiplier.

    Attributes:
        points: C.
        ratios: radii of the rounds, as shares of the first one, which is 1.
        noise_multiplier: of all rounds together, in units of a round's sensitivity.

    Raises:
        ParameterError: no rounds, ratios that do not begin with 1 or are not in (0, 1].
    """

    norm: ClassVar[Norm] = "l2"
    points: int
    ratios: tuple[float, ...]
    noise_multiplier: float

    def __post_init__(self) -> None:
        integer("points", self.points)
        positive("noise_multiplier", self.noise_multiplier)
        if not self.ratios or self.ratios[0] != 1:
            raise ParameterError("ratios", self.ratios, "from 1 downwards")
        for ratio in self.ratios:
            real("ratios", ratio, 0.0, 1.0, closed=(False, True))

    @classmethod
    def calibrated(
        cls,
        total: float,
        points: int,
        d: int,
        reach: float,
        spread: float,
        beyond: float = 0.0,
    ) -> "ChainedMean":
        """With the rounds that leave the least noise, and what they clip.

        Args:
            total: noise multiplier of all rounds together.
            points: C.
            d: coordinates of a point.
            reach: rho_0, within which all points surely are.
            spread: tau, how far from their mean points are nearly always.
            beyond: what all rounds but the first take away of the mean by clipping.
        """
        # A standard Gaussian vector is longer with probability FAIL at most (theory, "Radii").
        long = math.sqrt(d) + math.sqrt(2 * math.log(1 / FAIL))
        best: tuple[float, tuple[float, ...]] = (math.inf, ())
        for rounds in range(1, MAX_ROUNDS + 1):
            # Noise of a round over its radius: sensitivity 2 rho/C, and sigma sqrt(rounds), as the
            # squares of mu add up.
            a = 2 * total * math.sqrt(rounds) / points * long
            # Radii tend to tau/(1 - a), and a grows with the rounds: more of them do not help.
            if rounds > 1 and a >= MAX_CONTRACTION:
                break
            ratios = [1.0]
            for _ in range(rounds - 1):
                ratios.append(min(ratios[-1], spread / reach + a * ratios[-1]))
            # Only the last round's noise is left in the result.
            noise = 2 * reach * math.sqrt(d * rounds) * total * ratios[-1] / points
            best = min(best, (noise + (beyond if rounds > 1 else 0.0), tuple(ratios)))
        return cls(points, best[1], total)

    @property
    def event(self) -> PrivacyEvent:
        return GaussianEvent(self.noise_multiplier)

    @property
    def spread(self) -> float:
        """Standard deviation of the last round's noise per coordinate, for sensitivity 1."""
        return math.sqrt(len(self.ratios)) * self.noise_multiplier * self.ratios[-1] / self.points

    def sample(self, value: Floats, sensitivity: float, rng: np.random.Generator) -> Floats:
        rows = checked(value, sensitivity)
        if rows.ndim != 2 or len(rows) != self.points:
            allowed = f"{self.points} rows, one for each point"
            raise ParameterError("value", f"of shape {rows.shape}", allowed)
        center, each = np.zeros(rows.shape[1]), math.sqrt(len(self.ratios)) * self.noise_multiplier
        for ratio in self.ratios:
            # The radius is half of the sensitivity: two rows of that length are one sensitivity
            # apart.
            mean = clipped(rows - center, ratio * sensitivity / 2).mean(axis=0)
            noise = each * ratio * sensitivity / self.points * rng.standard_normal(center.size)
            center = center + (mean + noise)  # what this rounds follows from what is private
        return np.asarray(center)


def clipped(rows: Floats, radius: float) -> Floats:
    """Rows shortened to a radius; what is not finite is 0."""
    kept = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    lengths = np.hypot.reduce(kept, axis=1, keepdims=True)  # does not overflow
    # Within the radius the factor is 1 exactly: such a row keeps its bits.
    return np.asarray(kept * (radius / np.maximum(lengths, radius)))
