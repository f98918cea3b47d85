"""What is left of a run when faults are too many, or of another kind than a lost actor; and the
table of faults in the docs.
"""

import ast
import os
import re
import sys
import time
from uuid import uuid4

import numpy as np
import pytest
from mortal import Chaotic, Diary, Frail, chaos
from processes import TESTS, Watched, python, soon_none
from rounds import ROUNDS, deployed, interactive, outcome, records, rows

from actors.runtime import _LOST, RayRuntime, ray
from protocols import VectorSum
from shuffle_sim import run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.file_population import NpyFiles
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import DataError, RoundAbortedError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.runtime import ATTEMPTS, HostLostError
from shuffle_sim.protocol.base import Datum
from shuffle_sim.roles import Analyzer, Shuffler, UserShard
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.frames import Context, Frame, Kind

PROTOCOL = VectorSum(n=20, d=2, g=4, b=7)
DEPLOYMENT = deployed(PROTOCOL, 8)
ROWS = np.zeros((20, 2))


@pytest.fixture(scope="module")
def session():
    """One Ray for all tests here that need one."""
    for name in ("mortal", "rounds", __name__):
        ray.cloudpickle.register_pickle_by_value(sys.modules[name])
    host = RayRuntime()
    host._connect()
    yield
    host.close()


# Too many


class Cursed(Diary):
    """Its deaths come every time."""

    def dies(self, who, at, method, when):
        dead = (who, at, method, when) in self.deaths
        if dead:
            (self.folder / f"{uuid4()} dead").touch()
        return dead


@pytest.mark.slow_parameters("ray")
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    "runtime", [Frail, pytest.param(Chaotic, marks=pytest.mark.full)], ids=["in process", "ray"]
)
def test_roles_lost_again_and_again_abort_a_charged_round(runtime, tmp_path):
    diary = Cursed(tmp_path, [("Shuffler 0", 2, "shuffle", "after")])
    with pytest.raises(
        RoundAbortedError, match=f"round 2: a role was lost in each of {ATTEMPTS} attempts"
    ) as aborted:
        chaos(runtime, diary, interactive(), rows(), seed=5, fidelity="literal")
    assert len(aborted.value.ledger.charges) == 3
    assert "3 round(s) charged" in aborted.value.__notes__[0]
    assert diary.died == ATTEMPTS
    given = {
        line["given"]
        for line in diary.lines()
        if line["round"] == 2 and line["step"] == "Shuffler 0 shuffle"
    }
    assert len(given) == 1  # the view was made six times, and it was one view
    resumed = run(
        interactive(), rows(), seed=5, fidelity="literal", checkpoint=tmp_path, resume=True
    )
    assert outcome(resumed) == outcome(run(interactive(), rows(), seed=5, fidelity="literal"))


def test_a_shard_whose_data_is_gone_ends_the_run(tmp_path):
    np.save(tmp_path / "rows.npy", rows())

    class Burning(Frail):
        def _put_back(self):
            (tmp_path / "rows.npy").unlink(missing_ok=True)
            super()._put_back()

    diary = Diary(tmp_path / "run", [("UserShard 1", 2, "answer", "after")])
    data = NpyFiles([tmp_path / "rows.npy"])
    with pytest.raises(DataError, match=r"rows\.npy") as ended:
        chaos(Burning, diary, interactive(), data, seed=5, fidelity="literal", block_size=7)
    assert len(ended.value.ledger.charges) == 3
    released = [line["round"] for line in diary.lines() if line["step"] == "Analyzer 0 conclude"]
    assert released == [0, 1]


class Startled(InProcessRuntime):
    def exchange(self, broadcast):
        raise MemoryError


def test_an_error_that_is_not_ours_says_what_was_spent_too():
    with pytest.raises(MemoryError) as ended:
        run(interactive(), rows(), runtime=Startled(), seed=5)
    assert "1 round(s) charged" in ended.value.__notes__[0]


# What Ray raises


@pytest.mark.parametrize("kind", _LOST, ids=lambda kind: kind.__name__)
def test_what_ray_raises_for_lost_things_is_told_as_such(kind, monkeypatch):
    def lost(handles):
        raise Exception.__new__(kind)

    monkeypatch.setattr(ray, "get", lost)
    monkeypatch.setattr(kind, "__str__", lambda self: "lost\nand gone")
    with pytest.raises(HostLostError, match=r"^lost$"):
        RayRuntime().get([])


class Unknown:
    """What no actor can build: its module is not there."""

    def __reduce__(self):
        return __import__, ("no_such_module",)


@pytest.mark.usefixtures("session")
@pytest.mark.full
def test_an_actor_that_cannot_be_built_is_told_at_once():
    protocol = interactive()
    protocol.unknown = Unknown()
    with pytest.raises(ray.exceptions.RayError, match="no_such_module"):
        run(protocol, rows(), runtime="ray", seed=5)


# What roles know that take the place of others


