"""Sums of numbers with nearly the central Laplace noise (docs/theory/floods.md)."""

from collections.abc import Iterable
from typing import Any, Self

from protocols.sums.encoding import MAGNITUDES
from protocols.sums.floods import FloodRandomizer
from protocols.sums.one_round import OneRoundSum, SumSetting
from protocols.sums.planned import PlannedScalarSum
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds.floods import Digits, FloodNoise
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.laplace_planner import ERROR, choose_floods
from shuffle_sim.privacy.planner import SumSpec, honest_users

ERRORS = (1.05, 1.15, 1.5)
"""Over the central Laplace noise's, at which comparisons show it."""
MAX_COORDINATES = 10
"""Beyond, Gaussian noise is less."""


class _FloodSum(OneRoundSum):
    """A sum by a `FloodRandomizer`."""

    family = "floods"
    randomizer: FloodRandomizer

    def __init__(
        self,
        n: int,
        d: int,
        digits: Digits,
        noise: FloodNoise,
        cap: int,
        upper: float,
        delta: float,
        honest_fraction: float,
    ) -> None:
        self.upper = real("upper", upper, *MAGNITUDES, closed=(True, True))
        # All d numbers may change, each by the whole range.
        self.sensitivity = self.upper * d**0.5
        honest = honest_users(honest_fraction, integer("n", n, 2))
        own: dict[str, Any] = vars(digits) | vars(noise)
        randomizer = FloodRandomizer(
            coordinates=d, planned=honest, users=n, cap=cap, width=self.upper, **own
        )
        super().__init__(n, randomizer, delta, honest_fraction)

    @property
    def minimum(self) -> int:
        """With fewer reports than users were planned the noise is no Laplace noise."""
        return self.honest


class LaplaceScalarSum(_FloodSum, PlannedScalarSum):
    """The sum of n scalars in [0, upper]; data of shape (n,).

    Numbers travel in digits, one message for each unit of a digit or one for each digit (`packed`),
    among zero-sum batches that hide how a sum is written. One two-sided noise of `decay` is left.
    Users send different numbers of messages, which only the shuffler may see. A malicious user
    moves the sum by as many ranges as `cap` messages are worth: take carries against that. Formal
    guarantee: exact losses on a grid (docs/theory/floods.md), at `delta`.
    """

    encoding, robust = "laplace", False
    shown = "error", ERRORS, "central Laplace"
    choose = staticmethod(choose_floods)

    def __init__(
        self,
        *,
        n: int,
        base: int,
        low: int,
        high: int,
        top: int,
        decay: float,
        smooth: float,
        flood: float,
        pairs: float,
        batch: int,
        pair_batch: int,
        cap: int,
        packed: bool = False,
        upper: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        """Explicit parameters, as of `Digits` and `FloodNoise`; `calibrated` chooses good ones."""
        digits = Digits(base, low, high, top, packed)
        noise = FloodNoise(decay, smooth, flood, pairs, batch, pair_batch)
        super().__init__(n, 1, digits, noise, cap, upper, delta, honest_fraction)

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
        error: float | None = None,
    ) -> Self:
        """The fewest bits for a noise ratio, or the least noise for a number of bits.

        `noise_ratio` is the noise over the central Gaussian's; `error` is that over the central
        Laplace noise's, 1.15 without the others. `max_bits` counts a user's bits on average.

        Raises:
            ParameterError: for more than one wish, or one that cannot be had.
        """
        spec = SumSpec(n, 1, privacy, honest_fraction=honest_fraction)
        if noise_ratio is None and max_bits is None and error is None:
            error = ERROR
        return cls.planned(choose_floods(spec, noise_ratio, max_bits, error), upper)

    @property
    def parameters(self) -> dict[str, Any]:
        made = self.randomizer
        return vars(made.digits) | vars(made.noise) | {"cap": made.cap}

    @property
    def bits(self) -> float:
        return self.randomizer.usual_bits


class LaplaceVectorSum(_FloodSum):
    """The sum of n vectors in [0, upper]^d; data of shape (n, d), at most `MAX_COORDINATES`.

    Each coordinate is summed as by `LaplaceScalarSum`, and a user may change all of them. For l2
    balls take carries.
    """

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        d: int,
        privacy: Privacy,
        upper: float = 1.0,
        error: float = ERROR,
        honest_fraction: float = 1.0,
    ) -> Self:
        """The fewest bits for an error over that of central Laplace noise at the same epsilon."""
        integer("d", d, 1, MAX_COORDINATES)
        spec = SumSpec(n, d, privacy, honest_fraction=honest_fraction)
        plan = choose_floods(spec, error=error)
        own = plan.digits, plan.noise, plan.cap
        return cls(n, d, *own, upper, privacy.delta, honest_fraction)

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[SumSetting]:
        return ()  # of another domain than the l2 ball


def laplace_ratio(spec: SumSpec) -> float:
    """Central Laplace noise over the central Gaussian's, where all coordinates may change."""
    # A Laplace number of scale l1/epsilon, l1 = d and a budget split over rounds, against a
    # Gaussian for l2 = sqrt(d); `central` is for 1, over all rounds.
    laplace = 2**0.5 * spec.d * spec.rounds / spec.privacy.epsilon
    return float(laplace / (spec.central * spec.d**0.5))
