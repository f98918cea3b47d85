"""How a protocol is run on some data: checks, and what was left open chosen by cost."""

import math
import secrets
from typing import Any

from numpy.typing import ArrayLike

from shuffle_sim.data.persons import Persons, population_for
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import ParameterError, integer, one_of, positive, refuse_given
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Algorithm, Protocol, RoundSpec
from shuffle_sim.protocol.binding import checked_event
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.release import Release, WholeStatistic
from shuffle_sim.protocol.task import TaskLimits, task_of
from shuffle_sim.roles import FIDELITIES, SECURITIES, Deployment
from shuffle_sim.roles.reports import most_bytes, user_bytes
from shuffle_sim.sampling.kernels import available, fortran
from shuffle_sim.sampling.randomness import GENERATORS, check_generator, entropy_of
from shuffle_sim.wire.sealing import sealing_time

PLACEMENTS = ("apart", "together")
MOST_SHARDS = 1024
"""Of the shuffler."""
_BLOCKS = 16
_MOST_SUMS = 128  # blocks that send one sum each: more would only be more to read
_LARGEST_BLOCK = {
    "literal": (65_536, 1 << 21),
    "counts": (65_536, 1 << 21),
    "aggregate": (131_072, 1 << 24),
}
"""Users, and bytes of what they send; at aggregate fidelity, where the block sends one sum, of the
values that it is made of.
"""
_LARGEST_FRAME = 1 << 29  # bytes that a block of users may send at once
_LARGEST_ROUND = 1 << 36  # bytes of messages: parts and frames of a view are counted in 16 bits
_MESSAGES_A_VALUE = 5  # one-bit messages that take as long as a value rounded
LITERAL_MESSAGES = 10**8
"""Up to here a literal round takes about a second: every message is simulated."""


