"""Each planted defect is caught by the check that names it, and nothing is caught without one."""

import gc
import inspect
from collections import Counter

import numpy as np
import pytest
from mutants import CURATED, MUTANTS, Mutant
from mutants import registry as known
from mutants.clean import CLEAN, alarms
from mutants.clean import CURATED as WITHOUT
from mutants.curators import Thrice, curated
from mutants.in_company import LATER
from mutants.long_sums import buckets, floods
from mutants.running import ASKED, caught, caught_curator, make, uncached

from shuffle_sim.auditing import LawError, audit_central
from shuffle_sim.auditing.claims.plan import FALSE_ALARM, KINDS, plan_of
from shuffle_sim.auditing.curator.mechanism_law import check_mechanism
from shuffle_sim.auditing.shuffle.bench import of_categories
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.auditing.shuffle.word_plan import WORD_KINDS
from shuffle_sim.auditing.shuffle.words import WordChecks
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.privacy.mechanisms import L2Laplace, Laplace, LocalGaussian
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.release import Release, Sensitivity
from shuffle_sim.protocol.task import walked
from shuffle_sim.registry import forget, register, registered_kinds
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.roles.pools import MessagePool
from shuffle_sim.sampling.kernels import KERNELS
from shuffle_sim.sampling.randomness import GENERATORS


@pytest.fixture(autouse=True)
def _alone():
    """What accountants computed with a defect is gone, and what they computed without one."""
    uncached()
    yield
    uncached()


def place(mutant: Mutant) -> tuple[str, ...]:
    """The check, and what is broken."""
    return mutant.check, *mutant.covers[:1]


FIRST = {place(each): each.name for each in reversed(MUTANTS) if not each.slow}
"""The first mutant of each check and thing: it is planted in every run, others in slow ones."""


@pytest.mark.slow_parameters(
    "FloodBareBetween",
    "SharesOfFewSeeds",
    "BucketsSure",
    "boxes keep their order",
    "Planes: halves of a block alike",
)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            each,
            id=each.name,
            marks=pytest.mark.full if each.name in FIRST.values() else pytest.mark.slow,
        )
        for each in MUTANTS
    ],
)
def test_every_mutant_is_caught_by_its_check(mutant, monkeypatch):
    assert caught(mutant, monkeypatch)


_MADE = known.vector, known.carry, known.split, known.single, buckets, floods
_MORE = ("shares", known.split), ("together", known.split), ("search", known.vector)
_PLANTED = {(each.check, each.make) for each in MUTANTS if each.make in _MADE}
CONTROLS = sorted({*_PLANTED, *_MORE}, key=lambda each: (each[0], each[1].__name__))


@pytest.mark.slow_parameters("order-vector", "streams-carry", "sealed-vector")
@pytest.mark.full
@pytest.mark.parametrize(("check", "protocol"), CONTROLS)
def test_without_a_defect_the_check_is_passed(check, protocol):
    secured = [{"security": "transport"}, {"security": "onion"}]
    for options in secured if check == "sealed" else [{}]:
        make(check, protocol(), {}, options)


@pytest.mark.slow_parameters("one of twenty with less", "coins for all coordinates")
@pytest.mark.full
@pytest.mark.parametrize("name", CURATED)
def test_every_mutant_of_a_curator_is_caught_by_its_check(name, monkeypatch):
    assert caught_curator(name, monkeypatch)


@pytest.mark.full
def test_a_curator_without_a_defect_passes():
    found = audit_central(*curated(Thrice), repeats=1000, seed=1)
    assert found.passed, found.checks
    assert found.complete


@pytest.mark.full
@pytest.mark.parametrize("mechanism", [L2Laplace(0.2, 3), Laplace(0.5), LocalGaussian(3.0, 30)])
@pytest.mark.parametrize("size", [1e-4, 37.0])
def test_a_mechanism_without_a_defect_passes_alone(mechanism, size):
    sensitivity = Sensitivity(size, mechanism.norm, "")
    check_mechanism(Release(Cohort.of(0, 2), None, sensitivity, mechanism), np.zeros(3), 1e-7)


