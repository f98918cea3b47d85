"""Where points of studies are kept: one SQLite file, which a kill at any moment leaves whole."""

import json
import os
import platform
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.experiments.points import Point, written
from shuffle_sim.experiments.trial import Outcome, Row
from shuffle_sim.wire.fingerprint import fingerprint

FORMAT = 1
WAIT = 5.0
"""Seconds to wait for another process that writes."""
_MARK = 0x73687566  # "shuf": the file is one of ours
_TABLE = """
CREATE TABLE points (
    study TEXT NOT NULL, code TEXT NOT NULL, content TEXT NOT NULL,
    seed INTEGER, state TEXT NOT NULL, row TEXT, reason TEXT NOT NULL,
    versions TEXT NOT NULL, seconds REAL NOT NULL, ended TEXT NOT NULL,
    PRIMARY KEY (study, code, content)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Kept:
    """A point as the store holds it.

    Attributes:
        study: its name.
        code: what `make` was, as a hash.
        point: parameters, repetition and seed.
        row: what was measured; None: it failed.
        reason: why it failed; else empty.
        versions: of what it was run with.
        seconds: taken.
        ended: when, in UTC.
    """

    study: str
    code: str
    point: Point
    row: Row | None
    reason: str
    versions: dict[str, str]
    seconds: float
    ended: str


class Store:
    """Points of studies, by study, code of `make` and content."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        """Over a connection that is open; see `open`."""
        self._connection, self._path = connection, path

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, *, create: bool = True) -> Self:
        """The store in a file; None: in memory.

        Raises:
            ParameterError: it cannot be opened, is no store, of another format, or locked.
        """
        name = ":memory:" if path is None else str(check_name("store", os.fspath(path)))
        if path is not None and not create and not os.path.exists(name):
            raise ParameterError("store", name, "a store that is there: `experiment run` makes one")
        with _told(name):
            # isolation_level None: Python begins no transaction by itself; each statement is one.
            connection = sqlite3.connect(name, timeout=WAIT, isolation_level=None)
        store = cls(connection, name)
        try:
            with _told(name):
                store._prepare()
        # Ctrl-C, too: an open connection would keep the lock.
        except BaseException:
            connection.close()
            raise
        return store

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")  # a power cut may lose the last points, never the file
        # Of two processes that open a new file the second waits here, and finds the table.
        run("BEGIN IMMEDIATE")
        try:
            (mark,) = run("PRAGMA application_id").fetchone()
            (found,) = run("PRAGMA user_version").fetchone()
            (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
            if mark == 0 and tables == 0:
                run(_TABLE)
                run(f"PRAGMA application_id = {_MARK}")
                run(f"PRAGMA user_version = {FORMAT}")
            elif mark != _MARK:
                raise ParameterError(
                    "store", self._path, "a store of studies, not another database"
                )
            elif found != FORMAT:
                allowed = f"a store of format {FORMAT}; it has format {found}: take another file"
                raise ParameterError("store", self._path, allowed)
        finally:
            # Also after a refusal: until then nothing was written.
            run("COMMIT")

    def keep(self, study: str, code: str, point: Point, outcome: Outcome) -> Kept:
        """Write what became of a point, in one transaction.

        Raises:
            ParameterError: the file does not take it; what it held, it still holds.
        """
        state = "failed" if outcome.row is None else "done"
        row = None if outcome.row is None else json.dumps(outcome.row)
        told = json.dumps(versions())
        with _told(self._path):
            self._connection.execute(
                "INSERT OR REPLACE INTO points VALUES (?,?,?,?,?,?,?,?,?,datetime('now'))",
                (
                    study,
                    code,
                    point.content,
                    point.seed,
                    state,
                    row,
                    outcome.reason,
                    told,
                    outcome.seconds,
                ),
            )
        return Kept(
            study, code, point, outcome.row, outcome.reason, versions(), outcome.seconds, ""
        )

    def rows(
        self, study: str | None = None, code: str | None = None, state: str | None = "done"
    ) -> dict[str, Kept]:
        """Points by content; of one study, code and state where these are given."""
        return {each.point.content: each for each in self.all(study, code, state)}

    def all(
        self, study: str | None = None, code: str | None = None, state: str | None = None
    ) -> Iterator[Kept]:
        """Points by study, code, parameters (numbers by size) and repetition.

        Raises:
            ParameterError: the file is damaged.
        """
        asked = {"study": study, "code": code, "state": state}
        given = {name: value for name, value in asked.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in given) or "1"
        columns = "study, code, content, seed, row, reason, versions, seconds, ended"
        query = f"SELECT {columns} FROM points WHERE {where} ORDER BY study, code, content"
        with _told(self._path):
            found = self._connection.execute(query, list(given.values())).fetchall()
        kept = []
        for name, own, content, seed, row, reason, told, seconds, ended in found:
            what = json.loads(content)
            point = Point(what["parameters"], what["repeat"], seed)
            measured = None if row is None else json.loads(row)
            kept.append(Kept(name, own, point, measured, reason, json.loads(told), seconds, ended))
        # SQLite sorts content as text: 10 would stand before 9.
        yield from sorted(kept, key=_place)

    def close(self) -> None:
        """Let go of the file."""
        with suppress(sqlite3.Error):
            self._connection.close()


@cache
def versions() -> dict[str, str]:
    """Of Python and of the libraries that decide on a run's bits."""
    found = {"python": platform.python_version()}
    for name in ("shuffle-sim", "numpy", "scipy", "numba", "scikit-learn"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def identity(make: Callable[..., Any]) -> str:
    """What `make` is: its code, defaults and what it closes over, as a short hash.

    A study whose code was changed does not take the points of before for its own.
    """
    return fingerprint(make).hex()[:16]


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Errors of SQLite as one line that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        reason = "another process holds it" if "locked" in str(error) else str(error)
        allowed = f"a file that can be read and written as a store ({reason})"
        raise ParameterError("store", path, allowed) from error


def _place(kept: Kept) -> tuple[Any, ...]:
    """Where a point stands: numbers by their size, before all else by its text."""
    values = [
        (name, (0, value, "") if type(value) in (int, float) else (1, 0, written(value)))
        for name, value in sorted(kept.point.parameters.items())
    ]
    return kept.study, kept.code, values, kept.point.repeat
