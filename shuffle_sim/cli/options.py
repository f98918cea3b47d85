"""The options of commands, declared once, in groups that commands take as values.

A group is a frozen dataclass whose fields are options. A command names groups in its signature; the
default of a parameter is a group with the defaults of that command. `flat` makes options of them,
so the same thing has one name, one type and one help text everywhere. `Execution` is such a group,
too: what few people set of a run has the same names in Python and here.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from shuffle_sim.cli.show import check_path, check_picture
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import NOISE_RATIO, choose, sane
from shuffle_sim.registry import registered


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


Dimensions = Annotated[
    int, typer.Option("--d", help="Coordinates: 1 for a scalar sum, more for a vector sum.")
]
Repeated = Annotated[
    int,
    typer.Option(
        "--rounds", help="Rounds that each user answers in, such as days; epsilon is of all."
    ),
]
Rounds = Annotated[
    int | None, typer.Option(help="Rounds, where there are several; by default chosen.")
]
Batch = Annotated[
    int | None, typer.Option(help="Users in a round of a sequential protocol; by default chosen.")
]
Security = Annotated[
    str,
    typer.Option(
        help="none, transport (hops are sealed) or onion (messages are sealed to the analyzer)."
    ),
]


BOUNDS = "Public bounds low:high of every column, or name=low:high of one; repeatable."
BUDGET = typer.Option(
    help="A budget, as `shuffle-sim budget create` makes it. Runs that do not fit are refused.",
    parser=lambda text: check_name("budget", text),
    metavar="FILE",
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
    columns: str | None = option(None, "Columns of the file, separated by commas; by default all.")
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


OBJECTIVE = typer.Option(
    help="What is least: bits or messages, or error. Malicious users may then move a sum much more."
)
_HONEST = typer.Option(help="Fraction of users that are assumed to add their noise.")
HonestFraction = Annotated[float, _HONEST]


@dataclass(frozen=True)
class SumOptions:
    """How the numbers of a sum become noisy messages."""

    noise_ratio: float | None = option(
        None, "Noise allowed, as a multiple of the central Gaussian's. The fewest bits are chosen."
    )
    max_bits: float | None = option(
        None,
        "Bits allowed per user and coordinate. The least noise is chosen. It replaces "
        "--noise-ratio.",
    )
    encoding: str | None = option(
        None,
        "How numbers become messages: carry, unary, or with --rotation buckets. Default: that of "
        "the fewest bits.",
    )
    rotation: int | None = option(
        None, "Public seed of a rotation of vectors. Many coordinates then take fewer bits."
    )
    honest_fraction: float = field(default=1.0, metadata={"option": _HONEST})

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not at their defaults, by name."""
        every = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return {name: value for name, value, default in every if value != default}

    def encoded(
        self, n: int, d: int, privacy: Privacy, *, scalar: bool | None = None, rounds: int = 1
    ) -> tuple[str, Any]:
        """A sum by the encoding, or by that of the fewest bits, and its registered name.

        Args:
            n: users.
            d: coordinates.
            privacy: of the release.
            scalar: of numbers in [0, 1], not of vectors in the unit ball; None: where d is 1.
            rounds: that each user answers in, whose privacy it is.

        Raises:
            ParameterError: what cannot be had.
        """
        spec = SumSpec(n, d, privacy, rounds, self.honest_fraction, self.rotation)
        numbers = d == 1 if scalar is None else scalar
        if self.noise_ratio is None and self.max_bits is None:
            least = NOISE_RATIO * math.sqrt(n / spec.honest)
            chosen = self.encoding is not None
            name, plan = (
                choose(spec, least, None, self.encoding, numbers) if chosen else sane(spec, numbers)
            )
        else:
            name, plan = choose(spec, self.noise_ratio, self.max_bits, self.encoding, numbers)
        return name, registered("protocol", name).planned(plan)

    def calibrated(self, name: str, n: int, d: int, privacy: Privacy, **useless: Any) -> Any:
        """The registered sum `name`, calibrated.

        Args:
            name: as registered.
            n: users.
            d: coordinates.
            privacy: of the release.
            useless: other options, that no sum takes; None: not given.

        Raises:
            ParameterError: not a sum, or one that has no use for d or for an option that was given.
        """
        kind = registered("protocol", name)
        if not hasattr(kind, "calibrated") or not hasattr(kind, "size"):
            raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
        known = inspect.signature(kind.calibrated).parameters
        given = self.given | {key: each for key, each in useless.items() if each is not None}
        left_out({key: value for key, value in given.items() if key not in known}, name)
        if getattr(kind, "scalar", False) and d != 1:
            raise ParameterError("d", d, f"1: {name} sums scalars")
        noise = {"noise_ratio", "max_bits"}
        if noise <= set(known) and not noise & set(given):
            given["noise_ratio"] = getattr(kind, "usual_ratio", NOISE_RATIO)
        try:
            return kind.calibrated(**kind.size(n, d, privacy), **given)
        except TypeError as error:  # of a third party, with parameters of its own
            raise ParameterError("protocol", name, f"made by n, d and privacy ({error})") from error


