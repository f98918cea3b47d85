"""The run that is asked for: its own runtime, options, queries and shapes of data."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.bench import far, of_categories
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.empirical import Seen, canaries, whole_runs
from shuffle_sim.auditing.joint import JointLaw
from shuffle_sim.auditing.plan import CheckStep, Planned
from shuffle_sim.auditing.sealed import SEALS, check_runs, check_sealing
from shuffle_sim.auditing.stated import check_rounds
from shuffle_sim.auditing.watching import RereadRows, Watched, bits_of_chance, chance_of, rows_for
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.execution.setup import deployment_of
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec
from shuffle_sim.protocol.task import walked
from shuffle_sim.registry import registered
from shuffle_sim.roles import UserShard, count_type
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.kernels import fortran
from shuffle_sim.sampling.randomness import GENERATORS
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.fingerprint import fingerprint
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

_WORK = 2e7  # values of all rounds of a run that is made several times
_LOOKED = 96  # users whose values of their own are looked at
_LAWS = 1200  # of them, times labels
_SUMMED = 2**18  # outcomes of the sum over them
_ROUNDS = 120
_QUERIES = 6  # that are looked at
_COMPANY = 100  # times the rows, all at once
_SCALES = 1.0, -1.0, 10.0, 1e3, 1e6  # of rows, whose values must lie in the ball
_FAR = 0.0, 1e3, -1e6  # rows of others, in place of theirs
_SURE = 30  # bits of chance: what agrees in so many was not drawn anew
_DRAWN_FROM = 24  # users whose reports are drawn where no law says how often they agree
_MANY = 40  # tallies that two runs do not share all of


class Asked:
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

    def steps(self) -> Iterator[CheckStep]:
        """The checks of the run that is asked for."""
        missing = "" if self.data is not None else "no rows could be made for it: give data"
        known = all(hasattr(self.spec.randomizer, each) for each in ("count_pmf", "count_index"))
        large = "" if self._work() <= _WORK else f"a run has more than {_WORK:,.0f} values"
        law = "" if known else "its randomizer does not say its law"
        for name, looks_at, samples, power, why, make in (
            (
                "what a query asks of a user does not depend on others",
                "values of rows alone, in other company, beside extreme rows, and of rows far out",
                f"up to {_QUERIES} queries of all rounds",
                "a query that centres by other users' rows, or whose values leave the ball",
                missing,
                self.queries,
            ),
            (
                "each user's report on the protocol's own query has its exact law",
                "blocks of the run's own size, on its own data, kept and read anew",
                f"up to {_LOOKED} users in {_ROUNDS} rounds, at two fidelities",
                "noise left out for values of a query, or for a shape of data",
                missing or law,
                self.own,
            ),
            (
                "runs without a seed share nothing",
                "frames of users, views and tallies of whole runs, two by two",
                f"{self._runs} runs",
                "entropy that a runtime, a role or a run ignores",
                missing or large,
                self.unseeded,
            ),
            (
                "what roles seal tells nothing, and opens for nothing else",
                "keys and boxes of runs that send the same; boxes of one plaintext",
                f"two runs, and {SEALS} boxes for each purpose",
                "keys or boxes that come again; boxes that open for another role, purpose or round",
                missing or large,
                self.sealed,
            ),
            (
                "a seeded run gives the same bits by whoever hosts it",
                "results and tallies beside a run in process with one worker",
                "two runs",
                "a runtime whose roles are not given what they need",
                missing or large or self._seedless,
                self.hosted,
            ),
        ):
            if make == self.own and self.categories:
                continue  # their values are looked at one by one
            if make == self.sealed and self.options.get("security", "none") == "none":
                continue
            planned = Planned(name, looks_at, "" if why else samples, power, why)
            yield CheckStep(planned, None if why else make)

    @property
    def _runs(self) -> int:
        quick = 4 if self.plain else 2
        return 2 * quick if self.thorough else quick

    @property
    def _seedless(self) -> str:
        strong = self.execution.generator != GENERATORS[0]
        return "the cryptographic generator takes no seed" if strong else ""

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

    def queries(self) -> None:
        """The value of one user does not move with others' rows."""
        population = self.population()
        few = min(population.users, 24)
        rows = np.concatenate([population.rows(user, user + 1) for user in range(few)])
        queries: dict[bytes, Any] = {}
        for spec in walked(copy(self.protocol)):
            queries.setdefault(encode(spec.query), spec.query)
            if len(queries) == _QUERIES:
                break
        for place, query in enumerate(queries.values()):
            self._in_domain(f"query {place}", query, rows)
            alone = [dense(query(fortran(rows[user : user + 1])))[0] for user in range(few)]
            companies = [rows, rows[::-1], np.concatenate([rows] * _COMPANY)]
            if rows.dtype != object:
                companies += [
                    np.concatenate([rows[: few // 2], np.full_like(rows[: few // 2 + 1], far)])
                    for far in _FAR
                ]
            for each, company in enumerate(companies):
                found = dense(query(fortran(company)))
                wanted = np.array(alone)[::-1] if each == 1 else np.array(alone)
                held = few if each < 3 else few // 2
                if not np.allclose(found[:held], wanted[:held], 1e-9, 1e-12, equal_nan=True):
                    raise LawError(f"query {place}: the value of a row depends on other rows")

    def _in_domain(self, what: str, query: Query, rows: NDArray[Any]) -> None:
        """What is admitted of a query's values lies in the ball of the event, also far out."""
        law: Any = self.spec.randomizer
        if self.categories or not hasattr(law, "worst_pair") or rows.dtype.kind != "f":
            return
        first, second = (np.atleast_1d(x) for x in law.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        for scale in _SCALES:
            values = dense(admitted(query(fortran(scale * rows)), law)[0]).reshape(len(rows), -1)
            far = float(np.linalg.norm(values - middle, axis=1).max())
            if not far <= radius * (1 + 1e-9):
                raise LawError(f"{what}: {far / radius:.4g} times the radius is admitted")

    def own(self) -> None:
        """The own query's values, at the run's own block size, from rows kept and read anew."""
        population, randomizer = self.population(), self.spec.randomizer
        options = {name: self.options.get(name) for name in ("fidelity", "security")}
        at_literal = options["security"] == "onion" or options["fidelity"] == "literal"
        work = randomizer.report_messages * _LOOKED * _ROUNDS
        for fidelity in ("counts", "literal") if at_literal or work < 5e7 else ("counts",):
            kept = fidelity == "counts" or not isinstance(population, InMemory)
            self._own(population if kept else RereadRows(population), fidelity)

    def _own(self, population: Population, fidelity: str) -> None:
        law: Any = self.spec.randomizer
        how = self.execution
        deployment, _ = deployment_of(
            self.protocol, fidelity, None, None, how.block_size, how.kernel, 1, "none", None,
            how.generator,
        )  # fmt: skip
        deployment = replace(deployment, entropy=self.entropy, agreed=None)
        if deployment.block_size * law.report_messages > 2e7 and fidelity == "literal":
            return
        blocks = deployment.blocks()
        chosen = sorted({blocks[0], blocks[len(blocks) // 2], blocks[-1]})
        shard = self.shard(deployment, population, chosen)
        payload = self.spec.broadcast(deployment.vocabulary)
        size, labels = deployment.block_size, law.alphabet.labels
        asked = [
            user
            for block in chosen
            for low, high in self.spec.cohort.within(
                block * size, min((block + 1) * size, self.protocol.users)
            )
            for user in range(low, high)
        ]

        def value(user: int) -> Floats:
            row = fortran(population.rows(asked[user], asked[user] + 1))
            return np.atleast_1d(dense(admitted(self.spec.query(row), law)[0])[0])

        long = len(law.count_pmf(value(0), 0))
        many = max(2, min(_LOOKED, _LAWS // labels, _SUMMED // long))
        kept = np.unique(np.linspace(0, len(asked) - 1, min(many, len(asked))).astype(np.int64))
        seen = []
        for index in map(far, range(_ROUNDS)):
            context = Context.of_broadcast(deployment.task, index, payload)
            sent = Frame(Kind.ROUND, context, 0, 0, payload).tobytes()
            frames = [parse(data) for data in split_frames(shard.answer(sent)[0])]
            found = np.concatenate([self._counts(fidelity, each) for each in frames])
            if len(found) != len(asked):
                raise LawError(f"{len(found)} reports of {len(asked)} users")
            seen.append(found[kept])
        laws = [[law.count_pmf(x, label) for label in range(labels)] for x in map(value, kept)]
        joint = JointLaw(laws, np.arange(len(kept)), getattr(law, "label_group", 1))
        counts = np.asarray(law.count_index(np.stack(seen).astype(np.int64), 1))
        rng = np.random.default_rng([self.entropy, 11])
        joint.check(counts, rng, self.alarm / 2)

    def _counts(self, fidelity: str, frame: Frame) -> NDArray[np.integer]:
        randomizer = self.spec.randomizer
        if fidelity == "counts":
            found = np.frombuffer(frame.payload, count_type(randomizer))
            return found.reshape(-1, randomizer.alphabet.labels)
        each = Messages.from_bytes(
            randomizer.alphabet, randomizer.per_label, frame.payload, frame.reports
        )
        rows = each.symbols.sum(axis=-1, dtype=np.int64)
        return np.asarray(np.add.reduceat(rows, randomizer.alphabet.edges[:-1], axis=1))

    def unseeded(self) -> None:
        """No frame and no view of a run comes again in another, nor all of its tallies."""
        runs = [self._run() for _ in range(self._runs)]
        entropies = [each for _, seen in runs for each in seen.entropies]
        if entropies and (len(set(entropies)) < len(entropies) or min(entropies) < 1 << 64):
            raise LawError("two runs have one entropy, or one of few bits")
        kinds = {kind for _, seen in runs for kind, *_ in seen.frames}
        for (place, (_, first)), kind in product(enumerate(runs), kinds):
            same, bits = 0, list[float]()
            for _, second in runs[place + 1 :]:
                for key in first.frames.keys() & second.frames.keys():
                    if key[0] is kind:
                        users, sent = first.frames[key]
                        same += sent == second.frames[key][1]
                        # Of a sum no more is known than of one user in it.
                        bits.append(self._bits * (1 if kind is Kind.TALLY else users))
            if same and chance_of(same, bits) < 2.0**-_SURE:
                raise LawError(f"{same:,} of {len(bits):,} frames of runs are those of another")
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
        """Keys and boxes of two runs, of one seed if they take one; then boxes themselves."""
        seed = None if self._seedless else self.entropy % 2**63
        runs = [self._run(seed)[1] for _ in range(2)]
        check_runs(runs, self.spec.randomizer, self.alarm / 2)
        check_sealing(self.alarm / 2)

    def hosted(self) -> None:
        """The bits of the path that is asked for are those of a run in process."""
        seed = self.entropy % 2**63
        reference, plain = self._run(seed, host="inprocess", workers=1, security="none")
        if self.plain and self.protocol.users > 2:
            found, seen = self._run(seed, workers=min(3, self.protocol.users))
        else:
            found, seen = self._run(seed)
        alike = fingerprint(found.value) == fingerprint(reference.value)
        if not alike or not all(map(np.array_equal, seen.tallies, plain.tallies)):
            raise LawError("another result than in process with one worker")

    def _run(self, seed: int | None = None, host: Any = None, **more: Any) -> tuple[Any, Watched]:
        execution, runtime = self.execution, self.runtime if host is None else host
        if host is not None:
            execution = replace(execution, placement="apart")
        made = runtime if isinstance(runtime, Runtime) else registered("runtime", runtime)()
        seen = Watched()
        seen.watch(made)
        given = {"runtime": made, "seed": seed, "execution": execution, **self.options, **more}
        found = run(copy(self.protocol), self.data, **given)
        check_rounds(found, self.protocol)
        return found, seen

    def seen(self, known: bool) -> Seen | None:
        """Canaries in whole runs, by the randomizer's worst pair or by rows that are far apart."""
        if known:
            return canaries(self.protocol, seed=self.entropy)
        if self.data is None or not isinstance(population := self.population(), InMemory):
            return None
        return whole_runs(self.protocol, population.array, seed=self.entropy)
