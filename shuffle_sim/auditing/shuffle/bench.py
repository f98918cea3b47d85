"""The implementation under audit, with everything needed to run it on data whose law is known."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.auditing.laws.joint import JointLaw
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution.options import Execution
from shuffle_sim.protocol.base import Datum, Protocol, Query, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import LARGEST_REPORT, Task
from shuffle_sim.roles import Deployment, Shuffler, UserShard, count_type
from shuffle_sim.sampling.kernels import KERNELS
from shuffle_sim.sampling.randomness import GENERATORS
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

LAW = "worst_pair", "count_pmf", "count_index"
"""What a randomizer must say of itself for its law to be known."""
_FEW = 200  # users of a randomizer of which no law is known
ROUNDS = 250  # in which every user is looked at
QUICK = 50  # of them that a cryptographic generator draws
_ODD = np.nan, -np.inf
_OTHERS = 4  # coordinates, at most, that rows are the ends of
BLOCK, _UNEVEN = 96, 67  # users of a block; 67 leaves 3 of any 4, 8, 16, 32 or 64
_BITS = 5e7  # messages of all rounds at literal fidelity
NEAR = 1e-3, 1e-6  # from the ends of the range
COUNTS = 5e6  # counts of all rounds
_ASKED = 20_000  # users whose noise is drawn at once
_FACTORS = 1.0, -1.0, 0.1, 7.0, -3.0  # of rows that are given as multiples
Way = tuple[str, str]
"""How noise is drawn: a kernel, and a generator."""
FIRST: Way = (KERNELS[0], GENERATORS[0])
Frames = list[list[Frame]]
"""By round and block."""
LARGEST = 1 << 20  # cells of the law of a sum over all users


def of_categories(randomizer: Randomizer) -> bool:
    """Whether users hold categories, or send words; else numbers and vectors, of which sums are."""
    return randomizer.view != "sums" or hasattr(randomizer, "bins")


@dataclass(frozen=True)
class Multiples(Query):
    """The vectors of all columns but the last, times the last, kept apart as gradients are."""

    def __call__(self, rows: Floats) -> Values:
        return Scaled(rows[:, :-1], rows[:, -1])


def round_frame(payload: bytes, index: int, task: bytes = bytes(16)) -> bytes:
    """The frame that asks users for a round, by its broadcast's payload."""
    context = Context.of_broadcast(task, index, payload)
    return Frame(Kind.ROUND, context, 0, 0, payload).tobytes()


