"""Each planted defect is caught by the check that names it, and nothing is caught without one."""

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from mutants import CURATED, MUTANTS, Mutant
from mutants import registry as known
from mutants.registry import curated

from protocols.sums import encoding
from shuffle_sim.auditing import audit_central
from shuffle_sim.auditing.asked import Asked
from shuffle_sim.auditing.audit import _bound, _event_law
from shuffle_sim.auditing.checks import Checks
from shuffle_sim.auditing.plan import FALSE_ALARM, KINDS
from shuffle_sim.auditing.words import WordChecks
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.registry import registered_kinds
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.roles.onion import BoxPool
from shuffle_sim.roles.pools import MessagePool
from shuffle_sim.sampling.kernels import KERNELS
from shuffle_sim.sampling.randomness import GENERATORS

_ALARM = FALSE_ALARM / 40
_ASKED = "queries", "own", "unseeded", "hosted"


def make(check: str, protocol: Any, roles: dict[str, Any], options: dict[str, Any]) -> None:
    """One check of an audit, as it is made there."""
    spec = protocol.plan(protocol.init())
    if check in _ASKED:
        asked = Asked(protocol, None, options, 12345)
        asked.alarm = _ALARM
        getattr(asked, check)()
        return
    if spec.randomizer.view != "sums":
        getattr(WordChecks(spec, 12345, 1000, _ALARM), check)()
        return
    given = {"shard": UserShard, "shuffler": Shuffler} | roles
    entropy = 0x123456789ABCDEF0123456789ABCDEF
    bench = Checks(protocol, spec, entropy, 1000, _ALARM, given["shard"], given["shuffler"])
    if check == "bound":
        assert _bound(protocol, spec).passed
    elif check == "event":
        _event_law(bench, spec.event)
    else:
        getattr(bench, check)()


def caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether its check fails, in whatever way."""
    if mutant.plant is not None:
        mutant.plant(monkeypatch)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(mutant.check, mutant.make(), mutant.roles, mutant.options)
    except Exception:  # as the audit does
        return True
    return False


@pytest.mark.full
@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if not each.slow], ids=lambda m: m.name
)
def test_every_mutant_is_caught_by_its_check(mutant, monkeypatch):
    assert caught(mutant, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.slow], ids=lambda m: m.name)
def test_every_mutant_of_ray_is_caught_by_its_check(mutant, monkeypatch):
    assert caught(mutant, monkeypatch)


_MADE = known.vector, known.carry, known.split, known.single
_MORE = ("shares", known.split), ("together", known.split), ("search", known.vector)
_PLANTED = {(each.check, each.make) for each in MUTANTS if each.make in _MADE}
CONTROLS = sorted({*_PLANTED, *_MORE}, key=lambda each: (each[0], each[1].__name__))


@pytest.mark.full
@pytest.mark.parametrize(("check", "protocol"), CONTROLS)
def test_without_a_defect_the_check_is_passed(check, protocol):
    make(check, protocol(), {}, {})


@pytest.mark.full
@pytest.mark.parametrize("name", CURATED)
def test_every_mutant_of_a_curator_is_caught_by_its_check(name, monkeypatch):
    kind, plant, check = CURATED[name]
    if plant is not None:
        plant(monkeypatch)
    found = audit_central(*curated(kind), repeats=1000, seed=1)
    assert check in [each.name for each in found.checks if each.passed is False]


@pytest.mark.full
def test_a_curator_without_a_defect_passes():
    found = audit_central(*curated(known.Thrice), repeats=1000, seed=1)
    assert found.passed, found.checks
    assert found.complete


def _covered() -> Counter[str]:
    return Counter(each for mutant in MUTANTS for each in mutant.covers)


def test_every_check_has_a_mutant():
    checks = {each.method for each in KINDS} | {*_ASKED, "event", "bound"}
    assert checks == {mutant.check for mutant in MUTANTS}


def test_every_randomizer_kernel_generator_pool_and_runtime_has_mutants():

    kinds = {
        each.__name__
        for each in _subclasses(encoding.SumRandomizer)
        if _shipped(each) and getattr(each, "view", "") == "sums"
    }
    pools = {each.__name__ for each in _subclasses(MessagePool) if _shipped(each)} - {
        "TallyPool",
        "CountPool",
    }
    assert BoxPool.__name__ in pools  # tallies are not permuted; views of words: test_words
    needed = {*kinds, *pools, *KERNELS, *GENERATORS, *registered_kinds("runtime", Runtime)}
    assert needed <= set(_covered()), needed - set(_covered())


def _shipped(kind: type) -> bool:
    return kind.__module__.startswith(("protocols.", "shuffle_sim."))


def _subclasses(kind: type) -> set[type]:
    return {each for one in kind.__subclasses__() for each in (one, *_subclasses(one))}


def test_no_two_mutants_have_one_name():
    assert max(Counter(each.name for each in MUTANTS).values()) == 1
    assert np.all([each.check for each in MUTANTS])
