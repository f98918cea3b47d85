"""A run that was killed and resumed gives what it would have given left alone; a checkpoint that is
not its own is refused.
"""

import multiprocessing
import os
import pickle
import platform
import resource
import shutil
import signal
import stat
import threading
from dataclasses import replace
from importlib.metadata import version
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
from processes import TESTS, python
from rounds import (
    PROTOCOLS,
    ROUNDS,
    Remembers,
    deployed,
    interactive,
    outcome,
    records,
    rows,
    sequential,
)
from runs import run

from protocols import ShuffleSGD
from shuffle_sim import ParameterError
from shuffle_sim.data.file_population import NpyFiles
from shuffle_sim.data.population import Generated, InMemory
from shuffle_sim.errors import CheckpointError, RoundAbortedError
from shuffle_sim.execution import identity
from shuffle_sim.execution.checkpoint import Checkpoint
from shuffle_sim.execution.engine import _identity, _Kept
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import FILE
from shuffle_sim.protocol.adversary import Adversary, Dropout
from shuffle_sim.wire.fingerprint import fingerprint

every_protocol = pytest.mark.parametrize("make", PROTOCOLS.values(), ids=PROTOCOLS)


class StopError(Exception):
    """Raised where a test wants the run to end."""


class Stopping(InProcessRuntime):
    """Ends the run in its `last` exchange: before anything is drawn, or when all is done and not
    yet written down.
    """

    def __init__(self, last, *, before):
        self.left, self.before = last, before

    def exchange(self, broadcast):
        self.left -= 1
        if self.left == 0 and self.before:
            raise StopError
        done = super().exchange(broadcast)
        if self.left == 0:
            raise StopError
        return done


class Asking(InProcessRuntime):
    """Counts the rounds in which users were asked."""

    asked = 0

    def exchange(self, broadcast):
        self.asked += 1
        return super().exchange(broadcast)


def stop(folder, last, protocol=None, *, before=True, **how):
    """Begin a run, of `interactive` by default, that ends in its `last` exchange."""
    runtime = Stopping(last, before=before)
    with pytest.raises(StopError):
        run(protocol or interactive(), rows(), runtime=runtime, checkpoint=folder, **how)


def resume(folder, protocol=None, **how):
    """Go on with the run in a folder."""
    return run(protocol or interactive(), rows(), checkpoint=folder, resume=True, **how)


# Going on


@every_protocol
@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("before", [True, False], ids=["before the draw", "after delivery"])
@pytest.mark.full
def test_a_run_stopped_in_any_round_goes_on_as_if_left_alone(make, seed, before, tmp_path):
    alone = run(make(), rows(), seed=seed, checkpoint=tmp_path / "alone")
    for last in range(1, ROUNDS + 1):
        folder = tmp_path / str(last)
        stop(folder, last, make(), before=before, seed=seed)
        whole, here = (tmp_path / "alone" / FILE).read_bytes(), folder / FILE
        # The same entropy: as much of the run left alone as the stopped one has.
        if seed is None:
            here.write_bytes(whole[: here.stat().st_size])
        asking = Asking()
        assert outcome(resume(folder, make(), runtime=asking, seed=seed)) == outcome(alone)
        assert asking.asked == ROUNDS - last + 1
        assert here.read_bytes() == whole or seed is not None
    if seed is not None:
        assert outcome(run(make(), rows(), seed=seed)) == outcome(alone)


@pytest.mark.full
def test_a_round_costs_the_same_on_disk_after_any_number(tmp_path):
    run(interactive(200), rows(), checkpoint=tmp_path)
    _, *rounds = records(tmp_path / FILE)
    assert len(rounds) == 400
    assert max(map(len, rounds)) < 400
    assert sum(map(len, rounds[-20:])) < 1.1 * sum(map(len, rounds[:20]))


def test_two_runs_without_a_seed_are_not_the_same(tmp_path):
    both = {outcome(run(interactive(), rows(), checkpoint=tmp_path / name))[0] for name in "ab"}
    assert len(both) == 2


