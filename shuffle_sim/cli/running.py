"""From options to a run: what it will cost, where it takes place, and how it is watched."""

import hashlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shuffle_sim.arrays import Floats
from shuffle_sim.cli.options import option, parse_number
from shuffle_sim.cli.show import details, notes, plural, print_fact, size
from shuffle_sim.data.files import check_name, opened
from shuffle_sim.data.population import Population
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError, positive, refuse_given
from shuffle_sim.execution.budget import Budget, Report
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.forecast import Forecast, forecast
from shuffle_sim.execution.options import SEALING_SECONDS, Execution
from shuffle_sim.execution.result import Result, RunSummary
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.execution.setup import placed
from shuffle_sim.execution.sizing import seconds_of
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.registry import registered
from shuffle_sim.wire.fingerprint import fingerprint

MAX_BITS, MAX_BYTES, MAX_SECONDS = 10**7, 10**10, 3600.0
"""Of a user, of all hops, and of a run: more is not started unasked."""
LONG = 5.0
"""Seconds of a run from which people want to know them before."""


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


@dataclass(frozen=True)
class Ahead:
    """What a run will cost.

    Attributes:
        rounds: of interaction.
        bits_per_user: payload, over all rounds.
        bytes: of all hops, if every message is sent.
        seconds: about, from a rehearsal on this machine (`shuffle_sim.execution.sizing`).
        fidelity: of the run.
        workers: that share the work.
    """

    rounds: int
    bits_per_user: float
    bytes: int
    seconds: float
    fidelity: str
    workers: int = 1

    @classmethod
    def of(cls, found: Forecast, seconds: float, fidelity: str, workers: int = 1) -> "Ahead":
        """From a forecast of the communication, and the seconds beside its seals."""
        wire = sum(hop.wire for hop in found.hops)
        bits, each = math.ceil(found.user_payload_bits), found.seconds / workers
        return cls(found.rounds, bits, wire, seconds + each, fidelity, workers)

    @property
    def above(self) -> list[str]:
        """Which limits it is above."""
        found = []
        if self.bits_per_user > MAX_BITS:
            found.append(f"{self.bits_per_user:,} bits a user (limit {MAX_BITS:,})")
        if self.bytes > MAX_BYTES and self.fidelity != "aggregate":
            found.append(f"{size(self.bytes)} in all (limit {size(MAX_BYTES)})")
        if self.seconds > MAX_SECONDS:
            found.append(f"about {self.seconds:,.0f} s (limit {MAX_SECONDS:,.0f})")
        return found

    def __str__(self) -> str:
        seconds = f"{self.seconds:.1g}" if self.seconds < 1 else f"{self.seconds:,.0f}"
        return (
            f"{plural(self.rounds, 'round')}, {self.bits_per_user:,} bits a user, "
            f"{size(self.bytes)} in all if each message is sent; about {seconds} s "
            f"({self.fidelity}, {plural(self.workers, 'worker')})"
        )


def announce(ahead: Ahead, fewer: Iterable[str], *, yes: bool, json: bool) -> Callable[[], object]:
    """What shows the cost as a run of some time starts, or any with --verbose.

    Above a limit ask, or refuse where nobody can answer.

    Args:
        ahead: what it will cost.
        fewer: ways to less, and their price; only looked at above a limit.
        yes: whether the answer is known.
        json: whether output is for machines.

    Raises:
        ParameterError: it is above a limit, and nobody said yes.
    """
    where = notes if ahead.seconds >= LONG else details
    shown = partial(print_fact, "Ahead", str(ahead), where=where) if not json else lambda: None
    if yes or not ahead.above:
        return shown
    what = "; ".join(ahead.above)
    ways = "; ".join(fewer)
    allowed = f"given for {what}" + (f". For less: {ways}" if ways else "")
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ParameterError("yes", yes, allowed)
    if not typer.confirm(f"This run takes {what}. {ways}. Start it?"):
        raise ParameterError("yes", yes, allowed)
    return shown


