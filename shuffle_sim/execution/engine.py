"""Runs a protocol: charge the ledger, exchange a round, check the counts, until the protocol is
done.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.execution.budget import Report
from shuffle_sim.execution.budget_ledger import check_report, ledger_of
from shuffle_sim.execution.checkpoint import journal_of
from shuffle_sim.execution.curator import run_curator
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.execution.observed import Observed
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result, spending, told
from shuffle_sim.execution.rounds import exchanged
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.execution.setup import (
    check_adversary,
    check_central,
    check_sealing_time,
    deployment_of,
    placed,
    suited,
)
from shuffle_sim.execution.sizing import asked_workers, sized
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol
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
        workers: user shards (on Ray: actors). "auto": as many as a rehearsal of the first blocks
            finds fastest, which `execution.on_plan` is told. Not with a checkpoint.
        fidelity: "literal" (every message is sent and permuted), "counts" or "aggregate" (the same
            law, faster); by default literal up to 10^8 messages a round, then aggregate.
        seed: makes the run reproducible, and therefore not private; None: the system's entropy.
        adversary: what corrupted users do.
        shuffler_shards: into how many the shuffler is split (on Ray: actors); by default one, or
            where roles are together, as in processes and on Ray, one for each worker.
        security: "none"; "transport": every frame is signed by its sender and sealed to its
            recipient; "onion": every message is sealed to the analyzer, and every user's bundle to
            the shuffler, which cannot read what it permutes. Results are those of "none".
        checkpoint: a folder that keeps the run, to be resumed after a death at any moment. It holds
            the run's entropy, which undoes all privacy: only its owner can read it.
        resume: go on with the run in `checkpoint`, as if it had never stopped. All that decides
            what is sent must be as it was; runtime and workers may be others.
        round_timeout: seconds after which a role that does not answer is named, ended and put back;
            its bytes are the same. By default 600. In process nothing is waited for.
        budget: a report of a budget on disk, `Budget(path, ...).report(name)`. It is charged before
            anything is drawn, and the run refused where it does not fit.
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
    how = _checked(algorithm, execution, budget)
    host = _host(runtime, round_timeout)
    workers, auto = asked_workers(algorithm, workers, how.placement, shuffler_shards, checkpoint)
    kept = _Kept(seed, checkpoint, resume, budget)
    if isinstance(algorithm, CentralAlgorithm):
        check_central(adversary, fidelity, how.kernel, shuffler_shards, security, how.placement)
        made = run_curator(algorithm, data, host, workers=workers, execution=how, **vars(kept))
    else:
        asked = _Asked(fidelity, adversary, shuffler_shards, security)
        made = _by_users(algorithm, data, asked, host, workers, how, kept, auto=auto)
    return told(made, algorithm.users)


def _checked(algorithm: Any, execution: Execution | None, budget: Report | None) -> Execution:
    """How to run it.

    Raises:
        ParameterError: what cannot be run, or not on the budget of users; or no `Execution`.
    """
    if not isinstance(algorithm, Protocol | CentralAlgorithm):
        allowed = "a protocol or a central algorithm, such as VectorSum.calibrated(...)"
        raise ParameterError("algorithm", algorithm, allowed)
    if budget is not None and algorithm.protects is not None:
        allowed = f"None: it is of users, and this guarantee is of one {algorithm.protects} of each"
        raise ParameterError("budget", budget, allowed)
    how = Execution() if execution is None else execution
    if not isinstance(how, Execution):
        raise ParameterError("execution", execution, "None or an Execution(...)")
    return how


@dataclass(frozen=True)
class _Asked:
    """What is asked of a protocol's messages; as of `run`."""

    fidelity: str | None
    adversary: Adversary | None
    shuffler_shards: int | None
    security: str


@dataclass(frozen=True)
class _Kept:
    """What is kept of a run, and what it is charged to; as of `run`."""

    seed: int | None
    checkpoint: str | Path | None
    resume: bool
    budget: Report | None


