"""Protocols by name for n users: a registered sum, or an optimiser of a linear model."""

import inspect
from functools import partial
from typing import Any

from protocols.learning.training import Trainer
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, refuse_given
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import NOISE_RATIO, at_least, choose, sane, usual_ratio
from shuffle_sim.registry import registered

STEPS = "hyper", "phases", "rounds", "batch", "eta", "smoothing"
"""What `Trainer.protocol` takes of the steps of an optimiser."""
OF_MECHANISMS = {"tilt": "tilt", "adversarial_radius": "radius"}
"""Options of the command line for one mechanism each, and their own names."""


def usual_size(name: str | None) -> int:
    """Coordinates of a registered protocol, or cells, where none are asked for."""
    kind = None if name is None else registered("protocol", name)
    return int(getattr(kind, "usual_size", 1))


def encoded_sum(
    n: int,
    d: int,
    privacy: Privacy,
    *,
    scalar: bool | None = None,
    rounds: int = 1,
    ratio: float | None = None,
    noise_ratio: float | None = None,
    max_bits: float | None = None,
    encoding: str | None = None,
    rotation: int | None = None,
    honest_fraction: float = 1.0,
) -> tuple[str, Any]:
    """A sum by its encoding, or by that of the fewest bits, and its registered name.

    Args:
        n: users.
        d: coordinates.
        privacy: of all rounds.
        scalar: whether users have numbers in [0, 1], not vectors in the unit ball; None: where d is
            1.
        rounds: that the users answer in.
        ratio: of the noise over the central Gaussian's, where none is asked for.
        noise_ratio: that is asked for; or
        max_bits: per user, coordinate and round.
        encoding: None: chosen.
        rotation: public seed of a rotation of vectors; None: there is none.
        honest_fraction: of the users that add their noise.

    Raises:
        ParameterError: what cannot be had.
    """
    spec = SumSpec(n, d, privacy, rounds, honest_fraction, rotation)
    numbers = d == 1 if scalar is None else scalar
    if noise_ratio is not None or max_bits is not None:
        name, plan = choose(spec, noise_ratio, max_bits, encoding, numbers)
    elif encoding is None and ratio is None:
        name, plan = sane(spec, numbers)
    else:
        usual = usual_ratio(encoding, spec.honest / n, numbers, ratio or NOISE_RATIO)
        name, plan = at_least(partial(choose, spec, encoding=encoding, scalar=numbers), usual)
    return name, registered("protocol", name).planned(plan)


def named_sum(name: str, n: int, d: int, privacy: Privacy, **given: Any) -> Any:
    """A registered sum, calibrated; with the usual noise where it takes some and none is given.

    Args:
        name: of the sum.
        n: users.
        d: coordinates, or what else is its size.
        privacy: of the release.
        given: what its `calibrated` takes.

    Raises:
        ParameterError: not a sum, or one that has no use for d or for what is given.
    """
    kind = registered("protocol", name)
    if not hasattr(kind, "calibrated") or not hasattr(kind, "size"):
        raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
    known = inspect.signature(kind.calibrated).parameters
    useless = {key: value for key, value in given.items() if key not in known}
    refuse_given(useless, f"left out: {name} does not take it")
    if getattr(kind, "scalar", False) and d != 1:
        raise ParameterError("d", d, f"1: {name} sums scalars")
    noise = {"noise_ratio", "max_bits"}
    own = kind.size(n, d, privacy) | given
    try:
        if noise <= set(known) and not noise & set(given):
            usual = getattr(kind, "usual_ratio", NOISE_RATIO)
            return at_least(lambda ratio: kind.calibrated(**own, noise_ratio=ratio), usual)
        return kind.calibrated(**own)
    except ParameterError as error:
        if error.parameter in own.keys() - given.keys() - {"n", "d", "privacy"}:
            raise ParameterError("d", d, f"{error.allowed}: {error.parameter} of {name}") from error
        raise
    except TypeError as error:  # of a third party, with parameters of its own
        raise ParameterError("protocol", name, f"made by n, d and privacy ({error})") from error


def named_protocol(name: str, n: int, d: int, privacy: Privacy, **given: Any) -> Any:
    """The registered sum, or the optimiser of a linear model of records or of persons.

    Args:
        name: as registered.
        n: users.
        d: coordinates, parameters, or what else is its size.
        privacy: of the whole run.
        given: what a sum takes; of an optimiser what `Trainer.of` takes, and STEPS.

    Raises:
        ParameterError: as `named_sum` and `Trainer.protocol`.
    """
    kind = registered("protocol", name)
    if hasattr(kind, "size"):
        if given.get("encoding") is not None:
            raise ParameterError("encoding", given["encoding"], f"left out: {name} has its own")
        return named_sum(name, n, d, privacy, **given)
    records = 1 if getattr(kind, "unit", None) is Unit.PERSON else None
    steps = {key: given.pop(key) for key in STEPS if key in given}
    own = {"loss": "logistic", "records": records, "d": d, "privacy": privacy} | given
    return Trainer.of(**own).protocol(name, n, **steps)
