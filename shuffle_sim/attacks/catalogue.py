"""Attacks by name, as the command line and configurations give them."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from shuffle_sim.errors import ParameterError
from shuffle_sim.protocol.adversary import Adversary, Chain
from shuffle_sim.registry import registered

Spec = str | Mapping[str, Any]


def attack(spec: Spec) -> Adversary:
    """The adversary of a text "name:key=value,..." or a mapping {"name": name, key: value, ...}.

    Raises:
        ParameterError: unknown name (the known ones are listed), an unknown or missing parameter,
            or one outside its range.
    """
    name, options = _parsed(spec) if isinstance(spec, str) else _taken(spec)
    known = parameters(name)
    for key in options:
        if key not in known:
            raise ParameterError(
                f"attack {name}: {key}",
                options[key],
                f"one of {', '.join(known) or 'no parameters'}",
            )
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in options:
            raise ParameterError(f"attack {name}: {key}", None, f"given, as in {name}:{key}=0.1")
    try:
        made: Adversary = registered("attack", name)(**options)
    except ParameterError as error:
        raise ParameterError(
            f"attack {name}: {error.parameter}", error.value, error.allowed
        ) from error
    return made


def parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the attack of that name.

    Raises:
        ParameterError: unknown name.
    """
    return inspect.signature(registered("attack", name)).parameters


def attacks(specs: Iterable[Spec]) -> Adversary | None:
    """All of them at once, each on its own users, the first outermost; None for none."""
    members = [attack(spec) for spec in specs]
    return Chain(*members) if members else None


def _taken(spec: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    options = dict(spec)
    return options.pop("name", None), options


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or key.strip() in options:
            raise ParameterError("attack", text, "name or name:key=value,key=value, each key once")
        options[key.strip()] = _value(value.strip())
    return name.strip(), options


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
