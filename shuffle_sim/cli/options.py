"""The options of commands in groups that commands take as values (`shuffle_sim.cli.declared`)."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffle_sim.cli.declared import option
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import NOISE_RATIO, at_least, choose, sane, usual_ratio
from shuffle_sim.registry import registered

Dimensions = Annotated[
    int, typer.Option("--d", help="Coordinates: 1 for a scalar sum, more for a vector sum.")
]
Repeated = Annotated[
    int,
    typer.Option(
        "--rounds", help="Rounds that each user answers in, such as days; epsilon is of all."
    ),
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
        self,
        n: int,
        d: int,
        privacy: Privacy,
        *,
        scalar: bool | None = None,
        rounds: int = 1,
        ratio: float | None = None,
    ) -> tuple[str, Any]:
        """A sum by the encoding, or by that of the fewest bits, and its registered name.

        Args:
            n: users.
            d: coordinates.
            privacy: of the release.
            scalar: of numbers in [0, 1], not of vectors in the unit ball; None: where d is 1.
            rounds: that each user answers in, whose privacy it is.
            ratio: of the noise where none is asked for; None: the usual one.

        Raises:
            ParameterError: what cannot be had.
        """
        spec = SumSpec(n, d, privacy, rounds, self.honest_fraction, self.rotation)
        numbers = d == 1 if scalar is None else scalar
        if self.noise_ratio is not None or self.max_bits is not None:
            wish = self.noise_ratio, self.max_bits
            name, plan = choose(spec, *wish, self.encoding, numbers)
        elif self.encoding is None and ratio is None:
            name, plan = sane(spec, numbers)
        else:
            usual = usual_ratio(self.encoding, spec.honest / n, numbers, ratio or NOISE_RATIO)
            name, plan = at_least(
                lambda wish: choose(spec, wish, None, self.encoding, numbers), usual
            )
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
        sizes = kind.size(n, d, privacy)
        try:
            if noise <= set(known) and not noise & set(given):
                usual = getattr(kind, "usual_ratio", NOISE_RATIO)
                return at_least(
                    lambda ratio: kind.calibrated(**sizes, **given, noise_ratio=ratio), usual
                )
            return kind.calibrated(**sizes, **given)
        except TypeError as error:  # of a third party, with parameters of its own
            raise ParameterError("protocol", name, f"made by n, d and privacy ({error})") from error


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
