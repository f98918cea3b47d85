"""`shuffle-sim audit`: check what is implemented against what is promised."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocols.learning.training import Trainer
from protocols.sums.planned import PlannedSum
from shuffle_sim.cli.options import Output, PrivacyOptions, Seed, Size, SumOptions
from shuffle_sim.cli.show import console, encoded_as, present, print_table
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered

if TYPE_CHECKING:
    from shuffle_sim.auditing.audit import AuditReport, Check
    from shuffle_sim.auditing.central import CentralAudit


_NOISE_RATIO = 1.1


@dataclass(frozen=True)
class Summary:
    """What was found, and of what."""

    passed: bool
    report: "AuditReport"
    title: str = field(repr=False)


@dataclass(frozen=True)
class CuratorSummary:
    """What the membership game found for each pair of tables, and of what."""

    passed: bool
    mechanism: str
    audits: "Mapping[str, CentralAudit]"


def audit_command(
    privacy: PrivacyOptions,
    noise: SumOptions,
    output: Output,
    users: Size = Size(users=1000),
    protocol: Annotated[
        str | None,
        typer.Option(help="A registered sum or optimiser; by default the sum of --encoding."),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="A trusted curator's algorithm, as of train: output, objective ..."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Samples of every law.")] = 4000,
    seed: Seed = None,
) -> None:
    """Check the implemented randomizer and shuffler on a worst pair of data, many times.

    With --mechanism: play the membership game on what a curator releases of two tables.

    The exit code is 1 if a check fails.

    Example: shuffle-sim audit --n 1000 --d 3 --epsilon 1 --delta 1e-6 --repeats 4000
    """
    n, d, budget = users.users, users.dimensions, privacy.budget
    if mechanism is not None:
        _no_messages(protocol=protocol, **noise.given)
        curator = _curator(mechanism, n, d, budget, repeats, seed)
        present(curator, _print_curator, json=output.json)
        if not curator.passed:
            raise typer.Exit(1)
        return
    from shuffle_sim.auditing.audit import audit

    made = _made(protocol, n, d, budget, noise)
    with console.status("auditing ..."):
        report = audit(made, repeats=repeats, seed=seed)
    title = f"[bold]{type(made).__name__}[/] n = {n:,}"
    if isinstance(made, PlannedSum):
        title += f", {encoded_as(made.encoding, made.parameters)}"
    present(Summary(report.passed, report, title), _print, json=output.json)
    if not report.passed:
        raise typer.Exit(1)


def _no_messages(**given: object) -> None:
    """Refuse what a curator does not have."""
    for name, value in given.items():
        if value is not None:
            raise ParameterError(name, value, "left out with --mechanism: a curator's release")


def _curator(
    mechanism: str, n: int, d: int, privacy: Privacy, repeats: int, seed: int | None
) -> CuratorSummary:
    """The game on the trainer's hard tables."""
    from shuffle_sim.auditing.central import audit_central

    trainer = Trainer.of("logistic", d, privacy)
    made, found = trainer.central(mechanism, n), {}
    with console.status("auditing ..."):
        for name, (first, second) in trainer.neighbours(n).items():
            found[name] = audit_central(made, first, second, repeats=repeats, seed=seed)
    passed = all(each.passed for each in found.values())
    return CuratorSummary(passed, type(made).__name__, found)


def _print_curator(summary: CuratorSummary) -> None:
    console.print(f"\n[bold]{summary.mechanism}[/] by a trusted curator\n")
    games = (
        (name, f"{each.claimed:.4f}", f"{each.delta:g}", f"{each.empirical:.4f}")
        for name, each in summary.audits.items()
    )
    print_table(("tables", "claimed epsilon", "at delta", "empirical epsilon"), games)
    checks = (
        (name, check.name, _verdict(check))
        for name, each in summary.audits.items()
        for check in each.checks
    )
    print_table(("tables", "check", ""), checks, texts=3)
    console.print(
        "\nThe empirical value is a lower bound at confidence 0.9999, by the membership game on "
        "two tables that differ in one row. It is no proof: a better attacker may find more."
    )
    _print_verdict(summary.passed)


def _made(name: str | None, n: int, d: int, privacy: Privacy, noise: SumOptions) -> Any:
    """The registered sum, or optimiser of a logistic model."""
    if name is None:
        free = noise.noise_ratio is None and noise.max_bits is None
        noise = replace(noise, noise_ratio=_NOISE_RATIO) if free else noise
        return noise.encoded(n, d, privacy)[1]
    if noise.encoding is not None:
        raise ParameterError("encoding", noise.encoding, "left out with --protocol")
    kind = registered("protocol", name)
    if hasattr(kind, "calibrate"):
        return noise.calibrated(name, n, d, privacy)
    records = 1 if getattr(kind, "unit", None) is Unit.PERSON else None
    trainer = Trainer.of("logistic", d, privacy, records=records, **vars(noise))
    return trainer.protocol(name, n)


def _verdict(check: "Check") -> str:
    verdict = {True: "held", None: "not checked:", False: "[red]FAILED[/]"}[check.passed]
    return f"{verdict} {check.detail}".strip()


def _print(summary: Summary) -> None:
    report = summary.report
    console.print(f"\n{summary.title}\n")
    print_table(("check", ""), ((each.name, _verdict(each)) for each in report.checks), texts=2)
    console.print(
        f"\nepsilon at delta {report.delta:g}: theorem {report.theorem:.5f} >= exact "
        f"{report.exact:.5f} (worst found) >= empirical {report.empirical:.4f}\nThe empirical "
        "value is a lower bound at confidence 0.9999 from canaries in whole runs: a Gaussian "
        f"estimate where noise is nearly Gaussian, else Clopper-Pearson. {report.users:,} users "
        "were looked at one by one."
    )
    if not report.checked:
        console.print("[bold red]NOT CHECKED: nothing of the noise that users add[/]")
        return
    _print_verdict(summary.passed, "" if report.complete else ", as far as it could be checked")


def _print_verdict(passed: bool, but: str = "") -> None:
    failed = "[bold red]FAILED: do not rely on this implementation[/]"
    console.print(f"[bold]passed[/]{but}" if passed else failed)
