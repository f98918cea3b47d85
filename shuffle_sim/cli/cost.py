"""`shuffle-sim cost`: what a protocol sends, before anything runs."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from protocols.learning.training import Trainer
from shuffle_sim.cli import options as o
from shuffle_sim.cli.outcome import print_warnings
from shuffle_sim.cli.show import console, grid, number, plural, present, size
from shuffle_sim.cli.sums import encoded_sum, left_out, make_sum
from shuffle_sim.execution.forecast import Forecast, corollary, forecast
from shuffle_sim.execution.options import SEALING_SECONDS
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.protocol.base import Protocol


@dataclass(frozen=True)
class Paper:
    """Where the paper states the bits of a user, which without the constant, and that constant."""

    where: str
    bits: float
    constant: float


@dataclass(frozen=True)
class Summary:
    """What a protocol will cost."""

    protocol: str
    n: int
    d: int
    epsilon: float
    delta: float
    security: str
    forecast: Forecast
    wire_bytes: dict[str, int]
    paper: Paper | None
    warnings: tuple[str, ...]


def cost_command(
    users: o.Users,
    dimensions: Annotated[
        int, typer.Option("--d", help="Coordinates, or parameters of a model.")
    ] = 1,
    protocol: Annotated[
        str | None,
        typer.Option(help="Name of a sum or of an optimiser; default: the sum of the fewest bits."),
    ] = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = DELTA,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    encoding: o.Encoding = None,
    loss: Annotated[
        str | None, typer.Option(help="Loss of the model, of an optimiser; default logistic.")
    ] = None,
    rounds: o.Rounds = None,
    batch: o.Batch = None,
    security: o.Security = "none",
    json: o.Json = False,
) -> None:
    """Show what a protocol costs in communication: per user, per round, and hop by hop.

    Example: shuffle-sim cost --n 10000 --d 10 --noise-ratio 1.05 --security onion

    Example: shuffle-sim cost --n 100000 --d 10 --protocol shuffle-sgd --loss hinge
    """
    privacy = Privacy(epsilon, delta)
    noise: Any = {"noise_ratio": noise_ratio, "max_bits": max_bits, "encoding": encoding}
    kind = loss or "logistic"
    trainer = Trainer.of(kind, dimensions, privacy, **noise)
    useless = {"loss": loss, "rounds": rounds, "batch": batch}
    name, made = protocol or "", object()
    if protocol is None:
        left_out(useless, "a sum")
        name, made = encoded_sum(users, dimensions, privacy, **noise)
    elif protocol in trainer.optimisers():
        made = trainer.protocol(protocol, users, rounds=rounds, batch=batch)
    else:
        made = make_sum(protocol, users, dimensions, privacy, **noise, **useless)
    assert isinstance(made, Protocol)
    found = forecast(made, security=security)
    paper = None
    if made.paper_cost is not None:
        bits = corollary(found, dimensions, epsilon, delta)
        paper = Paper(made.paper_cost, bits, found.user_payload_bits / bits)
    wire = {hop.name: hop.wire for hop in found.hops}
    summary = Summary(
        name,
        users,
        dimensions,
        epsilon,
        delta,
        security,
        found,
        wire,
        paper,
        privacy.warnings(users),
    )
    present(summary, _print, json=json)


def _print(summary: Summary) -> None:
    f, kind = summary.forecast, "sequentially" if summary.forecast.sequential else "fully"
    console.print(
        f"\n[bold]{summary.protocol}[/], n = {f.users:,}, d = {summary.d:,}, security "
        f"{summary.security}: {kind} interactive\n{plural(f.rounds, 'round')} of at most "
        f"{f.batch:,} users; a user answers in at most {f.participation:,}, "
        f"{f.asked / f.users:.3g} on average\n"
    )
    user = grid("a user", "in a round", "over the run")
    for what, each in (
        ("messages", f.messages),
        ("payload bits (the paper's count)", f.payload_bits),
        ("label bits, if sent one by one", f.label_bits),
    ):
        user.add_row(what, f"{each:,}", f"{each * f.participation:,}")
    wire = f.user_wire_bytes
    user.add_row("bytes on the wire", f"{wire / f.participation:,.1f}", f"{wire:,.1f}")
    console.print(user)
    print_warnings(summary.warnings)
    console.print()
    hops = grid("hop, over the run", "payload", "framing", "seals", "on the wire")
    for hop in f.hops:
        hops.add_row(hop.name, *map(size, (hop.payload, hop.framing, hop.sealing, hop.wire)))
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
    if summary.paper is not None:
        paper = summary.paper
        factor = "rounds answered x " if f.participation > 1 else ""
        console.print(
            f"\n{paper.where} of the paper: O({number(paper.bits)}) bits a user, by {factor}"
            "d (sqrt(batch) + ln(1/delta)/epsilon^2).\nThe bits here are "
            f"{paper.constant:.3g} times that."
        )
