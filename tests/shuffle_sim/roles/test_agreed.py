"""Users and the shuffler refuse a broadcast outside what the run can ask."""

import pickle
import tracemalloc
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rounds import deployed

from protocols import (
    CarryVectorSum,
    Hinge,
    L2Ball,
    Logistic,
    Problem,
    RealSpace,
    ShuffleSGD,
    VectorSum,
)
from protocols.shuffle import OneShotAverage
from protocols.sums.carry import CarryRandomizer
from shuffle_sim import Privacy, run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.protocol.task import task_of
from shuffle_sim.roles import Analyzer, Deployment, Shuffler, UserShard
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.frames import Context, Frame, Kind

PROTOCOL = VectorSum(n=50, d=2, g=3, b=9)
DEPLOYMENT = deployed(PROTOCOL, 10, fidelity="aggregate", agreed=task_of(PROTOCOL))


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
def test_a_broadcast_outside_the_run_is_refused(spec):
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
def test_a_domain_that_floats_do_not_hold_is_refused(values):
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


def agreed_to(protocol) -> Deployment:
    return replace(DEPLOYMENT, protocol=protocol, agreed=task_of(protocol))


PROBLEM = Problem(Logistic(), RealSpace(2), 0.1)
AVERAGE = OneShotAverage.calibrated(
    n=50, records=4, problem=PROBLEM, privacy=Privacy(3.0, 1e-3), protects="record"
)
HINGE = ShuffleSGD.calibrated(
    n=50, problem=Problem(Hinge(), L2Ball(2, 1.0)), privacy=Privacy(3.0, 1e-3), batch=25
)


def first(protocol) -> Any:
    spec = protocol.plan(protocol.init())
    assert spec is not None
    return spec


def asking(protocol, **changed) -> RoundSpec:
    """The first round with another query."""
    spec = first(protocol)
    return replace(spec, query=replace(spec.query, **changed))


@pytest.mark.parametrize(
    ("protocol", "changed"),
    [
        (AVERAGE, {"ridge": 0.001}),  # minimisers move a hundred times as far
        (AVERAGE, {"ridge": 0.1 + 1e-17 * 8}),
        (AVERAGE, {"loss": Logistic(2.0)}),
        (AVERAGE, {"loss": Logistic(1)}),  # another type of the same value: other bytes
        (AVERAGE, {"radius": 2 * AVERAGE.query.radius}),
        (AVERAGE, {"shape": ("ball", 2, (1.0, 0.0, 0.0))}),
        (AVERAGE, {"moved": None}),
        (AVERAGE, {"moved": 40}),
        (AVERAGE, {"solver": "gd"}),
        (HINGE, {"smoothing": 1.0}),
        (HINGE, {"loss": Hinge(3.0)}),
        (HINGE, {"theta": np.zeros(3)}),
        (HINGE, {"theta": np.full(2, np.nan)}),
    ],
)
def test_another_query_than_was_agreed_is_refused(protocol, changed):
    deployment = agreed_to(protocol)
    users = UserShard(deployment, InMemory(np.zeros((50, 4, 3))), range(5))
    sent = broadcast(asking(protocol, **changed))
    for role in (users.answer, lambda sent: Shuffler(deployment).shuffle(sent, [])):
        with pytest.raises(FrameError, match=r"not-agreed|malformed"):
            role(sent)
    # Power: users who agreed to nothing do not see it, whatever the query says.
    assert replace(deployment, agreed=None).opened(sent).query is not None
    deployment.opened(broadcast(first(protocol)))


def test_another_theta_is_no_other_query():
    agreed_to(HINGE).opened(broadcast(asking(HINGE, theta=np.array([0.3, -0.0]))))


def test_a_query_of_another_strength_is_refused():
    """Half the width, and the same distance of neighbours: twice the steps."""
    spec = first(AVERAGE)
    narrow = replace(
        spec.randomizer,
        norm_bound=spec.randomizer.norm_bound / 2,
        lower=spec.randomizer.lower / 2,
        width=spec.randomizer.width / 2,
    )
    with pytest.raises(FrameError, match="not-agreed: another strength"):
        agreed_to(AVERAGE).opened(broadcast(replace(spec, randomizer=narrow)))


def test_nothing_is_built_of_a_broadcast_that_was_not_agreed(monkeypatch):
    """159 bytes that ask for 2e8 coordinates; once they took 37 s and 1.7 GiB."""
    carries = CarryVectorSum(n=50, d=2, g=2.0, r=2, b=30)
    deployment, spec = agreed_to(carries), first(carries)
    large = copy(spec.randomizer)
    object.__setattr__(large, "coordinates", 2 * 10**8)
    sent = broadcast(replace(spec, randomizer=large))
    assert len(sent) < 200
    built: list[object] = []

    def noted(self):
        built.append(self)

    monkeypatch.setattr(CarryRandomizer, "__post_init__", noted)
    users = UserShard(deployment, InMemory(np.zeros((50, 2))), range(5))
    tracemalloc.start()
    try:
        for role in (users.answer, lambda sent: Shuffler(deployment).shuffle(sent, [])):
            with pytest.raises(FrameError, match="not-agreed: another query or randomizer"):
                role(sent)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert not built
    users.answer(broadcast(spec))
    assert built  # power


def test_a_long_broadcast_is_refused_before_it_is_parsed(monkeypatch):
    sent = broadcast(planned())
    payload = encode((*((1,) * 5000,), Datum(), PROTOCOL.randomizer, 1))
    context = Context.of_broadcast(bytes(16), 0, payload)
    long = Frame(Kind.ROUND, context, 0, 0, payload).tobytes()
    monkeypatch.setattr("shuffle_sim.roles.deployment.parse", lambda _: pytest.fail("parsed"))
    with pytest.raises(FrameError, match=r"not-agreed: .* bytes, at most"):
        DEPLOYMENT.opened(long)
    assert len(sent) < DEPLOYMENT.agreed.size


class Adapts(VectorSum):
    """Its noise bits follow from views, as it says."""

    adaptive, chosen = True, ("b",)


def test_what_an_adaptive_protocol_does_not_choose_binds():
    deployment = agreed_to(Adapts(n=50, d=2, g=3, b=9))
    for changed, agreed in (({"b": 99}, True), ({"g": 4}, False), ({"labels": 3}, False)):
        spec = replace(planned(), randomizer=replace(PROTOCOL.randomizer, **changed))
        if agreed:
            deployment.opened(
                broadcast(replace(spec, cohort=Cohort.of(3, 7))),
            )
        else:
            with pytest.raises(FrameError, match="not-agreed: another query"):
                deployment.opened(broadcast(spec))


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
