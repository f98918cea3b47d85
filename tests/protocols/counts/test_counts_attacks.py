"""What corrupted users do to counts, beside what they can do at most; audits of planted bugs."""

from dataclasses import dataclass

import numpy as np
import pytest

from protocols import HeavyHitters, Histogram
from protocols.counts.groups import Planes
from protocols.counts.pollution import Categories
from protocols.counts.single import FixedBlanket, Response
from protocols.counts.trees import Nodes
from protocols.counts.two_sided import TwoSided
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.attacks.counts import gain_study
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.plan import plan_of
from shuffle_sim.auditing.words import WordChecks
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.protocol.one_round import OneRound
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.wire.messages import Tally

PRIVACY = Privacy(1.0, 1e-6)


@pytest.mark.full
@pytest.mark.parametrize("method", ["pollution", "two-sided", "fixed-blanket"])
def test_gains_are_those_of_the_bound(method):
    histogram = Histogram.calibrated(n=4000, categories=20, privacy=PRIVACY, method=method)
    promote, claim, silent = gain_study(histogram, fraction=0.1, repeats=3, seed=1)
    cap, mean = histogram.randomizer.per_label, histogram.messages_per_user - 1
    quiet = 0.0 if method == "two-sided" else mean / 20  # noise of a bin that is subtracted
    for row, expected in ((promote, cap - quiet), (claim, 1.0), (silent, -quiet)):
        assert row.measured == pytest.approx(expected, abs=8 * max(row.error, 0.02))
        assert row.measured <= row.bound + 8 * row.error
    assert promote.bound == cap


@pytest.mark.full
def test_one_message_is_the_most_robust():
    single = Histogram.calibrated(n=4000, categories=20, privacy=PRIVACY, method="response")
    (row,) = gain_study(single, ["promote"], fraction=0.1, repeats=4, seed=1)
    assert row.measured == pytest.approx(row.bound, abs=8 * row.error)
    assert row.bound < 1.2
    with pytest.raises(ParameterError):
        gain_study(single, ["no-noise"], repeats=2, seed=1)


def test_colluders_make_a_false_item():
    """About threshold/Q of them are enough, and a few less are not."""
    made = HeavyHitters.calibrated(n=2000, privacy=PRIVACY, levels=(8,), kept=8)
    word = made.bins(0) // 2 + 3  # of item 3
    cap, room = made.randomizers[0].most, made.threshold(0, 2000) - made.noise.rate
    reported = {}
    for fraction in (0.0005, 0.02):
        lie = attack(f"promote:fraction={fraction},word={word}")
        result = run(made, np.full(2000, 5.0), adversary=lie, seed=3)
        reported[result.reports.corrupted * cap > 1.5 * room] = result.value.items.tolist()
    assert 3 in reported[True]
    assert reported[False] == [5]


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


@pytest.mark.full
@pytest.mark.parametrize("randomizer", SMALL, ids=lambda each: type(each).__name__)
def test_randomizers_pass_their_audit(randomizer):
    audited(randomizer, 100)


@dataclass(frozen=True)
class Careless(Categories):
    """Makes the noise of a user more than there are: too little."""

    def _number(self, index, users):
        return super()._number(index, users) * 6 // 9


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


@pytest.mark.full
@pytest.mark.parametrize(
    "randomizer",
    [
        Careless((3,), (3.0,), 6, 40),
        Doubled((3,), (3.0,), 6, 40),
        Blind((3,), (3.0,), 6, 40),
        Unflooded(3, 0.4, 1.5, 6, 60, 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_planted_bugs_are_caught(randomizer):
    with pytest.raises(LawError):
        audited(randomizer)
