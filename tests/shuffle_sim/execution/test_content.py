"""The same noise never meets other data: what was read is hashed, by block."""

import os

import numpy as np
import pytest

from protocols import CentralSum, OutputPerturbation, VectorSum
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim import Execution, ParameterError, Privacy, run
from shuffle_sim.data.file_population import NpyFiles
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import Generated
from shuffle_sim.errors import DataChangedError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import HostLostError
from shuffle_sim.roles import CuratorShard

N = 64

BLOCKS, PAGES = Execution(block_size=16), Execution(block_size=Generated.PAGE)


def written(folder):
    path = folder / "rows.npy"
    np.save(path, np.random.default_rng(0).normal(size=(N, 2)) / 4)
    return path


def change(path):
    """Another value, of the same size and at the same time."""
    before = path.stat()
    rows = np.load(path)
    rows[5, 0] += 0.25
    np.save(path, rows)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


class Dying(InProcessRuntime):
    """It loses a role once in a method, after something was done to the data."""

    def __init__(self, method, then, error=HostLostError):
        self.method, self.then, self.error, self.lost = method, then, error, None

    def call(self, host, method, *arguments, many=(), returns=1):
        if method == self.method and self.lost is None:
            if method != "answer":
                super().call(host, method, *arguments, many=many, returns=returns)
            self.lost = host
            self.then()
            raise self.error("gone")
        return super().call(host, method, *arguments, many=many, returns=returns)

    def alive(self, host):
        return host is not self.lost


def protocol():
    return VectorSum(n=N, d=2, g=4, b=20)


@pytest.mark.parametrize("method", ["answer", "shuffle", "conclude"])
def test_a_round_is_not_drawn_again_over_rows_that_changed(tmp_path, method):
    path = written(tmp_path)
    changed = Dying(method, lambda: change(path))
    with pytest.raises(DataChangedError, match=r"block 0.*the same noise on other data") as caught:
        run(protocol(), NpyFiles([path]), seed=1, runtime=changed, execution=BLOCKS)
    assert len(caught.value.ledger.charges) == 1
    same = Dying(method, lambda: None)  # the control: rows that stay give the bits of a whole run
    again = run(protocol(), NpyFiles([path]), seed=1, runtime=same, execution=BLOCKS)
    whole = run(protocol(), NpyFiles([path]), seed=1, execution=BLOCKS)
    assert np.array_equal(again.value, whole.value)


class KilledError(BaseException):
    """A death of the whole run."""


def test_a_run_is_not_resumed_over_rows_that_changed(tmp_path):
    path, kept = written(tmp_path), tmp_path / "run"
    dying = Dying("conclude", lambda: None, KilledError)
    with pytest.raises(KilledError):
        run(protocol(), NpyFiles([path]), runtime=dying, checkpoint=kept, execution=BLOCKS)
    original = path.read_bytes()
    change(path)
    with pytest.raises(ParameterError, match="content of the data"):
        run(protocol(), NpyFiles([path]), checkpoint=kept, resume=True, execution=BLOCKS)
    before = path.stat()
    path.write_bytes(original)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (
        run(protocol(), NpyFiles([path]), checkpoint=kept, resume=True, execution=BLOCKS).rounds
        == 1
    )


def test_a_curator_does_not_draw_again_over_rows_that_changed(tmp_path):
    path = written(tmp_path)
    algorithm = CentralSum.calibrated(n=N, d=2, privacy=Privacy(1.0))
    with pytest.raises(DataChangedError):
        run(algorithm, NpyFiles([path]), runtime=Dying("parts", lambda: change(path)))


def test_roles_refuse_rows_other_than_those_first_read(tmp_path):
    path = written(tmp_path)
    population = NpyFiles([path])
    shard = CuratorShard(population, [0], N)
    change(path)
    assert CuratorShard(population, [0], N).contents() != shard.contents()


# Rows that are made: what makes them may read more than its seed


