"""The curator: the trusted party that alone sees the users' rows and alone calls a mechanism.

It charges the ledger, journals the charge, then draws. Statistics are computed over shards of the
rows, in process or on workers that belong to the curator; no randomness is drawn there, so a shard
that is lost is built again and asked again.
"""

import hashlib
import math
import secrets
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shuffle_sim.arrays import Floats, all_finite
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import DataChangedError, ParameterError, RoundAbortedError, integer
from shuffle_sim.execution.budget import Report
from shuffle_sim.execution.budget_ledger import check_report, ledger_of
from shuffle_sim.execution.checkpoint import journal_of
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.execution.journal import Journal
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import ReportCounts, Result, spending
from shuffle_sim.execution.runtime import ATTEMPTS, HostLostError, Runtime
from shuffle_sim.execution.setup import suited
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.release import CentralAlgorithm, Part, Release, WholeStatistic
from shuffle_sim.roles import CuratorShard
from shuffle_sim.sampling.randomness import GENERATORS, Role, check_generator, entropy_of, stream
from shuffle_sim.wire.codec import decode, encode

_BLOCKS = 16
_LARGEST_BLOCK = 65_536  # users: a block's rows are looked at together


class Curator:
    """Answers releases: charge, journal, draw.

    The value of a statistic depends on the block size only, never on the number of workers.
    """

    def __init__(
        self,
        host: Runtime,
        population: Population,
        workers: int,
        block_size: int,
        ledger: PrivacyLedger,
        journal: Journal,
        generator: str = GENERATORS[0],
    ) -> None:
        """Put the shards where the runtime hosts them."""
        self._host, self._ledger, self._journal = host, ledger, journal
        self._population, self._generator = population, generator
        self._rows, self._size = host.shared(population), block_size
        blocks = range(-(-population.users // block_size))
        self._blocks = [blocks[each::workers] for each in range(min(workers, len(blocks)))]
        self._contents: dict[int, bytes] | None = None
        self._shards = [self._shard(each) for each in self._blocks]
        found = self._ask("contents")
        self._contents = {block: each for shard in found for block, each in shard.items()}
        pairs = sorted(self._contents.items())
        self._content = hashlib.sha256(b"".join(each for _, each in pairs)).digest()
        self._users = population.users
        self._open: dict[int, Release] = {}  # the last query of each session that goes on
        self._queries = Counter[int]()  # of each session

    def answer(self, release: Release, index: int) -> Any:
        """The released value, or the journaled one if the release is over already.

        Raises:
            ParameterError: no release, one of users that do not exist, or of another number than
                its statistic counts on, of a smaller sensitivity than its statistic's, of what
                has no canonical bytes, or of a session that is not open for it. Nothing is charged
                then.
        """
        if not isinstance(release, Release):
            raise ParameterError("release", release, "None or a Release, as `plan` returns it")
        if release.cohort.stop > self._users:
            raise ParameterError("cohort", release.cohort.ranges, f"of {self._users} users")
        given, least = release.sensitivity, release.statistic.sensitivity
        users, size = getattr(release.statistic, "users", None), release.cohort.size
        if users not in (None, size):
            allowed = f"of {size} users, as its cohort has: its sensitivity is of so many"
            raise ParameterError("statistic", f"one of {users} users", allowed)
        if given.norm != least.norm or given.value < least.value:
            allowed = f"{least.value:g} in {least.norm} or more, as the statistic proves it"
            raise ParameterError("sensitivity", given, allowed)
        opened, public = self._session(release, index), release.public()
        if release.event is not None:
            # Rule 1 of docs/design.md: charged, then journaled, and only then drawn.
            self._ledger.charge(release.cohort, release.event)
        known = self._journal.charge(
            (
                ("release", hashlib.sha256(public).digest()),
                ("content of the data", self._content),
            )
        )
        if known is not None:
            (released,) = known
        else:
            value = self._value(release)
            rng = self._stream(index, 0)
            drawn = (rng,) if opened is None else (rng, opened)
            sampled = release.mechanism.sample(value, release.sensitivity.value, *drawn)
            # The first run sees what a resumed one reads: plain values, arrays that are read-only.
            released = decode(encode(sampled), ())
            self._journal.settle((released,))
        if release.event is not None:
            self._ledger.settle(release.cohort.size)
        if opened is not None:
            first = index if release.session is None else release.session
            # A session goes on only while its last answer says so (`released`).
            self._open.pop(first, None)
            if released:
                self._open[first] = release
        return released

    def _value(self, release: Release) -> Any:
        if isinstance(release.statistic, WholeStatistic):
            spans = release.cohort.ranges
            rows = [self._population.rows(low, high) for low, high in spans]
            self._check_content()
            return release.statistic.of(rows[0] if len(rows) == 1 else np.concatenate(rows))
        return release.statistic(
            lambda part: self._total(part, release.cohort), release.cohort.size
        )

    def _check_content(self) -> None:
        """Rows that were read here, not by the shards, are those that were first read.

        Raises:
            DataChangedError: they are others.
        """
        for block, first in (self._contents or {}).items():
            end = min((block + 1) * self._size, self._users)
            if first and self._population.content(block * self._size, end) != first:
                raise DataChangedError(block)

    def _session(self, release: Release, index: int) -> np.random.Generator | None:
        """The generator of the session's beginning: the same at each of its queries."""
        if not release.mechanism.sessions:
            return None
        first = index if release.session is None else release.session
        self._queries[first] += 1
        if self._queries[first] > (most := getattr(release.mechanism, "queries", math.inf)):
            raise ParameterError(
                "queries", self._queries[first], f"at most {most}, as was paid for"
            )
        if release.session is not None:
            if (paid := self._open.get(first)) is None:
                allowed = "the index of a release whose session is open: no query was below it yet"
                raise ParameterError("session", first, allowed)
            if (paid.cohort, paid.mechanism) != (release.cohort, release.mechanism):
                allowed = f"that of a release of {paid.cohort} by {paid.mechanism}, as was paid for"
                raise ParameterError("session", first, allowed)
        # Draw 0 is a release's own; 1 is the session's, of its first release.
        return self._stream(first, 1)

    def _stream(self, index: int, draw: int) -> np.random.Generator:
        return stream(self._journal.entropy, index, Role.CURATOR, draw, self._generator)

    def _total(self, part: Part, cohort: Cohort) -> Floats:
        """The sum over all blocks in order."""
        # Sums of doubles depend on their order: it is that of the blocks, whoever adds them up.
        found = [each for shard in self._ask("parts", part, cohort) for each in shard]
        return np.asarray(np.sum([value for _, value in sorted(found, key=itemgetter(0))], axis=0))

    def _ask(self, method: str, *arguments: Any) -> list[Any]:
        """What a method of every shard gives; lost shards are built again."""
        for _ in range(ATTEMPTS):
            try:
                asked = [self._host.call(shard, method, *arguments) for shard in self._shards]
                return [self._host.get([handle])[0] for (handle,) in asked]
            except HostLostError as error:
                lost = error
                pairs = zip(self._shards, self._blocks, strict=True)
                self._shards = [
                    shard if self._host.alive(shard) else self._shard(blocks)
                    for shard, blocks in pairs
                ]
        raise RoundAbortedError(f"a shard of the curator was lost {ATTEMPTS} times: {lost}")

    def _shard(self, blocks: range) -> Any:
        return self._host.host(CuratorShard, self._rows, blocks, self._size, self._contents)


def run_curator(
    algorithm: CentralAlgorithm[Any],
    data: Population | ArrayLike,
    host: Runtime,
    *,
    workers: int,
    seed: int | None,
    execution: Execution,
    checkpoint: str | Path | None,
    resume: bool,
    budget: Report | None = None,
) -> Result:
    """Run an algorithm of the trusted curator; `engine.run` is its public name.

    Raises:
        ParameterError: for bad parameters or data, before anything is drawn.
        CheckpointError: the disk does not take the checkpoint any more.
    """
    population = suited(algorithm, data)
    if checkpoint is not None:
        population = population.watched()
    default = max(1, min(-(-population.users // _BLOCKS), _LARGEST_BLOCK))
    asked_size, generator = execution.block_size, execution.generator
    size = default if asked_size is None else integer("block_size", asked_size)
    identity = RunIdentity(
        values={"algorithm": algorithm, "data": population},
        plan=algorithm.plan(algorithm.init()),
        settings={"block size": size, "generator": check_generator(generator, seed)},
        seed=seed,
        task=secrets.token_bytes(16),
        entropy=entropy_of(seed),
        report=budget,
    )
    state, index, asked, exact = algorithm.init(), 0, 0, True
    check_report(budget, data, (), resume=resume)
    journal = journal_of(checkpoint, resume, identity)
    with (
        journal,
        spending(ledger := ledger_of(budget, journal.task, data), algorithm.delta),
        host,
    ):
        host.start()
        execution.started()
        curator = Curator(host, population, workers, size, ledger, journal, generator)
        while (release := algorithm.plan(state)) is not None:
            answer = curator.answer(release, index)
            for each in algorithm.left_out(state, answer):
                ledger.charge(each.cohort, each.event)
            state = algorithm.update(state, answer)
            asked += release.cohort.size
            exact &= release.mechanism.exact
            if execution.on_round is not None:
                execution.on_round(index, ledger, Costs(), release.statistic)
            index += 1
    guarantee = _guarantee(algorithm, population, ledger, seed, exact)
    return Result(
        value=algorithm.result(state),
        privacy=guarantee,
        promised=guarantee,
        rounds=index,
        costs=Costs(),
        reports=ReportCounts(
            asked=asked,
            accepted=asked,
            nonfinite=_nonfinite(population),
            left_out=population.left_out,
        ),
        fidelity="none",
        kernel="numpy",
        runtime=host.name,
        workers=workers,
        shuffler_shards=0,
        seed=seed,
        ledger=ledger,
        trust=algorithm.trust,
    )


def _nonfinite(population: Population) -> int:
    """Rows in memory with NaN or infinity: the simulator's view, no part of a release."""
    if not isinstance(population, InMemory) or population.array.dtype.kind != "f":
        return 0
    if all_finite(population.array):
        return 0
    rows = population.array.reshape(population.users, -1)
    return int(population.users - np.isfinite(rows).all(axis=1).sum())


def _guarantee(
    algorithm: CentralAlgorithm[Any],
    population: Population,
    ledger: PrivacyLedger,
    seed: int | None,
    exact: bool,
) -> Guarantee:
    notes = [algorithm.trust.assumption, *algorithm.assumptions, *algorithm.believed]
    if algorithm.trust is not Trust.NONE:
        attacked = "floating-point noise (Mironov 2012; Haney et al. 2022)"
        notes.append("integer noise, drawn exactly" if exact else attacked)
    if seed is not None:
        notes.append("seeded: reproducible, and therefore not private")
    found = ledger.guarantee(algorithm.delta, assumptions=tuple(notes))
    return replace(found, unit=population.unit)
