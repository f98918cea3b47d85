"""The checks of an audit: what users send against its exact law, and what a shuffler shows."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.bench import (
    BLOCK,
    COUNTS,
    FIRST,
    LARGEST,
    QUICK,
    ROUNDS,
    Bench,
    OneRound,
    Way,
)
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.mixing import Mixing
from shuffle_sim.auditing.scores import JointLaw, judge, scored, scores, summed
from shuffle_sim.auditing.uniform import check_uniform
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.sampling.randomness import GENERATORS, Role, stream

_DRAWS = 200  # of the definition, for each type of user
_DEFINED = 2e7  # messages of all of them
_OFTEN = 200_000  # reports on one datum
_MORE = 8  # times as many samples of the total noise, at most
_ROUNDED = 4e7  # values that are rounded for them


class Checks(Bench):
    """All that an audit looks at in one round's randomizer, users' shard and shuffler."""

    def checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """All checks of what is sent, by name; where no law is known, those that need none."""
        if self.known:
            yield from self._of_law()
        yield "the shuffler keeps no order", self.order

    def _of_law(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "data outside the domain are brought into it", self.domain
        yield "every report has the same size, whatever the datum", self.sizes
        yield "one report, as it is defined, has its exact law", self.defined
        yield "each user's report has its exact law (literal)", partial(self.joint, "literal")
        yield "each user's report has its exact law (counts)", partial(self.joint, "counts")
        if getattr(self.randomizer, "modulus", 0) == self.randomizer.alphabet.symbols:
            yield "all messages of a report but one are uniform, and independent", self.uniform
        for way in self.ways():
            name = f"the tally of the users has its exact law (aggregate, {', '.join(way)})"
            yield name, partial(self.tallies, way)
        yield "the sums over all users have their exact law", self.whole
        yield from self._of_many()
        yield "two rounds over the same data draw independent noise", self.rounds
        if self.shuffler is Shuffler and self.shard is UserShard:
            yield "the view holds what users sent, with any number of shards", self.conserved

    def _of_many(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "one user's report, drawn many times at once, has its exact law", self.often
        if hasattr(self.randomizer, "total_law"):
            yield "the noise of all honest users together has its exact law", self.together

    def brief(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The checks of a randomizer of another round: what is drawn, by every way to draw it."""
        if self.known:
            yield "data outside the domain are brought into it", self.domain
            yield "one report, as it is defined, has its exact law", self.defined
            yield "each user's report has its exact law (counts)", partial(self.joint, "counts")
            yield "the sums over all users have their exact law", self.whole
            yield from self._of_many()

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

    def uniform(self) -> None:
        """All messages of a report but one are uniform, and independent."""
        users, rng = min(self.literal, BLOCK), np.random.default_rng([self.entropy, 6])
        rounds = self.frames("literal", users, range(QUICK))
        blocks = [block.symbols for frames in rounds for block in self.messages(frames)]
        modulus = self.randomizer.alphabet.symbols
        check_uniform(np.concatenate(blocks).astype(np.int64), modulus, rng, self.alarm)

    def rounds(self) -> None:
        """Neighbouring rounds are independent."""
        counts = self.counts("counts", {FIRST: range(ROUNDS)})
        self.law(self.users).check_rounds(counts, self.alarm)

    def tallies(self, way: Way) -> None:
        """Sums of blocks, as the shard sends them."""
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
        judge(*found, self.alarm / 2, "block, label, score")
        first, second, third = (each.sum(axis=0) for each in found)
        judge(first, second, third, self.alarm / 2, "label, score")

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
        found = [
            run(
                OneRound(users, self.protocol.spec, 1.0),
                data,
                fidelity="literal",
                seed=self.entropy,
                execution=Execution(block_size=BLOCK),
                shuffler_shards=shards,
            ).value
            for shards in (1, 2, 3)
        ]
        if not all(np.array_equal(found[0], each) for each in found[1:]):
            raise LawError("another number of shuffler shards shows other sums")

    def order(self) -> None:
        """Half of the users send the largest symbol, half 0: the view must mix them."""
        half = min(8, self.users) // 2
        if half:
            public = self.round(Cohort.of(0, 2 * half)).broadcast()
            deployment = self.deployment("literal")
            mixing = Mixing(self.shuffler, deployment, self.randomizer, public, half)
            mixing.check(self.repeats // 2, self.alarm)