def test_a_finished_run_gives_its_result_again_and_asks_nobody(tmp_path):
    first, asking = run(interactive(), rows(), checkpoint=tmp_path), Asking()
    assert outcome(resume(tmp_path, runtime=asking)) == outcome(first)
    assert asking.asked == 0


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.full
def test_a_run_is_resumed_with_its_dropouts_and_other_workers(fidelity, tmp_path):
    how = {"fidelity": fidelity, "seed": 5, "adversary": Dropout(0.2)}
    stop(tmp_path, 3, sequential(), before=False, **how)
    resumed = resume(tmp_path, sequential(), workers=3, **how)
    assert outcome(resumed) == outcome(run(sequential(), rows(), **how))
    assert resumed.reports.missing > 0


class Follows(Adversary):
    """Corrupts by what it saw."""

    def __init__(self):
        self.seen = []

    def corrupt(self, round_index, users, rng):
        return users[: int(sum(self.seen)) % 3]

    def report(self, user, x, call_next, rng):
        return None

    def observe(self, tally):
        self.seen.append(tally.sums.sum())


def test_an_adversary_is_shown_the_replayed_views_too(tmp_path):
    stop(tmp_path, 4, seed=5, adversary=Follows())
    resumed = resume(tmp_path, seed=5, adversary=Follows())
    assert outcome(resumed) == outcome(run(interactive(), rows(), seed=5, adversary=Follows()))
    assert resumed.reports.missing > 0


@pytest.mark.full
def test_users_that_remember_what_they_sent_do_when_resumed(tmp_path):
    alone = run(interactive(), rows(), seed=5, adversary=Remembers())
    stop(tmp_path, 4, seed=5, adversary=Remembers())
    resumed = resume(tmp_path, workers=2, seed=5, adversary=Remembers())
    assert outcome(resumed) == outcome(alone) != outcome(run(interactive(), rows(), seed=5))


def test_every_round_is_told_again_when_a_run_is_resumed(tmp_path):
    seen = []
    stop(tmp_path, 4)
    resume(
        tmp_path,
        on_round=lambda index, ledger, costs, query: seen.append((index, costs.rounds)),
    )
    assert seen == [(index, index + 1) for index in range(ROUNDS)]


# The ledger


class Witness(InProcessRuntime):
    """Reads the journal at the moment users are asked."""

    def __init__(self, path):
        self.path, self.sizes = path, []

    def exchange(self, broadcast):
        self.sizes.append(self.path.stat().st_size)
        return super().exchange(broadcast)


def test_a_charge_is_on_disk_before_anything_is_drawn(tmp_path):
    witness = Witness(tmp_path / "run" / FILE)
    run(interactive(), rows(), runtime=witness, seed=5, checkpoint=tmp_path / "run")
    data = witness.path.read_bytes()
    assert witness.sizes == sorted(set(witness.sizes))
    # What was there when the users were asked is what is charged.
    for index, size in enumerate(witness.sizes):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / FILE).write_bytes(data[:size])
        with pytest.raises(RoundAbortedError, match="here") as stopped:
            resume(folder, runtime=Refusing(), seed=5)
        assert len(stopped.value.ledger.charges) == index + 1
        assert (folder / FILE).stat().st_size == size  # and the charge was not written twice


class Refusing(InProcessRuntime):
    def exchange(self, broadcast):
        raise RoundAbortedError("here")


ETA, REMEMBERS = [0.5], [True]  # plain constants would be part of the code


class Wavering(ShuffleSGD):
    """Plans by the clock of the process, not by its state."""

    def step(self, state, gradient):
        self.__dict__["eta"] = ETA[0]
        return super().step(state, gradient)


def test_a_round_that_would_ask_something_else_is_refused(tmp_path):
    def wavering():
        s = sequential()
        return Wavering(
            problem=s.problem, n=s.n, rounds=s.rounds, eta=s.eta, mean=s.mean, privacy=s.privacy
        )

    stop(tmp_path, 2, wavering(), seed=5)
    ETA[0], asking = 0.25, Asking()
    with pytest.raises(ParameterError, match=r"broadcast.*the one that was charged"):
        resume(tmp_path, wavering(), runtime=asking, seed=5)
    assert asking.asked == 0


class Late(InProcessRuntime):
    """Says what a call raised only to who waits for it, as actors do."""

    def call(self, *arguments, returns=1, **options):
        try:
            return super().call(*arguments, returns=returns, **options)
        except RoundAbortedError as error:
            return [error] * returns

    def get(self, handles):
        for handle in handles:
            if isinstance(handle, Exception):
                raise handle
        return handles


