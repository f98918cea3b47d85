"""Sums of long vectors from far fewer bits than coordinates (docs/theory/buckets.md)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Self

from protocols.sums.buckets import BucketRandomizer
from protocols.sums.one_round import Setting
from protocols.sums.planned import PlannedVectorSum
from shuffle_sim.privacy.bounds.clipping import clipping_loss
from shuffle_sim.privacy.bucket_planner import BucketPlan, choose_buckets
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec, clip_of

_RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Error over the central Gaussian's at which comparisons show it."""
ROTATION = 0
"""Public seed where none is given."""


class SparseVectorSum(PlannedVectorSum):
    """The sum of n vectors in the l2 ball of radius norm_bound; data (n, d), result (d,).

    Vectors are rotated at random by a public seed, and clipped to `span`. Of every `bucket` of
    coordinates a user sends one that it draws in secret, with a noisy sign. So d/bucket messages
    travel, for a noise that does not depend on d. Formal guarantee: Rényi divergences of the view
    (docs/theory/buckets.md), at `delta`.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """

    family, encoding, colour, usual_ratio = "buckets", "buckets", "tab:olive", 5.0
    randomizer: BucketRandomizer

    def __init__(
        self,
        *,
        n: int,
        d: int,
        bucket: int,
        a: float,
        norm_bound: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
        rotation: int = ROTATION,
        span: float | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones."""
        d, norm_bound = self._bound(d, norm_bound)
        clip = clip_of(d, rotation, span)
        randomizer = BucketRandomizer(d, bucket, a, norm_bound, clip, rotation)
        super().__init__(n, randomizer, delta, honest_fraction)

    @staticmethod
    def choose(
        spec: SumSpec, noise_ratio: float | None = None, max_bits: float | None = None
    ) -> BucketPlan:
        return choose_buckets(spec, noise_ratio, max_bits)

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
        rotation: int | None = ROTATION,
        span: float | None = None,
    ) -> Self:
        """The fewest bits for an error, or the least error for a number of bits.

        `noise_ratio` is the error over the central Gaussian's, with sampling and the bias of
        clipping; `max_bits` counts bits per user and coordinate, a part of one mostly. Without a
        `span` the best is taken.
        """
        fraction = honest_fraction
        spec = SumSpec(n, d, privacy, 1, fraction, rotation=rotation, span=span)
        return cls.planned(cls.choose(spec, noise_ratio, max_bits), norm_bound)

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[Setting]:
        for ratio in _RATIOS:
            make = partial(cls.calibrated, **cls.size(n, d, privacy), noise_ratio=ratio)
            yield Setting(f"{ratio:g} x central", make)

    @property
    def parameters(self) -> dict[str, Any]:
        made = self.randomizer
        own = {"bucket": made.bucket, "a": made.a}
        return own | {"rotation": made.rotation, "span": made.span}

    @property
    def bits(self) -> float:
        """A part of one per coordinate that is sent, mostly."""
        return self.randomizer.usual_bits / self.randomizer.sent

    @property
    def clipping_bias(self) -> float:
        """Bound of the l2 bias of the sum, as of `CarryVectorSum`; not in `standard_error`."""
        return self.n * self.norm_bound * clipping_loss(self.d, self.randomizer.span)