@dataclass(frozen=True)
class Running:
    """Where and how runs take place; `options` are those of `run` beside its execution."""

    host: Runtime
    options: dict[str, Any]
    execution: Execution
    yes: bool

    @classmethod
    def of(
        cls, asked: HostOptions, execution: Execution, table: Table | str, file: Path | None = None
    ) -> "Running":
        """As the command line gives it, on a table, or the name of one, which may be of a file.

        Raises:
            ParameterError: an unknown runtime, an address of one that joins nothing, a limit on
                seals where messages are not sealed one by one, or a budget that cannot be used.
        """
        kind: Callable[..., Runtime] = registered("runtime", asked.runtime)
        if asked.address is not None and asked.runtime != "ray":
            raise ParameterError("address", asked.address, "used with --runtime ray")
        seconds = execution.sealing_seconds
        if seconds != SEALING_SECONDS and asked.security != "onion":
            raise ParameterError("sealing_seconds", seconds, "used with --security onion")
        host = kind() if asked.address is None else kind(asked.address)
        if asked.round_timeout is not None:
            host.round_timeout = positive("round_timeout", asked.round_timeout)
        options = {
            "workers": asked.workers if asked.workers == "auto" else _number(asked.workers),
            "fidelity": asked.fidelity,
            "security": asked.security,
            "seed": asked.seed,
            "checkpoint": asked.checkpoint,
            "resume": asked.resume,
            "budget": report_of(asked, table, file),
        }
        return cls(host, options, execution, asked.yes)

    @property
    def workers(self) -> int:
        """Their number.

        Raises:
            ParameterError: each run would plan another.
        """
        if self.options["workers"] == "auto":
            raise ParameterError("workers", "auto", "a number with --compare")
        return int(self.options["workers"])

    @property
    def summary(self) -> RunSummary:
        """As it is asked for."""
        fidelity, seed, security = (self.options[k] for k in ("fidelity", "seed", "security"))
        return RunSummary(fidelity or "", self.host.name, self.workers, seed, security)

    def ahead(self, protocol: Protocol[Any], rows: Floats | Population) -> Ahead:
        """What a run will cost; its first blocks are rehearsed. Errors are those of `run`."""
        many = 1 if self.options["workers"] == "auto" else self.workers
        security, fidelity = self.options["security"], self.options["fidelity"]
        where, _ = placed(
            self.execution.placement, many, None, security, quick=self.host.quick_together
        )
        seconds, fidelity = seconds_of(
            protocol,
            rows,
            fidelity="literal" if security == "onion" else fidelity,
            workers=many,
            overhead=self.host.overhead,
            placement=where,
            generator=self.execution.generator,
        )
        return Ahead.of(forecast(protocol, security=security), seconds, fidelity, many)

    def having(self, **options: Any) -> "Running":
        """With other options of `run`."""
        return replace(self, options=self.options | options)

    def run(self, algorithm: Any, rows: Any, **hooks: Any) -> Result:
        """Run it; hooks are of `Execution`. Errors are those of `run`."""
        tell = partial(Console(stderr=True).print, "Planned:")
        how = replace(self.execution, on_plan=tell, **hooks)
        return run(algorithm, rows, runtime=self.host, execution=how, **self.options)


def report_of(asked: HostOptions, table: Table | str, file: Path | None) -> Report | None:
    """The report in a budget that a run is charged to, if one is asked for.

    Raises:
        ParameterError: options of a budget without one, no name, or as `Budget`.
    """
    if asked.budget is None:
        given = {"report": asked.report, "population": asked.population}
        refuse_given(given, "given with --budget")
        return None
    if asked.report is None:
        raise ParameterError("report", None, "a name, such as the day's, with --budget")
    name = table if isinstance(table, str) else table.name
    budget = Budget(asked.budget, population=asked.population or name)
    return budget.report(asked.report, content=content_of(table, file))


def content_of(table: Table | str, file: Path | None) -> bytes:
    """What a budget that is bound to data knows of them: all of the file, or the table's rows."""
    if file is None:
        assert not isinstance(table, str)
        return fingerprint((table.rows, table.target))
    # Its bytes, not its table: options that read it otherwise make no new data of it.
    with opened(file) as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _number(workers: str) -> int:
    try:
        return int(parse_number(workers, int))
    except (ValueError, ArithmeticError):
        raise ParameterError("workers", workers, "a number, or auto") from None


class Bar:
    """A progress bar on the standard error, where that is a terminal, while its block runs."""

    def __init__(self, title: str, total: int) -> None:
        """Of so many steps."""
        screen = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[state]}"),
            TimeElapsedColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )
        self._task = self._progress.add_task(title, total=total, state="")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, completed: int, state: str, total: int | None = None) -> None:
        """Show how many steps are done, the state of the work, and of how many if that is new."""
        self._progress.update(self._task, completed=completed, state=state, total=total)