def _by_users(
    protocol: Protocol[Any],
    data: Population | ArrayLike,
    asked: _Asked,
    host: Runtime,
    workers: int,
    how: Execution,
    kept: _Kept,
    *,
    auto: bool,
) -> Result:
    """Set up; then charge, exchange and observe round after round, until the protocol is done."""
    adversary, shards, security = asked.adversary, asked.shuffler_shards, asked.security
    population = suited(protocol, data)
    if kept.checkpoint is not None:  # the run may go on after its end: rows are watched
        population = population.watched()
    if adversary is not None and not isinstance(adversary, Adversary):
        raise ParameterError("adversary", adversary, "None or an Adversary")
    # Whoever resumes a run may have another number of workers, but not of the shuffler's shards.
    quick = host.quick_together and (kept.checkpoint is None or workers == 1)
    host.placement, shards = placed(how.placement, workers, shards, security, quick=quick)
    sizes = how.block_size, how.kernel, shards
    deployment, literal_size = deployment_of(
        protocol, asked.fidelity, kept.seed, adversary, *sizes, security, how.limits, how.generator
    )
    if auto:
        workers, deployment = sized(host, deployment, population, how.on_plan)
    if security == "onion":
        check_sealing_time(deployment, workers, how.sealing_seconds)
    check_adversary(adversary, protocol, population)
    # Before the journal is made: what is refused leaves no folder behind.
    ahead = check_report(kept.budget, data, _ahead(protocol), resume=kept.resume)
    identity = _identity(deployment, population, kept)
    journal = journal_of(kept.checkpoint, kept.resume, identity)
    deployment = replace(deployment, task=journal.task, entropy=journal.entropy)
    observed = Observed(deployment, literal_size)
    charged = partial(ledger_of, kept.budget, data=data, sequential=protocol.claims_sequential)
    with (
        journal,
        spending(ledger := charged(journal.task, ahead=ahead), protocol.delta),
        host,
    ):
        plan = host.open(deployment, population, workers)
        how.started()
        while plan is not None:
            planned = plan
            observed.plan(planned)
            # Before anybody answers; `exchanged` then has it on the disk.
            ledger.charge(planned.cohort, planned.event)
            exchange, plan = exchanged(journal, host, deployment, planned, ledger)
            observed.take(planned, exchange)
            if how.on_round is not None:
                query = deployment.opened(planned.broadcast).query
                how.on_round(observed.rounds - 1, ledger, observed.meter.costs, query)
        value = host.result()
        for each in _left_out(deployment, observed.rounds):
            ledger.charge(each.cohort, each.event)
    whole, promised = observed.guarantees(ledger, kept.seed)
    unit = protocol.protects or population.unit
    return Result(
        value=value,
        privacy=replace(whole, unit=unit),
        promised=replace(promised, unit=unit),
        rounds=observed.rounds,
        costs=observed.meter.costs,
        reports=replace(observed.reports, left_out=population.left_out),
        fidelity=deployment.fidelity,
        kernel=deployment.kernel,
        runtime=host.name,
        workers=workers,
        shuffler_shards=deployment.shuffler_shards,
        placement=host.placement,
        seed=kept.seed,
        ledger=ledger,
        trust=protocol.trust,
        security=deployment.security,
        standard_error=getattr(protocol, "standard_error", None) if observed.full else None,
        sensitivity=getattr(protocol, "sensitivity", None),
    )


def _ahead(protocol: Protocol[Any]) -> Iterator[Charge]:
    """What all rounds will cost, as far as it does not depend on what is seen in them."""
    if not protocol.adaptive:
        yield from (Charge(spec.cohort, spec.event) for spec in walked(copy(protocol)))


def _left_out(deployment: Deployment, rounds: int) -> list[Charge]:
    """Rounds that were agreed to, and that answers made the protocol leave out.

    They are charged, too: what a run costs must not follow from its answers.
    """
    protocol, agreed = deployment.protocol, deployment.agreed
    if protocol.adaptive or agreed is None or rounds >= agreed.rounds:
        return []
    return list(_ahead(protocol))[rounds:]


def _host(runtime: str | Runtime, round_timeout: float | None) -> Runtime:
    host: Runtime = runtime if isinstance(runtime, Runtime) else registered("runtime", runtime)()
    if round_timeout is not None:
        host.round_timeout = positive("round_timeout", round_timeout)
    return host


def _identity(deployment: Deployment, population: Population, kept: _Kept) -> RunIdentity:
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
        seed=kept.seed,
        task=deployment.task,
        entropy=deployment.entropy,
        libraries=["numba"] if deployment.kernel == "compiled" else [],
        report=kept.budget,
    )
