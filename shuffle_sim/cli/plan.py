"""`shuffle-sim plan` and `amplify`: parameters and epsilon ahead, without running anything."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from protocols.comparison.methods import Method
from protocols.comparison.plans import PlanRow, planned_methods, searched
from shuffle_sim.cli import show
from shuffle_sim.cli.compare import TaskOptions, papers, present_task, print_refusals
from shuffle_sim.cli.cost import OBJECTIVE
from shuffle_sim.cli.options import (
    BOUNDS,
    HONEST,
    ROUNDS,
    HostOptions,
    PersonsOptions,
    PrivacyOptions,
    SumOptions,
    option,
    same,
)
from shuffle_sim.data.drawn_records import one_record_each
from shuffle_sim.data.file_columns import column_in, columns_of
from shuffle_sim.data.population import Unit
from shuffle_sim.data.schema import Layout
from shuffle_sim.errors import ParameterError, parse_number, real
from shuffle_sim.execution.budget import Budget
from shuffle_sim.execution.people_plan import DROPPED, MALICIOUS, Horizon, PeoplePlan
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.amplification import Amplification, amplify
from shuffle_sim.privacy.guarantee import weaknesses
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlanReport:
    """The plan, the trade-off around it, and other methods of the same privacy."""

    spec: SumSpec
    plan: PlanRow
    best_central: str
    curve: list[PlanRow]
    methods: list[Method]
    basis: str
    unit: Unit
    warnings: tuple[str, ...]
    people: PeoplePlan | None = None
    horizon: Horizon | None = None


def plan_command(
    persons: PersonsOptions,
    privacy: PrivacyOptions,
    noise: SumOptions,
    output: show.Drawn,
    asked: TaskOptions,
    users: int | None = option(None, "Number of users.", "--n"),
    dimensions: int = option(1, "Coordinates: 1 for a scalar sum, more for a vector sum.", "--d"),
    rounds: int = ROUNDS,
    bounds: list[str] | None = option(None, BOUNDS),
    unit: str = option("", "With --bounds: unit of the data, such as ms."),
    per: str | None = option(
        None, "What a round is, such as a day: what one costs, and what is left."
    ),
    budget: Path | None = same(HostOptions, "budget"),
    objective: str | None = option(None, OBJECTIVE),
) -> None:
    """Choose parameters: the fewest bits at a noise ratio, or the least noise in a bit budget.

    It also shows the trade-off between bits and noise.

    Example: shuffle-sim plan --n 10000 --d 10 --epsilon 1 --delta 1e-6 --noise-ratio 1.05

    Example: shuffle-sim plan --n 1000000 --d 100 --rounds 50 --max-bits 64 --plot plan.png

    In units of the data; with --per what one round costs, and how many a --budget has left:

    Example: shuffle-sim plan --n 10M --bounds 0:2000 --unit ms --rounds 365 --per day --delta 1e-8

    With --file and --person, users are the persons in the file:

    Example: shuffle-sim plan --file visits.csv --person patient --d 3

    Counts of other kinds than sums:

    Example: shuffle-sim plan --task quantiles --domain 1024 --n 100k --rounds 52
    """
    file, person = persons.file, persons.person
    whose = Unit.RECORD if person is None else Unit.PERSON
    if asked.counts:
        asked.alone(bounds=bounds, per=per, budget=budget, unit=unit, d=dimensions)
        n = _users(users, file, person)
        present_task(asked, n, privacy, output, noise=noise, objective=objective, rounds=rounds)
        return
    if unit and bounds is None:
        raise ParameterError("unit", unit, "given with --bounds")
    if budget is not None and per is None:
        raise ParameterError("budget", str(budget), "given with --per")
    ends = None if bounds is None else _ends(bounds)
    shared = None if budget is None else Budget(budget)
    spec = SumSpec(
        _users(users, file, person),
        dimensions,
        privacy.budget,
        rounds,
        noise.honest_fraction,
        noise.rotation,
    )
    wish = noise.noise_ratio, noise.max_bits, noise.encoding, objective or "bits"
    with show.console.status("planning ..."):
        name, chosen, curve = searched(spec, *wish)
        summary = PlanReport(
            spec,
            PlanRow.of(name, chosen),
            spec.best_central[1],
            curve,
            planned_methods(chosen),
            ShuffleAccountant().compose(chosen.event, spec.rounds).basis,
            whose,
            spec.privacy.warnings(spec.n),
            None if ends is None else PeoplePlan.of(name, chosen, *ends, unit),
            None if per is None else Horizon.of(chosen, per, shared),
        )
    output.present(summary, _print, _draw)


def _ends(texts: list[str]) -> tuple[float, float]:
    """Public bounds of every column as low:high, given once.

    Raises:
        ParameterError: other text, or bounds of no range.
    """
    text = ", ".join(texts)
    try:
        low, high = (parse_number(each, float) for each in text.split(":"))
    except ValueError as error:
        raise ParameterError("bounds", text, "low:high, as in --bounds 0:2000") from error
    real("bounds", low, -1e300, 1e300)
    if not low < high <= 1e300:
        raise ParameterError("bounds", text, "low:high, low below high, as in --bounds 0:2000")
    return low, high


def _users(users: int | None, file: Path | None, person: str | None) -> int:
    """As given, or as many as the file names.

    Raises:
        ParameterError: neither or both are given, or the file has no such column.
    """
    if (users is None) == (file is None) or (file is None) != (person is None):
        given = users, file and str(file), person
        raise ParameterError("n, file, person", given, "--n alone, or --file with --person")
    if file is None or person is None:
        return users or 0
    names = column_in(columns_of(file, Layout()), person, file, "person")
    return len(one_record_each(names, f"column {person}"))


def _print(summary: PlanReport) -> None:
    spec, chosen = summary.spec, summary.plan
    whose = " of all records of one person" * (summary.unit is Unit.PERSON)
    kind = "scalar sum" if spec.d == 1 else f"vector sum, d = {spec.d:,}"
    show.console.print(
        f"[bold]{kind}[/], n = {spec.n:,}, epsilon {spec.privacy.epsilon:g}, delta "
        f"{spec.privacy.delta:g}, {show.plural(spec.rounds, 'round')}, honest fraction "
        f"{spec.honest_fraction:g}\n[bold]plan[/]: "
        f"{show.encoded_as(chosen.encoding, chosen.parameters)}: "
        f"{show.number(chosen.bits_per_user_and_coordinate)} bits per user and coordinate, noise "
        f"{chosen.noise_ratio:.4f} x central ({chosen.best_ratio:.4f} x the best central noise, "
        f"{summary.best_central}), proven epsilon {chosen.epsilon:.6g}{whose}\n"
        f"{_moves(spec, chosen)}\n"
    )
    show.details.print(f"by {summary.basis}; replace-one neighbours\n")
    show.print_warnings(summary.warnings)
    told = [] if summary.people is None else list(_people(summary.people))
    if summary.horizon is not None:
        told += _rounds(summary.horizon, spec.privacy.epsilon)
    show.console.print("\n".join([*told, ""]) if told else "", end="\n" if told else "")
    reach, std = (1, "std (ranges)") if spec.d == 1 else (2, "std (norm bounds)")
    curve = []
    for row in summary.curve:
        parameters = " ".join(
            f"{name}={show.number(each)}" for name, each in row.parameters.items()
        )
        bits, moved = row.bits_per_user_and_coordinate, show.number(row.malicious_user_moves)
        cells = show.number(bits), f"{row.noise_ratio:.4f}", show.number(reach * row.std), moved
        curve.append((row.encoding, parameters, *cells, f"{row.epsilon:.5f}"))
    columns = "encoding", "parameters", "bits", "noise / central", std, "attacker", "epsilon"
    show.print_table(columns, curve, texts=2, where=show.notes)
    show.notes.print()
    others = []
    for each in (method for method in summary.methods if not method.paper):
        numbers = ["-"] * 3
        if not each.refused:
            ratio = show.number(each.error / spec.central)
            numbers = [show.number(reach * each.error), ratio, f"{each.bits:,}"]
        others.append((each.name, each.setting, each.trust.trusted, *numbers))
    heads = "compared with", "setting", "trusted", std, "noise / central", "bits"
    show.print_table(heads, others, texts=3, where=show.notes)
    print_refusals(summary.methods)
    show.print_fact("Paper", *papers(summary.methods), where=show.details)


def _people(found: PeoplePlan) -> Iterator[str]:
    """What a plan means in units of the data."""
    unit = f" {found.unit}" if found.unit else ""
    rounds = f", in each of {found.rounds:,} rounds" if found.rounds > 1 else ""
    yield (
        f"Mean of {_count(found.users)} within {show.number(found.error)}{unit} (95 %){rounds}: "
        f"{found.error / found.range:.2g} of the range."
    )
    yield (
        f"{found.messages:,.0f} messages a person, {found.user_bytes / 1000:,.2f} kB; "
        f"{show.size(found.bytes)} in all."
    )
    yield f"If {DROPPED:.0%} drop out: " + (
        "nothing is released, as --honest-fraction asks for more."
        if found.dropouts_epsilon is None
        else f"epsilon {found.dropouts_epsilon:.4g} instead of {found.epsilon:.4g}, and within "
        f"{show.number(found.dropouts_error)}{unit}."
    )
    share = found.moved / found.range
    yield (
        f"If {MALICIOUS:.0%} are malicious: they can move the mean by "
        f"{show.number(found.moved)}{unit}: "
        + ("the whole range or more." if share >= 1 else f"{share:.1%} of the range.")
    )


def _rounds(found: Horizon, total: float) -> Iterator[str]:
    """What rounds cost."""
    yield f"One {found.word} costs epsilon {found.alone:.4g} of {total:g}."
    for many, spent, left in found.after:
        yield f"After {many:,}: spent {spent:.4g}, left {left:.4g}."
    if found.fit is not None:
        yield f"{found.fit:,} of them fit in what the budget has left."


def _count(people: int) -> str:
    """A number of people in words."""
    for power, word in ((9, "billion"), (6, "million")):
        if people >= 10**power:
            return f"{people / 10**power:.4g} {word} people"
    return f"{people:,} people"


def _moves(spec: SumSpec, chosen: PlanRow) -> str:
    """What a malicious user can do, and what clipping does."""
    unit = "ranges" if spec.d == 1 else "norm bounds (l2)"
    moved = show.number(chosen.malicious_user_moves)
    said = f"one malicious user moves the sum by up to {moved} {unit}"
    bias = chosen.error_ratio > chosen.noise_ratio
    clipped = f"; with the bias of clipping the error is at most {chosen.error_ratio:.4f} x central"
    return said + clipped * bias


def _draw(summary: PlanReport) -> "Figure":
    spec, chosen = summary.spec, summary.plan
    axes = show.new_axes(7, 4.5)
    rows = (*summary.curve, chosen)
    curve = sorted({(row.bits_per_user_and_coordinate, row.noise_ratio) for row in rows})
    axes.plot(*zip(*curve, strict=True), "o-", color=Trust.SHUFFLE.colour, label="this simulator")
    axes.plot(
        [chosen.bits_per_user_and_coordinate],
        [chosen.noise_ratio],
        "k*",
        ms=13,
        label=f"the plan: {show.number(chosen.bits_per_user_and_coordinate)} bits",
    )
    axes.axhline(1.0, color=Trust.CENTRAL.colour, ls="--", lw=1, label="central Gaussian")
    if curve[-1][0] > 8 * curve[0][0]:  # else one point would flatten the others
        axes.set_xscale("log")
    bits_of = show.number(chosen.bits_per_user_and_coordinate)
    local = f"local Gaussian: {show.number(Trust.LOCAL.noise(spec.n))} x the central noise"
    return show.finish(
        axes,
        f"{bits_of} bits a coordinate for {chosen.noise_ratio:.3f} x the central noise\n"
        f"{spec.n:,} users, d = {spec.d:,}, {show.budget(spec.privacy)}, "
        f"{show.plural(spec.rounds, 'round')}",
        "bits per user, coordinate and round",
        "noise / central Gaussian",
        notes=(f"Beyond the axes: {text}." for text in (local, *papers(summary.methods))),
    )


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
            label = "no theorem can prove less" + ", of one round" * (rounds > 1)
            axes.semilogy(others, least, ":", color="gray", label=label)
        axes.semilogy([epsilon0], [summary.epsilon], "k*", ms=13)
        title = f"{users:,} users: ε0 = {epsilon0:g} becomes ε = {show.number(summary.epsilon)}"
        return show.finish(axes, title, "ε0 of one report", f"ε at δ = {delta:g}")

    output.present(found(epsilon0), _print_amplified, draw)


def _print_amplified(summary: Amplification) -> None:
    show.print_fact("Privacy", str(summary), where=show.console)
    basis = f"by {summary.basis}; numbers are outward by {summary.error:g} relative"
    show.print_fact("", basis, where=show.details)
    show.print_warnings(weaknesses(summary.epsilon, summary.delta, summary.users))
