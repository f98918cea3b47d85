"""A run's journal: what was charged and what came of it, on disk, so that a run that was killed can
go on.

Everything random in a run is drawn from its entropy by round, role and index, and the protocol's
state is a function of the tallies so far. So the journal keeps the entropy, every charge and every
tally; going on is replaying them. A charge is on disk before its round draws anything. A round that
was charged and not finished is run again and sends the same bytes.

The file is only ever appended to. Only its last record can be cut short, by a death in the middle
of writing it: nothing had been done on its strength yet, so it is taken off.
"""

import errno
import fcntl
import os
import secrets
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from shuffle_sim.data.files import check_name, most_memory, read_whole, write_private
from shuffle_sim.errors import CheckpointError, FrameError, ParameterError
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.execution.journal import FILE, Charge, Journal, Outcome, Records, append, record
from shuffle_sim.sampling.randomness import entropy_of
from shuffle_sim.wire.codec import decode, encode
from shuffle_sim.wire.messages import Tally

FORMAT = 9  # also another where a round under way would be drawn in another way


class Checkpoint(Journal):
    """The journal in a folder, readable by its owner only: the run's entropy in it undoes all
    privacy.
    """

    def __init__(self, folder: Path, identity: RunIdentity, *, resume: bool = False) -> None:
        """Start a journal in the folder or, to resume, read it and take over what was started.

        Raises:
            ParameterError: the folder cannot be used, is used by another process, holds a run that
                is not to be resumed or none to resume; or the journal is damaged or another run's,
                naming what differs.
        """
        self._path = check_name("checkpoint", folder) / FILE
        self._lock = _locked(folder, create=not resume)
        self._sealed: OSError | None = None
        try:
            if os.path.lexists(self._path) != resume:
                allowed = (
                    "a folder with a run to resume: in this one none is charged, so begin it anew"
                    if resume
                    else "a folder without a run, or given with --resume"
                )
                raise ParameterError("checkpoint", str(folder), allowed)
            marks = identity.marks
            head = FORMAT, marks, identity.task, identity.entropy.to_bytes(16, "big")
            self._hash = b""
            if not resume:
                self._create(encode(head))
            content = read_whole(self._path, "checkpoint", most_memory(), follow=False)
            self._file = self._opened(resume)
        except OSError as error:
            os.close(self._lock)
            allowed = f"in a folder that can be written ({error.strerror})"
            raise ParameterError("checkpoint", str(self._path), allowed) from error
        except BaseException:
            os.close(self._lock)
            raise
        try:
            self._records = deque(self._read(content))
            super().__init__(self._resumed(identity, marks))
        except BaseException:
            self.close()
            raise

    def charge(self, charge: Charge) -> Outcome | None:
        """Write the charge, or compare it with the one that was written.

        Raises:
            ParameterError: another release was charged in its place.
            CheckpointError: the disk does not take it; nothing of the release has been drawn.
        """
        # Nothing more was written: this is the first round that is new.
        if not self._records:
            self._append(encode(charge), "the charge of a round; the round was not begun")
            return None
        written = self._decoded(self._records.popleft())
        if not _is_pairs(written, bytes) or [*dict(written)] != [*dict(charge)]:
            raise self._damaged("the charge of a round")
        for (name, charged), (_, asked) in zip(written, charge, strict=True):
            if charged != asked:
                raise ParameterError(
                    name, asked.hex(), f"the one that was charged for the round ({charged.hex()})"
                )
        outcome: Outcome | None = None
        if not self._records:
            # The round is drawn again, and its outcome will
            # have to be written: refused before, if not.
            self._demand_writable("the outcome of a round; the round stays charged")
        else:
            outcome = self._decoded(self._records.popleft())
            if type(outcome) is not tuple:
                raise self._damaged("the outcome of a round")
        return outcome

    def settle(self, outcome: Outcome) -> None:
        """Write what came of the release.

        Raises:
            CheckpointError: the disk does not take it; the round stays charged, and resumed it
                gives the same again.
        """
        self._append(encode(outcome), "the outcome of a round; the round stays charged")

    def __exit__(self, *ended: object) -> None:
        for each in ended:
            if isinstance(each, KeyboardInterrupt):
                how = "the same with --resume, in Python resume=True, goes on"
                each.add_note(f"the run is kept in {self._path.parent}: {how}")
        super().__exit__(*ended)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _opened(self, resume: bool) -> int:
        """The file, by its own name in the folder; for reading where it cannot be written."""
        flags = os.O_CLOEXEC | os.O_APPEND | os.O_NOFOLLOW
        try:
            # By the folder that is locked: its name may by now stand for another.
            return os.open(FILE, flags | os.O_RDWR, dir_fd=self._lock)
        except OSError as error:
            if not resume or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._sealed = error
        return os.open(FILE, flags | os.O_RDONLY, dir_fd=self._lock)

    def _demand_writable(self, what: str) -> None:
        if self._sealed is not None:
            raise CheckpointError(
                f"{self._path} does not take {what}: {self._sealed.strerror}; what is in it is "
                "given where the run is finished, and this one is not"
            ) from self._sealed

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
        self._demand_writable(what)
        written, digest = record(self._hash, body)
        try:
            append(self._file, written)
        except OSError as error:
            raise CheckpointError(
                f"{self._path} does not take {what}: {error.strerror}; make room, then resume"
            ) from error
        self._hash = digest

    def _read(self, content: bytes) -> list[bytes]:
        """The bodies of all records; one that was cut short at the end is taken off the file."""
        records = Records(content)
        try:
            found = list(records)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        if records.position < len(content) and self._sealed is None:
            os.ftruncate(self._file, records.position)
        self._hash = records.hash
        return found

    def _resumed(self, identity: RunIdentity, marks: tuple[tuple[str, str], ...]) -> RunIdentity:
        if not self._records:
            raise self._damaged("the beginning")
        head = self._decoded(self._records.popleft())
        form, *stored = head if type(head) is tuple and head else (None,)
        if form != FORMAT:
            raise ParameterError(
                "checkpoint", str(self._path), f"of format {FORMAT}; it is of format {form!r:.20}"
            )
        drawn = stored[1:]
        # The task and the entropy, 16 bytes each.
        sizes = [len(each) for each in drawn if type(each) is bytes]
        if sizes != [16, 16] or len(drawn) != 2 or not _is_pairs(stored[0], str):
            raise self._damaged("the beginning")
        (same, task, entropy) = stored
        theirs, ours = dict(same), dict(marks)
        # What is new or gone, as a helper of a class, says less than what changed.
        for name in sorted(ours | theirs, key=lambda each: each not in ours or each not in theirs):
            if theirs.get(name) != ours.get(name):
                written, asked = (each.get(name, "none") for each in (theirs, ours))
                allowed = f"this run's: its {name} is {written}, this run's is {asked}"
                raise ParameterError("checkpoint", str(self._path), allowed)
        return replace(identity, task=task, entropy=int.from_bytes(entropy, "big"))

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


