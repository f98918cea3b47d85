"""`shuffle-sim plan`: what a private sum would need, without running anything."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import check_picture, console, emit, number, plural, save_picture
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import Plan, SumSpec, fewest_bits, least_noise

_CURVE = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)


def plan_command(
    users: Annotated[int, typer.Option("--n", help="Users in a round.")],
    dimensions: Annotated[int, typer.Option("--d", help="Coordinates; 1 is the scalar sum.")] = 1,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    rounds: Annotated[int, typer.Option(help="Rounds that each user answers in.")] = 1,
    honest_fraction: o.HonestFraction = 1.0,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    json: o.Json = False,
    plot: o.Plot = None,
) -> None:
    """Choose parameters: the fewest bits at a noise ratio, or the least noise in a bit budget, and
    the trade-off between them.

    Example: shuffle-sim plan --n 10000 --d 10 --epsilon 1 --delta 1e-6 --noise-ratio 1.05

    Example: shuffle-sim plan --n 1000000 --d 100 --rounds 50 --honest-fraction 0.8 --max-bits 64
    --plot plan.png
    """
    spec = SumSpec(users, dimensions, Privacy(epsilon, delta), rounds, honest_fraction)
    if noise_ratio is not None and max_bits is not None:
        raise ParameterError(
            "noise_ratio, max_bits", (noise_ratio, max_bits), "given one of the two, not both"
        )
    check_picture(plot)
    least = math.sqrt(spec.n / spec.honest)
    chosen = (
        least_noise(spec, max_bits)
        if max_bits is not None
        else fewest_bits(spec, noise_ratio or 1.05 * least)
    )
    curve = list(
        dict.fromkeys(fewest_bits(spec, ratio * least) for ratio in _CURVE)
    )  # few users: ratios coincide
    yardsticks = _yardsticks(spec, chosen)
    if json:
        emit(
            {
                "spec": spec,
                "plan": _row(chosen),
                "curve": [_row(plan) for plan in curve],
                "compared": yardsticks,
            }
        )
    else:
        _print(spec, chosen, curve, yardsticks)
    if plot is not None:
        _draw(spec, chosen, curve, yardsticks, plot)
        if not json:
            console.print(f"Picture: {plot}")


def _row(plan: Plan) -> dict[str, Any]:
    return {
        "g": plan.g,
        "b": plan.b,
        "p": 0.5,
        "bits_per_user_and_coordinate": plan.bits,
        "bits_per_user_and_round": plan.bits * plan.spec.d,
        "noise_ratio": plan.noise_ratio,
        "std": plan.std,
        "epsilon": plan.epsilon,
    }


def _yardsticks(spec: SumSpec, chosen: Plan) -> list[dict[str, Any]]:
    """Other ways to the same privacy, by the standard deviation per coordinate and round for
    sensitivity 1.
    """
    epsilon, delta = spec.privacy.epsilon, spec.privacy.delta
    rows: list[dict[str, Any]] = [
        {"name": "central Gaussian (analytic)", "std": spec.central, "bits": None},
        {
            "name": "local model (every user adds that noise)",
            "std": spec.central * math.sqrt(spec.n),
            "bits": None,
        },
    ]
    if spec.d == 1 and spec.rounds == 1:
        # The two-sided geometric mechanism is the central optimum for counts (Ghosh, Roughgarden,
        # Sundararajan 2012).
        optimum = (
            math.sqrt(2 * math.exp(-epsilon / chosen.g))
            / -math.expm1(-epsilon / chosen.g)
            / chosen.g
        )
        rows.append(
            {"name": "central optimum at delta 0 (geometric)", "std": optimum, "bits": None}
        )
    try:
        each, share = (
            (epsilon, delta)
            if spec.rounds == 1
            else paper.interactive_budget(epsilon, delta, spec.rounds)
        )
        constants = (
            paper.lemma_3_1(spec.n, each, share)
            if spec.d == 1
            else paper.theorem_3_2(spec.n, spec.d, each, share)
        )
        variance = spec.n * (constants.b * constants.p * (1 - constants.p) + 0.25)
        std = math.sqrt(variance) / constants.g
        rows.append(
            {"name": "the paper's constants", "std": std, "bits": constants.g + constants.b}
        )
    except ParameterError as error:
        rows.append({"name": "the paper's constants", "refused": str(error)})
    return rows


def _print(
    spec: SumSpec, chosen: Plan, curve: list[Plan], yardsticks: list[dict[str, Any]]
) -> None:
    kind = "scalar sum" if spec.d == 1 else f"vector sum, d = {spec.d:,}"
    console.print(
        f"\n[bold]{kind}[/], n = {spec.n:,}, epsilon {spec.privacy.epsilon:g}, delta "
        f"{spec.privacy.delta:g}, "
        f"{plural(spec.rounds, 'round')}, honest fraction {spec.honest_fraction:g}"
    )
    console.print(
        f"[bold]plan[/]: g = {chosen.g:,}, b = {chosen.b:,}, p = 1/2: {chosen.bits:,} bits per "
        "user and coordinate, "
        f"noise {chosen.noise_ratio:.4f} x central, proven epsilon {chosen.epsilon:.6g}"
    )
    basis = ShuffleAccountant().compose(spec.event(chosen.g, chosen.b), spec.rounds).basis
    console.print(f"by {basis}; replace-one neighbours\n")
    grid = Grid(
        "noise / central",
        "bits",
        "g",
        "b",
        "std (sensitivity 1)",
        "epsilon",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for plan in curve:
        grid.add_row(
            f"{plan.noise_ratio:.4f}",
            f"{plan.bits:,}",
            f"{plan.g:,}",
            f"{plan.b:,}",
            number(plan.std),
            f"{plan.epsilon:.5f}",
        )
    console.print(grid)
    console.print()
    others = Grid(
        "compared with",
        "std",
        "noise / central",
        "bits",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for row in yardsticks:
        if "refused" in row:
            others.add_row(row["name"], "-", "-", f"refused: {row['refused']}")
        else:
            bits = "-" if row["bits"] is None else f"{row['bits']:,}"
            others.add_row(row["name"], number(row["std"]), number(row["std"] / spec.central), bits)
    console.print(others)


def _draw(
    spec: SumSpec, chosen: Plan, curve: list[Plan], yardsticks: list[dict[str, Any]], path: Path
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.loglog(
        [plan.bits for plan in curve],
        [plan.noise_ratio for plan in curve],
        "o-",
        label="this simulator",
    )
    axes.loglog(
        [chosen.bits], [chosen.noise_ratio], "k*", ms=13, label=f"the plan: {chosen.bits:,} bits"
    )
    axes.axhline(1.0, color="gray", ls="--", lw=1, label="central Gaussian")
    axes.axhline(math.sqrt(spec.n), color="tab:red", ls=":", lw=1, label="local model")
    for row in yardsticks:
        if row.get("bits"):
            axes.loglog(
                [row["bits"]],
                [row["std"] / spec.central],
                "s",
                color="tab:purple",
                label=row["name"],
            )
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("bits per user, coordinate and round")
    axes.set_ylabel("noise / central Gaussian")
    axes.set_title(
        f"n = {spec.n:,}, d = {spec.d:,}, ε = {spec.privacy.epsilon:g}, δ = "
        f"{spec.privacy.delta:g}, "
        f"{plural(spec.rounds, 'round')}"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    save_picture(figure, path)
