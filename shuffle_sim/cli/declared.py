"""How options of commands are declared: as fields of groups, and as numbers that people write.

A group is a frozen dataclass whose fields are options. A command names groups in its signature; the
default of a parameter is a group with the defaults of that command. `flat` makes options of them,
so the same thing has one name, one type and one help text everywhere. `Execution` is such a group,
too: what few people set of a run has the same names in Python and here.
"""

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import field, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import partial, wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer


def option(default: Any, text: str, *names: str, **more: Any) -> Any:
    """A field that is an option with this help; by default its name is that of the field."""
    return field(default=default, metadata={"option": typer.Option(*names, help=text, **more)})


_FACTORS = {"k": 3, "M": 6, "G": 9}
_KINDS: dict[type, tuple[str, str]] = {int: ("integer", "10k or 1e4"), float: ("float", "0.1")}


def parse_number(text: str, kind: type) -> Any:
    """A number as people write it: 10000, 1e4, 10_000 or 10k; M is 10^6, and G is 10^9.

    Raises:
        ValueError: it is none, or no whole one where one is asked for.
    """
    body, power = (text[:-1], _FACTORS[text[-1]]) if text[-1:] in _FACTORS else (text, 0)
    try:
        found = Decimal(body.strip())
    except InvalidOperation as error:
        raise ValueError("not a number") from error
    if kind is float:
        return float(found) * 10.0**power if power else float(found)
    if not found.is_finite() or found.adjusted() > 300 or (found := found.scaleb(power)) % 1:
        raise ValueError("not a whole number")
    return int(found)


def _given(kind: type, value: Any) -> Any:
    """A number that was given as an option; a default is one already."""
    try:
        return parse_number(value, kind) if isinstance(value, str) else value
    except (ValueError, ArithmeticError):
        name, example = _KINDS[kind]
        raise typer.BadParameter(f"'{value}' is not a valid {name}, such as {example}.") from None


def _numeric(kind: Any, text: Any) -> Any:
    """The annotation of an option; all that take a number read it alike."""
    for number in _KINDS:
        if kind in (number, number | None) and text.parser is None:
            text = copy(text)
            text.parser = partial(_given, number)
            text.metavar = text.metavar or _KINDS[number][0].upper()
    return Annotated[kind, text]


def same(group: type, name: str) -> Any:
    """A field that is the option of another group, with its default and its help."""
    (found,) = (each for each in fields(group) if each.name == name)
    return field(default=found.default, metadata=dict(found.metadata))


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer: the fields of its groups are options beside its other parameters."""
    hints, parameters = get_type_hints(command, include_extras=True), list[inspect.Parameter]()
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            hint, *text = get_args(hints[name])[:2] or (hints[name],)
            kind = _numeric(hint, *text) if text else hint
            own = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind)
            parameters.append(own)
            continue
        kinds, given = get_type_hints(groups[name]), parameter.default
        for each, text in _options(groups[name]).items():
            value = getattr(groups[name] if given is parameter.empty else given, each, ...)
            default = inspect.Parameter.empty if value is ... else value
            kind = _numeric(kinds[each], text)
            one = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(each, one, default=default, annotation=kind))

    @wraps(command)
    def flattened(**options: Any) -> None:
        values = {
            name: kind(**{each: options.pop(each) for each in _options(kind)})
            for name, kind in groups.items()
        }
        command(**values, **options)

    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)
    shown: Any = flattened
    shown.__signature__ = inspect.Signature(parameters)
    return flattened


def _options(group: Any) -> dict[str, Any]:
    """The options of a group by name: its own, or fields of `Execution` with a help text."""
    found = {}
    for each in fields(group):
        if "option" in each.metadata:
            found[each.name] = each.metadata["option"]
        elif "help" in each.metadata:
            found[each.name] = typer.Option(help=each.metadata["help"])
    return found
