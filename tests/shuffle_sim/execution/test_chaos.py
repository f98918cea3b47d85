"""Roles are killed at every step of many rounds: nothing may come of it but time. Each failure
names the seed that repeats it.
"""

import os
import signal
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from mortal import Chaotic, Diary, Frail, chaos, every_death, violations
from processes import command, descendants, exposed, listening
from rounds import PROTOCOLS, Forgets, Redraws, Remembers, outcome, records, rows
from runs import run

from actors.runtime import RayRuntime, ray
from shuffle_sim.attacks.catalogue import attack, parameters
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.checkpoint import Checkpoint
from shuffle_sim.execution.journal import FILE
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.adversary import Dropout

ROUNDS = 30


def survived(runtime, folder, name, shards, seed, rounds=ROUNDS, **how):
    """(deaths, violations) of a run with a death at every step."""
    how = {"seed": seed, "fidelity": "literal", "shuffler_shards": shards, "block_size": 7, **how}
    diary = Diary(folder, every_death(shards, rounds, np.random.default_rng(seed)))
    result = chaos(runtime, diary, PROTOCOLS[name](rounds), rows(), **how)
    alone = run(PROTOCOLS[name](rounds), rows(), workers=2, **how)
    return diary.died, violations(result, diary, alone)


cases = pytest.mark.parametrize(
    ("name", "shards"), [(name, shards) for name in PROTOCOLS for shards in (1, 2)]
)


@cases
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.full
def test_roles_lost_at_every_step_change_nothing(name, shards, seed, tmp_path):
    assert survived(Frail, tmp_path, name, shards, seed) == ({1: 8, 2: 16}[shards], []), (
        f"seed {seed}"
    )


@pytest.mark.parametrize("fidelity", ["counts", "aggregate"])
@pytest.mark.full
def test_roles_lost_in_a_run_with_dropouts_change_nothing(fidelity, tmp_path):
    died, found = survived(
        Frail, tmp_path, "interactive", 1, 5, fidelity=fidelity, adversary=Dropout(0.2)
    )
    assert (died, found) == (8, [])


@pytest.mark.full
def test_users_remember_what_they_sent_on_another_actor(tmp_path):
    diary = Diary(
        tmp_path, [("UserShard 1", 3, "answer", "after"), ("UserShard 0", 6, "answer", "before")]
    )
    how = {"seed": 5, "fidelity": "literal", "block_size": 7}
    result = chaos(Frail, diary, PROTOCOLS["interactive"](9), rows(), adversary=Remembers(), **how)
    alone = run(PROTOCOLS["interactive"](9), rows(), adversary=Remembers(), **how)
    assert (diary.died, violations(result, diary, alone)) == (2, [])


@pytest.mark.parametrize("security", ["transport", "onion"])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.full
def test_roles_lost_in_a_protected_run_change_only_the_seals(security, shards, tmp_path):
    """Sealing draws fresh randomness and roles put back make new keys: the sealed bytes differ,
    what is in them does not.
    """
    died, found = survived(Frail, tmp_path, "sequential", shards, 3, 20, security=security)
    assert died == {1: 8, 2: 16}[shards]
    assert [each for each in found if "other bytes" not in each] == []


ATTACKS = [
    "replay",
    "collude",
    "no-noise",
    "dropout",
    "leave",
    "blackout",
    "mimic",
    "alie",
    "sign-flip",
    "twice",
    "garbage",
]


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.full
def test_attackers_go_on_on_another_actor_and_when_resumed(name, tmp_path):
    def attacked():
        (parameter,) = {"rate", "fraction"} & set(parameters(name))
        return attack({"name": name, parameter: 0.3})

    # Sums with carries have no noise that could be left out.
    protocol = PROTOCOLS["sequential" if name == "no-noise" else "interactive"]
    how = {"seed": 5, "fidelity": "literal", "block_size": 7}
    alone = run(protocol(9), rows(), adversary=attacked(), **how)
    diary = Diary(
        tmp_path, [("UserShard 1", 3, "answer", "after"), ("UserShard 0", 6, "answer", "before")]
    )
    result = chaos(Frail, diary, protocol(9), rows(), adversary=attacked(), **how)
    assert (diary.died, violations(result, diary, alone)) == (2, [])
    assert alone.reports.corrupted > 0
    # As it was after five rounds.
    (tmp_path / FILE).write_bytes(b"".join(records(tmp_path / FILE)[: 1 + 2 * 5]))
    resumed = run(
        protocol(9),
        rows(),
        workers=3,
        adversary=attacked(),
        checkpoint=tmp_path,
        resume=True,
        **how,
    )
    assert outcome(resumed) == outcome(alone)


@pytest.mark.full
def test_every_round_survives_a_death_at_a_random_step(tmp_path):
    rng, rounds = np.random.default_rng(7), 60
    steps = every_death(2, 16, rng)
    deaths = [
        (who, at, method, when)
        for at in range(rounds)
        for who, _, method, when in [steps[rng.integers(16)]]
    ]
    how = {"seed": 7, "fidelity": "literal", "shuffler_shards": 2, "block_size": 7}
    diary = Diary(tmp_path, deaths)
    result = chaos(Frail, diary, PROTOCOLS["interactive"](rounds), rows(), **how)
    assert (
        violations(result, diary, run(PROTOCOLS["interactive"](rounds), rows(), workers=2, **how))
        == []
    )
    assert diary.died == rounds


