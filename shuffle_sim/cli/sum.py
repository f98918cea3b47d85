"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as Grid

from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import options as o
from shuffle_sim.cli.data import load
from shuffle_sim.cli.show import (
    check_picture,
    console,
    emit,
    number,
    plain,
    plural,
    save_picture,
    size,
)
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered


def sum_command(
    table: o.TableName = None,
    file: o.File = None,
    columns: o.Columns = None,
    bounds: o.BoundsOption = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-5,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    honest_fraction: o.HonestFraction = 1.0,
    runtime: o.RuntimeName = "inprocess",
    address: o.Address = None,
    workers: o.Workers = 1,
    fidelity: o.Fidelity = None,
    security: o.Security = "none",
    sealing_seconds: o.SealingSeconds = None,
    seed: o.Seed = None,
    attack: o.Attacks = None,
    checkpoint: o.Checkpoint = None,
    resume: o.Resume = False,
    json: o.Json = False,
    plot: o.Plot = None,
) -> None:
    """Release the column means of a table by a shuffle-private vector sum.

    Example: shuffle-sim sum --table breast-cancer --epsilon 1 --delta 1e-5 --runtime ray --workers
    2

    Example: shuffle-sim sum --file people.csv --columns age,income --bounds age=0:120 --bounds
    income=0:500000
    """
    source = load(table, file, columns, bounds)
    rows = source.scaled()
    people, d = rows.shape
    privacy = Privacy(epsilon, delta)
    if noise_ratio is None and max_bits is None:
        noise_ratio = 1.05
    vector_sum = registered("protocol", "vector-sum")
    protocol = vector_sum.calibrate(
        n=people,
        d=d,
        privacy=privacy,
        noise_ratio=noise_ratio,
        max_bits=max_bits,
        honest_fraction=honest_fraction,
    )
    check_picture(plot)
    where, adversary = o.runtime_of(runtime, address), attacks(attack or [])
    how: dict[str, Any] = {
        "runtime": where,
        "workers": workers,
        "fidelity": fidelity,
        "seed": seed,
        "adversary": adversary,
    }
    how |= o.security_of(security, sealing_seconds)
    result = run(protocol, rows, **how, checkpoint=checkpoint, resume=resume)
    summary = _summary(source, protocol, result, privacy)
    if json:
        emit(summary)
    else:
        _print(source, summary, result)
    if plot is not None:
        _draw(source, summary, plot)
        if not json:
            console.print(f"Picture: {plot}")


def _summary(table: Table, protocol: Any, result: Result, privacy: Privacy) -> dict[str, Any]:
    count = result.reports.accepted
    central = sigma(privacy.epsilon, privacy.delta, protocol.sensitivity)
    try:
        by_paper = type(protocol).paper(n=protocol.n, d=protocol.d, privacy=privacy)
        paper = {
            "bits": by_paper.g + by_paper.b,
            "ratio": by_paper.standard_error / protocol.standard_error,
        }
    except ParameterError as error:
        paper = {"refused": str(error)}
    half = (table.upper - table.lower) / 2
    return {
        "table": table.name,
        "people": protocol.n,
        "columns": list(table.columns),
        "true": table.rows.mean(axis=0),
        "clipped_cells": table.clipped_cells,
        "private": table.means(result.value, count),
        "standard_error": table.spread(protocol.standard_error, count),
        "half_range": half,
        "scaling": table.scaling,
        "parameters": {"g": protocol.g, "b": protocol.b, "p": protocol.p},
        "privacy": plain(result.privacy),
        "noise": {
            "standard_error_of_sum": protocol.standard_error,
            "central": central,
            "paper": paper,
        },
        "costs": plain(result.costs),
        "wire_bytes_per_user": result.costs.wire_bytes / result.reports.asked,
        "reports": plain(result.reports),
        "run": {
            "fidelity": result.fidelity,
            "runtime": result.runtime,
            "workers": result.workers,
            "seed": result.seed,
        }
        | {"security": result.security},
    }