class Forgetful(Adversary):
    """Cannot bear to see a view for a second time."""

    def observe(self, tally):
        if not REMEMBERS[0]:
            raise RoundAbortedError("forgotten")


def test_what_goes_wrong_in_replaying_a_round_is_told(tmp_path):
    stop(tmp_path, 3, seed=5, adversary=Forgetful())
    REMEMBERS[0] = False
    with pytest.raises(RoundAbortedError, match="forgotten"):
        resume(tmp_path, runtime=Late(), seed=5, adversary=Forgetful())


# Killed

_processes = multiprocessing.get_context("forkserver")  # imports once, then forks
LONG = 20


@pytest.fixture(scope="module", autouse=True)
def _imported_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{TESTS}")
        _processes.set_forkserver_preload(["pytest.__main__", Path(__file__).stem])
        forkserver.ensure_running()


def attempt(ready, name, folder, seed, cut):
    """In a process of its own: start or resume the run; its outcome goes beside the checkpoint.
    `cut` dies in a write.
    """
    protocol, begun = PROTOCOLS[name](LONG), (folder / FILE).exists()
    if cut is not None:
        die_in_write(*cut)
    ready.set()
    result = run(protocol, rows(), seed=seed, checkpoint=folder, resume=begun)
    part = folder / "part"
    part.write_bytes(pickle.dumps(outcome(result)))
    part.rename(folder / "result")


