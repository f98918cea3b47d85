"""Lower bounds of epsilon from whole runs: canaries, and one user without a word on the law."""

import math
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.claims.empirical import Seen
from shuffle_sim.data.population import population_of
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.task import walked
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.randomness import entropy_of
from shuffle_sim.wire.messages import Tally

_PAIRS = 8_000  # of samples for a Gaussian estimate
_SAMPLES = 20_000  # for a threshold
_WORK = 40_000.0  # rounds of few users in all runs; more users count for more
_CELLS = 20_000  # values whose noise takes as long as all else in a round
_SENT = 8_000  # messages that take so long
_FEWEST = 20  # runs
_NUMBERS, _OVERHEAD = 30_000_000, 7_500  # users' numbers in whole runs; a round counts as so many
_PARTS = 512  # of a run, at most: each of a round, or of every 512th


def canaries(
    protocol: Protocol[Any],
    data: Any = None,
    *,
    runs: int | None = None,
    seed: int | None = None,
) -> Seen:
    """What whole runs show of canaries in every round.

    A canary holds one end of the worst pair in one coordinate, in all rounds in which it is asked
    (or in all coordinates, where noise is not Gaussian):
    the guarantee covers every query, so it covers this one. The attacker knows all other values.
    It adds up what the views say beyond them. One run gives a sample for each coordinate (after
    Steinke, Nasr and Jagielski 2023). Where the noise is nearly Gaussian, runs with both ends over
    the same randomness give a Gaussian estimate (after Nasr et al. 2023), from up to 512 parts of
    each run. Else a Clopper-Pearson bound of the best threshold is taken.

    Args:
        protocol: any whose randomizers are a sum's.
        data: rows of its users; None: every value is 0 (for sums and protocols whose update takes
            it).
        runs: by default such that there are some 8,000 pairs of samples, or 12,000 for thresholds;
            fewer where a run is long.
        seed: to reproduce it.

    Raises:
        ParameterError: its randomizer cannot say its worst pair.
    """
    spec = protocol.plan(protocol.init())
    if spec is None or not hasattr(spec.randomizer, "worst_pair"):
        raise ParameterError("protocol", type(protocol).__name__, "one whose randomizer has one")
    entropy, paired = entropy_of(seed), theorem_of(type(spec.event)).near_gaussian
    exact = data is None and odds_known(protocol)
    coordinates = 1 if exact else _coordinates(spec.randomizer)
    # Where noise is not Gaussian, one that moves in all coordinates at once is seen best.
    columns = coordinates if paired else 1
    # One round is the same in every run but for its noise.
    alone = len(list(islice(walked(copy(protocol)), 2))) == 1
    once = alone or getattr(protocol, "one_shot", False)
    kept: dict[bytes, _Held] | None = {} if once else None

    def sample(index: int, work: float = 0.0) -> tuple[list[Floats], float]:
        """What was seen of the first and the second ends, and the work of it."""
        if paired:
            ends = [np.zeros(columns, bool), np.ones(columns, bool)]
        else:
            ends = [np.random.default_rng([entropy, 0, index]).random(columns) < 0.5]
        seen: list[Floats] = []
        for each in ends:
            # The same for both ends: their noise cancels in the difference.
            rng = np.random.default_rng([entropy, 1, index])
            if exact:
                found, took = _odds(protocol, high=bool(each[0]), rng=rng)
            else:
                found, took = _observed(protocol, data, each, rng, kept)
            seen, work = [*seen, found], work + took
        return (seen if paired else [seen[0][~ends[0]], seen[0][ends[0]]]), work

    first, work = sample(0)
    if runs is None:
        wanted = -(-(_PAIRS if paired else _SAMPLES) // columns)
        runs = max(_FEWEST, min(wanted, int(_WORK / work)))
    found = [first, *(sample(index)[0] for index in range(1, integer("runs", runs, _FEWEST)))]
    parts = max(ends[0].shape[1] for ends in found)
    low, high = (
        np.concatenate([_padded(x, parts) for x in each]) for each in zip(*found, strict=True)
    )
    single = paired or exact or coordinates == 1
    return Seen(low, high, protocol.delta, paired, single, exact)


def _padded(seen: Floats, parts: int) -> Floats:
    """With zeros for parts that a shorter run did not have."""
    return seen if seen.shape[1] == parts else np.pad(seen, ((0, 0), (0, parts - seen.shape[1])))


def odds_known(protocol: Protocol[Any]) -> bool:
    """Whether views of all rounds have exact odds, of data that queries let neighbours hold."""

    def known(spec: RoundSpec) -> bool:
        randomizer: Any = spec.randomizer
        if not hasattr(randomizer, "pair_odds"):
            return False
        first, second = randomizer.worst_pair()
        return bool(np.linalg.norm(second - first) <= spec.query.apart)

    return all(map(known, walked(copy(protocol))))


def pair_table(randomizer: Any, users: int, *, high: bool) -> Floats:
    """Values of users of whom one holds the worst pair's second end (high), or its first, and all
    others the first, as the randomizer takes them.
    """
    first, second = randomizer.worst_pair()
    values = np.repeat(first[None], users, axis=0)
    values[0] = second if high else first
    # Numbers and categories have no axis of their own.
    return values[:, 0] if len(first) == 1 and not getattr(randomizer, "norm_bound", 0) else values


def _odds(protocol: Protocol[Any], *, high: bool, rng: np.random.Generator) -> tuple[Floats, float]:
    """The odds of a run in which one user holds the worst pair's second end (high), or its first,
    and all others the first, (1, 1); and the work of it.

    Only reports of those who are counted on are unknown.
    """
    state, odds, work, canary = protocol.init(), 0.0, 0.0, None
    while (spec := protocol.plan(state)) is not None:
        randomizer: Any = spec.randomizer
        canary = spec.cohort.ranges[0][0] if canary is None else canary
        asked = any(spec.cohort.within(canary, canary + 1))
        users = math.ceil(protocol.honest_fraction * spec.cohort.size)
        values = pair_table(randomizer, users, high=high and asked)
        tally = randomizer.tallied(values, rng)
        if asked:  # other rounds say nothing of it
            odds += randomizer.pair_odds(tally)
        work += 1 + users * (1 + randomizer.usual_messages) / _SENT
        state = protocol.update(state, spec.analyze(tally))
    return np.array([[odds]]), work


def _coordinates(randomizer: Any) -> int:
    return int(randomizer.variance(1).size)


@dataclass(frozen=True)
class _Held:
    """What users of a round hold.

    Attributes:
        spec: the round.
        values: with the canaries' own, (users, ...).
        known: the sum of the values but for what the canaries moved.
        asked: which canaries are.
        placed: where they are among the users.
        half: from the middle to the second end.
    """

    spec: RoundSpec
    values: Floats
    known: Floats
    asked: NDArray[np.bool_]
    placed: NDArray[np.intp]
    half: Floats


def _held(
    spec: RoundSpec, data: Any, signs: NDArray[np.bool_], canaries: NDArray[np.int64]
) -> _Held:
    """A round's values, with each canary at its end in its coordinate."""
    randomizer: Any = spec.randomizer
    first, second = _ends(randomizer, spec.query.apart, len(signs))
    users = np.concatenate([np.arange(*span) for span in spec.cohort.ranges])
    if data is None:
        # The symbols of a canary that sends one message are seen best where others send none.
        values = np.full((len(users), len(first)), (first + second)[0] / 2 * _single(randomizer))
    else:
        population = population_of(data)
        rows = np.concatenate([population.rows(*span) for span in spec.cohort.ranges])
        values = dense(spec.query(np.asfortranarray(rows, np.float64)))
    values = np.array(dense(admitted(values, randomizer)[0]), np.float64)
    flat = values.reshape(len(users), -1)
    known, asked = flat.sum(axis=0), np.zeros(len(signs), bool)
    placed = np.flatnonzero(np.isin(users, canaries))
    for place in placed:
        coordinate = int(np.argmax(canaries == users[place]))
        if coordinate >= flat.shape[1]:  # a round of fewer coordinates: each moves one canary
            continue
        known -= flat[place]
        flat[place] = np.roll(second if signs[coordinate] else first, coordinate)
        # Where a value is not moved it is in the middle, for both ends.
        known += np.roll((first + second) / 2, coordinate)
        asked[coordinate] = True
    return _Held(spec, values, known, asked, placed, (second - first) / 2)


def _single(randomizer: Any) -> bool:
    """Whether a user sends one message, of several symbols."""
    return bool(randomizer.report_messages == 1 and randomizer.alphabet.symbols > 2)


def _observed(
    protocol: Protocol[Any],
    data: Any,
    signs: NDArray[np.bool_],
    rng: np.random.Generator,
    kept: dict[bytes, _Held] | None,
) -> tuple[Floats, float]:
    """What the views of one run say of the canaries beyond what is known, (coordinates, parts);
    and the work of it.

    kept: what users hold by the signs, if all is over with the canaries' first round.
    """
    state, work, index = protocol.init(), 0.0, 0
    seen = np.zeros((len(signs), _PARTS))
    canaries: NDArray[np.int64] | None = None
    held = None if kept is None else kept.get(signs.tobytes())
    while held is not None or (spec := protocol.plan(state)) is not None:
        if held is None:
            assert spec is not None
            if canaries is None:
                canaries = np.concatenate([np.arange(*span) for span in spec.cohort.ranges])
                canaries = canaries[: len(signs)]
            held = _held(spec, data, signs, canaries)
        randomizer: Any = held.spec.randomizer
        if _single(randomizer):
            flat = held.values.reshape(len(held.values), -1)
            tally, score = _symbols_seen(randomizer, flat, held.placed, rng)
            seen[:, index % _PARTS] += held.asked * score
        else:
            tally = Tally(randomizer.tally(held.values, rng), len(held.values))
            off, half = randomizer.estimate(tally) - held.known, held.half
            if len(signs) == 1 < len(off):
                near = theorem_of(type(held.spec.event)).near_gaussian
                # The odds of Gaussian noise, or of Laplace noise, up to a factor.
                off = [off @ half if near else (np.abs(off + half) - np.abs(off - half)).sum()]
            many = min(len(signs), len(off))
            seen[:many, index % _PARTS] += held.asked[:many] * off[:many]
        work, index = work + 1 + held.values.size / _CELLS, index + 1
        if kept is not None and held.asked.any():
            kept[signs.tobytes()] = held
            break  # they are not asked again
        state, held = protocol.update(state, held.spec.analyze(tally)), None
    return seen[:, : min(index, _PARTS)], work


def _ends(randomizer: Any, apart: float, canaries: int) -> tuple[Floats, Floats]:
    """The worst pair, turned into coordinate 0, or for one canary into all coordinates alike.

    No farther apart than the query lets the values of neighbours be.
    """
    first, second = (np.atleast_1d(x) for x in randomizer.worst_pair())
    half, middle = float(np.linalg.norm(second - first)) / 2, (first + second) / 2
    way = np.eye(1, len(middle))[0] if canaries > 1 else np.ones(len(middle))
    step = min(half, apart / 2) * way / np.linalg.norm(way)
    return middle - step, middle + step


def whole_runs(protocol: Protocol[Any], rows: Floats, *, seed: int | None = None) -> Seen:
    """What whole runs show of one user, without a word of the randomizer on its law.

    The canary holds a row that is far out in one direction or in the other. All that is estimated
    in a run is weighed by how far it moves, in runs of their own. The bound is that of Clopper and
    Pearson for the best threshold, so it holds for any law.

    Args:
        protocol: any whose updates take what it estimates.
        rows: of its users, (users, ...).
        seed: to reproduce it.
    """
    rng = np.random.default_rng([entropy_of(seed), 13])
    ends = [rows.copy() for _ in range(2)]
    far = np.ones_like(rows[:1]) if rows.ndim == 1 else np.zeros_like(rows[:1])
    far[..., :1] = 1.0
    for end, sign in zip(ends, (-1.0, 1.0), strict=True):
        end[0] = sign * 1e6 * far[0]
    numbers = _estimates(protocol, ends[0], rng)[1]  # not seconds: a seed gives the same runs
    runs = int(np.clip(_NUMBERS // numbers, 50, _SAMPLES))
    low, high = (np.array([_estimates(protocol, end, rng)[0] for _ in range(runs)]) for end in ends)
    part = runs // 3
    moved = high[:part].mean(axis=0) - low[:part].mean(axis=0)
    spread = low[:part].var(axis=0) + high[:part].var(axis=0)
    weights = np.divide(moved, spread, out=np.sign(moved), where=spread > 0)
    return Seen(
        (low[part:] @ weights)[:, None], (high[part:] @ weights)[:, None], protocol.delta, False
    )


def _estimates(
    protocol: Protocol[Any], rows: Floats, rng: np.random.Generator
) -> tuple[Floats, int]:
    """The sums of symbols of all rounds of a run, and how much work it is."""
    state, seen, numbers = protocol.init(), list[Floats](), 0
    while (spec := protocol.plan(state)) is not None:
        asked = np.concatenate([rows[low:high] for low, high in spec.cohort.ranges])
        values = admitted(spec.query(np.asfortranarray(asked, np.float64)), spec.randomizer)[0]
        tally = spec.randomizer.tallied(values, rng)
        numbers += asked.size + _OVERHEAD
        seen.append(np.asarray(tally.sums, np.float64))
        state = protocol.update(state, spec.analyze(tally))
    return np.concatenate(seen), numbers


def _symbols_seen(
    randomizer: Any, values: Floats, placed: NDArray[np.intp], rng: np.random.Generator
) -> tuple[Tally, float]:
    """The tally of users who send one symbol each; and how the symbols in the view speak for the
    second end: each by the change of its probability, over how often others send it.
    """
    symbols = randomizer.reports(values, rng).symbols.ravel()
    first, second = (randomizer.count_pmf(x, 0) for x in randomizer.worst_pair())
    kinds, many = np.unique(np.delete(values[:, 0], placed), return_counts=True)
    others = sum(
        count * randomizer.count_pmf(np.array([kind]), 0)
        for kind, count in zip(kinds, many, strict=True)
    )
    weights = (second - first) / np.maximum(others, first + second)
    counts = np.bincount(symbols, minlength=len(first))
    return Tally(np.array([symbols.sum()], np.int64), len(values)), float(
        weights @ (counts - others)
    )
