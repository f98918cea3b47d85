"""What every role is set up with, and how it reads a broadcast."""

from dataclasses import dataclass
from typing import Any

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol, Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.onion import bundle_bytes
from shuffle_sim.roles.reports import user_bytes
from shuffle_sim.wire.codec import decode
from shuffle_sim.wire.frames import Context, Frame, Kind, check_context, parse

_TOLD = (Cohort, Query, Randomizer, int)
BLOCK_BATCH_BYTES = 1 << 22
"""Bytes that users send before the shuffler has taken the last; twice as many are a tenth faster on
Ray and take 25 MiB more.
"""
FIDELITIES = ("literal", "counts", "aggregate")
SECURITIES = ("none", "transport", "onion")


@dataclass(frozen=True)
class Deployment:
    """What every role is set up with before the first round.

    Attributes:
        protocol: the protocol, public.
        task: 16 bytes that name the run; bound into every frame.
        entropy: of the run's random streams.
        fidelity: one of FIDELITIES.
        block_size: users per block; belongs to the run, never to the number of workers.
        adversary: what corrupted users do.
        kernel: one of `kernels.KERNELS`.
        shuffler_shards: into how many shards the shuffler is split; block i is of shard i modulo
        their number.
        security: one of SECURITIES.
    """

    protocol: Protocol[Any]
    task: bytes
    entropy: int
    fidelity: str
    block_size: int
    adversary: Adversary | None = None
    kernel: str = "numpy"
    shuffler_shards: int = 1
    security: str = "none"

    @property
    def view_kind(self) -> Kind:
        """What the frames of a view are."""
        return (
            Kind.VIEW_TALLY
            if self.fidelity != "literal"
            else Kind.BOXES
            if self.security == "onion"
            else Kind.VIEW
        )

    def blocks(self) -> range:
        """Indices of all user blocks."""
        return range(-(-self.protocol.users // self.block_size))

    def block_batches(self, broadcast: bytes) -> list[range]:
        """The blocks to be asked together, in order: what they answer fits the memory, whatever a
        round carries in all.
        """
        _, cohort, _, randomizer, _ = self.opened(broadcast)
        users = 1 if self.fidelity == "aggregate" else self.block_size
        each = (
            bundle_bytes(randomizer)
            if self.security == "onion"
            else user_bytes(self.fidelity, randomizer)
        )
        low, high = cohort.ranges[0][0] // self.block_size, -(-cohort.stop // self.block_size)
        step = max(1, BLOCK_BATCH_BYTES // (users * each))
        return [range(start, min(start + step, high)) for start in range(low, high, step)]

    def opened(self, broadcast: bytes) -> tuple[Frame, Cohort, Query, Randomizer, int]:
        """A broadcast as user shards and the shuffler read it: frame, cohort, query, randomizer,
        minimum.

        Raises:
            FrameError: if it is not a broadcast of this run, or its parameter hash is not that of
            its parameters.
        """
        frame = parse(broadcast)
        if frame.kind is not Kind.ROUND:
            raise FrameError("wrong-kind", f"{frame.kind.name} is not a broadcast")
        check_context(frame, self.answering(frame))
        told = decode(frame.payload, (Cohort, *self.protocol.vocabulary))
        if (
            type(told) is not tuple
            or len(told) != len(_TOLD)
            or not all(map(isinstance, told, _TOLD))
            or told[3] < 1
        ):
            raise FrameError(
                "malformed-broadcast", "not a cohort, a query, a randomizer and a minimum"
            )
        return frame, *told

    def answering(self, frame: Frame) -> Context:
        """The context of the frames that answer a broadcast."""
        return Context.of_broadcast(self.task, frame.context.round, frame.payload)
