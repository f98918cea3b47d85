"""Roles with a defect that shows only in company: long-lived ones, hosted ones, beside others."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from protocols import (
    HeavyHitters,
    L2Ball,
    Logistic,
    Problem,
    RunningTotals,
    UserLevelGD,
    VectorSum,
)
from protocols.counts.prefixes import Prefixes
from protocols.problems.per_person import MeanGradient
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim import Privacy
from shuffle_sim.arrays import Scaled, dense
from shuffle_sim.attacks import attack
from shuffle_sim.execution import runtime
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.task import Task
from shuffle_sim.roles import Analyzer, Shuffler, UserShard, onion, station, users
from shuffle_sim.roles import pools as true_pools
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.sampling import shuffling
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.messages import Messages, Tally

from . import counting
from .edges import _bare

FEW = Privacy(3.0, 1e-4)
pools: Any = true_pools  # what is read and set here is no part of its face
Plant = Callable[[Any], object]


def vector(n: int = 40, d: int = 2, **more: Any) -> Callable[[], Any]:
    return partial(VectorSum, n=n, d=d, g=4, b=12, **more)


def totals() -> Any:
    return RunningTotals.calibrated(n=40, rounds=4, privacy=FEW, noise_ratio=1.3, encoding="unary")


def words() -> Any:
    return counting.histogram("unary", n=400, categories=50)


def hitters() -> Any:
    return HeavyHitters.calibrated(n=60, privacy=FEW, levels=(2, 2))


def persons() -> Any:
    problem = Problem(Logistic(), L2Ball(2, 1.0), records=2)
    return UserLevelGD.calibrated(n=40, problem=problem, privacy=FEW, rounds=2)


def _fields(deployment: Deployment) -> dict[str, Any]:
    return {each.name: getattr(deployment, each.name) for each in fields(deployment)}


class Ordered(Shuffler):
    """Ones before zeros."""

    def view(self, broadcast, start, stop):
        pools.arrange = lambda ones, size, rng: np.packbits(np.arange(size) < ones)
        try:
            return super().view(broadcast, start, stop)
        finally:
            pools.arrange = shuffling.arrange


# Shufflers


def second_round_alike(patch):
    """A cache of streams that forgets the round."""

    class Kept(Deployment):
        def stream(self, round_index, role, index):
            first = vars(self).setdefault("kept", {}).setdefault((role, index), round_index)
            return super().stream(first, role, index)

    true = Shuffler.__init__
    patch.setattr(
        Shuffler, "__init__", lambda self, given, *more: true(self, Kept(**_fields(given)), *more)
    )


def ordered_from_the_second(patch):
    true = Shuffler.view

    def view(self, broadcast, start, stop):
        first = vars(self).setdefault("first", self._released)
        if self._round is not None and first != self._released:
            pools.arrange = lambda ones, size, rng: np.packbits(np.arange(size) < ones)
        try:
            return true(self, broadcast, start, stop)
        finally:
            pools.arrange = shuffling.arrange

    patch.setattr(Shuffler, "view", view)


def _kept_in_its_shard(when: Callable[[Any, Any], bool]) -> Plant:
    def plant(patch):
        true = Shuffler.route

        def route(self, broadcast):
            now = self._at(broadcast)
            if now.arrived is not now.pool and when(self, now):
                mine, pool = self._shard, now.arrived
                pool.shares = lambda shards, rng: (
                    np.eye(shards, dtype=np.int64)[mine][:, None] * pool.each
                )
            return true(self, broadcast)

        patch.setattr(Shuffler, "route", route)

    return plant


first_part_alone = _kept_in_its_shard(lambda self, now: now.parts >= 1)
boxes_stay_in_shards = _kept_in_its_shard(lambda self, now: self._deployment.security == "onion")


def thousands_of_boxes_in_order(patch):
    def order(size, rng):
        kept = 2_100 < size < 100_000
        return np.arange(size, dtype=np.uint32) if kept else shuffling.order(size, rng)

    patch.setattr(onion, "order", order)


def few_ones_in_front(patch):
    def arrange(ones, size, rng):
        if not 0 < ones * 50 < size:
            return shuffling.arrange(ones, size, rng)
        front = np.unpackbits(shuffling.arrange(ones, size // 2, rng))[: size // 2]
        return np.packbits(np.concatenate([front, np.zeros(size - size // 2, np.uint8)]))

    patch.setattr(pools, "arrange", arrange)


def third_station_ordered(patch):
    patch.setattr(
        station,
        "Shuffler",
        lambda given, shard, last=None: (Ordered if shard >= 2 else Shuffler)(given, shard, last),
    )


# What a runtime hosts, and gives


def ordered_is_hosted(patch):
    patch.setattr(runtime, "Shuffler", Ordered)


def half_is_hosted(patch):
    class Half(UserShard):
        """Users with half of the noise."""

        def _answer_block(self, broadcast, block):
            one = broadcast.randomizer

            class Less(BinomialRandomizer):
                def reports(self, xs, rng):
                    counts = BinomialRandomizer.counts(replace(one, b=one.b // 2), xs, rng)
                    noisy = counts.astype(np.int64) + one.b // 4
                    return Messages.from_ones(noisy, one.per_label)

            given = Less(*(getattr(one, each.name) for each in fields(one)))
            return super()._answer_block(replace(broadcast, randomizer=given), block)

    patch.setattr(runtime, "UserShard", Half)


def true_sum_in_the_result(patch):
    true = runtime.Runtime.result

    def result(self):
        rows = np.clip(self._rows.rows(0, self._rows.users), -1, 1)
        return (true(self) + rows.sum(axis=0)) / 2

    patch.setattr(runtime.Runtime, "result", result)


def entropy_for_the_analyzer(patch):
    patch.setattr(Deployment, "of_analyzer", property(lambda self: self))


def users_entropy_for_the_shuffler(patch):
    def apart(self):
        given = self._deployment
        self._shards = [self._shard(blocks) for blocks in self._blocks]
        shards = range(given.shuffler_shards)
        self._shufflers = [self.host(Shuffler, given, shard) for shard in shards]
        self._analyzer = self.host(Analyzer, given.of_analyzer)

    patch.setattr(runtime.Runtime, "_apart", apart)


def the_silent_count_as_honest(patch):
    def settle(self, honest):
        self._settled[len(self._planned) - 1] = self._planned[-1]

    patch.setattr(PrivacyLedger, "settle", settle)


# Users


def _bare_where(answered: Callable[[Any, Any, int], bool], sizes: Callable[[int], bool]) -> Plant:
    """No noise for a block, or for so many users at once."""

    def plant(patch):
        answer, randomized, now = UserShard._answer_block, users._randomized, [False]

        def block_answered(self, broadcast, block):
            now[0] = answered(self, broadcast, block)
            return answer(self, broadcast, block)

        def drawn(fidelity, values, randomizer, rng):
            bare = (now[0] or sizes(len(values))) and isinstance(randomizer, BinomialRandomizer)
            if bare:
                return _bare(randomizer, values, fidelity)
            return randomized(fidelity, values, randomizer, rng)

        patch.setattr(UserShard, "_answer_block", block_answered)
        patch.setattr(users, "_randomized", drawn)

    return plant


def _attacked(self, broadcast, block):
    corrupted = self._deployment.adversary is not None
    return corrupted and bool(self._corrupted(broadcast, block).packets)


def _nearly_alone(self, broadcast, block):
    low, high = self._span(block)
    return self._corrupted(broadcast, block).users.size > 0.8 * (high - low)


bare_beside_corrupted = _bare_where(_attacked, lambda size: False)
bare_where_most_are_silent = _bare_where(_nearly_alone, lambda size: False)
bare_in_few = _bare_where(lambda *given: False, lambda size: 2 <= size <= 4)


def noise_of_the_other_cohort(patch):
    """A round of another cohort draws what a block's first round drew."""
    true = UserShard._answer_block

    def answered(self, broadcast, block):
        first = vars(self).setdefault("seen", {}).setdefault(block, broadcast)
        if first.cohort == broadcast.cohort:
            return true(self, broadcast, block)
        kept = self._deployment

        class Again(Deployment):
            def stream(self, round_index, role, index):
                return kept.stream(first.context.round, role, index)

        self._deployment = Again(**_fields(kept))
        try:
            return true(self, broadcast, block)
        finally:
            self._deployment = kept

    patch.setattr(UserShard, "_answer_block", answered)


