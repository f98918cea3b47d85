"""From names to things: losses, mechanisms, bounds of moments, as people and commands give them."""

import dataclasses
from typing import Any

from protocols.optimisation.base import Optimiser
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.moments import Moments
from protocols.problems.multiclass import MultiClass
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.registry import loaded, names, registered, registered_kinds

GRADIENT = "gradient"
"""Name of the curator's mechanism that takes the rounds of the tuned descent of all users."""


def mechanism_of(name: str, unit: Unit = Unit.RECORD) -> tuple[str, type[Optimiser[Any]]]:
    """The registered central algorithm of a name, "-perturbation" left out if wanted.

    Raises:
        ParameterError: there is none for the unit.
    """
    every = registered_kinds("algorithm", Optimiser)
    kinds = {key: kind for key, kind in every.items() if kind.unit is unit}
    full = f"{name}-perturbation"
    key = full if full in kinds else name
    if key not in list(kinds):  # a list: what is not a name need not be hashable
        raise ParameterError("mechanism", name, f"one of {', '.join([GRADIENT, *kinds])}")
    return key, kinds[key]


def named_loss(
    name: str | LinearLoss,
    features: float = 1.0,
    *,
    classes: int = 2,
    labels: float | None = 1.0,
    classification: bool | None = None,
    **own: Any,
) -> LinearLoss | MultiClass:
    """The loss registered under a name, also a third party's.

    Args:
        name: as registered; or a loss, whose bounds are put in place of its own. With several
            classes that of their joint loss is the same.
        features: l2 bound of the features.
        classes: of the labels; more than two have a joint loss, a registered `multiclass_loss`.
        labels: bound of labels that are numbers; None: none.
        classification: whether labels must be classes, or must be numbers; None: either.
        own: parameters of the loss; None: not given.

    Raises:
        ParameterError: an unknown loss, one for other labels, or a parameter that it does not have.
    """
    kind: Any = type(name) if isinstance(name, LinearLoss) else registered("loss", name)
    if classification is not None and kind.classification is not classification:
        every = loaded("loss").items()
        fit = [key for key, each in every if each.classification is classification]
        raise ParameterError("loss", name, f"one of {', '.join(fit)}")
    if classes > 2:
        if name not in names("multiclass_loss"):
            allowed = f"{' or '.join(names('multiclass_loss'))}, for several classes"
            raise ParameterError("loss", name, allowed)
        several: MultiClass = registered("multiclass_loss", name)(classes, features)
        return several
    known = parameters_of(kind)
    given = {key: value for key, value in own.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            raise ParameterError(key, value, f"given with a loss that has it: {name} has none")
    if "labels" in known:
        given["labels"] = labels
    if isinstance(name, LinearLoss):
        return dataclasses.replace(name, features=features, **given)
    made: LinearLoss = kind(features=features, **given)
    return made


def parameters_of(loss: Any) -> list[str]:
    """The names of what a loss is made with, its bound of features left out."""
    return [each.name for each in dataclasses.fields(loss) if each.name != "features"]


def moments_of(text: str) -> Moments:
    """k:G_k, k:G_k:G_2 or k:G_k:G_2:G_1."""
    try:
        numbers = [float(each) for each in text.split(":")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4:
        raise ParameterError("moment", text, "K:G, K:G:G2 or K:G:G2:G1, such as 4:1.5:1.0")
    return Moments(*numbers)
