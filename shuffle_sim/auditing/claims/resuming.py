"""Runs that are stopped as they draw, and go on: what was on disk by then, and who may go on."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from shuffle_sim.auditing.claims.plan import UncheckedError
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result

Drawn = Callable[[Any, Any], None]
"""Told of each draw before it is made: what is drawn, and where its stream begins if that shows."""


class _StoppedError(ShuffleSimError):
    """What stops a run, in the test of it; it bears the run's ledger."""


def renamed(algorithm: Any, named: str) -> Any:
    """The same algorithm as one of another class."""
    if named:
        algorithm.__class__ = type(named, (type(algorithm),), {})
    return algorithm


@contextmanager
def flushed() -> Iterator[dict[int, int]]:
    """What is flushed to disk from now on: by inode, how many bytes it had."""
    found, flush = dict[int, int](), os.fsync

    def fsync(number: Any) -> None:
        flush(number)
        state = os.stat(number)
        found[state.st_ino] = state.st_size

    vars(os)["fsync"] = fsync
    try:
        yield found
    finally:
        vars(os)["fsync"] = flush


@dataclass(frozen=True)
class Kept:
    """Runs that are kept in a folder.

    Attributes:
        run: an algorithm on rows: `run(rows, drawn, named, **options)`, under another class's name
            if `named`; it holds what is charged to what is asked.
        first: rows.
        others: rows with which nobody may go on.
        execution: of the runs.
        remembers: whether those who are corrupted are asked again, for what they did.
        drawing: options by which other noise would be drawn, from the same streams.
    """

    run: Callable[..., Result]
    first: Any
    others: Sequence[Any]
    execution: Execution
    remembers: bool = False
    drawing: Sequence[Mapping[str, Any]] = ()

    def check(self) -> None:
        """A draw is on disk before it is made, and a run on other rows does not go on.

        Both would have one noise: the difference of two releases would tell rows exactly. What is
        over is not drawn again, and stays charged.

        Raises:
            LawError: it is not so.
            UncheckedError: no draw is seen.
        """
        with tempfile.TemporaryDirectory() as folder:
            begun = [self._charged(Path(folder) / name / "run") for name in ("one", "other")]
            if begun[0] is not None and begun[0] == begun[1]:
                raise LawError("two runs without a seed, in folders of one name, draw alike")
            path = Path(folder) / "released"

            def stop(*_: Any) -> None:
                raise _StoppedError

            with suppress(_StoppedError):
                self._run(self.first, path, on_round=stop)
            modes = [each.stat().st_mode for each in (path, *path.rglob("*"))]
            if os.name == "posix" and any(mode & 0o077 for mode in modes):
                raise LawError("what a run keeps on disk may be read by others")
            first, none = self.first, dict[str, Any]()
            for what, rows, named, options in (
                *(("with other rows", rows, "", none) for rows in self.others),
                ("as another algorithm's", first, "Another", none),
                *((f"with another {', '.join(each)}", first, "", each) for each in self.drawing),
            ):
                with suppress(ParameterError):  # refused before anybody is asked
                    self._run(rows, path, named, resume=True, **options)
                    raise LawError(f"a run that was stopped goes on {what}")
            drawn = set[Any]()
            found = self._run(self.first, path, resume=True, drawn=lambda what, _: drawn.add(what))
            if len(drawn) > found.rounds - 1 and not self.remembers:
                raise LawError("a run that goes on draws again what was released")

    def _charged(self, path: Path) -> Any:
        """Where the stream begins of a run that is stopped as it draws, with its charge on disk."""
        sizes, begun = list[int](), list[Any]()

        def weigh(*_: Any) -> None:
            every = [each.stat() for each in (path, *path.rglob("*"))]
            if every[0].st_ino not in synced:
                raise LawError("the folder of a run is not flushed to disk before users are asked")
            # A file that the system still holds back is lost with the machine.
            sizes.append(sum(min(each.st_size, synced.get(each.st_ino, 0)) for each in every))

        def stop(_: Any, begins: Any) -> None:
            weigh()
            begun.append(begins)
            raise _StoppedError

        with flushed() as synced:
            try:
                self._run(self.first, path, drawn=stop, on_start=weigh)
            except _StoppedError as error:
                if error.ledger is None or not error.ledger.charges:
                    raise LawError("what is drawn is not in the run's ledger before") from error
        if not begun:
            raise UncheckedError("nothing is drawn in a run")
        if sizes[-1] <= sizes[0]:
            raise LawError("what is drawn is not on disk before: stopped, it is not charged")
        return begun[0]

    def _run(
        self,
        rows: Any,
        path: Path,
        named: str = "",
        *,
        resume: bool = False,
        drawn: Drawn | None = None,
        **options: Any,
    ) -> Result:
        own = {each.name for each in fields(Execution)} & options.keys()
        how = {name: options.pop(name) for name in own}
        options |= {"execution": replace(self.execution, **how), "checkpoint": path}
        return self.run(rows, drawn, named, resume=resume, **options)
