"""`shuffle-sim plan`: what a private sum would need, without running anything."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocols.comparison.methods import Method, planned_methods
from shuffle_sim.cli import options as o
from shuffle_sim.cli.data import persons_in
from shuffle_sim.cli.files import check_picture, new_figure
from shuffle_sim.cli.outcome import print_refusals, print_warnings
from shuffle_sim.cli.show import console, grid, number, plural, present
from shuffle_sim.cli.sums import shown
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.privacy.planner import Plan, SumSpec
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.encodings import NOISE_RATIO, choose
from shuffle_sim.registry import registered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CURVE = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Row:
    """A plan as JSON has it."""

    encoding: str
    parameters: Mapping[str, Any]
    bits_per_user_and_coordinate: int
    bits_per_user_and_round: int
    noise_ratio: float
    std: float
    epsilon: float

    @classmethod
    def of(cls, name: str, plan: Plan) -> "Row":
        """Of a plan for the sum of this name."""
        encoding = registered("protocol", name).encoding
        bits = plan.bits, plan.bits * plan.spec.d
        facts = plan.noise_ratio, plan.std, plan.epsilon
        return cls(encoding, plan.parameters, *bits, *facts)


@dataclass(frozen=True)
class Summary:
    """The plan, the trade-off around it, and other methods of the same privacy."""

    spec: SumSpec
    plan: Row
    curve: list[Row]
    methods: list[Method]
    basis: str
    unit: Unit
    warnings: tuple[str, ...]


def plan_command(
    users: Annotated[int | None, typer.Option("--n", help="Number of users.")] = None,
    file: o.File = None,
    person: o.Person = None,
    dimensions: o.Dimensions = 1,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = DELTA,
    rounds: Annotated[int, typer.Option(help="Rounds that each user answers in.")] = 1,
    honest_fraction: o.HonestFraction = 1.0,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    encoding: o.Encoding = None,
    json: o.Json = False,
    plot: o.Plot = None,
) -> None:
    """Choose parameters: the fewest bits at a noise ratio, or the least noise in a bit budget.

    It also shows the trade-off between bits and noise.

    Example: shuffle-sim plan --n 10000 --d 10 --epsilon 1 --delta 1e-6 --noise-ratio 1.05

    Example: shuffle-sim plan --n 1000000 --d 100 --rounds 50 --max-bits 64 --plot plan.png

    With --file and --person, users are the persons in the file:

    Example: shuffle-sim plan --file visits.csv --person patient --d 3
    """
    unit = Unit.RECORD if person is None else Unit.PERSON
    spec = SumSpec(
        _users(users, file, person), dimensions, Privacy(epsilon, delta), rounds, honest_fraction
    )
    if noise_ratio is not None and max_bits is not None:
        given = noise_ratio, max_bits
        raise ParameterError("noise_ratio, max_bits", given, "given one of the two, not both")
    check_picture(plot)
    least = math.sqrt(spec.n / spec.honest)
    if max_bits is None:
        noise_ratio = noise_ratio or NOISE_RATIO * least
    plan = partial(choose, spec, encoding=encoding, scalar=spec.d == 1)
    name, chosen = plan(noise_ratio=noise_ratio, max_bits=max_bits)
    curve = {}
    for ratio in _CURVE:
        with suppress(ParameterError):  # more noise than one encoding can do without
            sum_name, each = plan(noise_ratio=ratio * least)
            # With few users, or few bits, ratios coincide.
            curve[sum_name, each.bits, f"{each.noise_ratio:.4f}"] = Row.of(sum_name, each)
    summary = Summary(
        spec,
        Row.of(name, chosen),
        list(curve.values()),
        planned_methods(chosen),
        ShuffleAccountant().compose(chosen.event, spec.rounds).basis,
        unit,
        spec.privacy.warnings(spec.n),
    )
    present(summary, _print, _draw, json=json, plot=plot)


def _users(users: int | None, file: Path | None, person: str | None) -> int:
    """As given, or as many as the file names.

    Raises:
        ParameterError: neither or both are given, or the file has no such column.
    """
    if (users is None) == (file is None) or (file is None) != (person is None):
        given = users, file and str(file), person
        raise ParameterError("n, file, person", given, "--n alone, or --file with --person")
    return persons_in(file, person) if file is not None and person is not None else users or 0


def _print(summary: Summary) -> None:
    spec, chosen = summary.spec, summary.plan
    whose = ", in all records of one person" * (summary.unit is Unit.PERSON)
    kind = "scalar sum" if spec.d == 1 else f"vector sum, d = {spec.d:,}"
    console.print(
        f"\n[bold]{kind}[/], n = {spec.n:,}, epsilon {spec.privacy.epsilon:g}, delta "
        f"{spec.privacy.delta:g}, {plural(spec.rounds, 'round')}, honest fraction "
        f"{spec.honest_fraction:g}\n[bold]plan[/]: {shown(chosen.encoding, chosen.parameters)}: "
        f"{chosen.bits_per_user_and_coordinate:,} bits per user and coordinate, noise "
        f"{chosen.noise_ratio:.4f} x central, proven epsilon {chosen.epsilon:.6g}\n"
        f"by {summary.basis}; replace-one neighbours{whose}\n"
    )
    print_warnings(summary.warnings)
    curve = grid("encoding", "parameters", "bits", "noise / central", "std", "epsilon", texts=2)
    for row in summary.curve:
        parameters = " ".join(f"{name}={number(each)}" for name, each in row.parameters.items())
        cells = f"{row.bits_per_user_and_coordinate:,}", f"{row.noise_ratio:.4f}", number(row.std)
        curve.add_row(row.encoding, parameters, *cells, f"{row.epsilon:.5f}")
    console.print(curve)
    console.print()
    heads = "compared with", "setting", "trusted", "std", "noise / central", "bits"
    others = grid(*heads, texts=3)
    for each in summary.methods:
        numbers = ["-"] * 3
        if not each.refused:
            ratio = number(each.error / spec.central)
            numbers = [number(each.error), ratio, f"{each.bits:,}"]
        others.add_row(each.name, each.setting, each.trust.trusted, *numbers)
    console.print(others)
    print_refusals(summary.methods)


def _draw(summary: Summary) -> "Figure":
    spec, chosen = summary.spec, summary.plan
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    bits = [row.bits_per_user_and_coordinate for row in summary.curve]
    ratios = [row.noise_ratio for row in summary.curve]
    axes.loglog(bits, ratios, "o-", color=Trust.SHUFFLE.colour, label="this simulator")
    axes.loglog(
        [chosen.bits_per_user_and_coordinate],
        [chosen.noise_ratio],
        "k*",
        ms=13,
        label=f"the plan: {chosen.bits_per_user_and_coordinate:,} bits",
    )
    for trust, style in ((Trust.CENTRAL, "--"), (Trust.LOCAL, ":")):
        label, noise = f"{trust} Gaussian", trust.noise(spec.n)
        axes.axhline(noise, color=trust.colour, ls=style, lw=1, label=label)
    for each in summary.methods:
        if each.paper and not each.refused:
            ratio = each.error / spec.central
            axes.loglog([each.bits], [ratio], "s", color=each.colour, label=each.setting)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("bits per user, coordinate and round")
    axes.set_ylabel("noise / central Gaussian")
    axes.set_title(
        f"n = {spec.n:,}, d = {spec.d:,}, ε = {spec.privacy.epsilon:g}, δ = "
        f"{spec.privacy.delta:g}, {plural(spec.rounds, 'round')}"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return figure
