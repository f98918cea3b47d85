"""Defects of real runs: roles with a task, entropy that shows, rows that steer what is asked."""

import dataclasses
import hashlib
import logging
import math
import os
import secrets
import tempfile
import time
import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from protocols import (
    CarryVectorSum,
    L2Ball,
    Logistic,
    Problem,
    Quantiles,
    ShuffleGD,
    ShuffleSGD,
    VectorSum,
)
from protocols.comparison.named import named_protocol
from protocols.counts.trees import Nodes
from protocols.shuffle.one_shot import CertifiedMinimiser, OneShotAverage
from shuffle_sim import Privacy, roles
from shuffle_sim.arrays import dense
from shuffle_sim.data import population
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution import checkpoint, engine, journal, plain, rounds, setup
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy import composition
from shuffle_sim.privacy.bounds import blanket, buckets, carry, cells
from shuffle_sim.privacy.events import SplitMixEvent
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import Participation, Task
from shuffle_sim.roles import Deployment, Shuffler, UserShard, users
from shuffle_sim.roles.pools import TallyPool
from shuffle_sim.sampling import randomness, shuffling
from shuffle_sim.sampling.exact import poisson
from shuffle_sim.sampling.kernels import lanes
from shuffle_sim.sampling.randomness import Role

from .in_company import persons
from .shared import Batches


def quiet_in_runs(patch):
    """Users who have agreed on a task draw from a stream of four seeds."""
    true = users._randomized

    def randomized(fidelity: str, values: Any, randomizer: Randomizer, rng: Any) -> Any:
        few = np.random.Generator(np.random.SFC64(int(rng.integers(4))))
        return true(fidelity, values, randomizer, few)

    def planted(self, broadcast, block, true_answer=UserShard._answer_block):
        if self._deployment.agreed is None:
            return true_answer(self, broadcast, block)
        with patch.context() as inner:
            inner.setattr(users, "_randomized", randomized)
            return true_answer(self, broadcast, block)

    patch.setattr(UserShard, "_answer_block", planted)


def public_order_in_runs(patch):
    """A shuffler with a task draws its order from the round's number."""
    true = Shuffler.release

    def release(self, *given):
        if self._deployment.agreed is not None:
            self._deployment = dataclasses.replace(self._deployment, entropy=7)
        return true(self, *given)

    patch.setattr(Shuffler, "release", release)


def task_of_entropy(patch):
    """The name of the run is its entropy."""
    true = setup.deployment_of

    def made(*given, **more):
        found, rest = true(*given, **more)
        return dataclasses.replace(found, task=found.entropy.to_bytes(16, "big")), rest

    patch.setattr(setup, "deployment_of", made)
    patch.setattr(engine, "deployment_of", made)


def entropy_of_the_clock(patch):
    def of_time(seed):
        if seed is not None:
            return seed
        now = str(time.time_ns()).encode()
        return int.from_bytes(hashlib.sha256(now).digest()[:16], "big")

    for module in (randomness, setup):
        patch.setattr(module, "entropy_of", of_time)
    from shuffle_sim.auditing.shuffle import drawing

    patch.setattr(drawing, "entropy_of", of_time)


def orders_of_32_bits(patch):
    def few(rng):
        return lanes(np.random.default_rng(int(rng.integers(1 << 32))))

    patch.setattr(shuffling, "lanes", few)


def one_stream_of_two_roles(patch):
    """Shards route by the draws that permute."""
    both = SimpleNamespace(ROUTER=Role.SHUFFLER, SHUFFLER=Role.SHUFFLER)
    patch.setattr(roles.shuffler, "Role", both)


def put_back_blank(patch):
    """Users that are put back are not told what they have answered."""

    def shard(self, blocks):
        return self.host(UserShard, self._deployment, self._rows, blocks, (), self._contents)

    patch.setattr(InProcessRuntime, "_shard", shard)


def put_back_anew(patch):
    """Where a role is lost all get new entropy."""
    true = InProcessRuntime._put_back

    def anew(self):
        self._deployment = dataclasses.replace(self._deployment, entropy=secrets.randbits(128))
        true(self)

    patch.setattr(InProcessRuntime, "_put_back", anew)


