import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import words
from processes import TESTS, command, descendants, exposed, listening, soon_none
from rounds import deployed

from actors.hosts import AnalyzerActor, ShufflerActor, UserShardActor
from actors.runtime import RayRuntime, ray
from protocols import ScalarSum, VectorSum
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.attacks.outputs import Collude
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import RoundAbortedError
from shuffle_sim.protocol.adversary import Adversary, Chain, Dropout
from shuffle_sim.protocol.base import Query
from shuffle_sim.roles import ShardRecord, ShuffleRecord
from shuffle_sim.wire.frames import Kind, parse, split_frames

USERS = 97
PROTOCOL = VectorSum(n=USERS, d=3, g=4, b=20)
ROWS = np.random.default_rng(0).normal(size=(USERS, 3)) / 2


@pytest.fixture(scope="module", autouse=True)
def session():
    """One Ray for all tests here; runs find it running and leave it."""
    # The actors' processes do not find this module.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    host = RayRuntime()
    host._connect()
    yield
    host.close()


# What the kernel knows of processes and sockets


def hosts() -> list[str]:
    """The actors of ours that are up, as their processes are called."""
    return [line for pid in descendants(os.getpid()) if "Host" in (line := command(pid))]


# Same seed, same bits


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.full
@pytest.mark.long_parameters("literal", "counts")
def test_one_seed_gives_one_result_in_process_and_on_actors(fidelity):
    here = [run(PROTOCOL, ROWS, workers=workers, fidelity=fidelity, seed=7) for workers in (1, 5)]
    there = [
        run(PROTOCOL, ROWS, runtime="ray", workers=workers, fidelity=fidelity, seed=7)
        for workers in (1, 4)
    ]
    assert len({result.value.tobytes() for result in (*here, *there)}) == 1
    sharded = run(PROTOCOL, ROWS, shuffler_shards=4, fidelity=fidelity, seed=7)
    for result in (*here, *there):
        same = here[0] if result.shuffler_shards == 1 else sharded
        assert result.costs == same.costs
        assert (result.reports, result.privacy) == (same.reports, same.privacy)
    assert [(result.workers, result.shuffler_shards) for result in there] == [(1, 1), (4, 4)]
    assert here[0].reports.clipped > 0
    # Not blind.
    assert run(PROTOCOL, ROWS, fidelity=fidelity, seed=8).value.tobytes() != here[0].value.tobytes()
    assert ray.is_initialized()  # it was running before: only the actors end
    assert soon_none(hosts) == []


# What crosses between actors


@pytest.mark.full
def test_what_crosses_between_actors_is_bytes():
    deployment = deployed(PROTOCOL, 40, task=b"t" * 16)
    shard = UserShardActor.remote(deployment, ray.put(InMemory(ROWS)), range(3))
    shuffler, analyzer = ShufflerActor.remote(deployment), AnalyzerActor.remote(deployment)
    try:
        broadcast = ray.get(analyzer.call.remote("plan", 0)).broadcast
        frames, noted = ray.get(shard.call.options(num_returns=2).remote("answer", 0, broadcast))
        view, record = ray.get(
            shuffler.call.options(num_returns=2).remote("shuffle", 1, broadcast, frames)
        )
        assert [type(crossing) for crossing in (broadcast, frames, view)] == [bytes, bytes, bytes]
        assert [type(kept) for kept in (noted, record)] == [ShardRecord, ShuffleRecord]
        sent = [parse(frame) for frame in split_frames(frames)]
        assert [(frame.kind, frame.reports) for frame in sent] == [
            (Kind.REPORTS, 40),
            (Kind.REPORTS, 40),
            (Kind.REPORTS, 17),
        ]
        # And bits are packed.
        assert len(frames) == record.bytes_in < USERS * (PROTOCOL.randomizer.report_bytes + 4)
        assert (parse(view).kind, record.accepted, noted.asked) == (Kind.VIEW, USERS, USERS)
        assert ray.get(analyzer.call.remote("receive", 0, view)) is True
        assert len(hosts()) == 3
    finally:
        for actor in (shard, shuffler, analyzer):
            ray.kill(actor)


# Errors


class Everyone(Adversary):
    """All users are corrupted; what is raised in the shard is raised as a parameter's."""

    def corrupt(self, round_index, users, rng):
        return users

    def report(self, user, x, call_next, rng):
        raise ParameterError("report", user, "sent")


class Startled(Adversary):
    def observe(self, tally):
        raise ParameterError("view", tally.reports, "calm")


