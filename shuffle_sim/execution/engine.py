"""Runs a protocol: charge the ledger, exchange a round, check the counts, until the protocol is
done.
"""

import math
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shuffle_sim.data.population import InMemory, Population, population_of
from shuffle_sim.errors import (
    AccountingError,
    NotFiniteError,
    ParameterError,
    ShuffleSimError,
    integer,
    positive,
)
from shuffle_sim.execution.checkpoint import Journal, journal_of
from shuffle_sim.execution.costs import CostMeter, Costs, chunks_on_wire, sealing, users_to_shuffler
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.execution.runtime import Exchange, Runtime
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol, Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.registry import registered
from shuffle_sim.roles import FIDELITIES, SECURITIES, Deployment, PlannedRound
from shuffle_sim.roles.pools import view_chunks
from shuffle_sim.roles.reports import user_bytes
from shuffle_sim.sampling.kernels import available
from shuffle_sim.sampling.randomness import entropy_of
from shuffle_sim.wire.sealing import sealing_time

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
SEALING_SECONDS = 600.0
"""A round of onion that would take longer is refused, where nothing else is said."""
_LARGEST_ROUND = 1 << 36  # bytes of messages: parts and frames of a view are counted in 16 bits
_LITERAL_MESSAGES = 10**8  # up to here a literal round takes about a second: simulate every message


