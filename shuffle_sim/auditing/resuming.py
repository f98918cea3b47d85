"""A curator that is stopped as it draws: what was on disk by then, and who may go on."""

import tempfile
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.protocol.release import CentralAlgorithm, Release


class _StoppedError(Exception):
    """What stops a run, in the test of it."""


def check_resumed(
    algorithm: CentralAlgorithm[Any], first: Floats, second: Floats, options: dict[str, Any]
) -> None:
    """A release is on disk before it is drawn, and a run on other rows does not go on.

    Both would have one noise: the difference of two releases would tell rows exactly.

    Raises:
        LawError: it is not, or does.
    """
    execution = options.get("execution") or Execution()
    with tempfile.TemporaryDirectory() as folder:
        path, sizes = Path(folder) / "drawn", list[int]()

        def noted(*_: Any) -> None:
            files = (each.stat() for each in path.rglob("*") if each.is_file())
            sizes.append(sum(each.st_size for each in files))

        given = options | {"execution": replace(execution, on_start=noted), "checkpoint": path}
        with suppress(_StoppedError):
            run(_stopped(algorithm, noted), first, **given)
        if sizes[-1] <= sizes[0]:
            raise LawError("a release is drawn before it is on disk: stopped, it is not charged")

        def stop(*_: Any) -> None:
            raise _StoppedError

        given = options | {"checkpoint": Path(folder) / "released"}
        with suppress(_StoppedError):
            run(copy(algorithm), first, **given | {"execution": replace(execution, on_round=stop)})
        given |= {"execution": execution, "resume": True}
        with suppress(ShuffleSimError):
            run(copy(algorithm), second, **given)
            raise LawError("a run that was stopped goes on with other rows")
        run(copy(algorithm), first, **given)  # its own rows do


def _stopped(algorithm: CentralAlgorithm[Any], noted: Any) -> CentralAlgorithm[Any]:
    """The algorithm, stopped where its first release is drawn."""
    watched, kind = copy(algorithm), type(algorithm)

    def sample(*_: Any) -> Any:
        noted()
        raise _StoppedError

    def plan(this: Any, state: Any) -> Release | None:
        release = kind.plan(this, state)
        if release is None:
            return None
        mechanism = copy(release.mechanism)
        own = type(release.mechanism)
        # In its own class's name: what is journalled stays the same.
        object.__setattr__(mechanism, "__class__", type(own.__name__, (own,), {"sample": sample}))
        return replace(release, mechanism=mechanism)

    watched.__class__ = type(kind.__name__, (kind,), {"plan": plan})
    return watched
