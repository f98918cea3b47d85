"""From options to a run: where and how it takes place."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from shuffle_sim.arrays import Floats
from shuffle_sim.cli.ahead import Ahead
from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.execution.options import SEALING_SECONDS, Execution
from shuffle_sim.execution.result import Result
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.execution.sizing import seconds_of
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol, Query
from shuffle_sim.registry import registered
from shuffle_sim.sampling.randomness import GENERATORS

OnRound = Callable[[int, PrivacyLedger, Costs, Query], None]


@dataclass(frozen=True)
class RunOptions:
    """Where and how runs take place."""

    runtime: Runtime
    workers: int | str
    placement: str
    fidelity: str | None
    security: str
    sealing_seconds: float
    generator: str = GENERATORS[0]

    @classmethod
    def given(cls, context: typer.Context) -> "RunOptions":
        """Those of a command: its options of the same names; errors are those of `of`."""
        return cls.of(**{name: context.params[name] for name in signature(cls.of).parameters})

    @classmethod
    def of(
        cls,
        runtime: str,
        address: str | None,
        workers: str,
        placement: str,
        fidelity: str | None,
        security: str,
        sealing_seconds: float | None,
        round_timeout: float | None = None,
        generator: str = GENERATORS[0],
    ) -> "RunOptions":
        """As the command line gives them.

        Raises:
            ParameterError: an unknown runtime, an address of one that joins nothing, or a limit on
                seals where messages are not sealed one by one.
        """
        kind: Callable[..., Runtime] = registered("runtime", runtime)
        if address is not None and runtime != "ray":
            raise ParameterError("address", address, "used with --runtime ray")
        if sealing_seconds is not None and security != "onion":
            raise ParameterError("sealing_seconds", sealing_seconds, "used with --security onion")
        host = kind() if address is None else kind(address)
        if round_timeout is not None:
            host.round_timeout = positive("round_timeout", round_timeout)
        limit = SEALING_SECONDS if sealing_seconds is None else sealing_seconds
        many = workers if workers == "auto" else _number(workers)
        return cls(host, many, placement, fidelity, security, limit, generator)

    @property
    def number(self) -> int:
        """Of workers.

        Raises:
            ParameterError: each run would plan another.
        """
        if isinstance(self.workers, str):
            raise ParameterError("workers", self.workers, "a number with --compare")
        return self.workers

    def ahead(self, protocol: Protocol[Any], rows: Floats | Population) -> Ahead:
        """What a run will cost; its first blocks are rehearsed. Errors are those of `run`."""
        many = 1 if isinstance(self.workers, str) else self.workers
        seconds, fidelity = seconds_of(
            protocol,
            rows,
            fidelity="literal" if self.security == "onion" else self.fidelity,
            workers=many,
            overhead=self.runtime.overhead,
            placement=self.placement,
            generator=self.generator,
        )
        return Ahead.of(forecast(protocol, security=self.security), seconds, fidelity, many)

    def run(
        self,
        protocol: Protocol[Any],
        rows: Floats | Population,
        seed: int | None,
        *,
        adversary: Adversary | None = None,
        checkpoint: Path | None = None,
        resume: bool = False,
        on_round: OnRound | None = None,
        on_start: Callable[[], object] = lambda: None,
    ) -> Result:
        """Run the protocol on the rows; errors are those of `run`."""
        return run(
            protocol,
            rows,
            runtime=self.runtime,
            workers=self.workers,
            fidelity=self.fidelity,
            seed=seed,
            adversary=adversary,
            security=self.security,
            checkpoint=checkpoint,
            resume=resume,
            execution=Execution(
                placement=self.placement,
                sealing_seconds=self.sealing_seconds,
                generator=self.generator,
                on_round=on_round,
                on_plan=lambda plan: Console(stderr=True).print(f"Planned: {plan}"),
                on_start=on_start,
            ),
        )


def _number(workers: str) -> int:
    try:
        return int(workers)
    except ValueError:
        raise ParameterError("workers", workers, "a number, or auto") from None


@dataclass(frozen=True)
class RunSummary:
    """How a run took place."""

    fidelity: str
    runtime: str
    workers: int
    seed: int | None
    security: str

    @classmethod
    def of(cls, result: Result) -> "RunSummary":
        """Of a run that is over."""
        where = result.fidelity, result.runtime, result.workers
        return cls(*where, result.seed, result.security)
