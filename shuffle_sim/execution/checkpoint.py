"""A run's journal: what was charged and what came of it, on disk, so that a run that was killed can
go on.

Everything random in a run is drawn from its entropy by round, role and index, and the protocol's
state is a function of the tallies so far. So the journal keeps the entropy, every charge and every
tally; going on is replaying them. A charge is on disk before its round draws anything. A round that
was charged and not finished is run again and sends the same bytes.

The file is a list of records, each bound to all before it by SHA-256, and only ever appended to.
Only its last record can be cut short, by a death in the middle of writing it: nothing had been done
on its strength yet, so it is taken off.
"""

import fcntl
import hashlib
import os
import platform
import secrets
import struct
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Population
from shuffle_sim.errors import CheckpointError, FrameError, ParameterError
from shuffle_sim.execution.fingerprint import fingerprint
from shuffle_sim.execution.runtime import Exchange
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.roles import Deployment, ShardRecord, ShuffleRecord, ViewRecord
from shuffle_sim.wire.codec import decode, encode
from shuffle_sim.wire.messages import Tally

FILE = "run.journal"
FORMAT = 4  # also another where a round under way would be drawn in another way
_SIZE = struct.Struct(
    ">II"
)  # length of the record and its complement: a damaged length is not taken for a cut record
_HASH = hashlib.sha256().digest_size
_Record = TypeVar("_Record", ShardRecord, ShuffleRecord, ViewRecord)


class Journal:
    """The journal of a run that keeps nothing; a context manager."""

    def __init__(self, deployment: Deployment) -> None:
        """Take the run as it is."""
        self.deployment = deployment

    def charge(self, broadcast: bytes, cohort: Cohort, event: PrivacyEvent) -> Exchange | None:
        """A round is about to be released: from now on it counts as spent. What came of it, if it
        is over already.
        """
        return None

    def settle(self, exchange: Exchange) -> None:
        """What came of the round that was charged last."""

    def close(self) -> None:
        """Let go of the files."""

    def __enter__(self) -> "Journal":
        """The journal itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, whatever happened."""
        self.close()


