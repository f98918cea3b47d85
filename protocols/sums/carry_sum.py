"""Sums by spline rounding and fair carries (docs/theory/carry.md)."""

from typing import Any

from protocols.sums.carry import CarryRandomizer
from protocols.sums.planned import PlannedScalarSum, PlannedSum, PlannedVectorSum
from shuffle_sim.privacy.carry_planner import CarryPlan, check_proven, choose_carries
from shuffle_sim.privacy.planner import SumSpec


class _CarrySum(PlannedSum):
    """A sum by a `CarryRandomizer`."""

    family, encoding, colour = "carries", "carry", "tab:purple"
    randomizer: CarryRandomizer

    def __init__(
        self, n: int, randomizer: CarryRandomizer, delta: float, honest_fraction: float
    ) -> None:
        """Refuse what the theorem says nothing about."""
        super().__init__(n, randomizer, delta, honest_fraction)
        check_proven(randomizer.event(self.honest), delta)

    @staticmethod
    def choose(
        spec: SumSpec, noise_ratio: float | None = None, max_bits: int | None = None
    ) -> CarryPlan:
        """The fewest bits at a noise ratio, or the least noise in max_bits."""
        return choose_carries(spec, noise_ratio, max_bits)

    @property
    def parameters(self) -> dict[str, Any]:
        """g, r, b and levels."""
        return {"g": self.g, "r": self.r, "b": self.b, "levels": self.levels}

    @property
    def g(self) -> float:
        """Rounding steps over the range."""
        return self.randomizer.g

    @property
    def r(self) -> int:
        """Uniforms in the rounding."""
        return self.randomizer.r

    @property
    def b(self) -> int:
        """Fair bits added to a number."""
        return self.randomizer.b

    @property
    def levels(self) -> int:
        """Digits before the rest."""
        return self.randomizer.levels


class CarryScalarSum(PlannedScalarSum, _CarrySum):
    """The sum of n scalars in [0, upper] in 2 levels + top one-bit messages; data of shape (n,).

    Formal guarantee: the view is dominated by Gaussians at `delta` (docs/theory/carry.md).

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """

    def __init__(
        self,
        *,
        n: int,
        g: float,
        r: int = 2,
        b: int = 0,
        levels: int = 0,
        upper: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        """Explicit parameters; `calibrate` chooses good ones."""
        randomizer = CarryRandomizer(1, g, r, b, levels, 0.0, self._bound(upper))
        super().__init__(n, randomizer, delta, honest_fraction)


class CarryVectorSum(PlannedVectorSum, _CarrySum):
    """The sum of n vectors in the l2 ball of radius norm_bound; data (n, d), result (d,).

    Every user sends 2 levels + top one-bit messages per coordinate. Rows above the norm bound are
    scaled to it on the user's side. Formal guarantee: the view is dominated by Gaussians at
    `delta` (docs/theory/carry.md).

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """

    def __init__(
        self,
        *,
        n: int,
        d: int,
        g: float,
        r: int = 2,
        b: int = 0,
        levels: int = 0,
        norm_bound: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        """Explicit parameters; `calibrate` chooses good ones."""
        d, norm_bound = self._bound(d, norm_bound)
        ball = -norm_bound, 2 * norm_bound, norm_bound
        super().__init__(n, CarryRandomizer(d, g, r, b, levels, *ball), delta, honest_fraction)