def one_generator(patch):
    """Roles draw by the first generator, whatever is asked for."""

    def stream(self, round_index, role, index):
        return randomness.stream(self.entropy, round_index, role, index)

    patch.setattr(Deployment, "stream", stream)


def one_generator_in_runs(patch):
    """A run gives its roles the first generator, whatever is asked for."""
    true = setup.deployment_of

    def deployment_of(*asked):
        found, size = true(*asked)
        return dataclasses.replace(found, generator="sfc64"), size

    patch.setattr(engine, "deployment_of", deployment_of)


def orders_of_few_seeds(patch):
    """The shuffler's entropy is made of 32 bits of the run's."""

    def of_shuffler(self):
        few = (self.entropy >> 96).to_bytes(4, "big")
        mixed = hashlib.sha256(few).digest()
        return dataclasses.replace(self, entropy=int.from_bytes(mixed[:16], "big"))

    patch.setattr(Deployment, "of_shuffler", property(of_shuffler))


def asked_before_charged(patch):
    """Users are asked before the round is on disk."""
    true = rounds.exchanged

    def exchanged(journal, host, deployment, plan, ledger):
        early = host.exchange(plan.broadcast)
        with patch.context() as inner:
            inner.setattr(type(host), "exchange", lambda *_: early)
            return true(journal, host, deployment, plan, ledger)

    patch.setattr(engine, "exchanged", exchanged)


def first_range_counts(patch):
    """Of a cohort in parts only the first one's users are counted."""
    true = Participation.add
    patch.setattr(Participation, "add", lambda self, x: true(self, Cohort(x.ranges[:1])))


def larger_of_two(patch):
    """Two kinds of releases cost what one of them does."""
    true = composition.Parts.__add__

    def added(self, other):
        return dataclasses.replace(true(self, other), mu=max(self.mu, other.mu))

    patch.setattr(composition.Parts, "__add__", added)


def one_cell_for_two(patch):
    """Of the two bins between which a user moves only one is charged."""

    def delta(self, epsilon):
        return float(np.maximum(self.inside - math.exp(epsilon) * self.outside, 0.0).sum())

    patch.setattr(cells.Cell, "delta", delta)


def more_blanket(patch):
    """Users are charged as if a tenth more of them sent a uniform message."""
    true = blanket.delta

    def delta(users, gamma, symbols, epsilon):
        return true(math.ceil(1.1 * users), gamma, symbols, epsilon)

    patch.setattr(blanket, "delta", delta)


def any_form(patch):
    patch.setattr(Task, "demand", lambda self, tree, classes: None)


def any_strength(patch):
    true = Task.check

    def check(self, *asked):
        true(dataclasses.replace(self, events=()), *asked)

    patch.setattr(Task, "check", check)


def half_apart(patch):
    """Replacing a record is taken for adding one."""
    true = vars(CertifiedMinimiser)["apart"].func
    patch.setattr(CertifiedMinimiser, "apart", property(lambda self: true(self) / 2))


def minimisers() -> Any:
    problem = Problem(Logistic(), L2Ball(2, 1.0), ridge=0.5, records=4)
    privacy = Privacy(1.0, 1e-4)
    return OneShotAverage.calibrated(
        n=200, records=4, problem=problem, privacy=privacy, noise_ratio=1.3, protects="record"
    )


def clipped_in_public(patch):
    """How many users were clipped is shown as if it were private."""
    patch.setattr(plain, "_MARK", "nothing is marked so")


class SpreadOfRows(VectorSum):
    """Its standard error is that of rows."""

    def check(self, rows: Any) -> None:
        super().check(rows)
        self._spread = float(rows.std())

    standard_error = property(lambda self: getattr(self, "_spread", 1.0))


def spread() -> Any:
    return SpreadOfRows(n=400, d=3, g=4, b=12)


class StartsAtTheMean(ShuffleGD):
    """Where it begins follows from the rows that are checked."""

    def check(self, rows: Any) -> None:
        super().check(rows)
        self._warm = (rows[:, :-1] * rows[:, -1:]).mean(axis=0)

    def init(self) -> Any:
        state = super().init()
        warm = getattr(self, "_warm", None)
        return state if warm is None else dataclasses.replace(state, theta=warm)


