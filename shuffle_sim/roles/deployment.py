"""What every role is set up with, and how it reads a broadcast."""

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import BROADCAST, Protocol, Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import LARGEST_REPORT, Task
from shuffle_sim.roles.onion import box_bytes
from shuffle_sim.roles.reports import user_bytes
from shuffle_sim.sampling.randomness import GENERATORS, Role, stream
from shuffle_sim.wire.codec import by_name, decode
from shuffle_sim.wire.frames import Context, Kind, check_context, parse

BLOCK_BATCH_BYTES = 1 << 22
"""Bytes that users send before the shuffler has taken the last; twice as many are a tenth faster on
Ray and take 25 MiB more.
"""
ROUTED_BATCH_BYTES = 1 << 25
"""The same where the shuffler has shards: what is routed together, at some cost each time."""
FIDELITIES = ("literal", "counts", "aggregate")
SECURITIES = ("none", "transport", "onion")


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    """A round's public specification, as user shards and the shuffler read it.

    Attributes:
        context: of the frames that answer it.
        cohort: who answers.
        query: what is asked of each user's row.
        randomizer: how the answer becomes messages.
        minimum: fewest accepted reports with which the shuffler releases the round.
    """

    context: Context
    cohort: Cohort
    query: Query
    randomizer: Randomizer
    minimum: int


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What every role is set up with before the first round.

    Attributes:
        protocol: the protocol, public.
        task: 16 bytes that name the run; bound into every frame.
        entropy: of the random streams of the role that it is for; never shown.
        fidelity: one of FIDELITIES.
        block_size: users per block; belongs to the run, never to the number of workers.
        adversary: what corrupted users do.
        kernel: one of `kernels.KERNELS`.
        shuffler_shards: into how many shards the shuffler is split; block i is of shard i modulo
            their number.
        security: one of SECURITIES.
        generator: one of `randomness.GENERATORS`, for honest and corrupted users alike.
        agreed: what rounds may ask; None: all that the protocol's users could answer.
    """

    protocol: Protocol[Any]
    task: bytes
    entropy: int = field(repr=False)
    fidelity: str
    block_size: int
    adversary: Adversary | None = None
    kernel: str = "numpy"
    shuffler_shards: int = 1
    security: str = "none"
    agreed: Task | None = None
    generator: str = GENERATORS[0]

    def __post_init__(self) -> None:
        """Refuse a vocabulary in which two classes have one name."""
        by_name(self.vocabulary)

    def stream(self, round_index: int, role: Role, index: int) -> np.random.Generator:
        """What a role draws from in a round."""
        return stream(self.entropy, round_index, role, index, self.generator)

    @property
    def of_shuffler(self) -> "Deployment":
        """For the shuffler: with entropy of its own, from which that of users is not computed."""
        mixed = hashlib.sha256(b"shuffler" + self.entropy.to_bytes(16, "big")).digest()
        return replace(self, entropy=int.from_bytes(mixed[:16], "big"))

    @property
    def of_analyzer(self) -> "Deployment":
        """For the analyzer, which draws nothing: without entropy."""
        return replace(self, entropy=0)

    @property
    def vocabulary(self) -> tuple[type, ...]:
        """The classes that a broadcast may hold."""
        return (Cohort, *self.protocol.vocabulary)

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

    def blocks_within(self, broadcast: bytes, size: int) -> int:
        """How many blocks users answer in so many bytes, at least one."""
        randomizer = self.opened(broadcast).randomizer
        added = self.fidelity == "aggregate" and randomizer.view == "sums"
        users = 1 if added else self.block_size
        each = (
            math.ceil(randomizer.usual_messages * box_bytes(randomizer.alphabet))
            if self.security == "onion"
            else user_bytes(self.fidelity, randomizer)
        )
        return max(1, size // (users * each))

    def block_batches(self, broadcast: bytes) -> list[range]:
        """The blocks to be asked together, in order, so that what they answer fits the memory.

        Every shard of the shuffler has some of each batch.
        """
        cohort, shards = self.opened(broadcast).cohort, self.shuffler_shards
        low, high = cohort.ranges[0][0] // self.block_size, -(-cohort.stop // self.block_size)
        largest = BLOCK_BATCH_BYTES if shards == 1 else ROUTED_BATCH_BYTES
        step = max(1, self.blocks_within(broadcast, largest) // shards) * shards
        return [range(start, min(start + step, high)) for start in range(low, high, step)]

    def opened(self, broadcast: bytes) -> Broadcast:
        """A broadcast of this run; the last ones are kept, so that each is decoded once.

        Raises:
            FrameError: it is not a broadcast of this run, its parameter hash is not that of its
                parameters, or it asks for what no round of the run can (`not-agreed`).
        """
        agreed = self.agreed
        # Before it is read: a length costs nothing.
        if agreed is not None and len(broadcast) > agreed.size:
            raise FrameError("not-agreed", f"{len(broadcast):,} bytes, at most {agreed.size:,}")
        opened = _opened(broadcast, self.task, self.vocabulary, agreed)
        if opened.cohort.stop > self.protocol.users:
            asked = f"users up to {opened.cohort.stop:,} of {self.protocol.users:,}"
            raise FrameError("not-agreed", asked)
        return opened


@lru_cache(maxsize=2)
def _opened(
    broadcast: bytes, task: bytes, vocabulary: tuple[type, ...], agreed: Task | None
) -> Broadcast:
    frame = parse(broadcast)
    if frame.kind is not Kind.ROUND:
        raise FrameError("wrong-kind", f"{frame.kind.name} is not a broadcast")
    # The hash is taken here: what a frame says of itself proves nothing.
    context = Context.of_broadcast(task, frame.context.round, frame.payload)
    check_context(frame, context)
    public = cohort, query, randomizer, minimum = decode(
        frame.payload, vocabulary, BROADCAST, agreed
    )
    if minimum < 1:
        raise FrameError("malformed-broadcast", f"a minimum of {minimum}")
    # No shuffler could release it, but users would have answered, and paid.
    if minimum > cohort.size:
        fewest = f"at least {minimum:,} reports of {cohort.size:,} users"
        raise FrameError("not-agreed", fewest)
    try:
        randomizer.check_view()
    except ParameterError as error:
        raise FrameError("not-agreed", str(error)) from error
    if randomizer.report_bits > LARGEST_REPORT:
        long = f"{randomizer.report_bits:,} bits a report, at most {LARGEST_REPORT:,}"
        raise FrameError("not-agreed", long)
    if agreed is not None:
        agreed.check(context.round, *public)
    return Broadcast(
        context=context, cohort=cohort, query=query, randomizer=randomizer, minimum=minimum
    )
