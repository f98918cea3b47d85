"""`shuffle-sim compare`: every way to a private sum on one axis, bits per user against error, at
the same privacy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import check_picture, console, emit, number, save_picture
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered

RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Noise over the central Gaussian's, at which the tight binomial sums are shown."""
_FLOAT_BITS = 64  # of the real number that a user of the local model sends


@dataclass(frozen=True)
class Way:
    """One way to a private sum; errors are root mean squares (l2 over the coordinates), rounding at
    its worst.

    Attributes:
        family: what it is a setting of.
        name: the setting.
        messages: of a user.
        bits: of a user, the papers' count; None where nobody sends messages.
        error: with honest users only.
        attacked: with the malicious users sending the worst they can; infinite where nothing bounds
        them.
        refused: why it cannot be had, and then everything else is nothing.
    """

    family: str
    name: str
    messages: int = 0
    bits: int | None = None
    error: float = math.nan
    attacked: float = math.nan
    refused: str = ""


def compare_command(
    users: Annotated[int, typer.Option("--n", help="Users.")] = 10_000,
    dimensions: Annotated[
        int,
        typer.Option("--d", help="Coordinates; 1 is the scalar sum on [0, 1], more an l2 ball."),
    ] = 1,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    malicious: Annotated[
        float, typer.Option(help="Fraction of users that send the worst they can.")
    ] = 0.01,
    json: o.Json = False,
    plot: o.Plot = None,
) -> None:
    """Compare protocols at the same (epsilon, delta): bits per user against error, clean and under
    attack.

    Example: shuffle-sim compare --n 10000 --epsilon 1 --delta 1e-6 --plot compare.png

    Example: shuffle-sim compare --n 10000 --d 10 --json
    """
    privacy = Privacy(epsilon, delta)
    n, d = integer("n", users), integer("d", dimensions)
    attackers = math.ceil(real("malicious", malicious, 0.0, 0.5, closed=(True, True)) * n - 1e-9)
    check_picture(plot)
    with console.status("calibrating ..."):
        found = ways(n, d, privacy, attackers)
    if json:
        emit(
            {
                "n": n,
                "d": d,
                "epsilon": epsilon,
                "delta": delta,
                "attackers": attackers,
                "ways": found,
            }
        )
    else:
        _print(found, n, d, privacy, attackers)
    if plot is not None:
        _draw(found, n, d, privacy, attackers, plot)
        if not json:
            console.print(f"Picture: {plot}")


def settings(n: int, d: int, privacy: Privacy) -> list[tuple[str, str, Callable[[], Any]]]:
    """The protocols: family, setting and what makes it; scalars in [0, 1], or vectors in the unit
    l2 ball.
    """
    common: dict[str, Any] = {"n": n, "privacy": privacy} | ({"d": d} if d > 1 else {})
    binomial = registered("protocol", "vector-sum" if d > 1 else "scalar-sum")
    mixed = registered("protocol", "split-and-mix-vector" if d > 1 else "split-and-mix")
    label = "P_vec" if d > 1 else "P_1D"
    made: list[tuple[str, str, Callable[[], Any]]] = [
        (
            f"tight {label}",
            f"{ratio:g} x central",
            partial(binomial.calibrate, **common, noise_ratio=ratio),
        )
        for ratio in RATIOS
    ]
    made.append(
        (
            f"paper {label}",
            "Theorem 3.2" if d > 1 else "Lemma 3.1",
            partial(binomial.paper, **common),
        )
    )
    made.append(("split and mix", "security 2^-40", partial(mixed.calibrate, **common)))
    single = registered("protocol", "single-message")
    if d == 1:
        made.append(("single message", "exact blanket", partial(single.calibrate, **common)))
        made.append(("single message", "Theorem 3.1", partial(single.paper, **common)))
    return made


def ways(n: int, d: int, privacy: Privacy, attackers: int) -> list[Way]:
    """All of them, by closed forms."""
    found = [
        _way(family, name, make, n, attackers) for family, name, make in settings(n, d, privacy)
    ]
    if d > 1:
        found.append(Way("single message", "exact blanket", refused="sums of scalars only"))
    return found + _yardsticks(n, d, privacy, attackers)


def _way(family: str, name: str, make: Callable[[], Any], n: int, attackers: int) -> Way:
    try:
        randomizer = make().randomizer
    except ParameterError as error:
        return Way(family, name, refused=str(error))
    clean = math.sqrt(float(randomizer.variance(n).sum()))
    attacked = math.hypot(clean, randomizer.manipulation(attackers, n))
    messages = randomizer.alphabet.labels * randomizer.per_label
    return Way(family, name, messages, randomizer.report_bits, clean, attacked)


