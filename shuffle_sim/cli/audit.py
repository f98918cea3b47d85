"""`shuffle-sim audit`: whether a protocol, or a curator, keeps what it promises."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from protocols.comparison.games import game_of, steepest_game_of
from protocols.comparison.named import named_protocol, usual_size
from protocols.sums.planned import PlannedSum
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import show
from shuffle_sim.cli.counts import CountForm
from shuffle_sim.cli.options import (
    ATTACK,
    Hosting,
    MechanismOptions,
    ModelOptions,
    PrivacyOptions,
    StepOptions,
    SumOptions,
    left_out,
    option,
)
from shuffle_sim.cli.running import Bar
from shuffle_sim.errors import integer, refuse_given
from shuffle_sim.execution.options import Execution

if TYPE_CHECKING:
    from shuffle_sim.auditing.audit import AuditReport
    from shuffle_sim.auditing.central import CentralAudit
    from shuffle_sim.auditing.claims.plan import Check

_NOISE_RATIO = 1.1  # of audits, where none is asked for


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
    own: MechanismOptions,
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
        curator = _curator((mechanism, n, d, budget), of_model | own.given, options)
        output.present(curator, _print_curator)
        _leave(curator.passed, curator.complete or allow_unchecked)
        return
    refuse_given(own.given, "given with --mechanism")
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
    output.present(AuditSummary(report.passed, report, _title(made, n)), _print_audit)
    _leave(report.passed, report.complete or allow_unchecked)


def _title(made: Any, n: int) -> str:
    title = f"[bold]{type(made).__name__}[/] n = {n:,}"
    if isinstance(made, PlannedSum):
        title += f", {show.encoded_as(made.encoding, made.parameters)}"
    return title


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
