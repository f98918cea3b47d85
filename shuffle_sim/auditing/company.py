"""Users in other company: alone in a block, asked in parts, beside those who drop out; asked twice.

What a user sends has one law, whoever else is asked with it. And a round is answered once, released
once, and by enough of them; roles together in a station do what they do apart.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.bench import FIRST, BenchRound
from shuffle_sim.auditing.conformance import LawError, naming
from shuffle_sim.auditing.drawing import Draws
from shuffle_sim.auditing.joint import JointLaw
from shuffle_sim.auditing.scores import judge, scored, stacked, summed
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import RoundAbortedError
from shuffle_sim.protocol.adversary import Adversary, Users
from shuffle_sim.roles import Deployment, Shuffler, UserShard
from shuffle_sim.roles.station import Station
from shuffle_sim.wire.frames import Context, Frame, Kind, split_frames

_USERS, _ROUNDS, _BLOCK = 24, 40, 8
_RANGES = (1, 6), (7, 8), (10, 22)
"""Users of a round that asks parts of blocks: their blocks begin, end or are whole in it."""


class EveryThird(Adversary):
    """Every third user stays silent."""

    silent = True

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        third: Users = users[users % 3 == 1]
        return third


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
        """Each has its law: one user in a block, parts of blocks, and where others drop out."""
        asked = list(self._occasions())
        fidelities = [*self.fidelities, *["aggregate"] * (self.randomizer.view == "sums")]
        for what, deployment, cohort, kept in asked:
            for fidelity in fidelities:
                alarm = self.alarm / len(asked) / len(fidelities)
                frames = self._frames(replace(deployment, fidelity=fidelity), cohort)
                with naming(f"{what}, {fidelity}"):
                    if fidelity == "aggregate":
                        self._summed(frames, kept, deployment.block_size, alarm)
                    else:
                        self._each(fidelity, frames, kept, alarm)

    def _occasions(self) -> Iterator[tuple[str, Deployment, Cohort, NDArray[np.int64]]]:
        """By name: the deployment, who is asked, and who answers."""
        users = self.accompanied
        one, several = (self._of(users, size) for size in (1, _BLOCK))
        every, all_of_them = np.arange(users), Cohort.of(0, users)
        yield "one user in a block", one, all_of_them, every
        ranges = [(low, min(high, users)) for low, high in _RANGES if low < users]
        parts = np.concatenate([np.arange(*each) for each in ranges])
        yield "parts of blocks", several, Cohort(tuple(ranges)), parts
        stay = every[every % 3 != 1]
        left = replace(several, adversary=EveryThird())
        yield "others drop out", left, all_of_them, stay

    def _of(self, users: int, size: int) -> Deployment:
        deployment = self.deployment("literal", FIRST, size)
        return replace(deployment, protocol=BenchRound(users, self.protocol.spec, 1.0))

    def _rows(self) -> InMemory:
        return InMemory(self.data(self.accompanied))

    def _frames(self, deployment: Deployment, cohort: Cohort) -> list[list[Frame]]:
        shard = self.shard(deployment, self._rows(), deployment.blocks())
        return self.answered(shard, self.round(cohort), range(_ROUNDS))

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
        first, later = (_broadcast(asked.broadcast(), index) for index in (0, 1))
        other = _broadcast(replace(asked, minimum=1).broadcast(), 1)
        shard = self.shard(deployment, self._rows(), deployment.blocks())
        batch = shard.answer(first)[0]
        # Rule 3 of docs/design.md: the same bytes again tell nothing new.
        if shard.answer(first)[0] != batch:
            raise LawError("the same broadcast is answered by other reports: a second release")
        shard.answer(later)
        for again, what in ((first, "a round that is over"), (other, "a round of other users")):
            _refused(lambda again=again: shard.answer(again), f"{what} is answered")
        shuffler = self.shuffler(deployment.of_shuffler, 0)
        # A block less than the minimum, which is everybody.
        short = b"".join(bytes(data) for data in [*split_frames(batch)][:-1])
        _refused(lambda: shuffler.shuffle(first, [short]), "fewer reports than agreed are released")
        shuffler = self.shuffler(deployment.of_shuffler, 0)
        _, record = shuffler.shuffle(first, [batch, batch])
        if record.accepted != users:
            raise LawError(f"{record.accepted} reports of {users} users are accepted")
        _refused(lambda: shuffler.shuffle(first, [batch]), "a round is released twice")

    def stations(self) -> None:
        """Roles that are together in a worker send the bytes that they send apart."""
        users = self.accompanied
        for fidelity, shards in ((each, many) for each in self.fidelities for many in (1, 2)):
            deployment = replace(self._of(users, _BLOCK), fidelity=fidelity, shuffler_shards=shards)
            first = _broadcast(self.round(Cohort.of(0, users)).broadcast(), 0)
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


def _broadcast(payload: bytes, index: int) -> bytes:
    context = Context.of_broadcast(bytes(16), index, payload)
    return Frame(Kind.ROUND, context, 0, 0, payload).tobytes()


def _refused(act: object, what: str) -> None:
    assert callable(act)
    with suppress(RoundAbortedError):
        act()
        raise LawError(what)
