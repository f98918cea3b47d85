"""A run from outside: what passes between its roles, and rows that are made for it."""

import math
import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.bench import of_categories
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.result import Result
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.execution.setup import suited
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec
from shuffle_sim.roles import Analyzer, Shuffler, UserShard
from shuffle_sim.sampling.kernels import fortran
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Tally
from shuffle_sim.wire.sealing import PublicKeys

_DRAWN = 500  # times that users report, where no law says how often reports agree
_WIDEST = 80  # columns of rows that are tried
_LOOKED_AT = {
    *("introduce", "answer", "view", "shuffle", "conclude", "concluded", "whole", "finish")
}
_OPEN = {Kind.REPORTS, Kind.COUNTS, Kind.TALLY, Kind.VIEW}
_SEALED = {Kind.SEALED, Kind.BUNDLE, Kind.BOXES}
_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
_DIFFERENT = 8  # bytes of an entropy that is looked for
_SEALED_BYTES = 1 << 23  # of boxes that are kept
_SURE = 30  # bits of chance: what agrees in so many was not drawn anew


def bits_of_chance(randomizer: Any, values: Values, entropy: int) -> float:
    """Bits of chance in what a user sends, at least: no report has a larger probability.

    Args:
        randomizer: where it says its law, by that; else by how often reports come again.
        values: of some users, admitted.
        entropy: of those draws.
    """
    if hasattr(randomizer, "count_pmf"):
        x, group = np.atleast_1d(randomizer.worst_pair()[0]), getattr(randomizer, "label_group", 1)
        if of_categories(randomizer):
            x, group = (x if x.size > 1 else x[0]), randomizer.alphabet.labels
        labels = range(0, randomizer.alphabet.labels, group)
        laws = (np.asarray(randomizer.count_pmf(x, label)) for label in labels)
        return sum(-math.log2(float(law.max())) for law in laws)
    rng = np.random.default_rng([entropy, 14])
    drawn = {randomizer.reports(values, rng).tobytes() for _ in range(_DRAWN)}
    # Of so many pairs none agree: the chance of one is below, but for e^-20. The largest
    # probability is below the root of that.
    found = math.log2(_DRAWN**2 / 40) / 2 if len(drawn) == _DRAWN else 0.0
    return found / len(values)


def chance_of(same: int, bits: Iterable[float]) -> float:
    """The largest chance that so many frames agree with others, of some drawn independently.

    bits: of each frame: it agrees with chance 2^-bits at most.
    """
    law = np.ones(1)
    for each, many in Counter(bits).items():
        law = np.convolve(law, scipy.stats.binom.pmf(np.arange(many + 1), many, 2.0**-each))
    return float(law[same:].sum())


def check_frames_apart(runs: "Sequence[Watched]", bits: float) -> None:
    """Frames of runs without a seed are not those of other runs.

    Args:
        runs: that were watched.
        bits: of chance in what a user sends.

    Raises:
        LawError: so many are as come again once in 2^30.
    """
    kinds = {kind for seen in runs for kind, *_ in seen.frames}
    for (place, first), kind in product(enumerate(runs), kinds):
        same, known = 0, list[float]()
        for second in runs[place + 1 :]:
            for key in first.frames.keys() & second.frames.keys():
                if key[0] is kind:
                    users, sent = first.frames[key]
                    same += sent == second.frames[key][1]
                    # Of a sum no more is known than of one user in it.
                    known.append(bits * (1 if kind is Kind.TALLY else users))
        if same and chance_of(same, known) < 2.0**-_SURE:
            raise LawError(f"{same:,} of {len(known):,} frames of runs are those of another")


def check_names(tasks: list[bytes]) -> None:
    """Bytes that name runs without a seed, and stand in each frame, are drawn anew.

    Raises:
        LawError: some are alike in all, as those that follow from rows; else once in 2^40.
    """
    alike = sum(len(set(place)) == 1 for place in zip(*tasks, strict=True))
    if len(tasks) > 1 and chance_of(alike, [8.0 * (len(tasks) - 1)] * len(tasks[0])) < 2.0**-40:
        raise LawError(f"{alike} of {len(tasks[0])} bytes that name runs are alike in all")


class Reference(InProcessRuntime):
    """The roles of the package in this process, whatever a runtime would host in their place."""

    def _apart(self) -> None:
        known = self._deployment
        self._shards = [UserShard(known, self._rows, blocks) for blocks in self._blocks]
        shards = range(known.shuffler_shards)
        self._shufflers = [Shuffler(known.of_shuffler, each) for each in shards]
        self._analyzer = Analyzer(replace(known, entropy=0))