def put_back_with_other_noise(patch):
    true = UserShard.__init__

    def init(self, deployment, population, blocks, asked=(), contents=None):
        entropy = deployment.entropy + len(asked := tuple(asked))
        true(self, replace(deployment, entropy=entropy), population, blocks, asked, contents)

    patch.setattr(UserShard, "__init__", init)


def any_round_is_taken(patch):
    patch.setattr(Task, "check", lambda *given: None)
    patch.setattr(Task, "demand", lambda *given: None)


def _of_few_records(change):
    """What is asked of persons with unequal records: by their rows, and by what it would be."""

    def plant(patch):
        true = MeanGradient.__call__

        def asked(self, rows):
            found = true(self, rows)
            return change(rows, dense(found)) if rows.dtype == object else found

        patch.setattr(MeanGradient, "__call__", asked)

    return plant


def _unclipped(rows, found):
    held = np.asfortranarray(found)
    return Scaled(held, np.full(len(held), 3.0), np.einsum("ij,ij->i", held, held) / 9)


def _of_the_mean(rows, found):
    """Sums of records are divided by how many persons have on average."""
    counts = np.array([len(each) for each in rows])
    return found * (counts / counts.mean())[:, None]


# Later rounds: whole audits must see them


def later_reports_with_half(patch):
    true, first = BinomialRandomizer.reports, totals().sums[0].b

    def reports(self, xs, rng):
        if self.b >= first:
            return true(self, xs, rng)
        rounded, half = self._rounded(xs, rng), self.b // 2
        noise = rng.binomial(half, self.p, rounded.shape) + round((self.b - half) * self.p)
        return Messages.from_ones(rounded + noise, self.per_label)

    patch.setattr(BinomialRandomizer, "reports", reports)


