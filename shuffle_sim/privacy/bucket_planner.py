"""Choosing parameters of sums by buckets: the fewest messages at an error, the least in bits.

Buckets of B coordinates take s = d/B messages of 1 + log2 B bits. Larger buckets take fewer bits
for more error. A wide span brings noise, a narrow one a bias, and the error counts both.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.privacy.bounds import buckets
from shuffle_sim.privacy.bucket_sum import BucketSumEvent
from shuffle_sim.privacy.carry_planner import keeps
from shuffle_sim.privacy.planner import Plan, SumSpec, one_wish

_FLATNESS = tuple(1 + k / 4 for k in range(1, 19))
"""Values of k that are tried: coordinates are clipped to k over the root of their number."""
_LEAST_BIAS = 1e-9


@dataclass(frozen=True)
class BucketPlan(Plan):
    """Of a sum by buckets.

    Attributes:
        size: B, coordinates of a bucket.
        a: largest distance of a sign's probability from 1/2.
        span: a coordinate reaches it at this part of the norm bound.
    """

    size: int
    a: float
    span: float

    @property
    def parameters(self) -> dict[str, Any]:
        own = {"bucket": self.size, "a": self.a, "span": self.span}
        return own | {"rotation": self.spec.rotation}

    @property
    def event(self) -> BucketSumEvent:
        return _event(self.spec, self.size, self.a, self.span)

    @property
    def report_bits(self) -> int:
        return _bits(self.spec, self.size)

    @property
    def bits(self) -> float:
        return self.report_bits / self.spec.d

    @property
    def error_ratio(self) -> float:
        return math.hypot(self.noise_ratio, self.spec.bias_ratio(self.span))


def _event(spec: SumSpec, size: int, a: float, span: float) -> BucketSumEvent:
    return BucketSumEvent(spec.honest, spec.sent // size, size, a, span)


def _bits(spec: SumSpec, size: int) -> int:
    return spec.sent // size * size.bit_length()  # of B = 2^j: j + 1


def _most_bias(spec: SumSpec, size: int, span: float) -> float:
    """The largest private a; 0 where there is none. The noise falls and delta grows with it."""
    # One of those that the accountant tries: else the plan might take more than was asked for.
    privacy, lost = spec.privacy, buckets.lost_near(spec.privacy.delta, spec.rounds)[0]

    def private(a: float) -> bool:
        event = _event(spec, size, a, span)
        rounds, bit = ((event.bound, spec.rounds),), event.one_bit
        return buckets.delta(rounds, privacy.epsilon, lost) <= privacy.delta or (
            bit is not None and keeps(bit.bound, spec.rounds, privacy)
        )

    low, high = 0.0, 0.5
    while high - low > 1e-6 * high and high > _LEAST_BIAS:
        middle = (low + high) / 2
        low, high = (middle, high) if private(middle) else (low, middle)
    return low


def _noise(spec: SumSpec, size: int, a: float, span: float) -> float:
    """Root of n k^2/(16 a^2 s) over the central Gaussian's; the sampling is part of it."""
    # k^2/s = span^2 B, and 4 a^2 becomes 16 a^2 as the range is two norm bounds.
    return span * math.sqrt(spec.n * size) / (4 * a * spec.central)


def _best(spec: SumSpec, size: int) -> BucketPlan | None:
    """The span of the least error with buckets of one size."""
    # k = span sqrt(d').
    flats = _FLATNESS if spec.span is None else (spec.span * math.sqrt(spec.sent),)
    best: tuple[float, float, float] | None = None
    for flat in flats:
        span = min(1.0, flat / math.sqrt(spec.sent))
        a = _most_bias(spec, size, span)
        if a > _LEAST_BIAS:
            error = math.hypot(_noise(spec, size, a, span), spec.bias_ratio(span))
            best = min(best or (math.inf, a, span), (error, a, span))
    if best is None:
        return None
    _, a, span = best
    return BucketPlan(spec, _noise(spec, size, a, span), math.inf, size, a, span).proven()


def _sizes(spec: SumSpec) -> Iterator[int]:
    """Buckets from the largest on: the fewest messages first."""
    return (1 << j for j in range(spec.sent.bit_length() - 1, -1, -1))


def choose_buckets(
    spec: SumSpec, noise_ratio: float | None = None, max_bits: float | None = None
) -> BucketPlan:
    """The fewest bits at an error over the central Gaussian's, or the least error in max_bits.

    The error is the noise with the sampling, and the bias of clipping, in l2.

    Raises:
        ParameterError: if both or neither are given, there is no rotation, or what is asked for
            cannot be had.
    """
    one_wish(noise_ratio, max_bits)
    if spec.rotation is None:
        allowed = "a public seed: buckets take rotated vectors, whose coordinates are small"
        raise ParameterError("rotation", None, allowed)
    if max_bits is not None:
        most = positive("max_bits", max_bits) * spec.d
        plans = (_best(spec, size) for size in _sizes(spec) if _bits(spec, size) <= most)
        found = min(filter(None, plans), key=lambda plan: plan.error_ratio, default=None)
        if found is None:
            least = min(_bits(spec, size) for size in _sizes(spec)) / spec.d
            raise ParameterError("max_bits", max_bits, f"at least {least:.3g}, and n larger")
        return found
    wish, least_error = positive("noise_ratio", noise_ratio), math.inf
    for size in _sizes(spec):
        plan = _best(spec, size)
        if plan is not None and plan.error_ratio <= wish:
            return plan
        least_error = min(least_error, plan.error_ratio if plan else math.inf)
    if least_error == math.inf:
        raise ParameterError("n", spec.n, "more honest users: too few uniform messages hide one")
    raise ParameterError("noise_ratio", noise_ratio, f"at least {least_error * 1.001:.4g}")