def _yardsticks(n: int, d: int, privacy: Privacy, attackers: int) -> list[Way]:
    """A trusted curator, and no trust at all; of a scalar also the best there is at delta 0."""
    sensitivity = 2.0 if d > 1 else 1.0
    central = [("Gaussian", math.sqrt(d) * sigma(privacy.epsilon, privacy.delta, sensitivity))]
    if d == 1:
        central.append(("Laplace", math.sqrt(2) / privacy.epsilon))
    local = central[0][1] * math.sqrt(n)
    return [
        # A curator clips: each can only lie about its datum, 0, and say one of norm 1.
        *(
            Way("central", name, error=error, attacked=math.hypot(error, attackers))
            for name, error in central
        ),
        Way("local", "Gaussian", d, d * _FLOAT_BITS, local, math.inf if attackers else local),
    ]


def _print(found: list[Way], n: int, d: int, privacy: Privacy, attackers: int) -> None:
    kind = "scalars in [0, 1]" if d == 1 else f"vectors of {d:,} coordinates in the unit ball"
    console.print(
        f"\nSum of [bold]{n:,}[/] {kind} at epsilon {privacy.epsilon:g}, delta {privacy.delta:g}; "
        "root mean square error"
        f"{' (l2)' if d > 1 else ''}, without and with {attackers:,} malicious users\n"
    )
    grid = Grid(
        "protocol",
        "setting",
        "messages",
        "bits per user",
        "error",
        "under attack",
        box=None,
        header_style="bold",
    )
    for column in grid.columns[2:]:
        column.justify = "right"
    for way in found:
        if way.refused:
            grid.add_row(way.family, way.name, "-", "-", "-", "-")
            continue
        bits = "-" if way.bits is None else f"{way.bits:,}"
        attacked = "unbounded" if math.isinf(way.attacked) else number(way.attacked)
        grid.add_row(
            way.family,
            way.name,
            f"{way.messages:,}" if way.messages else "-",
            bits,
            number(way.error),
            attacked,
        )
    console.print(grid)
    for way in found:
        if way.refused:
            console.print(f"{way.family}, {way.name}: refused: {way.refused}")
    console.print(
        "\nAll by closed forms: rounding at its worst, and malicious users that move the sum from "
        "the datum 0 as far as their "
        "messages can. In split and mix a single one can move it anywhere in the modulus; in the "
        "local model nothing bounds it. "
        "Central and local noise is continuous; the other sums consist of integers."
    )


_COLOURS = {
    "tight": "tab:blue",
    "paper": "tab:purple",
    "split": "tab:green",
    "single": "tab:orange",
    "local": "tab:red",
}


def _draw(found: list[Way], n: int, d: int, privacy: Privacy, attackers: int, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 5), layout="constrained")
    axes = figure.subplots()
    for family in dict.fromkeys(way.family for way in found):
        shown = sorted(
            (way for way in found if way.family == family and not way.refused),
            key=lambda way: way.bits or 0,
        )
        if not shown:
            continue
        if family == "central":
            for way, style in zip(shown, ("--", "-."), strict=False):
                axes.axhline(way.error, color="black", ls=style, lw=1, label=f"central, {way.name}")
            if attackers:
                axes.axhline(
                    shown[0].attacked,
                    color="black",
                    ls=":",
                    lw=1,
                    label="central, with malicious users",
                )
            continue
        colour = _COLOURS[family.split()[0]]
        bits = [way.bits or 1 for way in shown]
        axes.plot(
            bits,
            [way.error for way in shown],
            "o-" if len(shown) > 2 else "o",
            color=colour,
            label=family,
        )
        for x, way in zip(bits, shown, strict=True):
            if math.isinf(way.attacked):
                axes.plot([x], [8 * way.error], " ")  # room for the arrow
                axes.annotate(
                    "",
                    (x, 6 * way.error),
                    (x, way.error),
                    arrowprops={"arrowstyle": "->", "color": colour},
                )
            else:
                axes.plot([x, x], [way.error, way.attacked], ":", color=colour, lw=1)
                axes.plot([x], [way.attacked], "o", color=colour, mfc="none")
    if attackers:
        axes.plot(
            [], [], "o", color="gray", mfc="none", label=f"with {attackers:,} malicious users"
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bits per user")
    axes.set_ylabel("root mean square error of the sum" + (" (l2)" if d > 1 else ""))
    axes.set_title(f"n = {n:,}, d = {d:,}, ε = {privacy.epsilon:g}, δ = {privacy.delta:g}")
    axes.grid(alpha=0.3, which="both")
    figure.legend(loc="outside right upper")
    save_picture(figure, path)