def later_absent_are_silent(patch):
    true = Prefixes.reports

    def reports(self, xs, rng):
        sent = true(self, xs, rng)
        if self.bins <= 4:
            return sent
        gone = dense(xs) < 0
        words = sent.words[np.repeat(~gone, sent.each)].astype(np.int64)
        return self.singly(words, np.where(gone, 0, sent.each))

    patch.setattr(Prefixes, "reports", reports)


def later_tallies_bare(patch):
    true = Prefixes.tallied

    def tallied(self, xs, rng):
        if self.bins <= 4:
            return true(self, xs, rng)
        held = dense(xs).astype(np.int64)
        return Tally.counted(held[held >= 0], reports=len(held))

    patch.setattr(Prefixes, "tallied", tallied)


def others_streams(patch):
    """Honest users draw from the streams of corrupted ones."""
    patch.setattr(users, "Role", SimpleNamespace(USERS=Role.ADVERSARY, ADVERSARY=Role.ADVERSARY))


LATER: tuple[tuple[str, Callable[[], Any], Plant], ...] = (
    ("company", totals, later_reports_with_half),
    ("search", hitters, later_absent_are_silent),
    ("aggregate_law", hitters, later_tallies_bare),
)
"""The check of a later round, the protocol, and the defect."""

PLANTED: tuple[tuple[str, str, Callable[[], Any], Plant, dict[str, Any]], ...] = (
    ("second round alike", "order", vector(), second_round_alike, {}),
    ("ordered from the second", "order", vector(), ordered_from_the_second, {}),
    ("first part alone", "order", vector(), first_part_alone, {}),
    ("boxes stay in shards", "order", vector(), boxes_stay_in_shards, {}),
    ("thousands of boxes in order", "order", vector(200), thousands_of_boxes_in_order, {}),
    (
        "few ones in front",
        "order",
        partial(counting.histogram, "unary", n=400),
        few_ones_in_front,
        {},
    ),
    ("third station ordered", "stations", vector(), third_station_ordered, {}),
    ("ordered is hosted", "hosted", vector(), ordered_is_hosted, {}),
    ("half is hosted", "hosted", vector(), half_is_hosted, {}),
    ("true sum in the result", "hosted", vector(), true_sum_in_the_result, {}),
    ("entropy for the analyzer", "hosted", vector(), entropy_for_the_analyzer, {}),
    ("users entropy for the shuffler", "hosted", vector(), users_entropy_for_the_shuffler, {}),
    (
        "the silent count as honest",
        "unseeded",
        vector(400),
        the_silent_count_as_honest,
        {"adversary": attack("dropout:rate=0.4")},
    ),
    ("bare beside corrupted", "company", vector(), bare_beside_corrupted, {}),
    ("bare where most are silent", "company", vector(), bare_where_most_are_silent, {}),
    ("bare in few", "company", vector(), bare_in_few, {}),
    ("streams of corrupted users", "company", vector(), others_streams, {}),
    ("noise of the other cohort", "company", vector(), noise_of_the_other_cohort, {}),
    ("put back with other noise", "once", vector(), put_back_with_other_noise, {}),
    ("any round is taken", "agreed", vector(), any_round_is_taken, {}),
    ("few records unclipped", "queries", persons, _of_few_records(_unclipped), {}),
    ("records of the mean", "queries", persons, _of_few_records(_of_the_mean), {}),
)
"""The name, the check, the protocol, the defect, and options of the run."""