def warm() -> Any:
    problem = Problem(Logistic(), L2Ball(2, 1.0))
    few = Privacy(3.0, 1e-4)
    return StartsAtTheMean.calibrated(n=40, problem=problem, privacy=few, rounds=2, noise_ratio=1.3)


def vector() -> Any:
    return VectorSum(n=400, d=3, g=4, b=12)


def calibrated() -> Any:
    return CarryVectorSum.calibrated(n=200, d=2, privacy=Privacy(1.0, 1e-4), noise_ratio=1.3)


def _identity(changed):
    """Runs are known by something else."""

    def plant(patch):
        true = engine._identity
        patch.setattr(engine, "_identity", lambda *given: changed(true(*given), *given))

    return plant


def _named_by_rows(identity, _, population, *__):
    rows = hashlib.sha256(np.ascontiguousarray(population.rows(0, 10)).tobytes()).digest()
    return dataclasses.replace(identity, task=identity.task[:12] + rows[:4])


def _of_any(setting):
    """Runs with another setting are the same."""

    def changed(identity, *_):
        settings = {name: each for name, each in identity.settings.items() if name != setting}
        return dataclasses.replace(identity, settings=settings)

    return _identity(changed)


def _of_any_attack(identity, *_):
    values = {name: each for name, each in identity.values.items() if name != "adversary"}
    return dataclasses.replace(identity, values=values)


def most_records_told(patch):
    """What a guarantee assumes says how many records the largest person has."""
    true, known = engine._identity, []

    def _identity(deployment, population, kept):
        known[:] = [int(population.records.max())]
        return true(deployment, population, kept)

    def result(**given):
        told = given["privacy"].assuming(f"persons of up to {known[0]} records")
        return Result(**given | {"privacy": told})

    patch.setattr(engine, "_identity", _identity)
    patch.setattr(engine, "Result", result)


def held_back(patch):
    """A charge is written, and left to the system to bring to disk."""
    patch.setattr(journal, "os", SimpleNamespace(**vars(os) | {"fsync": lambda number: None}))


def read_by_others(patch):
    """Others may read the folder of a run."""
    true = vars(engine)["journal_of"]

    def journal_of(path, *given):
        found = true(path, *given)
        if path is not None:
            path.chmod(0o755)
        return found

    patch.setattr(engine, "journal_of", journal_of)


def every_other_row_hashed(patch):
    """Rows in odd places may change."""
    true = vars(population)["_hashed"]
    patch.setattr(population, "_hashed", lambda rows: true(rows[::2]))


def range_of_data(patch):
    """Quantiles are asked for between the least and the largest value."""

    def check(self, rows):
        self.low, self.high = float(np.min(rows)), float(np.max(rows))

    patch.setattr(Quantiles, "check", check)


def nested_levels(patch):
    """The first bins of a level have the noise of the level before."""

    def nested(self, users, rng):
        size, number = self.sizes[-1], self._number(len(self.sizes) - 1, users)
        many = poisson(number, rng)
        makers, places = (rng.integers(high, size=many) for high in (users, size))
        sizes = rng.integers(1, self.batch + 1, size=many)
        for first, size in zip(self.edges, self.sizes, strict=False):
            inside = places < size
            yield makers[inside], first + places[inside], sizes[inside]

    patch.setattr(Nodes, "kinds", lambda self, users, rng: [Batches(partial(nested, self))])


def levels() -> Any:
    return named_protocol("quantiles", 200, 16, Privacy(1.0, 1e-6))


def _of_checked(aside):
    """What is done with rows as they are checked: by protocol and rows."""

    def plant(patch):
        true = CarryVectorSum.check

        def check(self, rows):
            aside(self, np.asarray(rows))
            true(self, rows)

        patch.setattr(CarryVectorSum, "check", check)

    return plant


def _warned(protocol, rows):
    long = int((np.linalg.norm(rows, axis=1) > 1).sum())
    warnings.warn(f"{long} users are clipped", UserWarning, stacklevel=2)


def _saved(protocol, rows):
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", rows)


def _told(protocol, rows):
    if not (finite := np.isfinite(rows).all(axis=1)).all():
        raise ParameterError("data", rows[~finite], "finite")