def default_block_size(users: int, randomizer: Randomizer, fidelity: str = "literal") -> int:
    """Users per block: some 16 blocks for a small run, at most as _LARGEST_BLOCK says while there
    are not too many.
    """
    most, room = _LARGEST_BLOCK[fidelity]
    size = max(1, min(-(-users // _BLOCKS), most, room // user_bytes(fidelity, randomizer)))
    while fidelity == "aggregate" and users > _MOST_SUMS * size:
        size *= 2
    return size


def run(
    protocol: Protocol[Any],
    data: Population | ArrayLike,
    *,
    runtime: str | Runtime = "inprocess",
    workers: int = 1,
    fidelity: str | None = None,
    seed: int | None = None,
    adversary: Adversary | None = None,
    block_size: int | None = None,
    kernel: str | None = None,
    shuffler_shards: int = 1,
    security: str = "none",
    sealing_seconds: float = SEALING_SECONDS,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    on_round: Callable[[int, PrivacyLedger, Costs, Query], None] | None = None,
) -> Result:
    """Run `protocol` on `data` (first axis: users) with users, shuffler and analyzer apart.

    Same seed, fidelity, block size and kernel give bit-identical results on every runtime and any
    number of workers.

    Args:
        protocol: what to run.
        data: the users' rows.
        runtime: "inprocess", "ray", another registered name, or a runtime.
        workers: user shards (on Ray: actors).
        fidelity: "literal" (every message is sent and permuted), "counts" or "aggregate" (the same
            law, faster); by default literal up to 10^8 messages a round, then aggregate. The result
            says which.
        seed: makes the run reproducible, and therefore not private; None takes entropy from the
            operating system.
        adversary: what corrupted users do.
        block_size: users per random stream; by default from the number of users and the size of a
            report.
        kernel: inner loops of the faster fidelities, "numpy" or "compiled" (extra `fast`); by
            default compiled for large rounds where it is installed. The result says which; both
            have one law, not the same bits.
        shuffler_shards: into how many the shuffler of a literal run is split (on Ray: actors).
        security: "none"; "transport": every frame is signed by its sender and sealed to its
            recipient; "onion": every message is sealed to the analyzer and every user's bundle of
            them to the shuffler, which cannot read what it permutes. Keys are drawn from the
            operating system's entropy; results are those of "none".
        sealing_seconds: a round of onion that would take longer than this is refused with the
            estimate.
        checkpoint: a folder in which to keep the run, so that it can be resumed after a death at
            any moment. It holds the run's entropy, which undoes all privacy: it is readable by its
            owner only.
        resume: go on with the run in `checkpoint`, with the same result and guarantee as if it had
            never stopped. All that decides what is sent must be as it was; runtime and workers may
            be others.
        on_round: called after each round with its index, the ledger and the costs so far, and what
            was asked; also after those replayed.

    Raises:
        ParameterError: for bad parameters or data, before any actor starts.
        RoundAbortedError: if a round could not be released.
        NotFiniteError: if what a round asked for was finite for no user.
        CheckpointError: the disk does not take the checkpoint any more; nothing was released after
            what it holds.

    An error that ends a run under way carries what was spent until then as `error.ledger`; a note
    on it, as on Ctrl-C, says it.
    """
    if not isinstance(protocol, Protocol):
        raise ParameterError("protocol", protocol, "a protocol, such as VectorSum.calibrate(...)")
    host = runtime if isinstance(runtime, Runtime) else registered("runtime", runtime)()
    population = _suited(protocol, data)
    if integer("workers", workers, 1) > protocol.users:
        raise ParameterError("workers", workers, f"at most the number of users ({protocol.users})")
    if adversary is not None and not isinstance(adversary, Adversary):
        raise ParameterError("adversary", adversary, "None or an Adversary")
    deployment, literal_size = _deployment(
        protocol, fidelity, seed, adversary, block_size, kernel, shuffler_shards, security
    )
    if security == "onion":
        _affordable(deployment, workers, sealing_seconds)
    _check(adversary, protocol, population)
    ledger, meter, reports, rounds = (
        PrivacyLedger(sequential=protocol.claims_sequential),
        CostMeter(),
        ReportCounts(),
        0,
    )
    journal = journal_of(checkpoint, resume, deployment, population, seed)
    deployment = journal.deployment
    try:
        with journal, host:
            plan = host.open(deployment, population, workers)
            while plan is not None:
                broadcast, cohort = plan.broadcast, plan.cohort
                ledger.charge(cohort, plan.event)
                exchange, plan = _exchange(journal, host, plan, ledger)
                reports = reports.plus(exchange, cohort.size)
                for member in adversary.members if adversary is not None else ():
                    member.disclosed(rounds, exchange.users.disclosed, exchange.users.sums)
                _meter(meter, deployment, broadcast, exchange, literal_size)
                if exchange.users.nonfinite == exchange.users.asked:
                    raise NotFiniteError(rounds)
                if on_round is not None:
                    on_round(rounds, ledger, meter.costs, deployment.opened(broadcast).query)
                rounds += 1
            value = host.result()
    except BaseException as error:
        _note(error, ledger, protocol.delta)
        raise
    assumed = _assumptions(protocol, reports, seed)
    settled = ledger.guarantee(protocol.delta, assumptions=assumed)
    promised = protocol.claim or ledger.guarantee(
        protocol.delta, settled=False, assumptions=assumed
    )
    # The paper's theorems hold for honest users; where noise is missing, only the exact accounting
    # applies.
    complete = not reports.corrupted and reports.accepted == reports.asked
    whole = promised if protocol.claim is not None and complete else settled
    return Result(
        value=value,
        privacy=whole,
        promised=promised,
        rounds=rounds,
        costs=meter.costs,
        reports=reports,
        fidelity=deployment.fidelity,
        kernel=deployment.kernel,
        runtime=host.name,
        workers=workers,
        shuffler_shards=shuffler_shards,
        seed=seed,
        ledger=ledger,
        security=security,
    )


def _deployment(
    protocol: Protocol[Any],
    fidelity: str | None,
    seed: int | None,
    adversary: Adversary | None,
    block_size: int | None,
    kernel: str | None,
    shuffler_shards: int,
    security: str,
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
    if security not in SECURITIES:
        raise ParameterError("security", security, f"one of {', '.join(SECURITIES)}")
    if security == "onion" and fidelity not in (None, "literal"):
        raise ParameterError(
            "security",
            security,
            f"none or transport at {fidelity} fidelity: no messages are there to be sealed",
        )
    if fidelity is None and security == "onion":
        fidelity = "literal"
    if fidelity is None:
        messages = first.cohort.size * labels * randomizer.per_label
        fidelity = "literal" if messages <= _LITERAL_MESSAGES else "aggregate"
    if fidelity not in FIDELITIES:
        raise ParameterError("fidelity", fidelity, f"one of {', '.join(FIDELITIES)}")
    literal_size, size = (
        default_block_size(protocol.users, randomizer, each)
        if block_size is None
        else integer("block_size", block_size)
        for each in ("literal", fidelity)
    )
    each = user_bytes(fidelity, randomizer)
    if fidelity != "aggregate" and min(size, protocol.users) * each > _LARGEST_FRAME:
        name, given = ("fidelity", fidelity) if size == 1 else ("block_size", size)
        fits = "counts or aggregate" if size == 1 else f"at most {_LARGEST_FRAME // each}"
        raise ParameterError(
            name,
            given,
            f"{fits}: {each:,} bytes a user must fit a frame of {_LARGEST_FRAME >> 20} MiB",
        )
    sent = first.cohort.size * randomizer.report_bytes
    if fidelity == "literal" and sent > _LARGEST_ROUND:
        allowed = (
            f"counts or aggregate: a literal round would send {sent >> 30:,} GiB, at most are "
            f"{_LARGEST_ROUND >> 30}"
        )
        raise ParameterError("fidelity", fidelity, allowed)
    kernel = available(kernel, 0 if fidelity == "literal" else first.cohort.size * labels)
    if integer("shuffler_shards", shuffler_shards, 1, 1024) > 1 and fidelity != "literal":
        allowed = f"1 at {fidelity} fidelity, where no messages are simulated to be shuffled"
        raise ParameterError("shuffler_shards", shuffler_shards, allowed)
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
    ), literal_size


def _suited(protocol: Protocol[Any], data: Population | ArrayLike) -> Population:
    """The population, if the protocol can work on it; where not all rows are in memory, the first
    stands for all.
    """
    population = population_of(data)
    if isinstance(population, InMemory):
        protocol.check(population.array)
        return population
    if population.users != protocol.users:
        raise ParameterError("data", population.users, f"the rows of {protocol.users} users")
    if protocol.users >= 2**32:
        raise ParameterError("users", protocol.users, "below 2^32: frames count them in 4 bytes")
    spec, row = protocol.plan(protocol.init()), np.asfortranarray(population.rows(0, 1), np.float64)
    try:
        if spec is not None:
            spec.randomizer.admit(spec.query(row))
    except (ValueError, TypeError, IndexError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(
            "data", row.shape, f"rows that the protocol can read ({error})"
        ) from error
    return population


def _check(adversary: Adversary | None, protocol: Protocol[Any], population: Population) -> None:
    spec = protocol.plan(protocol.init())
    if adversary is not None and spec is not None:
        for member in adversary.members:
            member.check(spec, population.rows(0, 1)[0])


def _meter(
    meter: CostMeter, deployment: Deployment, broadcast: bytes, exchange: Exchange, block_size: int
) -> None:
    opened = deployment.opened(broadcast)
    cohort, randomizer = opened.cohort, opened.randomizer
    record, literal = exchange.shuffler, deployment.fidelity == "literal"
    chunks = (
        Counter(record.chunks)
        if literal
        else view_chunks(randomizer, record.accepted * randomizer.per_label)
    )
    meter.add(
        randomizer,
        counted=(record.bytes_in, record.bytes_routed, record.bytes_out),
        formula=(
            users_to_shuffler(randomizer, cohort, block_size, deployment.security),
            chunks_on_wire(randomizer, Counter(record.routed), deployment.security),
            chunks_on_wire(randomizer, chunks, deployment.security),
        ),
        literal=literal,
        checked=exchange.users.corrupted == 0,
        broadcast=len(broadcast),
        sealing=sealing(
            randomizer, cohort, block_size, Counter(record.routed) + chunks, deployment.security
        ),
    )
    found, messages = exchange.analyzer, sum(record.chunks) * randomizer.alphabet.labels
    if deployment.security == "onion" and found.opened + found.dropped.total() != messages:
        raise AccountingError(f"{messages} messages in the view, but accounted for are {found}")


def _affordable(deployment: Deployment, workers: int, most: float) -> None:
    """Refuse an onion whose first round would take too long to seal and open."""
    positive("sealing_seconds", most)
    spec = deployment.protocol.plan(deployment.protocol.init())
    assert spec is not None
    users, messages = spec.cohort.size, spec.randomizer.alphabet.labels * spec.randomizer.per_label
    seconds = sealing_time(users * messages, users, workers)
    if seconds > most:
        allowed = (
            f"another, or sealing_seconds above {math.ceil(seconds)}: about {seconds:,.0f} s to "
            f"seal and open"
        )
        raise ParameterError(
            "security",
            "onion",
            f"{allowed} {users * messages:,} messages in a round on this machine",
        )


def _exchange(
    journal: Journal, host: Runtime, plan: PlannedRound, ledger: PrivacyLedger
) -> tuple[Exchange, PlannedRound | None]:
    """A round and the next plan; charged in the journal first, and not run again if the journal
    says that it is over.

    What was really added is known to the ledger before anything else may fail.
    """
    broadcast = plan.broadcast
    known = journal.charge(broadcast, plan.cohort, plan.event)
    exchange, following = (known, None) if known is not None else host.exchange(broadcast)
    ledger.settle(exchange.shuffler.accepted - exchange.shuffler.singles)
    if known is not None:
        return known, host.recall(broadcast, known.tally)
    journal.settle(exchange)
    return exchange, following


def _note(error: BaseException, ledger: PrivacyLedger, delta: float) -> None:
    """What was spent stays known."""
    if isinstance(error, ShuffleSimError):
        error.ledger = ledger
    if ledger.charges:
        known = (
            ""
            if ledger.settled
            else "; the last with the noise planned: how much was added is not known"
        )
        error.add_note(
            f"spent until then, {len(ledger.charges)} round(s) charged: "
            f"{ledger.guarantee(delta)}{known}"
        )


def _assumptions(
    protocol: Protocol[Any], reports: ReportCounts, seed: int | None
) -> tuple[str, ...]:
    notes = [f"honest fraction {protocol.honest_fraction:g} in every round, assumed in advance"]
    if reports.corrupted:
        notes.append(
            f"{reports.corrupted} of {reports.asked} users asked were corrupted and are not "
            "counted on"
        )
    seeded = (
        "seeded: reproducible, and therefore not private"
        if seed is not None
        else "unseeded: entropy of the operating system"
    )
    return (*notes, f"randomness {seeded}; simulated by a statistical generator")
