"""How options of commands are declared, and the groups of them that commands take as values.

A group is a frozen dataclass whose fields are options. A command names groups in its signature; the
default of a parameter is a group with the defaults of that command. `flat` makes options of them,
so the same thing has one name, one type and one help text everywhere. `Execution` is such a group,
too: what few people set of a run has the same names in Python and here. Numbers are as people write
them.
"""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import Field, dataclass, field, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from shuffle_sim.data.files import check_name
from shuffle_sim.errors import refuse_given
from shuffle_sim.privacy.guarantee import DELTA, Privacy


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


def same(found: Any, name: str = "") -> Any:
    """A field that is an option declared elsewhere, or that of a group of this name."""
    if name:
        (found,) = (each for each in fields(found) if each.name == name)
    return field(default=found.default, metadata=dict(found.metadata))


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer: the fields of its groups are options beside its other parameters.

    A parameter of its own that is an option has it for a default, as a field of a group has.
    """
    hints, parameters = get_type_hints(command, include_extras=True), list[inspect.Parameter]()
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    one, required = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty

    def add(name: str, kind: Any, text: Any, default: Any) -> None:
        default, kind = required if default is ... else default, _numeric(kind, text)
        parameters.append(inspect.Parameter(name, one, default=default, annotation=kind))

    for name, parameter in inspect.signature(command).parameters.items():
        given = parameter.default
        if (group := groups.get(name)) is not None:
            kinds, known = get_type_hints(group), group if given is required else given
            for each, text in _options(group).items():
                add(each, kinds[each], text, getattr(known, each, ...))
        elif isinstance(given, Field):
            add(name, hints[name], given.metadata["option"], given.default)
        else:
            parameters.append(parameter.replace(kind=one, annotation=hints[name]))

    @wraps(command)
    def flattened(**options: Any) -> None:
        values = {
            name: kind(**{each: options.pop(each) for each in _options(kind)})
            for name, kind in groups.items()
        }
        command(**values, **options)

    parameters.sort(key=lambda each: each.default is not required)
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


ROUNDS = option(1, "Rounds that each user answers in, such as days; epsilon is of all.", "--rounds")
HONEST = option(1.0, "Fraction of users that are assumed to add their noise.")
ATTACK = option(
    None, "An attack, as in dropout:rate=0.1 or sign-flip:fraction=0.05; repeatable.", "--attack"
)
BOUNDS = "Public bounds low:high of every column, or name=low:high of one; repeatable."
OBJECTIVE = (
    "What is least: bits or messages, or error. Malicious users may then move a sum much more."
)


@dataclass(frozen=True)
class Size:
    """How many users, and how many coordinates each has; `...` must be given."""

    users: int = option(..., "Number of users.", "--n")
    dimensions: int = option(
        1, "Coordinates: 1 for scalars in [0, 1], more for vectors in an l2 ball.", "--d"
    )


@dataclass(frozen=True)
class PersonsOptions:
    """A file, and who its rows are of."""

    file: Path | None = option(
        None, "Your own .csv, .tsv, .parquet or .npz file. It replaces --table."
    )
    person: str | None = option(
        None, "Column of the file that names the person; privacy is then of persons."
    )


@dataclass(frozen=True)
class LayoutOptions:
    """How a .csv file is written."""

    delimiter: str | None = option(
        None, "Between cells of a .csv file, or tab. Default: the header's commonest."
    )
    decimal: str | None = option(None, "Decimal mark of a .csv file: a point (default) or a comma.")
    thousands: str | None = option(None, "Mark between thousands in a .csv file. Default: none.")


@dataclass(frozen=True)
class DataOptions(PersonsOptions, LayoutOptions):
    """A table, and what is public of it."""

    table: str | None = option(None, "A registered one: breast-cancer, digits, diabetes, wine ...")
    columns: str | None = option(
        None, "Columns of the file, separated by commas; in double quotes where they have one."
    )
    bounds: list[str] | None = option(None, BOUNDS)
    choose_bounds: float | None = option(
        None,
        "Choose bounds that nobody stated by a private histogram, for this share of epsilon, such "
        "as 0.2. The whole run keeps --epsilon.",
        metavar="SHARE",
    )
    schema: Path | None = option(
        None,
        "A .toml file with types, bounds and categories of columns, as `shuffle-sim schema` drafts "
        "it.",
    )
    missing: str | None = option(
        None,
        "What becomes of blank cells, on the user's side: drop (the row), midpoint (of the bounds) "
        "or indicator (midpoint, and a column that says so). Default: refused.",
    )
    categories: list[str] | None = option(
        None,
        "Public categories NAME=a,b,c of a column; what is not listed is other. Repeatable.",
    )


@dataclass(frozen=True)
class PrivacyOptions:
    """The budget of the whole run."""

    epsilon: float = option(1.0, "Privacy parameter epsilon of the whole run.")
    delta: float = option(DELTA, "Privacy parameter delta of the whole run.")

    @property
    def budget(self) -> Privacy:
        """As algorithms take it."""
        return Privacy(self.epsilon, self.delta)


@dataclass(frozen=True)
class Hosting:
    """Where roles run, how much of them is simulated, and how messages are sealed."""

    runtime: str = option("inprocess", "Where roles run: inprocess, processes or ray.")
    fidelity: str | None = option(
        None, "literal, counts or aggregate. By default the cost decides."
    )
    security: str = option(
        "none",
        "none, transport (hops are sealed) or onion (messages are sealed to the analyzer).",
    )
    seed: int | None = option(None, "Makes the run reproducible. It is then not private.")


@dataclass(frozen=True)
class HostOptions(Hosting):
    """Where a run takes place, what is kept of it, and who attacks."""

    address: str | None = option(
        None,
        "With --runtime ray: host:port of a running cluster, or auto for that of this machine.",
    )
    workers: str = option(
        "1",
        "Number of user shards. On Ray each is an actor. auto: measured before the run.",
    )
    round_timeout: float | None = option(
        None,
        "Seconds after which a role that does not answer is ended and put back. Default 600.",
    )
    checkpoint: Path | None = option(
        None,
        "Keep the run in this folder, to resume it. Keep the folder secret: it holds the run's "
        "randomness.",
        parser=lambda text: check_name("checkpoint", text),
        metavar="FOLDER",
    )
    resume: bool = option(False, "Continue the run in the folder of --checkpoint.", "--resume")
    budget: Path | None = option(
        None,
        "A budget, as `shuffle-sim budget create` makes it. Runs that do not fit are refused.",
        parser=lambda text: check_name("budget", text),
        metavar="FILE",
    )
    report: str | None = option(
        None, "With --budget: name of this report, such as its day. A name is taken once."
    )
    population: str | None = option(
        None, "Name of the people whose budget it is. Default: that of the table."
    )
    yes: bool = option(False, "Start a run above the limits of bits, bytes and seconds.", "--yes")


def left_out(options: Mapping[str, Any], name: str) -> None:
    """Refuse options that are given though `name` has no use for them."""
    refuse_given(options, f"left out: {name} does not take it")
