"""`shuffle-sim train`: a linear model by shuffle-private convex optimisation, alone or beside other
ways to train it.
"""

import json as codec
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli import train_compare as others
from shuffle_sim.cli.data import load
from shuffle_sim.cli.learning import Bar, Moment, Split, Watch
from shuffle_sim.cli.show import (
    check_path,
    check_picture,
    console,
    emit,
    number,
    plain,
    plural,
    save_picture,
    size,
    whole,
)
from shuffle_sim.data.labelled import labelled
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.checkpoint import split_seed
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered

_PROTOCOL, _HYPER = "shuffle-gd", "calibrated"


def train_command(
    table: o.TableName = None,
    file: o.File = None,
    label: o.Label = None,
    positive: o.Positive = None,
    columns: o.Columns = None,
    bounds: o.BoundsOption = None,
    loss: o.Loss = "logistic",
    quantile: o.Quantile = None,
    threshold: o.Threshold = None,
    radius: o.Radius = None,
    ridge: o.Ridge = 0.0,
    norm_bound: o.NormBound = None,
    protocol: Annotated[
        str | None,
        typer.Option(help=f"Name of an optimiser; default {_PROTOCOL}."),
    ] = None,
    hyper: Annotated[
        str | None, typer.Option(help=f"calibrated or paper: who chooses steps; default {_HYPER}.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds; by default chosen.")] = None,
    batch: Annotated[int | None, typer.Option(help="Users in a round; by default chosen.")] = None,
    eta: Annotated[
        float | None, typer.Option(help="Step of SGD and GD; by default chosen.")
    ] = None,
    smoothing: Annotated[
        float | None,
        typer.Option(help="Of the Moreau envelope of AC-SA and GD; by default chosen."),
    ] = None,
    phases: Annotated[
        int | None, typer.Option(help="Phases over disjoint users, with --ridge; 0: number chosen.")
    ] = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-5,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    honest_fraction: o.HonestFraction = 1.0,
    test_fraction: o.TestFraction = 0.2,
    runtime: o.RuntimeName = "inprocess",
    address: o.Address = None,
    workers: o.Workers = 1,
    fidelity: o.Fidelity = None,
    security: o.Security = "none",
    sealing_seconds: o.SealingSeconds = None,
    seed: o.Seed = None,
    checkpoint: o.Checkpoint = None,
    resume: o.Resume = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Beside central, local and non-private training.")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option(help="Splits and runs of every way with --compare; default 5.")
    ] = None,
    json: o.Json = False,
    plot: o.Plot = None,
    model_out: Annotated[Path | None, typer.Option(help="Write the model (.json) there.")] = None,
) -> None:
    """Train a linear model by shuffle-private convex optimisation, and test it on people held out.

    Example: shuffle-sim train --table breast-cancer --epsilon 2 --rounds 100 --runtime ray
    --workers 2

    Example: shuffle-sim train --file people.csv --label income --bounds income=0:500000 --bounds
    age=0:120 --loss huber

    Example: shuffle-sim train --table digits --positive 0 --positive 2 --positive 4 --positive 6
    --positive 8 --compare
    """
    source = load(table, file, columns, bounds, label)
    trainer = registered("trainer", "linear").of(
        loss,
        len(source.columns) + 1,
        Privacy(epsilon, delta),
        quantile=quantile,
        threshold=threshold,
        radius=radius,
        ridge=ridge,
        norm_bound=norm_bound,
        noise_ratio=noise_ratio,
        max_bits=max_bits,
        honest_fraction=honest_fraction,
    )
    rows = labelled(source, classes=trainer.loss.classification, positive=positive or ())
    host = o.runtime_of(runtime, address)
    check_picture(plot)
    check_path("model_out", model_out, (".json",))
    where: dict[str, Any] = {"runtime": host, "workers": workers, "fidelity": fidelity}
    where |= o.security_of(security, sealing_seconds)
    given = {"hyper": hyper, "batch": batch, "eta": eta, "smoothing": smoothing, "phases": phases}
    if compare:
        for name, value in {
            "protocol": protocol,
            "model_out": model_out,
            "checkpoint": checkpoint,
            **given,
        }.items():
            if value is not None:
                raise ParameterError(
                    name,
                    str(value),
                    "left out with --compare, which chooses for every way to train",
                )
        others.compare(
            rows,
            trainer,
            test_fraction,
            5 if repeats is None else repeats,
            rounds,
            seed,
            where,
            json,
            plot,
        )
        return
    if repeats is not None:
        raise ParameterError("repeats", repeats, "given with --compare")
    split = Split.of(rows, trainer, test_fraction, split_seed(checkpoint, resume, seed))
    given |= {"hyper": hyper or _HYPER, "rounds": rounds}
    made = trainer.protocol(protocol or _PROTOCOL, len(split.train), **given)
    with Bar("training", made.rounds) as bar:
        watch = Watch(split, made.rounds, delta, bar.moment)
        result = run(
            made,
            split.train,
            **where,
            seed=seed,
            checkpoint=checkpoint,
            resume=resume,
            on_round=watch,
        )
    summary = _summary(split, made, result, watch.moments)
    if json:
        emit(summary)
    else:
        _print(split, summary, result)
    for option, path, write in (("plot", plot, _draw), ("model_out", model_out, _save)):
        if path is not None:
            write(summary, path)
            if not json:
                console.print(f"{'Picture' if option == 'plot' else 'Model'}: {path}")


