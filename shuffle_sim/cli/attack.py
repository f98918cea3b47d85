"""`shuffle-sim attack`: what corrupted users do to privacy, to a sum and to a trained model,
measured.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import check_picture, console, emit, number, save_picture
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RATIO = 1.1  # noise of a sum over the central Gaussian's, where nothing is asked
_HONEST = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 1 / 3)
_ATTACKERS = (0.02, 0.05, 0.1, 0.2)
_NAMES = ("label-flip", "sign-flip", "alie", "ipm:scale=10", "oppose")


class Study(StrEnum):
    """What is measured."""

    PRIVACY = "privacy"
    MANIPULATION = "manipulation"
    TRAINING = "training"


def attack_command(
    study: Annotated[Study, typer.Option(help="What is measured.")] = Study.PRIVACY,
    users: Annotated[
        int | None, typer.Option("--n", help="Users; by default 1,000, and 10,000 for training.")
    ] = None,
    dimensions: Annotated[
        int | None, typer.Option("--d", help="Coordinates; by default 1, 10 and 5.")
    ] = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    noise_ratio: o.NoiseRatio = None,
    attack: o.Attacks = None,
    fraction: Annotated[
        list[float] | None,
        typer.Option(help="Fraction of honest users (privacy) or of attackers; repeatable."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Samples of every law (privacy), or runs of every attack.")
    ] = None,
    seed: o.Seed = None,
    json: o.Json = False,
    plot: o.Plot = None,
) -> None:
    """Measure attacks: privacy by honest fraction, displacement of a sum by attack, error of a
    model by share of attackers.

    Example: shuffle-sim attack --study privacy --n 1000 --epsilon 1 --fraction 1 --fraction 0.5
    --plot privacy.png

    Example: shuffle-sim attack --study training --attack sign-flip --attack ipm:scale=10 --fraction
    0.1
    """
    check_picture(plot)
    if attack and study is not Study.TRAINING:
        raise ParameterError(
            "attack", attack, "used with --study training: the other studies have their own"
        )
    for each in fraction or []:
        real("fraction", each, 0.0, 1.0, closed=(study is Study.TRAINING, True))
    asked = {"attack": attack, "fraction": fraction, "repeats": repeats, "seed": seed}
    n, d, make, show, draw = _STUDIES[study]
    size = n if users is None else users, d if dimensions is None else dimensions
    with console.status("attacking ..."):
        found = make(
            *size,
            Privacy(epsilon, delta),
            noise_ratio,
            {k: v for k, v in asked.items() if v is not None},
        )
    if json:
        emit({"study": str(study), **found})
    else:
        console.print(show(found))
        console.print(found["note"], style="dim")
    if plot is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        draw(axes, found)
        axes.set_title(f"{study}: n = {size[0]:,}, d = {size[1]}, ε = {epsilon:g}, δ = {delta:g}")
        axes.grid(alpha=0.3)
        save_picture(figure, plot)
        if not json:
            console.print(f"Picture: {plot}")


def _grid(*names: str) -> Grid:
    grid = Grid(*names, box=None, header_style="bold", pad_edge=False)
    for column in grid.columns[1:]:
        column.justify = "right"
    return grid


def _privacy(
    n: int, d: int, privacy: Privacy, ratio: float | None, asked: dict[str, Any]
) -> dict[str, Any]:
    from shuffle_sim.attacks.studies import privacy_study

    common = {"n": n, "privacy": privacy, "noise_ratio": _RATIO if ratio is None else ratio}
    if d == 1:
        protocol = registered("protocol", "scalar-sum").calibrate(**common)
    else:
        protocol = registered("protocol", "vector-sum").calibrate(d=d, **common)
    fractions = asked.get("fraction", _HONEST)
    rows = privacy_study(
        protocol, fractions, repeats=asked.get("repeats", 4000), seed=asked.get("seed")
    )
    note = (
        f"n = {n:,}, d = {d}, g = {protocol.g}, b = {protocol.b}, delta {privacy.delta:g}. "
        "Empirical: lower bound "
        "from samples of the implemented randomizer, confidence 0.9999 a row; above exact, the "
        "implementation would be wrong."
    )
    return {"rows": rows, "note": note}


def _show_privacy(found: dict[str, Any]) -> Grid:
    grid = _grid(
        "honest fraction",
        "users",
        "paper: epsilon / fraction",
        "proven",
        "exact, worst pair",
        "empirical >=",
    )
    for row in found["rows"]:
        by_paper = "-" if row.paper is None else f"{row.paper:.4f}"
        figures = f"{row.proven:.4f}", f"{row.exact:.4f}", f"{row.empirical:.4f}"
        grid.add_row(f"{row.fraction:.3f}", f"{row.honest:,}", by_paper, *figures)
    return grid


def _draw_privacy(axes: "Axes", found: dict[str, Any]) -> None:
    rows = sorted(found["rows"], key=lambda row: row.fraction)
    lines = {
        "paper": "paper: ε / fraction",
        "proven": "proven",
        "exact": "exact, worst pair",
        "empirical": "empirical lower bound",
    }
    for name, style in zip(lines, ("s--", "o-", "x:", "v-"), strict=True):
        points = [
            (row.fraction, getattr(row, name)) for row in rows if getattr(row, name) is not None
        ]
        axes.plot(*zip(*points, strict=True), style, label=lines[name]) if points else None
    axes.set_xlabel("honest fraction of the users")
    axes.set_ylabel("epsilon")
    axes.set_ylim(bottom=0)
    axes.legend()


def _manipulation(
    n: int, d: int, privacy: Privacy, ratio: float | None, asked: dict[str, Any]
) -> dict[str, Any]:
    from shuffle_sim.attacks.studies import manipulation_study, reach

    vector_sum = registered("protocol", "vector-sum")
    protocol = vector_sum.calibrate(
        n=n, d=d, privacy=privacy, noise_ratio=_RATIO if ratio is None else ratio
    )
    fractions = asked.get("fraction", [0.1])
    if len(fractions) != 1:
        raise ParameterError(
            "fraction", fractions, "one fraction: the displacement is told by corrupted user"
        )
    rows = manipulation_study(
        protocol, fraction=fractions[0], repeats=asked.get("repeats", 10), seed=asked.get("seed")
    )
    reaches = {"calibrated": {"g": protocol.g, "b": protocol.b, "p": protocol.p}}
    try:
        constants = paper.theorem_3_2(n, d, privacy.epsilon, privacy.delta)
        reaches["paper"] = {"g": constants.g, "b": constants.b, "p": constants.p}
    except ParameterError as error:
        reaches["paper"] = {"refused": str(error)}
    for each in reaches.values():
        if "g" in each:
            each["up"], each["down"] = reach(each["g"], each["b"], each["p"])
            each["l2"] = d**0.5 * max(each["up"], each["down"])
    told = "; ".join(
        f"{name} (g = {each['g']:,}, b = {each['b']:,}): {number(each['up'])} up, "
        f"{number(each['down'])} down, "
        f"{number(each['l2'])} in l2"
        for name, each in reaches.items()
        if "g" in each
    )
    note = (
        f"n = {n:,}, d = {d}, in norm bounds of one user. Reach of any report from datum 0 in a "
        f"coordinate: {told}."
    )
    return {"rows": rows, "reach": reaches, "note": note}


def _show_manipulation(found: dict[str, Any]) -> Grid:
    grid = _grid("attack", "datum", "closed form", "observed a user", "s.e.")
    for row in found["rows"]:
        grid.add_row(
            row.attack, row.datum, f"{row.expected:.4f}", f"{row.observed:.4f}", f"{row.error:.4f}"
        )
    return grid


def _draw_manipulation(axes: "Axes", found: dict[str, Any]) -> None:
    rows = found["rows"]
    places = range(len(rows))
    axes.errorbar(
        [r.observed for r in rows],
        places,
        xerr=[1.96 * r.error for r in rows],
        fmt="o",
        label="observed, 95 %",
    )
    axes.plot([r.expected for r in rows], places, "k|", ms=16, label="closed form")
    reaches = {name: each["l2"] for name, each in found["reach"].items() if "l2" in each}
    for (name, l2), style in zip(reaches.items(), ("--", ":"), strict=False):
        axes.axvline(l2, color="tab:red", ls=style, lw=1, label=f"largest, {name}: {number(l2)}")
    axes.set_yticks(list(places), [f"{r.attack} ({r.datum})" for r in rows])
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.5, 3 * max(*reaches.values(), *(row.observed for row in rows)))
    axes.invert_yaxis()
    axes.set_xlabel("displacement of the sum by one corrupted user, l2, in norm bounds")
    axes.figure.legend(loc="outside lower center", ncols=2)


def _training(
    n: int, d: int, privacy: Privacy, ratio: float | None, asked: dict[str, Any]
) -> dict[str, Any]:
    from shuffle_sim.attacks.studies import training_study

    target_model = registered("target_model", "logistic")(n, d, privacy, ratio)
    names, fractions = asked.get("attack", list(_NAMES)), asked.get("fraction", _ATTACKERS)
    rows = training_study(
        target_model, names, fractions, repeats=asked.get("repeats", 3), seed=asked.get("seed")
    )
    protocol = target_model.protocol
    note = (
        f"{type(protocol).__name__}, {protocol.users:,} users in {protocol.rounds} batches. "
        "Epsilon: of the worst batch, for the "
        "honest users that it had. Error: of classification, on held-out data."
    )
    return {"rows": rows, "note": note}


def _show_training(found: dict[str, Any]) -> Grid:
    grid = _grid("attack", "attackers", "error", "s.e.", "epsilon")
    for row in found["rows"]:
        grid.add_row(
            row.attack,
            f"{row.fraction:.3f}",
            f"{row.error:.4f}",
            f"{row.spread:.4f}",
            f"{row.epsilon:.4f}",
        )
    return grid


def _draw_training(axes: "Axes", found: dict[str, Any]) -> None:
    honest, *rows = found["rows"]
    for name in dict.fromkeys(row.attack for row in rows):
        line = [
            honest,
            *sorted((row for row in rows if row.attack == name), key=lambda row: row.fraction),
        ]
        axes.errorbar(
            [r.fraction for r in line],
            [r.error for r in line],
            yerr=[r.spread for r in line],
            fmt="o-",
            label=name,
        )
    axes.set_xlabel("fraction of attackers")
    axes.set_ylabel("classification error, held out (bars: s.e.)")
    axes.set_ylim(0, 1)
    axes.figure.legend(loc="outside lower center", ncols=3)


_Make = Callable[[int, int, Privacy, float | None, dict[str, Any]], dict[str, Any]]
_Show = Callable[[dict[str, Any]], Grid]
_Draw = Callable[["Axes", dict[str, Any]], None]
_STUDIES: dict[Study, tuple[int, int, _Make, _Show, _Draw]] = {
    Study.PRIVACY: (1000, 1, _privacy, _show_privacy, _draw_privacy),
    Study.MANIPULATION: (1000, 10, _manipulation, _show_manipulation, _draw_manipulation),
    Study.TRAINING: (10_000, 5, _training, _show_training, _draw_training),
}
"""By study: default users and coordinates, what measures it, prints it and draws it."""
