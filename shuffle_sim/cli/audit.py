"""`shuffle-sim audit`: whether a protocol, or a curator, keeps what it promises."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from protocols.comparison.games import Game, game_of, steepest_game_of, tables_of
from protocols.comparison.named import named_protocol, usual_size
from protocols.counts.task import CountsTask
from protocols.learning.training import Trainer
from protocols.problems.losses import Linear
from protocols.sums.planned import PlannedSum
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import show
from shuffle_sim.cli.cost import CountForm
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
from shuffle_sim.cli.running import Bar, Running
from shuffle_sim.errors import ParameterError, integer, one_of, refuse_given
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.execution.options import Execution
from shuffle_sim.privacy.guarantee import Privacy

if TYPE_CHECKING:
    from shuffle_sim.auditing.audit import AuditReport
    from shuffle_sim.auditing.central import CentralAudit
    from shuffle_sim.auditing.claims.plan import Check

_NOISE_RATIO = 1.1  # of audits, where none is asked for
_PROFILES = "quick", "thorough"


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
    repeats: int = option(4000, "Samples of every law; at least 1,000."),
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
    options |= {"seed": hosting.seed, "execution": execution, "privacy": budget}
    asked: dict[str, Any] = {"fidelity": hosting.fidelity, "shuffler_shards": shards}
    of_model, of_sum = model.given | steps.given, noise.given | counts.given
    if mechanism is not None:
        sealed = None if hosting.security == "none" else hosting.security
        given = {"protocol": protocol, **of_sum, **asked, "attack": attack, "security": sealed}
        refuse_given(given, "left out with --mechanism: a curator's release")
        named, of_own = (mechanism, n, d, budget), of_model | own.given
        game = game_of(*named, hardest=thorough, **of_own)
        _curated(game, lambda: steepest_game_of(*named, **of_own), output, options, allow_unchecked)
        return
    refuse_given(own.given, "given with --mechanism")
    if protocol is None:
        left_out(of_model | counts.given, "a sum")
        made = noise.encoded(n, d, budget, ratio=_NOISE_RATIO)[1]
    else:
        made = named_protocol(protocol, n, d, budget, **of_sum, **of_model)
        # Of a sum or a count each round is a report, as of a day, in a run of its own.
        whole = hasattr(made, "size") and forecast(made).rounds == 1
        if whole or isinstance(made, CountsTask):
            options["reports"] = steps.rounds or 1
    asked |= {"security": hosting.security, "adversary": attacks(attack or [])}
    _shuffled(made, output, options | asked, allow_unchecked)


def audited(
    how: Running,
    privacy: Privacy,
    output: show.Output,
    made: Any,
    data: Any = None,
    reports: int = 1,
    curated: tuple[Trainer, Callable[[Trainer], Any]] | None = None,
) -> None:
    """With --audit: look at the run that was asked for in place of making it, and end the command.

    Args:
        how: where the run would take place.
        privacy: that was asked for.
        output: how what is found is shown.
        made: what would be run.
        data: on which it would be run: a shuffled protocol's own queries are looked at on them.
        reports: as for `audit`.
        curated: of a curator's algorithm, the trainer, and how it makes one; None: users answer.

    Raises:
        ParameterError: an unknown profile, or options that have no use.
        typer.Exit: wherever an audit is asked for, with the code of `audit`.
    """
    if how.audit is None:
        return
    thorough = one_of("audit", how.audit, _PROFILES) == _PROFILES[1]
    refuse_given({"plot": getattr(output, "plot", None)}, "left out with --audit: nothing is run")
    # By name: an audit ends runs in their midst, and begins others on hosts of their own.
    options: dict[str, Any] = {"runtime": how.host.name, "workers": how.workers}
    options |= {"execution": how.execution, "seed": how.options["seed"]}
    options |= {"privacy": privacy, "thorough": thorough}
    if curated is None:
        options |= {name: how.options[name] for name in ("fidelity", "security")}
        options |= {"data": data, "adversary": how.options.get("adversary"), "reports": reports}
        _shuffled(made, output, options)
    else:
        trainer, make = curated
        tables = partial(tables_of, n=made.users, hardest=thorough)

        def steepest() -> Game | None:
            steep = replace(trainer, loss=Linear())
            try:
                return make(steep), tables(steep)
            except ParameterError:
                return None

        _curated((made, tables(trainer)), steepest, output, options)
    raise typer.Exit


def _shuffled(made: Any, output: show.Output, options: dict[str, Any], allow: bool = False) -> None:
    """Audit a protocol, show what was found, and end if it is not well."""
    from shuffle_sim.auditing.audit import audit

    with Bar("auditing", 1) as bar:
        report = audit(
            made, on_check=lambda name, place, every: bar.step(place, name, every), **options
        )
    output.present(AuditSummary(report.passed, report, _title(made)), _print_audit)
    _leave(report.passed, report.complete or allow)


def _title(made: Any) -> str:
    title = f"[bold]{type(made).__name__}[/] n = {made.users:,}"
    if isinstance(made, PlannedSum):
        title += f", {show.encoded_as(made.encoding, made.parameters)}"
    return title


def _leave(passed: bool, complete: bool) -> None:
    """End with the exit code of what was found."""
    if not (passed and complete):
        raise typer.Exit(3 if passed else 1)


def _curated(
    game: Game,
    steepest: Callable[[], Game | None],
    output: show.Output,
    options: dict[str, Any],
    allow: bool = False,
) -> None:
    """Play the game on tables that are hard to hide, as `_shuffled` audits a protocol."""
    from shuffle_sim.auditing.central import audit_central, check_distances
    from shuffle_sim.auditing.curator.convexity import losses_of

    made, tables = game
    found: dict[str, CentralAudit] = {}
    with Bar("auditing", len(tables) + 1) as bar:
        for place, (name, pair) in enumerate(tables.items()):
            bar.step(place, f"tables {name}")
            found[name] = audit_central(made, *pair, **options)
        bar.step(len(tables), "the linear loss")
        steep = steepest()
        checks = () if steep is None else (check_distances(*steep),)
    verdicts = [x.passed for x in sum((one.checks for one in found.values()), checks)]
    of = type(made).__name__, [str(each) for each in losses_of(made, None)]
    summary = CuratorSummary(False not in verdicts, None not in verdicts, *of, found, checks)
    output.present(summary, _print_curator)
    _leave(summary.passed, summary.complete or allow)


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
    alike: dict[tuple[str, str], list[str]] = {}
    for name, checks in found.items():
        for one in checks:
            alike.setdefault((one.name, _verdict(one)), []).append(name)
    rows = ((check, ", ".join(names), verdict) for (check, verdict), names in alike.items())
    show.print_table(("check", "tables", ""), rows, texts=3)
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
