"""The checks of an audit: what users send against its exact law, and what a shuffler shows."""

import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.plan import KINDS
from shuffle_sim.auditing.claims.stated import check_event
from shuffle_sim.auditing.laws.joint import JointLaw
from shuffle_sim.auditing.laws.scores import judge, ranked, scored, scores, stacked, summed
from shuffle_sim.auditing.laws.sequences import check_lags, check_products
from shuffle_sim.auditing.laws.shares import check_rows, check_shares
from shuffle_sim.auditing.laws.statistics import LawError, check_pmf, naming
from shuffle_sim.auditing.shuffle.bench import (
    BLOCK,
    COUNTS,
    LARGEST,
    QUICK,
    ROUNDS,
    BenchRound,
    Way,
)
from shuffle_sim.auditing.shuffle.company import Company
from shuffle_sim.auditing.shuffle.viewing import check_orders
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import WeakPrivacyWarning
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.sampling.randomness import GENERATORS, Role, stream

_FRAMES = 64  # sums of a block and label that are compared
_DRAWS = 200  # of the definition, for each type of user
_DEFINED = 2e7  # messages of all of them
_LONG_BLOCK = 3_000  # users whose shares are looked at in a row
_TOGETHER, _FOUND, _FEW_LABELS = 12, 80, 64  # users of a block who hold one datum; data, labels
_OUTCOMES = 3e4  # of reports on all those data
_LEAST = 300  # sums over all users, however slowly they are drawn
_OFTEN = 200_000  # reports on one datum
_MORE = 8  # times as many samples of the total noise, at most
_ROUNDED = 4e7  # values that are rounded for them