class Unreadable(Population):
    users = USERS

    def rows(self, start, stop):
        raise ParameterError("rows", start, "readable")


@pytest.mark.parametrize(
    ("parameter", "data", "adversary"),
    [
        pytest.param("report", ROWS, Everyone(), id="users"),
        pytest.param("view", ROWS, Startled(), id="analyzer"),
        pytest.param("rows", Unreadable(), None, id="users, when built"),
    ],
)
@pytest.mark.full
@pytest.mark.long_parameters("users", "shuffler")
def test_a_parameter_error_in_an_actor_arrives_as_itself(parameter, data, adversary):
    for runtime in ("inprocess", "ray"):
        with pytest.raises(ParameterError) as caught:
            run(PROTOCOL, data, runtime=runtime, adversary=adversary, seed=1)
        assert type(caught.value) is ParameterError
        assert caught.value.parameter == parameter


@pytest.mark.long
def test_an_aborted_round_arrives_as_itself():
    with pytest.raises(RoundAbortedError, match="0 reports accepted") as caught:
        run(PROTOCOL, ROWS, runtime="ray", adversary=Dropout(1.0), seed=1)
    assert type(caught.value) is RoundAbortedError


class Listens(Collude):
    """Keeps what the colluders disclosed, where the run was started."""

    def __init__(self):
        super().__init__(0.2)
        self.heard = []

    def disclosed(self, round_index, reports, sums):
        self.heard.append((round_index, reports, dict(sums)))


@pytest.mark.long
def test_attacks_by_name_do_on_ray_what_they_do_in_process():
    names = [
        "dropout:rate=0.1",
        "cut-off:rate=0.3",
        "alie:fraction=0.2",
        "oppose:fraction=0.1",
        "twice:fraction=0.1",
    ]
    results, heard = [], []
    for runtime, workers in (("inprocess", 1), ("ray", 2)):
        listener = Listens()
        adversary = Chain(attacks([*names, "garbage:fraction=0.1"]), listener)
        how = {"adversary": adversary, "seed": 3, "execution": Execution(block_size=20)}
        results.append(run(PROTOCOL, ROWS, runtime=runtime, workers=workers, **how))
        heard.append(listener.heard)
    first, second = results
    assert first.value.tobytes() == second.value.tobytes()
    assert (first.reports, first.privacy) == (second.reports, second.privacy)
    assert heard[0] == heard[1]
    assert heard[0][0][1] > 5


# Sockets and processes


@pytest.mark.full
def test_rays_processes_listen_only_on_loopback():
    found = listening(descendants(os.getpid()) | {os.getpid()})
    assert exposed(found) == {}
    commands = " ".join(found.values())
    assert "raylet" in commands
    assert "gcs_server" in commands


def test_an_exposed_socket_would_be_seen():
    import socket

    for family, wildcard in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with socket.create_server((wildcard, 0), family=family) as server:
            port = server.getsockname()[1]
            assert f"{wildcard} {port}" in exposed(listening({os.getpid()}))


class Watched(RayRuntime):
    """Prints which processes it started, where they listen, and the handlers of this one."""

    def exchange(self, broadcast):
        mine = descendants(os.getpid())
        print(*sorted(mine))
        print(exposed(listening(mine | {os.getpid()})))
        (caught,) = (
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("SigCgt")
        )
        print(int(caught, 16) >> signal.SIGTRAP - 1 & 1)
        return super().exchange(broadcast)


def script(silent: float) -> None:
    """What `alone` runs in a process of its own."""
    runtime = Watched()
    try:
        run(PROTOCOL, ROWS, runtime=runtime, adversary=Dropout(silent))
    except RoundAbortedError:
        print("aborted")
    print("running" if ray.is_initialized() else "ended")
    if silent < 1:  # as `train --compare` does
        value = run(PROTOCOL, ROWS, runtime=runtime, seed=1).value
        print("again", np.array_equal(value, run(PROTOCOL, ROWS, seed=1).value))


