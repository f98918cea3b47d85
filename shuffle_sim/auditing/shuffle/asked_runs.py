"""Whole runs of what is audited, with the options that are asked for."""

from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from shuffle_sim.auditing.claims.aside import aside, check_errors, unkept
from shuffle_sim.auditing.claims.entropy import drawn_alike, named_alike, spread
from shuffle_sim.auditing.claims.neighbours import nearly
from shuffle_sim.auditing.claims.plan import UncheckedError
from shuffle_sim.auditing.claims.resuming import Drawn, Kept, renamed
from shuffle_sim.auditing.claims.stated import check_beside, check_rounds
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.bench import ANYTHING, of_categories
from shuffle_sim.auditing.shuffle.changing import check_changed
from shuffle_sim.auditing.shuffle.company import Corrupted
from shuffle_sim.auditing.shuffle.far_rows import check_far
from shuffle_sim.auditing.shuffle.sealed import check_runs, check_sealing
from shuffle_sim.auditing.shuffle.watching import (
    Reference,
    Watched,
    bits_of_chance,
    check_frames_apart,
    check_names,
    rows_for,
)
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.errors import ParameterError, RoundAbortedError
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result
from shuffle_sim.execution.runtime import HostLostError, Runtime
from shuffle_sim.execution.setup import deployment_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.task import walked
from shuffle_sim.registry import registered
from shuffle_sim.roles import FIDELITIES, Deployment, Station, UserShard
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.kernels import KERNELS, fortran
from shuffle_sim.sampling.randomness import GENERATORS
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.fingerprint import fingerprint
from shuffle_sim.wire.frames import Kind

_WORK = 2e7  # values of all rounds of a run that is made several times
_DRAWN_FROM = 24  # users whose reports are drawn where no law says how often they agree
_ASKS = "answer", "gather"  # users for what they send
_BLOCKS = 7, 640  # users of blocks of other runs
_SILENT = 3  # of so many users one is, in runs that others go on with
_RECORDS = 3  # of persons at most, where all have one; else all have one
_OUT = 10.0  # times the rows
_MANY = 40  # tallies that two runs do not share all of


