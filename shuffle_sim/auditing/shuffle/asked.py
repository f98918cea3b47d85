"""The run that is asked for: its own runtime, options, queries and shapes of data."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.auditing.claims.empirical import Seen
from shuffle_sim.auditing.claims.neighbours import RereadRows
from shuffle_sim.auditing.claims.plan import CheckStep, Planned
from shuffle_sim.auditing.laws.joint import JointLaw
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.auditing.shuffle.asked_runs import AskedRuns
from shuffle_sim.auditing.shuffle.bench import ANYTHING, far, round_frame
from shuffle_sim.auditing.shuffle.canaries import canaries, whole_runs
from shuffle_sim.auditing.shuffle.changing import broadcast
from shuffle_sim.auditing.shuffle.sealed import SEALS, check_hops
from shuffle_sim.auditing.shuffle.tasks import check_task
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.base import Query
from shuffle_sim.protocol.task import walked
from shuffle_sim.roles import count_type
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.kernels import KERNELS, fortran, using
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.frames import Frame, Kind, parse, split_frames
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
_DRAWN_FROM = 24  # users whose reports are drawn where no law says how often they agree


class Asked(AskedRuns):
    """What is looked at of the run that is asked for."""

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
                "users answer only what was agreed before the run",
                "rounds too late or too often, of too few users, or released too early",
                "a round of each kind",
                "roles that hold no server to the task",
                missing,
                self.agreed,
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
                "a stopped run is charged, and goes on with its own rows alone",
                "runs stopped as users are asked, and after a round: disk, rows, what is asked",
                "six runs",
                "a round that is asked before it is on disk; a run that goes on with other rows",
                missing or large,
                self.resumed,
            ),
            (
                "a seeded run gives the same bits by whoever hosts it",
                "frames, views and results beside a run of the roles themselves; one row far out",
                "two runs, and up to seven tables",
                "roles that draw or shuffle otherwise; users that one row reorders or scales",
                missing or large,
                self.hosted,
            ),
        ):
            if make == self.own and self.categories:
                continue  # their values are looked at one by one
            if make == self.sealed and self.options.get("security", "none") == "none":
                continue
            planned = Planned(name, looks_at, "" if why else samples, power, why)
            yield CheckStep(planned, None if why else make)

    def queries(self) -> None:
        """The value of one user does not move with others' rows, by any kernel."""
        for kernel in KERNELS if find_spec("numba") else KERNELS[:1]:
            with using(kernel), naming(kernel):
                self._queries()

    def _queries(self) -> None:
        population = self.population()
        few = min(population.users, 24)
        rows = np.concatenate([population.rows(user, user + 1) for user in range(few)])
        ragged = _ragged(rows) if self.protocol.unit is Unit.PERSON else None
        queries: dict[bytes, Any] = {}
        for spec in walked(copy(self.protocol)):
            queries.setdefault(encode(spec.query), spec.query)
            if len(queries) == _QUERIES:
                break
        for place, query in enumerate(queries.values()):
            self._in_domain(f"query {place}", query, rows)
            if ragged is not None:
                what = f"query {place}, of persons with few records"
                self._in_domain(what, query, ragged)
                _check_alone(what, query, ragged)
            self._near(f"query {place}", query, rows)
            _check_alone(f"query {place}", query, rows)
            if rows.dtype != object:  # some of them far out: what is clipped of a user is its own
                scales = np.resize(_SCALES, few).reshape(-1, *[1] * (rows.ndim - 1))
                _check_alone(f"query {place}, far out", self._admits(query), scales * rows)

    def _admits(self, query: Query) -> Callable[[Any], Values]:
        """What is taken of the query's values, by rows."""
        return lambda rows: admitted(query(rows), self.spec.randomizer)[0]

    def sealed(self) -> None:
        """As of whole runs; and of hops alone, who is taken at its word."""
        super().sealed()
        if self.options.get("security") != "transport":
            return
        deployment = replace(self._deployment("counts"), security="transport", agreed=ANYTHING)
        payload = self.spec.broadcast(deployment.vocabulary)
        frame = round_frame(payload, 0, deployment.task)
        check_hops(deployment, self.population(), frame, self.shard)

    def _in_domain(self, what: str, query: Query, rows: NDArray[Any]) -> None:
        """What is admitted of a query's values lies in the ball of the event, also far out."""
        law: Any = self.spec.randomizer
        if self.categories or not hasattr(law, "worst_pair") or rows.dtype.kind not in "fO":
            return
        first, second = (np.atleast_1d(x) for x in law.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        for scale in _SCALES:
            values = dense(admitted(query(fortran(scale * rows)), law)[0]).reshape(len(rows), -1)
            far = float(np.linalg.norm(values - middle, axis=1).max())
            if not far <= radius * (1 + 1e-9):
                raise LawError(f"{what}: {far / radius:.4g} times the radius is admitted")

    def _near(self, what: str, query: Query, rows: NDArray[Any]) -> None:
        """No values of neighbours are farther apart than a query states."""
        if math.isinf(query.apart) or rows.dtype.kind != "f":
            return
        few = [rows, np.repeat(rows[:, :1], rows.shape[1], axis=1)] if rows.ndim > 2 else [rows]
        turned = [each * np.append(np.ones(each.shape[-1] - 1), -1.0) for each in few]
        every = [scale * each for each in (*few, *turned) for scale in _SCALES]
        if rows.ndim > 2 and self.protocol.protects is Unit.RECORD:
            # One record is another one: a person's others stay.
            every = [np.concatenate([each[:, :1], rows[:, 1:]], axis=1) for each in (rows, *every)]
        values = np.array([dense(query(fortran(each))).reshape(len(rows), -1) for each in every])
        if rows.ndim < 3 or self.protocol.protects is not Unit.RECORD:
            values = values.reshape(-1, 1, values.shape[2])  # any two are of neighbours
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        far = max(float(np.linalg.norm(values - each, axis=2).max()) for each in values)
        if far > query.apart * (1 + 1e-9):
            raise LawError(f"{what}: values are {far:.6g} apart, stated is {query.apart:.6g}")

    def agreed(self) -> None:
        """What no round of the run can ask is refused."""
        deployment = self._deployment("counts")
        if (task := deployment.agreed) is None:
            return
        population, spec, first = self.population(), self.spec, deployment.blocks()[:1]
        asked = partial(broadcast, deployment)
        check_task(task, spec, deployment.vocabulary)
        other = asked(1, replace(spec, minimum=spec.minimum + 1))
        payload, context = spec.broadcast(deployment.vocabulary), parse(other).context
        turned = Frame(Kind.ROUND, replace(context, round=0), 0, 0, payload).tobytes()
        shard = self.shard(deployment, population, first)
        _refused(partial(shard.answer, turned), "a round that says to be another one")
        tries = [("a round after the last", task.rounds, spec)]
        if task.cohort > 1:
            few = replace(spec, cohort=Cohort.of(0, task.cohort - 1))
            tries.append(("a round of fewer users than agreed", 0, few))
        if task.minimum > 1:
            early = replace(spec, minimum=task.minimum - 1)
            tries.append(("a release of fewer reports than agreed", 0, early))
        for what, index, round_ in tries:
            shard = self.shard(deployment, population, first)
            _refused(partial(shard.answer, asked(index, round_)), what)
        most = task.participation
        if most < min(task.rounds, _ROUNDS):
            shard = self.shard(deployment, population, first)
            for index in range(most):
                shard.answer(asked(index, spec))
            late = partial(shard.answer, asked(most, spec))
            _refused(late, f"a user in more rounds than {most}")
            size, half = spec.cohort.size, spec.cohort.size // 2
            if half and self.protocol.users > size + half:
                # Users of every part of a cohort are counted.
                parts = replace(spec, cohort=Cohort(((0, half), (half + 1, size + 1))))
                later = replace(spec, cohort=Cohort.of(half + 1, half + 1 + size))
                shard = self.shard(deployment, population, deployment.blocks())
                for index in range(most):
                    shard.answer(asked(index, parts))
                again = partial(shard.answer, asked(most, later))
                _refused(again, f"a user of a second range in more rounds than {most}")

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
        deployment = replace(self._deployment(fidelity), agreed=ANYTHING)
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
            sent = round_frame(payload, index, deployment.task)
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

    def seen(self, known: bool, unsure: Callable[[Seen], bool] = lambda _: False) -> Seen | None:
        """Canaries in whole runs, by the worst pair or by rows far apart; unsure ones once more."""
        population = self.population() if self.data is not None else None
        if not known and not isinstance(population, InMemory):
            return None
        found = None
        for entropy in (self.entropy, self.entropy + 1):
            if known:
                found = canaries(self.protocol, seed=entropy)
            elif isinstance(population, InMemory):
                found = whole_runs(self.protocol, population.array, seed=entropy)
            if found is None or not unsure(found):
                break
        return found


def _check_alone(what: str, query: Callable[[Any], Values], rows: NDArray[Any]) -> None:
    """The value of a row is the same in any company, also beyond the pieces of every kernel."""
    few = len(rows)
    alone = np.array([dense(query(fortran(rows[user : user + 1])))[0] for user in range(few)])
    companies = [(rows, alone), (rows[::-1], alone[::-1])]
    companies.append((np.concatenate([rows] * _COMPANY), np.concatenate([alone] * _COMPANY)))
    if rows.dtype != object:
        half = few // 2
        for far in _FAR:
            others = np.full_like(rows[: half + 1], far)
            companies.append((np.concatenate([rows[:half], others]), alone[:half]))
    for company, wanted in companies:
        found = dense(query(fortran(company)))[: len(wanted)]
        if not np.allclose(found, wanted, 1e-9, 1e-12, equal_nan=True):
            raise LawError(f"{what}: the value of a row depends on other rows")


def _refused(act: Callable[[], Any], what: str) -> None:
    with suppress(FrameError):
        act()
        raise LawError(f"{what} is answered")


def _ragged(rows: NDArray[Any]) -> NDArray[Any] | None:
    """Every other person without the last record; None: they have no records to leave out."""
    if rows.ndim < 3 and rows.dtype != object:
        return None
    found = np.empty(len(rows), object)
    for person, each in enumerate(rows):
        found[person] = each[:-1] if person % 2 and len(each) > 1 else each
    return found
