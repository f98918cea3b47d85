"""`shuffle-sim audit`: check what is implemented against what is promised."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import console, grid, present
from shuffle_sim.cli.sums import encoded_sum, shown
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.kinds import Encoded

if TYPE_CHECKING:
    from shuffle_sim.auditing.audit import AuditReport


@dataclass(frozen=True)
class Summary:
    """What was found, and of what."""

    passed: bool
    report: "AuditReport"
    title: str = field(repr=False)


def audit_command(
    users: o.Users = 1000,
    dimensions: o.Dimensions = 1,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    noise_ratio: o.NoiseRatio = 1.1,
    encoding: o.Encoding = None,
    repeats: Annotated[int, typer.Option(help="Samples of every law.")] = 4000,
    seed: o.Seed = None,
    json: o.Json = False,
) -> None:
    """Check the implemented randomizer and shuffler on a worst pair of data, many times.

    The exit code is 1 if a check fails.

    Example: shuffle-sim audit --n 1000 --d 3 --epsilon 1 --delta 1e-6 --repeats 4000
    """
    from shuffle_sim.auditing.audit import audit

    size, privacy = (users, dimensions), Privacy(epsilon, delta)
    _, protocol = encoded_sum(*size, privacy, encoding=encoding, noise_ratio=noise_ratio)
    assert isinstance(protocol, Encoded)
    with console.status("auditing ..."):
        report = audit(protocol, repeats=repeats, seed=seed)
    title = (
        f"[bold]{type(protocol).__name__}[/] n = {users:,}, "
        f"{shown(protocol.encoding, protocol.parameters)}"
    )
    present(Summary(report.passed, report, title), _print, json=json)
    if not report.passed:
        raise typer.Exit(1)


def _print(summary: Summary) -> None:
    report = summary.report
    console.print(f"\n{summary.title}\n")
    checks = grid("check", "", texts=2)
    for check in report.checks:
        checks.add_row(check.name, "held" if check.passed else f"[red]FAILED[/] {check.detail}")
    console.print(checks)
    console.print(
        f"\nepsilon at delta {report.delta:g}: theorem {report.theorem:.5f} >= exact "
        f"{report.exact:.5f} (worst pair) >= empirical {report.empirical:.4f}\nThe empirical value "
        f"is a Clopper-Pearson lower bound at confidence 0.9999 from {10 * report.repeats:,} "
        "samples a side."
    )
    failed = "[bold red]FAILED: do not rely on this implementation[/]"
    console.print("[bold]passed[/]" if summary.passed else failed)
