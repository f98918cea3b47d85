"""Audits of views of words: what is right passes, and each planted defect is found."""

from dataclasses import dataclass

import numpy as np
import pytest
from words import Asked, InOrder, Pollution, Response

from protocols.counts.pollution import Categories
from shuffle_sim.auditing import LawError, check_protocol, check_randomizer
from shuffle_sim.auditing.audit import audit
from shuffle_sim.auditing.claims.plan import steps_of
from shuffle_sim.auditing.shuffle.words import WordChecks
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.protocol.one_round import LocalRandomizer
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.roles.pools import WordPool
from shuffle_sim.wire.messages import Tally


def audited(randomizer):
    """Of as many users as the checks of words look at one by one."""
    return audit(Asked(120, randomizer), seed=1, repeats=1000)


def found_by(name, randomizer, **how) -> bool:
    """Whether the check with this in its name fails; false alarm 1e-8."""
    return check_of(name, randomizer, **how).passed is False


def check_of(name, randomizer, **how):
    protocol = Asked(1000, randomizer)
    roles = {"shard": UserShard, "shuffler": Shuffler} | how
    bench = WordChecks(protocol, protocol.plan(None), 1, 1000, 1e-8, *roles.values())
    (step,) = (step for step in steps_of(bench) if name in step.planned.name)
    return step.check()


@pytest.mark.parametrize("randomizer", [Response(5, 1.0), Pollution(4, 0.4)])
@pytest.mark.slow
def test_what_is_right_passes(randomizer):
    report = audited(randomizer)
    assert [check for check in report.checks if check.passed is not True] == []
    assert report.passed


class SameNoise(Categories):
    """The same noise in every round."""

    def reports(self, xs, rng):
        return super().reports(xs, np.random.default_rng(len(xs)))


@pytest.mark.full
def test_large_tallies_are_compared_between_rounds():
    """No word comes seldom where each of few users draws much noise."""
    for kind, passed in ((Categories, True), (SameNoise, False)):
        randomizer = kind(sizes=(5,), rates=(800.0,), planned=96, most=80)
        assert check_of("two rounds", randomizer).passed is passed


class Shared(Pollution):
    """Two users draw the same noise."""

    def reports(self, xs, rng):
        noise = [np.flatnonzero(rng.random(self.categories) < self.q)] * len(xs)
        sent = [np.append(each, int(x)) for x, each in zip(xs, noise, strict=True)]
        return self.singly(np.concatenate(sent), [len(each) for each in sent])


class Bare(Pollution):
    """The last category has no noise."""

    def reports(self, xs, rng):
        sent = [
            np.append(np.flatnonzero(rng.random(self.categories - 1) < self.q), int(x)) for x in xs
        ]
        return self.singly(np.concatenate(sent), [len(each) for each in sent])


class Doubled(Pollution):
    """The truth is sent twice, in aggregate only."""

    def tallied(self, xs, rng):
        own = Tally.counted(xs.astype(int), reports=0)
        return super().tallied(xs, rng) + own


class Silent(Pollution):
    """Noise of half the users."""

    def tallied(self, xs, rng):
        half = super().tallied(xs[::2], rng)
        return half + Tally.counted(xs[1::2].astype(int), reports=len(xs[1::2]))


class Frozen(Pollution):
    """The same coins in every round."""

    def reports(self, xs, rng):
        return super().reports(xs, np.random.default_rng([int(x) for x in xs]))


class Hopeful(Response):
    """Charges for a response that lies more."""

    def event(self, users, query):
        return ShuffledEvent(users, self.epsilon0 / 4)


@dataclass(frozen=True)
class Boastful(LocalRandomizer):
    """States half of its epsilon0."""

    symbols: int
    epsilon0: float

    def admit(self, values):
        return np.clip(values, 0, 1), 0

    def randomize(self, x, rng):
        truth = rng.random() < self.count_pmf(1.0, 1)[1]
        return self.singly([int(x) if truth else 1 - int(x)])

    def worst_pair(self):
        return np.array([0.0]), np.array([1.0])

    def count_pmf(self, x, label):
        said = 1 / (1 + np.exp(-2 * self.epsilon0 * (1 if x == label else -1)))
        return np.array([1 - said, said])


class Lazy(WordPool):
    """Does not permute."""

    def _permute(self, sizes, rng):
        self._moved = np.concatenate(self._held)


class LazyShuffler(Shuffler):
    """Holds words in the order in which they came."""

    def _at(self, broadcast):
        now = super()._at(broadcast)
        if not isinstance(now.pool, Lazy):
            now.pool = Lazy(now.pool.randomizer)
        return now


@pytest.mark.parametrize(
    ("randomizer", "found"),
    [
        (Shared(4, 0.4), "exact law (literal)"),
        (Shared(4, 0.4), "each user's words"),
        (Bare(4, 0.4), "exact law (counts)"),
        (Doubled(4, 0.4), "exact law (aggregate)"),
        (Silent(4, 0.4), "exact law (aggregate)"),
        (Frozen(4, 0.4), "two rounds over the same data"),
        (Hopeful(4, 2.0), "one word reveals no more"),
        (Boastful(2, 1.0), "a message is as private as is stated"),
    ],
)
@pytest.mark.full
def test_a_planted_defect_is_found(randomizer, found):
    assert found_by(found, randomizer)


@pytest.mark.full
def test_a_shuffler_that_does_not_permute_is_found():
    assert found_by("the shuffler keeps no order", Response(5, 1.0), shuffler=LazyShuffler)
    assert not found_by("the shuffler keeps no order", Response(5, 1.0))


@pytest.mark.parametrize("randomizer", [Response(4, 1.0), Pollution(3, 0.4)])
def test_randomizers_of_words_keep_their_contract(randomizer):
    check_randomizer(randomizer, np.array([0.0, 1.0, -1.0]), repeats=600)
    check_protocol(Asked(8, randomizer), np.arange(8) % 3.0)


@pytest.mark.parametrize("kind", [Bare, Doubled, Silent])
def test_a_sampler_of_another_law_breaks_the_contract(kind):
    with pytest.raises(LawError):
        check_randomizer(kind(3, 0.4), np.array([0.0, 1.0]), repeats=600)


@pytest.mark.full
def test_an_audit_that_checks_no_law_does_not_pass():
    """What costs nothing to say is that its messages are permuted."""
    report = audited(InOrder(7, 40))
    assert (report.checked, report.passed, report.complete) == (False, False, False)
    missing = [check.detail for check in report.checks if check.passed is None]
    assert missing
    assert all("worst_pair, count_pmf" in each for each in missing)