def journal_of(folder: str | Path | None, resume: bool, identity: RunIdentity) -> Journal:
    """The run's journal: in the folder, or none.

    Raises:
        ParameterError: as `Checkpoint`, or a run is to be resumed from no folder.
    """
    if folder is not None:
        return Checkpoint(check_name("checkpoint", folder), identity, resume=resume)
    if resume:
        raise ParameterError("resume", resume, "used with the folder of a checkpoint")
    return Journal(identity)


def split_seed(folder: str | Path | None, resume: bool, seed: int | None) -> int | None:
    """The seed by which people are held out before the run: the run's; without one, drawn once and
    kept beside the checkpoint.

    Raises:
        ParameterError: the folder cannot be used, or holds none to resume with.
    """
    if folder is None or seed is not None:
        return seed
    kept = check_name("checkpoint", folder) / "split"
    try:
        if not resume and not os.path.lexists(kept):
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(kept, str(secrets.randbits(128)).encode())
        return entropy_of(int(read_whole(kept, "checkpoint", 64, follow=False)))
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


def _is_pairs(value: Any, kind: type) -> bool:
    """Whether a value is pairs of names and values of a type."""
    pairs = type(value) is tuple and all(type(each) is tuple for each in value)
    return pairs and all([type(part) for part in each] == [str, kind] for each in value)
