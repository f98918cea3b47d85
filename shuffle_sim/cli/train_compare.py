"""Ways to train side by side: sequential and fully interactive shuffling, central, local and not
private.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as Grid

from shuffle_sim.cli.learning import Bar, Split
from shuffle_sim.cli.show import console, emit, number, plural, save_picture
from shuffle_sim.data.labelled import Labelled
from shuffle_sim.errors import integer
from shuffle_sim.execution.engine import run
from shuffle_sim.sampling.randomness import entropy_of

TRUST = {"shuffle": "shuffler", "central": "curator", "local": "nobody", "none": "everyone"}
"""Who must be trusted in each model."""

_FLOAT = 64  # bits of a number sent in the clear, or noisy, by the baselines


def compare(
    source: Labelled,
    trainer: Any,
    test_fraction: float,
    repeats: int,
    rounds: int | None,
    seed: int | None,
    where: dict[str, Any],
    json: bool,
    plot: Path | None,
) -> None:
    """Train in every way on the same splits, and print, emit and draw what came of it."""
    integer("repeats", repeats, 1, 1000)
    seeds: list[int | None] = [None] * repeats
    if seed is not None:
        seeds = [
            int(each) for each in np.random.SeedSequence(entropy_of(seed)).generate_state(repeats)
        ]
    splits = [Split.of(source, trainer, test_fraction, each) for each in seeds]
    ways = trainer.compared(len(splits[0].train), rounds)
    where = where | {"fidelity": where["fidelity"] or "aggregate"}
    rows: list[dict[str, Any]] = []
    with Bar("comparing", len(ways) * repeats) as bar:
        for way, (model, protocol) in ways.items():
            scores = []
            for done, (split, each) in enumerate(zip(splits, seeds, strict=True)):
                bar.step(len(rows) * repeats + done, f"runs  {way}")
                bits, result = _run(trainer, model, protocol, split, each, where)
                scores.append(split.scores(result.value))
            rows.append(
                _row(way, model, protocol, result, bits)
                | {
                    "excess_bound": math.inf if trainer.clips else protocol.bound,
                    "scores": _spread(scores),
                }
            )
    summary = {
        "table": source.table.name,
        "people": {"asked": len(splits[0].train), "held_out": len(splits[0].test)},
        "labels": source.rule,
        "scaling": source.scaling,
        "loss": type(trainer.loss).__name__,
        "radius": trainer.problem.domain.radius,
        "ridge": trainer.ridge,
        "asked_for": trainer.privacy,
        "repeats": repeats,
        "seed": seed,
        "run": where | {"runtime": where["runtime"].name},
        "constant": _spread([split.constant() for split in splits]),
        "ways": rows,
    }
    if json:
        emit(summary)
    else:
        _print(summary)
    if plot is not None:
        _draw(summary, plot)
        if not json:
            console.print(f"Picture: {plot}")


def _run(
    trainer: Any, model: str, protocol: Any, split: Split, seed: int | None, where: dict[str, Any]
) -> tuple[int, Any]:
    """(bits that a user sends, what came of it)."""
    if model != "shuffle":
        found = trainer.baseline(protocol, split.train, model, seed)
        return _FLOAT * trainer.d * protocol.rounds_per_user, found
    result = run(protocol, split.train, **where, seed=seed)
    return result.costs.payload_bits_per_user * protocol.rounds_per_user, result


def _row(way: str, model: str, protocol: Any, result: Any, bits: int) -> dict[str, Any]:
    return {
        "way": way,
        "model": model,
        "trust": TRUST[model],
        "optimiser": type(protocol).__name__,
        "rounds": result.rounds,
        "rounds_per_user": protocol.rounds_per_user,
        "bits_per_user": bits,
        "privacy": result.privacy,
    }


def _spread(scores: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Of every score the values, their mean and their standard deviation (0 for a single one)."""
    found = {}
    for name in scores[0]:
        values = [each[name] for each in scores]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        found[name] = {"mean": float(np.mean(values)), "std": spread, "values": values}
    return found