def _print(table: Table, summary: dict[str, Any], result: Result) -> None:
    p = summary["parameters"]
    console.print(
        f"\n[bold]{table.name}[/]: {summary['people']:,} people, "
        f"{plural(len(table.columns), 'column')}, "
        f"{result.fidelity} messages, runtime {result.runtime}, "
        f"{plural(result.workers, 'user shard')}"
    )
    console.print(f"Public scaling: {table.scaling}.\n")
    grid = Grid(
        "column mean",
        "true",
        "private",
        "predicted s.e.",
        "off by",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for column in grid.columns[1:]:
        column.justify = "right"
    for row in zip(
        table.columns, summary["true"], summary["private"], summary["standard_error"], strict=True
    ):
        name, true, private, error = row
        grid.add_row(
            name,
            number(true),
            number(private),
            number(error),
            f"{(private - true) / error:+.1f} s.e.",
        )
    console.print(grid)
    console.print(
        "The true column is the simulator's own view; the analyzer sees only the permuted "
        "messages.\n"
    )
    c, noise = result.costs, summary["noise"]
    console.print(f"[bold]Privacy[/]  {result.privacy}")
    for note in result.privacy.assumptions:
        console.print(f"         assuming: {note}")
    counted = "measured" if c.measured else "by formula"
    console.print(
        f"[bold]Cost[/]     {c.payload_bits_per_user:,} bits per user "
        f"({len(table.columns)} x ({p['g']} + {p['b']}), p = {p['p']:g}); "
        f"on the wire {summary['wire_bytes_per_user']:.1f} bytes per user, {size(c.wire_bytes)} "
        f"in all ({counted})"
    )
    console.print(
        f"[bold]Noise[/]    {noise['standard_error_of_sum'] / noise['central']:.3f} x the central "
        "Gaussian "
        f"({number(noise['standard_error_of_sum'])} against {number(noise['central'])} per "
        "coordinate of the sum)"
    )
    paper = noise["paper"]
    if "refused" in paper:
        console.print(
            f"         the paper's constants (Theorem 3.2) do not apply: {paper['refused']}"
        )
    else:
        console.print(
            f"         the paper's constants (Theorem 3.2): {paper['ratio']:,.0f} x this noise "
            f"with {paper['bits']:,} bits per user and column"
        )
    a, cells = result.reports, summary["clipped_cells"]
    extra = f" + {a.extra} extra" if a.extra else ""
    console.print(
        f"[bold]Reports[/]  {a.asked} asked{extra} = {a.accepted} accepted + "
        f"{sum(a.dropped.values())} dropped + "
        f"{a.missing} missing; {a.clipped} rows above the norm bound, {cells} cells outside the "
        "public bounds were clipped"
    )
    if a.corrupted:
        reasons = "".join(f", {count} {reason}" for reason, count in a.dropped.items())
        console.print(
            f"[bold]Attack[/]   {a.corrupted} users "
            f"corrupted{reasons and '; dropped: ' + reasons[2:]}"
        )


def _draw(table: Table, summary: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    middle, half = (table.upper + table.lower) / 2, np.asarray(summary["half_range"])
    true, private = (np.asarray(summary[key]) for key in ("true", "private"))
    places = np.arange(len(table.columns))
    figure = Figure(figsize=(7, 1.5 + 0.22 * len(places)), layout="constrained")
    axes = figure.subplots()
    error = 1.96 * np.asarray(summary["standard_error"]) / half
    axes.errorbar(
        (private - middle) / half,
        places,
        xerr=error,
        fmt="o",
        ms=4,
        label="private, 95 % by predicted s.e.",
    )
    axes.plot((true - middle) / half, places, "k|", ms=9, label="true")
    axes.set_yticks(places, table.columns)
    axes.invert_yaxis()
    axes.set_xlabel("column mean, on the public range scaled to [-1, 1]")
    guarantee = summary["privacy"]
    axes.set_title(
        f"{table.name}: {summary['people']} people, ε = {guarantee['epsilon']:.3g}, δ = "
        f"{guarantee['delta']:g}"
    )
    figure.legend(loc="outside lower center", ncols=2)  # beside the data, not over it
    save_picture(figure, path)