class Watched:
    """What passes between the roles of a run."""

    def __init__(self) -> None:
        self.frames: dict[tuple[Any, ...], tuple[int, bytes]] = {}  # users in it, payload
        self.views: list[Tally] = []
        self.entropies: list[int] = []
        self.tasks: list[bytes] = []
        self.generators = set[str]()  # that roles are given
        self.given = set[bytes]()  # protocols of the shuffler and the analyzer
        self.sealed: list[Frame] = []
        self.keys: list[PublicKeys] = []
        self._secrets: list[bytes] = []
        self.queries: list[bytes] = []
        self._totals: dict[Context, bytes] = {}  # of rounds
        self._kept = 0
        self._places: dict[tuple[Any, ...], int] = defaultdict(int)

    @property
    def tallies(self) -> list[NDArray[np.int64]]:
        """Sums of the views, by round."""
        return [np.asarray(each.sums) for each in self.views]

    def round(self, index: int, ledger: Any, costs: Any, query: Query) -> None:
        """Keep what was asked in a round; as `on_round` of a run."""
        self.queries.append(encode(query))

    def check_kept(self, result: Result, seed: int | None) -> None:
        """What is kept of a run without a seed does not hold its entropy.

        Raises:
            LawError: it does: whoever has the result draws all noise again.
        """
        if seed is None:
            kept = repr(vars(result))
            if any(f"{each:{base}}" in kept for each in self.entropies for base in "dx"):
                raise LawError("the entropy of a run without a seed is in its result")

    def watch(self, host: Runtime, entropy: int | None = None) -> None:
        """Look at what its roles are given and give, from now on.

        entropy: that they are given in place of the run's.
        """
        call, put, opened = type(host).call, type(host).host, type(host).open

        def called(role: Any, method: str, *arguments: Any, **given: Any) -> list[Any]:
            handles = call(host, role, method, *arguments, **given)
            if method in _LOOKED_AT:
                self._take(method, host.get([handles[0]])[0])
            return handles

        def hosted(role: type, *arguments: Any) -> Any:
            if hasattr(arguments[0], "entropy"):
                self.generators.add(arguments[0].generator)
                if not self.entropies:
                    self.entropies.append(arguments[0].entropy)
                    self.tasks.append(arguments[0].task)
                    secrets = [arguments[0].entropy.to_bytes(16, x) for x in _ORDERS]
                    # Few bits stand in frames that know nothing of them.
                    self._secrets = [each for each in secrets if len({*each}) >= _DIFFERENT]
                if isinstance(role, type) and issubclass(role, Analyzer | Shuffler):
                    with suppress(pickle.PicklingError, AttributeError, TypeError):
                        self.given.add(pickle.dumps(arguments[0].protocol))
                if isinstance(role, type) and issubclass(role, Analyzer) and arguments[0].entropy:
                    raise LawError("the analyzer is given entropy: it could draw what users drew")
            return put(host, role, *arguments)

        vars(host)["call"], vars(host)["host"] = called, hosted
        if entropy is not None:
            vars(host)["open"] = lambda deployment, *more: opened(
                host, replace(deployment, entropy=entropy), *more
            )

    def _take(self, method: str, value: Any) -> None:
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(tally := getattr(first, "tally", None), Tally):
            self.views.append(tally)
            return
        if isinstance(value, PublicKeys):
            self.keys.append(value)
        if not isinstance(value, bytes):
            return
        if any(each in value for each in self._secrets):
            raise LawError("the entropy of the run is in what its roles send")
        for data in split_frames(value):
            frame = parse(data)
            if frame.kind is Kind.VIEW_TALLY and frame.payload:
                self._totals.setdefault(frame.context, frame.payload)
                if self._totals[frame.context] != frame.payload:
                    raise LawError("a view holds the totals of several parts of its users")
            if frame.kind in _OPEN:
                key = frame.kind, frame.context.round, frame.index
                self._places[key] += 1
                self.frames[*key, self._places[key]] = frame.reports, frame.payload
            elif frame.kind in _SEALED and self._kept < _SEALED_BYTES:
                self._kept += len(frame.payload)
                self.sealed.append(frame)


def rows_for(protocol: Protocol[Any], spec: RoundSpec, entropy: int) -> Any:
    """Rows that a protocol takes, if some are found: numbers, vectors, rows with a label."""
    n, rng = protocol.users, np.random.default_rng([entropy % 2**64, 12])
    records = max(protocol.records_read, getattr(protocol, "records", 1))
    records = max(1, min(records, protocol.most_records))
    persons = protocol.unit is Unit.PERSON or records > 1
    if of_categories(spec.randomizer):
        numbers, places = rng.random((n, 2)), rng.integers(0, 2, (n, 2)).astype(float)
        for width in (None, 1, 2):
            # Numbers where they are asked for: inside of their range, not at its ends.
            for numeric in product((True, False), repeat=width or 1):
                rows = np.where(numeric, numbers[:, : width or 1], places[:, : width or 1])
                rows = rows[:, 0] if width is None else rows
                if _takes(protocol, spec, rows) and _tells(spec, rows):
                    return rows
    pair: Any = getattr(spec.randomizer, "worst_pair", tuple)()
    wide = int(np.size(pair[0])) if pair else 0
    widths = [each for each in (wide, wide + 1) if each >= _WIDEST]  # rows as vectors, or labelled
    for width in (None, *range(1, _WIDEST), *widths):
        if width is None:
            rows = rng.random(n)
        else:
            rows = rng.normal(size=(n, records, width) if persons else (n, width))
            rows /= 1.1 * np.maximum(1, np.linalg.norm(rows, axis=-1, keepdims=True))
        for labelled in (False, True) if width and width > 1 else (False,):
            if labelled:
                rows[..., -1] = np.where(rng.random(rows.shape[:-1]) < 0.5, -1.0, 1.0)
            if _takes(protocol, spec, rows):
                return rows
    return None


def _tells(spec: RoundSpec, rows: Floats) -> bool:
    """Whether no user's category is absent."""
    values, _ = spec.randomizer.admit(spec.query(rows))
    return not (dense(values) == spec.randomizer.absent).any()


def _takes(protocol: Protocol[Any], spec: RoundSpec, rows: Floats) -> bool:
    try:
        population = suited(protocol, rows)
        asked = fortran(population.rows(0, min(3, population.users)))
        values, _ = spec.randomizer.admit(spec.query(asked))
        spec.randomizer.reports(values, np.random.default_rng(0))
    except (ValueError, TypeError, IndexError, ShuffleSimError):
        return False
    return True
