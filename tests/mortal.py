"""Roles that die at a named step, in process and on Ray, and what every run must still keep."""

import hashlib
import json
import os
import signal
from collections import defaultdict
from pathlib import Path

from rounds import outcome, records
from runs import run

from actors.hosts import hosting
from actors.runtime import RayRuntime, ray
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.runtime import HostLostError
from shuffle_sim.roles import Analyzer, Shuffler, UserShard
from shuffle_sim.wire.frames import parse, split_frames

WHENS = ("before", "after")
STEPS = {
    1: [
        ("UserShard", "answer"),
        ("Shuffler", "shuffle"),
        ("Analyzer", "conclude"),
        ("Analyzer", "update"),
    ],
    2: [
        *(
            ("UserShard", "answer"),
            ("Analyzer", "receive"),
            ("Analyzer", "concluded"),
            ("Analyzer", "update"),
        ),
        *(("Shuffler", method) for method in ("collect", "accept", "release", "view")),
    ],
}
"""What each role does in a round, by the number of shuffler shards. `update` is inside the
analyzer's step.
"""


def every_death(shards, rounds, rng):
    """A death before and after every step, each in its own round: (who, round, step, when)."""
    steps = [(*step, when) for step in STEPS[shards] for when in WHENS]
    chosen = sorted(rng.choice(rounds, len(steps), replace=False).tolist())
    many = {"UserShard": 2, "Shuffler": shards, "Analyzer": 1}
    return [
        (f"{role} {rng.integers(many[role])}", at, method, when)
        for at, (role, method, when) in zip(chosen, rng.permutation(steps).tolist(), strict=True)
    ]


class Diary:
    """Files in which mortal roles write what they gave and when they died; it outlives them."""

    seed = 0

    def __init__(self, folder, deaths=()):
        self.folder, self.deaths = Path(folder), {tuple(death) for death in deaths}
        self.folder.mkdir(parents=True, exist_ok=True)

    def dies(self, who, at, method, when):
        """Whether this death is due; each comes once."""
        if (who, at, method, when) not in self.deaths:
            return False
        try:
            os.close(
                os.open(self.folder / f"{who} {at} {method} {when} dead", os.O_CREAT | os.O_EXCL)
            )
        except FileExistsError:
            return False
        return True

    @property
    def died(self):
        return len(list(self.folder.glob("* dead")))

    def note(self, who, method, at, asked, given):
        """A hash of what the step gave; for users, also the rounds charged on disk by then."""
        line = {
            "step": f"{who} {method}",
            "round": at,
            "asked": asked,
            "given": hashlib.sha256(repr(given).encode()).hexdigest(),
        }
        if method == "answer" and (self.folder / FILE).exists():
            line["charged"] = len(records(self.folder / FILE)) // 2
        with (self.folder / "diary").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self):
        return [json.loads(line) for line in (self.folder / "diary").read_text().splitlines()]


def who_is(role, arguments):
    """The role's name and which of its shards it is, from what it is built with."""
    return (
        f"{role.__name__} "
        f"{arguments[2].start if role is UserShard else arguments[1] if role is Shuffler else 0}"
    )