def _summary(split: Split, protocol: Any, result: Result, moments: list[Moment]) -> dict[str, Any]:
    table, problem, n = split.source.table, protocol.problem, len(split.train)
    weights, intercept = split.source.weights(result.value)
    each = protocol.rounds_per_user
    return {
        "table": table.name,
        "people": {"asked": n, "held_out": len(split.test)},
        "labels": split.source.rule,
        "scaling": split.source.scaling,
        "clipped": {
            "cells": table.clipped_cells,
            "labels": split.source.clipped_labels,
            "gradients": result.reports.clipped,
        },
        "model": {
            "loss": plain(problem.loss) | {"name": type(problem.loss).__name__},
            "radius": problem.domain.radius,
            "ridge": problem.ridge,
            "columns": list(table.columns),
            "lower": table.lower,
            "upper": table.upper,
            "weights": weights,
            "intercept": intercept,
            "target_bounds": table.target_bounds if split.source.half_range else None,
        },
        "scores": split.scores(result.value),
        "constant": split.constant(),
        "protocol": {
            "name": type(protocol).__name__,
            "rounds": result.rounds,
            "rounds_per_user": each,
            "excess_bound": math.inf if split.trainer.clips else protocol.bound,
            "choices": protocol.choices,
        },
        "privacy": plain(result.privacy),
        "private": result.private,
        "sequentially_interactive": result.ledger.sequentially_interactive,
        "costs": plain(result.costs),
        "payload_bits_per_user": result.costs.payload_bits_per_user * each,
        "reports": plain(result.reports),
        "history": plain(moments),
        "run": {
            "fidelity": result.fidelity,
            "runtime": result.runtime,
            "workers": result.workers,
            "seed": result.seed,
        }
        | {"security": result.security},
    }


def _print(split: Split, summary: dict[str, Any], result: Result) -> None:
    model, told, clipped = summary["model"], summary["protocol"], summary["clipped"]
    interaction = "sequential" if summary["sequentially_interactive"] else "fully interactive"
    console.print(
        f"\n[bold]{summary['table']}[/]: {summary['people']['asked']} people asked, "
        f"{summary['people']['held_out']} held out, "
        f"{plural(len(model['columns']), 'column')}; {summary['labels']}"
    )
    console.print(f"Public scaling: {split.source.scaling}.")
    console.print(
        f"[bold]{told['name']}[/] ({interaction}), {model['loss']['name']} loss, ball of radius "
        f"{model['radius']:g}, "
        f"ridge {model['ridge']:g}, {plural(result.rounds, 'round')}, {result.fidelity} messages, "
        f"runtime {result.runtime}, "
        f"{plural(result.workers, 'user shard')}\n"
    )
    grid = Grid("", "this model", "best constant", box=None, header_style="bold", pad_edge=False)
    for name, value in summary["scores"].items():
        grid.add_row(name.replace("_", " "), number(value), number(summary["constant"][name]))
    console.print(grid)
    console.print(
        "Scores and the constant are the simulator's own view; the analyzer sees only the "
        "permuted messages."
    )
    _print_bound(summary)
    console.print(f"[bold]Privacy[/]  {result.privacy}")
    for note in result.privacy.assumptions:
        console.print(f"         assuming: {note}")
    c, a = result.costs, result.reports
    console.print(
        f"[bold]Cost[/]     {summary['payload_bits_per_user']:,} bits per user: "
        f"{plural(told['rounds_per_user'], 'report')} of "
        f"{c.payload_bits_per_user:,}; on the wire {size(c.wire_bytes)} in all "
        f"({'measured' if c.measured else 'by formula'})"
    )
    console.print(
        f"[bold]Reports[/]  {a.asked:,} asked = {a.accepted:,} accepted + "
        f"{sum(a.dropped.values()):,} dropped + "
        f"{a.missing:,} missing; clipped were {clipped['cells']:,} cells and "
        f"{clipped['labels']:,} labels outside the public "
        f"bounds and {clipped['gradients']:,} gradients above the norm bound"
    )
    console.print("[bold]Chose[/]")
    for name, why in told["choices"].items():
        console.print(f"  {name}: {why}")


def _print_bound(summary: dict[str, Any]) -> None:
    bound, constant = summary["protocol"]["excess_bound"], summary["constant"]["held_out_loss"]
    if bound == math.inf:
        console.print("\n[bold]Bound[/]    none is proven for these parameters")
        return
    console.print(
        "\n[bold]Bound[/]    expected excess loss over the best model in the ball at most "
        f"{number(bound)}, proven"
    )
    if bound > constant:
        console.print(
            f"         more than the loss of a constant ({number(constant)}): with so few people, "
            "nothing is promised at this "
            "epsilon; how good the model is, only the people held out can tell"
        )


def _save(summary: dict[str, Any], path: Path) -> None:
    keys = ("table", "labels", "model", "scores", "privacy", "private")
    with whole("model_out", path) as part:
        part.write_text(codec.dumps(plain({key: summary[key] for key in keys}), indent=2) + "\n")


def _draw(summary: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    history, privacy = summary["history"], summary["privacy"]
    rounds = [moment["round"] for moment in history]
    figure = Figure(figsize=(7, 5), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    style = {"marker": "." if len(rounds) < 30 else ""}
    upper.plot(
        rounds, [moment["loss"] for moment in history], label="training, where asked", **style
    )
    upper.axhline(summary["scores"]["held_out_loss"], color="tab:green", label="held out, result")
    upper.axhline(
        summary["constant"]["held_out_loss"], color="gray", ls="--", label="held out, best constant"
    )
    upper.set_ylabel("mean loss")
    upper.set_title(
        f"{summary['table']}: {summary['protocol']['name']}, ε = {privacy['epsilon']:.3g}, δ = "
        f"{privacy['delta']:g}"
    )
    lower.plot(rounds, [moment["epsilon"] for moment in history], color="black", **style)
    lower.set(xlabel="round", ylabel="ε spent", ylim=(0, None))
    lower.xaxis.get_major_locator().set_params(integer=True)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3)
    save_picture(figure, path)
