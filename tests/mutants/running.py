"""One check of an audit on its own, as the audit makes it, with a defect planted or without."""

import math
import sys
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.claims.plan import FALSE_ALARM
from shuffle_sim.auditing.claims.stated import check_bound
from shuffle_sim.auditing.curator import curated as releases
from shuffle_sim.auditing.curator.calls import value_of
from shuffle_sim.auditing.curator.convexity import check_loss, losses_of
from shuffle_sim.auditing.curator.curated import Runs
from shuffle_sim.auditing.curator.mechanism_law import check_mechanism
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.auditing.shuffle.bench import of_categories
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.auditing.shuffle.words import WordChecks
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.protocol.release import Release
from shuffle_sim.roles import Shuffler, UserShard

from .curators import ALONE, CHARGED, CURATED, FAR, FOLLOWS, FRESH, MADE, RESUMES, STEEP, curated
from .registry import Mutant

ASKED = "queries", "own", "agreed", "unseeded", "sealed", "resumed", "hosted"
_ALARM = FALSE_ALARM / 40
_ENTROPY = 0x123456789ABCDEF0123456789ABCDEF


def make(
    check: str, protocol: Any, roles: dict[str, Any], options: dict[str, Any], seed: int = 0
) -> None:
    """Make one check.

    Raises:
        LawError: what the check says; any other error is the defect's.
    """
    spec = protocol.plan(protocol.init())
    entropy = _ENTROPY ^ seed << 32
    if check in ASKED:
        asked = Asked(protocol, None, options, entropy)
        asked.alarm = _ALARM
        getattr(asked, check)()
        return
    if check == "bound":
        check_bound(protocol)
        return
    given = {"shard": UserShard, "shuffler": Shuffler} | roles
    kind = WordChecks if of_categories(spec.randomizer) else Checks
    bench = kind(protocol, spec, entropy, 1000, _ALARM, given["shard"], given["shuffler"])
    getattr(bench, check)()


def caught(mutant: Mutant, patch: pytest.MonkeyPatch, seed: int = 0) -> bool:
    """Whether its check refuses it; what stops a check for another reason is no catch.

    Raises:
        Exception: such a reason. An audit fails by it, too, but says nothing of the defect.
    """
    if mutant.plant is not None:
        mutant.plant(patch)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(mutant.check, mutant.make(), mutant.roles, mutant.options, seed)
    except (LawError, ShuffleSimError):
        return True
    return False


def uncached() -> None:
    """What accountants have computed: with a defect it is wrong, and without it would stay so."""
    for name, module in list(sys.modules.items()):
        if name.startswith("shuffle_sim.privacy"):
            for each in vars(module).values():
                if hasattr(each, "cache_clear"):
                    each.cache_clear()


def caught_curator(name: str, patch: pytest.MonkeyPatch) -> bool:
    """Whether whole runs of a curator with a defect fail in the check that names it."""
    kind, plant, check = CURATED[name]
    if plant is not None:
        plant(patch)
    if check == ALONE:
        algorithm, rows, _ = curated(kind)
        return _caught_alone(algorithm.plan(algorithm.init()), rows)
    if check == STEEP:
        return _caught_steep(*curated(kind)[:2])
    if check == FRESH:  # all runs, however slow the machine: with fewer a defect may pass
        patch.setattr(releases, "_SECONDS", math.inf)
    runs = Runs(*curated(kind), {})
    try:
        if check == FRESH:
            runs.noise(FALSE_ALARM / 4)
        else:
            if check == MADE:  # runs of other rows come before it in an audit, too
                with suppress(LawError):
                    runs.distances()
            made = {CHARGED: runs.charged, FAR: runs.distances, FOLLOWS: runs.followed}
            (made | {MADE: runs.values, RESUMES: runs.resumed})[check]()
    except LawError:
        return True
    return False


def _caught_steep(algorithm: Any, rows: np.ndarray) -> bool:
    """Whether a loss is refused."""
    try:
        for loss in losses_of(algorithm, algorithm.plan(algorithm.init())):
            check_loss(loss, rows)
    except LawError:
        return True
    return False


def _caught_alone(release: Release, rows: np.ndarray) -> bool:
    """Whether a mechanism is refused without a run of the curator."""
    given = hasattr(release.mechanism, "after")  # what minimises needs rows
    value = value_of(release, InMemory(rows)) if given else np.zeros(3)
    try:
        check_mechanism(release, value, FALSE_ALARM / 20)
    except LawError:
        return True
    return False
