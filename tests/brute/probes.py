"""What was mended and moves no release: a probe is true where its mend is not in force."""

import tracemalloc
from copy import copy
from typing import Any

import numpy as np

from protocols import CarryVectorSum, L2Ball, Logistic, Problem, UserLevelGD
from shuffle_sim import Privacy
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated, InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.protocol.task import task_of
from shuffle_sim.roles import Deployment
from shuffle_sim.sampling.carries import carry_out
from shuffle_sim.wire.frames import Context, Frame, Kind

from .cases import FLAT
from .statements import strays

MIB = 1 << 20


def points_lie_outside(monkeypatch: Any) -> bool:
    """Projections onto two sets that nearly only touch."""
    return strays(FLAT) > 1


def other_rows_are_not_seen(monkeypatch: Any) -> bool:
    """Generated rows that a global changes have the hash of those before."""
    scale = [1.0]

    def content() -> bytes:
        made = Generated(8, lambda rng, count: scale[0] * rng.normal(size=count))
        return made.watched().content(0, 8)

    before = content()
    scale[0] = 2.0
    return content() == before


class Doubling:
    """A randomizer whose code a stranger changes."""

    def times(self) -> int:
        """Two."""
        return 2


def other_code_is_not_seen(monkeypatch: Any) -> bool:
    """A run whose randomizer changed is taken for the one that died."""

    def marks() -> Any:
        values = {"randomizer": Doubling()}
        return RunIdentity(values=values, settings={}, seed=1, task=bytes(16), entropy=1).marks

    before = marks()
    monkeypatch.setattr(Doubling, "times", lambda self: 3)
    return bool(marks() == before)


class Tying:
    """Random words that leave every sum undecided four times."""

    def __init__(self) -> None:
        """Nothing was asked."""
        self.bit_generator, self.asked = self, 0

    def random_raw(self, size: int) -> Any:
        """One of them all ones at first; then zeros."""
        self.asked += 1
        words = np.zeros(size, np.uint64)
        words[0] = 2**64 - 1 if self.asked <= 4 else 0
        return words


def ties_are_not_drawn_out(monkeypatch: Any) -> bool:
    """The sampler of carries grants what it did not draw."""
    rng: Any = Tying()
    carry_out(np.zeros(1), 2, rng)
    return bool(rng.asked < 5)


def a_person_costs_memory(monkeypatch: Any) -> bool:
    """One of 40 persons with 200,000 records makes all others' as long."""
    data = Persons(InMemory(np.zeros((200_039, 3))), np.array([200_000, *[1] * 39]))
    problem = Problem(Logistic(), L2Ball(2, 1.0), records=3)
    made = UserLevelGD.calibrated(n=40, problem=problem, privacy=Privacy(50.0, 1e-3), rounds=1)
    asked: Any = made.plan(made.init())
    tracemalloc.start()
    try:
        asked.query(data.first(made.most_records).rows(0, 40))
        return tracemalloc.get_traced_memory()[1] > MIB
    finally:
        tracemalloc.stop()


def things_are_built_first(monkeypatch: Any) -> bool:
    """A randomizer of 20,000 coordinates, in a broadcast that nobody agreed to, is built."""
    carries = CarryVectorSum(n=50, d=2, g=2.0, r=2, b=30)
    agreed = task_of(carries)
    asked: Any = copy(carries.plan(carries.init()))
    large: Any = copy(carries.randomizer)
    object.__setattr__(large, "coordinates", 20_000)
    object.__setattr__(asked, "randomizer", large)
    payload = asked.broadcast()
    context = Context.of_broadcast(bytes(16), 0, payload)
    sent = Frame(Kind.ROUND, context, 0, 0, payload).tobytes()
    roles = Deployment(
        protocol=carries,
        task=bytes(16),
        entropy=1,
        fidelity="aggregate",
        block_size=10,
        agreed=agreed,
    )
    built: list[Any] = []

    def noted(self: Any) -> None:
        built.append(self)

    monkeypatch.setattr(type(large), "__post_init__", noted)
    try:
        roles.opened(sent)
    except FrameError:
        return bool(built)
    return True