def _covered() -> Counter[str]:
    return Counter(each for mutant in MUTANTS for each in mutant.covers)


def test_every_check_has_a_mutant():
    checks = {each.method for each in (*KINDS, *WORD_KINDS)} | {*ASKED, "bound"}
    assert checks == {mutant.check for mutant in MUTANTS}


def needed() -> set[str]:
    """All that is shipped and may be broken, by name."""
    randomizers = {each.__name__ for each in _subclasses(Randomizer) if _complete(each)}
    pools = {each.__name__ for each in _subclasses(MessagePool) if _shipped(each)}
    pools -= {"TallyPool", "CountPool"}  # tallies are not permuted
    return {*randomizers, *pools, *KERNELS, *GENERATORS, *registered_kinds("runtime", Runtime)}


def test_every_registered_sampler_pool_and_runtime_has_mutants():
    assert {"BoxPool", "WordPool", "Response", "CarryRandomizer"} <= needed()
    assert needed() <= set(_covered()), needed() - set(_covered())


def test_all_that_is_registered_is_audited_without_a_defect():
    """By `python -m tests.mutants --clean`; some of them here."""
    assert {*registered_kinds("protocol", object)} <= {*CLEAN}
    assert {*registered_kinds("algorithm", object)} <= {*WITHOUT}


@pytest.mark.slow_parameters("running-totals", "pop-localize")
@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "running-totals",
        "saddle-erm",
        "pop-localize",
        "output-perturbation, chacha20",
        "output-perturbation, processes",
    ],
)
def test_an_audit_without_a_defect_raises_no_alarm(name):
    assert alarms(name, seed=1) == []


@pytest.mark.parametrize("base", [MessagePool, Runtime, Randomizer])
@pytest.mark.full
def test_a_new_one_without_mutants_fails(base):
    """Power of the test above, for each kind."""
    made = dict.fromkeys(getattr(base, "__abstractmethods__", ()))  # nothing is left abstract
    planted = type("Planted", (base,), made | {"__module__": "protocols.planted"})
    try:
        if base is Runtime:
            register("runtime", "Planted", planted)
        assert needed() - set(_covered()) == {"Planted"}
    finally:
        forget()
        del planted
        gc.collect()  # else it stays among the subclasses


def _shipped(kind: type) -> bool:
    return kind.__module__.startswith(
        ("protocols.", "shuffle_sim.")
    ) and not kind.__module__.startswith("shuffle_sim.auditing")


def _complete(kind: type) -> bool:
    return _shipped(kind) and not inspect.isabstract(kind)


def _subclasses(kind: type) -> set[type]:
    return {each for one in kind.__subclasses__() for each in (one, *_subclasses(one))}


def test_no_two_mutants_have_one_name():
    assert max(Counter(each.name for each in MUTANTS).values()) == 1
    assert np.all([each.check for each in MUTANTS])


@pytest.mark.full
@pytest.mark.parametrize(
    ("check", "make_it", "plant"), LATER, ids=[plant.__name__ for *_, plant in LATER]
)
def test_defects_of_later_rounds_are_caught(check, make_it, plant, monkeypatch):
    """A later round's randomizer is looked at by the same check."""
    plant(monkeypatch)
    protocol, failed = make_it(), list[str]()
    for spec in list(walked(protocol))[1:]:
        kind = WordChecks if of_categories(spec.randomizer) else Checks
        bench = kind(protocol, spec, 7, 1000, FALSE_ALARM / 40, UserShard, Shuffler)
        methods = {each.method for each, _ in plan_of(bench, brief=True)}
        assert check in methods
        try:
            getattr(bench, check)()
        except LawError as error:
            failed.append(str(error))
    assert failed
