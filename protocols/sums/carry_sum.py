"""Sums by spline rounding and fair carries (docs/theory/carry.md)."""

from typing import Any

from protocols.sums.carry import CarryRandomizer
from protocols.sums.planned import PlannedScalarSum, PlannedSum, PlannedVectorSum
from protocols.sums.rotation import clipping_probability
from shuffle_sim.privacy.bounds.clipping import clipping_loss
from shuffle_sim.privacy.carry_planner import check_proven, choose_carries
from shuffle_sim.privacy.planner import clip_of, turned
from shuffle_sim.protocol.query import Datum


class _CarrySum(PlannedSum):
    """A sum by a `CarryRandomizer`."""

    family, encoding = "carries", "carry"
    own = "g", "r", "b", "levels"
    choose = staticmethod(choose_carries)
    randomizer: CarryRandomizer

    def __init__(
        self, n: int, randomizer: CarryRandomizer, delta: float, honest_fraction: float
    ) -> None:
        super().__init__(n, randomizer, delta, honest_fraction)
        # Refused when it is made: a run would charge an infinite epsilon.
        check_proven(randomizer.event(self.honest, Datum()), delta)

    @property
    def parameters(self) -> dict[str, Any]:
        return super().parameters | turned(self.randomizer.rotation, self.randomizer.span)

    @property
    def bits(self) -> int:
        return self.randomizer.bits

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
        randomizer = CarryRandomizer(1, g, r, b, levels, 0.0, self._bound(upper))
        super().__init__(n, randomizer, delta, honest_fraction)


class CarryVectorSum(PlannedVectorSum, _CarrySum):
    """The sum of n vectors in the l2 ball of radius norm_bound; data (n, d), result (d,).

    Every user sends 2 levels + top one-bit messages per coordinate. Rows above the norm bound are
    scaled to it on the user's side. With a `rotation`, a public seed, rows are first rotated at
    random, into 2^k coordinates. Each is clipped to `span` times the norm bound, by default 3.5
    over the root of 2^k. That takes fewer bits and brings a bias, `clipping_bias`. Formal
    guarantee: the view is dominated by Gaussians at `delta` (docs/theory/carry.md).
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
        rotation: int | None = None,
        span: float | None = None,
    ) -> None:
        d, norm_bound = self._bound(d, norm_bound)
        ball = -norm_bound, 2 * norm_bound, norm_bound
        part = clip_of(d, rotation, span)
        randomizer = CarryRandomizer(d, g, r, b, levels, *ball, part, rotation)
        super().__init__(n, randomizer, delta, honest_fraction)

    @property
    def rotation(self) -> int | None:
        """Public seed of the signs of the rotation; None: there is none."""
        return self.randomizer.rotation

    @property
    def span(self) -> float:
        """A coordinate that is sent is clipped to this part of [-norm_bound, norm_bound]."""
        return self.randomizer.span

    @property
    def clipping_probability(self) -> float:
        """Bound of the chance over the signs that any coordinate of any user is clipped.

        Data must be chosen without the signs. Without a rotation nothing is promised but at span 1.
        """
        if self.rotation is None:
            return float(self.span < 1)
        return clipping_probability(self.n, self.d, self.span)

    @property
    def clipping_bias(self) -> float:
        """Bound of the l2 bias that clipping brings into the sum of all n users.

        With a rotation it is the root mean square over its signs, for data chosen without them. It
        is not part of `standard_error`.
        """
        # Unrotated data may all be at one corner of the cut: the worst case, not the mean.
        loss = 1 - self.span if self.rotation is None else clipping_loss(self.d, self.span)
        return self.n * self.norm_bound * loss
