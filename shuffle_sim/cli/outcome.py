"""How guarantees, costs, reports and refusals are printed."""

from collections.abc import Iterable, Mapping

from protocols.comparison.methods import Method
from shuffle_sim.cli.show import console, size
from shuffle_sim.data.columns import Bounds
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.result import ReportCounts
from shuffle_sim.privacy.guarantee import Guarantee


def print_fact(name: str, *lines: str) -> None:
    """Lines that start at one column, the first behind the name in bold."""
    for index, line in enumerate(lines):
        head = f"[bold]{name}[/]" + " " * (9 - len(name)) if index == 0 else " " * 9
        console.print(head + line)


def print_privacy(guarantee: Guarantee, warnings: Iterable[str] = ()) -> None:
    """A guarantee, its assumptions, and where it promises little."""
    notes = (f"assuming: {note}" for note in guarantee.assumptions)
    print_fact("Privacy", str(guarantee), *notes)
    print_warnings(warnings)


def print_warnings(warnings: Iterable[str]) -> None:
    """Where a guarantee promises little."""
    for text in warnings:
        print_fact("", f"[bold]warning[/]: {text}")


def print_bounds(chosen: Mapping[str, Bounds]) -> None:
    """Bounds that the run chose; epsilon covers the choice."""
    if chosen:
        each = (f"{name}: {low:g} to {high:g}" for name, (low, high) in chosen.items())
        print_fact("Bounds", "chosen by a private histogram, which epsilon covers", *each)


def print_costs(bits: int, made_of: str, costs: Costs, reports: ReportCounts) -> None:
    """What a user sent, and all together."""
    print_fact(
        "Cost",
        f"{bits:,} bits per user ({made_of}); on the wire {costs.wire_bytes / reports.asked:.1f} "
        f"bytes per report, {size(costs.wire_bytes)} in all "
        f"({'measured' if costs.measured else 'by formula'})",
    )


def print_reports(reports: ReportCounts, clipped: str) -> None:
    """What became of the reports, what was clipped, and how many users attacked."""
    extra = f" + {reports.extra:,} extra" if reports.extra else ""
    print_fact(
        "Reports",
        f"{reports.asked:,} asked{extra} = {reports.accepted:,} accepted + "
        f"{sum(reports.dropped.values()):,} dropped + {reports.missing:,} missing; {clipped} were "
        "clipped",
    )
    if reports.corrupted:
        reasons = ", ".join(f"{count} {reason}" for reason, count in reports.dropped.items())
        dropped = f"; dropped: {reasons}" if reasons else ""
        print_fact("Attack", f"{reports.corrupted:,} users corrupted{dropped}")


def print_refusals(methods: Iterable[Method]) -> None:
    """Why some methods of a comparison cannot be had."""
    for method in methods:
        if method.refused:
            console.print(f"{method.title}: refused: {method.refused}")
