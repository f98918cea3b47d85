"""How options of commands are declared, and the groups of them that commands take as values.

A group is a frozen dataclass whose fields are options; a command names groups in its signature. The
default of a parameter is a group with the defaults of that command. `app.flat` makes options of
them, so a thing has one name, one type and one help text everywhere. `Execution` is a group, too:
what few people set of a run has the same names in Python.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import typer

from protocols.comparison.named import encoded_sum
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError, refuse_given
from shuffle_sim.privacy.guarantee import DELTA, Privacy


def option(default: Any, text: str, *names: str, **more: Any) -> Any:
    """A field that is an option with this help; by default its name is that of the field."""
    return field(default=default, metadata={"option": typer.Option(*names, help=text, **more)})


def same(found: Any, name: str = "") -> Any:
    """A field that is an option declared elsewhere, or that of a group of this name."""
    found = next(each for each in fields(found) if each.name == name) if name else found
    return field(default=found.default, metadata=dict(found.metadata))


ROUNDS = option(1, "Rounds that each user answers in, such as days; epsilon is of all.", "--rounds")
HONEST = option(1.0, "Fraction of users that are assumed to add their noise.")
ATTACK = option(
    None, "An attack, as in dropout:rate=0.1 or sign-flip:fraction=0.05; repeatable.", "--attack"
)
BOUNDS = "Public bounds low:high of every column, or name=low:high of one; repeatable."


@dataclass(frozen=True)
class Group:
    """Options that a command takes as one value."""

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not at their defaults, by name."""
        named = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in named.items() if value != default}


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
class SumOptions(Group):
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
    honest_fraction: float = same(HONEST)

    def encoded(self, n: int, d: int, privacy: Privacy, **how: Any) -> tuple[str, Any]:
        """The name of a sum and the sum, as `encoded_sum` gives them."""
        return encoded_sum(n, d, privacy, **how, **vars(self))


@dataclass(frozen=True)
class ModelOptions(Group):
    """The model of an optimiser."""

    records: int | None = option(
        None,
        "Where users are persons: records that a person nominally has. Public. As many count, its "
        "first ones. Default 1, and 1,024 count.",
    )
    loss: str = option(
        "logistic",
        "Of classes: logistic or hinge. Of numbers: squared, huber, absolute or pinball.",
    )
    quantile: float | None = option(None, "Quantile of the pinball loss.")
    threshold: float | None = option(None, "Threshold of the Huber loss, for labels in [-1, 1].")
    radius: float | None = option(
        None, "Radius of the l2 ball of parameters. Default: 1,000, but 20 or 5 with a bound."
    )
    ridge: float = option(0.0, "Public ridge. It makes the objective strongly convex.")
    norm_bound: float | None = option(
        None, "Longer gradients are clipped to it. Default: the loss's own bound."
    )


@dataclass(frozen=True)
class ProblemOptions(ModelOptions):
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
    test_fraction: float = option(0.2, "Fraction of people that are held out and never asked.")


@dataclass(frozen=True)
class StepOptions(Group):
    """The steps of an optimiser."""

    hyper: str | None = option(
        None, "How steps are chosen: calibrated or paper; default calibrated."
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


@dataclass(frozen=True)
class MechanismOptions(Group):
    """What some algorithms of a curator take alone."""

    moment: str | None = option(
        None,
        "K:G, or K:G:G2:G1: bounds of the moments of the gradients' length; clips are planned for "
        "them. A wrong one costs accuracy, never privacy.",
    )
    pilot: bool = option(
        False, "Estimate clips by a private histogram of a tenth of all.", "--pilot"
    )
    tilt: float | None = option(None, "With --mechanism tilted-erm: the tilt; default 1.")
    adversarial_radius: float | None = option(
        None, "With --mechanism adversarial-erm: l2 norm that features may move by; default 0.1."
    )


@dataclass(frozen=True)
class OptimiserOptions(MechanismOptions, StepOptions):
    """Who trains, and how."""

    protocol: str | None = option(
        None, "Name of an optimiser, such as shuffle-sgd; default shuffle-gd."
    )
    trust: str = option("shuffle", "Who is trusted: shuffle (the shuffler) or central.")
    mechanism: str | None = option(
        None,
        "With --trust central: gradient (default), output, objective, gibbs or another name. "
        "deletion-stability is a demonstration: 6 to 19 persons at epsilon 8, delta 0.5.",
    )
    pure: bool = option(
        False, "Delta = 0, with --trust central. No shuffled view is pure.", "--pure"
    )
    choose: str | None = option(
        None,
        "Parameters: practice (tuned on synthetic data, no proven bound) or bound (the smallest "
        "proven bound); default practice, but bound with --phases, --moment, --hyper "
        "paper and a curator.",
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

    @property
    def selected(self) -> dict[str, list[float]] | None:
        """Values by parameter, of `select`.

        Raises:
            ParameterError: not NAME=a,b, or a fraction without anything to select.
        """
        found: dict[str, list[float]] = {}
        for text in self.select or ():
            name, _, values = text.partition("=")
            name = name.strip().replace("-", "_")
            try:
                each = [float(value) for value in values.split(",")]
            except ValueError:
                each = []
            if not each or name in found:
                allowed = "NAME=a,b,c, once for a parameter, such as radius=5,100"
                raise ParameterError("select", text, allowed)
            found[name] = each
        if not found:
            refuse_given({"select_fraction": self.select_fraction}, "used with --select")
        return found or None


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
        None, "Name of the people whose budget it is. Default: that of the file or the table."
    )
    audit: str | None = option(
        None, "quick or thorough: audit this run in place of making it; nothing is charged."
    )
    yes: bool = option(False, "Start a run above the limits of bits, bytes and seconds.", "--yes")


def left_out(options: Mapping[str, Any], name: str) -> None:
    """Refuse options that are given though `name` has no use for them."""
    refuse_given(options, f"left out: {name} does not take it")
