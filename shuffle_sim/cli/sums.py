"""From options to a sum."""

import inspect
from typing import Any

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.kinds import SumKind
from shuffle_sim.registry import registered

NOISE_RATIO = 1.05
"""Where neither a noise ratio nor bits are given."""


def default_sum(d: int) -> str:
    """The name of the binomial sum of d coordinates."""
    return "vector-sum" if d > 1 else "scalar-sum"


def make_sum(
    name: str, n: int, d: int, privacy: Privacy, **given: float | str | None
) -> Protocol[Any]:
    """The registered sum `name`, calibrated.

    Args:
        name: as registered.
        n: users.
        d: coordinates.
        privacy: of the release.
        given: options of its `calibrate`; None: left out.

    Raises:
        ParameterError: not a sum, or one that has no use for d or for an option that was given.
    """
    kind = registered("protocol", name)
    if not isinstance(kind, SumKind):
        raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
    known, noise = inspect.signature(kind.calibrate).parameters, {"noise_ratio", "max_bits"}
    given = {key: value for key, value in given.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            raise ParameterError(key, value, f"left out: {name} does not take it")
    if kind.scalar and d != 1:
        raise ParameterError("d", d, f"1: {name} sums scalars")
    if noise <= set(known) and not noise & set(given):
        given["noise_ratio"] = NOISE_RATIO
    size = {"n": n} if kind.scalar else {"n": n, "d": d}
    return kind.calibrate(privacy=privacy, **size, **given)