class Checkpoint(Journal):
    """The journal in a folder, readable by its owner only: the run's entropy in it undoes all
    privacy.
    """

    def __init__(
        self,
        folder: Path,
        deployment: Deployment,
        population: Population,
        seed: int | None,
        *,
        resume: bool = False,
    ) -> None:
        """Start a journal in the folder or, to resume, read it; `deployment` is then the one that
        was started.

        Raises:
            ParameterError: the folder cannot be used, is used by another process, holds a run that
                is not to be resumed or none to resume; or the journal is damaged or another run's,
                naming what differs.
        """
        self._path = folder / FILE
        self._lock = _locked(folder, create=not resume)
        try:
            if self._path.exists() != resume:
                allowed = (
                    "a folder with a run to resume"
                    if resume
                    else "a folder without a run, or given with --resume"
                )
                raise ParameterError("checkpoint", str(folder), allowed)
            identity = _identity(deployment, population, seed)
            head = (
                FORMAT,
                *identity,
                ("task", deployment.task),
                ("entropy", deployment.entropy.to_bytes(16, "big")),
            )
            self._hash = b""
            if not resume:
                self._create(encode(head))
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_APPEND)
        except BaseException:
            os.close(self._lock)
            raise
        try:
            self._records = deque(self._read())
            super().__init__(self._resumed(deployment, identity))
        except BaseException:
            self.close()
            raise

    def charge(self, broadcast: bytes, cohort: Cohort, event: PrivacyEvent) -> Exchange | None:
        """Write the charge, or compare it with the one that was written.

        Raises:
            ParameterError: another release was charged for this round.
            CheckpointError: the disk does not take it; nothing of the round has been drawn.
        """
        charge = (
            ("broadcast", hashlib.sha256(broadcast).digest()),
            ("cohort", encode(cohort)),
            ("event", encode(event)),
        )
        if not self._records:
            self._append(encode(charge), "the charge of a round; the round was not begun")
            return None
        for (name, charged), (_, asked) in zip(
            self._decoded(self._records.popleft()), charge, strict=True
        ):
            if charged != asked:
                raise ParameterError(
                    name, asked.hex(), f"the one that was charged for the round ({charged.hex()})"
                )
        if not self._records:
            return None
        users, shuffler, tally, found = self._decoded(self._records.popleft())
        return Exchange(
            users=_raised(ShardRecord, users),
            shuffler=_raised(ShuffleRecord, shuffler),
            tally=tally,
            analyzer=_raised(ViewRecord, found),
        )

    def settle(self, exchange: Exchange) -> None:
        """Write the round's records and tally.

        Raises:
            CheckpointError: the disk does not take it; the round stays charged, and resumed it
                gives the same again.
        """
        outcome = (
            _lowered(exchange.users),
            _lowered(exchange.shuffler),
            exchange.tally,
            _lowered(exchange.analyzer),
        )
        self._append(encode(outcome), "the outcome of a round; the round stays charged")

    def close(self) -> None:
        """Close the file and let others use the folder."""
        os.close(self._file)
        os.close(self._lock)

    def _create(self, head: bytes) -> None:
        """The file with its first record, whole or not at all."""
        part = self._path.with_suffix(".part")
        try:
            with suppress(FileNotFoundError):
                part.unlink()
            self._file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                self._append(head, "its beginning; nothing was begun")
            finally:
                os.close(self._file)
            part.rename(self._path)
            os.fsync(self._lock)  # the folder's own entry
        finally:
            part.unlink(missing_ok=True)
        self._hash = b""

    def _append(self, body: bytes, what: str) -> None:
        digest, before = _chained(self._hash, body), os.fstat(self._file).st_size
        record = _SIZE.pack(len(body), len(body) ^ 0xFFFFFFFF) + digest + body
        try:
            while record:
                record = record[os.write(self._file, record) :]
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, before)
            raise CheckpointError(
                f"{self._path} does not take {what}: {error.strerror}; make room, then resume"
            ) from error
        self._hash = digest

    def _read(self) -> Iterator[bytes]:
        """The bodies of all records, checked; a record cut short at the end is taken off the
        file.
        """
        data, position = memoryview(self._path.read_bytes()), 0
        while position < len(data):
            start = position + _SIZE.size + _HASH
            size, complement = (
                _SIZE.unpack_from(data, position)
                if position + _SIZE.size <= len(data)
                else (0, 0xFFFFFFFF)
            )
            if size ^ complement != 0xFFFFFFFF:
                raise self._damaged(f"the length of the record at byte {position}")
            if start + size > len(data):
                os.ftruncate(self._file, position)
                return
            body = bytes(data[start : start + size])
            self._hash = _chained(self._hash, body)
            if self._hash != data[position + _SIZE.size : start]:
                raise self._damaged(f"the record at byte {position}")
            yield body
            position = start + size

    def _resumed(self, deployment: Deployment, identity: tuple[tuple[str, str], ...]) -> Deployment:
        if not self._records:
            raise self._damaged("the beginning")
        form, *stored = self._decoded(self._records.popleft())
        if form != FORMAT:
            raise ParameterError(
                "checkpoint", str(self._path), f"of format {FORMAT}; it is of format {form}"
            )
        *same, (_, task), (_, entropy) = stored
        for (name, theirs), (_, ours) in zip(same, identity, strict=True):
            if theirs != ours:
                raise ParameterError(
                    "checkpoint",
                    str(self._path),
                    f"this run's: its {name} is {theirs}, this run's is {ours}",
                )
        return replace(deployment, task=task, entropy=int.from_bytes(entropy, "big"))

    def _decoded(self, body: bytes) -> Any:
        try:
            return decode(body, (Tally,))
        except FrameError as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> ParameterError:
        return ParameterError(
            "checkpoint",
            str(self._path),
            f"undamaged: {what} is not as it was written; restore the file",
        )


