"""Users and the shuffler refuse a broadcast outside what the run can ask."""

from dataclasses import replace

import numpy as np
import pytest

from protocols import VectorSum
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.roles import Deployment, Shuffler, UserShard
from shuffle_sim.wire.frames import Context, Frame, Kind

PROTOCOL = VectorSum(n=50, d=2, g=3, b=9)
DEPLOYMENT = Deployment(
    protocol=PROTOCOL, task=bytes(16), entropy=1, fidelity="aggregate", block_size=10
)


def broadcast(spec: RoundSpec) -> bytes:
    payload = spec.broadcast()
    context = Context.of_broadcast(bytes(16), 0, payload)
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
    ],
)
def test_a_broadcast_outside_the_run_is_refused_by_users_and_shuffler(spec):
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    for role in (users.answer, lambda sent: Shuffler(DEPLOYMENT).shuffle(sent, [])):
        with pytest.raises(FrameError, match="not-agreed"):
            role(broadcast(spec))


def test_the_planned_broadcast_is_answered():
    users = UserShard(DEPLOYMENT, InMemory(np.zeros((50, 2))), range(5))
    assert users.answer(broadcast(planned()))[1].asked == 50
