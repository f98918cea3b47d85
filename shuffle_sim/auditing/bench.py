"""The implementation under audit, with everything needed to run it on data whose law is known."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.mixing import Mixing
from shuffle_sim.auditing.scores import LEVELS, JointLaw, judge, scored, scores, summed
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution.engine import run
from shuffle_sim.protocol.base import Datum, Protocol, RoundSpec
from shuffle_sim.roles import Deployment, Shuffler, UserShard, count_type
from shuffle_sim.sampling.kernels import KERNELS
from shuffle_sim.sampling.randomness import GENERATORS, Role, stream
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

LAW = "worst_pair", "count_pmf", "count_index"
"""What a randomizer must say of itself for its law to be known."""
_FEW = 200  # users of a randomizer of which no law is known
_ROUNDS = 250  # in which every user is looked at
_QUICK = 50  # of them that a cryptographic generator draws
_ODD = np.nan, -np.inf
_OTHERS = 4  # coordinates, at most, that rows are the ends of
_DRAWS = 200  # of the definition, for each type of user
_DEFINED = 2e7  # messages of all of them
_BLOCK = 96
_BITS = 5e7  # messages of all rounds at literal fidelity
_COUNTS = 5e6  # counts of all rounds
_ASKED = 20_000  # users whose noise is drawn at once
Way = tuple[str, str]
"""How noise is drawn: a kernel, and a generator."""
FIRST: Way = (KERNELS[0], GENERATORS[0])
Frames = list[list[Frame]]
"""By round and block."""
_OFTEN = 200_000  # reports on one datum
_MORE = 8  # times as many samples of the total noise, at most
_ROUNDED = 4e7  # values that are rounded for them
_LARGEST = 1 << 20  # cells of the law of a sum over all users


class OneRound(Protocol[int]):
    """One round over all users by a given randomizer, on the data themselves."""

    def __init__(self, users: int, spec: RoundSpec, honest_fraction: float) -> None:
        """Like the round of `spec`, with another cohort."""
        self._users, self.spec, self.honest_fraction = users, spec, honest_fraction
        self.query = Datum()

    users = property(lambda self: self._users)
    delta = property(lambda self: 1e-6)
    vocabulary = property(lambda self: (Datum, type(self.spec.randomizer)))

    def check(self, rows: NDArray[Any]) -> None:
        """Everything may be sent: also what is not allowed."""

    def init(self) -> int:
        """Nothing was asked."""
        return 0

    def plan(self, state: int) -> RoundSpec | None:
        """The round."""
        if state:
            return None
        event = self.spec.randomizer.event(self._users) or self.spec.event
        cohort = Cohort.of(0, self._users)
        return RoundSpec(cohort, self.query, self.spec.randomizer, event, lambda tally: tally)

    def update(self, state: int, estimate: Any) -> int:
        """The tally is what is looked at."""
        self.tally = estimate
        return 1

    def result(self, state: int) -> Any:
        """The tally's sums."""
        return self.tally.sums


