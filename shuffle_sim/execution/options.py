"""How a run takes place, in what few people set: one value, named alike in Python, CLI and JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.sizing import SizePlan
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.task import TaskLimits
from shuffle_sim.sampling.randomness import GENERATORS

SEALING_SECONDS = 600.0
"""A round of onion that would take longer is refused, where nothing else is said."""

OnRound = Callable[[int, PrivacyLedger, Costs, Any], None]


def _option(default: Any, text: str) -> Any:
    """A field that is an option of commands, too, with this help."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run takes place. None of it changes the law of the result.

    A field with a help text is an option of every command that runs something: a new option of a
    run is one field here, and where it is used.

    Attributes:
        block_size: users per random stream; None: from the number of users and the size of a
            report.
        kernel: inner loops, "numpy" or "compiled" (extra `fast`); None: compiled for large rounds
            where it is installed. The result says which; both have one law, not the same bits.
        placement: "apart": a process for each role, as far as the runtime has any; "together": each
            worker carries a shard of users and a shard of the shuffler, the first one the analyzer,
            too, and only what must crosses between workers. The value has the same bits in both.
            Refused with a security mode: roles of one process have no secrets. None: together
            where that is faster and nothing asks for apart (`shuffle_sim.execution.setup.placed`).
        sealing_seconds: a round of onion that would take longer than this is refused with the
            estimate.
        generator: "sfc64", a quick statistical one, or "chacha20", a cryptographic one, for runs
            without a seed: with it, split and mix draws its noise exactly, from integers.
        limits: what users are ready to take part in; a protocol that asks for more is refused. What
            it asks for itself, users and shuffler hold it to.
        on_round: called after each round with its index, the ledger and the costs so far, and what
            was asked; also after those replayed.
        on_plan: with workers "auto", called with what was planned before the run.
        on_start: called when all is checked, before the first round is charged.
    """

    block_size: int | None = _option(None, "Users per random stream. Default: chosen.")
    kernel: str | None = _option(None, "Inner loops: numpy or compiled. Default: chosen.")
    placement: str | None = _option(
        None,
        "apart: a process for each role. together: each worker has users and a part of the "
        "shuffler. Same result. Default: together in processes and on Ray.",
    )
    sealing_seconds: float = _option(
        SEALING_SECONDS,
        "With --security onion: longest time to seal and open a round; longer is refused.",
    )
    generator: str = _option(
        GENERATORS[0],
        "What draws: sfc64 (statistical, quick) or chacha20 (cryptographic), without --seed.",
    )
    limits: TaskLimits | None = None
    on_round: OnRound | None = None
    on_plan: Callable[[SizePlan], None] | None = None
    on_start: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        """Check what the rest of a run does not decide.

        Raises:
            ParameterError: naming the field.
        """
        positive("sealing_seconds", self.sealing_seconds)
        if not isinstance(self.limits, TaskLimits | None):
            raise ParameterError("limits", self.limits, "None or TaskLimits(...)")
        for name in ("on_round", "on_plan", "on_start"):
            hook = getattr(self, name)
            if hook is not None and not callable(hook):
                raise ParameterError(name, hook, "None or a function")

    def started(self) -> None:
        """Say that all is checked."""
        if self.on_start is not None:
            self.on_start()

    @property
    def asked(self) -> dict[str, Any]:
        """What commands let set of it, under the names that it has in Python."""
        return {name: getattr(self, name) for name in self.options()}

    @classmethod
    def taken(cls, options: dict[str, Any]) -> "Execution":
        """From options of a run by name: its own are taken out of them."""
        return cls(**{name: options.pop(name) for name in cls.names() if name in options})

    @classmethod
    def names(cls) -> list[str]:
        """Of all its fields."""
        return [each.name for each in fields(cls)]

    @classmethod
    def options(cls) -> Mapping[str, str]:
        """The help texts of those that are options of commands."""
        found = {each.name: each.metadata.get("help") for each in fields(cls)}
        return {name: text for name, text in found.items() if text is not None}
