"""What a run will cost, shown before it starts; above a public limit it asks."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import typer

from shuffle_sim.cli.outcome import print_fact
from shuffle_sim.cli.show import plural, size
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.forecast import Forecast

MAX_BITS, MAX_BYTES, MAX_SECONDS = 10**7, 10**10, 3600.0
"""Of a user, of all hops, and of a run: more is not started unasked."""


@dataclass(frozen=True)
class Ahead:
    """What a run will cost.

    Attributes:
        rounds: of interaction.
        bits_per_user: payload, over all rounds.
        bytes: of all hops, if every message is sent.
        seconds: about, from a rehearsal on this machine (`shuffle_sim.execution.sizing`).
        fidelity: of the run.
        workers: that share the work.
    """

    rounds: int
    bits_per_user: int
    bytes: int
    seconds: float
    fidelity: str
    workers: int = 1

    @classmethod
    def of(cls, found: Forecast, seconds: float, fidelity: str, workers: int = 1) -> "Ahead":
        """From a forecast of the communication, and the seconds beside its seals."""
        wire = sum(hop.wire for hop in found.hops)
        bits, each = found.user_payload_bits, found.seconds / workers
        return cls(found.rounds, bits, wire, seconds + each, fidelity, workers)

    @property
    def above(self) -> list[str]:
        """Which limits it is above."""
        found = []
        if self.bits_per_user > MAX_BITS:
            found.append(f"{self.bits_per_user:,} bits a user (limit {MAX_BITS:,})")
        if self.bytes > MAX_BYTES and self.fidelity != "aggregate":
            found.append(f"{size(self.bytes)} in all (limit {size(MAX_BYTES)})")
        if self.seconds > MAX_SECONDS:
            found.append(f"about {self.seconds:,.0f} s (limit {MAX_SECONDS:,.0f})")
        return found

    def __str__(self) -> str:
        """For people."""
        seconds = f"{self.seconds:.1g}" if self.seconds < 1 else f"{self.seconds:,.0f}"
        return (
            f"{plural(self.rounds, 'round')}, {self.bits_per_user:,} bits a user, "
            f"{size(self.bytes)} in all if each message is sent; about {seconds} s "
            f"({self.fidelity}, {plural(self.workers, 'worker')})"
        )


def announce(ahead: Ahead, fewer: Iterable[str], *, yes: bool, json: bool) -> Callable[[], object]:
    """What shows the cost as the run starts; above a limit ask, or refuse where nobody can answer.

    Args:
        ahead: what it will cost.
        fewer: ways to less, and their price; only looked at above a limit.
        yes: whether the answer is known.
        json: whether output is for machines.

    Raises:
        ParameterError: it is above a limit, and nobody said yes.
    """
    shown = partial(print_fact, "Ahead", str(ahead)) if not json else lambda: None
    if yes or not ahead.above:
        return shown
    what = "; ".join(ahead.above)
    ways = "; ".join(fewer)
    allowed = f"given for {what}" + (f". For less: {ways}" if ways else "")
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ParameterError("yes", yes, allowed)
    if not typer.confirm(f"This run takes {what}. {ways}. Start it?"):
        raise ParameterError("yes", yes, allowed)
    return shown
