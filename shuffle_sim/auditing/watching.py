"""A run from outside: what passes between its roles, and rows that are read anew."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Values
from shuffle_sim.auditing.bench import of_categories
from shuffle_sim.data.population import Population, Unit
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.wire.frames import Kind, parse, split_frames
from shuffle_sim.wire.messages import Tally

_DRAWN = 500  # times that users report, where no law says how often reports agree
_LOOKED_AT = {"answer", "view", "shuffle", "conclude", "concluded", "whole", "finish"}
_OPEN = {Kind.REPORTS, Kind.COUNTS, Kind.TALLY, Kind.VIEW}


def bits_of_chance(randomizer: Any, values: Values, users: int, entropy: int) -> float:
    """Bits of chance in what users send, at least.

    Args:
        randomizer: where it says its law, by that; else by how often reports come again.
        values: of some users, admitted.
        users: of the run.
        entropy: of those draws.
    """
    if hasattr(randomizer, "count_pmf"):
        x, group = np.atleast_1d(randomizer.worst_pair()[0]), getattr(randomizer, "label_group", 1)
        if of_categories(randomizer):
            x, group = (x if x.size > 1 else x[0]), randomizer.alphabet.labels
        labels = range(0, randomizer.alphabet.labels, group)
        laws = (np.asarray(randomizer.count_pmf(x, label)) for label in labels)
        return users * sum(-math.log2(float(law @ law)) for law in laws)
    rng = np.random.default_rng([entropy, 14])
    drawn = {randomizer.reports(values, rng).tobytes() for _ in range(_DRAWN)}
    # Of so many pairs none agree: the chance of one is below, but for e^-20.
    return math.log2(_DRAWN**2 / 40) if len(drawn) == _DRAWN else 0.0


class RereadRows(Population):
    """Rows that are read anew each time, as from a file or a generator: no shard keeps them."""

    def __init__(self, inner: Population) -> None:
        """The rows of another population."""
        self._inner = inner

    @property
    def users(self) -> int:
        return self._inner.users

    @property
    def unit(self) -> Unit:
        return self._inner.unit

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        return self._inner.rows(start, stop)


class Watched:
    """What passes between the roles of a run."""

    def __init__(self) -> None:
        self.frames: dict[tuple[Any, ...], bytes] = {}
        self.tallies: list[NDArray[np.int64]] = []
        self.entropies: list[int] = []
        self._places: dict[tuple[Any, ...], int] = defaultdict(int)

    def watch(self, host: Runtime) -> None:
        """Look at what its roles are given and give, from now on."""
        call, put = type(host).call, type(host).host

        def called(role: Any, method: str, *arguments: Any, **given: Any) -> list[Any]:
            handles = call(host, role, method, *arguments, **given)
            if method in _LOOKED_AT:
                self._take(method, host.get([handles[0]])[0])
            return handles

        def hosted(role: type, *arguments: Any) -> Any:
            if not self.entropies and hasattr(arguments[0], "entropy"):
                self.entropies.append(arguments[0].entropy)
            return put(host, role, *arguments)

        vars(host)["call"], vars(host)["host"] = called, hosted

    def _take(self, method: str, value: Any) -> None:
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(tally := getattr(first, "tally", None), Tally):
            self.tallies.append(np.asarray(tally.sums))
            return
        if not isinstance(value, bytes):
            return
        for data in split_frames(value):
            frame = parse(data)
            if frame.kind in _OPEN:
                key = frame.kind, frame.context.round, frame.index
                self._places[key] += 1
                self.frames[*key, self._places[key]] = frame.payload