# What the checker would catch


class Redrawing(Redraws, Frail):
    pass


class Forgetting(Forgets, Frail):
    pass


class Counting(Frail):
    """Takes a round that was begun twice for two of the users' records."""

    def _round(self, broadcast):
        exchange, plan = super()._round(broadcast)
        return replace(exchange, users=exchange.users + exchange.users), plan


def forgetful_charge(self, cohort, event, charge=PrivacyLedger.charge):
    charge(self, cohort, event)
    if len(self.charges) == 9:
        self._planned.pop(3)


def late_charge(self, charge):
    self.late = charge


def late_settle(self, outcome, charge=Checkpoint.charge, settle=Checkpoint.settle):
    charge(self, self.late)
    settle(self, outcome)


@pytest.mark.parametrize("runtime", [Redrawing, Forgetting, Counting])
@pytest.mark.full
def test_a_runtime_that_breaks_a_promise_would_be_caught(runtime, tmp_path):
    caught = 0
    for seed in range(3):
        try:
            _, found = survived(runtime, tmp_path / str(seed), "interactive", 1, seed)
            caught += found != []
        except ShuffleSimError:  # the roles' own checks, or the accounts', came first
            caught += 1
    assert caught == 3


@pytest.mark.full
def test_a_ledger_that_forgets_would_be_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(PrivacyLedger, "charge", forgetful_charge)
    result_of = PROTOCOLS["interactive"](ROUNDS)
    diary = Diary(tmp_path, [])
    how = {"seed": 1, "fidelity": "literal"}
    result = chaos(Frail, diary, result_of, rows(), **how)
    monkeypatch.undo()
    assert "rounds were drawn that the ledger does not know" in violations(
        result, diary, run(result_of, rows(), **how)
    )


@pytest.mark.full
def test_a_charge_that_is_written_too_late_would_be_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "charge", late_charge)
    monkeypatch.setattr(Checkpoint, "settle", late_settle)
    _, found = survived(Frail, tmp_path, "interactive", 1, 1)
    assert "round 0 was drawn before it was charged" in found


# Real actors


@pytest.fixture(scope="module")
def session():
    """One Ray for all tests here; the actors' processes are given these modules."""
    for name in ("mortal", "rounds"):
        ray.cloudpickle.register_pickle_by_value(sys.modules[name])
    host = RayRuntime()
    host._connect()
    yield
    host.close()


@pytest.mark.slow_parameters("sequential-2")
@pytest.mark.full
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(("name", "shards"), [("interactive", 1), ("sequential", 2)])
@pytest.mark.long
def test_ray_actors_killed_at_every_step_change_nothing(name, shards, tmp_path):
    """60 rounds each, so 120 in all."""
    died, found = survived(Chaotic, tmp_path, name, shards, 11, 60)
    assert (died, found) == ({1: 8, 2: 16}[shards], [])


class Hunted(Chaotic):
    """Its actors are killed from outside, at any moment of a round or of a recovery; it looks where
    they listen meanwhile.
    """

    def __init__(self, diary):
        super().__init__(diary)
        self.rng, self.over = np.random.default_rng(diary.seed), threading.Event()
        self.kills, self.exposed = 0, {}

    def open(self, *arguments):
        plan = super().open(*arguments)
        self.hunter = threading.Thread(target=self._hunt)
        self.hunter.start()
        return plan

    def _hunt(self):
        seen = -1
        while not self.over.wait(self.rng.exponential(0.01)):
            if len(self._over) == seen:  # at most two in a round: six would abort it
                continue
            seen = len(self._over)
            for pause in self.rng.exponential((0.01, 0.3))[: self.rng.choice(3, p=(0.8, 0.1, 0.1))]:
                self.over.wait(pause)
                prey = [pid for pid in descendants(os.getpid()) if "Host" in command(pid)]
                self.exposed |= exposed(listening(set(prey)))
                if prey:
                    os.kill(int(self.rng.choice(prey)), signal.SIGKILL)
                    self.kills += 1

    def close(self):
        self.over.set()
        self.hunter.join()
        super().close()


def hunted(folder, name, seed, rounds):
    """(kills, violations) of a run whose actors are killed at random moments."""
    diary, how = Diary(folder), {"seed": seed, "fidelity": "literal", "block_size": 7}
    diary.seed = seed
    runtime = Hunted(diary)
    result = chaos(lambda _: runtime, diary, PROTOCOLS[name](rounds), rows(), **how)
    alone = run(PROTOCOLS[name](rounds), rows(), workers=2, **how)
    return runtime.kills, [*violations(result, diary, alone), *runtime.exposed]


@pytest.mark.slow
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", PROTOCOLS)
def test_ray_actors_killed_at_random_moments_change_nothing(name, seed, tmp_path):
    """1,200 rounds in all."""
    kills, found = hunted(tmp_path, name, seed, 60)
    assert (kills > 0, found) == (True, []), f"seed {seed}"
