"""From options to a run: what it will cost, where it takes place, and how it is watched.

`shuffle-sim budget` makes and shows the budgets that runs are charged to.
"""

import hashlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shuffle_sim.arrays import Floats
from shuffle_sim.cli import show
from shuffle_sim.cli.data import load
from shuffle_sim.cli.options import (
    DataOptions,
    HostOptions,
    PrivacyOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.data.files import check_name, opened
from shuffle_sim.data.population import Population
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError, integer, parse_number, positive, refuse_given
from shuffle_sim.execution.budget import Budget, Report
from shuffle_sim.execution.budget_report import BudgetReport
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
_KEEPS = "checkpoint", "resume", "budget"
LONG = 5.0
"""Seconds of a run from which people want to know them before."""


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
            found.append(f"{show.size(self.bytes)} in all (limit {show.size(MAX_BYTES)})")
        if self.seconds > MAX_SECONDS:
            found.append(f"about {self.seconds:,.0f} s (limit {MAX_SECONDS:,.0f})")
        return found

    def __str__(self) -> str:
        seconds = f"{self.seconds:.1g}" if self.seconds < 1 else f"{self.seconds:,.0f}"
        return (
            f"{show.plural(self.rounds, 'round')}, {self.bits_per_user:,} bits a user, "
            f"{show.size(self.bytes)} in all if each message is sent; about {seconds} s "
            f"({self.fidelity}, {show.plural(self.workers, 'worker')})"
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
    where = show.notes if ahead.seconds >= LONG else show.details
    shown = partial(show.print_fact, "Ahead", str(ahead), where=where) if not json else lambda: None
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
    audit: str | None = None

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
        if asked.audit is not None:
            useless = "checkpoint", "budget", "resume", "address", "round_timeout"
            kept = {name: getattr(asked, name) or None for name in useless}
            refuse_given(kept, "left out with --audit: nothing is run")
        options = {
            "workers": asked.workers if asked.workers == "auto" else _number(asked.workers),
            "fidelity": asked.fidelity,
            "security": asked.security,
            "seed": asked.seed,
            "checkpoint": asked.checkpoint,
            "resume": asked.resume,
            "budget": report_of(asked, table, file),
        }
        return cls(host, options, execution, asked.yes, asked.audit)

    @property
    def workers(self) -> int:
        """Their number.

        Raises:
            ParameterError: each run would plan another.
        """
        if self.options["workers"] == "auto":
            raise ParameterError("workers", "auto", "a number with --compare and --audit")
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
        tell = Console(stderr=True, highlight=False).print
        how = replace(self.execution, on_plan=lambda plan: tell(f"Planned: {plan}"), **hooks)
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
        many = int(parse_number(workers, int))
    except (ValueError, ArithmeticError):
        raise ParameterError("workers", workers, "a number, or auto") from None
    return integer("workers", many)


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


def budget_command(
    action: Annotated[str, typer.Argument(help="create or show.", metavar="create|show")],
    path: Annotated[
        Path,
        typer.Argument(
            help="The budget.", metavar="FILE", parser=lambda text: check_name("budget", text)
        ),
    ],
    privacy: PrivacyOptions,
    data: DataOptions,
    output: show.Output,
    population: str | None = same(HostOptions, "population"),
    users: int | None = option(None, "Number of users.", "--n"),
) -> None:
    """Make a budget that runs share, or show what was spent of it, by what, and what is left.

    Example: shuffle-sim budget create year --population customers --n 10M --epsilon 1 --delta 1e-8

    Example: shuffle-sim budget show year

    With a table, all runs must be on the same data:

    Example: shuffle-sim budget create wine.budget --table wine --epsilon 2
    """
    if action == "create":
        name, many, content = population, users, b""
        if (data.table, data.file) != (None, None):
            table = load(data)
            many = len(table.rows) if table.person is None else len(set(table.person))
            name, content = population or table.name, content_of(table, data.file)
            if users not in (None, many):
                raise ParameterError("n", users, f"{many}, as the table has it, or left out")
        if name is None or many is None:
            raise ParameterError("population, n", (name, users), "both given, or a table")
        total = privacy.budget
        budget = Budget.create(path, privacy=total, population=name, users=many, content=content)
    elif action == "show":
        left_out({**vars(data), "population": population, "n": users}, "budget show")
        budget = Budget(path)
    else:
        raise ParameterError("action", action, "create or show")
    output.present(BudgetReport.of(budget), _print_budget)


def _print_budget(summary: BudgetReport) -> None:
    show.console.print(
        f"\n[bold]{summary.budget}[/], of {summary.population}: "
        f"{show.plural(summary.users, 'user')}, epsilon {summary.epsilon:g} at delta "
        f"{summary.delta:g}\n"
    )
    if summary.reports:
        heads = "report", "kinds of releases", "rounds", "epsilon alone"
        rows = (
            (each.report, ", ".join(each.kinds), f"{each.rounds:,}", show.number(each.epsilon))
            for each in summary.reports
        )
        show.print_table(heads, rows, texts=2)
    show.console.print(
        f"\nSpent: epsilon {summary.spent.epsilon:.6g}; left: {summary.left:.6g}. Reports compose: "
        "their epsilons do not simply add up."
    )
    if summary.more is not None:
        show.console.print(
            f"{show.plural(summary.more, 'more report')} like the last one would fit."
        )
