"""Sums by spline rounding and fair carries (docs/theory/carry.md)."""

from collections.abc import Iterable
from functools import partial

from protocols.sums.carry import CarryRandomizer
from protocols.sums.encoding import MAGNITUDES
from protocols.sums.one_round import RATIOS, OneRoundSum, Setting
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.carry_planner import check_proven, choose_carries
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec


class _CarrySum(OneRoundSum):
    """A sum by a `CarryRandomizer`."""

    family, colour = "carries", "tab:red"
    randomizer: CarryRandomizer

    def __init__(
        self, n: int, randomizer: CarryRandomizer, delta: float, honest_fraction: float
    ) -> None:
        """Refuse what the theorem says nothing about."""
        super().__init__(n, randomizer, delta, honest_fraction)
        check_proven(randomizer.event(self.honest), delta)

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[Setting]:
        """Calibrated at several noise ratios."""
        size = cls.size(n, d, privacy)
        return [
            Setting(f"{ratio:g} x central", partial(cls.calibrate, **size, noise_ratio=ratio))
            for ratio in RATIOS
        ]

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

    @property
    def bits(self) -> int:
        """Messages of one bit per user and coordinate."""
        return self.randomizer.bits


class CarryScalarSum(_CarrySum):
    """The sum of n scalars in [0, upper] in 2 levels + top one-bit messages; data of shape (n,).

    Formal guarantee: the view is dominated by Gaussians at `delta` (docs/theory/carry.md).

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """

    scalar = True

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
        self.upper = self.sensitivity = real("upper", upper, *MAGNITUDES, closed=(True, True))
        randomizer = CarryRandomizer(1, g, r, b, levels, 0.0, self.upper)
        super().__init__(n, randomizer, delta, honest_fraction)

    @classmethod
    def calibrate(
        cls,
        *,
        n: int,
        privacy: Privacy,
        upper: float = 1.0,
        noise_ratio: float | None = None,
        max_bits: int | None = None,
        honest_fraction: float = 1.0,
    ) -> "CarryScalarSum":
        """The fewest bits for a noise ratio, or the least noise for a number of bits.

        `noise_ratio` is the noise over the central Gaussian's; `max_bits` counts a user's bits.
        """
        spec = SumSpec(n, 1, privacy, honest_fraction=honest_fraction)
        plan = choose_carries(spec, noise_ratio, max_bits)
        return cls(
            n=n,
            g=plan.g,
            r=plan.r,
            b=plan.b,
            levels=plan.levels,
            upper=upper,
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )


class CarryVectorSum(_CarrySum):
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
        self.d = integer("d", d)
        self.norm_bound = real("norm_bound", norm_bound, *MAGNITUDES, closed=(True, True))
        self.sensitivity = 2 * self.norm_bound
        ball = -self.norm_bound, self.sensitivity, self.norm_bound
        super().__init__(n, CarryRandomizer(d, g, r, b, levels, *ball), delta, honest_fraction)

    @classmethod
    def calibrate(
        cls,
        *,
        n: int,
        d: int,
        privacy: Privacy,
        norm_bound: float = 1.0,
        noise_ratio: float | None = None,
        max_bits: int | None = None,
        honest_fraction: float = 1.0,
    ) -> "CarryVectorSum":
        """The fewest bits for a noise ratio, or the least noise for a number of bits.

        `noise_ratio` is the noise over the central Gaussian's; `max_bits` counts bits per user and
        coordinate.
        """
        spec = SumSpec(n, d, privacy, honest_fraction=honest_fraction)
        plan = choose_carries(spec, noise_ratio, max_bits)
        return cls(
            n=n,
            d=d,
            g=plan.g,
            r=plan.r,
            b=plan.b,
            levels=plan.levels,
            norm_bound=norm_bound,
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )
