"""Runs a protocol: charge the ledger, exchange a round, check the counts, until the protocol is
done.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from shuffle_sim.data.population import Population
from shuffle_sim.errors import (
    NotFiniteError,
    ParameterError,
    positive,
)
from shuffle_sim.execution.budget import Report, check_report, ledger_of
from shuffle_sim.execution.checkpoint import journal_of
from shuffle_sim.execution.costs import CostMeter
from shuffle_sim.execution.curator import run_curator
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import ReportCounts, Result, spending, told
from shuffle_sim.execution.rounds import checked, disclose, exchanged, metered
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.execution.setup import (
    check_adversary,
    check_central,
    check_placement,
    check_sealing_time,
    deployment_of,
    suited,
)
from shuffle_sim.execution.sizing import asked_workers, sized
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.ledger import Charge, PrivacyLedger
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.binding import UNCHECKED, UNCONFIRMED
from shuffle_sim.protocol.release import CentralAlgorithm
from shuffle_sim.protocol.task import walked
from shuffle_sim.registry import registered
from shuffle_sim.roles import Deployment


def run(
    algorithm: Protocol[Any] | CentralAlgorithm[Any],
    data: Population | ArrayLike,
    *,
    runtime: str | Runtime = "inprocess",
    workers: int | str = 1,
    fidelity: str | None = None,
    seed: int | None = None,
    adversary: Adversary | None = None,
    shuffler_shards: int | None = None,
    security: str = "none",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    round_timeout: float | None = None,
    budget: Report | None = None,
    execution: Execution | None = None,
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
        runtime: "inprocess", "processes" (of this machine), "ray", another registered name, or a
            runtime.
        workers: user shards (on Ray: actors). "auto": a rehearsal of the first blocks
            says how long the run will take, and how many workers and which placement are fastest;
            `execution.on_plan` is told. Not with a checkpoint, which holds the number of shuffler
            shards.
        fidelity: "literal" (every message is sent and permuted), "counts" or "aggregate" (the same
            law, faster); by default literal up to 10^8 messages a round, then aggregate. The result
            says which.
        seed: makes the run reproducible, and therefore not private; None takes entropy from the
            operating system.
        adversary: what corrupted users do.
        shuffler_shards: into how many the shuffler is split (on Ray: actors); by default one, or
            where roles are together one for each worker.
        security: "none"; "transport": every frame is signed by its sender and sealed to its
            recipient; "onion": every message is sealed to the analyzer and every user's bundle of
            them to the shuffler, which cannot read what it permutes. Keys are drawn from the
            operating system's entropy; results are those of "none".
        checkpoint: a folder in which to keep the run, so that it can be resumed after a death at
            any moment. It holds the run's entropy, which undoes all privacy: it is readable by its
            owner only.
        resume: go on with the run in `checkpoint`, with the same result and guarantee as if it had
            never stopped. All that decides what is sent must be as it was; runtime and workers may
            be others.
        round_timeout: seconds after which a role that does not answer is named, ended and put back;
            its bytes are the same. By default 600. In process nothing is waited for.
        budget: a report of a budget on disk, `Budget(path, ...).report(name)`: the run is charged
            to it before anything is drawn, and refused where it does not fit. Rounds that depend on
            what was seen, and releases of a curator, are charged one by one. A run that is resumed
            is not charged again.
        execution: what few people set: placement, kernel, generator, limits, hooks and the like.

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
        allowed = "a protocol or a central algorithm, such as VectorSum.calibrated(...)"
        raise ParameterError("algorithm", algorithm, allowed)
    how = Execution() if execution is None else execution
    if not isinstance(how, Execution):
        raise ParameterError("execution", execution, "None or an Execution(...)")
    host = _host(runtime, round_timeout)
    workers, auto = asked_workers(algorithm, workers, how.placement, shuffler_shards, checkpoint)
    if isinstance(algorithm, CentralAlgorithm):
        check_central(adversary, fidelity, how.kernel, shuffler_shards, security, how.placement)
        return told(
            run_curator(
                algorithm,
                data,
                host,
                workers=workers,
                seed=seed,
                execution=how,
                checkpoint=checkpoint,
                resume=resume,
                budget=budget,
            ),
            algorithm.users,
        )
    protocol, population = algorithm, _population(algorithm, data, checkpoint)
    if adversary is not None and not isinstance(adversary, Adversary):
        raise ParameterError("adversary", adversary, "None or an Adversary")
    host.placement = how.placement
    deployment, literal_size = deployment_of(
        protocol,
        fidelity,
        seed,
        adversary,
        how.block_size,
        how.kernel,
        check_placement(how.placement, workers, shuffler_shards, security),
        security,
        how.limits,
        how.generator,
    )
    if auto:
        workers, deployment = sized(host, deployment, population, how.on_plan)
    if security == "onion":
        check_sealing_time(deployment, workers, how.sealing_seconds)
    check_adversary(adversary, protocol, population)
    ahead = check_report(budget, data, _ahead(protocol), resume=resume)
    reports, rounds, meter = ReportCounts(), 0, CostMeter()
    unchecked, noisy = False, list[tuple[int, int]]()
    journal = journal_of(checkpoint, resume, _identity(deployment, population, seed))
    deployment = replace(deployment, task=journal.task, entropy=journal.entropy)
    charged = partial(ledger_of, budget, data=data, sequential=protocol.claims_sequential)
    with (
        journal,
        spending(ledger := charged(journal.task, ahead=ahead), protocol.delta),
        host,
    ):
        plan = host.open(deployment, population, workers)
        how.started()
        while plan is not None:
            broadcast, cohort = plan.broadcast, plan.cohort
            unchecked |= not checked(protocol, deployment, plan)
            ledger.charge(cohort, plan.event)
            exchange, plan = exchanged(journal, host, deployment, plan, ledger)
            reports = reports.plus(exchange, cohort.size)
            honest = exchange.shuffler.accepted - exchange.shuffler.singles
            noisy.append((honest, cohort.size))
            disclose(adversary, rounds, exchange)
            metered(meter, deployment, broadcast, exchange, literal_size)
            if exchange.users.nonfinite == exchange.users.asked:
                raise NotFiniteError(rounds)
            if how.on_round is not None:
                how.on_round(rounds, ledger, meter.costs, deployment.opened(broadcast).query)
            rounds += 1
        value = host.result()
    assumed = _assumptions(seed, how.generator) + (UNCHECKED,) * unchecked
    full = (reports.corrupted, reports.accepted) == (0, reports.asked)
    whole, promised = _guarantees(protocol, ledger, noisy, assumed, full=full)
    unit = protocol.protects or population.unit
    return told(
        Result(
            value=value,
            privacy=replace(whole, unit=unit),
            promised=replace(promised, unit=unit),
            rounds=rounds,
            costs=meter.costs,
            reports=replace(reports, left_out=population.left_out),
            fidelity=deployment.fidelity,
            kernel=deployment.kernel,
            runtime=host.name,
            workers=workers,
            shuffler_shards=deployment.shuffler_shards,
            placement=host.placement,
            seed=seed,
            ledger=ledger,
            security=security,
            standard_error=getattr(protocol, "standard_error", None) if full else None,
        ),
        protocol.users,
    )


def _ahead(protocol: Protocol[Any]) -> Iterator[Charge]:
    """What all rounds will cost, as far as it does not depend on what is seen in them."""
    if not protocol.adaptive:
        yield from (Charge(spec.cohort, spec.event) for spec in walked(copy(protocol)))


def _population(
    protocol: Protocol[Any], data: Population | ArrayLike, checkpoint: str | Path | None
) -> Population:
    """The users' rows; watched where a run may go on after its end."""
    population = suited(protocol, data)
    return population if checkpoint is None else population.watched()


def _host(runtime: str | Runtime, round_timeout: float | None) -> Runtime:
    host: Runtime = runtime if isinstance(runtime, Runtime) else registered("runtime", runtime)()
    if round_timeout is not None:
        host.round_timeout = positive("round_timeout", round_timeout)
    return host


def _guarantees(
    protocol: Protocol[Any],
    ledger: PrivacyLedger,
    noisy: list[tuple[int, int]],
    assumed: tuple[str, ...],
    *,
    full: bool,
) -> tuple[Guarantee, Guarantee]:
    """What holds after the run, and what was promised before it.

    `full`: all who were asked sent honest reports. A theorem of the protocol's own is stated where
    the charges confirm it, for honest users; where noise is missing, only the accounting applies.
    """
    settled = ledger.guarantee(
        protocol.delta, assumptions=(*_honesty(noisy, protocol.honest_fraction), *assumed)
    )
    whole = (*_honesty([], protocol.honest_fraction), *assumed)
    promised = ledger.guarantee(protocol.delta, settled=False, assumptions=whole)
    if (claim := protocol.claim) is None:
        return settled, promised
    charged = ledger.guarantee(claim.delta, settled=False).epsilon
    if charged <= claim.epsilon * (1 + 1e-9):
        promised = replace(claim, assumptions=whole)
        return promised if full else settled, promised
    claimed = f"{UNCONFIRMED} (epsilon {claim.epsilon:.4g} at delta {claim.delta:g})"
    settled, promised = (
        replace(each, assumptions=(*each.assumptions, claimed)) for each in (settled, promised)
    )
    return settled, promised


def _identity(deployment: Deployment, population: Population, seed: int | None) -> RunIdentity:
    return RunIdentity(
        values={
            "protocol": deployment.protocol,
            "data": population,
            "adversary": deployment.adversary,
        },
        plan=deployment.protocol.plan(deployment.protocol.init()),
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
