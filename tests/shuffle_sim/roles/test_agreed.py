"""Users and the shuffler refuse a broadcast outside what the run can ask."""

import pickle
import tracemalloc
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from protocols import VectorSum
from shuffle_sim import run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.protocol.task import task_of
from shuffle_sim.roles import Analyzer, Deployment, Shuffler, UserShard
from shuffle_sim.wire.frames import Context, Frame, Kind

PROTOCOL = VectorSum(n=50, d=2, g=3, b=9)
DEPLOYMENT = Deployment(
    protocol=PROTOCOL,
    task=bytes(16),
    entropy=1,
    fidelity="aggregate",
    block_size=10,
    agreed=task_of(PROTOCOL),
)


def broadcast(spec: RoundSpec, index: int = 0) -> bytes:
    payload = spec.broadcast()
    context = Context.of_broadcast(bytes(16), index, payload)
    return Frame(Kind.ROUND, context, 0, 0, payload).tobytes()


def planned() -> RoundSpec:
    spec = PROTOCOL.plan(PROTOCOL.init())
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    "spec",
    [
        replace(planned(), cohort=Cohort.of(0, 51)),
        replace(planned(), cohort=Cohort.of(10**12, 10**12 + 1)),
        replace(planned(), cohort=Cohort.of(0, 1), minimum=2),
        replace(planned(), randomizer=replace(PROTOCOL.randomizer, b=2**44)),
        replace(planned(), cohort=Cohort.of(0, 1)),
        replace(planned(), cohort=Cohort.of(7, 8)),
        replace(planned(), randomizer=replace(PROTOCOL.randomizer, p=1e-300)),
        replace(planned(), randomizer=replace(PROTOCOL.randomizer, b=8)),
        replace(planned(), randomizer=replace(PROTOCOL.randomizer, g=4)),
        replace(planned(), randomizer=replace(PROTOCOL.randomizer, g=2**43)),
    ],
)
def test_a_broadcast_outside_the_run_is_refused_by_users_and_shuffler(spec):
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    for role in (users.answer, lambda sent: Shuffler(DEPLOYMENT).shuffle(sent, [])):
        with pytest.raises(FrameError, match="not-agreed"):
            role(broadcast(spec))


def changed(**values):
    """The planned randomizer as bytes could hold it, without its own checks."""
    made = copy(PROTOCOL.randomizer)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return replace(planned(), randomizer=made)


@pytest.mark.parametrize(
    "values",
    [
        {"norm_bound": 1e-300},  # its square is 0: a zero row would be 0/0
        {"lower": -1e9},  # the kernels do not clip again
        {"norm_bound": 1.5},
        {"width": 1e-300, "lower": 0.0, "norm_bound": None},
        {"p": float("nan")},
        {"labels": 2**40},
        {"labels": 2**62},
    ],
)
def test_a_domain_that_floats_do_not_hold_is_refused_by_users_and_shuffler(values):
    sent = broadcast(changed(**values))
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    tracemalloc.start()
    try:
        for role in (users.answer, lambda sent: Shuffler(DEPLOYMENT).shuffle(sent, [])):
            with pytest.raises(FrameError, match=r"not-agreed|malformed-broadcast"):
                role(sent)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_rounds_and_participation_are_agreed():
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    for role in (users.answer, lambda sent: Shuffler(DEPLOYMENT).shuffle(sent, [])):
        with pytest.raises(FrameError, match="not-agreed: round 4,294,967,295"):
            role(broadcast(planned(), 2**32 - 1))
    twice = replace(DEPLOYMENT, agreed=replace(task_of(PROTOCOL), rounds=9))
    users = UserShard(twice, InMemory(np.zeros((50, 2))), range(5))
    users.answer(broadcast(planned()))
    users.answer(broadcast(planned()))  # the same round again is no second one
    with pytest.raises(FrameError, match="not-agreed: a user in more rounds than 1"):
        users.answer(broadcast(planned(), 1))
    again = UserShard(twice, InMemory(np.zeros((50, 2))), range(5), (broadcast(planned()),))
    with pytest.raises(FrameError, match="not-agreed: a user in more rounds than 1"):
        again.answer(broadcast(planned(), 1))


def test_another_scale_of_the_same_strength_is_agreed():
    narrow = replace(PROTOCOL.randomizer, norm_bound=0.5, lower=-0.5, width=1.0)
    spec = replace(planned(), randomizer=narrow)
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    assert users.answer(broadcast(spec))[1].asked == 50


def test_entropy_is_held_by_role_and_never_shown():
    entropy = 0x1234567890ABCDEF1234567890ABCDEF
    known = replace(DEPLOYMENT, entropy=entropy)
    for each in (known, known.of_shuffler, known.of_analyzer):
        assert "entropy" not in repr(each)
    assert known.of_analyzer.entropy == 0
    assert known.of_shuffler.entropy not in (0, entropy)
    made = {}

    class Keeps(InProcessRuntime):
        def host(self, role, *arguments):
            made[role] = arguments
            return super().host(role, *arguments)

    run(PROTOCOL, np.zeros((50, 2)), runtime=Keeps(), seed=entropy)
    assert made[UserShard][0].entropy == entropy
    for role in (Shuffler, Analyzer):
        assert entropy.to_bytes(16, "little") not in pickle.dumps(made[role])
    assert entropy.to_bytes(16, "little") in pickle.dumps(made[UserShard])  # power


def test_the_planned_broadcast_is_answered():
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    assert users.answer(broadcast(planned()))[1].asked == 50