def default_block_size(users: int, randomizer: Randomizer, fidelity: str = "literal") -> int:
    """Users per block: some 16 blocks for a small run, at most as _LARGEST_BLOCK says while there
    are not too many.
    """
    most, room = _LARGEST_BLOCK[fidelity]
    fitting = room // max(1, user_bytes(fidelity, randomizer))
    if randomizer.view != "sums":  # what a block may send at most must fit a frame
        fitting = min(fitting, _LARGEST_FRAME // most_bytes(fidelity, randomizer, 1))
    size = max(1, min(-(-users // _BLOCKS), most, fitting))
    while fidelity == "aggregate" and users > _MOST_SUMS * size:
        size *= 2
    return size


def deployment_of(
    protocol: Protocol[Any],
    fidelity: str | None,
    seed: int | None,
    adversary: Adversary | None,
    block_size: int | None,
    kernel: str | None,
    shuffler_shards: int,
    security: str,
    limits: TaskLimits | None = None,
    generator: str = GENERATORS[0],
) -> tuple[Deployment, int]:
    """How the protocol is run, with what was left open chosen by cost; and the block size that a
    literal run would have.
    """
    first = protocol.plan(protocol.init())
    if first is None:
        raise ParameterError(
            "protocol", type(protocol).__name__, "a protocol with at least one round"
        )
    randomizer, labels = first.randomizer, first.randomizer.alphabet.labels
    randomizer.check_view()
    checked_event(first.event, randomizer, first.query, first.cohort, protocol.honest_fraction)
    fidelity = _fidelity_of(first, fidelity, security)
    literal_size, size = (
        default_block_size(protocol.users, randomizer, each)
        if block_size is None
        else integer("block_size", block_size)
        for each in ("literal", fidelity)
    )
    # At the most: how many words users send is theirs to say.
    each = most_bytes(fidelity, randomizer, 1)
    if fidelity != "aggregate" and min(size, protocol.users) * each > _LARGEST_FRAME:
        name, given = ("fidelity", fidelity) if size == 1 else ("block_size", size)
        fits = "counts or aggregate" if size == 1 else f"at most {_LARGEST_FRAME // each}"
        raise ParameterError(
            name,
            given,
            f"{fits}: {each:,} bytes a user must fit a frame of {_LARGEST_FRAME >> 20} MiB",
        )
    sent = first.cohort.size * user_bytes("literal", randomizer)
    if fidelity == "literal" and sent > _LARGEST_ROUND:
        allowed = (
            f"counts or aggregate: a literal round would send {sent >> 30:,} GiB, at most are "
            f"{_LARGEST_ROUND >> 30}"
        )
        raise ParameterError("fidelity", fidelity, allowed)
    # Public numbers alone: which kernel runs must not tell of data.
    values = randomizer.usual_messages // _MESSAGES_A_VALUE if fidelity == "literal" else labels
    values = max(values, randomizer.worked)
    if check_generator(generator, seed) != GENERATORS[0]:
        if kernel == "compiled":
            allowed = f"numpy with {generator}: compiled kernels stretch what they are given"
            raise ParameterError("kernel", kernel, allowed)
        kernel = "numpy"
    kernel = available(kernel, first.cohort.size * values * protocol.records_read)
    integer("shuffler_shards", shuffler_shards, 1, MOST_SHARDS)
    task = secrets.token_bytes(16)
    return Deployment(
        protocol=protocol,
        task=task,
        entropy=entropy_of(seed),
        fidelity=fidelity,
        block_size=size,
        adversary=adversary,
        kernel=kernel,
        shuffler_shards=shuffler_shards,
        security=security,
        agreed=task_of(protocol, limits),
        generator=generator,
    ), literal_size


def _fidelity_of(first: RoundSpec, fidelity: str | None, security: str) -> str:
    """As asked for, or chosen by cost; some views and some security need every message.

    Raises:
        ParameterError: an unknown one of either, or both together.
    """
    randomizer = first.randomizer
    one_of("security", security, SECURITIES)
    if security == "onion" and fidelity not in (None, "literal"):
        raise ParameterError(
            "security",
            security,
            f"none or transport at {fidelity} fidelity: no messages are there to be sealed",
        )
    if randomizer.view == "messages" and fidelity not in (None, "literal"):
        allowed = f"literal: the view of {type(randomizer).__name__} is the messages themselves"
        raise ParameterError("fidelity", fidelity, allowed)
    if fidelity is None and (security == "onion" or randomizer.view == "messages"):
        fidelity = "literal"
    if fidelity is None:
        messages = first.cohort.size * randomizer.usual_messages
        fidelity = "literal" if messages <= LITERAL_MESSAGES else "aggregate"
    one_of("fidelity", fidelity, FIDELITIES)
    return fidelity


def placed(
    placement: str | None,
    workers: int,
    shuffler_shards: int | None,
    security: str,
    *,
    quick: bool,
) -> tuple[str, int]:
    """Where roles are, and the number of shuffler shards; neither moves a bit of the value.

    Args:
        placement: as asked for; None: together where that is `quick`, unless a security mode or a
            number of shuffler shards is asked for.
        workers: that share the users.
        shuffler_shards: as asked for; None: one, or where roles are together one for each worker.
        security: of the run.
        quick: whether roles together are faster where they live.

    Raises:
        ParameterError: unknown, or roles together where they must be apart.
    """
    if placement is None:
        may = security == "none" and shuffler_shards is None and workers <= MOST_SHARDS
        placement = "together" if quick and may else "apart"
    one_of("placement", placement, PLACEMENTS)
    if placement == "apart":
        return placement, 1 if shuffler_shards is None else shuffler_shards
    if security != "none":
        allowed = f"apart with security {security}: a shuffler beside users has no secret from them"
        raise ParameterError("placement", placement, allowed)
    if shuffler_shards not in (None, workers):
        allowed = f"{workers}, one for each worker, where roles are together"
        raise ParameterError("shuffler_shards", shuffler_shards, allowed)
    return placement, integer("workers", workers, 1, MOST_SHARDS)


def check_central(
    adversary: object,
    fidelity: object,
    kernel: object,
    shuffler_shards: int | None,
    security: str,
    placement: str | None,
) -> None:
    """Refuse the options of messages, where a curator takes the data themselves."""
    given = {"adversary": adversary, "fidelity": fidelity, "kernel": kernel}
    given["shuffler_shards"] = None if shuffler_shards == 1 else shuffler_shards
    given["placement"] = placement
    given["security"] = None if security == "none" else security
    refuse_given(given, "left out: users of a trusted curator send no messages")


def suited(algorithm: Algorithm[Any, Any], data: Population | ArrayLike) -> Population:
    """The population, if the protocol or the curator's algorithm can work on it; where not all rows
    are in memory, the first stands for all, but in a statistic of the rows together.
    """
    population = population_for(algorithm.unit, data, algorithm.most_records)
    users, asked = algorithm.users, algorithm.plan(algorithm.init())
    if isinstance(population, InMemory):
        algorithm.check(population.array)
    if population.users != users:
        raise ParameterError("data", population.users, f"the rows of {users} users")
    if isinstance(population, InMemory):
        return population
    if isinstance(algorithm, Protocol) and users >= 2**32:
        raise ParameterError("users", users, "below 2^32: frames count them in 4 bytes")
    if isinstance(population, Persons):
        population.checked(algorithm.check_records)
    if isinstance(asked, Release) and isinstance(asked.statistic, WholeStatistic):
        algorithm.check(population.rows(0, users))
        return population
    row = fortran(population.rows(0, 1))
    try:
        if isinstance(asked, Release):
            asked.statistic(lambda part: part(row), 1)
        elif asked is not None:
            asked.randomizer.admit(asked.query(row))
    except ParameterError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        allowed = f"rows that the algorithm can read ({type(error).__name__})"
        raise ParameterError("data", row.shape, allowed) from error
    return population


def check_adversary(
    adversary: Adversary | None, protocol: Protocol[Any], population: Population
) -> None:
    """Refuse an attack that does not apply to the protocol or the data."""
    spec = protocol.plan(protocol.init())
    if adversary is not None and spec is not None:
        for member in adversary.members:
            member.check(spec, population.rows(0, 1)[0])


def check_sealing_time(deployment: Deployment, workers: int, most: float) -> None:
    """Refuse an onion whose first round would take too long to seal and open."""
    positive("sealing_seconds", most)
    spec = deployment.protocol.plan(deployment.protocol.init())
    assert spec is not None
    users = spec.cohort.size
    messages = math.ceil(users * spec.randomizer.usual_messages)
    seconds = sealing_time(messages, users, workers)
    if seconds > most:
        allowed = (
            f"another, or sealing_seconds above {math.ceil(seconds)}: about {seconds:,.0f} s to "
            f"seal and open"
        )
        raise ParameterError(
            "security",
            "onion",
            f"{allowed} {messages:,} messages in a round on this machine",
        )