class Checks(Company):
    """All that an audit looks at in one round's randomizer, users' shard and shuffler."""

    kinds = KINDS

    def event(self) -> None:
        """The charged event against the randomizer's own law."""
        check_event(self.spec.event, self.moved_pair)

    def literal_law(self) -> None:
        """At literal fidelity."""
        self.joint("literal", self.alarm)

    def counts_law(self) -> None:
        """At counts fidelity."""
        self.joint("counts", self.alarm)

    @property
    def moved_pair(self) -> tuple[Floats, Floats]:
        """Laws under label 0 of two data as far apart as the query lets neighbours be."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        span = float(np.linalg.norm(second - first))
        # Neighbours may be nearer than the ends of the ball: the event is of that (`binding`).
        share = min(1.0, self.spec.query.apart / span) / 2
        if share == 0.5:
            return self.pmfs[0][0], self.pmfs[1][0]
        middle, way = (first + second) / 2, second - first
        low, high = (self.pmf(middle + sign * share * way, 0) for sign in (-1, 1))
        return low, high

    def sizes(self) -> None:
        """Every user sends one report, and each has one size."""
        for frames in self.frames("literal", self.literal, range(3)):
            if sum(each.reports for each in self.messages(frames)) != self.literal:
                raise LawError("not every user sent one report")
        rng = np.random.default_rng(self.entropy)
        shape = (1, self.randomizer.report_bytes), self.randomizer.per_label
        for x in self.shaped(self.inside):
            report = self.randomizer.randomize(x, rng)
            if (report.packed.shape, report.per_label) != shape:
                raise LawError(f"a report of size {report.packed.shape}, {report.per_label}")

    def defined(self) -> None:
        """`randomize` itself, of every type: all else samples its law faster."""
        rng = np.random.default_rng([self.entropy, 5])
        room = _DEFINED / len(self.inside) / self.randomizer.report_messages
        draws, rows = max(10, min(_DRAWS, int(room))), self.shaped(self.inside)
        seen = np.array(
            [
                [self.by_label(self.randomizer.randomize(x, rng))[0] for x in rows]
                for _ in range(draws)
            ]
        )
        law = JointLaw(self.pmfs, np.arange(len(rows)), self.group)
        law.check_each(self.index(seen, 1), self.alarm)

    def shares(self) -> None:
        """All messages of a report but one are uniform, and independent, as are those of others."""
        users, rng = min(self.literal, BLOCK), np.random.default_rng([self.entropy, 6])
        modulus = self.randomizer.alphabet.symbols
        for way, rounds in zip(self.ways()[:2], (range(ROUNDS), range(2 * QUICK)), strict=False):
            seen = [
                np.concatenate([block.symbols for block in self.messages(frames)])
                for frames in self.frames("literal", users, rounds, way)
            ]
            check_shares(np.stack(seen).astype(np.int64), modulus, rng, self.alarm / 4)
            self._long_shares(way, self.alarm / 4)

    def _long_shares(self, way: Way, alarm: float) -> None:
        """No share of a long block comes again, turned or not, with the same or another sign."""
        users = max(2, int(min(_LONG_BLOCK, 1e6 / self.randomizer.report_messages)))
        deployment = self.deployment("literal", way, users)
        deployment = replace(deployment, protocol=BenchRound(users, self.protocol.spec, 1.0))
        rows = self.shaped(np.repeat(self.inside[:1], users, axis=0))
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        (frames,) = self.answered(shard, self.round(Cohort.of(0, users)), range(1))
        # Without the last of each report: it follows from the others and the datum.
        row = self.messages(frames)[0].symbols[..., :-1].reshape(1, -1).astype(np.int64)
        check_rows(row, self.randomizer.alphabet.symbols, alarm)

    def tallies(self) -> None:
        """Sums of blocks, as the shard sends them, drawn in every way."""
        alarm = self.alarm / 2 / len(self.ways())
        for way in self.ways():
            with naming(", ".join(way)):
                self._tallies(way, alarm)
                if way[1] == GENERATORS[0]:  # no generator sees a datum
                    self._tallies_alike(way, alarm)

    @cached_property
    def _held_alike(self) -> tuple[Floats, list[list[Floats]]]:
        """Data that all users of a block hold, and laws of their sums, label by label."""
        labels = min(self.labels, _FEW_LABELS)
        room = max(1, int(_OUTCOMES / labels / len(self.pmfs[0][0])))
        more = self._searched(np.random.default_rng([self.entropy, 20]), min(_FOUND, room))
        data, inside = (np.concatenate([each, more])[-room:] for each in (self.rows, self.inside))
        return data, [
            [self.wrapped(summed([(self.pmf(x, each), _TOGETHER)])) for each in range(labels)]
            for x in inside
        ]

    def _tallies_alike(self, way: Way, alarm: float) -> None:
        """Sums of blocks whose users all hold one datum: of the types, and some that are searched.

        What is left out where all hold the same, or what few hold, a mixed block does not show.
        """
        data, laws = self._held_alike
        users = len(data) * _TOGETHER
        deployment = self.deployment("aggregate", way, _TOGETHER)
        deployment = replace(deployment, protocol=BenchRound(users, self.protocol.spec, 1.0))
        rows = InMemory(self.shaped(np.repeat(data, _TOGETHER, axis=0)))
        shard = self.shard(deployment, rows, deployment.blocks())
        asked = self.answered(shard, self.round(Cohort.of(0, users)), range(_FOUND))
        seen = np.array([[self.sums("aggregate", [one])[0][0] for one in each] for each in asked])
        index, labels = self.index(seen, _TOGETHER), len(laws[0])
        tests = [
            scored(index[:, at, label], law)
            for at, each in enumerate(laws)
            for label, law in enumerate(each)
        ]
        found, means, most = (each.reshape(len(data), labels, 2) for each in stacked(tests))
        judge(found, means, most, alarm / 2, "datum that all users of a block hold, label, score")
        last = np.s_[:, self.group - 1 :: self.group]  # of each group: they are independent
        found, means, most = (each[last].sum(axis=1) for each in (found, means, most))
        judge(found, means, most, alarm / 2, "datum that all users of a block hold, score")

    def _tallies(self, way: Way, alarm: float) -> None:
        blocks = -(-self.users // BLOCK)
        sizes = np.diff([*range(0, self.users, BLOCK), self.users])
        rounds = ROUNDS
        seen = np.array(
            [
                [np.frombuffer(f.payload, "<i8") for f in frames]
                for frames in self.frames("aggregate", self.users, range(rounds), way)
            ]
        )
        sums, means, variances = [], [], []
        centred: list[Floats] = []
        laws: dict[tuple[int, int, int], Floats] = {}
        spread: list[float] = []
        for block, size in enumerate(sizes.tolist()):
            mine = self.types[block * BLOCK :][:size]
            for label in range(self.labels):
                if size * len(self.pmfs[0][label]) > LARGEST:
                    continue
                key = (int(mine[0]), size, label)
                if key not in laws:
                    laws[key] = self.sum_law(mine, label)
                law = laws[key]
                index = self.index(seen[:, block, label], size)
                if index.min() < 0 or index.max() >= len(law):
                    raise LawError(f"block {block}, label {label}: a sum of probability 0")
                for score in scores(law):
                    sums.append(score.of[index].sum())
                    means.append(score.mean * rounds)
                    variances.append(score.variance * rounds)
                if label % self.group == self.group - 1 and len(centred) < _FRAMES:
                    row, variance = ranked(law)
                    spread.append(variance)
                    centred.append(row[index])
        shape = blocks, -1, 2
        found = (
            np.reshape(sums, shape),
            np.reshape(means, shape),
            np.reshape(variances, shape),
        )
        judge(*found, alarm / 4, "block, label, score")
        first, second, third = (each.sum(axis=0) for each in found)
        judge(first, second, third, alarm / 4, "label, score")
        for row, variance in zip(centred, spread, strict=True):
            check_lags(row[None], variance, alarm / 4 / len(centred), "sums of a block, lag")
        if len(centred) > 1:
            rows, (one, other) = np.array(centred), np.triu_indices(len(centred), 1)
            squares = (rows[one] ** 2).sum(axis=1) * np.array(spread)[other]
            check_products((rows @ rows.T)[one, other], squares, alarm / 4, "two sums of a round")

    def whole(self) -> None:
        """Sums over all users, as the randomizer draws them at once."""
        rng = np.random.default_rng([self.entropy, 1])
        rows = self.shaped(self.inside[self.types])
        times = int(min(self.repeats, max(_LEAST, 10 * self.swift / len(rows))))
        seen = np.array([self.randomizer.tally(rows, rng) for _ in range(times)])
        looked = [j for j in range(self.labels) if self.users * len(self.pmfs[0][j]) <= LARGEST]
        for label in looked[:8]:
            law = self.sum_law(self.types, label)
            index = self.index(seen[:, label], self.users)
            # Sums this rare are 0 by a rounding of Fourier transforms, not by the law.
            check_pmf(index, np.maximum(law, 1e-300), false_alarm=self.alarm / 8)

    def often(self) -> None:
        """Reports on one datum that is not rounded: a share of noise alone, in great number.

        A share is 0 mostly where many users make the noise together: few rounds do not show its
        size.
        """
        many = int(min(_OFTEN, COUNTS / self.labels))
        rows = self.shaped(np.repeat(self.inside[:1], many, axis=0))
        for index, generator in enumerate(GENERATORS):
            users = many if index == 0 else many // 8
            rng = stream(self.entropy, 1, Role.USERS, 0, generator)
            seen = self.index(self.randomizer.counts(rows[:users], rng), 1)
            self._agree(seen[:, 0], self.pmfs[0][0], self.alarm / len(GENERATORS))

    def together(self) -> None:
        """The noise of the round's users, also where only few are looked at one by one."""
        rng = np.random.default_rng([self.entropy, 4])
        rows = self.shaped(np.repeat(self.inside[:1], self.asked, axis=0))
        rounds = int(np.clip(_ROUNDED / rows.size, self.repeats, _MORE * self.repeats))
        seen = np.array([self.randomizer.tally(rows, rng)[0] for _ in range(rounds)])
        index, law = self.randomizer.total_law(seen, self.asked)
        self._agree(index, law, self.alarm)

    @staticmethod
    def _agree(index: NDArray[np.int64], law: Floats, alarm: float) -> None:
        """By outcome, and by two scores: they see a little less noise where outcomes do not."""
        check_pmf(index, law, false_alarm=alarm / 2)
        found = scored(index, law)
        judge(*found, alarm / 2, "score")

    def conserved(self) -> None:
        """The view's sums are those of the users, however the shuffler is split."""
        users = min(self.literal, 4 * BLOCK)
        data = self.shaped(self.inside[self.types[:users]])
        how: dict[str, Any] = {
            "fidelity": "literal",
            "seed": self.entropy,
            "execution": Execution(block_size=BLOCK),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakPrivacyWarning)  # it is no promise to anybody
            found = [
                run(
                    BenchRound(users, self.protocol.spec, 1.0), data, shuffler_shards=each, **how
                ).value
                for each in (1, 2, 3)
            ]
        if not all(np.array_equal(found[0], each) for each in found[1:]):
            raise LawError("another number of shuffler shards shows other sums")

    def order(self) -> None:
        """Views of all pools: each order is as likely as any other, and independent of others."""
        check_orders(self, self.alarm)
