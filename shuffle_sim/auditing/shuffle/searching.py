"""Where an audit looks: data outside the domain, in other company, and those that are searched."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.auditing.laws.scores import judge, scored, stacked
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.auditing.shuffle.bench import Bench, BenchRound, Way
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.roles.block_rows import BlockRows, chunk_rows
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.kernels import using

_SEARCHED = 120  # reports on each datum that is searched
_FACTORS = 0.1, -1.0, 7.0  # of rows that are given as multiples
_SENT = 60  # rounds in which a shard's users hold them
_OUTSIDE = (
    *(1 + 1e-6, 1.001, 1.01, 1.03, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 3.0, 5.0, 20.0),
    *(300.0, 1e9, 1e200),
)
"""Times the radius of the ball, where what is admitted must not be."""
_COMPANY, _MIXED = 5_000, 400  # rows that are admitted together
_PIECES, _FAR, _ASKED = 2, 1e3, 1e7  # pieces of a block; times its end; its numbers, at most
_TURNED = 8  # coins of them, at most
_TIMED, _SLOW = 500, 2e5  # users, and numbers in a second: fewer are drawn one by one
_CLIMBED = 16  # data around which is searched again


class Searches(Bench):
    """Rows of all kinds: what is admitted of them, and the law of the reports on them."""

    @property
    def searched(self) -> int:
        """Data that are searched."""
        many = 2000 if self.thorough else 400
        cells = int(1e6 / self.labels / max(1, len(self.pmfs[0][0])) + 8)
        return min(many, max(24, cells, int(2e6 / _SEARCHED / self.labels)))

    @cached_property
    def swift(self) -> float:
        """Users in a second, of a sum with no sampler but its definition; else infinite."""
        if self.randomizer.view != "sums":
            return math.inf
        rows, rng = (
            self.shaped(np.repeat(self.inside[:1], _TIMED, axis=0)),
            np.random.default_rng(0),
        )
        began = time.process_time()
        self.randomizer.counts(rows, rng)
        found = _TIMED / max(time.process_time() - began, 1e-9)
        return found if found * self.labels < _SLOW else math.inf

    def domain(self) -> None:
        """Whatever a row is, what is admitted lies in the ball whose ends are the worst pair."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        finite = self.rows[np.isfinite(self.rows).all(axis=1)]
        ways = [*self.directions(), np.ones_like(first)]
        ends = np.array([sign * way / np.linalg.norm(way) for way in ways for sign in (1, -1)])
        reached = (scale * (radius if scale < 1e6 else 1.0) for scale in _OUTSIDE)
        outside = [middle + length * ends for length in reached]
        # Each length alone, too: a shortcut for a whole batch hides beside one that is longer.
        for given in (*outside, np.concatenate([finite, *outside])):
            forms = self.shaped(given), *self._multiples(given)
            of_forms = (dense(self.randomizer.admit(each)[0]) for each in forms)
            with np.errstate(over="ignore"):
                for found in chain(of_forms, self._as_read(given)):
                    away = found.reshape(len(given), -1) - middle
                    far = float(np.linalg.norm(away, axis=1).max())
                    if not far <= radius * (1 + 1e-9):
                        size = f"{far / radius:.7g} times the radius"
                        raise LawError(f"a value {size} from the middle is admitted")
        self._by_pieces(middle, second)

    def _by_pieces(self, middle: Floats, end: Floats) -> None:
        """A block beyond its first pieces sends of rows far out what it sends of their end."""
        users = _PIECES * chunk_rows(len(end)) + 1
        few = users * self.labels <= _ASKED and math.isinf(self.swift)
        if not few or self.randomizer.view != "sums":
            return
        seen, protocol = list[NDArray[Any]](), BenchRound(users, self.protocol.spec, 1.0)
        for far in (1.0, _FAR):
            deployment = replace(self.deployment("aggregate", size=users), protocol=protocol)
            rows = InMemory(self.shaped(np.tile(middle + far * (end - middle), (users, 1))))
            shard = self.shard(deployment, rows, deployment.blocks())
            (frames,) = self.answered(shard, self.round(Cohort.of(0, users)), range(1))
            seen.append(np.sum(self.sums("aggregate", frames), axis=0))
        # The same coins fall: but for some that rounding turns.
        if np.abs(seen[1] - seen[0]).max() > _TURNED:
            raise LawError("rows beyond the first piece of a block are not brought into the domain")

    def alone(self) -> None:
        """What is admitted of a user, however it is given, is that of its own value."""
        rows, kept = self.rows[np.isfinite(self.rows).all(axis=1)], []
        order = np.random.default_rng([self.entropy, 9]).permutation(len(rows))
        for place in range(len(rows)):
            kept.append(dense(self.randomizer.admit(self.shaped(rows[place][None]))[0])[0])
        short = np.argsort(np.linalg.norm(rows, axis=1))[: len(rows) // 4]
        many, alike = (np.tile(each, 1 + _COMPANY // len(each)) for each in (order, short))
        # Long ones that are not clipped, beside short ones: a length by rank shows there.
        reach = np.linalg.norm(np.reshape(kept, (len(rows), -1)), axis=1)
        inside = np.isclose(reach, np.linalg.norm(rows.reshape(len(rows), -1), axis=1))
        far = reach > reach[inside].max(initial=0.0) / 2
        small, large = np.flatnonzero(inside & ~far), np.flatnonzero(inside & far)
        mixed = [
            np.append(np.resize(small, _MIXED - few), np.resize(large, few))
            for few in (1, _MIXED // 20, _MIXED // 5, _MIXED // 2)
            if small.size and large.size
        ]
        # Kernels take eight rows at a time, and the last ones by other code: there stand those that
        # are long in the first or in the last coordinate.
        flat, whole = rows.reshape(len(rows), -1), len(rows) // 8 * 8
        ends = [np.argsort(-np.abs(flat[:, place])) for place in (0, -1)]
        tails = [np.append(order[:whole], end[:few]) for end in ends for few in range(1, 8)]
        parts = np.arange(len(rows)), order, order[: len(rows) // 2], many, short, alike
        for chosen in (*parts, *mixed, *tails):
            forms = (self.shaped(rows[chosen]), *self._multiples(rows[chosen]))
            of_forms = (dense(self.randomizer.admit(given)[0]) for given in forms)
            for found in chain(of_forms, self._as_read(rows[chosen])):
                wanted = np.array(kept)[chosen].reshape(found.shape)
                if not np.allclose(found, wanted, rtol=1e-9, atol=1e-12):
                    raise LawError("what is admitted of a value depends on others, or on its form")

    def _as_read(self, rows: Floats) -> Iterator[Floats]:
        """What users' shards admit of rows as they read them, by each kernel."""
        for kernel in {kernel: None for kernel, _ in self.ways()}:
            with using(kernel):
                yield np.concatenate(
                    [
                        np.array(dense(admitted(chunk.rows, self.randomizer, chunk.squares)[0]))
                        for chunk in BlockRows(InMemory(self.shaped(rows))).chunks(0, len(rows))
                    ]
                )

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
        for way in {way[0]: way for way in reversed(self.ways())}.values():
            with using(way[0]), naming(", ".join(way)):
                far = self._held(data, rng, _SEARCHED, self.alarm / 8)
                # Chosen by draws that are not used again, so the next test keeps its alarm.
                best = data[np.argsort(-far)[: min(_CLIMBED, 1 + len(data) // 12)]]
                near = np.concatenate([best, self._moved(best, rng), self._moved(best, rng)])
                self._held(near, rng, 4 * _SEARCHED, self.alarm / 8)
                for fidelity in ("counts", "literal"):
                    self._sent(data, fidelity, way, self.alarm / 8)

    def _searched(self, rng: np.random.Generator, many: int) -> Floats:
        """Data (many, d) in the ball: on its edge, next to it, and inside."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, reach = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        ways, along = rng.normal(size=(many, len(first))), rng.random(many) < 0.4
        ways[along] = (second - first) * rng.choice([-1, 1], along.sum())[:, None]
        # Of the others some are of one sign in all coordinates. Most are axes: each end of each
        # once before any comes again.
        others = np.flatnonzero(~along)
        ways[others[::3]] = np.abs(ways[others[::3]]) * rng.choice([-1, 1], (len(others[::3]), 1))
        axes = np.flatnonzero(~along & (rng.random(many) < 0.6))
        ends = np.resize(rng.permutation(2 * len(first)), len(axes))
        ways[axes] = 0.0
        ways[axes, ends // 2] = 1 - 2 * (ends % 2)
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        # All distances from the edge alike, by powers of ten: a defect may be as narrow.
        close, powers = rng.random(many) < 0.6, rng.uniform(-7, -0.5, many)
        for group in (along & close, ~along & close):  # spread evenly: none is left out by chance
            size = int(group.sum())
            powers[group] = -7 + 6.5 * (rng.permutation(size) + rng.random(size)) / max(1, size)
        near = 1 - 10**powers
        share = np.where(close, near, rng.random(many))
        share[rng.random(many) < 0.1] = 1.0
        middling = rng.random(many) < 0.1
        share[middling] = 10 ** rng.uniform(-7, -0.5, middling.sum())
        once = axes[: 2 * len(first)]
        share[once] = near[once]
        return np.asarray(middle + reach * share[:, None] * ways)

    def _moved(self, data: Floats, rng: np.random.Generator) -> Floats:
        """Data next to others."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, reach = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        moved = data + reach * 0.01 * rng.normal(size=data.shape) / np.sqrt(data.shape[1])
        length = np.linalg.norm(moved - middle, axis=1, keepdims=True)
        return np.asarray(middle + (moved - middle) * np.minimum(1, reach / length))

    def _sent(self, data: Floats, fidelity: str, way: Way, alarm: float) -> None:
        """What a shard's users send of data that are searched: all of them, in each round."""
        room = 1e6 if fidelity == "counts" else 2e7 * self.labels / self.randomizer.report_messages
        rounds = int(min(_SENT, room / self.labels / len(data)))
        if rounds < 2:
            return
        deployment = self.deployment(fidelity, way)
        deployment = replace(deployment, protocol=BenchRound(len(data), self.protocol.spec, 1.0))
        shard = self.shard(deployment, InMemory(self.shaped(data)), deployment.blocks())
        asked = self.answered(shard, self.round(Cohort.of(0, len(data))), range(rounds))
        seen = [np.concatenate(self.sums(fidelity, each)) for each in asked]
        if any(len(each) != len(data) for each in seen):
            raise LawError(f"{len(seen[0])} reports of {len(data)} users")
        index = self.index(np.stack(seen).astype(np.int64), 1)
        tests = [
            scored(index[:, place, label], self.pmf(x, label))
            for (place, x), label in product(enumerate(data), range(self.labels))
        ]
        found, means, most = (each.reshape(len(data), self.labels, 2) for each in stacked(tests))
        judge(found, means, most, alarm / 2, f"{fidelity}: datum, label, score")
        last = np.s_[:, self.group - 1 :: self.group]  # of each group: they are independent
        found, means, most = (each[last].sum(axis=1) for each in (found, means, most))
        judge(found, means, most, alarm / 2, f"{fidelity}: datum, score")

    def _held(self, data: Floats, rng: np.random.Generator, draws: int, alarm: float) -> Floats:
        """Reports on each datum against its law, given in several forms; how far each is off."""
        users = np.repeat(data, draws, axis=0)
        step = 1 + len(self._multiples(users[:1]))
        few = users[::step]
        forms = [self.shaped(few), *self._multiples(few)]
        sums = np.empty((3, step, len(data), self.labels, 2))
        laws = [[self.pmf(x, label) for label in range(self.labels)] for x in data]
        for form, each in enumerate(forms):
            drawn = self.randomizer.counts(each, rng).astype(np.int64)
            seen = self.index(drawn, 1)
            seen = seen.reshape(len(data), -1, self.labels)
            for place, label in product(range(len(data)), range(self.labels)):
                sums[:, form, place, label] = scored(seen[place, :, label], laws[place][label])
        for axis, what in ((1, "datum"), (2, "form")):
            found, means, variances = sums.sum(axis=axis)
            judge(found, means, variances, alarm / 2, f"{what}, label, score")
        off = np.abs(sums[0] - sums[1]).sum(axis=0) / np.sqrt(sums[2].sum(axis=0) + 1)
        return np.asarray(off.max(axis=(1, 2)))
