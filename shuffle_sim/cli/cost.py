"""`shuffle-sim cost`: what a protocol sends, before anything runs."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from shuffle_sim.cli import options as o
from shuffle_sim.cli.show import console, emit, number, size
from shuffle_sim.errors import ParameterError
from shuffle_sim.forecast import Forecast, corollary, forecast
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import registered

_SUMS = "section 3.1"
_COROLLARIES = {"shuffle-sgd": "Corollary B.8", "shuffle-acsa": "Corollaries B.9 and B.10", "shuffle-gd": "Corollary B.11"}


def cost_command(
    users: Annotated[int, typer.Option("--n", help="Users.")],
    dimensions: Annotated[int, typer.Option("--d", help="Coordinates, or parameters of a model.")] = 1,
    protocol: Annotated[
        str | None, typer.Option(help="Name of a protocol; by default scalar-sum, or vector-sum if d is above 1.")
    ] = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-6,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    loss: Annotated[str, typer.Option(help="Of the model, where one is trained.")] = "logistic",
    rounds: Annotated[int | None, typer.Option(help="Rounds, where the protocol has several; by default chosen.")] = None,
    batch: Annotated[int | None, typer.Option(help="Users in a round of a sequential protocol; by default chosen.")] = None,
    security: o.Security = "none",
    json: o.Json = False,
) -> None:
    """Say what a protocol costs in communication: per user, per round and over the run, hop by hop.

    Example: shuffle-sim cost --n 10000 --d 10 --noise-ratio 1.05 --security onion

    Example: shuffle-sim cost --n 100000 --d 10 --protocol shuffle-sgd --loss hinge
    """
    privacy = Privacy(epsilon, delta)
    name = protocol or ("vector-sum" if dimensions > 1 else "scalar-sum")
    if noise_ratio is None and max_bits is None:
        noise_ratio = 1.05
    made = _made(name, users, dimensions, privacy, noise_ratio, max_bits, loss, rounds, batch)
    found = forecast(made, security=security)
    bound = corollary(found, dimensions, epsilon, delta)
    if json:
        emit(
            {"protocol": name, "n": users, "d": dimensions, "epsilon": epsilon, "delta": delta, "security": security,
             "forecast": found, "wire_bytes": {hop.name: hop.wire for hop in found.hops},
             "paper": {"where": _COROLLARIES.get(name, _SUMS), "bits": bound, "constant": found.user_payload_bits / bound}}
        )  # fmt: skip
    else:
        _print(name, found, security, bound, dimensions)


def _made(
    name: str, n: int, d: int, privacy: Privacy, noise_ratio: float | None, max_bits: int | None, loss: str,
    rounds: int | None, batch: int | None,
) -> Any:  # fmt: skip
    """The protocol, calibrated."""
    kind = registered("protocol", name)
    if name in _COROLLARIES:
        trainer = registered("trainer", "linear").of(loss, d, privacy, noise_ratio=noise_ratio, max_bits=max_bits)
        return trainer.protocol(name, n, rounds=rounds, batch=batch)
    if rounds is not None or batch is not None:
        raise ParameterError("rounds, batch", (rounds, batch), f"left out: {name} has one round, of everybody")
    calibrate: Callable[..., Any] | None = getattr(kind, "calibrate", None)
    if calibrate is None:
        raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
    wanted = {"n": n, "d": d, "privacy": privacy, "noise_ratio": noise_ratio, "max_bits": max_bits}
    taken = set(calibrate.__kwdefaults__ or ()) | {"n", "privacy"}
    if "vector" in name:
        taken.add("d")
    elif d != 1:
        raise ParameterError("d", d, f"1: {name} sums scalars")
    return calibrate(**{key: value for key, value in wanted.items() if key in taken})


def _print(name: str, f: Forecast, security: str, bound: float, d: int) -> None:
    kind = "sequentially" if f.sequential else "fully"
    console.print(f"\n[bold]{name}[/], n = {f.users:,}, d = {d:,}, security {security}: {kind} interactive")
    console.print(
        f"{f.rounds:,} round(s) of at most {f.batch:,} users; a user answers in at most {f.participation:,}, "
        f"{f.asked / f.users:.3g} on average\n"
    )
    grid = Grid("a user", "in a round", "over the run", box=None, header_style="bold", pad_edge=False)
    for column in grid.columns[1:]:
        column.justify = "right"
    grid.add_row("messages", f"{f.messages:,}", f"{f.messages * f.participation:,}")
    grid.add_row("payload bits (the paper's count)", f"{f.payload_bits:,}", f"{f.user_payload_bits:,}")
    grid.add_row("label bits, if sent one by one", f"{f.label_bits:,}", f"{f.label_bits * f.participation:,}")
    grid.add_row("bytes on the wire", f"{f.user_wire_bytes / f.participation:,.1f}", f"{f.user_wire_bytes:,.1f}")
    console.print(grid)
    console.print()
    hops = Grid("hop, over the run", "payload", "framing", "seals", "on the wire", box=None, header_style="bold", pad_edge=False)
    for column in hops.columns[1:]:
        column.justify = "right"
    for hop in f.hops:
        hops.add_row(hop.name, *(size(count) for count in (hop.payload, hop.framing, hop.sealing, hop.wire)))
    console.print(hops)
    if f.seconds:
        console.print(f"\nSealing and opening takes about {number(f.seconds)} s on this machine with one worker.")
    console.print(
        f"\n{_COROLLARIES.get(name, _SUMS)} of the paper: O({number(bound)}) bits a user, that is "
        f"{'rounds answered x ' if f.participation > 1 else ''}d (sqrt(batch) + ln(1/delta)/epsilon^2); "
        f"here {f.user_payload_bits / bound:.3g} times that."
    )
