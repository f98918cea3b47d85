"""The draws of users: streams of every run, round, role and place; long blocks of every kernel."""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.evidence import against_spread
from shuffle_sim.auditing.laws.samplers import check_samplers, samplers_of
from shuffle_sim.auditing.laws.scores import in_the_middle, judge, scored, stacked, summed
from shuffle_sim.auditing.laws.sequences import (
    Series,
    check_axes,
    check_columns,
    check_lags,
    check_repeats,
    check_series,
)
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.auditing.shuffle.bench import LARGEST, QUICK, BenchRound, Way
from shuffle_sim.auditing.shuffle.searching import Searches
from shuffle_sim.auditing.shuffle.sources import check_drawn
from shuffle_sim.auditing.shuffle.stream_keys import ROUNDS, check_keys
from shuffle_sim.auditing.shuffle.watching import bits_of_chance
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution.setup import default_block_size
from shuffle_sim.roles.block_rows import chunk_rows
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.kernels import fortran
from shuffle_sim.sampling.randomness import GENERATORS

_TURNED = 0, 1, 1 << 63, 1 << 127  # bits of the entropy: other runs
_LONG = 600_000  # draws of a block beyond every kernel's pieces, at most
_STRONG = 5_000  # of them that a cryptographic generator makes
_SEEDS, _SURE, _MESSAGES = 1 << 12, 100.0, 1e7  # blocks; bits of chance in each; messages of all
_FEW = 200  # users whose words are counted
_SUMS = 96  # of such a block
_EXCESS = 0.01  # kurtosis of a sum beyond a Gaussian's, at most, for its spread to tell most
_DATA, _TURNS = 15, 1 << 10  # data that are tried, of so many coordinates at most
_LABELS, _ACROSS = 16, 1 << 10  # whose draws are compared in every way, and at all lags alone


