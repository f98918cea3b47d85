"""From options to a sum."""

import inspect
import math
from collections.abc import Mapping
from typing import Any

from protocols.sums.one_round import OneRoundSum
from shuffle_sim.cli.show import number
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.encodings import NOISE_RATIO, choose, sane
from shuffle_sim.registry import registered


def encoded_sum(
    n: int,
    d: int,
    privacy: Privacy,
    *,
    encoding: str | None = None,
    scalar: bool | None = None,
    noise_ratio: float | None = None,
    max_bits: int | None = None,
    honest_fraction: float = 1.0,
) -> tuple[str, Protocol[Any]]:
    """A sum by an encoding, or by that of the fewest bits, and its registered name.

    Args:
        n: users.
        d: coordinates.
        privacy: of the release.
        encoding: None: chosen.
        scalar: of numbers in [0, 1], not of vectors in the unit ball; None: where d is 1.
        noise_ratio: over the central Gaussian's.
        max_bits: per user and coordinate, instead.
        honest_fraction: of the users that add their noise.

    Raises:
        ParameterError: what cannot be had.
    """
    spec = SumSpec(n, d, privacy, honest_fraction=honest_fraction)
    numbers = d == 1 if scalar is None else scalar
    if noise_ratio is None and max_bits is None:
        least = NOISE_RATIO * math.sqrt(n / spec.honest)
        chosen = encoding is not None
        name, plan = choose(spec, least, None, encoding, numbers) if chosen else sane(spec, numbers)
    else:
        name, plan = choose(spec, noise_ratio, max_bits, encoding, numbers)
    made: Protocol[Any] = registered("protocol", name).planned(plan)
    return name, made


def shown(encoding: str, parameters: Mapping[str, Any]) -> str:
    """For people: an encoding and its parameters."""
    each = ", ".join(f"{name} = {number(value)}" for name, value in parameters.items())
    return f"{encoding}: {each}"


def left_out(options: Mapping[str, Any], name: str) -> None:
    """Refuse options that are given though `name` has no use for them."""
    for key, value in options.items():
        if value is not None:
            raise ParameterError(key, value, f"left out: {name} does not take it")


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
    if not (isinstance(kind, type) and issubclass(kind, OneRoundSum)):
        raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
    known, noise = inspect.signature(kind.calibrate).parameters, {"noise_ratio", "max_bits"}
    left_out({key: value for key, value in given.items() if key not in known}, name)
    given = {key: value for key, value in given.items() if value is not None}
    if kind.scalar and d != 1:
        raise ParameterError("d", d, f"1: {name} sums scalars")
    if noise <= set(known) and not noise & set(given):
        given["noise_ratio"] = NOISE_RATIO
    size = {"n": n} if kind.scalar else {"n": n, "d": d}
    try:
        return kind.calibrate(privacy=privacy, **size, **given)
    except TypeError as error:  # of a third party, with parameters of its own
        raise ParameterError("protocol", name, f"made by n, d and privacy ({error})") from error
