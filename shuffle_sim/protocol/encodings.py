"""How a number becomes messages in sums and optimisers: the encodings, found by their sums."""

import math
from collections.abc import Callable
from typing import Any, TypeVar, runtime_checkable
from typing import Protocol as Interface

from shuffle_sim.errors import ParameterError, one_of
from shuffle_sim.privacy.planner import Plan, SumSpec, one_wish
from shuffle_sim.registry import loaded, registered, remembered, skipping

NOISE_RATIO = 1.05
"""Where neither a noise ratio nor bits are given, and it takes no more than SANE_BITS."""
SANE_BITS = 100
"""Per user, coordinate and round: more is not taken for a little less noise."""
FACTORS = (1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0)
"""Times the least noise ratio, where that takes too many bits or cannot be had."""
_Made = TypeVar("_Made")


@runtime_checkable
class EncodedSum(Interface):
    """A registered class of sums that names its encoding, and whose parameters are planned.

    Attributes:
        encoding: its name.
        scalar: whether it sums numbers, not vectors.
        choose: the plan for a spec and a noise ratio or a number of bits.
        planned: the sum of a plan; a bound of the data is the second argument.
    """

    encoding: str
    scalar: bool
    choose: Callable[[SumSpec, float | None, int | None], Plan]
    planned: Callable[..., Any]


def encodings(scalar: bool = False) -> dict[str, str]:
    """The registered name of the sum of vectors, or of scalars, by encoding."""
    return {
        kind.encoding: name
        for name, kind in loaded("protocol").items()
        if isinstance(kind, EncodedSum) and kind.scalar is scalar
    }


def robust(name: str) -> bool:
    """Whether a malicious user moves the sum of this name by a few users' worth at most."""
    return bool(getattr(registered("protocol", name), "robust", True))


def usual_ratio(
    encoding: str | None, honest_fraction: float, scalar: bool = False, ratio: float = NOISE_RATIO
) -> float:
    """The noise ratio where none is asked for: some encodings need more, as do few honest users."""
    name = encodings(scalar).get(encoding or "")
    own = getattr(registered("protocol", name), "usual_ratio", ratio) if name else ratio
    # Honest users alone must protect: all others' noise comes on top.
    return max(ratio, float(own)) / math.sqrt(honest_fraction)


def at_least(make: Callable[[float], _Made], ratio: float) -> _Made:
    """What is made at the first noise ratio, from `ratio` on, that can be had.

    For encodings that are asked for by name, without a ratio: some have no little noise where users
    or coordinates are few.

    Raises:
        ParameterError: of `make`, where no ratio up to three times as large can be had.
    """
    for factor in FACTORS[:-1]:
        try:
            return make(factor * ratio)
        except ParameterError as why:
            # Anything else that is refused would be refused at every ratio.
            if why.parameter != "noise_ratio":
                raise
    return make(FACTORS[-1] * ratio)


def sane(spec: SumSpec, scalar: bool = False) -> tuple[str, Plan]:
    """A sum and its plan for the least noise ratio, from NOISE_RATIO on, with at most SANE_BITS.

    With few users or a small epsilon noise near the central Gaussian's takes up to millions of
    bits. Where no ratio up to three times takes few, the fewest bits of those tried are taken. An
    encoding that is given is taken at NOISE_RATIO.

    Raises:
        ParameterError: what is asked for cannot be had.
    """
    least, tried, refused = usual_ratio(None, spec.honest / spec.n), [], []
    for factor in FACTORS:
        try:
            tried.append(choose(spec, factor * least, scalar=scalar))
        except ParameterError as why:
            refused.append(why)
            continue
        if tried[-1][1].bits <= SANE_BITS:
            return tried[-1]
    if not tried:
        raise refused[-1]
    return min(tried, key=lambda each: each[1].bits)


@remembered
def choose(
    spec: SumSpec,
    noise_ratio: float | None = None,
    max_bits: float | None = None,
    encoding: str | None = None,
    scalar: bool = False,
    objective: str = "bits",
) -> tuple[str, Plan]:
    """A sum and its plan: the fewest bits at a noise ratio, or the least noise in max_bits.

    The sum is named as registered; `planned` of its class makes it.

    Args:
        spec: what is summed.
        noise_ratio: over the central Gaussian's; or
        max_bits: per user, coordinate and round.
        encoding: None: the best of all.
        scalar: of numbers in a range, not of vectors in a ball.
        objective: "bits", or "error" for sums too of which a malicious user moves much more.

    Raises:
        ParameterError: unknown encoding or objective, or what is asked for cannot be had.
    """
    one_wish(noise_ratio, max_bits)
    sums = encodings(scalar)
    one_of("encoding", encoding, sums, None)
    if objective not in ("bits", "error"):
        raise ParameterError("objective", objective, "bits or error")
    every = [name for name in sums.values() if objective == "error" or robust(name)]
    plans, refused = {}, []
    for name in every if encoding is None else (sums[encoding],):
        try:
            with skipping("protocol", name):
                plans[name] = registered("protocol", name).choose(spec, noise_ratio, max_bits)
        except ParameterError as why:
            refused.append(why)
    if not plans:
        raise refused[-1] if refused else ParameterError("encoding", encoding, "one that can plan")

    def rank(name: str) -> tuple[float, float]:
        plan = plans[name]
        best = plan.bits, plan.noise_ratio
        # In a budget of bits the noise decides; else bits do, and noise parts equals.
        return best if max_bits is None else best[::-1]

    name = min(plans, key=rank)
    return name, plans[name]
