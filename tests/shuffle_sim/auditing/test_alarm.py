"""Shares of the false alarm add up to what is stated, and bounds hold for dependent draws."""

import math
from typing import ClassVar

import numpy as np
import pytest

from protocols import CarryVectorSum, Histogram, VectorSum
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim import Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.laws.joint import JointLaw
from shuffle_sim.auditing.laws.orders import _check_pairs
from shuffle_sim.auditing.laws.scores import scores
from shuffle_sim.auditing.laws.sequences import check_distinct
from shuffle_sim.auditing.shuffle import checks, drawing
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.auditing.shuffle.bench import FIRST
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.auditing.shuffle.words import WordChecks
from shuffle_sim.roles import Shuffler, UserShard

ALARM = 1e-8


class Noted(JointLaw):
    """A law that only notes what it is asked."""

    groups: ClassVar[list[int]] = []
    alarms: ClassVar[list[float]] = []

    def check(self, counts, rng, alarm):
        self.alarms.append(alarm)

    def check_each(self, counts, alarm):
        self.alarms.append(alarm)
        self.groups.append(self.group)


@pytest.fixture
def noted(monkeypatch):
    for name in ("groups", "alarms"):
        monkeypatch.setattr(Noted, name, [])
    monkeypatch.setattr(checks, "JointLaw", Noted)
    monkeypatch.setattr(drawing.Draws, "law", lambda self, users: Noted(self.pmfs, self.types))
    return Noted


def bench(kind, protocol, entropy=7):
    spec = protocol.plan(protocol.init())
    return kind(protocol, spec, entropy, 1000, ALARM, UserShard, Shuffler)


def test_digits_of_a_coordinate_are_not_judged_as_independent(noted):
    asked = Privacy(epsilon=1.0, delta=1e-6)
    made = CarryVectorSum.calibrated(
        n=100_000, d=2, norm_bound=1.0, privacy=asked, noise_ratio=1.05
    )
    group = made.randomizer.label_group
    looked = bench(Checks, made)
    looked.defined()
    assert noted.groups == [group]
    assert group > 2
    # Their scores' sum has another variance than that of independent ones.
    x, rng = looked.inside[0], np.random.default_rng(1)
    drawn = made.randomizer.counts(np.repeat(x[None], 20_000, axis=0), rng).astype(np.int64)
    index = made.randomizer.count_index(drawn, 1)
    known = [scores(pmf)[1] for pmf in looked.pmfs[0][:group]]
    total = sum(score.of[index[:, label]] for label, score in enumerate(known))
    assert not math.isclose(total.var(), sum(each.variance for each in known), rel_tol=0.1)


def test_fidelities_share_the_alarm_of_a_check(noted):
    made = Histogram.calibrated(
        n=100, categories=4, privacy=Privacy(epsilon=2.0, delta=1e-4), method="unary"
    )
    looked = bench(WordChecks, made)
    assert len(looked.fidelities) == 2
    looked.users_law()
    assert sum(noted.alarms) == pytest.approx(ALARM)


def test_draws_that_meet_are_looked_at_twice_with_half_of_the_alarm_each():
    row = np.append(np.linspace(0.001, 0.499, 9999), 0.001 + 1e-13)
    chance = 1 - math.exp(-(len(row) ** 2) * 1e-11)  # that any two of so many meet
    check_distinct(row, 1.5 * chance)
    with pytest.raises(LawError, match="came before"):
        check_distinct(row, 2.1 * chance)


def test_three_orders_that_are_alike_are_two_pairs():
    rng = np.random.default_rng(3)
    places = np.array([rng.permutation(11) for _ in range(150)])
    places[1] = places[2] = places[0]
    chance = math.comb(150, 3) / math.factorial(11) ** 2  # of three alike
    _check_pairs(places, chance / 3)
    places[3] = places[0]
    with pytest.raises(LawError, match="3 of 150 orders"):
        _check_pairs(places, chance / 3)


def test_sums_of_seldom_draws_are_not_taken_for_gaussian():
    made = Histogram.calibrated(
        n=10_000_000, categories=40, privacy=Privacy(epsilon=1.0, delta=1e-9), method="unary"
    )
    for entropy in range(12):  # of which chi-square refused one, at an alarm of 1e-9
        bench(WordChecks, made, entropy)._long_sums(FIRST, 3000, 1e-9)
    looked = bench(WordChecks, made)
    often = 10 * min(looked.pmf(looked.alike, label)[1] for label in range(looked.labels))
    looked.pmf = lambda x, label: np.array([1 - often, often])
    with pytest.raises(LawError, match="sums of long blocks"):
        looked._long_sums(FIRST, 30_000, 1e-9)


def test_a_sum_that_has_its_definition_alone_is_drawn_less_often(monkeypatch):
    """Its audit would take hours; all others are drawn as often as ever."""
    made = VectorSum(n=40, d=2, g=4, b=12)
    assert bench(Checks, made).swift == math.inf

    def one_by_one(self, xs, rng):
        return np.concatenate([sums(self.randomize(x, rng)) for x in dense(xs)])

    def sums(messages):
        return messages.symbols.reshape(1, 2, -1).sum(axis=-1, dtype=np.int64)

    monkeypatch.setattr(BinomialRandomizer, "counts", one_by_one)
    assert 1e3 < bench(Checks, made).swift < 1e5


def test_an_entropy_of_few_bits_stands_in_frames_by_chance():
    Asked(
        VectorSum.calibrated(n=12, d=2, privacy=Privacy(1.0, 1e-6), noise_ratio=1.1), None, {}, 1
    ).hosted()