class Bench:
    """Users of some fifteen types, many with data outside the domain, through the real roles."""

    def __init__(
        self,
        protocol: Protocol[Any],
        spec: RoundSpec,
        entropy: int,
        repeats: int,
        alarm: float,
        shard: type[UserShard],
        shuffler: type[Shuffler],
    ) -> None:
        """Make the rows, and the law of what is sent about them."""
        self.randomizer: Any = spec.randomizer
        self.entropy, self.repeats, self.alarm = entropy, repeats, alarm
        self.shard, self.shuffler = shard, shuffler
        self.labels = self.randomizer.alphabet.labels
        self.users = min(spec.cohort.size, _FEW)
        self.protocol = OneRound(self.users, spec, protocol.honest_fraction)
        self.known = all(hasattr(self.randomizer, name) for name in LAW)
        if self.known:
            self._know(protocol, spec)

    def _know(self, protocol: Protocol[Any], spec: RoundSpec) -> None:
        """Rows whose law can be said, and that law."""
        self.rows, self.inside = self._values()
        law: Any = self.randomizer
        self.pmfs = [[law.count_pmf(x, j) for j in range(self.labels)] for x in self.inside]
        widest = max(len(pmf) for each in self.pmfs for pmf in each)
        room = min(_COUNTS / _ROUNDS / self.labels, _LARGEST / widest)
        self.users = max(2, min(spec.cohort.size, int(room)))
        self.asked = min(spec.cohort.size, _ASKED)
        self.literal = max(
            2, min(self.users, int(_BITS / _ROUNDS / self.randomizer.report_messages))
        )
        self.protocol = OneRound(self.users, spec, protocol.honest_fraction)
        self.types = np.arange(self.users) % len(self.inside)

    def _values(self) -> tuple[Floats, Floats]:
        """Rows of each type as users hold them, and as they should be admitted.

        Along the worst pair, along other coordinates, and in a random direction; also far outside,
        a little outside, and not finite.
        """
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        pair, turned, *others = self._directions()
        at = [(pair, share) for share in (-1.0, 1.0, 1e3, -3.0, 1.5)]
        at += [(turned, 50.0), (turned, -1.0), (turned, 0.6)]
        if others:
            at += [(turned, 1.0), (others[-1], 0.4)]
        at += [(way, sign) for way in others for sign in (1.0, -1.0)]
        at += [(pair, share) for share in np.linspace(-0.94, 0.94, 6).tolist()]
        wild = [np.where(np.arange(len(first)) == 0, np.inf, middle)]
        wild += [np.where(np.arange(len(first)) == len(first) - 1, odd, second) for odd in _ODD]
        held = np.array([*(middle + share * radius * way for way, share in at), *wild])
        held[0], held[1] = first, second  # not off by one rounding
        finite = np.where(np.isfinite(held).all(axis=1)[:, None], held, 0.0)
        length = np.maximum(np.linalg.norm(finite - middle, axis=1), 1e-300)
        factor = np.minimum(1.0, radius / length)[:, None]
        return held, middle + factor * (finite - middle)

    def _directions(self) -> list[Floats]:
        """Of length 1: of the worst pair, a random one, and of some other coordinates."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        rng, d = np.random.default_rng([self.entropy, 3]), len(first)
        chosen = 1 + rng.permutation(d - 1)[:_OTHERS]
        ways = [second - first, rng.normal(size=d), *np.eye(d)[chosen]]
        return [way / np.linalg.norm(way) for way in ways]

    def data(self, users: int) -> Floats:
        """The rows of so many users, in the shape the randomizer takes."""
        return self.shaped(self.rows[self.types[:users]])

    def shaped(self, rows: Floats) -> Floats:
        """Rows (users, d) as the randomizer takes them: (users,) where they are numbers."""
        numbers = rows.shape[1] == 1 and getattr(self.randomizer, "norm_bound", None) is None
        return rows[:, 0] if numbers else rows

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

    def ways(self) -> list[Way]:
        """How noise may be drawn here: with each kernel that is installed, and each generator."""
        quick, strong = GENERATORS
        kernels = KERNELS if find_spec("numba") else KERNELS[:1]
        return [*((kernel, quick) for kernel in kernels), (KERNELS[0], strong)]

    def domain(self) -> None:
        """Whatever a row is, what is admitted lies in the ball whose ends are the worst pair."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        finite = self.rows[np.isfinite(self.rows).all(axis=1)]
        ways = [*self._directions(), np.ones_like(first)]
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

    def frames(self, fidelity: str, users: int, rounds: Iterable[int], way: Way = FIRST) -> Frames:
        """The frames of the shard's users for these rounds."""
        deployment = self._deployment(fidelity, way)
        shard = self.shard(deployment, InMemory(self.data(self.users)), deployment.blocks())
        payload = self._round(Cohort.of(0, users)).broadcast()
        contexts = [Context.of_broadcast(bytes(16), index, payload) for index in rounds]
        broadcasts = [Frame(Kind.ROUND, context, 0, 0, payload).tobytes() for context in contexts]
        return [
            [parse(data) for data in split_frames(shard.answer(broadcast)[0])]
            for broadcast in broadcasts
        ]

    def _deployment(self, fidelity: str, way: Way = FIRST) -> Deployment:
        return Deployment(
            protocol=self.protocol,
            task=bytes(16),
            entropy=self.entropy,
            fidelity=fidelity,
            block_size=_BLOCK,
            kernel=way[0],
            generator=way[1],
        )

    def _round(self, cohort: Cohort) -> RoundSpec:
        spec = self.protocol.spec
        return RoundSpec(cohort, Datum(), self.randomizer, spec.event, lambda _: None)

    def messages(self, frames: list[Frame]) -> list[Messages]:
        """The reports of one round by block, as the shuffler would read them."""
        alphabet, per_label = self.randomizer.alphabet, self.randomizer.per_label
        return [Messages.from_bytes(alphabet, per_label, f.payload, f.reports) for f in frames]

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

    def counts(self, fidelity: str, ways: dict[Way, range]) -> NDArray[np.int64]:
        """Indices of the exact law, (rounds, users, labels), of rounds drawn in several ways."""
        users = self.literal if fidelity == "literal" else self.users
        seen = np.empty((sum(map(len, ways.values())), users, self.labels), np.int64)
        for way, rounds in ways.items():
            for index, frames in zip(
                rounds, self.frames(fidelity, users, rounds, way), strict=True
            ):
                found = np.concatenate(self._sums(fidelity, frames))
                if len(found) != users:
                    raise LawError(f"{len(found)} reports of {users} users")
                seen[index] = found
        return np.asarray(self.randomizer.count_index(seen, 1))

    def _sums(self, fidelity: str, frames: list[Frame]) -> list[NDArray[np.int64]]:
        """Sums of symbols by block, (users, labels), as the shuffler would read them."""
        if fidelity == "literal":
            return [self._by_label(each) for each in self.messages(frames)]
        kind = count_type(self.randomizer)
        return [np.frombuffer(f.payload, kind).reshape(-1, self.labels) for f in frames]

    def _by_label(self, messages: Messages) -> NDArray[np.int64]:
        edges = self.randomizer.alphabet.edges[:-1]
        rows = messages.symbols.sum(axis=-1, dtype=np.int64)
        return np.asarray(np.add.reduceat(rows, edges, axis=1))

    def law(self, users: int) -> JointLaw:
        """Of the first users."""
        group = getattr(self.randomizer, "label_group", 1)
        return JointLaw(self.pmfs, self.types[:users], group)

    def joint(self, fidelity: str) -> None:
        """Every user and label, and sums of them, in rounds that are drawn in every way."""
        ways, start = {}, 0
        *quick, strong = self.ways()
        for way, many in [*((way, _ROUNDS // len(quick)) for way in quick), (strong, _QUICK)]:
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
                [self._by_label(self.randomizer.randomize(x, rng))[0] for x in rows]
                for _ in range(draws)
            ]
        )
        law = JointLaw(self.pmfs, np.arange(len(rows)))
        law.check_each(np.asarray(self.randomizer.count_index(seen, 1)), self.alarm)

    def uniform(self) -> None:
        """Sums of some messages of a report with signs, modulo their number, are uniform."""
        users, modulus = min(self.literal, _BLOCK), self.randomizer.alphabet.symbols
        many, rng = self.randomizer.per_label, np.random.default_rng([self.entropy, 6])
        signs = [np.eye(many, dtype=np.int64)]
        signs.append((signs[0][:, None] - signs[0][None])[np.triu_indices(many, 1)])
        several = rng.integers(-1, 2, (16, many))
        # One message left out: then nothing that is known of all of them tells of the rest.
        several[np.arange(16), rng.integers(0, many, 16)] = 0
        signs.append(several[several.any(axis=1)])
        rows = np.concatenate(signs)
        edges = np.arange(LEVELS + 1, dtype=object) * modulus // LEVELS
        pmf = np.diff(edges).astype(float) / modulus
        found = np.zeros((len(rows), self.labels, LEVELS), np.int64)
        for frames in self.frames("literal", users, range(_QUICK)):
            for block in self.messages(frames):
                added = np.einsum("sm,ulm->slu", rows, block.symbols.astype(np.int64)) % modulus
                places = np.searchsorted(edges[1:].astype(np.int64), added, side="right")
                for place in range(LEVELS):
                    found[..., place] += (places == place).sum(axis=-1)
        size = users * _QUICK
        judge(
            LEVELS * found.astype(float),
            np.broadcast_to(LEVELS * size * pmf, found.shape),
            np.broadcast_to(LEVELS**2 * size * pmf * (1 - pmf), found.shape),
            self.alarm,
            "combination of messages, label, part of their range",
        )

    def rounds(self) -> None:
        """Neighbouring rounds are independent."""
        counts = self.counts("counts", {FIRST: range(_ROUNDS)})
        self.law(self.users).check_rounds(counts, self.alarm)

    def tallies(self, way: Way) -> None:
        """Sums of blocks, as the shard sends them."""
        blocks = -(-self.users // _BLOCK)
        sizes = np.diff([*range(0, self.users, _BLOCK), self.users])
        rounds = _ROUNDS
        seen = np.array(
            [
                [np.frombuffer(f.payload, "<i8") for f in frames]
                for frames in self.frames("aggregate", self.users, range(rounds), way)
            ]
        )
        sums, means, variances = [], [], []
        laws: dict[tuple[int, int, int], Floats] = {}
        for block, size in enumerate(sizes.tolist()):
            mine = self.types[block * _BLOCK :][:size]
            for label in range(self.labels):
                if size * len(self.pmfs[0][label]) > _LARGEST:
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
        looked = [j for j in range(self.labels) if self.users * len(self.pmfs[0][j]) <= _LARGEST]
        for label in looked[:8]:
            law = self._sum_law(self.types, label)
            index = self.randomizer.count_index(seen[:, label], self.users)
            check_pmf(index, np.maximum(law, 1e-300), false_alarm=self.alarm / 8)

    def often(self) -> None:
        """Reports on one datum that is not rounded: a share of noise alone, in great number.

        A share is 0 mostly where many users make the noise together: few rounds do not show its
        size.
        """
        many = int(min(_OFTEN, _COUNTS / self.labels))
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
        users = min(self.literal, 4 * _BLOCK)
        data = self.shaped(self.inside[self.types[:users]])
        found = [
            run(
                OneRound(users, self.protocol.spec, 1.0),
                data,
                fidelity="literal",
                seed=self.entropy,
                block_size=_BLOCK,
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
            public = self._round(Cohort.of(0, 2 * half)).broadcast()
            deployment = self._deployment("literal")
            mixing = Mixing(self.shuffler, deployment, self.randomizer, public, half)
            mixing.check(self.repeats // 2, self.alarm)
