"""`shuffle-sim cost` and `audit`: what a protocol sends, and whether it keeps what it promises."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from protocols.comparison.games import game_of, steepest_game_of
from protocols.comparison.named import named_protocol, usual_size
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.planned import PlannedSum
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import show
from shuffle_sim.cli.counts import CountForm
from shuffle_sim.cli.options import (
    ATTACK,
    Hosting,
    ModelOptions,
    PrivacyOptions,
    Size,
    StepOptions,
    SumOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.cli.running import Bar
from shuffle_sim.errors import ParameterError, integer, refuse_given
from shuffle_sim.execution.forecast import Forecast, PaperBits, forecast
from shuffle_sim.execution.options import SEALING_SECONDS, Execution
from shuffle_sim.privacy.bounds.paper import PrintedCost

if TYPE_CHECKING:
    from shuffle_sim.auditing.audit import AuditReport
    from shuffle_sim.auditing.central import CentralAudit
    from shuffle_sim.auditing.claims.plan import Check

_NOISE_RATIO = 1.1  # of audits, where none is asked for


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
    model: ModelOptions,
    steps: StepOptions,
    counts: CountForm,
    protocol: str | None = option(
        None, "Name of a sum or of an optimiser; default: the sum of the fewest bits."
    ),
    security: str = same(Hosting, "security"),
) -> None:
    """Show what a protocol costs in communication: per user, per round, and hop by hop.

    Example: shuffle-sim cost --n 10000 --d 10 --noise-ratio 1.05 --security onion

    Example: shuffle-sim cost --n 100000 --d 10 --protocol shuffle-sgd --loss hinge
    """
    n, d, budget = users.users, users.dimensions, privacy.budget
    asked, printed, refused = model.given | steps.given | counts.given, None, ""
    if protocol is None:
        left_out(asked, "a sum")
        name, made = noise.encoded(n, d, budget)
    else:
        name, made = protocol, named_protocol(protocol, n, d, budget, **noise.given, **asked)
        if isinstance(made, FirstOrder):
            try:
                printed = made.printed_cost(n=n, d=d, privacy=budget)
            except ParameterError as error:
                refused = str(error)
    found = forecast(made, security=security)
    paper = PaperBits.of(made, found, d, budget)
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
    hops = [(each.name, *map(show.size, row)) for each, row in zip(f.hops, sizes, strict=True)]
    hops.append(("all hops", *(show.size(sum(each)) for each in zip(*sizes, strict=True))))
    show.print_table(("hop, over the run", "payload", "framing", "seals", "on the wire"), hops)
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
        rounds = show.plural(printed.rounds, "round")
        sent = f"{rounds} of {printed.messages:,} messages, {printed.bits:.3g} bits a user"
        show.console.print(f"\nAs the paper prints it: {sent}.")
    if summary.refused:
        show.console.print(f"\nAs the paper prints it, it does not serve: {summary.refused}.")


@dataclass(frozen=True)
class AuditSummary:
    """What was found, and of what."""

    passed: bool
    report: "AuditReport"
    title: str = field(repr=False)


@dataclass(frozen=True)
class CuratorSummary:
    """What was found for each pair of tables, beside all of them, and of what."""

    passed: bool
    complete: bool
    mechanism: str
    losses: list[str]
    audits: "Mapping[str, CentralAudit]"
    checks: "tuple[Check, ...]"


def audit_command(
    privacy: PrivacyOptions,
    noise: SumOptions,
    model: ModelOptions,
    steps: StepOptions,
    counts: CountForm,
    output: show.Output,
    execution: Execution,
    hosting: Hosting,
    users: int = option(1000, "Number of users.", "--n"),
    dimensions: int | None = option(
        None, "Coordinates or cells. Default 1; 2 with --mechanism; 4 cells of counts.", "--d"
    ),
    protocol: str | None = option(
        None, "A registered sum or optimiser; by default the sum of --encoding."
    ),
    mechanism: str | None = option(
        None, "A trusted curator's algorithm, as of train: output, objective ..."
    ),
    repeats: int = option(4000, "Samples of every law."),
    thorough: bool = option(
        False,
        "Some minutes of samples in place of half of one; of a mechanism, harder tables.",
        "--thorough",
    ),
    allow_unchecked: bool = option(
        False, "Checks that cannot be made are no failure.", "--allow-unchecked"
    ),
    workers: int = option(1, "Of the run that is audited."),
    shards: int | None = option(None, "Of the run that is audited.", "--shuffler-shards"),
    attack: list[str] | None = ATTACK,
) -> None:
    """Check the implementation: what users send, what a shuffler shows, and the run asked for.

    With --mechanism: play the membership game on two tables, and look at all releases of runs.

    The exit code is 1 if a check fails, and 3 if one could not be made, unless --allow-unchecked.

    Example: shuffle-sim audit --n 1000 --d 3 --runtime processes --workers 2 --verbose

    Example: shuffle-sim audit --protocol shuffle-sgd --n 300 --d 3 --loss huber --rounds 5
    """
    # Of one parameter there are fewer tables that are hard to hide.
    n, budget = users, privacy.budget
    d = (2 if mechanism else usual_size(protocol)) if dimensions is None else dimensions
    where = {"runtime": hosting.runtime, "workers": integer("workers", workers)}
    options: dict[str, Any] = where | {"repeats": repeats, "thorough": thorough}
    options |= {"seed": hosting.seed, "execution": execution}
    asked: dict[str, Any] = {"fidelity": hosting.fidelity, "shuffler_shards": shards}
    of_model, of_sum = model.given | steps.given, noise.given | counts.given
    if mechanism is not None:
        sealed = None if hosting.security == "none" else hosting.security
        given = {"protocol": protocol, **of_sum, **asked, "attack": attack, "security": sealed}
        refuse_given(given, "left out with --mechanism: a curator's release")
        curator = _curator((mechanism, n, d, budget), of_model, options)
        output.present(curator, _print_curator)
        _leave(curator.passed, curator.complete or allow_unchecked)
        return
    from shuffle_sim.auditing.audit import audit

    if protocol is None:
        left_out(of_model | counts.given, "a sum")
        made = noise.encoded(n, d, budget, ratio=_NOISE_RATIO)[1]
    else:
        made = named_protocol(protocol, n, d, budget, **of_sum, **of_model)
    with Bar("auditing", 1) as bar:
        report = audit(
            made,
            privacy=budget,
            security=hosting.security,
            on_check=lambda name, place, every: bar.step(place, name, every),
            adversary=attacks(attack or []),
            **options,
            **asked,
        )
    title = f"[bold]{type(made).__name__}[/] n = {n:,}"
    if isinstance(made, PlannedSum):
        title += f", {show.encoded_as(made.encoding, made.parameters)}"
    output.present(AuditSummary(report.passed, report, title), _print_audit)
    _leave(report.passed, report.complete or allow_unchecked)


def _leave(passed: bool, complete: bool) -> None:
    """End with the exit code of what was found."""
    if not (passed and complete):
        raise typer.Exit(3 if passed else 1)


def _curator(
    asked: tuple[Any, ...], own: dict[str, Any], options: dict[str, Any]
) -> CuratorSummary:
    """The game on tables that are hard to hide."""
    from shuffle_sim.auditing.central import audit_central, check_distances
    from shuffle_sim.auditing.curator.convexity import losses_of

    made, tables = game_of(*asked, hardest=options["thorough"], **own)
    found: dict[str, CentralAudit] = {}
    with Bar("auditing", len(tables) + 1) as bar:
        for place, (name, pair) in enumerate(tables.items()):
            bar.step(place, f"tables {name}")
            found[name] = audit_central(made, *pair, privacy=asked[-1], **options)
        bar.step(len(tables), "the linear loss")
        steep = steepest_game_of(*asked, **own)
        checks = () if steep is None else (check_distances(*steep),)
    verdicts = [x.passed for x in sum((one.checks for one in found.values()), checks)]
    of = type(made).__name__, [str(each) for each in losses_of(made, None)]
    return CuratorSummary(False not in verdicts, None not in verdicts, *of, found, checks)


def _print_curator(summary: CuratorSummary) -> None:
    of = ", ".join([f"[bold]{summary.mechanism}[/] by a trusted curator", *summary.losses])
    show.console.print(f"\n{of}\n")
    games = (
        (name, f"{each.claimed:.4f}", f"{each.delta:g}", f"{each.empirical:.4f}")
        for name, each in summary.audits.items()
    )
    show.print_table(("tables", "claimed epsilon", "at delta", "empirical epsilon"), games)
    found = {name: each.checks for name, each in summary.audits.items()} | {
        "hardest": summary.checks
    }
    rows = ((name, one.name, _verdict(one)) for name, checks in found.items() for one in checks)
    show.print_table(("tables", "check", ""), rows, texts=3)
    show.console.print(
        "\nThe empirical value is a lower bound at confidence 0.9999, by the membership game on "
        "two tables that differ in one row, or person. It is no proof: a better attacker may "
        "find more. Where the law of all noise is known, it takes noise for what is charged: a "
        "check of its own holds it to that."
    )
    _print_verdict(summary.passed, summary.complete)


def _verdict(check: "Check") -> str:
    verdict = {True: "held", None: "not checked:", False: "[red]FAILED[/]"}[check.passed]
    return f"{verdict} {check.detail}".strip()


def _print_audit(summary: AuditSummary) -> None:
    report = summary.report
    show.console.print(f"\n{summary.title}\n")
    planned = (
        (each.name, each.looks_at, each.samples or f"none: {each.missing}", each.power)
        for each in report.plan
    )
    show.print_table(
        ("check", "looks at", "samples", "must catch"), planned, texts=4, where=show.details
    )
    checks = ((each.name, _verdict(each)) for each in report.checks)
    show.print_table(("check", ""), checks, texts=2)
    bounds, exact = f"theorem {report.theorem:.5f}", f"exact {report.exact:.5f} (worst found)"
    short = report.exact < report.empirical  # the run has more rounds, or its canary moves in more
    bounds += "" if short or math.isnan(report.exact) else f" >= {exact}"
    how = "No lower bound was measured."
    if not math.isnan(report.empirical):
        bounds += f" >= empirical {report.empirical:.4f}"
        bounds += f"; of one round and coordinate {exact}" if short else ""
        how = (
            "The empirical value is a lower bound at confidence 0.9999 from canaries in whole "
            "runs: a Gaussian estimate where noise is nearly Gaussian, exact odds where they are "
            "known, else counts (Clopper-Pearson)."
        )
    show.console.print(
        f"\nepsilon at delta {report.delta:g}: {bounds}\n{how} {report.users:,} users were looked "
        "at one by one. A false alarm of the whole audit has probability 1e-6 at most."
    )
    if not report.checked:
        show.console.print("[bold red]NOT CHECKED: nothing of the noise that users add[/]")
        return
    _print_verdict(summary.passed, report.complete)


def _print_verdict(passed: bool, complete: bool) -> None:
    held = "[bold]passed[/]" + ("" if complete else ", as far as it could be checked: exit code 3")
    failed = "[bold red]FAILED: do not rely on this implementation[/]"
    show.console.print(held if passed else failed)