def asked(round_index=0, **changed):
    payload = encode(
        (
            Cohort.of(0, 20),
            Datum(),
            VectorSum(**{"n": 20, "d": 2, "g": 4, "b": 7} | changed).randomizer,
            1,
        )
    )
    return Frame(
        Kind.ROUND, Context.of_broadcast(bytes(16), round_index, payload), 0, 0, payload
    ).tobytes()


def shard(*broadcasts):
    return UserShard(DEPLOYMENT, InMemory(ROWS), range(3), broadcasts)


def test_a_shard_put_back_answers_the_round_it_was_asked_alone():
    assert shard(asked()).answer(asked()) == shard().answer(asked())
    for other in (asked(b=8), asked(g=5)):
        with pytest.raises(RoundAbortedError, match="was answered"):
            shard(asked()).answer(other)
    with pytest.raises(RoundAbortedError, match="was answered"):
        shard(asked(), asked(1)).answer(asked())


def test_a_shuffler_put_back_releases_the_same_round_alone():
    frames = [shard().answer(asked())[0]]
    assert Shuffler(DEPLOYMENT, 0, asked()).shuffle(asked(), frames) == Shuffler(
        DEPLOYMENT
    ).shuffle(asked(), frames)
    with pytest.raises(RoundAbortedError, match="under way with other parameters"):
        Shuffler(DEPLOYMENT, 0, asked()).shuffle(asked(b=8), [shard().answer(asked(b=8))[0]])
    with pytest.raises(RoundAbortedError, match="under way"):
        Shuffler(DEPLOYMENT, 0, asked(1)).shuffle(asked(), frames)


def test_an_analyzer_put_back_has_the_state_of_the_one_before():
    deployment = deployed(interactive(), 8)
    users = UserShard(deployment, InMemory(rows()), range(8))
    shuffler, analyzer = Shuffler(deployment), Analyzer(deployment)
    over = []
    while (plan := analyzer.plan()) is not None:
        assert Analyzer(deployment, over).plan() == plan
        view, _ = shuffler.shuffle(plan.broadcast, [users.answer(plan.broadcast)[0]])
        analyzer.receive(view)
        over.append(analyzer.concluded().tally)
    assert len(over) == ROUNDS
    assert Analyzer(deployment, over).result().tolist() == analyzer.result().tolist()


# The driver, and Ray itself


@pytest.mark.long
def test_a_driver_killed_on_ray_is_resumed_anywhere(tmp_path):
    rounds = 40
    watched, file = Watched(tmp_path / "run", "ray", rounds), tmp_path / "run" / FILE
    while not file.exists() or len(records(file)) < 12:
        time.sleep(0.02)
    watched.process.kill()
    watched.process.communicate()
    resumed = run(interactive(rounds), rows(), seed=5, checkpoint=tmp_path / "run", resume=True)
    assert outcome(resumed) == outcome(run(interactive(rounds), rows(), seed=5))
    assert soon_none(lambda: [line for line in watched.alive() if "Host" in line]) == []


RAYLET = """
import os, signal, sys, time
from rounds import *
from processes import command, descendants
from actors.runtime import RayRuntime
from shuffle_sim import run
class Headless(RayRuntime):
    def exchange(self, broadcast):
        if len(self._asked) == 2:
            names = {pid: command(pid).split()[0] for pid in descendants(os.getpid())}
            (raylet,) = [pid for pid, name in names.items() if name.endswith("/raylet")]
            os.kill(raylet, signal.SIGKILL)
            time.sleep(90)  # until Ray has noticed; a short run would be over before
        return super().exchange(broadcast)
print(run(interactive(), rows(), seed=5, runtime=Headless(), workers=2, checkpoint=sys.argv[1]))
"""


@pytest.mark.slow
def test_a_run_whose_ray_dies_fails_and_is_resumed(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["PYTHONPATH"] = str(TESTS)
    done = python("-c", RAYLET, tmp_path, env=environment)
    assert (done.returncode != 0, "Result(" in done.stdout) == (True, False)
    assert len(records(tmp_path / FILE)) == 1 + 2 * 2 + 1  # two rounds over, one charged
    resumed = run(interactive(), rows(), seed=5, checkpoint=tmp_path, resume=True)
    assert outcome(resumed) == outcome(run(interactive(), rows(), seed=5))


# The table


TABLE = (TESTS.parent / "docs" / "faults.md").read_text().partition("## Table")[2]
NAMED = re.compile(r"`(test_\w+)\.(test_\w+)`")


@pytest.mark.full
def test_every_test_in_the_table_of_faults_exists():
    faults = [line for line in TABLE.splitlines() if line.startswith("|")][2:]
    assert len(faults) >= 30
    known = {}
    for fault in faults:
        assert fault.count(" | ") == 2, fault
        named = NAMED.findall(fault.rpartition(" | ")[2])
        assert named, fault
        for module, test in named:
            if module not in known:
                (source,) = TESTS.rglob(f"{module}.py")
                tree = ast.parse(source.read_text())
                known[module] = {
                    node.name for node in tree.body if isinstance(node, ast.FunctionDef)
                }
            assert test in known[module], f"{module}.{test}"
