"""`shuffle-sim audit`: check what is implemented against what is promised."""

from typing import Annotated

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import console, emit
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered


def audit_command(
    users: Annotated[int, typer.Option("--n", help="Users in the round.")] = 1000,
    dimensions: Annotated[
        int, typer.Option("--d", help="Coordinates; 1 audits the scalar sum.")
    ] = 1,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    noise_ratio: o.NoiseRatio = 1.1,
    repeats: Annotated[int, typer.Option(help="Samples of every law.")] = 4000,
    seed: o.Seed = None,
    json: o.Json = False,
) -> None:
    """Run the implemented randomizer and shuffler many times on a worst pair; exit code 1 if
    anything is out of order.

    Example: shuffle-sim audit --n 1000 --d 3 --epsilon 1 --delta 1e-6 --repeats 4000
    """
    from shuffle_sim.auditing.audit import audit

    privacy = Privacy(epsilon, delta)
    if dimensions == 1:
        protocol = registered("protocol", "scalar-sum").calibrate(
            n=users, privacy=privacy, noise_ratio=noise_ratio
        )
    else:
        vector_sum = registered("protocol", "vector-sum")
        protocol = vector_sum.calibrate(
            n=users, d=dimensions, privacy=privacy, noise_ratio=noise_ratio
        )
    with console.status("auditing ..."):
        report = audit(protocol, repeats=repeats, seed=seed)
    if json:
        emit({"passed": report.passed, "report": report})
    else:
        name = type(protocol).__name__
        console.print(
            f"\n[bold]{name}[/] n = {users:,}, g = {protocol.g}, b = {protocol.b}, p = "
            f"{protocol.p:g}\n"
        )
        grid = Grid("check", "", box=None, header_style="bold", pad_edge=False)
        for check in report.checks:
            grid.add_row(check.name, "held" if check.passed else f"[red]FAILED[/] {check.detail}")
        console.print(grid)
        console.print(
            f"\nepsilon at delta {report.delta:g}: theorem {report.theorem:.5f} >= exact "
            f"{report.exact:.5f} (worst pair) >= "
            f"empirical {report.empirical:.4f} (Clopper-Pearson lower bound at confidence 0.9999, "
            f"{10 * report.repeats:,} samples a side)"
        )
        console.print(
            "[bold]passed[/]"
            if report.passed
            else "[bold red]FAILED: do not rely on this implementation[/]"
        )
    if not report.passed:
        raise typer.Exit(1)