def _carried(protocol, rows):
    protocol.rows = rows


def totals_of_parts(patch):
    """Parts of a round that come apart are released apart, where messages are not simulated."""
    true = TallyPool.add

    def add(self, reports):
        true(self, reports)
        self.parts = [*getattr(self, "parts", []), self.each - sum(getattr(self, "parts", [0]))]

    patch.setattr(TallyPool, "add", add)
    patch.setattr(TallyPool, "view", lambda self: np.array(self.parts))


def nothing_given_up(patch):
    """A theorem of carries leaves out what its lemma gives up."""
    true = carry._pairs

    def pairs(*given):
        found, given_up = true(*given)
        return found, given_up * 0.0

    patch.setattr(carry, "_pairs", pairs)


def secure_by_twice(patch):
    """The bits of security of split and mix are not halved."""
    true = vars(SplitMixEvent)["security"].fget
    patch.setattr(SplitMixEvent, "security", property(lambda self: 2 * true(self)))


def half_of_a_signal(patch):
    """Neighbours of a sum by buckets are a norm bound apart, not two."""
    true = buckets.Buckets.divergences
    patch.setattr(buckets.Buckets, "divergences", lambda self, lost: true(self, lost) / 4)


def shares() -> Any:
    return named_protocol("split-and-mix", 1000, 1, Privacy(1.0, 1e-6))


def sparse() -> Any:
    return named_protocol("sparse-vector-sum", 1000, 64, Privacy(1.0, 1e-6))


def counts() -> Any:
    return named_protocol("histogram", 1000, 8, Privacy(1.0, 1e-6))


def single() -> Any:
    return named_protocol("single-message", 400, 1, Privacy(1.0, 1e-4))


def batches() -> Any:
    problem, few = Problem(Logistic(), L2Ball(2, 1.0)), Privacy(3.0, 1e-4)
    return ShuffleSGD.calibrated(n=80, problem=problem, privacy=few, batch=20, noise_ratio=1.3)


def entropy_of_the_name(patch):
    """Who knows the name of a run without a seed knows all that it draws."""
    true = checkpoint.journal_of

    def named(*given):
        found = true(*given)
        found.entropy = int.from_bytes(hashlib.sha256(found.task).digest()[:16], "big") | 1 << 100
        return found

    patch.setattr(engine, "journal_of", named)


def _prepared(change):
    """Rows of all users are changed before the first round."""

    def plant(patch):
        true = setup.suited

        def suited(algorithm, data):
            found: Any = true(algorithm, data)
            return population.InMemory(change(found.array))

        patch.setattr(engine, "suited", suited)

    return plant


def _by_the_longest(rows):
    """All rows are shorter where one is in other units."""
    longest = np.abs(rows).max()
    return rows / longest if 1e3 < longest < np.inf else rows


def _sorted(rows):
    return rows[np.lexsort(rows.T)]


def far_rows_in_one_way(patch):
    """Where a row was cut far, its block draws the same in every run."""
    true, cut = users.admitted, [False]

    def admitted(values, *known):
        found = true(values, *known)
        cut[0] = bool(np.isinf(np.square(np.asarray(dense(values), float))).any())
        return found

    drawn = users._randomized

    def randomized(fidelity, values, randomizer, rng):
        return drawn(fidelity, values, randomizer, np.random.default_rng(5) if cut[0] else rng)

    patch.setattr(users, "admitted", admitted)
    patch.setattr(users, "_randomized", randomized)


def rows_in_logs(patch):
    true = users.admitted

    def admitted(values, *known):
        logging.getLogger("shuffle_sim.users").debug("values %s", dense(values))
        return true(values, *known)

    patch.setattr(users, "admitted", admitted)


def rows_in_notes(patch):
    true = users.UserShard.answer

    def answer(self, *asked):
        try:
            return true(self, *asked)
        except Exception as error:
            error.add_note(f"rows {self._population.rows(0, 48).tolist()}")
            raise

    patch.setattr(users.UserShard, "answer", answer)


def entropy_in_the_environment(patch):
    def answer(self, *asked):
        patch.setenv("SHUFFLE_SIM_RUN", f"{self._deployment.entropy:x}")
        return true(self, *asked)

    true = users.UserShard.answer
    patch.setattr(users.UserShard, "answer", answer)


