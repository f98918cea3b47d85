"""Audits of histograms: what is right passes, each planted defect is found.

Quickly by the checks of words alone, and slowly by whole audits.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from protocols import Histogram
from protocols.counts.groups import Planes
from protocols.counts.pollution import Categories
from protocols.counts.single import FixedBlanket, Response
from protocols.counts.trees import Nodes
from protocols.counts.two_sided import TwoSided
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.audit import audit
from shuffle_sim.auditing.claims.plan import plan_of
from shuffle_sim.auditing.shuffle.words import WordChecks
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.protocol.one_round import OneRound
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.wire.messages import Tally

USERS = 6  # as many as an audit draws: then a user more is a seventh of the noise
SMALL = [
    Categories((3,), (1.5,), 6, 40, 2, 0.2),
    TwoSided(3, 0.4, 0.5, 6, 60, 1),
    Response(3, 1.0),
    FixedBlanket(3, 1),
    Nodes((2, 4), (1.0, 1.0), 6, 40),
    Planes((2,) * 2, (1.0, 2.0), 6, 60, bits=1),
]


def audited(randomizer, repeats=300):
    spec = RoundSpec(
        Cohort.of(0, 6), Datum(), randomizer, randomizer.event(6, None), lambda tally: tally
    )
    bench = WordChecks(OneRound(6, randomizer, 1e-6), spec, 5, repeats, 1e-6, UserShard, Shuffler)
    for kind, planned in plan_of(bench):
        assert not planned.missing
        if kind.method not in ("order", "streams", "keys"):  # not of this randomizer alone
            getattr(bench, kind.method)()


@pytest.mark.slow_parameters("TwoSided", "Planes", "Nodes", "Categories")
@pytest.mark.full
@pytest.mark.parametrize("randomizer", SMALL, ids=lambda each: type(each).__name__)
def test_randomizers_pass_their_audit(randomizer):
    audited(randomizer, 100)


@dataclass(frozen=True)
class Careless(Categories):
    """Makes the noise of one user more than there are."""

    def _number(self, index, users):
        return super()._number(index, users) * self.planned // (self.planned + 1)


@dataclass(frozen=True)
class Shared(Categories):
    """The users of a block draw the same noise."""

    def reports(self, xs, rng):
        noise = self.randomize(np.array(-1.0), rng).words
        sent = [np.append(noise, int(x)) for x in xs]
        return self.singly(np.concatenate(sent), [len(each) for each in sent])


@dataclass(frozen=True)
class Doubled(Categories):
    """Sends the truth twice."""

    def sent(self, values, rng):
        owners, words = super().sent(values, rng)
        return np.repeat(owners, 2), np.repeat(words, 2)


@dataclass(frozen=True)
class Blind(Categories):
    """Leaves the last bin without noise in aggregate runs."""

    def tallied(self, xs, rng):
        tally = super().tallied(xs, rng)
        assert tally.words is not None
        kept = tally.words < 2
        return Tally(tally.sums[kept], tally.reports, tally.words[kept])


@dataclass(frozen=True)
class Unflooded(TwoSided):
    """Leaves the flood out."""

    def _numbers(self, users):
        return super()._numbers(users)[:2]


@dataclass(frozen=True)
class TooQuiet(Categories):
    """Makes the noise of six users in nine."""

    def _number(self, index, users):
        return super()._number(index, users) * 6 // 9


@pytest.mark.full
@pytest.mark.parametrize(
    "randomizer",
    [
        TooQuiet((3,), (3.0,), 6, 40),
        Doubled((3,), (3.0,), 6, 40),
        Blind((3,), (3.0,), 6, 40),
        Unflooded(3, 0.4, 1.5, 6, 60, 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_planted_bugs_are_caught(randomizer):
    with pytest.raises(LawError):
        audited(randomizer)


NOISE = (3,), (12.0,), USERS, 120
LOUD = (3,), (40.0,), USERS, 120  # no tally is small
FLOOD = 3, 0.4, 1.5, USERS, 60, 1
DEFECTS = [
    Careless(*NOISE),
    Shared(*NOISE),
    Doubled(*NOISE),
    Blind(*NOISE),
    Unflooded(*FLOOD),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "randomizer", [Categories(*NOISE), Categories(*LOUD), TwoSided(*FLOOD), *DEFECTS]
)
def test_the_audit_finds_each_and_nothing_else(randomizer):
    report = audit(Histogram(n=USERS, randomizer=randomizer, delta=1e-3), seed=1, repeats=1000)
    failed = [each.name for each in report.checks if each.passed is False]
    assert bool(failed) == (randomizer in DEFECTS), failed
    assert report.passed == (randomizer not in DEFECTS)
