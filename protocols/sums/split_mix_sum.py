"""Sums by split and mix, and their calibration: the least noise in the fewest bits."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Self

from protocols.sums.encoding import MAGNITUDES, Box
from protocols.sums.one_round import OneRoundSum, SumSetting
from protocols.sums.split_mix import SplitMixRandomizer, messages_for
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds.laplace import MIN_RATE, rho_zcdp
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.query import Datum

SECURITY = 40
ROUNDING = 1e-3
"""Variance of the rounding, at its worst, over that of the noise: more steps cost log2 of their
number in bits.
"""


class _SplitAndMix(OneRoundSum):
    """A sum by a `SplitMixRandomizer`."""

    family = "split and mix"
    randomizer: SplitMixRandomizer

    def __init__(
        self,
        *,
        n: int,
        randomizer: SplitMixRandomizer,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        self.sensitivity = randomizer.width
        super().__init__(n, randomizer, delta, honest_fraction)

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[SumSetting]:
        name = f"security 2^-{SECURITY}"
        return [SumSetting(name, partial(cls.calibrated, **cls.size(n, d, privacy)))]

    @classmethod
    def _made(
        cls,
        n: int,
        box: Box,
        privacy: Privacy,
        honest_fraction: float,
        security: int,
        rounding: float,
    ) -> Self:
        """The least noise that the honest users' shares alone keep private, in the fewest bits.

        Raises:
            ParameterError: too few users, or what cannot be reached.
        """
        honest, d = honest_users(honest_fraction, integer("n", n)), box.labels
        real("epsilon", privacy.epsilon, 1e-4, 64.0, closed=(True, True))
        real("rounding", rounding, 0.0, 1.0)
        if not privacy.delta:
            raise ParameterError("delta", 0.0, "above 0: the shares' security is statistical")
        # What the statistical security costs, (1 + e^epsilon) 2^-s in each coordinate, must leave
        # nearly all of delta to the noise.
        revealed = d * (1 + math.exp(privacy.epsilon))
        security = max(
            integer("security", security, 1, 256),
            math.ceil(math.log2(32 * revealed / privacy.delta)),
        )
        # "What the security costs": T (1 + e^epsilon), here a 32nd of delta at most.
        left = privacy.delta - revealed * 2.0**-security
        # The largest rate times shift that is private: in d dimensions by the pure or by the
        # zero-concentrated bound.
        reach = (
            privacy.epsilon
            if d == 1
            else max(privacy.epsilon / math.sqrt(d), math.sqrt(2 * rho_zcdp(privacy.epsilon, left)))
        )
        # Least: rounding has n/4, and noise 2/rate^2 = 2 k^2/reach^2 of variance in steps; most:
        # the accountant reads no rate below MIN_RATE.
        least = max(1, math.ceil(reach * math.sqrt(n / (8 * rounding))))
        most = math.floor(reach / MIN_RATE - math.sqrt(d))
        # The modulus holds the sum and the noise on both sides of it, but for probability 2^-s in a
        # coordinate. What rounding adds to a vector widens the noise, in steps most at `least`.
        wider = 1 + math.sqrt(d) * (d > 1) / least
        room = n + 2 * math.ceil(n / honest) * (security + 2) * math.log(2) / reach * wider
        bits = math.ceil(math.log2(least * room + 1))
        # Bits are whole: what is left of the modulus goes into more steps, for less rounding.
        steps = min(math.floor((2**bits - 1) / room), most)
        messages = messages_for(security, 2**bits, honest)
        if least > most or bits > 52 or n * messages * 2**bits >= 2**63:
            raise ParameterError(
                "rounding",
                rounding,
                f"larger, or n smaller: {least} steps and sums of {bits} bits are too many",
            )
        # Numbers are clipped to k steps; a vector of k steps has k + sqrt(d) once it is rounded
        # ("Losses are bounded").
        rate = reach / (steps + math.sqrt(d) * (d > 1))
        ends = box.lower, box.width, box.norm_bound
        randomizer = SplitMixRandomizer(d, steps, 2**bits, messages, honest, rate, *ends)
        return cls(n=n, randomizer=randomizer, delta=privacy.delta, honest_fraction=honest_fraction)

    @property
    def security(self) -> float:
        """s: the messages tell no more than the sum, up to 2^-s in total variation a coordinate."""
        return self.randomizer.event(self.honest, Datum()).security


class SplitAndMixSum(_SplitAndMix):
    """The sum of n scalars in [0, upper] from m numbers modulo q a user; data of shape (n,).

    Formal guarantee: exact accounting of the honest users' discrete Laplace shares, and (1 +
    e^epsilon) 2^-s in delta for what the messages tell beside their sum
    (docs/theory/split-and-mix.md).
    """

    scalar = True

    @property
    def upper(self) -> float:
        """End of the range."""
        return self.randomizer.width

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        privacy: Privacy,
        upper: float = 1.0,
        honest_fraction: float = 1.0,
        security: int = SECURITY,
        rounding: float = ROUNDING,
    ) -> Self:
        """The least noise for the privacy asked for, in the fewest bits.

        Args:
            n: users.
            privacy: of the release.
            upper: end of the range.
            honest_fraction: whose shares alone must be private.
            security: s, at least; more is taken where delta needs it.
            rounding: variance of the rounding, at its worst, over that of the noise.
        """
        box = Box(1, 0.0, real("upper", upper, *MAGNITUDES, closed=(True, True)))
        return cls._made(n, box, privacy, honest_fraction, security, rounding)


class SplitAndMixVectorSum(_SplitAndMix):
    """The sum of n vectors in the l2 ball of radius norm_bound; data of shape (n, d).

    Formal guarantee: as of `SplitAndMixSum`, the noise's by the least of its pure,
    zero-concentrated and basic bounds.
    """

    @property
    def d(self) -> int:
        """Coordinates."""
        return self.randomizer.labels

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        d: int,
        privacy: Privacy,
        norm_bound: float = 1.0,
        honest_fraction: float = 1.0,
        security: int = SECURITY,
        rounding: float = ROUNDING,
    ) -> Self:
        """The least noise for the privacy, in the fewest bits; arguments as of `SplitAndMixSum`."""
        bound = real("norm_bound", norm_bound, *MAGNITUDES, closed=(True, True))
        box = Box(integer("d", d), -bound, 2 * bound, bound)
        return cls._made(n, box, privacy, honest_fraction, security, rounding)