@pytest.fixture(scope="module")
def alone():
    """Scripts that import Ray before us and let the runtime start it: {share silent: output}."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    here = [str(Path(__file__).parent), str(TESTS)]
    code = f"import sys, ray; sys.path[:0] = {here!r}; import test_ray; test_ray.script({{}})"
    started = {
        silent: subprocess.Popen(
            [sys.executable, "-c", code.format(silent)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for silent in (0.1, 1.0)
    }
    yield {silent: process.communicate(timeout=60) for silent, process in started.items()}
    for process in started.values():
        process.kill()


completes_or_aborts = pytest.mark.parametrize("silent", [0.1, 1.0], ids=["completes", "aborts"])


@pytest.mark.full
@completes_or_aborts
def test_nothing_of_a_ray_that_a_run_started_is_left(alone, silent):
    started, _, _, *rest = alone[silent][0].splitlines()
    assert rest[: 1 + (silent == 1)] == (["aborted"] if silent == 1 else []) + ["ended"]
    processes = {int(pid) for pid in started.split()}
    assert len(processes) >= 5  # gcs_server, raylet, three actors
    assert (
        soon_none(lambda: [command(pid) for pid in processes if Path(f"/proc/{pid}").exists()])
        == []
    )


@pytest.mark.full
def test_a_runtime_starts_ray_again(alone):
    """The thread that starts Ray must stay: Ray's processes end with it."""
    assert alone[0.1][0].splitlines()[-1] == "again True"


@pytest.mark.full
@completes_or_aborts
def test_a_run_with_a_ray_of_its_own_says_nothing_on_stderr(alone, silent):
    assert alone[silent][1] == ""


@pytest.mark.full
def test_a_script_that_imports_ray_first_listens_on_loopback(alone):
    assert alone[0.1][0].splitlines()[1] == "{}"


@pytest.mark.full
def test_rays_own_handlers_below_python_are_not_set(alone):
    # They would print a stack at a SIGTERM on whatever thread it finds; of their signals only
    # SIGTRAP has no other handler.
    assert alone[0.1][0].splitlines()[2] == "0"


# Traffic under seal


@pytest.mark.parametrize("security", ["transport", "onion"])
@pytest.mark.full
def test_sealed_traffic_between_actors_gives_the_plain_bits(security):
    few, rows = VectorSum(n=40, d=2, g=2, b=3), ROWS[:40, :2]
    plain = run(few, rows, seed=5, fidelity="literal", shuffler_shards=2)
    how = {"seed": 5, "fidelity": "literal", "shuffler_shards": 2, "security": security}
    sealed = run(few, rows, runtime="ray", workers=2, **how)
    assert np.array_equal(sealed.value, plain.value)
    assert sealed.costs.sealing_bytes > 0
    assert sealed.reports.asked == sealed.reports.accepted == 40


@pytest.mark.full
def test_private_keys_stay_in_their_actors():
    deployment = deployed(PROTOCOL, 10, security="onion")
    shuffler = ShufflerActor.remote(deployment, 0)
    assert len(ray.get(shuffler.call.remote("introduce", 0)).sealing) == 32
    with pytest.raises(ray.exceptions.RayError, match="does not leave its role"):
        ray.get(shuffler.call.remote("__getattribute__", 0, "_keys"))
    ray.kill(shuffler)


@dataclass(frozen=True)
class Means(Query):
    """The mean of each person's records of one column."""

    def __call__(self, rows):
        persons = PersonRows(rows, 1)
        return persons.means(persons.records)[:, 0]


class MeanOfPersons(ScalarSum):
    vocabulary = property(lambda self: (Means, type(self.randomizer)))

    def plan(self, state):
        spec = super().plan(state)
        return spec and replace(spec, query=Means())


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.full
def test_persons_give_on_ray_what_they_give_in_process(ragged):
    rng = np.random.default_rng(4)
    data = [rng.random((4 + ragged * person % 3, 1)) for person in range(40)]
    persons, protocol = Persons.in_memory(data), MeanOfPersons(n=40, g=9, b=12)
    assert persons.equal is not ragged
    how = {"shuffler_shards": 1, "seed": 1, "fidelity": "literal"}
    alone, together = (
        run(protocol, persons, runtime=runtime, workers=workers, **how)
        for runtime, workers in (("inprocess", 1), ("ray", 2))
    )
    assert (together.value, together.costs) == (alone.value, alone.costs)
    assert together.reports == alone.reports


@pytest.mark.slow_parameters("aggregate")
@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.full
def test_words_give_on_ray_the_view_of_one_process(fidelity):
    """Any number of messages a user, over two shards of the shuffler."""
    ray.cloudpickle.register_pickle_by_value(words)
    protocol, items = words.Asked(USERS, words.Pollution(7, 0.3)), np.arange(USERS) % 7.0
    how = {"fidelity": fidelity, "seed": 7, "workers": 2, "shuffler_shards": 2}
    here = run(protocol, items, **how)
    there = run(protocol, items, runtime="ray", **how)
    assert there.value.items() == here.value.items()
    assert (there.value.reports, there.costs) == (USERS, here.costs)
