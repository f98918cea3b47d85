"""Runs a protocol: charge the ledger, exchange a round, check the counts, until the protocol is
done.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shuffle_sim.data.population import Population
from shuffle_sim.errors import (
    AccountingError,
    FrameError,
    NotFiniteError,
    ParameterError,
    integer,
    positive,
)
from shuffle_sim.execution.checkpoint import Journal, RunIdentity, journal_of
from shuffle_sim.execution.costs import (
    CostMeter,
    Costs,
    chunks_on_wire,
    routed_on_wire,
    sealing,
    users_to_shuffler,
)
from shuffle_sim.execution.curator import run_curator
from shuffle_sim.execution.result import ReportCounts, Result, spending, told
from shuffle_sim.execution.runtime import Exchange, Runtime
from shuffle_sim.execution.setup import (
    SEALING_SECONDS,
    check_adversary,
    check_placement,
    check_sealing_time,
    deployment_of,
    suited,
)
from shuffle_sim.execution.sizing import SizePlan, rehearsed, size_plan
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.binding import UNCHECKED, checked_event
from shuffle_sim.protocol.release import CentralAlgorithm
from shuffle_sim.protocol.task import TaskLimits
from shuffle_sim.registry import registered
from shuffle_sim.roles import Deployment, PlannedRound
from shuffle_sim.roles.pools import view_chunks
from shuffle_sim.sampling.randomness import GENERATORS
from shuffle_sim.wire.codec import encode


def run(
    algorithm: Protocol[Any] | CentralAlgorithm[Any],
    data: Population | ArrayLike,
    *,
    runtime: str | Runtime = "inprocess",
    workers: int | str = 1,
    fidelity: str | None = None,
    seed: int | None = None,
    adversary: Adversary | None = None,
    block_size: int | None = None,
    kernel: str | None = None,
    shuffler_shards: int | None = None,
    placement: str = "apart",
    security: str = "none",
    sealing_seconds: float = SEALING_SECONDS,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    round_timeout: float | None = None,
    limits: TaskLimits | None = None,
    generator: str = GENERATORS[0],
    on_round: Callable[[int, PrivacyLedger, Costs, Any], None] | None = None,
    on_plan: Callable[[SizePlan], None] | None = None,
    on_start: Callable[[], object] = lambda: None,
) -> Result:
    """Run `algorithm` on `data` (first axis: users).

    A `Protocol` is run with users, shuffler and analyzer apart, a `CentralAlgorithm` by the trusted
    curator, which has no use for the options of messages: adversary, fidelity, kernel,
    shuffler_shards and security are refused.

    Same seed, fidelity, block size and kernel give bit-identical results on every runtime and any
    number of workers.

    Args:
        algorithm: what to run.
        data: the users' rows.
        runtime: "inprocess", "ray", another registered name, or a runtime.
        workers: user shards (on Ray: actors; in process, with roles together: threads, unless there
            is an adversary). "auto": a rehearsal of the first blocks says how long
            the run will take, and how many workers and which placement are fastest; `on_plan` is
            told. Not with a checkpoint, which holds the number of shuffler shards.
        fidelity: "literal" (every message is sent and permuted), "counts" or "aggregate" (the same
            law, faster); by default literal up to 10^8 messages a round, then aggregate. The result
            says which.
        seed: makes the run reproducible, and therefore not private; None takes entropy from the
            operating system.
        adversary: what corrupted users do.
        block_size: users per random stream; by default from the number of users and the size of a
            report.
        kernel: inner loops, "numpy" or "compiled" (extra `fast`); by default compiled for large
            rounds where it is installed. The result says which; both
            have one law, not the same bits.
        shuffler_shards: into how many the shuffler is split (on Ray: actors); by default one, or
            where roles are together one for each worker.
        placement: "apart": a process for each role, as far as the runtime has any; "together": each
            worker carries a shard of users and a shard of the shuffler, the first one the analyzer,
            too, and only what must crosses between workers. With as many shuffler shards both give
            the same bits. Refused with a security mode: roles of one process have no secrets.
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
        round_timeout: seconds after which a role that does not answer is named, ended and put back;
            its bytes are the same. By default 600. In process nothing is waited for.
        limits: what users are ready to take part in; a protocol that asks for more is refused. What
            it asks for itself, users and shuffler hold it to.
        generator: "sfc64", a quick statistical one, or "chacha20", a cryptographic one, for runs
            without a seed: with it, split and mix draws its noise exactly, from integers.
        on_round: called after each round with its index, the ledger and the costs so far, and what
            was asked; also after those replayed.
        on_plan: with workers "auto", called with what was planned before the run.
        on_start: called when all is checked, before the first round is charged.

    Raises:
        ParameterError: for bad parameters or data, before any actor starts.
        RoundAbortedError: if a round could not be released.
        NotFiniteError: if what a round asked for was finite for no user.
        CheckpointError: the disk does not take the checkpoint any more; nothing was released after
            what it holds.

    Warns (`WeakPrivacyWarning`) where the guarantee promises little: delta of 1/n or more, or
    epsilon above 10.

    An error that ends a run under way carries what was spent until then as `error.ledger`; a note
    on it, as on Ctrl-C, says it.
    """
    if not isinstance(algorithm, Protocol | CentralAlgorithm):
        allowed = "a protocol or a central algorithm, such as VectorSum.calibrate(...)"
        raise ParameterError("algorithm", algorithm, allowed)
    host = _host(runtime, round_timeout)
    workers, auto = _workers(algorithm, workers, placement, shuffler_shards, checkpoint)
    if isinstance(algorithm, CentralAlgorithm):
        _check_central(adversary, fidelity, kernel, shuffler_shards, security, placement)
        return told(
            run_curator(
                algorithm,
                data,
                host,
                workers=workers,
                seed=seed,
                block_size=block_size,
                generator=generator,
                checkpoint=checkpoint,
                resume=resume,
                on_round=on_round,
                on_start=on_start,
            ),
            algorithm.users,
        )
    protocol, population = algorithm, suited(algorithm, data)
    if adversary is not None and not isinstance(adversary, Adversary):
        raise ParameterError("adversary", adversary, "None or an Adversary")
    host.placement = placement
    deployment, literal_size = deployment_of(
        protocol,
        fidelity,
        seed,
        adversary,
        block_size,
        kernel,
        check_placement(placement, workers, shuffler_shards, security),
        security,
        limits,
        generator,
    )
    if auto:
        workers, deployment = _sized(host, deployment, population, on_plan)
    if security == "onion":
        check_sealing_time(deployment, workers, sealing_seconds)
    check_adversary(adversary, protocol, population)
    ledger, meter = PrivacyLedger(sequential=protocol.claims_sequential), CostMeter()
    reports, rounds = ReportCounts(), 0
    unchecked, noisy = False, list[tuple[int, int]]()
    journal = journal_of(checkpoint, resume, _identity(deployment, population, seed))
    deployment = replace(deployment, task=journal.task, entropy=journal.entropy)
    with spending(ledger, protocol.delta), journal, host:
        plan = host.open(deployment, population, workers)
        on_start()
        while plan is not None:
            broadcast, cohort = plan.broadcast, plan.cohort
            unchecked |= not _checked(protocol, deployment, plan)
            ledger.charge(cohort, plan.event)
            exchange, plan = _exchange(journal, host, deployment, plan, ledger)
            reports = reports.plus(exchange, cohort.size)
            honest = exchange.shuffler.accepted - exchange.shuffler.singles
            noisy.append((honest, cohort.size))
            _disclose(adversary, rounds, exchange)
            _meter(meter, deployment, broadcast, exchange, literal_size)
            if exchange.users.nonfinite == exchange.users.asked:
                raise NotFiniteError(rounds)
            if on_round is not None:
                on_round(rounds, ledger, meter.costs, deployment.opened(broadcast).query)
            rounds += 1
        value = host.result()
    assumed = _assumptions(seed, generator) + (UNCHECKED,) * unchecked
    settled = ledger.guarantee(
        protocol.delta, assumptions=(*_honesty(noisy, protocol.honest_fraction), *assumed)
    )
    promised = ledger.guarantee(
        protocol.delta,
        settled=False,
        assumptions=(*_honesty([], protocol.honest_fraction), *assumed),
    )
    if protocol.claim is not None:
        promised = replace(protocol.claim, assumptions=promised.assumptions)
    # The paper's theorems hold for honest users; where noise is missing, only the exact accounting
    # applies.
    full = (reports.corrupted, reports.accepted) == (0, reports.asked)
    whole = promised if protocol.claim is not None and full else settled
    unit = protocol.protects or population.unit
    return told(
        Result(
            value=value,
            privacy=replace(whole, unit=unit),
            promised=replace(promised, unit=unit),
            rounds=rounds,
            costs=meter.costs,
            reports=reports,
            fidelity=deployment.fidelity,
            kernel=deployment.kernel,
            runtime=host.name,
            workers=workers,
            shuffler_shards=deployment.shuffler_shards,
            placement=host.placement,
            seed=seed,
            ledger=ledger,
            security=security,
        ),
        protocol.users,
    )


def _host(runtime: str | Runtime, round_timeout: float | None) -> Runtime:
    host: Runtime = runtime if isinstance(runtime, Runtime) else registered("runtime", runtime)()
    if round_timeout is not None:
        host.round_timeout = positive("round_timeout", round_timeout)
    return host


def _disclose(adversary: Adversary | None, index: int, exchange: Exchange) -> None:
    """Tell the corrupted users what they learn of a round."""
    for member in adversary.members if adversary is not None else ():
        member.disclosed(index, exchange.users.disclosed, exchange.users.sums)


def _checked(protocol: Protocol[Any], deployment: Deployment, plan: PlannedRound) -> bool:
    """Whether what is charged for a round is derived from what it broadcasts.

    Raises:
        ParameterError: it is something else.
    """
    try:
        sent = deployment.opened(plan.broadcast)
    except FrameError as error:
        if error.reason != "not-agreed":
            raise
        allowed = f"in the task that users agreed to ({error.detail}); or `adaptive`"
        raise ParameterError("protocol", type(protocol).__name__, allowed) from error
    if sent.cohort != plan.cohort:
        raise ParameterError("cohort", plan.cohort.ranges, f"the one asked, {sent.cohort.ranges}")
    return checked_event(plan.event, sent.randomizer, sent.cohort, protocol.honest_fraction)


def _workers(
    algorithm: Protocol[Any] | CentralAlgorithm[Any],
    workers: int | str,
    placement: str,
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
    chosen = {"placement": None if placement == "apart" else placement}
    for name, value in (chosen | {"shuffler_shards": shuffler_shards}).items():
        if value is not None:
            raise ParameterError(name, value, "left out with workers auto, which chooses it")
    if checkpoint is not None:
        allowed = "a number with a checkpoint: it holds the shuffler shards that auto would choose"
        raise ParameterError("workers", "auto", allowed)
    return 1, isinstance(algorithm, Protocol)


def _sized(
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


def _check_central(
    adversary: object,
    fidelity: object,
    kernel: object,
    shuffler_shards: int | None,
    security: str,
    placement: str,
) -> None:
    """Refuse the options of messages, where a curator takes the data themselves."""
    given = {"adversary": adversary, "fidelity": fidelity, "kernel": kernel}
    given["shuffler_shards"] = None if shuffler_shards == 1 else shuffler_shards
    given["placement"] = None if placement == "apart" else placement
    given["security"] = None if security == "none" else security
    for name, value in given.items():
        if value is not None:
            allowed = "left out: users of a trusted curator send no messages"
            raise ParameterError(name, value, allowed)


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
            routed_on_wire(randomizer, Counter(record.routed), deployment.security),
            chunks_on_wire(randomizer, chunks, deployment.security),
        ),
        literal=literal,
        checked=exchange.users.corrupted == 0,
        broadcast=len(broadcast),
        sealing=sealing(
            randomizer, cohort, block_size, Counter(record.routed), chunks, deployment.security
        ),
    )
    found, messages = exchange.analyzer, sum(record.chunks) * randomizer.alphabet.width
    if deployment.security == "onion" and found.opened + found.dropped.total() != messages:
        raise AccountingError(f"{messages} messages in the view, but accounted for are {found}")


def _identity(deployment: Deployment, population: Population, seed: int | None) -> RunIdentity:
    return RunIdentity(
        values={
            "protocol": deployment.protocol,
            "data": population,
            "adversary": deployment.adversary,
        },
        settings={
            "fidelity": deployment.fidelity,
            "block size": deployment.block_size,
            "kernel": deployment.kernel,
            "shuffler shards": deployment.shuffler_shards,
            "security": deployment.security,
            "generator": deployment.generator,
        },
        seed=seed,
        task=deployment.task,
        entropy=deployment.entropy,
        libraries=["numba"] if deployment.kernel == "compiled" else [],
    )


def _exchange(
    journal: Journal,
    host: Runtime,
    deployment: Deployment,
    plan: PlannedRound,
    ledger: PrivacyLedger,
) -> tuple[Exchange, PlannedRound | None]:
    """A round and the next plan; charged in the journal first, and not run again if it is over.

    What was really added is known to the ledger before anything else may fail.
    """
    broadcast = plan.broadcast
    known = journal.charge(
        (
            ("broadcast", hashlib.sha256(broadcast).digest()),
            ("cohort", encode(plan.cohort)),
            ("event", encode(plan.event)),
            # A round that is drawn again must meet the same rows.
            ("content of the data", host.content),
        )
    )
    if known is None:
        exchange, following = host.exchange(broadcast)
    else:
        exchange, following = _known(known, deployment, broadcast), None
    ledger.settle(exchange.shuffler.accepted - exchange.shuffler.singles)
    if known is not None:
        return exchange, host.recall(broadcast, exchange.tally)
    journal.settle(exchange.outcome)
    return exchange, following


def _known(outcome: tuple[Any, ...], deployment: Deployment, broadcast: bytes) -> Exchange:
    """The exchange of a round that is over, as the journal has it.

    Raises:
        ParameterError: it is none of the round.
    """
    try:
        exchange = Exchange.of(outcome)
        labels = deployment.opened(broadcast).randomizer.alphabet.labels
        tally = exchange.tally
        whole = tally.sums.shape == (labels,) and tally.sums.dtype == np.int64
        if not (whole and 0 <= exchange.shuffler.singles <= exchange.shuffler.accepted):
            raise ValueError("of another round")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        allowed = f"undamaged: the outcome of a round is none ({error})"
        raise ParameterError("checkpoint", "run.journal", allowed) from error
    return exchange


def _honesty(noisy: list[tuple[int, int]], assumed: float) -> tuple[str, ...]:
    """Whose noise epsilon counts on: of (users that added theirs, users asked) in each round."""
    if all(honest == asked for honest, asked in noisy):
        return (f"honest fraction {assumed:g} in every round, assumed in advance",)
    honest, asked = min(noisy, key=lambda each: each[0] / each[1])
    worst = f"{honest:,} of {asked:,} users asked added their noise in the round where fewest did"
    return (f"{worst}; no more are counted on, nor more than a fraction {assumed:g}",)


def _assumptions(seed: int | None, generator: str) -> tuple[str, ...]:
    seeded = (
        "seeded: reproducible, and therefore not private"
        if seed is not None
        else "unseeded: entropy of the operating system"
    )
    if generator == "chacha20":
        return (f"randomness {seeded}; drawn by ChaCha20",)
    return (f"randomness {seeded}; simulated by a statistical generator",)