def die_in_write(number, share):
    """The `number`-th write of this process writes a share of what it should, and kills."""
    write, left = os.write, [number]

    def dying(file, data):
        left[0] -= 1
        if left[0] == 0:
            write(file, bytes(data)[: int(share * len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(file, data)

    os.write = dying


def killed_until_done(name, folder, seed, death):
    """The outcome of the run, and how often it was killed; `death` gives each attempt's
    (delay, cut), later ones later.
    """
    folder.mkdir()
    for kills in range(500):
        (delay, cut), ready = death(kills), _processes.Event()
        process = _processes.Process(target=attempt, args=(ready, name, folder, seed, cut))
        process.start()
        ready.wait(60)
        process.join(delay)
        process.kill()
        process.join()
        if (folder / "result").exists():
            return pickle.loads((folder / "result").read_bytes()), kills
        assert process.exitcode == -signal.SIGKILL
    raise AssertionError("not done")


def left_alone(name, folder, seed):
    """The outcome of the same run, begun with the same entropy and never killed."""
    (folder / "alone").mkdir()
    (folder / "alone" / FILE).write_bytes(records(folder / FILE)[0])
    return outcome(resume(folder / "alone", PROTOCOLS[name](LONG), seed=seed))


by_name = pytest.mark.parametrize("name", PROTOCOLS)


@pytest.mark.full
@by_name
def test_a_run_killed_at_random_moments_tells_the_same(name, tmp_path):
    rng, killed, number = np.random.default_rng(1), 0, 0
    while killed < 20:
        folder, number = tmp_path / str(number), number + 1
        ended, kills = killed_until_done(
            name, folder, None, lambda kills: (rng.exponential(0.02 * (1 + kills / 10)), None)
        )
        assert ended == left_alone(name, folder, None)
        killed += kills


@by_name
@pytest.mark.full
def test_a_run_killed_inside_its_writes_tells_the_same(name, tmp_path):
    rng = np.random.default_rng(2)
    alone = outcome(run(PROTOCOLS[name](LONG), rows(), seed=5))
    ended, kills = killed_until_done(
        name, tmp_path / "run", 5, lambda _: (60, (rng.integers(1, 10), rng.random()))
    )
    assert ended == alone
    assert kills >= 4


def test_fresh_entropy_after_a_death_would_be_noticed(tmp_path, monkeypatch):
    alone = run(interactive(), rows(), checkpoint=tmp_path / "alone")
    stop(tmp_path / "run", 3)
    shutil.copy(tmp_path / "alone" / FILE, tmp_path / "run" / FILE)
    (tmp_path / "run" / FILE).write_bytes(b"".join(records(tmp_path / "run" / FILE)[:6]))
    kept = Checkpoint._resumed

    def forgetful(self, identity, marks):
        return replace(kept(self, identity, marks), entropy=identity.entropy)

    monkeypatch.setattr(Checkpoint, "_resumed", forgetful)
    assert outcome(resume(tmp_path / "run"))[0] != outcome(alone)[0]


# What is refused


@pytest.fixture
def stopped(tmp_path):
    """The folder of a run stopped in its third round."""
    stop(tmp_path / "run", 3, seed=5, fidelity="literal")
    return tmp_path / "run"


OTHER = {
    "protocol": {"protocol": interactive(eta=0.25)},
    "data": {"data": rows() * np.array([1, 1, -1])},
    "adversary": {"adversary": Dropout(0.1)},
    "seed": {"seed": 6},
    "fidelity": {"fidelity": "counts"},
    "block size": {"block_size": 7},
    "shuffler shards": {"shuffler_shards": 2},
    "security": {"security": "transport"},
}


def test_of_another_seed_the_seed_is_named_not_the_split(stopped):
    how = {"fidelity": "literal", "checkpoint": stopped, "resume": True}
    with pytest.raises(ParameterError, match="its seed is 5, this run's is 6"):
        run(interactive(), rows()[::-1], seed=6, **how)


@pytest.mark.parametrize("field", [*OTHER, "no seed", "a later round's parameter"])
@pytest.mark.full
def test_a_checkpoint_of_another_run_is_refused_by_its_field(field, stopped):
    before = (stopped / FILE).read_bytes()
    changed = {
        "no seed": {"seed": None},
        "a later round's parameter": {"protocol": interactive(rounds=ROUNDS + 1)},
        **OTHER,
    }[field]
    how = {"protocol": interactive(), "data": rows(), "seed": 5, "fidelity": "literal", **changed}
    given, asking = (how.pop("protocol"), how.pop("data")), Asking()
    named = next(iter(changed)).replace("_", " ")
    with pytest.raises(ParameterError, match=f"checkpoint = .*: its {named} is .*, this run's is "):
        run(*given, runtime=asking, checkpoint=stopped, resume=True, **how)
    assert asking.asked == 0
    assert (stopped / FILE).read_bytes() == before


@pytest.mark.parametrize("what", ["numpy", "kernel"])
def test_what_would_draw_other_bits_is_refused(what, stopped, monkeypatch):
    if what == "numpy":
        monkeypatch.setattr(
            "shuffle_sim.execution.identity.version",
            lambda name: "1.0" if name == "numpy" else version(name),
        )
        protocol, field, how = interactive(), "software", {"fidelity": "literal", "seed": 5}
    else:
        shutil.rmtree(stopped)
        stop(stopped, 3, sequential(), fidelity="aggregate", kernel="numpy")
        protocol, field, how = sequential(), what, {"fidelity": "aggregate", "kernel": "compiled"}
    with pytest.raises(ParameterError, match=f"{field} is .*numpy"):
        resume(stopped, protocol, **how)


@pytest.mark.full
def test_a_flipped_bit_anywhere_is_refused(stopped):
    data = (stopped / FILE).read_bytes()
    rng, refused = np.random.default_rng(3), 0
    identity = _identity(deployed(interactive(), 4), InMemory(rows()), _Kept(5, None, False, None))
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        (stopped / FILE).write_bytes(flipped)
        with pytest.raises(ParameterError, match="undamaged"):
            Checkpoint(stopped, identity, resume=True)
        refused += 1
    assert refused == len(data) > 1000
    (stopped / FILE).write_bytes(data)
    Checkpoint(stopped, identity, resume=True).close()


@pytest.mark.parametrize(
    "change", ["bytes", "a record twice", "a record taken out", "two exchanged", "another run's"]
)
@pytest.mark.full
def test_records_that_were_moved_are_refused(change, stopped, tmp_path):
    first, *rest = found = records(stopped / FILE)
    assert len(found) == 6  # the beginning, charge and outcome twice, a charge
    other = tmp_path / "other"
    run(interactive(), rows(), seed=6, checkpoint=other)
    moved = {
        "bytes": [*found, b"\0" * 50],
        "a record twice": [*found[:2], *found[1:]],
        "a record taken out": [*found[:2], *found[3:]],
        "two exchanged": [first, *rest[1::-1], *rest[2:]],
        "another run's": [first, *records(other / FILE)[1:]],
    }
    (stopped / FILE).write_bytes(b"".join(moved[change]))
    with pytest.raises(ParameterError, match="undamaged"):
        resume(stopped, seed=5, fidelity="literal")


@pytest.mark.full
def test_a_record_cut_anywhere_at_the_end_is_run_again(stopped):
    data, first = (stopped / FILE).read_bytes(), len(records(stopped / FILE)[0])
    alone = outcome(run(interactive(), rows(), seed=5))
    for kept in np.random.default_rng(4).integers(first, len(data), 25):
        (stopped / FILE).write_bytes(data[:kept])
        assert outcome(resume(stopped, seed=5, fidelity="literal")) == alone


def test_an_empty_journal_is_refused(stopped):
    (stopped / FILE).write_bytes(b"")
    with pytest.raises(ParameterError, match="undamaged: the beginning"):
        resume(stopped, seed=5, fidelity="literal")


def test_a_checkpoint_rolled_back_sends_the_same_bytes(stopped, tmp_path):
    older = (stopped / FILE).read_bytes()
    finished = resume(stopped, seed=5, fidelity="literal")
    later = (stopped / FILE).read_bytes()
    (stopped / FILE).write_bytes(older)
    again = resume(stopped, seed=5, fidelity="literal")
    assert outcome(again) == outcome(finished)
    assert (stopped / FILE).read_bytes() == later


@pytest.mark.parametrize(
    ("folder", "going_on", "message"),
    [
        ("run", False, "a folder without a run, or given with --resume"),
        ("nothing", True, "No such file"),
        ("empty", True, "a folder with a run to resume"),
        ("file", False, "File exists|Not a directory"),
        ("file", True, "Not a directory"),
        ("file/below", False, "Not a directory"),
    ],
)
@pytest.mark.full
def test_a_folder_that_does_not_fit_is_refused_and_left_alone(
    folder, going_on, message, stopped, tmp_path
):
    def there():
        return sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*"))

    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    before = there()
    with pytest.raises(ParameterError, match=message):
        run(interactive(), rows(), seed=5, checkpoint=tmp_path / folder, resume=going_on)
    assert there() == before


def test_resume_needs_a_folder():
    with pytest.raises(ParameterError, match="resume"):
        run(interactive(), rows(), resume=True)


def test_bad_parameters_make_no_folder(tmp_path):
    for bad in ({"workers": 0}, {"fidelity": "guessed"}, {"seed": -1}, {"data": rows()[1:]}):
        with pytest.raises(ParameterError):
            run(interactive(), **{"data": rows(), "checkpoint": tmp_path / "run", **bad})
    assert not (tmp_path / "run").exists()


def test_only_the_owner_reads_a_checkpoint(tmp_path):
    run(interactive(), rows(), checkpoint=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [FILE]
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600


# Two at once


class Meanwhile(InProcessRuntime):
    """Tries to resume the run in another way while it is under way."""

    def __init__(self, folder):
        self.folder, self.refused = folder, 0

    def exchange(self, broadcast):
        for again in (True, False):
            with pytest.raises(ParameterError, match="no other process is using"):
                run(interactive(), rows(), seed=5, checkpoint=self.folder, resume=again)
            self.refused += 1
        return super().exchange(broadcast)


def test_two_runs_cannot_use_one_checkpoint(tmp_path):
    here = Meanwhile(tmp_path)
    run(interactive(), rows(), runtime=here, seed=5, checkpoint=tmp_path)
    assert here.refused == 2 * ROUNDS
    resume(tmp_path, seed=5)  # free again


# Full disks


def on_a_full_disk(pipe, folder, size, begun):
    """In a process of its own: no file may grow beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    asking = Asking()
    try:
        run(interactive(), rows(), runtime=asking, seed=5, checkpoint=folder, resume=begun)
    except CheckpointError as error:
        pipe.send((str(error), asking.asked, len(error.ledger.charges) if error.ledger else 0))
    pipe.send(None)


def full_at(folder, size, begun):
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=on_a_full_disk, args=(theirs, folder, size, begun))
    process.start()
    answer = ours.recv()
    process.join()
    return answer


@pytest.mark.full
def test_a_full_disk_stops_the_run_before_its_next_release(tmp_path):
    alone = outcome(run(interactive(), rows(), seed=5, checkpoint=tmp_path / "alone"))
    whole = (tmp_path / "alone" / FILE).read_bytes()
    begun = len(records(tmp_path / "alone" / FILE)[0])
    for size in np.random.default_rng(5).integers(begun, len(whole), 12).tolist():
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / FILE).write_bytes(whole[:begun])
        message, asked, charged = full_at(folder, size, begun=True)
        kept = (folder / FILE).read_bytes()
        assert "File too large" in message
        assert len(kept) <= size
        assert whole.startswith(kept)
        before_draw = "the round was not begun" in message
        assert asked == charged - before_draw
        asking = Asking()
        assert outcome(resume(folder, runtime=asking, seed=5)) == alone
        # Nothing torn: whole records are kept, and only what is missing is run.
        assert asking.asked == ROUNDS + 1 - charged
        assert (folder / FILE).read_bytes() == whole


def test_a_disk_too_full_to_begin_leaves_nothing(tmp_path):
    message, asked, charged = full_at(tmp_path, 100, begun=False)
    assert "nothing was begun" in message
    assert (asked, charged, [*tmp_path.iterdir()]) == (0, 0, [])


# Fingerprints


def same(make):
    return fingerprint(make()) == fingerprint(make())


def test_equal_values_have_equal_fingerprints():
    rng = np.random.default_rng
    for make in (
        interactive,
        sequential,
        rows,
        lambda: InMemory(rows()),
        lambda: Dropout(0.1),
        lambda: {"b": 1, "a": {2, 3}},
    ):
        assert same(make)
    assert same(lambda: rng(3))
    a = interactive()
    before = fingerprint(a)
    run(a, rows(), seed=5)
    assert fingerprint(a) == before  # a run leaves no trace in the protocol


def test_different_values_have_different_fingerprints(tmp_path):
    def uniform(low):
        return lambda rng, count: rng.uniform(low, 1, size=(count, 2))

    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for number, file in enumerate(files):
        np.save(file, np.full((3, 1), number))
    plain = None, True, 1, 1.0, "1", b"1", -0.0, 0.0, (), [], (1,), ((1,),), {1: 2}, {2: 1}, {1}
    zeros = np.zeros(2), np.zeros((2, 1)), np.zeros(2, np.int64)
    made = interactive(), interactive(eta=0.25), interactive(rounds=3), sequential()
    read = NpyFiles(files), NpyFiles(files[::-1]), NpyFiles(files[:1])
    values = [
        *(*plain, int, float, np.float64(1), *zeros, np.ones(2), np.array([None, 1], object)),
        *(*made, Dropout(0.1), Dropout(0.2), InMemory(rows()), InMemory(rows()[::-1]), *read),
        *(Generated(9, uniform(0)), Generated(9, uniform(0.5)), Generated(8, uniform(0))),
        Generated(9, uniform(0), seed=1),
        Generated(9, lambda rng, count: rng.random((count, 2))),
        *map(np.random.default_rng, (1, 2)),
    ]
    assert len({fingerprint(value) for value in values}) == len(values)
    before = fingerprint(NpyFiles(files))
    np.save(files[0], np.full((3, 1), 9))
    os.utime(files[0], ns=(1, 1))
    assert fingerprint(NpyFiles(files)) != before


def test_what_cannot_be_taken_apart_is_refused(tmp_path):
    adversary = Dropout(0.1)
    adversary.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ParameterError, match="pickle"):
        run(interactive(), rows(), adversary=adversary, checkpoint=tmp_path / "run")


def test_a_value_that_is_found_in_itself_has_a_fingerprint():
    def looped(rate):
        adversary = Dropout(rate)
        adversary.mine = [{"and": adversary}]  # type: ignore[attr-defined]
        return adversary

    assert same(lambda: looped(0.1))
    assert fingerprint(looped(0.1)) != fingerprint(looped(0.2))


# What a run is


@pytest.mark.full
def test_another_way_to_add_up_is_another_run():
    """The same library on the same processor, told to use another's ways."""
    if "openblas" not in " ".join(identity._arithmetic()) or platform.machine() != "x86_64":
        pytest.skip("no OpenBLAS for x86")
    code = "from shuffle_sim.execution.identity import _rounded; print(_rounded())"
    found = [
        python("-c", code, env={**os.environ, "OPENBLAS_CORETYPE": core}, check=True).stdout
        for core in ("Prescott", "Haswell")
    ]
    assert found[0] != found[1]


def test_one_rounding_is_seen(monkeypatch):
    tanh, before = np.tanh, identity._rounded()
    assert identity._rounded() == before
    monkeypatch.setattr(np, "tanh", lambda x: np.nextafter(tanh(x), 2))
    assert identity._rounded() != before