@pytest.fixture
def scale():
    """A global of `make`, in a list: the hash of its code does not see it."""
    yield SCALE
    SCALE[:] = [0.25]


SCALE, MADE = [0.25], [0]


def make(rng, count):
    MADE[0] += 1
    return rng.uniform(-1, 1, size=(count, 2)) * SCALE[0]


def labelled(rng, count):
    return np.c_[make(rng, count), rng.choice([-1.0, 1.0], count)]


KINDS = {
    "rows": lambda: Generated(N, make),
    "persons": lambda: PersonMeans(Persons(Generated(2 * N, make), [2] * N)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_not_resumed_over_other_rows_of_a_generator(kind, tmp_path, scale):
    kept, data = tmp_path / "run", KINDS[kind]
    dying = Dying("conclude", lambda: None, KilledError)
    with pytest.raises(KilledError):
        run(protocol(), data(), runtime=dying, checkpoint=kept, execution=BLOCKS)
    scale[0] = 0.125
    with pytest.raises(ParameterError, match="content of the data"):
        run(protocol(), data(), checkpoint=kept, resume=True, execution=BLOCKS)
    scale[0] = 0.25  # the control
    assert run(protocol(), data(), checkpoint=kept, resume=True, execution=BLOCKS).rounds == 1


def test_a_round_is_not_answered_over_other_rows_than_charged(tmp_path, scale):
    changing = Dying("answer", lambda: scale.__setitem__(0, 0.125))
    # Each block has a page of its own: none is left over from the first reading.
    data = Generated(3 * Generated.PAGE, make)
    wide = VectorSum(n=data.users, d=2, g=4, b=20)
    how = {"checkpoint": tmp_path / "run", "execution": PAGES, "fidelity": "aggregate"}
    with pytest.raises(DataChangedError, match="the same noise on other data"):
        run(wide, data, runtime=changing, **how)


@pytest.mark.parametrize("whole", [False, True])
def test_a_curator_draws_over_the_rows_that_it_charged(whole, tmp_path, scale):
    users = 2 * Generated.PAGE
    problem = Problem(Logistic(), L2Ball(2, 1.0), ridge=0.1)
    algorithm = (
        OutputPerturbation.calibrated(n=users, problem=problem, privacy=Privacy(1.0))
        if whole
        else CentralSum.calibrated(n=users, d=2, privacy=Privacy(1.0))
    )

    class Changing(InProcessRuntime):
        def call(self, host, method, *arguments, many=(), returns=1):
            found = super().call(host, method, *arguments, many=many, returns=returns)
            if method == "contents":
                scale[0] = 0.125
            return found

    data = Generated(users, labelled if whole else make)
    how = {"checkpoint": tmp_path / "run", "execution": PAGES}
    with pytest.raises(DataChangedError):
        run(algorithm, data, runtime=Changing(), **how)
    with pytest.raises(ParameterError, match="content of the data"):
        run(algorithm, data, checkpoint=tmp_path / "run", resume=True, execution=PAGES)
    scale[0] = 0.25
    assert run(algorithm, data, resume=True, **how).rounds == 1


def test_pages_are_made_once_more_where_there_is_a_checkpoint(tmp_path):
    users = 4 * Generated.PAGE
    wide = VectorSum(n=users, d=2, g=4, b=20)
    made = {}
    for kept in (None, tmp_path / "run"):
        MADE[0] = 0
        run(wide, Generated(users, make), checkpoint=kept, fidelity="aggregate", seed=1)
        made[kept] = MADE[0]
    assert made == {None: 4, tmp_path / "run": 4 + 1 + 4}  # the first also for its shape


def test_records_of_persons_are_watched_as_their_source_is(scale):
    persons = Persons(Generated(2 * N, make), [2] * N)
    found = [persons.watched().content(0, N) for _ in range(2)]
    assert found[0] == found[1] != b"" == persons.content(0, N)
    scale[0] = 0.125
    assert persons.watched().content(0, N) != found[0]