@dataclass(frozen=True)
class ProblemOptions:
    """What is predicted, by which loss, on whom."""

    label: str | None = option(None, "Column of the file to predict.")
    positive: list[str] | None = option(
        None,
        "Class that becomes +1; all others become -1. Repeatable. Default: the last of two.",
    )
    classes: str | None = option(
        None,
        "Public classes of the label, separated by commas. With three or more the model has "
        "several classes.",
    )
    records: int | None = option(
        None,
        "With --person: records that a person nominally has. Public. As many count, its first "
        "ones. Default 1, and 1,024 count.",
    )
    loss: str = option(
        "logistic",
        "Of classes: logistic or hinge. Of numbers: squared, huber, absolute or pinball.",
    )
    quantile: float | None = option(None, "Quantile of the pinball loss.")
    threshold: float | None = option(None, "Threshold of the Huber loss, for labels in [-1, 1].")
    radius: float | None = option(
        None, "Radius of the l2 ball of parameters. Default: 20 for classes, 5 for numbers."
    )
    ridge: float = option(0.0, "Public ridge. It makes the objective strongly convex.")
    norm_bound: float | None = option(
        None, "Longer gradients are clipped to it. Default: the loss's own bound."
    )
    test_fraction: float = option(0.2, "Fraction of people that are held out and never asked.")


@dataclass(frozen=True)
class OptimiserOptions:
    """Who trains, and how."""

    protocol: str | None = option(
        None, "Name of an optimiser, such as shuffle-sgd; default shuffle-gd."
    )
    trust: str = option("shuffle", "Who is trusted: shuffle (the shuffler) or central.")
    mechanism: str | None = option(
        None, "With --trust central: output, objective, gibbs, heavy-tailed-erm or another name."
    )
    pure: bool = option(
        False, "Delta = 0, with --trust central. No shuffled view is pure.", "--pure"
    )
    moment: str | None = option(
        None,
        "K:G, or K:G:G2:G1: bounds of the moments of the gradients' length; clips are planned for "
        "them. A wrong one costs accuracy, never privacy.",
    )
    pilot: bool = option(
        False, "Estimate clips by a private histogram of a tenth of all.", "--pilot"
    )
    hyper: str | None = option(
        None, "How steps are chosen: calibrated or paper; default calibrated."
    )
    choose: str | None = option(
        None,
        "Parameters: practice (tuned on synthetic data, no proven bound) or bound (the smallest "
        "proven bound); default practice, but bound with --compare, --phases, --moment, --hyper "
        "paper and a curator.",
    )
    rounds: int | None = option(None, "Rounds, where there are several; by default chosen.")
    batch: int | None = option(
        None, "Users in a round of a sequential protocol; by default chosen."
    )
    eta: float | None = option(None, "Step size; by default chosen.")
    smoothing: float | None = option(None, "Smoothness of the Moreau envelope; by default chosen.")
    phases: int | None = option(
        None, "Phases over disjoint users, with --ridge; 0: their number is chosen."
    )
    select: list[str] | None = option(
        None,
        "Train a model for each value of radius, ridge, norm-bound, rounds, eta or smoothing "
        "within one budget. People who train none choose one by noisy scores; with --trust central "
        "the exponential mechanism does. Repeatable.",
        metavar="NAME=a,b",
    )
    select_fraction: float | None = option(
        None, "With --select: fraction of the people asked who score; default 0.1."
    )


@dataclass(frozen=True)
class HostOptions:
    """Where a run takes place, what is kept of it, and who attacks."""

    runtime: str = option("inprocess", "Where roles run: inprocess, processes or ray.")
    address: str | None = option(
        None,
        "With --runtime ray: host:port of a running cluster, or auto for that of this machine.",
    )
    workers: str = option(
        "1",
        "Number of user shards. On Ray each is an actor. auto: measured before the run.",
    )
    fidelity: str | None = option(
        None, "literal, counts or aggregate. By default the cost decides."
    )
    security: str = option(
        "none",
        "none, transport (hops are sealed) or onion (messages are sealed to the analyzer).",
    )
    round_timeout: float | None = option(
        None,
        "Seconds after which a role that does not answer is ended and put back. Default 600.",
    )
    seed: int | None = option(None, "Makes the run reproducible. It is then not private.")
    checkpoint: Path | None = option(
        None,
        "Keep the run in this folder, to resume it. Keep the folder secret: it holds the run's "
        "randomness.",
        parser=lambda text: check_name("checkpoint", text),
        metavar="FOLDER",
    )
    resume: bool = option(False, "Continue the run in the folder of --checkpoint.", "--resume")
    budget: Path | None = field(default=None, metadata={"option": BUDGET})
    report: str | None = option(
        None, "With --budget: name of this report, such as its day. A name is taken once."
    )
    population: str | None = option(
        None, "Name of the people whose budget it is. Default: that of the table."
    )
    yes: bool = option(False, "Start a run above the limits of bits, bytes and seconds.", "--yes")


@dataclass(frozen=True)
class Output:
    """What is printed."""

    json: bool = option(False, "Print JSON.", "--json")


@dataclass(frozen=True)
class Drawn(Output):
    """What is printed and drawn."""

    plot: Path | None = option(None, "File for a picture (.png, .svg or .pdf).")

    def __post_init__(self) -> None:
        """Refuse a picture that could not be written, before anything is run."""
        check_picture(self.plot)


SEED = typer.Option(help="Makes the run reproducible. It is then not private.")
Seed = Annotated[int | None, SEED]
Attacks = Annotated[
    list[str] | None,
    typer.Option(
        "--attack",
        help="An attack, as in dropout:rate=0.1 or sign-flip:fraction=0.05; repeatable.",
    ),
]


def left_out(options: Mapping[str, Any], name: str) -> None:
    """Refuse options that are given though `name` has no use for them."""
    for key, value in options.items():
        if value is not None:
            raise ParameterError(key, value, f"left out: {name} does not take it")


def written(name: str, path: Path | None, *kinds: str) -> Path | None:
    """A file to be written, refused before anything is run if it cannot be."""
    check_path(name, path, kinds)
    return path
