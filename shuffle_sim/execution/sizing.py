"""How long a run will take on this machine, and with how many workers: measured before it.

The first blocks of users answer a usual round, to nobody: what they draw is thrown away, and its
entropy is not the run's. Two sizes give seconds a round and seconds a user-round. The runtime's own
share is not measured, since that would take longer than many runs: each states its `Overhead`, with
the measurement in docs/scaling.md.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, integer, refuse_given
from shuffle_sim.execution.runtime import Overhead, Runtime
from shuffle_sim.execution.setup import deployment_of, suited
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.release import CentralAlgorithm
from shuffle_sim.protocol.task import walked
from shuffle_sim.roles import Deployment, Shuffler, UserShard
from shuffle_sim.roles.analyzer import reader
from shuffle_sim.sampling.kernels import using
from shuffle_sim.sampling.randomness import GENERATORS
from shuffle_sim.wire.frames import Context, Frame, Kind

EFFICIENCY = 0.85
"""Of a worker beside others: they share the memory's bandwidth."""
_BLOCKS = 4  # that are rehearsed, at most


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a rehearsal took in this process.

    Attributes:
        each_round: seconds, however few users.
        each_user: seconds a user-round.
    """

    each_round: float
    each_user: float


@dataclass(frozen=True, kw_only=True)
class SizePlan:
    """How a run would best be hosted.

    Attributes:
        workers: how many.
        placement: of their roles.
        seconds: about what it takes, with the start of the runtime.
        alone: about what it takes in this process.
        cores: of the runtime.
    """

    workers: int
    placement: str
    seconds: float
    alone: float
    cores: int

    def __str__(self) -> str:
        hosted = f"{self.workers} worker{'s' * (self.workers > 1)}, roles {self.placement}"
        return f"about {self.seconds:,.1f} s with {hosted}; {self.alone:,.1f} s in one process"


def asked_workers(
    algorithm: Protocol[Any] | CentralAlgorithm[Any],
    workers: int | str,
    placement: str | None,
    shuffler_shards: int | None,
    checkpoint: object,
) -> tuple[int, bool]:
    """How many workers, and whether that is still to be planned.

    Raises:
        ParameterError: more than users; or "auto" with what it chooses, or would have to keep.
    """
    if workers != "auto":
        number = integer("workers", workers, 1)
        if number > algorithm.users:
            allowed = f"at most the number of users ({algorithm.users})"
            raise ParameterError("workers", number, allowed)
        return number, False
    chosen = {"placement": placement, "shuffler_shards": shuffler_shards}
    refuse_given(chosen, "left out with workers auto, which chooses it")
    if checkpoint is not None:
        allowed = "a number with a checkpoint: it holds the shuffler shards that auto would choose"
        raise ParameterError("workers", "auto", allowed)
    return 1, isinstance(algorithm, Protocol)


def sized(
    host: Runtime,
    deployment: Deployment,
    population: Population,
    on_plan: Callable[[SizePlan], None] | None,
) -> tuple[int, Deployment]:
    """The planned number of workers, and the deployment with as many shuffler shards."""
    together, speed = deployment.security == "none", rehearsed(deployment, population)
    protocol, fidelity, cores = deployment.protocol, deployment.fidelity, host.cores(deployment)
    plan = size_plan(speed, protocol, cores, host.overhead, together=together, fidelity=fidelity)
    if on_plan is not None:
        on_plan(plan)
    host.placement = plan.placement
    shards = plan.workers if plan.placement == "together" else 1
    return plan.workers, replace(deployment, shuffler_shards=shards)


def rehearsed(deployment: Deployment, population: Population) -> Speed:
    """Time the first blocks of a usual round; a first time is not counted."""
    deployment = replace(deployment, entropy=secrets.randbits(128), adversary=None)
    index, planned = _usual([*walked(copy(deployment.protocol))])
    payload = planned.broadcast(deployment.vocabulary)
    context = Context.of_broadcast(deployment.task, index, payload)
    asked_for = Frame(Kind.ROUND, context, 0, 0, payload).tobytes()
    batch = deployment.block_batches(asked_for)[0][:_BLOCKS]
    users = UserShard(deployment, population, batch)
    size = deployment.block_size

    def timed(blocks: range) -> tuple[int, float]:
        asked = sum(
            high - low
            for low, high in planned.cohort.within(blocks.start * size, blocks.stop * size)
        )
        start = time.perf_counter()
        _round(deployment, asked_for, users, blocks)
        return asked, time.perf_counter() - start

    timed(batch[:1])
    few, quick = timed(batch[:1])
    many, slow = timed(batch)
    if slow * few > quick * many:  # many users may import or compile what few do not
        many, slow = timed(batch)
    if many > few:
        # Two times of a few milliseconds may stand the
        # wrong way round: then all of it is the users'.
        each = max(0.0, (slow - quick) / (many - few)) or slow / many
        return Speed(each_round=max(0.0, quick - few * each), each_user=each)
    return Speed(each_round=0.0, each_user=slow / many)


def _usual(specs: Sequence[RoundSpec]) -> tuple[int, RoundSpec]:
    """The first round of the commonest query: a few before may only look where the data lie."""
    most = Counter(type(each.query) for each in specs).most_common(1)[0][0]
    return next((at, each) for at, each in enumerate(specs) if type(each.query) is most)


def _round(deployment: Deployment, broadcast: bytes, users: UserShard, blocks: range) -> None:
    """What these users, the shuffler and the analyzer do for them."""
    frames, _ = users.answer(broadcast, blocks)
    deployment = replace(deployment, shuffler_shards=1)
    shuffler = Shuffler(deployment.of_shuffler)
    *_, collected = shuffler.collect(broadcast, [frames])
    minimum = deployment.opened(broadcast).minimum  # fewer than agreed are released to nobody
    collected = replace(collected, accepted=max(collected.accepted, minimum))
    released = shuffler.release(broadcast, [collected])
    view, _ = shuffler.view(broadcast, 0, len(released.chunks))
    with using(deployment.kernel):
        reader(deployment, broadcast).receive(view)


def answers(protocol: Protocol[Any], fidelity: str) -> list[float]:
    """Reports of each round, in units of one of a usual round: by messages, or by numbers."""

    def size(spec: RoundSpec) -> float:
        sent, users = spec.randomizer, spec.cohort.size
        if fidelity == "aggregate":
            return sent.usual_draws(users)
        words = fidelity == "literal" or sent.view != "sums"
        return users * (sent.usual_messages if words else sent.alphabet.labels)

    specs = list(walked(copy(protocol)))
    _, usual = _usual(specs)
    each = size(usual) / usual.cohort.size
    return [size(spec) / each for spec in specs]


def seconds_of(
    protocol: Protocol[Any],
    data: Population | ArrayLike,
    *,
    fidelity: str | None = None,
    workers: int = 1,
    overhead: Overhead | None = None,
    placement: str = "apart",
    generator: str = GENERATORS[0],
) -> tuple[float, str]:
    """Seconds that a run will take, and its fidelity, from a rehearsal of a fraction of a second.

    Seals are not among them: `forecast` has their time.

    Args:
        protocol: to be run.
        data: on which; its first blocks answer, to nobody.
        fidelity: as for `run`.
        workers: as for `run`.
        overhead: of the runtime that hosts workers; None: of this process.
        placement: as for `run`.
        generator: as for `run`.

    Raises:
        ParameterError: what `run` would refuse, too.
    """
    population = suited(protocol, data)
    deployment, _ = deployment_of(
        protocol, fidelity, None, None, None, None, 1, "none", generator=generator
    )
    speed = rehearsed(deployment, population)
    asked = answers(protocol, deployment.fidelity)
    # Apart, users of aggregate rounds do all the work; else one shuffler takes what they send.
    alone = placement == "apart" and deployment.fidelity != "aggregate"
    seconds = predicted(speed, asked, 1 if alone else workers, overhead or Overhead())
    return seconds, deployment.fidelity


def size_plan(
    speed: Speed,
    protocol: Protocol[Any],
    cores: int,
    overhead: Overhead,
    *,
    together: bool,
    fidelity: str = "literal",
) -> SizePlan:
    """The fastest number of workers.

    Args:
        speed: of one process.
        protocol: whose rounds are walked through.
        cores: that workers may use.
        overhead: of the runtime that hosts them.
        together: whether roles may be together.
        fidelity: of the run.
    """
    asked = answers(protocol, fidelity)
    most = min(cores, protocol.users, 1024)
    numbers = range(1, most + 1) if together else [max(1, most - 1)]  # a shuffler takes a core
    seconds, workers = min((predicted(speed, asked, many, overhead), many) for many in numbers)
    return SizePlan(
        workers=workers,
        placement="together" if together and cores > 1 else "apart",
        seconds=seconds,
        alone=predicted(speed, asked, 1, Overhead()),
        cores=cores,
    )


def predicted(speed: Speed, asked: Sequence[float], workers: int, overhead: Overhead) -> float:
    """Seconds of rounds of so many users each, roles together."""
    efficiency = EFFICIENCY if workers > 1 else 1.0
    work = len(asked) * speed.each_round + sum(asked) * speed.each_user / (workers * efficiency)
    return overhead.seconds(workers, len(asked)) + work
