"""Sums whose parameters a planner chooses: commands and optimisers find them by their encoding."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Self

from protocols.sums.encoding import MAGNITUDES
from protocols.sums.one_round import OneRoundSum, SumSetting
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import Plan, SumSpec
from shuffle_sim.protocol.encodings import NOISE_RATIO, at_least, choose, sane, usual_ratio
from shuffle_sim.registry import registered

RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Noise over the central Gaussian's at which comparisons show planned sums."""


class PlannedSum(OneRoundSum):
    """A sum with a planner.

    Attributes:
        encoding: how its numbers become messages; a scalar and a vector sum share it.
        own: names of the randomizer's parameters that its plan chooses.
        usual_ratio: of the noise over the central Gaussian's, where commands are given none.
        shown: wishes at which comparisons show it: an option, its values, and over whose noise.
    """

    encoding: ClassVar[str]
    own: ClassVar[tuple[str, ...]] = ()
    usual_ratio: ClassVar[float] = NOISE_RATIO
    shown: ClassVar[tuple[str, tuple[float, ...], str]] = "noise_ratio", RATIOS, "central"
    robust: ClassVar[bool] = True
    """Whether a malicious user moves the sum by a few users' worth at most."""

    @staticmethod
    @abstractmethod
    def choose(
        spec: SumSpec, noise_ratio: float | None = None, max_bits: float | None = None
    ) -> Plan:
        """The fewest bits at a noise ratio, or the least noise in max_bits."""

    @classmethod
    def planned(cls, plan: Plan, bound: float = 1.0) -> Self:
        """With the parameters of a plan, for data in [0, bound] or in the ball of this radius."""
        if cls.scalar:
            return cls.of_plan(plan, upper=bound)
        return cls.of_plan(plan, d=plan.spec.d, norm_bound=bound)

    @classmethod
    def of_plan(cls, plan: Plan, **data: Any) -> Self:
        """With the parameters of a plan, and what the class takes beside them."""
        spec = plan.spec
        made: dict[str, Any] = data | plan.parameters
        honest = spec.honest_fraction
        return cls(n=spec.n, delta=spec.privacy.delta, honest_fraction=honest, **made)

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[SumSetting]:
        size, (option, values, whose) = cls.size(n, d, privacy), cls.shown
        for value in values:
            make = partial(cls.calibrated, **size, **{option: value})
            yield SumSetting(f"{value:g} x {whose}", make)

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the randomizer, by name."""
        return {name: getattr(self.randomizer, name) for name in self.own}

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits per user and coordinate that is sent."""


class PlannedScalarSum(PlannedSum):
    """A planned sum of n scalars in [0, upper]; its class takes n, upper and its parameters."""

    scalar = True
    upper: float

    def _bound(self, upper: float) -> float:
        self.upper = self.sensitivity = real("upper", upper, *MAGNITUDES, closed=(True, True))
        return self.upper

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        privacy: Privacy,
        upper: float = 1.0,
        noise_ratio: float | None = None,
        max_bits: float | None = None,
        honest_fraction: float = 1.0,
    ) -> Self:
        """The fewest bits for a noise ratio, or the least noise for a number of bits.

        `noise_ratio` is the noise over the central Gaussian's; `max_bits` counts a user's bits.
        """
        spec = SumSpec(n, 1, privacy, honest_fraction=honest_fraction)
        return cls.planned(cls.choose(spec, noise_ratio, max_bits), upper)


class PlannedVectorSum(PlannedSum):
    """A planned sum of n vectors in an l2 ball; its class takes n, d, norm_bound and parameters.

    Attributes:
        usual_rotation: public seed where none is given; None: vectors are not rotated.
    """

    usual_rotation: ClassVar[int | None] = None
    d: int
    norm_bound: float

    def _bound(self, d: int, norm_bound: float) -> tuple[int, float]:
        self.d = integer("d", d)
        self.norm_bound = real("norm_bound", norm_bound, *MAGNITUDES, closed=(True, True))
        self.sensitivity = 2 * self.norm_bound
        return self.d, self.norm_bound

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        d: int,
        privacy: Privacy,
        norm_bound: float = 1.0,
        noise_ratio: float | None = None,
        max_bits: float | None = None,
        honest_fraction: float = 1.0,
        rotation: int | None = None,
        span: float | None = None,
    ) -> Self:
        """The fewest bits for a noise ratio, or the least noise for a number of bits.

        `noise_ratio` is the noise over the central Gaussian's; `max_bits` counts bits per user and
        coordinate that is sent. `rotation` and `span` are those of `SumSpec`.
        """
        seed = cls.usual_rotation if rotation is None else rotation
        spec = SumSpec(n, d, privacy, 1, honest_fraction, rotation=seed, span=span)
        return cls.planned(cls.choose(spec, noise_ratio, max_bits), norm_bound)


def planned_sum(spec: SumSpec, encoding: str | None, bound: float = 1.0) -> PlannedVectorSum:
    """The sum in a ball of radius `bound`: by an encoding, or by that of the fewest bits.

    With the encoding of the rounds around it all charges are of one kind, and compose tightly.

    Raises:
        ParameterError: unknown encoding, or what cannot be had.
    """
    if encoding is None:
        name, plan = sane(spec)
    else:
        # The noise that honest users alone must make is above the central one from the start.
        usual = usual_ratio(encoding, spec.honest / spec.n)
        name, plan = at_least(lambda ratio: choose(spec, ratio, None, encoding), usual)
    made: PlannedVectorSum = registered("protocol", name).planned(plan, bound)
    return made
