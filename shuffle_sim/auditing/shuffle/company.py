"""Users in other company: alone in a block, asked in parts, beside those who drop out; asked twice.

What a user sends has one law, whoever else is asked with it. And a round is answered once, released
once, and by enough of them; roles together in a station do what they do apart.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.neighbours import RereadRows
from shuffle_sim.auditing.laws.joint import JointLaw
from shuffle_sim.auditing.laws.scores import judge, scored, stacked, summed
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.auditing.shuffle.bench import FIRST, BenchRound, Way, round_frame
from shuffle_sim.auditing.shuffle.drawing import Draws
from shuffle_sim.auditing.shuffle.reading import check_opened, check_read
from shuffle_sim.auditing.shuffle.sources import Noted
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import RoundAbortedError
from shuffle_sim.protocol.adversary import Adversary, Users
from shuffle_sim.roles import Deployment, Shuffler, UserShard, read_reports
from shuffle_sim.roles.station import Station
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.frames import Frame, Kind, split_frames
from shuffle_sim.wire.messages import Messages

_USERS, _ROUNDS, _BLOCK = 24, 40, 8
_RANGES = (1, 6), (7, 8), (10, 22)
"""Users of a round that asks parts of blocks: their blocks begin, end or are whole in it."""
_FEW, _ODD_MANY = ((0, 2), (10, 13), (20, 24)), ((0, 7), (12, 21))
"""The same, of 2 to 4 users in blocks of 10, and of 7 and 9 in blocks of 12."""


class Corrupted(Adversary):
    """One user of so many is corrupted, or all others are; silent, or as honest ones send."""

    def __init__(self, every: int, *, silent: bool, others: bool = False) -> None:
        """Of users with the number 1 modulo `every`."""
        self._every, self.silent, self._others = every, silent, others

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        chosen: Users = users[(users % self._every == 1) != self._others]
        return chosen


@dataclass(frozen=True)
class Occasion:
    """Who is asked beside whom.

    Attributes:
        name: of it.
        deployment: with blocks of a size, and perhaps an adversary.
        cohort: who is asked.
        kept: who answers honestly.
        before: who is asked in a round before each; None: nobody.
    """

    name: str
    deployment: Deployment
    cohort: Cohort
    kept: NDArray[np.int64]
    before: Cohort | None = None


class Company(Draws):
    """The checks of users in other company."""

    @property
    def shipped_roles(self) -> bool:
        """Whether the roles are those of runs, and there is a law of what is sent."""
        return self.known and self.shuffler is Shuffler and self.shard is UserShard

    @property
    def accompanied(self) -> int:
        """So many users are looked at."""
        return min(_USERS, self.literal)

    def company(self) -> None:
        """Each has its law: few in a block, after others, and beside those who are not honest."""
        asked = list(self._occasions())
        for each in asked:
            if each.deployment.adversary is not None:
                with naming(each.name):
                    self._streams_apart(each)
        fidelities = [*self.fidelities, *["aggregate"] * (self.randomizer.view == "sums")]
        for each in asked:
            for fidelity in fidelities:
                alarm = self.alarm / len(asked) / len(fidelities)
                frames = self._frames(each, fidelity)
                with naming(f"{each.name}, {fidelity}"):
                    if fidelity == "aggregate":
                        self._summed(frames, each.kept, each.deployment.block_size, alarm)
                    else:
                        self._each(fidelity, frames, each.kept, alarm)

    def _occasions(self) -> Iterator[Occasion]:
        users = self.accompanied
        one, several = (self._of(users, size) for size in (1, _BLOCK))
        every, all_of_them = np.arange(users), Cohort.of(0, users)
        yield Occasion("one user in a block", one, all_of_them, every)
        for size, spans, before in (
            (_BLOCK, _RANGES, None),
            (10, _FEW, None),
            (12, _ODD_MANY, None),
            (12, _ODD_MANY, all_of_them),
        ):
            ranges = [(low, min(high, users)) for low, high in spans if low < users]
            parts, kept = Cohort(tuple(ranges)), np.concatenate([np.arange(*x) for x in ranges])
            name = f"parts of blocks of {size}" + (", after others" if before else "")
            way = FIRST if before else self.ways()[-2]  # compiled, where it can be
            yield Occasion(name, self._of(users, size, way), parts, kept, before)
        for name, adversary, stay in (
            ("others drop out", Corrupted(3, silent=True), every % 3 != 1),
            ("most drop out", Corrupted(_BLOCK, silent=True, others=True), every % _BLOCK == 1),
            ("others are corrupted", Corrupted(3, silent=False), every % 3 != 1),
        ):
            if stay.any():
                left = replace(several, adversary=adversary)
                yield Occasion(name, left, all_of_them, every[stay])

    def _streams_apart(self, asked: Occasion) -> None:
        """Honest users of a block draw from theirs, once: corrupted ones never see it."""
        deployment = Noted.of(asked.deployment)
        shard = self.shard(deployment, self._rows(), deployment.blocks())
        rounds = range(1, 3)
        self.answered(shard, self.round(asked.cohort), rounds)
        again, blocks = set(deployment.again), deployment.blocks()
        users = [key for key in deployment.asked if key[1] is Role.USERS]
        if len({*users}) < len(rounds) * len(np.unique(asked.kept // deployment.block_size)):
            raise LawError("honest users beside others draw from streams that are not theirs")
        wrong = [key for key in users if key in again or key[2] not in blocks]
        if wrong:
            index, _, place = wrong[0]
            raise LawError(f"stream {place} of users in round {index} is asked for by others, too")

    def _of(self, users: int, size: int, way: Way = FIRST) -> Deployment:
        deployment = self.deployment("literal", way, size)
        return replace(deployment, protocol=BenchRound(users, self.protocol.spec, 1.0))

    def _rows(self, *, row_by_row: bool = False) -> InMemory:
        """As arrays are, or as rows of files are: compiled kernels take their lengths at once."""
        data = self.data(self.accompanied)
        return InMemory(np.ascontiguousarray(data) if row_by_row else data)

    def _frames(self, asked: Occasion, fidelity: str) -> list[list[Frame]]:
        """What honest users send."""
        deployment = replace(asked.deployment, fidelity=fidelity)
        # Rows of files are read anew, in pieces that a cohort may begin inside of.
        anew = len(asked.cohort.ranges) > 1 and asked.before is None
        rows = RereadRows(self._rows(row_by_row=True)) if anew else self._rows()
        shard, found = self.shard(deployment, rows, deployment.blocks()), []
        for index in range(_ROUNDS):
            if asked.before is not None:
                self.answered(shard, self.round(asked.before), [2 * index])
            found += self.answered(shard, self.round(asked.cohort), [2 * index + 1])
        return [[each for each in frames if each.kind is not Kind.PACKET] for frames in found]

    def _each(
        self, fidelity: str, frames: list[list[Frame]], kept: NDArray[np.int64], alarm: float
    ) -> None:
        seen = [np.concatenate(self.sums(fidelity, each)) for each in frames]
        if any(len(each) != len(kept) for each in seen):
            raise LawError(f"{len(seen[0])} reports of {len(kept)} users")
        law = JointLaw(self.pmfs, self.types[kept], self.group)
        law.check_each(self.index(np.stack(seen).astype(np.int64), 1), alarm)

    def _summed(
        self, frames: list[list[Frame]], kept: NDArray[np.int64], size: int, alarm: float
    ) -> None:
        """Sums of the users of each block."""
        sums = np.array([[self.sums("aggregate", [one])[0][0] for one in each] for each in frames])
        blocks = [kept[kept // size == block] for block in np.unique(kept // size)]
        if sums.shape[1] != len(blocks):
            raise LawError(f"{sums.shape[1]} sums of {len(blocks)} blocks")
        tests = []
        for place, users in enumerate(blocks):
            for label in range(self.labels):
                law = self.sum_law(self.types[users], label)
                tests.append(scored(self.index(sums[:, place, label], len(users)), law))
        judge(*stacked(tests), alarm, "block and label, score")

    def sum_law(self, types: NDArray[np.int64], label: int) -> Floats:
        """The law of a sum over users of these types."""
        kinds, many = np.unique(types, return_counts=True)
        law = summed(
            [(self.pmfs[kind][label], int(count)) for kind, count in zip(kinds, many, strict=True)]
        )
        return self.wrapped(law)

    def wrapped(self, law: Floats) -> Floats:
        """The law of a sum as it is sent."""
        modulus = getattr(self.randomizer, "modulus", len(law))
        if len(law) <= modulus:
            return law
        # Sums that are reduced modulo a number meet those that differ by it.
        return np.asarray(np.pad(law, (0, -len(law) % modulus)).reshape(-1, modulus).sum(axis=0))

    def once(self) -> None:
        """A round is answered and released once: again it is the same bytes, or refused."""
        users = self.accompanied
        deployment = self._of(users, _BLOCK)
        asked = replace(self.round(Cohort.of(0, users)), minimum=users)
        first, later = (round_frame(asked.broadcast(), index) for index in (0, 1))
        other = round_frame(replace(asked, minimum=1).broadcast(), 1)
        shard = self.shard(deployment, self._rows(), deployment.blocks())
        batch = shard.answer(first)[0]
        # Rule 3 of docs/design.md: the same bytes again tell nothing new.
        if shard.answer(first)[0] != batch:
            raise LawError("the same broadcast is answered by other reports: a second release")
        back = self.shard(deployment, self._rows(), deployment.blocks(), (first,))
        if back.answer(first)[0] != batch:
            raise LawError("a role that was put back answers with other noise")
        shard.answer(later)
        for again, what in ((first, "a round that is over"), (other, "a round of other users")):
            _refused(lambda again=again: shard.answer(again), f"{what} is answered")
        alone = self._of(users, 1)
        every = self.shard(alone, self._rows(), alone.blocks()).answer(first)[0]
        shuffler = self.shuffler(alone.of_shuffler, 0)
        # A user less than the minimum, which is everybody.
        short = b"".join(bytes(data) for data in [*split_frames(every)][:-1])
        _refused(lambda: shuffler.shuffle(first, [short]), "fewer reports than agreed are released")
        shuffler = self.shuffler(deployment.of_shuffler, 0)
        _, record = shuffler.shuffle(first, [batch, batch])
        if record.accepted != users:
            raise LawError(f"{record.accepted} reports of {users} users are accepted")
        _refused(lambda: shuffler.shuffle(first, [batch]), "a round is released twice")
        blocks = [bytes(data) for data in split_frames(batch)]
        orders = blocks, blocks[::-1]
        views = {self.shuffler(deployment.of_shuffler, 0).shuffle(first, x)[0] for x in orders}
        if len(views) > 1:
            raise LawError("a view depends on the order in which reports came")

    def read(self) -> None:
        """No bit of a frame, or of a sealed message, is passed over."""
        rng, users = np.random.default_rng([self.entropy, 16]), min(3, self.literal)
        for fidelity in (*self.fidelities, "aggregate"):
            for frame in self.frames(fidelity, users, range(1))[0]:
                check_read(frame, self.randomizer, rng)
                if isinstance(sent := read_reports(frame, self.randomizer), Messages):
                    check_opened(sent, self.randomizer)

    def stations(self) -> None:
        """Roles that are together in a worker send the bytes that they send apart."""
        users = self.accompanied
        sizes = sorted({1, 2, 3, self.shards})
        for fidelity, shards in product(self.fidelities, sizes):
            deployment = replace(self._of(users, _BLOCK), fidelity=fidelity, shuffler_shards=shards)
            first = round_frame(self.round(Cohort.of(0, users)).broadcast(), 0)
            apart = self._apart(deployment, first)
            if self._together(deployment, first) != apart:
                raise LawError(f"{fidelity}, {shards} shard(s): a station sends other bytes")

    def _apart(self, deployment: Deployment, broadcast: bytes) -> list[bytes]:
        shards = deployment.shuffler_shards
        shufflers = [Shuffler(deployment.of_shuffler, shard) for shard in range(shards)]
        sent: list[bytes] = []
        collected = []
        for shard, each in enumerate(shufflers):
            hosted = UserShard(deployment, self._rows(), deployment.blocks()[shard::shards])
            sent.append(hosted.answer(broadcast)[0])
            collected.append(each.collect(broadcast, sent[-1:]))
        for target, each in enumerate(shufflers):
            each.accept(broadcast, [row[target] for row in collected])
        for each in shufflers:
            released = each.release(broadcast, [row[-1] for row in collected])
            sent.append(each.view(broadcast, 0, len(released.chunks))[0])
        return sent

    def _together(self, deployment: Deployment, broadcast: bytes) -> list[bytes]:
        shards = deployment.shuffler_shards
        stations = [Station(deployment, self._rows(), shard) for shard in range(shards)]
        sent: dict[str, list[bytes]] = {"answer": [], "view": []}
        for each in stations:
            each.watch = lambda method, _, value: sent.get(method, []).append(_bytes(value))
        gathered, answers, views = [], [], []
        for each in stations:
            gathered.append(each.gather(broadcast))
            answers.append(b"".join(sent["answer"]))  # of some blocks at a time
            sent["answer"] = []
        for target, each in enumerate(stations):
            frames = [row[target] for row in gathered if row[target]]
            sent["view"] = []
            each.deliver(broadcast, shards, [*(row[-1] for row in gathered), *frames])
            views.append(b"".join(sent["view"]))
        return [*answers, *views]


def _bytes(value: object) -> bytes:
    first = value[0] if isinstance(value, tuple) else value
    return bytes(first) if isinstance(first, bytes | memoryview) else b""


def _refused(act: object, what: str) -> None:
    assert callable(act)
    with suppress(RoundAbortedError):
        act()
        raise LawError(what)
