"""Audits of whole histograms: what is right passes, each planted defect is found."""

from dataclasses import dataclass

import numpy as np
import pytest

from protocols import Histogram
from protocols.counts.pollution import Categories
from protocols.counts.two_sided import TwoSided
from shuffle_sim.auditing.audit import audit
from shuffle_sim.wire.messages import Tally

USERS = 6  # as many as an audit draws: then a user more is a seventh of the noise


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


NOISE = (3,), (12.0,), USERS, 120
FLOOD = 3, 0.4, 1.5, USERS, 60, 1
DEFECTS = [
    Careless(*NOISE),
    Shared(*NOISE),
    Doubled(*NOISE),
    Blind(*NOISE),
    Unflooded(*FLOOD),
]


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", [Categories(*NOISE), TwoSided(*FLOOD), *DEFECTS])
def test_the_audit_finds_each_and_nothing_else(randomizer):
    report = audit(Histogram(n=USERS, randomizer=randomizer, delta=1e-3), seed=1, repeats=1000)
    failed = [each.name for each in report.checks if each.passed is False]
    assert bool(failed) == (randomizer in DEFECTS), failed
    assert report.passed == (randomizer not in DEFECTS)
