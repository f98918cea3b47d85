"""`shuffle-sim cost`, `amplify` and `budget`: bits and epsilon, without running anything."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from protocols.comparison.named import named_sum
from protocols.learning.training import Trainer
from shuffle_sim.cli import show
from shuffle_sim.cli.data import load
from shuffle_sim.cli.options import (
    HONEST,
    DataOptions,
    OptimiserOptions,
    PrivacyOptions,
    Size,
    SumOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.cli.running import Hosting, HostOptions, content_of
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.budget import Budget
from shuffle_sim.execution.forecast import Forecast, corollary, forecast
from shuffle_sim.execution.options import SEALING_SECONDS
from shuffle_sim.privacy.amplification import Amplification, amplify
from shuffle_sim.privacy.bounds.paper import PrintedCost
from shuffle_sim.privacy.guarantee import Guarantee, weaknesses
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PaperBits:
    """Where the paper states the bits of a user, which without the constant, and that constant."""

    where: str
    bits: float
    constant: float


@dataclass(frozen=True)
class CostSummary:
    """What a protocol will cost.

    `printed` is what it would with the paper's constants, where no run could send that; `refused`
    says why they do not serve the case.
    """

    protocol: str
    n: int
    d: int
    epsilon: float
    delta: float
    security: str
    forecast: Forecast
    wire_bytes: dict[str, int]
    paper: PaperBits | None
    printed: PrintedCost | None
    refused: str
    warnings: tuple[str, ...]


def cost_command(
    users: Size,
    privacy: PrivacyOptions,
    noise: SumOptions,
    output: show.Output,
    rounds: int | None = same(OptimiserOptions, "rounds"),
    batch: int | None = same(OptimiserOptions, "batch"),
    protocol: str | None = option(
        None, "Name of a sum or of an optimiser; default: the sum of the fewest bits."
    ),
    loss: str | None = option(None, "Loss of the model, of an optimiser; default logistic."),
    security: str = same(Hosting, "security"),
) -> None:
    """Show what a protocol costs in communication: per user, per round, and hop by hop.

    Example: shuffle-sim cost --n 10000 --d 10 --noise-ratio 1.05 --security onion

    Example: shuffle-sim cost --n 100000 --d 10 --protocol shuffle-sgd --loss hinge
    """
    n, d, budget = users.users, users.dimensions, privacy.budget
    trainer = Trainer.of(loss or "logistic", d, budget, **vars(noise))
    asked: dict[str, Any] = {"rounds": rounds, "batch": batch}
    made: Any = None
    name, printed, refused = protocol or "", None, ""
    if protocol is None:
        left_out({"loss": loss, **asked}, "a sum")
        name, made = noise.encoded(n, d, budget)
    elif protocol in trainer.optimisers():
        made = trainer.protocol(protocol, n, **asked)
        try:
            printed = made.printed_cost(n=n, d=d, privacy=budget)
        except ParameterError as error:
            refused = str(error)
    else:
        more = {key: each for key, each in {"loss": loss, **asked}.items() if each is not None}
        made = named_sum(protocol, n, d, budget, **noise.given, **more)
    found = forecast(made, security=security)
    paper = None
    if made.paper_cost is not None:
        bits = corollary(found, d, privacy.epsilon, privacy.delta)
        paper = PaperBits(made.paper_cost, bits, found.user_payload_bits / bits)
    wire = {hop.name: hop.wire for hop in found.hops}
    case = name, n, d, privacy.epsilon, privacy.delta, security
    summary = CostSummary(*case, found, wire, paper, printed, refused, budget.warnings(n))
    output.present(summary, _print_cost)


def _print_cost(summary: CostSummary) -> None:
    f, kind = summary.forecast, "sequentially" if summary.forecast.sequential else "fully"
    show.console.print(
        f"\n[bold]{summary.protocol}[/], n = {f.users:,}, d = {summary.d:,}, security "
        f"{summary.security}: {kind} interactive\n{show.plural(f.rounds, 'round')} of at most "
        f"{f.batch:,} users; a user answers in at most {f.participation:,}, "
        f"{f.asked / f.users:.3g} on average\n"
    )
    counted = {
        "messages": f.messages,
        "payload bits (the paper's count)": f.payload_bits,
        "label bits, if sent one by one": f.label_bits,
    }
    rows = [
        (what, f"{round(each, 2):,}", f"{round(each * f.participation, 2):,}")
        for what, each in counted.items()
    ]
    wire = f.user_wire_bytes
    rows.append(("bytes on the wire", f"{wire / f.participation:,.1f}", f"{wire:,.1f}"))
    show.print_table(("a user", "in a round", "over the run"), rows)
    show.print_warnings(summary.warnings)
    show.console.print()
    sizes = [(each.payload, each.framing, each.sealing, each.wire) for each in f.hops]
    hops = [(each.name, *row) for each, row in zip(f.hops, sizes, strict=True)]
    payload, framing, sealing, wire = (sum(each) for each in zip(*sizes, strict=True))
    hops.append(("all hops", payload, framing, sealing, wire))
    heads = "hop, over the run", "payload", "framing", "seals", "on the wire"
    show.print_table(heads, ((name, *map(show.size, sizes)) for name, *sizes in hops))
    if f.seconds:
        show.console.print(
            f"\nSealing and opening takes about {show.number(f.seconds)} s on this machine with "
            "one worker."
        )
    if f.slowest > SEALING_SECONDS:
        show.console.print(
            f"A run refuses a round of more than {SEALING_SECONDS:g} s, unless --sealing-seconds "
            "allows it."
        )
    if summary.paper is not None:
        paper = summary.paper
        factor = "rounds answered x " if f.participation > 1 else ""
        show.details.print(
            f"\n{paper.where} of the paper: O({show.number(paper.bits)}) bits a user, by {factor}"
            "d (sqrt(batch) + ln(1/delta)/epsilon^2).\nThe bits here are "
            f"{paper.constant:.3g} times that."
        )
    if (printed := summary.printed) is not None:
        show.console.print(
            f"\nAs the paper prints it: {show.plural(printed.rounds, 'round')} of "
            f"{printed.messages:,} messages, {printed.bits:.3g} bits a user."
        )
    if summary.refused:
        show.console.print(f"\nAs the paper prints it, it does not serve: {summary.refused}.")


def amplify_command(
    output: show.Drawn,
    epsilon0: float = option(..., "Of one report, pure.", "--epsilon0"),
    users: int = option(..., "Users, each with one message a round.", "--n"),
    delta: float = same(PrivacyOptions, "delta"),
    rounds: int = option(1, "Rounds in which the same users report."),
    sampling: float = option(1.0, "Probability with which a user secretly takes part in a round."),
    symbols: int | None = option(None, "k of k-ary randomised response. Default: any randomiser."),
    honest_fraction: float = HONEST,
) -> None:
    """Say which epsilon the permuted reports of a local randomiser have.

    Example: shuffle-sim amplify --epsilon0 4 --n 100000

    Example: shuffle-sim amplify --epsilon0 10 --n 1000000 --symbols 1000 --plot amplify.png
    """

    def found(each: float) -> Amplification:
        return amplify(
            each,
            users,
            delta,
            rounds=rounds,
            sampling=sampling,
            symbols=symbols,
            honest_fraction=honest_fraction,
        )

    def draw(summary: Amplification) -> "Figure":
        others = (epsilon0 * np.linspace(0.25, 1.25, 9)).clip(max=30.0)
        axes = show.new_axes(7, 4.5)
        curve = [found(float(each)) for each in others]
        shuffled = [each.epsilon for each in curve]
        axes.semilogy(others, others * rounds, color=Trust.LOCAL.colour, label="reports alone")
        axes.semilogy(others, shuffled, "o-", color=Trust.SHUFFLE.colour, label="permuted, proven")
        if summary.least:
            least = [each.least for each in curve]
            axes.semilogy(others, least, ":", color="gray", label="no theorem can prove less")
        axes.semilogy([epsilon0], [summary.epsilon], "k*", ms=13)
        title = f"{users:,} users: ε0 = {epsilon0:g} becomes ε = {show.number(summary.epsilon)}"
        return show.finish(axes, title, "ε0 of one report", f"ε at δ = {delta:g}")

    output.present(found(epsilon0), _print_amplified, draw)


def _print_amplified(summary: Amplification) -> None:
    show.print_fact("Privacy", str(summary), where=show.console)
    basis = f"by {summary.basis}; numbers are outward by {summary.error:g} relative"
    show.print_fact("", basis, where=show.details)
    show.print_warnings(weaknesses(summary.epsilon, summary.delta, summary.users))


@dataclass(frozen=True)
class ReportRow:
    """A report: its rounds, the kinds of releases, and epsilon at the total's delta, alone."""

    report: str
    rounds: int
    kinds: tuple[str, ...]
    epsilon: float


@dataclass(frozen=True)
class BudgetReport:
    """What was spent of a budget, by what, and what is left.

    `more` is how many more reports like the last one fit, if each of its rounds is one release.
    """

    budget: str
    population: str
    users: int
    epsilon: float
    delta: float
    spent: Guarantee
    left: float
    reports: list[ReportRow]
    more: int | None


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
    output.present(_reported(budget), _print_budget)


def _reported(budget: Budget) -> BudgetReport:
    spent, total, made = budget.spent, budget.total, budget.reports
    rows, more = list[ReportRow](), None
    for each in made:
        kinds = dict.fromkeys(type(charge.event).__name__ for charge in each.charges)
        alone = budget.alone(each).epsilon
        rows.append(ReportRow(each.name, len(each.charges), tuple(kinds), alone))
    if made and len(events := {each.event for each in made[-1].charges}) == 1:
        more = budget.more(events.pop(), len(list(made[-1].placed(budget.users))))
    whose = str(budget.path), budget.population, budget.users, total.epsilon, total.delta
    return BudgetReport(*whose, spent, max(0.0, total.epsilon - spent.epsilon), rows, more)


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