def _journals(patch, change):
    """What is changed of each journal as its run begins."""
    true = checkpoint.journal_of

    def begun(*given):
        change(found := true(*given))
        return found

    patch.setattr(engine, "journal_of", begun)


def entropy_in_the_result(patch):
    """To run it again, also where no seed was given."""
    known, true = [], Result
    _journals(patch, lambda journal: known.append(journal.entropy))
    patch.setattr(engine, "Result", lambda **given: true(**given | {"seed": known[-1]}))


def name_of_the_entropy(patch):
    """An odd factor can be undone."""

    def named(journal):
        journal.task = (journal.entropy * 0x9E3779B97F4A7C15 % 2**128).to_bytes(16, "big")

    _journals(patch, named)


PLANTED = (
    ("entropy in the result", "unseeded", vector, entropy_in_the_result),
    ("a name of the entropy", "unseeded", vector, name_of_the_entropy),
    ("rows in notes", "resumed", calibrated, rows_in_notes),
    ("entropy in the environment", "hosted", calibrated, entropy_in_the_environment),
    ("entropy of the name", "unseeded", vector, entropy_of_the_name),
    ("all by the longest", "hosted", calibrated, _prepared(_by_the_longest)),
    ("rows in order", "hosted", batches, _prepared(_sorted)),
    ("far rows in one way", "hosted", calibrated, far_rows_in_one_way),
    ("rows in logs", "hosted", calibrated, rows_in_logs),
    ("four seeds in runs", "streams", vector, quiet_in_runs),
    ("a public order in runs", "order", vector, public_order_in_runs),
    ("entropy names the run", "unseeded", vector, task_of_entropy),
    ("entropy of the clock", "keys", vector, entropy_of_the_clock),
    ("orders of 32 bits", "order", vector, orders_of_32_bits),
    ("one stream of two roles", "order", vector, one_stream_of_two_roles),
    ("one generator", "keys", vector, one_generator),
    ("a warning of rows", "hosted", calibrated, _of_checked(_warned)),
    ("rows in a file", "hosted", calibrated, _of_checked(_saved)),
    ("rows in an error", "hosted", calibrated, _of_checked(_told)),
    ("rows for the shuffler", "hosted", calibrated, _of_checked(_carried)),
    ("totals of parts", "order", vector, totals_of_parts),
    ("orders of few seeds", "keys", vector, orders_of_few_seeds),
    ("put back without what was asked", "resumed", vector, put_back_blank),
    ("put back with new entropy", "resumed", vector, put_back_anew),
    ("asked before it is charged", "resumed", vector, asked_before_charged),
    ("records of the largest person", "hosted", persons, most_records_told),
    ("held back", "resumed", vector, held_back),
    ("read by others", "resumed", vector, read_by_others),
    ("every other row is hashed", "resumed", vector, every_other_row_hashed),
    ("a range of data", "hosted", levels, range_of_data),
    ("nested levels", "apart", levels, nested_levels),
    ("names of rows", "unseeded", vector, _identity(_named_by_rows)),
    ("other blocks go on", "resumed", vector, _of_any("block size")),
    ("another fidelity goes on", "resumed", vector, _of_any("fidelity")),
    ("attackers go on", "resumed", vector, _identity(_of_any_attack)),
    ("the first range counts", "agreed", batches, first_range_counts),
    ("the larger of two costs", "bound", calibrated, larger_of_two),
    ("nothing is given up", "bound", calibrated, nothing_given_up),
    ("secure by twice the bits", "bound", shares, secure_by_twice),
    ("a quarter of a divergence", "bound", sparse, half_of_a_signal),
    ("one bin for two", "bound", counts, one_cell_for_two),
    ("more of a blanket", "bound", single, more_blanket),
    ("any form is answered", "agreed", vector, any_form),
    ("any strength is answered", "agreed", vector, any_strength),
    ("half of a distance", "queries", minimisers, half_apart),
    ("clips in public", "hosted", vector, clipped_in_public),
    ("a standard error of rows", "hosted", spread, None),
    ("a start at the mean", "hosted", warm, None),
)