class AskedRuns:
    """A protocol, the data that it would be run on, and the options of the run."""

    alarm = 1e-8

    def __init__(
        self,
        protocol: Protocol[Any],
        data: Any,
        options: dict[str, Any],
        entropy: int,
        shard: type[UserShard] = UserShard,
        *,
        thorough: bool = False,
    ) -> None:
        """Make rows where none are given."""
        self.protocol, self.entropy, self.shard = protocol, entropy, shard
        self._untouched = deepcopy(protocol)  # by rows: runs may keep what they saw
        self.thorough, self.given = thorough, data
        self.options = dict(options)
        execution: Execution = self.options.pop("execution", None) or Execution()
        # Unless roles together are asked for, what passes between roles is looked at.
        self.execution = replace(execution, placement=execution.placement or "apart")
        self.runtime: Any = self.options.pop("runtime", "inprocess")
        spec = protocol.plan(protocol.init())
        if spec is None:
            raise ParameterError("protocol", protocol, "one that asks users something")
        self.spec: RoundSpec = spec
        small = protocol.users * spec.randomizer.alphabet.labels <= _WORK
        self.data = rows_for(protocol, spec, entropy) if data is None and small else data

    @property
    def plain(self) -> bool:
        """Whether it is a run in process, as by default."""
        others = {name: value for name, value in self.options.items() if name != "fidelity"}
        alone = others.get("workers", 1) == 1 and others.get("security", "none") == "none"
        return self.runtime == "inprocess" and alone and self.execution.placement == "apart"

    @property
    def categories(self) -> bool:
        """Whether users hold categories, or send words."""
        return of_categories(self.spec.randomizer)

    @property
    def _runs(self) -> int:
        quick = 4 if self.plain else 2
        return 2 * quick if self.thorough else quick

    def _work(self) -> float:
        """Values of all rounds."""
        total = 0.0
        for spec in walked(copy(self.protocol)):
            total += spec.cohort.size * spec.randomizer.alphabet.labels
            if total > _WORK:
                break
        return total

    def population(self) -> Population:
        """The rows as a run takes them."""
        return population_for(self.protocol.unit, self.data, self.protocol.most_records)

    def unseeded(self) -> None:
        """No frame and no view of a run comes again in another, nor all of its tallies."""
        runs = [self._run() for _ in range(self._runs - 1)]
        check_names([each for _, seen in runs for each in seen.tasks])
        with named_alike():  # all who see a frame know the run's name: entropy is not made of it
            runs += [self._run() for _ in range(2)]
        with drawn_alike():  # nor is its name made of its entropy
            check_names([each for _ in range(2) for each in self._run()[1].tasks])
        entropies = [each for _, seen in runs for each in seen.entropies]
        if entropies and (len(set(entropies)) < len(entropies) or min(entropies) < 1 << 64):
            raise LawError("two runs have one entropy, or one of few bits")
        if any(seen.generators - {self.execution.generator} for _, seen in runs):
            raise LawError(f"some roles do not draw by {self.execution.generator}")
        check_frames_apart([seen for _, seen in runs], self._bits)
        tallies = [np.concatenate(seen.tallies) for _, seen in runs if seen.tallies]
        if len(tallies) > 1 and tallies[0].size * (len(tallies) - 1) >= _MANY:
            same = sum(np.array_equal(one, two) for one, two in combinations(tallies, 2))
            if same:
                raise LawError(f"{same} pairs of {len(tallies)} runs give the same tallies")

    @cached_property
    def _bits(self) -> float:
        """Bits of chance in what a user sends, at least."""
        spec, population = self.spec, self.population()
        rows = fortran(population.rows(0, min(population.users, _DRAWN_FROM)))
        values, *_ = admitted(spec.query(rows), spec.randomizer)
        return bits_of_chance(spec.randomizer, values, self.entropy)

    def sealed(self) -> None:
        """Keys and boxes of two runs of one seed; then boxes themselves."""
        runs = [self._run(spread(self.entropy) % 2**63)[1] for _ in range(2)]
        check_runs(runs, self.spec.randomizer, self.alarm / 2)
        check_sealing(self.alarm / 2)

    def hosted(self) -> None:
        """The bits of the path that is asked for are those of a run in process."""
        # Of all bits that a seed may have: a host may leave out some.
        seed = (spread(self.entropy) | 1 << 127) & ~1
        reference, plain = self._run(seed, host=Reference(), workers=1, security="none")
        if self.plain and self.protocol.users > 2:
            found, seen = self._run(seed, workers=min(3, self.protocol.users))
        else:
            found, seen = self._run(seed)
        alike = fingerprint(found.value) == fingerprint(reference.value)
        if not alike or not all(map(np.array_equal, seen.tallies, plain.tallies)):
            raise LawError("another result than in process with one worker")
        shared = seen.frames.keys() & plain.frames.keys()
        if found.shuffler_shards != reference.shuffler_shards:  # then views are cut otherwise
            shared = {key for key in shared if key[0] is not Kind.VIEW}
        for key in shared:
            if seen.frames[key] != plain.frames[key]:
                kind, index, *_ = key
                raise LawError(f"round {index}: a {kind.name.lower()} frame that no role sends")
        self._replay(found, seen)
        self._beside(found, seed)
        rows = getattr(self.population(), "array", None)
        apart = self.execution.placement == "apart"  # each block's frames stay its own
        if apart and isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim < 3:
            size = self._deployment(self.options.get("fidelity")).block_size
            known = size, self._bits, self.categories
            check_far(lambda table, more: self._run(seed + more, data=table)[1], rows, *known)

    def _replay(self, found: Any, seen: Watched) -> None:
        """The result is that of the views alone."""
        protocol = deepcopy(self._untouched)
        state = protocol.init()
        for place, tally in enumerate(seen.views):
            spec = protocol.plan(state)
            if spec is None or encode(spec.query) != seen.queries[place]:
                raise LawError(f"what round {place} asks does not follow from earlier views")
            state = protocol.update(state, spec.analyze(tally))
        if protocol.plan(state) is not None:
            raise LawError("the run ends by something else than its views")
        if fingerprint(protocol.result(state)) != fingerprint(found.value):
            raise LawError("the result does not follow from the views")

    def _beside(self, found: Any, seed: int) -> None:
        """What is asked first, and told beside a result's value, is that of rows far out."""
        population, persons = self.population(), self.protocol.unit is Unit.PERSON
        rows = self.data if persons else getattr(population, "array", None)
        if not isinstance(rows, np.ndarray):
            return
        if persons:  # how many records each has is its own
            moved = np.empty(len(rows), object)
            for place, each in enumerate(rows):
                many = 1 if len(each) > 1 else 1 + place % _RECORDS
                moved[place] = np.resize(each, (many, np.shape(each)[-1]))
        elif self.spec.randomizer.view != "sums":  # categories stay: all hold the first one's
            moved = np.repeat(rows[:1], len(rows), axis=0)
        else:
            moved = rows * _OUT

        def on(table: Any) -> tuple[Any, Watched]:
            return self._run(seed, data=table)

        check_errors(on, rows)
        with suppress(ParameterError):  # such rows are refused
            # Other hosts print, and keep files of their own.
            runs = aside if isinstance(self._host(), InProcessRuntime) else unkept
            (_, seen), (other, shown) = runs(on, (rows, moved))
            check_beside(found, other)
            if shown.queries[:1] != seen.queries[:1]:
                raise LawError("what is asked first depends on rows")
            if shown.given != seen.given:
                raise LawError("the shuffler, or the analyzer, is given what follows from rows")

    def resumed(self) -> None:
        """What a stopped run leaves on disk, and who may go on; what lost roles draw from."""
        self.put_back(host := self._host())
        if not isinstance(host, InProcessRuntime):
            self.put_back(InProcessRuntime())
        population, others = self.population(), list[Any]()
        known = self._deployment(self.options.get("fidelity"))
        check_changed(self.shard, replace(known, agreed=ANYTHING), self.spec, population)
        if isinstance(population, InMemory) and population.array.dtype.kind == "f":
            others = nearly(population.array)
        remembers = self.options.get("adversary") is not None
        Kept(self._kept, self.data, others, self.execution, remembers, self._drawing()).check()

    def _deployment(self, fidelity: str | None) -> Deployment:
        """Of the run, in process; None: with the fidelity that it chooses."""
        how = self.execution
        found, _ = deployment_of(
            self.protocol, fidelity, None, None, how.block_size, how.kernel, 1, "none", None,
            how.generator,
        )  # fmt: skip
        return replace(found, entropy=self.entropy)

    def _drawing(self) -> list[dict[str, Any]]:
        """Options of other runs, each of which would draw a second report from the same streams."""
        known = self._deployment(self.options.get("fidelity"))
        silent = None if self.options.get("adversary") else Corrupted(_SILENT, silent=True)
        others: dict[str, Any] = {"block_size": _BLOCKS, "generator": GENERATORS, "kernel": KERNELS}
        if self.options.get("security") != "onion":  # which has one fidelity
            others["fidelity"] = FIDELITIES
        found = [(name, each) for name, every in others.items() for each in every]
        drawn = [{name: each} for name, each in found if each != getattr(known, name)]
        return [{"adversary": silent}, *drawn]

    def put_back(self, host: Runtime) -> None:
        """Roles that are lost as they answer are put back with the entropy that they had.

        And users with what they were asked: else they would answer the round as another one.
        """
        put, call, get, hosted = host.host, host.call, host.get, dict[str, set[int]]()
        asked, lost = list[bytes](), list[str]()

        def noted(role: Any, *arguments: Any) -> Any:
            told = [each for one in arguments if isinstance(one, tuple) for each in one]
            if lost and role in (UserShard, Station) and not {*asked} <= {*told}:
                raise LawError("users that are put back do not know what they have answered")
            hosted.setdefault(role.__name__, set()).add(getattr(arguments[0], "entropy", 0))
            return put(role, *arguments)

        def called(role: Any, method: str, *arguments: Any, **more: Any) -> list[Any]:
            asked.extend(arguments[:1] if method in _ASKS else ())
            return call(role, method, *arguments, **more)

        def gotten(*waited: Any, **more: Any) -> Any:
            found = get(*waited, **more)
            if asked and not lost:
                lost.append("answers")
                raise HostLostError("lost in an audit")
            return found

        seen: dict[str, Any] = {"host": noted, "call": called, "get": gotten}
        if isinstance(host, InProcessRuntime):  # others would have to end what still lives
            seen["alive"] = lambda _: False
        vars(host).update(seen)
        try:
            self._ran(copy(self.protocol), self.data, runtime=host, **self.options)
        finally:
            for name in seen:
                del vars(host)[name]
        if any(len(entropies) > 1 for entropies in hosted.values()):
            raise LawError("roles that are put back draw from another entropy: a second release")

    def _kept(self, rows: Any, drawn: Drawn | None, named: str, **given: Any) -> Result:
        host = self._host()
        call, put, entropies = host.call, host.host, list[int]()

        def hosted(role: Any, *arguments: Any) -> Any:
            entropies.append(getattr(arguments[0], "entropy", 0))
            return put(role, *arguments)

        def called(role: Any, method: str, *arguments: Any, **more: Any) -> list[Any]:
            if drawn is not None and method in _ASKS:
                drawn(bytes(arguments[0]), next(filter(None, entropies), None))
            return call(role, method, *arguments, **more)

        vars(host)["call"], vars(host)["host"] = called, hosted
        protocol = renamed(copy(self.protocol), named)
        found = self._ran(protocol, rows, runtime=host, **self.options | given)
        check_rounds(found, self.protocol)
        return found

    def _host(self) -> Runtime:
        """A runtime that is the run's own."""
        given: Any = self.runtime
        return given if isinstance(given, Runtime) else registered("runtime", given)()

    def _run(
        self, seed: int | None = None, host: Any = None, data: Any = None, **more: Any
    ) -> tuple[Any, Watched]:
        seen = Watched()
        execution = replace(self.execution, on_round=seen.round)
        if host is not None:
            execution = replace(execution, placement="apart")
        made = self._host() if host is None else host
        # The cryptographic generator takes no seed: its roles are given this in place of theirs.
        seedless = execution.generator != GENERATORS[0]
        seen.watch(made, seed if seedless else None)
        own = None if seedless else seed
        given = {"runtime": made, "seed": own, "execution": execution, **self.options, **more}
        rows = self.data if data is None else data
        found = self._ran(deepcopy(self._untouched), rows, **given)
        check_rounds(found, self.protocol)
        seen.check_kept(found, seed)
        return found, seen

    def _ran(self, protocol: Protocol[Any], rows: Any, **given: Any) -> Result:
        """A run's result; one that an adversary keeps from releasing is not looked at."""
        try:
            return run(protocol, rows, **given)
        except RoundAbortedError as error:
            if self.options.get("adversary") is None:
                raise
            raise UncheckedError(f"the adversary ends the run: {error}") from error