class Life:
    """A hosted role's calls, each with a death before it or after it if one is due."""

    def __init__(self, diary, who, role, die):
        self.diary, self.who, self.role, self.die = diary, who, role, die
        self._watch()

    def _watch(self):
        if self.who.startswith("Analyzer"):
            protocol = self.role._deployment.protocol
            self.update, protocol.update = type(protocol).update, self.updated

    def updated(self, state, estimate):
        self.dies("update", self.role._round, "before")
        after = self.update(self.role._deployment.protocol, state, estimate)
        self.dies("update", self.role._round, "after")
        return after

    def dies(self, method, at, when):
        if self.diary.dies(self.who, at, method, when):
            self.die()

    def call(self, method, arguments):
        if method == "__init__":
            self.role.__init__(*arguments)
            self._watch()
            return None
        if method in ("introduce", "meet", "contents"):
            return getattr(self.role, method)(*arguments)
        at = (
            self.role._round
            if self.who.startswith("Analyzer")
            else parse(arguments[0]).context.round
        )
        at -= method == "concluded"  # of the round that is over
        self.dies(method, at, "before")
        given = getattr(self.role, method)(*arguments)
        if method not in ("plan", "concluded", "result", "recall"):
            plain = [repr(each) for each in arguments[1:] if isinstance(each, int | range)]
            viewed = split_frames(arguments[0]) if method in ("receive", "conclude") else ()
            self.diary.note(
                self.who,
                method,
                at,
                [*plain, *(hashlib.sha256(data).hexdigest()[:8] for data in viewed)],
                given,
            )
        self.dies(method, at, "after")
        return given


class Frail(InProcessRuntime):
    """All roles in this process, where a dead one is lost as an actor would be."""

    def __init__(self, diary):
        self.diary = diary

    def host(self, role, *arguments):
        return Life(self.diary, who_is(role, arguments), super().host(role, *arguments), self._die)

    def _die(self):
        self.dead.add(self.now)
        raise HostLostError("dead")

    dead: set

    def open(self, *arguments):
        self.dead = set()
        return super().open(*arguments)

    def alive(self, host):
        return host not in self.dead

    def call(self, host, method, *arguments, many=(), returns=1):
        if not self.alive(host):
            raise HostLostError("dead")
        self.now = host
        value = host.call(method, (*arguments, *([list(many)] if many else [])))
        return [value] if returns == 1 else list(value)


def _killed():
    os.kill(os.getpid(), signal.SIGKILL)


def _mortal(host):
    class Host(host):  # type: ignore[valid-type, misc]
        def __init__(self, diary, who, *arguments):
            super().__init__(*arguments)
            self._life = Life(diary, who, self._hosted, _killed)

        def call(self, method, many, *arguments):
            alone = len(arguments) - many
            return self._life.call(
                method, (*arguments[:alone], *([list(arguments[alone:])] if many else []))
            )

    Host.__name__ = Host.__qualname__ = f"Mortal{host.__name__}"
    return Host


class Chaotic(RayRuntime):
    """Ray actors that kill their own processes when a death is due."""

    def __init__(self, diary):
        super().__init__()
        self.diary = diary
        self.mortal = {
            role: ray.remote(max_restarts=0, max_task_retries=0, num_cpus=0)(_mortal(hosting(role)))
            for role in (UserShard, Shuffler, Analyzer)
        }

    def host(self, role, *arguments):
        actor = self.mortal[role].remote(self.diary, who_is(role, arguments), *arguments)
        self._actors.append(actor)
        return actor


def chaos(runtime, diary, protocol, rows, **how):
    """A run in which the diary's deaths come, with its checkpoint in the diary's folder."""
    return run(protocol, rows, runtime=runtime(diary), workers=2, checkpoint=diary.folder, **how)


def violations(result, diary, alone):
    """Which of the promises a run under faults did not keep."""
    found = []
    if outcome(result) != outcome(alone):
        found.append("another result, guarantee, cost or account than a run left alone")
    a = result.reports
    if a.asked + a.extra != a.accepted + sum(a.dropped.values()) + a.missing:
        found.append("reports are not accounted for")
    given = defaultdict(set)
    for line in diary.lines():
        given[line["step"], line["round"], *line["asked"]].add(line["given"])
    found += [
        f"{key}: other bytes when it was done again"
        for key, hashes in given.items()
        if len(hashes) > 1
    ]
    drawn = [line for line in diary.lines() if line["step"].endswith("answer")]
    found += [
        f"round {line['round']} was drawn before it was charged"
        for line in drawn
        if line["charged"] <= line["round"]
    ]
    if len({line["round"] for line in drawn}) > len(result.ledger.charges):
        found.append("rounds were drawn that the ledger does not know")
    return found