def journal_of(
    folder: str | Path | None,
    resume: bool,
    deployment: Deployment,
    population: Population,
    seed: int | None,
) -> Journal:
    """The run's journal: in the folder, or none.

    Raises:
        ParameterError: as `Checkpoint`, or a run is to be resumed from no folder.
    """
    if folder is not None:
        return Checkpoint(Path(folder), deployment, population, seed, resume=resume)
    if resume:
        raise ParameterError("resume", resume, "used with the folder of a checkpoint")
    return Journal(deployment)


def split_seed(folder: str | Path | None, resume: bool, seed: int | None) -> int | None:
    """The seed by which people are held out before the run: the run's; without one, drawn once and
    kept beside the checkpoint.

    Raises:
        ParameterError: the folder cannot be used, or holds none to resume with.
    """
    if folder is None or seed is not None:
        return seed
    kept = Path(folder) / "split"
    try:
        if not resume and not kept.exists():
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = kept.with_suffix(".part")
            part.touch(mode=0o600)
            part.write_text(str(secrets.randbits(128)))
            part.replace(kept)
        return int(kept.read_text())
    except (OSError, ValueError) as error:
        raise ParameterError(
            "checkpoint",
            str(folder),
            f"a folder that can be used, with its file {kept.name} ({error})",
        ) from error


def _locked(folder: Path, *, create: bool) -> int:
    """The folder, opened and locked for this process; the lock goes when the process does."""
    try:
        if create:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ParameterError(
            "checkpoint", str(folder), f"a folder that can be used ({error.strerror})"
        ) from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(opened)
        busy = isinstance(error, BlockingIOError)
        allowed = (
            "a folder that no other process is using"
            if busy
            else f"a folder that can be locked ({error.strerror})"
        )
        raise ParameterError("checkpoint", str(folder), allowed) from error
    return opened


def _identity(
    deployment: Deployment, population: Population, seed: int | None
) -> tuple[tuple[str, str], ...]:
    """What must be the same for the same bytes to come again, by name."""
    try:
        prints = {
            name: f"{type(value).__qualname__} {fingerprint(value).hex()[:32]}"
            for name, value in (
                ("protocol", deployment.protocol),
                ("data", population),
                ("adversary", deployment.adversary),
            )
        }
    except TypeError as error:
        raise ParameterError(
            "checkpoint",
            str(error),
            "used with a protocol, data and adversary that pickle can take",
        ) from error
    libraries = ["shuffle-sim", "numpy", *(["numba"] if deployment.kernel == "compiled" else [])]
    return (
        (
            "seed",
            str(seed),
        ),  # first: of another seed, data that are split or drawn by it differ, too
        *prints.items(),
        ("fidelity", deployment.fidelity),
        ("block size", str(deployment.block_size)),
        ("kernel", deployment.kernel),
        ("shuffler shards", str(deployment.shuffler_shards)),
        ("security", deployment.security),
        # Other versions may draw other bits from the same streams: that would be a second release.
        (
            "software",
            ", ".join(f"{name} {version(name)}" for name in libraries) + f", {platform.machine()}",
        ),
    )


def _lowered(record: ShardRecord | ShuffleRecord | ViewRecord) -> tuple[Any, ...]:
    """Its fields, counters as sorted pairs."""
    return tuple(
        tuple(sorted(field.items())) if isinstance(field, Counter) else field
        for field in vars(record).values()
    )


def _raised(kind: type[_Record], fields: tuple[Any, ...]) -> _Record:
    counted = {name for name, value in vars(kind()).items() if isinstance(value, Counter)}
    named: dict[str, Any] = dict(zip(vars(kind()), fields, strict=True))
    return kind(**named | {name: Counter(dict(named[name])) for name in counted})


def _chained(before: bytes, body: bytes) -> bytes:
    return hashlib.sha256(before + body).digest()
