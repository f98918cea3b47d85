"""`shuffle-sim cost`: what a protocol sends, before anything runs."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import console, emit, number, plural, size
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.forecast import Forecast, corollary, forecast
from shuffle_sim.execution.setup import SEALING_SECONDS
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered

_SUMS = {"scalar-sum": "section 3.1", "vector-sum": "section 3.1"}
"""Where the paper states the bits of its sums; optimisers say it themselves."""


def cost_command(
    users: Annotated[int, typer.Option("--n", help="Users.")],
    dimensions: Annotated[
        int, typer.Option("--d", help="Coordinates, or parameters of a model.")
    ] = 1,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="Name of a protocol; by default scalar-sum, or vector-sum if d is above 1."
        ),
    ] = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    loss: Annotated[
        str | None, typer.Option(help="Of the model, where one is trained; default logistic.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds, where the protocol has several; by default chosen.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Users in a round of a sequential protocol; by default chosen."),
    ] = None,
    security: o.Security = "none",
    json: o.Json = False,
) -> None:
    """Say what a protocol costs in communication: per user, per round and over the run, hop by hop.

    Example: shuffle-sim cost --n 10000 --d 10 --noise-ratio 1.05 --security onion

    Example: shuffle-sim cost --n 100000 --d 10 --protocol shuffle-sgd --loss hinge
    """
    privacy = Privacy(epsilon, delta)
    name = protocol or ("vector-sum" if dimensions > 1 else "scalar-sum")
    noise = {"noise_ratio": noise_ratio, "max_bits": max_bits}
    make = _optimiser if name in registered("trainer", "linear").optimisers() else _sum
    made = make(
        name, users, dimensions, privacy, noise, {"loss": loss, "rounds": rounds, "batch": batch}
    )
    found = forecast(made, security=security)
    where = _SUMS.get(name, getattr(made, "paper_cost", None))
    bound = corollary(found, dimensions, epsilon, delta) if where else None
    if json:
        paper = bound and {
            "where": where,
            "bits": bound,
            "constant": found.user_payload_bits / bound,
        }
        emit(
            {
                "protocol": name,
                "n": users,
                "d": dimensions,
                "epsilon": epsilon,
                "delta": delta,
                "security": security,
                "forecast": found,
                "wire_bytes": {hop.name: hop.wire for hop in found.hops},
                "paper": paper,
            }
        )
    else:
        _print(name, found, security, where, bound, dimensions)


_Options = dict[str, Any]


def _optimiser(
    name: str, n: int, d: int, privacy: Privacy, noise: _Options, training: _Options
) -> Any:
    """A protocol that trains a linear model, calibrated."""
    trainer = registered("trainer", "linear").of(
        training.pop("loss") or "logistic", d, privacy, **noise
    )
    return trainer.protocol(name, n, **training)


def _sum(name: str, n: int, d: int, privacy: Privacy, noise: _Options, training: _Options) -> Any:
    """A protocol of one round, calibrated.

    Raises:
        ParameterError: it has no use for an option that was given.
    """
    calibrate: Callable[..., Any] | None = getattr(registered("protocol", name), "calibrate", None)
    if calibrate is None:
        raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
    known = calibrate.__kwdefaults__ or {}
    for key, value in (noise | training).items():
        if value is not None and key not in known:
            raise ParameterError(key, value, f"left out: {name} does not take it")
    if set(noise) <= set(known) and set(noise.values()) == {None}:
        noise = noise | {"noise_ratio": 1.05}
    if "d" in inspect.signature(calibrate).parameters:
        noise = noise | {"d": d}
    elif d != 1:
        raise ParameterError("d", d, f"1: {name} sums scalars")
    return calibrate(
        n=n, privacy=privacy, **{key: value for key, value in noise.items() if value is not None}
    )


def _print(
    name: str, f: Forecast, security: str, where: str | None, bound: float | None, d: int
) -> None:
    kind = "sequentially" if f.sequential else "fully"
    console.print(
        f"\n[bold]{name}[/], n = {f.users:,}, d = {d:,}, security {security}: {kind} interactive"
    )
    console.print(
        f"{plural(f.rounds, 'round')} of at most {f.batch:,} users; a user answers in at most "
        f"{f.participation:,}, "
        f"{f.asked / f.users:.3g} on average\n"
    )
    grid = Grid(
        "a user", "in a round", "over the run", box=None, header_style="bold", pad_edge=False
    )
    for column in grid.columns[1:]:
        column.justify = "right"
    grid.add_row("messages", f"{f.messages:,}", f"{f.messages * f.participation:,}")
    grid.add_row(
        "payload bits (the paper's count)", f"{f.payload_bits:,}", f"{f.user_payload_bits:,}"
    )
    grid.add_row(
        "label bits, if sent one by one", f"{f.label_bits:,}", f"{f.label_bits * f.participation:,}"
    )
    grid.add_row(
        "bytes on the wire",
        f"{f.user_wire_bytes / f.participation:,.1f}",
        f"{f.user_wire_bytes:,.1f}",
    )
    console.print(grid)
    console.print()
    hops = Grid(
        "hop, over the run",
        "payload",
        "framing",
        "seals",
        "on the wire",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for column in hops.columns[1:]:
        column.justify = "right"
    for hop in f.hops:
        hops.add_row(
            hop.name, *(size(count) for count in (hop.payload, hop.framing, hop.sealing, hop.wire))
        )
    console.print(hops)
    if f.seconds:
        console.print(
            f"\nSealing and opening takes about {number(f.seconds)} s on this machine with one "
            "worker."
        )
    if f.slowest > SEALING_SECONDS:
        console.print(
            f"A run refuses a round of more than {SEALING_SECONDS:g} s, unless --sealing-seconds "
            "allows it."
        )
    if bound is None:
        return
    console.print(
        f"\n{where} of the paper: O({number(bound)}) bits a user, that is "
        f"{'rounds answered x ' if f.participation > 1 else ''}d (sqrt(batch) + "
        "ln(1/delta)/epsilon^2); "
        f"here {f.user_payload_bits / bound:.3g} times that."
    )
