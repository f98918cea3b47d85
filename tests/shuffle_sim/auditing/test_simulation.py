"""Deterministic simulation: seeds that fail in every way a network can, errors that were planted
and must be found, and the same run again for the same seed.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rounds import PRIVACY, PROBLEM, Forgets, Redraws, Remembers

from benchmarks.simulate import measure, part
from protocols import ScalarSum, ShuffleSGD, SingleMessageSum, VectorSum
from protocols.shuffle.noisy_mean import NoisyMean
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.auditing.simulation import simulate
from shuffle_sim.errors import RoundAbortedError
from shuffle_sim.execution import runtime
from shuffle_sim.execution.checkpoint import Checkpoint
from shuffle_sim.execution.history import Event, History, violations
from shuffle_sim.execution.simulated import Faults, SimRuntime
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.roles import Analyzer, Shuffler, Station, UserShard
from shuffle_sim.wire.frames import Kind, split_frames

USERS = 6


def descent():
    """Two rounds, three users each."""
    mean = NoisyMean(VectorSum(n=3, d=2, g=4, b=12, norm_bound=PROBLEM.lipschitz))
    return ShuffleSGD(problem=PROBLEM, n=USERS, rounds=2, eta=0.5, mean=mean, privacy=PRIVACY)


def descent_rows():
    return np.c_[np.linspace(-0.6, 0.6, USERS), np.full(USERS, 0.3), np.tile([1.0, -1.0], 3)]


MOVED = SingleMessageSum(n=USERS, steps=3, gamma=0.5), np.linspace(0, 1, USERS)
"""Its messages have four symbols, so they are really moved."""
CASES: dict[str, Any] = {
    "descent": (descent(), descent_rows(), {}),
    "one bit": (ScalarSum(n=USERS, g=3, b=2, p=0.5), np.linspace(0, 1, USERS), {}),
    "moved messages": (*MOVED, {"fidelity": "literal"}),
    "dropouts": (descent(), descent_rows(), {"adversary": Dropout(0.3)}),
    "users that remember": (descent(), descent_rows(), {"adversary": Remembers()}),
    "transport": (*MOVED, {"fidelity": "literal", "security": "transport"}),
    "onion": (*MOVED, {"fidelity": "literal", "security": "onion"}),
}


def failures(case, seeds, **options):
    protocol, rows, how = CASES[case]
    return simulate(protocol, rows, seeds=seeds, **how | options)


@pytest.mark.slow_parameters("users that remember-40", "dropouts-40")
@pytest.mark.parametrize(("case", "seeds"), [(case, 40) for case in CASES])
@pytest.mark.full
def test_nothing_comes_of_faults_but_time(case, seeds):
    report = failures(case, range(seeds))
    assert report.passed, report.failures[0]
    assert report.runs == seeds
    kinds = {"duplicate", "lose", "kill", "isolate", "driver", "resumed"}
    assert kinds <= set(report.faults)


@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("descent", {}),
        ("one bit", {"fidelity": "literal"}),  # numbers of ones cross between shards
        ("one bit", {"fidelity": "aggregate"}),  # all sums go to the first
        ("moved messages", {}),
        ("users that remember", {}),
    ],
)
@pytest.mark.full
def test_nothing_but_time_comes_of_faults_with_roles_together(case, how):
    report = failures(case, range(40), placement="together", **how)
    assert report.passed, report.failures[0]
    assert {"duplicate", "lose", "kill", "isolate", "driver", "resumed"} <= set(report.faults)


def test_no_message_to_an_earlier_life_reaches_a_later_one():
    """The seed found it: users gathered twice, the second time for a call given up before."""
    assert part(18_413, 18_414).passed


class Hasty(Station):
    """Answers a round again with fresh noise after it was put back."""

    def renew(self, last, over):
        entropy = self._deployment.entropy + (last is not None)
        self._users._deployment = replace(self._deployment, entropy=entropy)
        super().renew(last, over)


class Stale(Station):
    """After a loss it goes on with what its shuffler held."""

    def renew(self, last, over):
        held = getattr(self, "_shuffler", None)
        super().renew(last, over)
        self._shuffler = held or self._shuffler


@pytest.mark.parametrize(
    ("station", "case", "how"),
    [(Hasty, "descent", {}), (Stale, "one bit", {"fidelity": "literal"})],
)
@pytest.mark.full
def test_a_station_that_is_put_back_wrongly_is_found(station, case, how, monkeypatch):
    monkeypatch.setattr(runtime, "Station", station)
    assert not failures(case, range(200), placement="together", **how).passed


@pytest.mark.slow
def test_five_hundred_seeds_reach_the_window_before_delivery():
    """10^4 follow in .ci/run: `python -m benchmarks.simulate --seeds 10000`."""
    report = part(10_000, 10_512)
    assert report.passed, report.failures[0]
    assert (report.runs, report.faults["windows"] > 50) == (512, True)


@pytest.mark.full
def test_the_command_counts_its_seeds_and_repeats_one():
    found = measure(20, first=7, processes=1)
    assert (found["seeds"], found["failures"]) == (20, [])


# Errors that were planted


class Planted(SimRuntime):
    """A runtime in which a role is another class."""

    roles: dict[type, type] = {}  # noqa: RUF012

    def host(self, role, *arguments):
        return super().host(self.roles.get(role, role), *arguments)


class Redrawing(Redraws, SimRuntime):
    pass


class ForgetfulShard(UserShard):
    """Put back, it leaves a block out, and says that its users were silent."""

    def __init__(self, deployment, population, blocks, asked=(), contents=None):
        super().__init__(deployment, population, blocks, asked, contents)
        self.restored = bool(asked)

    def answer(self, broadcast, blocks=None):
        batch, record = super().answer(broadcast, blocks)
        frames = list(split_frames(batch))
        if not self.restored or not frames:
            return batch, record
        lost = record.asked // len(frames)
        return b"".join(frames[1:]), replace(record, silent=record.silent + lost)


class TwiceCountingAnalyzer(Analyzer):
    """A view that comes again is added again."""

    seen: bytes = b""
    estimate: Any = None

    def conclude(self, view):
        if view == self.seen:
            self._state = self._deployment.protocol.update(self._state, self.estimate)
        spec = self._spec
        concluded = super().conclude(view)
        self.seen, self.estimate = view, spec.analyze(concluded.tally)
        return concluded


class UncheckedShuffler(Shuffler):
    """What comes again is counted again."""

    def collect(self, broadcast, batches):
        inbox = self._at(broadcast).inbox
        inbox._seen.clear()
        inbox._taken.clear()
        return super().collect(broadcast, batches)


class LosingShuffler(Shuffler):
    """Its second shard says of a later round that it has a frame less than it has."""

    def release(self, broadcast, records):
        record = super().release(broadcast, records)
        return replace(record, chunks=record.chunks[: -self._shard * self._released or None])


class StaleShard(UserShard):
    """Put back in the middle of a run, it answers what was asked when it was put there."""

    def __init__(self, deployment, population, blocks, asked=(), contents=None):
        super().__init__(deployment, population, blocks, asked, contents)
        self.known = list(asked)[:1]

    def answer(self, broadcast, blocks=None):
        self._answered = None
        return super().answer((self.known or [broadcast])[0], blocks)


class Forgetting(Forgets, SimRuntime):
    pass


class UnorderedShuffler(Shuffler):
    """Takes blocks in the order in which workers send them, as ours once did."""

    def _at(self, broadcast):
        now = super()._at(broadcast)
        vars(now.inbox)["_block"] = lambda data: 0
        return now


def planted(role, by):
    return type(f"With{by.__name__}", (Planted,), {"roles": {role: by}})


ERRORS = {
    "redraw on retry": (Redrawing, "descent", "different contents"),
    "double count": (planted(Analyzer, TwiceCountingAnalyzer), "descent", "another value"),
    "double count of messages": (planted(Shuffler, UncheckedShuffler), "descent", "ended by"),
    "lost frame": (planted(Shuffler, LosingShuffler), "descent", "no view was read"),
    "lost report": (planted(UserShard, ForgetfulShard), "descent", "another|ended by"),
    "stale broadcast": (planted(UserShard, StaleShard), "descent", "cohort|not charged|not-agreed"),
    "stale state": (Forgetting, "descent", "another value|ended by"),
    "second order": (
        planted(Shuffler, UnorderedShuffler),
        "moved messages",
        "view 0: 2 different contents",
    ),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.full
def test_a_planted_error_is_found_and_replayed_by_its_seed(error):
    runtime, case, said = ERRORS[error]
    report = failures(case, range(1000), runtime=runtime)
    assert not report.passed, f"{report.runs} seeds"
    (failure,) = report.failures
    assert re.search(said, str(failure))
    again = failures(case, [failure.seed], runtime=runtime)
    assert again.failures == report.failures
    assert failures(case, [failure.seed]).passed


def test_a_release_before_its_charge_is_found(monkeypatch):
    charge, settle = Checkpoint.charge, Checkpoint.settle

    def late_charge(self, charged):
        if self._records:
            return charge(self, charged)
        self.owed = charged
        return None

    def late_settle(self, outcome):
        if owed := getattr(self, "owed", None):
            charge(self, owed)
            self.owed = None
        settle(self, outcome)

    monkeypatch.setattr(Checkpoint, "charge", late_charge)
    monkeypatch.setattr(Checkpoint, "settle", late_settle)
    report = failures("descent", range(1000))
    assert "before its charge" in str(report.failures[0])


# The runtime


def test_the_same_seed_gives_the_same_history():
    def history(seed):
        host = SimRuntime(seed, Faults(duplicate=0.1, lose=0.1, kill=0.1, isolate=0.1))
        run(
            descent(),
            descent_rows(),
            runtime=host,
            workers=3,
            seed=1,
            execution=Execution(block_size=1),
        )
        # What was asked names the run, by 16 bytes that no seed decides.
        return [event._replace(asked=b"") for event in host.history.events], host.faults

    assert history(5) == history(5)
    assert len({repr(history(seed)) for seed in range(5)}) == 5


@pytest.mark.parametrize("shards", [1, 2])
def test_a_view_is_the_same_whoever_hosts_the_users(shards):
    """Two orders of the same messages would tell which of them came from one block."""
    views = []
    for workers in (1, 2, 3):
        host = SimRuntime(workers)
        how = {
            "workers": workers,
            "seed": 1,
            "execution": Execution(block_size=1),
            "fidelity": "literal",
        }
        run(*MOVED, runtime=host, shuffler_shards=shards, **how)
        seen = [each for each in host.history.events if each.what == "release"]
        views.append({(each.place, each.content) for each in seen})
    assert len(views[0]) == shards
    assert views[0] == views[1] == views[2]


@pytest.mark.parametrize("fault", ["lose", "kill"])
def test_a_fault_at_every_call_loses_the_round(fault):
    always = SimRuntime(1, Faults(**{fault: 1.0}, most=10**6))
    how = {"workers": 2, "seed": 1, "fidelity": "literal"}
    with pytest.raises(RoundAbortedError, match="was lost in each of 6 attempts"):
        run(*CASES["one bit"][:2], runtime=always, **how)


def test_an_adversary_has_a_memory_of_its_own_at_every_place():
    """As in actors; in process it is one object."""
    adversary = Remembers()
    run(*CASES["descent"][:2], runtime=SimRuntime(1), adversary=adversary, seed=1)
    assert adversary.first == {}


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (lambda: Faults(kill=1.5), "kill"),
        (lambda: Faults(lose=float("nan")), "lose"),
        (lambda: Faults(most=-1), "most"),
        (lambda: SimRuntime(-1), "seed"),
        (lambda: failures("one bit", [1], workers=2), "workers"),
        (lambda: failures("one bit", [1], checkpoint="here"), "checkpoint"),
    ],
)
def test_what_a_simulation_cannot_do_is_refused(what, name):
    with pytest.raises(ParameterError, match=name):
        what()


# The checker


def event(what, number=0, place=0, content=b"a", **more):
    more = {"asked": b"asked", "reports": 1, "sums": ((0, 1),)} | more
    return Event(what, number, (Kind.REPORTS, place), content, **more)


GOOD = [event("charge"), event("answer"), event("release"), event("delivery")]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (GOOD, None),
        ([*GOOD, event("answer")], None),
        (GOOD[1:], "before its charge"),
        ([GOOD[1], GOOD[0]], "before its charge"),
        ([*GOOD, event("answer", asked=b"other")], "not charged"),
        ([*GOOD, event("answer", content=b"b")], "reports 0: 2 different contents"),
        ([*GOOD, event("release", content=b"b")], "2 different contents"),
        ([*GOOD, event("delivery", sums=((0, 2),))], "sums"),
        ([*GOOD, event("delivery", reports=2)], "2 reports"),
        ([*GOOD, event("answer", place=1)], "sent were 2"),
    ],
)
def test_the_checker_knows_each_promise(events, said):
    history = History()
    history.events = events
    found = violations(history)
    assert (found == []) is (said is None)
    assert said is None or any(said in each for each in found)


def test_the_ledger_has_at_least_the_rounds_that_were_answered():
    history = History()
    history.events = [event("charge"), event("answer")]
    result = run(*CASES["one bit"][:2], seed=1)
    assert violations(history, result.ledger) == []
    history.events = [event("charge", 1), event("answer", 1)]
    assert violations(history, result.ledger) == [
        "round 1 was answered, and the ledger has 1 charges"
    ]