class Draws(Searches):
    """All draws of users who hold one datum, so that equal streams give equal numbers."""

    @property
    def fidelities(self) -> tuple[str, ...]:
        """At which each user's report is seen."""
        return ("counts", "literal") if self.randomizer.view == "sums" else ("literal",)

    @property
    def each(self) -> float:
        """Messages of a user under a label, on average."""
        return float(self.randomizer.usual_messages / self.labels)

    def joint(self, fidelity: str, alarm: float) -> None:
        """Every user and label, and sums of them, in rounds that are drawn in every way."""
        ways, start = {}, 0
        *quick, strong = self.ways()
        for way, many in [*((way, self.looked // len(quick)) for way in quick), (strong, QUICK)]:
            ways[way] = range(start, start := start + many)
        counts = self.counts(fidelity, ways)
        rng = np.random.default_rng([self.entropy, 2])
        law = self.law(counts.shape[1])
        law.check(counts, rng, alarm / 2)
        for way, rounds in ways.items():
            with naming(", ".join(way)):
                law.check_each(counts[rounds.start : rounds.stop], alarm / 2 / len(ways))

    @cached_property
    def samplers(self) -> set[str]:
        """Names of the shared samplers that the randomizer draws by."""
        return samplers_of(self.randomizer)

    def sampled(self) -> None:
        """Their laws, and those of parts of noise that a randomizer names, tails included."""
        parts, rng = getattr(self.randomizer, "noise_parts", list), [self.entropy, 21]
        check_samplers(self.samplers, parts(), np.random.default_rng(rng), self.alarm)

    def keys(self) -> None:
        """Streams of every run, round, role and place begin differently, and are independent."""
        check_keys(self.deployment("literal"), self.alarm)

    def streams(self) -> None:
        """No draw of a user comes again, in any round, block, place, or run; for every way.

        All users hold one datum, so equal streams give equal numbers, and correlated ones
        correlated numbers.
        """
        ways = self.ways()
        for way in ways:
            for fidelity in self.fidelities if way != ways[-1] else self.fidelities[:1]:
                alarm = self.alarm / 4 / len(ways)
                with naming(", ".join((*way, fidelity))):
                    self._short(way, fidelity, alarm)
                    self._long(way, fidelity, alarm)
        for fidelity in self.fidelities:
            with naming(fidelity):
                self._seeds(fidelity)
        for kernel in dict.fromkeys(kernel for kernel, _ in ways):
            with naming(kernel):
                self._whole_words(kernel)

    @property
    def _alike(self) -> tuple[Floats, NDArray[np.int64]]:
        """A datum that is rounded at random, and sets of labels: one of each group, the same.

        The last label of a group is the one that tells most of a number of several digits.
        """
        rng = np.random.default_rng([self.entropy, 8])
        places = np.unique([self.group - 1, rng.integers(0, self.group)])
        return self.alike, np.arange(0, self.labels, self.group)[:_LABELS] + places[:, None]

    @cached_property
    def alike(self) -> Floats:
        """A datum that is rounded at random: of some the one whose report varies most."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, reach = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        rng, ways = np.random.default_rng([self.entropy, 19]), self.directions()[1:2]
        if len(first) <= _TURNS:
            others = rng.normal(size=(_DATA, len(first)))
            ways += list(others / np.linalg.norm(others, axis=1, keepdims=True))
        # Off the middle: at 0.5 of a step a value may need no rounding.
        return max((middle + 0.47 * reach * way for way in ways), key=self._variance)

    def _variance(self, x: Floats) -> float:
        """Of what a user with this datum sends, over the first labels."""
        laws = (self.pmf(x, label) for label in range(0, self.labels, self.group)[:16])
        means = ((law, np.arange(len(law)) - law @ np.arange(len(law))) for law in laws)
        return sum(float(law @ away**2) for law, away in means)

    def _drawn(
        self, way: Way, fidelity: str, size: int, users: int, rounds: tuple[int, ...], flipped: int
    ) -> NDArray[np.int64]:
        """Indices of laws that whole blocks of users with one datum send.

        Blocks of all rounds, one after the other: (blocks, users, labels).
        """
        x, _ = self._alike
        deployment = self.deployment(fidelity, way, size, flipped)
        deployment = replace(deployment, protocol=BenchRound(users, self.protocol.spec, 1.0))
        rows = self.shaped(np.repeat(x[None], users, axis=0))
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        frames = self.answered(shard, self.round(Cohort.of(0, users)), rounds)
        whole = users // size
        found = [self.sums(fidelity, each)[:whole] for each in frames]
        index = self.index(np.concatenate([np.stack(each) for each in found]), 1)
        return np.asarray(index, np.int64)

    def _seeds(self, fidelity: str) -> None:
        """Many small blocks, no two alike: what is drawn from few seeds comes again."""
        x, _ = self._alike
        labels = range(0, self.labels, self.group)
        bits = -sum(math.log2(float(self.pmf(x, label).max())) for label in labels)
        if fidelity == "literal":
            bits = self._shares or bits
        size = math.ceil(_SURE / max(bits, 1e-9))
        each = self.each if fidelity == "literal" else 1.0
        # Reports of words may be drawn one by one.
        room = _MESSAGES if self.randomizer.view == "sums" else _MESSAGES / 100
        blocks = int(min(_SEEDS, room / (size * self.labels * each), 4 * self.swift / size))
        if blocks < 2:
            return
        one = BenchRound(size * blocks, self.protocol.spec, 1.0)
        deployment = replace(self.deployment(fidelity, size=size), protocol=one)
        rows = self.shaped(np.repeat(x[None], size * blocks, axis=0))
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        (frames,) = self.answered(shard, self.round(Cohort.of(0, size * blocks)), range(1))
        # No report has a larger chance than 2^-bits: of all pairs one agrees with 2^-74 or less.
        if len({frame.payload for frame in frames}) < len(frames):
            raise LawError(f"of {len(frames):,} blocks of {size:,} users two send the same")

    def _whole_words(self, kernel: str) -> None:
        """What a kernel draws for some users is as much as their stream gives."""
        rows = self.shaped(np.repeat(self._alike[0][None], min(self.literal, _FEW), axis=0))
        values, *_ = admitted(fortran(rows), self.randomizer)
        bits = len(values) * bits_of_chance(self.randomizer, values, self.entropy)
        check_drawn(self.randomizer, values, kernel, self.entropy, bits, len(values) * self._shares)

    @property
    def _shares(self) -> float:
        """Bits of chance in all messages of a user but those that follow from others."""
        if not hasattr(self.randomizer, "modulus"):
            return 0.0
        free = self.labels * (self.randomizer.per_label - 1)
        return float(free * math.log2(self.randomizer.modulus))

    def _short(self, way: Way, fidelity: str, alarm: float) -> None:
        """Blocks of the run's own size: all rounds and runs, two by two."""
        cohort = self.spec.cohort.size
        size = self.block_size or default_block_size(cohort, self.randomizer, fidelity)
        room = 2e6 if fidelity == "counts" else 2e7 / (self.each * self.labels)
        most = int(room / len(ROUNDS) / len(_TURNED) / max(1, self.labels))
        size = max(2, min(size, most, cohort))
        users = max(size, min(cohort, most) // size * size)
        rounds: tuple[int, ...] = ROUNDS
        runs: tuple[int, ...] = _TURNED
        if way[1] != GENERATORS[0] or math.isfinite(self.swift):
            rounds, runs = ROUNDS[::6], _TURNED[::3]
        drawn = [self._drawn(way, fidelity, size, users, rounds, bits) for bits in runs]
        self._independent(drawn, len(rounds), alarm)

    def _long(self, way: Way, fidelity: str, alarm: float) -> None:
        """A block beyond the pieces of every kernel, and its sums."""
        width, strong = len(self._alike[0]), way[1] != GENERATORS[0]
        room = _STRONG if strong else _LONG / (1 if self.thorough else 2)
        if fidelity == "literal":
            room = min(room, 1e7 / self.each)
        beyond = (9 if self.thorough else 5) * chunk_rows(width) // 4
        users = int(min(beyond, room / self.labels, self.swift))
        if users < 2:
            return
        drawn = [self._drawn(way, fidelity, users, users, ROUNDS[:2], bits) for bits in _TURNED[:2]]
        self._independent(drawn, 2, alarm)
        self._across(np.concatenate(drawn), alarm)
        if fidelity == "counts" and not strong and not hasattr(self.randomizer, "modulus"):
            self._long_sums(way, int(max(2, min(users, self.swift / 10))), alarm)

    def _independent(self, runs: list[NDArray[np.int64]], rounds: int, alarm: float) -> None:
        """Frames of several runs: in the order of users, and in that of labels."""
        x, labels = self._alike
        every = np.concatenate([each[..., labels] for each in runs])
        for place, each in enumerate(labels):
            frames, pmfs = every[:, :, place], [self.pmf(x, one) for one in each]
            by_label = frames.transpose(0, 2, 1).reshape(len(frames), -1)
            laws = np.repeat(np.arange(len(pmfs)), frames.shape[1])
            series, share = Series(by_label, pmfs, laws), alarm / 4 / len(labels)
            check_columns(frames.reshape(-1, len(pmfs)), pmfs, share, "labels of a user")
            check_series(series, share, "draws")
            check_axes(series, (len(runs), rounds), share)
            check_repeats([frames], series.collision, share, "draws of users in order")

    def _across(self, drawn: NDArray[np.int64], alarm: float) -> None:
        """All labels one after the other, as kernels draw them: a piece holds several."""
        labels = np.arange(self.group - 1, self.labels, self.group)[:_ACROSS]
        if len(labels) <= _LABELS:  # then others have looked
            return
        pmfs = [self.pmf(self._alike[0], each) for each in labels]
        frames = drawn[..., labels].transpose(0, 2, 1).reshape(len(drawn), -1)
        series = Series(frames, pmfs, np.repeat(np.arange(len(pmfs)), drawn.shape[1]))
        centred, variance = series.centred
        check_lags(centred, float(variance.max()), alarm, "draws of all labels")

    def _long_sums(self, way: Way, users: int, alarm: float) -> None:
        """Sums of long blocks spread as those of independent users do, round by round."""
        x, (labels, *_) = self._alike
        pmfs = [self.pmf(x, label) for label in labels]
        deployment = self.deployment("aggregate", way, users)
        deployment = replace(deployment, protocol=BenchRound(users, self.protocol.spec, 1.0))
        rows = self.shaped(np.repeat(x[None], users, axis=0))
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        frames = self.answered(shard, self.round(Cohort.of(0, users)), range(_SUMS))
        sums = np.array([self.sums("aggregate", each)[0][0] for each in frames])
        seen = np.asarray(self.index(sums, users))[:, labels]
        places = [np.arange(len(pmf)) for pmf in pmfs]
        means = np.array([place @ pmf for place, pmf in zip(places, pmfs, strict=True)])
        spread = np.array(
            [((k - m) ** 2) @ pmf for k, m, pmf in zip(places, means, pmfs, strict=True)]
        )
        fourth = [((k - m) ** 4) @ pmf for k, m, pmf in zip(places, means, pmfs, strict=True)]
        # Sums of what is seldom show in scores, others in how far they spread.
        near = np.array(fourth) < (3 + _EXCESS * users) * spread**2
        near |= users * np.array([len(pmf) for pmf in pmfs]) > LARGEST
        if not near.all():
            rare = np.flatnonzero(~near)
            tests = [scored(seen[:, at], summed([(pmfs[at], users)])) for at in rare]
            judge(*stacked(tests), alarm / 2, "sums of long blocks, label, score")
        draws = []
        for at in np.flatnonzero(near):
            law, shift = in_the_middle([(pmfs[at], users)])
            draws.append(((seen[:, at] + shift) % len(law), law))
        if draws and against_spread(draws, alarm / 2):
            raise LawError("sums of long blocks have another spread than those of their users")