def far(index: int) -> int:
    """A round in place of the first ones: of every magnitude, so that what comes late shows."""
    return index + (1 << min(index // 16, 20)) - 1


class _Anything(Task):
    """A task that every round is of: roles have one in runs, so they have one here."""

    def demand(self, tree: Any, classes: Mapping[str, type]) -> None:
        """Refuse nothing."""

    def check(self, *asked: Any) -> None:
        """Refuse nothing."""


ANYTHING = _Anything(
    rounds=2**32,
    participation=2**32,
    cohort=1,
    minimum=1,
    report_bits=LARGEST_REPORT,
    size=2**40,
    values=2**40,
    forms=frozenset(),
)


class BenchRound(Protocol[int]):
    """One round over all users by a given randomizer, on the data themselves."""

    def __init__(self, users: int, spec: RoundSpec, honest_fraction: float) -> None:
        """Like the round of `spec`, with another cohort."""
        self._users, self.spec, self.honest_fraction = users, spec, honest_fraction
        self.query = Datum()

    users = property(lambda self: self._users)
    delta = property(lambda self: 1e-6)
    vocabulary = property(lambda self: (Datum, Multiples, type(self.spec.randomizer)))

    def check(self, rows: NDArray[Any]) -> None:
        """Everything may be sent: also what is not allowed."""

    def init(self) -> int:
        return 0

    def plan(self, state: int) -> RoundSpec | None:
        if state:
            return None
        event = self.spec.randomizer.event(self._users, self.query) or self.spec.event
        cohort = Cohort.of(0, self._users)
        return RoundSpec(cohort, self.query, self.spec.randomizer, event, lambda tally: tally)

    def update(self, state: int, estimate: Any) -> int:
        self.tally = estimate
        return 1

    def result(self, state: int) -> Any:
        return self.tally.sums


class Bench:
    """Users of some twenty types, many with data outside the domain, through the real roles."""

    randomizer: Any
    needs: tuple[str, ...] = LAW  # of the randomizer's words on its law
    thorough = False
    shards: int = 1  # of the shuffler, in the run
    block_size: int | None = None  # of the run; None: the default
    looked = ROUNDS  # rounds in which every user is looked at
    scales = True  # whether multiples of rows are data, too

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
        self.spec, self.randomizer = spec, spec.randomizer
        self.entropy, self.repeats, self.alarm = entropy, repeats, alarm
        self.shard, self.shuffler = shard, shuffler
        self.labels = self.randomizer.alphabet.labels
        self.users = min(spec.cohort.size, _FEW)
        self.protocol = BenchRound(self.users, spec, protocol.honest_fraction)
        self.known = all(hasattr(self.randomizer, name) for name in self.needs)
        if self.known:
            self._know(protocol, spec)

    def _know(self, protocol: Protocol[Any], spec: RoundSpec) -> None:
        """Rows whose law can be said, and that law."""
        self.rows, self.inside = self._values()
        self.pmfs = [[self.pmf(x, j) for j in range(self.labels)] for x in self.inside]
        widest = max(len(pmf) for each in self.pmfs for pmf in each)
        room = min(COUNTS / ROUNDS / self.labels, LARGEST / widest)
        self.users = max(2, min(spec.cohort.size, int(room)))
        self.asked = min(spec.cohort.size, _ASKED)
        self.literal = max(
            2, min(self.users, int(_BITS / ROUNDS / self.randomizer.report_messages))
        )
        self.protocol = BenchRound(self.users, spec, protocol.honest_fraction)
        # Types in turn: every block has all of them, and neighbours never the same.
        self.types = np.arange(self.users) % len(self.inside)

    @property
    def lawless(self) -> str:
        """Why its law is not known."""
        return f"its randomizer has not {', '.join(self.needs)}: its law is not known"

    @property
    def group(self) -> int:
        """So many labels in a row depend on each other."""
        return int(getattr(self.randomizer, "label_group", 1))

    def pmf(self, x: Floats, label: int) -> Floats:
        """The law of what a user sends under a label."""
        return np.asarray(self.randomizer.count_pmf(x, label), np.float64)

    def index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        """Outcomes of that law, or of sums over reports."""
        return np.asarray(self.randomizer.count_index(sums, reports), np.int64)

    def asked_for(
        self, execution: Execution, options: Mapping[str, Any], *, thorough: bool
    ) -> None:
        """Look at what a run with these options draws."""
        self.thorough, self.block_size = thorough, execution.block_size
        self.shards = options.get("shuffler_shards") or 1
        if execution.placement == "together":
            self.shards = options.get("workers", 1)

    def _values(self) -> tuple[Floats, Floats]:
        """Rows of each type as users hold them, and as they should be admitted.

        Along the worst pair, along other coordinates, and in a random direction; also far outside,
        a little outside, and not finite.
        """
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        middle, radius = (first + second) / 2, float(np.linalg.norm(second - first)) / 2
        pair, turned, *others = self.directions()
        at = [(pair, share) for share in (-1.0, 1.0, 1e3, -3.0, 1.5)]
        at += [(pair, sign * (1 - each)) for each in NEAR for sign in (1.0, -1.0)]
        at += [(turned, 50.0), (turned, -1.0), (turned, 0.6)]
        if others:
            at += [(turned, 1.0), (others[-1], 0.4)]
        at += [(way, sign) for way in others for sign in (1.0, -1.0)]
        at += [(pair, share) for share in np.linspace(-0.94, 0.94, 6).tolist()]
        wild = [np.where(np.arange(len(first)) == 0, np.inf, middle)]
        wild += [np.where(np.arange(len(first)) == len(first) - 1, odd, second) for odd in _ODD]
        wild += [np.full(len(first), -0.0)]  # it has a sign, and the law of 0
        held = np.array([*(middle + share * radius * way for way, share in at), *wild])
        held[0], held[1] = first, second  # not off by one rounding
        finite = np.where(np.isfinite(held).all(axis=1)[:, None], held, 0.0)
        length = np.maximum(np.linalg.norm(finite - middle, axis=1), 1e-300)
        factor = np.minimum(1.0, radius / length)[:, None]
        return held, middle + factor * (finite - middle)

    def directions(self) -> list[Floats]:
        """Of length 1: of the worst pair, a random one, of all and of some other coordinates."""
        first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
        rng, d = np.random.default_rng([self.entropy, 3]), len(first)
        chosen = 1 + rng.permutation(d - 1)[:_OTHERS]
        # And of numbers that are all equal, which code might treat as one.
        ways = [second - first, rng.normal(size=d), *np.ones((int(d > 1), d)), *np.eye(d)[chosen]]
        return [way / np.linalg.norm(way) for way in ways]

    def data(self, users: int) -> Floats:
        """The rows of so many users, in the shape the randomizer takes."""
        return self.shaped(self.rows[self.types[:users]])

    def shaped(self, rows: Floats) -> Floats:
        """Rows (users, d) as the randomizer takes them: (users,) where they are numbers."""
        numbers = rows.shape[1] == 1 and getattr(self.randomizer, "norm_bound", None) is None
        return rows[:, 0] if numbers else rows

    def ways(self) -> list[Way]:
        """How noise may be drawn here: with each kernel that is installed, and each generator."""
        quick, strong = GENERATORS
        kernels = KERNELS if find_spec("numba") else KERNELS[:1]
        return [*((kernel, quick) for kernel in kernels), (KERNELS[0], strong)]

    def frames(
        self,
        fidelity: str,
        users: int,
        rounds: Iterable[int],
        way: Way = FIRST,
        *,
        query: Query | None = None,
        size: int = BLOCK,
    ) -> Frames:
        """The frames of the shard's users for these rounds; with a query, of what it asks."""
        deployment, query = self.deployment(fidelity, way, size), query or Datum()
        rows = self.data(self.users)
        if isinstance(query, Multiples):
            factors = np.random.default_rng([self.entropy, 7]).choice(_FACTORS, len(rows))
            apart = rows.reshape(len(rows), -1) / factors[:, None]
            rows = np.column_stack([apart, factors])
        shard = self.shard(deployment, InMemory(rows), deployment.blocks())
        return self.answered(shard, self.round(Cohort.of(0, users), query), map(far, rounds))

    def answered(self, shard: UserShard, asked: RoundSpec, rounds: Iterable[int]) -> Frames:
        """The frames of a shard's users for these rounds."""
        payload = asked.broadcast()
        return [
            [parse(data) for data in split_frames(shard.answer(round_frame(payload, index))[0])]
            for index in rounds
        ]

    def deployment(
        self, fidelity: str, way: Way = FIRST, size: int = BLOCK, flipped: int = 0
    ) -> Deployment:
        """Of the users, with noise drawn in a way, in blocks; with bits of the entropy turned."""
        return Deployment(
            protocol=self.protocol,
            task=bytes(16),
            entropy=self.entropy ^ flipped,
            fidelity=fidelity,
            block_size=size,
            kernel=way[0],
            generator=way[1],
            agreed=ANYTHING,
        )

    def round(self, cohort: Cohort, query: Query | None = None) -> RoundSpec:
        """That asks a cohort for its data themselves, or for what a query makes of them."""
        spec = self.protocol.spec
        return RoundSpec(cohort, query or Datum(), self.randomizer, spec.event, lambda _: None)

    def messages(self, frames: list[Frame]) -> list[Messages]:
        """The reports of one round by block, as the shuffler would read them."""
        alphabet, per_label = self.randomizer.alphabet, self.randomizer.per_label
        return [Messages.from_bytes(alphabet, per_label, f.payload, f.reports) for f in frames]

    def counts(self, fidelity: str, ways: dict[Way, range]) -> NDArray[np.int64]:
        """Indices of the exact law, (rounds, users, labels), of rounds drawn in several ways."""
        users = self.literal if fidelity == "literal" else self.users
        seen = np.empty((sum(map(len, ways.values())), users, self.labels), np.int64)
        for place, (way, rounds) in enumerate(ways.items()):
            query = Multiples() if place % 2 and self.scales else Datum()
            # Whole blocks and uneven ones: a kernel's last piece is drawn by other code.
            drawn: Frames = []
            for each, size in ((rounds[::2], BLOCK), (rounds[1::2], _UNEVEN)):
                drawn += self.frames(fidelity, users, each, way, query=query, size=size)
            for index, frames in zip([*rounds[::2], *rounds[1::2]], drawn, strict=True):
                found = np.concatenate(self.sums(fidelity, frames))
                if len(found) != users:
                    raise LawError(f"{len(found)} reports of {users} users")
                seen[index] = found
        return self.index(seen, 1)

    def sums(self, fidelity: str, frames: list[Frame]) -> list[NDArray[np.int64]]:
        """Sums of symbols by block, (users, labels), as the shuffler would read them."""
        if fidelity == "literal":
            return [self.by_label(each) for each in self.messages(frames)]
        kind = "<i8" if fidelity == "aggregate" else count_type(self.randomizer)
        return [np.frombuffer(f.payload, kind).reshape(-1, self.labels) for f in frames]

    def by_label(self, messages: Messages) -> NDArray[np.int64]:
        """Sums of symbols, (reports, labels)."""
        edges = self.randomizer.alphabet.edges[:-1]
        rows = messages.symbols.sum(axis=-1, dtype=np.int64)
        return np.asarray(np.add.reduceat(rows, edges, axis=1))

    def law(self, users: int) -> JointLaw:
        """Of the first users."""
        return JointLaw(self.pmfs, self.types[:users], self.group)
