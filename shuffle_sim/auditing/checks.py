"""The checks of an audit: what users send against its exact law, and what a shuffler shows."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.auditing.bench import (
    BLOCK,
    COUNTS,
    LARGEST,
    LAW,
    QUICK,
    ROUNDS,
    Bench,
    OneRound,
    Way,
)
from shuffle_sim.auditing.conformance import LawError, check_pmf, check_variance
from shuffle_sim.auditing.scores import JointLaw, judge, scored, scores, summed
from shuffle_sim.auditing.sequences import (
    Series,
    check_frames,
    check_repeats,
    check_series,
)
from shuffle_sim.auditing.shares import check_shares
from shuffle_sim.auditing.viewing import check_orders
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import WeakPrivacyWarning
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.setup import default_block_size
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.roles.block_rows import chunk_rows
from shuffle_sim.sampling.kernels import using
from shuffle_sim.sampling.randomness import GENERATORS, Role, entropy_of, stream

_DRAWS = 200  # of the definition, for each type of user
_DEFINED = 2e7  # messages of all of them
_OFTEN = 200_000  # reports on one datum
_MORE = 8  # times as many samples of the total noise, at most
_ROUNDED = 4e7  # values that are rounded for them
_TURNED = 0, 1, 1 << 63, 1 << 127  # bits of the entropy: other runs
_ROUNDS = *range(24), 31, 32, 33, 64, 128, 256, 1 << 10, 1 << 16, 1 << 20, (1 << 31) - 1
_LONG = 600_000  # draws of a block beyond every kernel's pieces, at most
_STRONG = 5_000  # of them that a cryptographic generator makes
_SUMS = 96  # of such a block
_SEARCHED = 120  # reports on each datum that is searched
_FACTORS = 0.1, -1.0, 7.0  # of rows that are given as multiples
_CLIMBED = 16  # data around which is searched again


class Checks(Bench):
    """All that an audit looks at in one round's randomizer, users' shard and shuffler."""

    thorough = False
    lawless = f"its randomizer has not {', '.join(LAW)}: its law is not known"

    def asked_for(
        self, execution: Execution, options: Mapping[str, Any], *, thorough: bool
    ) -> None:
        """Look at what a run with these options draws."""
        self.thorough, self.block_size = thorough, execution.block_size
        self.shards = options.get("shuffler_shards") or 1
        if execution.placement == "together":
            self.shards = options.get("workers", 1)

    @property
    def shipped_roles(self) -> bool:
        """Whether the roles are those of runs, and there is a law of what is sent."""
        return self.known and self.shuffler is Shuffler and self.shard is UserShard

    def literal_law(self) -> None:
        """At literal fidelity."""
        self.joint("literal")

    def counts_law(self) -> None:
        """At counts fidelity."""
        self.joint("counts")

    @property
    def moved_pair(self) -> tuple[Floats, Floats]:
        """Laws under label 0 of two data as far apart as the query lets neighbours be."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        span = float(np.linalg.norm(second - first))
        share = min(1.0, self.spec.query.apart / span) / 2
        if share == 0.5:
            return self.pmfs[0][0], self.pmfs[1][0]
        middle, way = (first + second) / 2, second - first
        low, high = (self.randomizer.count_pmf(middle + sign * share * way, 0) for sign in (-1, 1))
        return low, high

    @property
    def searched(self) -> int:
        """Data that are searched."""
        many = 2000 if self.thorough else 400
        cells = int(1e6 / self.labels / max(1, len(self.pmfs[0][0])) + 8)
        return min(many, max(24, cells, int(2e6 / _SEARCHED / self.labels)))

    def domain(self) -> None:
        """Whatever a row is, what is admitted lies in the ball whose ends are the worst pair."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        finite = self.rows[np.isfinite(self.rows).all(axis=1)]
        ways = [*self.directions(), np.ones_like(first)]
        outside = [
            middle + sign * scale * (radius if scale < 1e6 else 1.0) * way
            for way in ways
            for sign in (1, -1)
            for scale in (1.001, 1.1, 1.5, 2.0, 5.0, 20.0, 300.0, 1e9, 1e200)
        ]
        given = np.concatenate([finite, outside])
        found = dense(self.randomizer.admit(self.shaped(given))[0]).reshape(len(given), -1)
        with np.errstate(over="ignore"):
            far = float(np.linalg.norm(found - middle, axis=1).max())
        if not far <= radius * (1 + 1e-9):
            raise LawError(
                f"a value {far / radius:.4g} times the radius from the middle is admitted"
            )

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

    def joint(self, fidelity: str) -> None:
        """Every user and label, and sums of them, in rounds that are drawn in every way."""
        ways, start = {}, 0
        *quick, strong = self.ways()
        for way, many in [*((way, ROUNDS // len(quick)) for way in quick), (strong, QUICK)]:
            ways[way] = range(start, start := start + many)
        counts = self.counts(fidelity, ways)
        rng = np.random.default_rng([self.entropy, 2])
        law = self.law(counts.shape[1])
        law.check(counts, rng, self.alarm / 2)
        for way, rounds in ways.items():
            try:
                law.check_each(counts[rounds.start : rounds.stop], self.alarm / 2 / len(ways))
            except LawError as error:
                raise LawError(f"{', '.join(way)}: {error}") from error

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
        law = JointLaw(self.pmfs, np.arange(len(rows)))
        law.check_each(np.asarray(self.randomizer.count_index(seen, 1)), self.alarm)

    def shares(self) -> None:
        """All messages of a report but one are uniform, and independent, as are those of others."""
        users, rng = min(self.literal, BLOCK), np.random.default_rng([self.entropy, 6])
        modulus, rounds = self.randomizer.alphabet.symbols, range(2 * QUICK)
        for way in self.ways()[:2]:
            seen = [
                np.concatenate([block.symbols for block in self.messages(frames)])
                for frames in self.frames("literal", users, rounds, way)
            ]
            check_shares(np.stack(seen).astype(np.int64), modulus, rng, self.alarm / 2)

    def tallies(self) -> None:
        """Sums of blocks, as the shard sends them, drawn in every way."""
        for way in self.ways():
            try:
                self._tallies(way, self.alarm / len(self.ways()))
            except LawError as error:
                raise LawError(f"{', '.join(way)}: {error}") from error

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
        laws: dict[tuple[int, int, int], Floats] = {}
        for block, size in enumerate(sizes.tolist()):
            mine = self.types[block * BLOCK :][:size]
            for label in range(self.labels):
                if size * len(self.pmfs[0][label]) > LARGEST:
                    continue
                key = (int(mine[0]), size, label)
                if key not in laws:
                    laws[key] = self._sum_law(mine, label)
                law = laws[key]
                index = self.randomizer.count_index(seen[:, block, label], size)
                if index.min() < 0 or index.max() >= len(law):
                    raise LawError(f"block {block}, label {label}: a sum of probability 0")
                for score in scores(law):
                    sums.append(score.of[index].sum())
                    means.append(score.mean * rounds)
                    variances.append(score.variance * rounds)
        shape = blocks, -1, 2
        found = (
            np.reshape(sums, shape),
            np.reshape(means, shape),
            np.reshape(variances, shape),
        )
        judge(*found, alarm / 2, "block, label, score")
        first, second, third = (each.sum(axis=0) for each in found)
        judge(first, second, third, alarm / 2, "label, score")

    def _sum_law(self, types: NDArray[np.int64], label: int) -> Floats:
        kinds, many = np.unique(types, return_counts=True)
        law = summed(
            [(self.pmfs[kind][label], int(count)) for kind, count in zip(kinds, many, strict=True)]
        )
        modulus = getattr(self.randomizer, "modulus", len(law))
        if len(law) <= modulus:
            return law
        # Sums that are reduced modulo a number meet those that differ by it.
        return np.asarray(np.pad(law, (0, -len(law) % modulus)).reshape(-1, modulus).sum(axis=0))

    def whole(self) -> None:
        """Sums over all users, as the randomizer draws them at once."""
        rng = np.random.default_rng([self.entropy, 1])
        rows = self.shaped(self.inside[self.types])
        seen = np.array([self.randomizer.tally(rows, rng) for _ in range(self.repeats)])
        looked = [j for j in range(self.labels) if self.users * len(self.pmfs[0][j]) <= LARGEST]
        for label in looked[:8]:
            law = self._sum_law(self.types, label)
            index = self.randomizer.count_index(seen[:, label], self.users)
            check_pmf(index, np.maximum(law, 1e-300), false_alarm=self.alarm / 8)

    def often(self) -> None:
        """Reports on one datum that is not rounded: a share of noise alone, in great number.

        A share is 0 mostly where many users make the noise together: few rounds do not show its
        size.
        """
        many = int(min(_OFTEN, COUNTS / self.labels))
        rows = self.shaped(np.repeat(self.inside[:1], many, axis=0))
        for index, generator in enumerate(GENERATORS):
            users = many if index == 0 else many // 20
            rng = stream(self.entropy, 1, Role.USERS, 0, generator)
            seen = self.randomizer.count_index(self.randomizer.counts(rows[:users], rng), 1)
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
                    OneRound(users, self.protocol.spec, 1.0), data, shuffler_shards=each, **how
                ).value
                for each in (1, 2, 3)
            ]
        if not all(np.array_equal(found[0], each) for each in found[1:]):
            raise LawError("another number of shuffler shards shows other sums")

    def order(self) -> None:
        """Views of all pools: each order is as likely as any other, and independent of others."""
        check_orders(self, self.alarm)

    def keys(self) -> None:
        """Streams of every run, round, role and place begin differently, and are independent."""
        deployment = self.deployment("literal")
        places = [0, 1, 2, 3, 255, 256, 1 << 16, 1 << 32, (1 << 32) + 1, 2 << 32]
        keys = list(product(_ROUNDS[::2], Role, places))
        for generator in GENERATORS:
            drawn = replace(deployment, generator=generator)
            begun = [drawn.stream(*key) for key in keys]
            begun += [drawn.of_shuffler.stream(0, role, 0) for role in Role]
            turned = (replace(drawn, entropy=self.entropy ^ 1 << bit) for bit in range(128))
            begun += [each.stream(1, Role.USERS, 0) for each in turned]
            words = np.array([rng.bytes(32) for rng in begun])
            if len(np.unique(words)) < len(words):
                raise LawError(f"{generator}: two streams with other keys are one")
            bits = np.array([np.frombuffer(rng.bytes(256), np.uint8) for rng in begun[-300:]])
            signs = np.asarray(2.0 * np.unpackbits(bits, axis=1) - 1, np.float64)
            check_frames(signs, np.ones(signs.shape[1]), self.alarm / 4, f"{generator}: streams")
        fresh = np.array([list(entropy_of(None).to_bytes(16, "big")) for _ in range(256)], np.uint8)
        ones = np.unpackbits(fresh, axis=1).sum(axis=0)
        if len(np.unique(fresh, axis=0)) < len(fresh) or not ((ones > 64) & (ones < 192)).all():
            raise LawError("the entropy of runs without a seed is not random")

    def streams(self) -> None:
        """No draw of a user comes again, in any round, block, place, or run; for every way.

        All users hold one datum, so equal streams give equal numbers, and correlated ones
        correlated numbers.
        """
        ways = self.ways()
        for way in ways:
            for fidelity in ("counts", "literal") if way != ways[-1] else ("counts",):
                alarm = self.alarm / 4 / len(ways)
                try:
                    self._short(way, fidelity, alarm)
                    self._long(way, fidelity, alarm)
                except LawError as error:
                    raise LawError(f"{', '.join(way)}, {fidelity}: {error}") from error

    @property
    def _alike(self) -> tuple[Floats, list[Floats], list[int]]:
        """A datum that is rounded at random, its laws, and one label of each group."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        group = getattr(self.randomizer, "label_group", 1)
        middle, reach = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        rng = np.random.default_rng([self.entropy, 8])
        x = middle + 0.47 * reach * self.directions()[1]
        labels = (np.arange(0, self.labels, group) + rng.integers(0, group)).tolist()[:16]
        return x, [self.randomizer.count_pmf(x, label) for label in labels], labels

    def _drawn(
        self, way: Way, fidelity: str, size: int, users: int, rounds: tuple[int, ...], flipped: int
    ) -> NDArray[np.int64]:
        """Indices of laws that whole blocks of users with one datum send: (blocks, users, labels).

        Blocks of all rounds, one after the other.
        """
        x, _, labels = self._alike
        deployment = self.deployment(fidelity, way, size, flipped)
        deployment = replace(deployment, protocol=OneRound(users, self.protocol.spec, 1.0))
        rows = self.shaped(np.repeat(x[None], users, axis=0))
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        frames = self.answered(shard, self.round(Cohort.of(0, users)), rounds)
        whole = users // size
        found = [self.sums(fidelity, each)[:whole] for each in frames]
        index = self.randomizer.count_index(np.concatenate([np.stack(each) for each in found]), 1)
        return np.asarray(index, np.int64)[..., labels]

    def _short(self, way: Way, fidelity: str, alarm: float) -> None:
        """Blocks of the run's own size: all rounds and runs, two by two."""
        cohort = self.spec.cohort.size
        size = self.block_size or default_block_size(cohort, self.randomizer, fidelity)
        room = 2e6 if fidelity == "counts" else 2e7 / self.randomizer.report_messages
        most = int(room / len(_ROUNDS) / len(_TURNED) / max(1, self.labels))
        size = max(2, min(size, most, cohort))
        users = max(size, min(cohort, most) // size * size)
        rounds: tuple[int, ...] = _ROUNDS
        runs: tuple[int, ...] = _TURNED
        if way[1] != GENERATORS[0]:
            rounds, runs = _ROUNDS[::6], _TURNED[::3]
        drawn = [self._drawn(way, fidelity, size, users, rounds, bits) for bits in runs]
        self._independent(drawn, alarm)

    def _long(self, way: Way, fidelity: str, alarm: float) -> None:
        """A block beyond the pieces of every kernel, and its sums."""
        width, strong = len(self._alike[0]), way[1] != GENERATORS[0]
        room = _STRONG if strong else _LONG / (1 if self.thorough else 2)
        if fidelity == "literal":
            room = min(room, 1e7 / self.randomizer.per_label)
        beyond = (9 if self.thorough else 5) * chunk_rows(width) // 4
        users = int(min(beyond, room / self.labels))
        if users < 2:
            return
        self._independent(
            [self._drawn(way, fidelity, users, users, _ROUNDS[:2], bits) for bits in _TURNED[:2]],
            alarm,
        )
        if fidelity == "counts" and not strong and not hasattr(self.randomizer, "modulus"):
            self._long_sums(way, users, alarm)

    def _independent(self, runs: list[NDArray[np.int64]], alarm: float) -> None:
        """Frames of several runs: in the order of users, and in that of labels."""
        pmfs, frames = self._alike[1], np.concatenate(runs)
        by_label = frames.transpose(0, 2, 1).reshape(len(frames), -1)
        laws = np.repeat(np.arange(len(pmfs)), frames.shape[1])
        series = Series(by_label, pmfs, laws)
        check_series(series, alarm / 2, "draws")
        check_repeats([frames], series.collision, alarm / 2, "draws of users in order")

    def _long_sums(self, way: Way, users: int, alarm: float) -> None:
        """Sums of long blocks spread as those of independent users do, round by round."""
        x, pmfs, labels = self._alike
        deployment = self.deployment("aggregate", way, users)
        deployment = replace(deployment, protocol=OneRound(users, self.protocol.spec, 1.0))
        rows = self.shaped(np.repeat(x[None], users, axis=0))
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        frames = self.answered(shard, self.round(Cohort.of(0, users)), range(_SUMS))
        sums = np.array([self.sums("aggregate", each)[0][0] for each in frames])
        seen = np.asarray(self.randomizer.count_index(sums, users))[:, labels]
        places = [np.arange(len(pmf)) for pmf in pmfs]
        means = np.array([place @ pmf for place, pmf in zip(places, pmfs, strict=True)])
        spread = np.array(
            [((k - m) ** 2) @ pmf for k, m, pmf in zip(places, means, pmfs, strict=True)]
        )
        scaled = (seen - users * means) / np.sqrt(users * np.maximum(spread, 1e-300))
        check_variance(scaled, np.ones_like(scaled), false_alarm=alarm)

    def alone(self) -> None:
        """What is admitted of a user, however it is given, is that of its own value."""
        rows, kept = self.rows[np.isfinite(self.rows).all(axis=1)], []
        order = np.random.default_rng([self.entropy, 9]).permutation(len(rows))
        for place in range(len(rows)):
            kept.append(dense(self.randomizer.admit(self.shaped(rows[place][None]))[0])[0])
        for chosen in (np.arange(len(rows)), order, order[: len(rows) // 2]):
            for given in (self.shaped(rows[chosen]), *self._multiples(rows[chosen])):
                found = dense(self.randomizer.admit(given)[0])
                wanted = np.array(kept)[chosen].reshape(found.shape)
                if not np.allclose(found, wanted, rtol=1e-9, atol=1e-12):
                    raise LawError("what is admitted of a value depends on others, or on its form")

    def _multiples(self, rows: Floats) -> tuple[Values, ...]:
        """Rows as multiples of others, shorter, turned and longer ones; none of numbers."""
        if getattr(self.randomizer, "norm_bound", None) is None:
            return ()
        return tuple(
            Scaled(np.asfortranarray(rows / each), np.full(len(rows), each)) for each in _FACTORS
        )

    def search(self) -> None:
        """Many data, near the ends and anywhere: each has its law; the farthest are climbed."""
        rng = np.random.default_rng([self.entropy, 10])
        data = self._searched(rng, self.searched)
        for kernel in dict.fromkeys(way[0] for way in self.ways()):
            with using(kernel):
                far = self._held(data, rng, _SEARCHED, self.alarm / 4)
                best = data[np.argsort(-far)[: min(_CLIMBED, 1 + len(data) // 12)]]
                near = np.concatenate([best, self._moved(best, rng), self._moved(best, rng)])
                self._held(near, rng, 4 * _SEARCHED, self.alarm / 4)

    def _searched(self, rng: np.random.Generator, many: int) -> Floats:
        """Data (many, d) in the ball: on its edge, next to it, and inside."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, reach = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        d = len(first)
        ways = rng.normal(size=(many, d))
        axes = rng.random(many) < 0.6
        ways[axes] = (
            np.eye(d)[rng.integers(0, d, axes.sum())] * rng.choice([-1, 1], axes.sum())[:, None]
        )
        along = rng.random(many) < 0.4
        ways[along] = (second - first) * rng.choice([-1, 1], along.sum())[:, None]
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        near = 1 - 10 ** rng.uniform(-7, -0.5, many)
        share = np.where(rng.random(many) < 0.6, near, rng.random(many))
        share[rng.random(many) < 0.1] = 1.0
        return np.asarray(middle + reach * share[:, None] * ways)

    def _moved(self, data: Floats, rng: np.random.Generator) -> Floats:
        """Data next to others."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, reach = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        moved = data + reach * 0.01 * rng.normal(size=data.shape) / np.sqrt(data.shape[1])
        length = np.linalg.norm(moved - middle, axis=1, keepdims=True)
        return np.asarray(middle + (moved - middle) * np.minimum(1, reach / length))

    def _held(self, data: Floats, rng: np.random.Generator, draws: int, alarm: float) -> Floats:
        """Reports on each datum against its law, given in several forms; how far each is off."""
        users = np.repeat(data, draws, axis=0)
        step = 1 + len(self._multiples(users[:1]))
        few = users[::step]
        forms = [self.shaped(few), *self._multiples(few)]
        sums = np.empty((3, step, len(data), self.labels, 2))
        laws = [[self.randomizer.count_pmf(x, label) for label in range(self.labels)] for x in data]
        for form, each in enumerate(forms):
            drawn = self.randomizer.counts(each, rng).astype(np.int64)
            seen = np.asarray(self.randomizer.count_index(drawn, 1))
            seen = seen.reshape(len(data), -1, self.labels)
            for place, label in product(range(len(data)), range(self.labels)):
                sums[:, form, place, label] = scored(seen[place, :, label], laws[place][label])
        for axis, what in ((1, "datum"), (2, "form")):
            found, means, variances = sums.sum(axis=axis)
            judge(found, means, variances, alarm / 2, f"{what}, label, score")
        off = np.abs(sums[0] - sums[1]).sum(axis=0) / np.sqrt(sums[2].sum(axis=0) + 1)
        return np.asarray(off.max(axis=(1, 2)))
