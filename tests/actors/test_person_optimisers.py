"""Person-level optimisers on Ray: the bits of a run in process, whatever happens on the way."""

import sys
from typing import Any

import numpy as np
import pytest

from actors.runtime import RayRuntime, ray
from protocols import L2Ball, Logistic, Problem, UserLevelACSA, UserLevelGD, UserLevelOneShot
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.attacks.inputs import LabelFlip, SignFlip
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.protocol.adversary import Chain, Dropout

USERS, D = 300, 2
PROBLEM = Problem(Logistic(), L2Ball(D, 1.0), ridge=0.2, records=20_000)
PRIVACY = Privacy(8.0, 1e-6)
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gd": (UserLevelGD, {"rounds": 5, "center": "carried"}),
    "batches": (UserLevelACSA, {"batch": 100}),
    "one shot": (UserLevelOneShot, {"rounds": 3, "steps": 20}),
}


@pytest.fixture(scope="module", autouse=True)
def session():
    """One Ray for all tests here."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    host = RayRuntime()
    host._connect()
    yield
    host.close()


def made(name, users=USERS, privacy=PRIVACY):
    kind, given = KINDS[name]
    return kind.calibrated(n=users, problem=PROBLEM, privacy=privacy, **given)


def persons(users=USERS):
    """Ragged: one to four records each."""
    rng = np.random.default_rng(0)
    data = []
    for count in rng.integers(1, 5, users):
        x = rng.normal(size=(count, D)) / 4
        data.append(np.column_stack([x, np.where(x[:, 0] > 0, 1.0, -1.0)]))
    return Persons.in_memory(data)


def outcome(result):
    """All that must not depend on where a run took place."""
    return result.value.tobytes(), result.costs, result.reports, result.privacy, result.rounds


@pytest.mark.slow_parameters("gd")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.long
def test_dropouts_and_attackers_do_on_ray_what_they_do_here(name):
    protocol, data = made(name), persons()
    found = [
        run(
            protocol,
            data,
            runtime=runtime,
            workers=workers,
            shuffler_shards=1,
            seed=3,
            fidelity="counts",
            execution=Execution(block_size=64),
            adversary=Chain(Dropout(0.1), LabelFlip(0.1), SignFlip(0.05)),
        )
        for runtime, workers in (("inprocess", 1), ("ray", 2))
    ]
    alone, together = found
    assert outcome(together) == outcome(alone)
    assert together.unit is Unit.PERSON
    assert together.reports.missing > 0
    honest = run(protocol, data, seed=3, fidelity="counts", execution=Execution(block_size=64))
    assert outcome(honest)[0] != outcome(alone)[0]  # not blind


class StopError(Exception):
    """Ends a run after its second round."""


@pytest.mark.slow_parameters("gd-ray")
@pytest.mark.parametrize(("name", "runtime"), [("gd", "ray"), ("one shot", "inprocess")])
@pytest.mark.full
def test_a_run_that_ended_early_is_resumed_with_its_centers(name, runtime, tmp_path):
    protocol, data = made(name), persons()

    def stop(index, *_):
        if index == 1:
            raise StopError

    how = {"seed": 5, "runtime": runtime, "workers": 2, "adversary": Dropout(0.1)}
    with pytest.raises(StopError):
        run(protocol, data, checkpoint=tmp_path, execution=Execution(on_round=stop), **how)
    resumed = run(protocol, data, checkpoint=tmp_path, resume=True, **how)
    whole = run(protocol, data, seed=5, adversary=Dropout(0.1))
    assert outcome(resumed) == outcome(whole)
    assert resumed.rounds == protocol.rounds > 2


@pytest.mark.slow_parameters("gd-ray")
@pytest.mark.parametrize(("name", "runtime"), [("gd", "ray"), ("one shot", "inprocess")])
@pytest.mark.full
def test_messages_under_seal_carry_the_same_bits(name, runtime):
    privacy = Privacy(60.0, 1e-1)  # few messages: every one is sealed twice
    protocol, data = made(name, 24, privacy), persons(24)
    plain = run(protocol, data, seed=7, fidelity="literal")
    sealed = run(
        protocol, data, runtime=runtime, workers=2, seed=7, fidelity="literal", security="onion"
    )
    assert (sealed.value == plain.value).all()
    assert sealed.costs.sealing_bytes > 0
    assert sealed.reports.accepted == plain.reports.accepted == 24 * protocol.rounds
