"""The implementation under audit, with everything needed to run it on data whose law is known."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.scores import JointLaw, judge, scores, summed
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution.engine import run
from shuffle_sim.protocol.base import Datum, Protocol, RoundSpec
from shuffle_sim.roles import Deployment, Shuffler, UserShard, count_type
from shuffle_sim.sampling.kernels import KERNELS
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Alphabet, Messages

LAW = "worst_pair", "count_pmf", "count_index"
"""What a randomizer must say of itself for its law to be known."""
_FEW = 200  # users of a randomizer of which no law is known
_ROUNDS = 250  # in which every user is looked at
_BLOCK = 96
_BITS = 5e7  # messages of all rounds at literal fidelity
_COUNTS = 5e6  # counts of all rounds
_ASKED = 20_000  # users whose noise is drawn at once
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
    """Users of twelve types, four of which hold data outside the domain, through the real roles."""

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
        """Rows of each type as users hold them, and as they should be admitted."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        turned = np.random.default_rng([self.entropy, 3]).normal(size=len(first))
        between = [first + share * (second - first) for share in np.linspace(0.03, 0.97, 6)]
        wild = [
            middle + 1e3 * (second - middle),
            middle + 50 * radius * turned / np.linalg.norm(turned),
            np.where(np.arange(len(first)) == 0, np.inf, middle),
            np.where(np.arange(len(first)) == len(first) - 1, np.nan, second),
        ]
        held = np.array([first, second, *between, *wild])
        finite = np.where(np.isfinite(held).all(axis=1)[:, None], held, 0.0)
        length = np.maximum(np.linalg.norm(finite - middle, axis=1), 1e-300)
        factor = np.minimum(1.0, radius / length)[:, None]
        return held, middle + factor * (finite - middle)

    def data(self, users: int) -> Floats:
        """The rows of so many users, in the shape the randomizer takes."""
        held = self.rows[self.types[:users]]
        return held if held.shape[1] > 1 else held[:, 0]

    def checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """All checks of what is sent, by name; where no law is known, those that need none."""
        if self.known:
            yield from self._of_law()
        yield "the shuffler keeps no order", self.order

    def _of_law(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "data outside the domain are brought into it", self.domain
        yield "every report has the same size, whatever the datum", self.sizes
        yield "each user's report has its exact law (literal)", partial(self.joint, "literal")
        yield "each user's report has its exact law (counts)", partial(self.joint, "counts")
        for kernel in self.kernels():
            name = f"the tally of the users has its exact law (aggregate, {kernel})"
            yield name, partial(self.tallies, kernel)
        yield "the sums over all users have their exact law", self.whole
        if hasattr(self.randomizer, "total_law"):
            yield "the noise of all honest users together has its exact law", self.together
        yield "two rounds over the same data draw independent noise", self.rounds
        if self.shuffler is Shuffler and self.shard is UserShard:
            yield "the view holds what users sent, with any number of shards", self.conserved

    def kernels(self) -> list[str]:
        """Those that are installed."""
        from importlib.util import find_spec

        return list(KERNELS if find_spec("numba") else KERNELS[:1])

    def domain(self) -> None:
        """Whatever a row is, what is admitted lies in the ball whose ends are the worst pair."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        finite = self.rows[np.isfinite(self.rows).all(axis=1)]
        huge = np.array(
            [sign * scale * np.ones_like(first) for sign in (1, -1) for scale in (1e9, 1e200)]
        )
        given = np.concatenate([finite, huge])
        shaped = given if given.shape[1] > 1 else given[:, 0]
        found = dense(self.randomizer.admit(shaped)[0]).reshape(len(given), -1)
        with np.errstate(over="ignore"):
            far = float(np.linalg.norm(found - middle, axis=1).max())
        if not far <= radius * (1 + 1e-9):
            raise LawError(
                f"a value {far / radius:.4g} times the radius from the middle is admitted"
            )

    def frames(
        self, fidelity: str, users: int, rounds: int, kernel: str = "numpy"
    ) -> list[list[Frame]]:
        """The frames of the shard's users for so many rounds."""
        deployment = self._deployment(fidelity, kernel)
        shard = self.shard(deployment, InMemory(self.data(self.users)), deployment.blocks())
        payload = self._round(Cohort.of(0, users)).broadcast()
        contexts = [Context.of_broadcast(bytes(16), index, payload) for index in range(rounds)]
        broadcasts = [Frame(Kind.ROUND, context, 0, 0, payload).tobytes() for context in contexts]
        return [
            [parse(data) for data in split_frames(shard.answer(broadcast)[0])]
            for broadcast in broadcasts
        ]

    def _deployment(self, fidelity: str, kernel: str = "numpy") -> Deployment:
        return Deployment(
            protocol=self.protocol,
            task=bytes(16),
            entropy=self.entropy,
            fidelity=fidelity,
            block_size=_BLOCK,
            kernel=kernel,
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
        for frames in self.frames("literal", self.literal, 3):
            if sum(each.reports for each in self.messages(frames)) != self.literal:
                raise LawError("not every user sent one report")
        rng = np.random.default_rng(self.entropy)
        shape = (1, self.randomizer.report_bytes), self.randomizer.per_label
        for x in self.inside:
            report = self.randomizer.randomize(x if len(x) > 1 else x[0], rng)
            if (report.packed.shape, report.per_label) != shape:
                raise LawError(f"a report of size {report.packed.shape}, {report.per_label}")

    def counts(self, fidelity: str, rounds: int) -> NDArray[np.int64]:
        """Indices of the exact law, (rounds, users, labels)."""
        users = self.literal if fidelity == "literal" else self.users
        edges = self.randomizer.alphabet.edges[:-1]
        seen = np.empty((rounds, users, self.labels), np.int64)
        for index, frames in enumerate(self.frames(fidelity, users, rounds)):
            if fidelity == "literal":
                parts = [
                    np.add.reduceat(each.symbols.sum(axis=-1, dtype=np.int64), edges, axis=1)
                    for each in self.messages(frames)
                ]
            else:
                kind = count_type(self.randomizer)
                parts = [np.frombuffer(f.payload, kind).reshape(-1, self.labels) for f in frames]
            found = np.concatenate(parts)
            if len(found) != users:
                raise LawError(f"{len(found)} reports of {users} users")
            seen[index] = found
        return np.asarray(self.randomizer.count_index(seen, 1))

    def law(self, users: int) -> JointLaw:
        """Of the first users."""
        group = getattr(self.randomizer, "label_group", 1)
        return JointLaw(self.pmfs, self.types[:users], group)

    def joint(self, fidelity: str) -> None:
        """Every user and label, and sums of them."""
        counts = self.counts(fidelity, _ROUNDS)
        rng = np.random.default_rng([self.entropy, 2])
        self.law(counts.shape[1]).check(counts, rng, self.alarm)

    def rounds(self) -> None:
        """Neighbouring rounds are independent."""
        counts = self.counts("counts", _ROUNDS)
        self.law(self.users).check_rounds(counts, self.alarm)

    def tallies(self, kernel: str) -> None:
        """Sums of blocks, as the shard sends them."""
        blocks = -(-self.users // _BLOCK)
        sizes = np.diff([*range(0, self.users, _BLOCK), self.users])
        rounds = _ROUNDS
        seen = np.array(
            [
                [np.frombuffer(f.payload, "<i8") for f in frames]
                for frames in self.frames("aggregate", self.users, rounds, kernel)
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
        rows = self.inside[self.types]
        rows = rows if rows.shape[1] > 1 else rows[:, 0]
        seen = np.array([self.randomizer.tally(rows, rng) for _ in range(self.repeats)])
        looked = [j for j in range(self.labels) if self.users * len(self.pmfs[0][j]) <= _LARGEST]
        for label in looked[:8]:
            law = self._sum_law(self.types, label)
            index = self.randomizer.count_index(seen[:, label], self.users)
            check_pmf(index, np.maximum(law, 1e-300), false_alarm=self.alarm / 8)

    def together(self) -> None:
        """The noise of the round's users, also where only few are looked at one by one."""
        rng = np.random.default_rng([self.entropy, 4])
        first = self.inside[0] if len(self.inside[0]) > 1 else self.inside[0, :1].ravel()
        rows = np.repeat(first[None] if len(first) > 1 else first, self.asked, axis=0)
        seen = np.array([self.randomizer.tally(rows, rng)[0] for _ in range(self.repeats)])
        index, law = self.randomizer.total_law(seen, self.asked)
        check_pmf(index, law, false_alarm=self.alarm)

    def conserved(self) -> None:
        """The view's sums are those of the users, however the shuffler is split."""
        users = min(self.literal, 4 * _BLOCK)
        values = self.inside[self.types[:users]]
        data = values if values.shape[1] > 1 else values[:, 0]
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
        alphabet, per_label = self.randomizer.alphabet, self.randomizer.per_label
        half = min(8, self.users) // 2
        if half == 0:
            return
        symbols = np.zeros((2 * half, alphabet.width, per_label), np.int64)
        symbols[:half] = alphabet.symbols - 1
        payload = Messages.from_symbols(alphabet, symbols).tobytes()
        public = self._round(Cohort.of(0, 2 * half)).broadcast()
        shuffler = self.shuffler(self._deployment("literal"))
        each = int(alphabet.edges[1]) * per_label
        seen, size = [], 2 * half * each
        end = 8 + (size * alphabet.symbol_bits + 7) // 8
        largest = 2 * half * self.randomizer.largest_sums
        for index in range(self.repeats):
            context = Context.of_broadcast(bytes(16), index, public)
            batch = Frame(Kind.REPORTS, context, 0, 2 * half, payload).tobytes()
            view, _ = shuffler.shuffle(Frame(Kind.ROUND, context, 0, 0, public).tobytes(), [batch])
            row = Messages.from_bytes(
                Alphabet(1, alphabet.symbols), size, parse(view).payload[8:end], 1
            ).symbols
            if int(row.sum(dtype=object)) * 2 != largest[0]:
                raise LawError("the view does not hold the messages that were sent")
            seen.append(int(np.count_nonzero(row[0, 0, : half * each])))
        places = np.arange(half * each + 1)
        law = scipy.stats.hypergeom.pmf(places, size, half * each, half * each)
        check_pmf(seen, law, false_alarm=self.alarm)
