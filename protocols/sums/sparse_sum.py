"""Sums of long vectors from far fewer bits than coordinates (docs/theory/buckets.md)."""

from protocols.sums.buckets import BucketRandomizer
from protocols.sums.planned import PlannedVectorSum
from shuffle_sim.privacy.bounds.clipping import clipping_loss
from shuffle_sim.privacy.bucket_planner import choose_buckets
from shuffle_sim.privacy.planner import clip_of

ROTATION = 0
"""Public seed where none is given."""


class SparseVectorSum(PlannedVectorSum):
    """The sum of n vectors in the l2 ball of radius norm_bound; data (n, d), result (d,).

    Vectors are rotated at random by a public seed, and clipped to `span`. Of every `bucket` of
    coordinates a user sends one that it draws in secret, with a noisy sign. So d/bucket messages
    travel, for a noise that does not depend on d. A noise ratio is of the error, with sampling and
    the bias of clipping; without a `span` the best is taken. Formal guarantee: Rényi divergences of
    the view (docs/theory/buckets.md), at `delta`.
    """

    family, encoding, usual_ratio = "buckets", "buckets", 5.0
    shown = "noise_ratio", (1.5, 2.0, 3.0, 5.0, 10.0), "central"
    usual_rotation = ROTATION
    own = "bucket", "a", "rotation", "span"
    choose = staticmethod(choose_buckets)
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
        d, norm_bound = self._bound(d, norm_bound)
        clip = clip_of(d, rotation, span)
        randomizer = BucketRandomizer(d, bucket, a, norm_bound, clip, rotation)
        super().__init__(n, randomizer, delta, honest_fraction)

    @property
    def bits(self) -> float:
        return self.randomizer.usual_bits / self.randomizer.sent

    @property
    def clipping_bias(self) -> float:
        """Bound of the l2 bias of the sum, as of `CarryVectorSum`; not in `standard_error`."""
        return self.n * self.norm_bound * clipping_loss(self.d, self.randomizer.span)