def _print(summary: dict[str, Any]) -> None:
    asked, repeats = summary["asked_for"], summary["repeats"]
    people = summary["people"]
    console.print(
        f"\n[bold]{summary['table']}[/]: {people['asked']} people asked, {people['held_out']} "
        f"held out; {summary['labels']}\n"
        f"{summary['loss']} loss, ball of radius {summary['radius']:g}, ridge "
        f"{summary['ridge']:g}; asked for epsilon "
        f"{asked.epsilon:g} at delta {asked.delta:g}; {plural(repeats, 'split')}, "
        f"{summary['run']['fidelity']} messages"
    )
    console.print(f"Public scaling: {summary['scaling']}.\n")
    names = [name for name in summary["constant"] if name != "training_loss"]
    heads = [name.replace("_", "\n") for name in names]
    grid = Grid(
        "",
        *heads,
        "epsilon",
        "bits per\nuser",
        "rounds",
        "trusted",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for row in summary["ways"]:
        epsilon = row["privacy"].epsilon
        scores = [_told(row["scores"][name]) for name in names]
        spent = "none" if np.isinf(epsilon) else f"{epsilon:.4f}"
        grid.add_row(
            row["way"],
            *scores,
            spent,
            f"{row['bits_per_user']:,}",
            f"{row['rounds']:,}",
            row["trust"],
        )
    grid.add_row("best constant", *(_told(summary["constant"][name]) for name in names))
    console.print(grid)
    console.print(
        f"\nMean±standard deviation over {plural(repeats, 'split')}, the same for all; scores are "
        "the simulator's own view.\n"
        "Of several optimisers the one with the smallest proven bound of the excess loss was taken:"
    )
    for row in summary["ways"]:
        console.print(
            f"  {row['way']}: {row['optimiser']}, bound {number(row['excess_bound'])}; epsilon by "
            f"{row['privacy'].basis}"
        )
    vacuous = [
        row["way"]
        for row in summary["ways"]
        if row["excess_bound"] > summary["constant"]["held_out_loss"]["mean"]
    ]
    if vacuous:
        console.print(
            f"The bound is above the loss of a constant for: {', '.join(vacuous)}. With so few "
            "people, nothing is promised "
            "there; how good the models are, only the people held out can tell."
        )


def _told(score: dict[str, Any]) -> str:
    return f"{number(score['mean'])}±{score['std']:.1g}"


def _draw(summary: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    ways, constant = summary["ways"], summary["constant"]["held_out_loss"]["mean"]
    places = np.arange(len(ways))
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, row in zip(places, ways, strict=True):
        score = row["scores"]["held_out_loss"]
        left.plot(
            score["values"], [place] * len(score["values"]), "o", ms=4, alpha=0.5, color="tab:blue"
        )
        left.plot([score["mean"]], [place], "k|", ms=16, mew=2)
    left.axvline(constant, color="gray", ls="--", lw=1, label="best constant")
    left.plot([], [], "o", ms=4, alpha=0.5, color="tab:blue", label="one split")
    left.plot([], [], "k|", ms=10, mew=2, label="mean")
    left.set_yticks(places, [f"{row['way']}\n{row['optimiser']}" for row in ways])
    left.invert_yaxis()
    left.set_xlabel(f"held-out {summary['loss'].lower()} loss")
    bits = [row["bits_per_user"] for row in ways]
    for colour, shuffled, what in (
        ("tab:orange", True, "messages of one bit"),
        ("lightgray", False, "numbers of 64 bits"),
    ):
        width = [
            count if (row["model"] == "shuffle") == shuffled else np.nan
            for row, count in zip(ways, bits, strict=True)
        ]
        right.barh(places, width, color=colour, label=what)
    right.set_xscale("log")
    right.set_xlim(min(bits) / 5, max(bits) * 1000)
    for place, count in zip(places, bits, strict=True):
        right.text(count * 1.2, place, f"{count:,}", va="center")
    right.set_xlabel("bits per user, whole run")
    asked = summary["asked_for"]
    figure.suptitle(
        f"{summary['table']}: {summary['people']['asked']} people, ε = {asked.epsilon:g}, δ = "
        f"{asked.delta:g}"
    )
    figure.legend(loc="outside lower center", ncols=5)
    save_picture(figure, path)
