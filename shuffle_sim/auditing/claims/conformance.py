"""Conformance checks: theorems, randomizers, runtimes and protocols do what they state."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.laws.statistics import LawError, check_same_law
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.privacy.theorems import Theorem
from shuffle_sim.protocol.base import Protocol, Query
from shuffle_sim.protocol.binding import UNCHECKED, checked_event
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.codec import decode
from shuffle_sim.wire.fingerprint import fingerprint


def check_theorem(theorem: Theorem[Any]) -> None:
    """A theorem keeps its contract on its own `examples`.

    epsilon falls with delta and grows with the number of releases, delta falls with epsilon, the
    two are inverse to each other, and neither undercuts an exact worst pair or what the theorem
    states of one release.

    Raises:
        LawError: naming the example and what does not hold.
    """
    if not theorem.examples:
        raise LawError(f"{type(theorem).__name__} has no examples")
    for event in theorem.examples:
        if type(event) is not theorem.event:
            raise LawError(f"{event} is not a {theorem.event.__name__}")
        for fault in _faults(theorem, event):
            raise LawError(f"{type(theorem).__name__}, {event}: {fault}")


_DELTAS = (0.0, 1e-9, 1e-6, 1e-4, 1e-2, 0.3)
_EPSILONS = (0.0, 0.1, 0.5, 1.0, 3.0, 10.0)
_SLACK = 1e-6  # of bisections and minimisers, relative


def _faults(theorem: Theorem[Any], event: Any) -> Iterator[str]:
    one, three = ((event, 1),), ((event, 3),)
    by_delta = [theorem.epsilon(one, delta) for delta in _DELTAS]
    by_epsilon = [theorem.delta(one, epsilon) for epsilon in _EPSILONS]
    if min(by_delta) < 0 or not all(0 <= delta <= 1 for delta in by_epsilon):
        yield f"epsilon below 0 or delta outside [0, 1]: {by_delta}, {by_epsilon}"
    if any(later > before * (1 + _SLACK) for before, later in pairwise(by_delta)):
        yield f"epsilon grows with delta: {by_delta}"
    if any(later > before * (1 + _SLACK) for before, later in pairwise(by_epsilon)):
        yield f"delta grows with epsilon: {by_epsilon}"
    for delta, epsilon in zip(_DELTAS, by_delta, strict=True):
        if theorem.epsilon(three, delta) < epsilon * (1 - _SLACK):
            yield f"three releases have a smaller epsilon than one at delta {delta}"
        exact = theorem.exact(event, delta) if delta > 0 else None
        if exact is not None and epsilon < exact * (1 - _SLACK):
            yield f"epsilon {epsilon} is below the exact {exact} at delta {delta}"
        if delta == 0 and epsilon < theorem.pure(event) < math.inf:
            yield f"epsilon {epsilon} at delta 0 is below the pure {theorem.pure(event)}"
        most = max(delta, 1e-300) * 1.01
        if 0 < epsilon < math.inf and theorem.delta(one, epsilon * 1.01) > most:
            yield f"delta at epsilon {epsilon} is above the {delta} it was found for"
    for epsilon, delta in zip(_EPSILONS, by_epsilon, strict=True):
        if theorem.delta(three, epsilon) < delta * (1 - _SLACK):
            yield f"three releases have a smaller delta than one at epsilon {epsilon}"
        if 1e-12 < delta < 0.5 and theorem.epsilon(one, delta * 1.01) > epsilon * 1.01 + 1e-4:
            yield f"epsilon at delta {delta} is above the {epsilon} it was found for"


def check_randomizer(
    randomizer: Randomizer, xs: Floats, *, repeats: int = 3000, seed: int = 0
) -> None:
    """A randomizer keeps its contract on the values `xs` (users, ...), at least two of them
    different.

    Every report has the same number of messages whatever the datum; values are admitted once and
    for all; `counts` and `tally` have the law of `randomize`. Where messages are words, `reports`
    and `tallied` have it. False-alarm rate at most 1e-6 per label or word, sampler and value.

    Raises:
        LawError: naming what does not hold.
    """
    rng = np.random.default_rng(seed)
    admitted, _ = randomizer.admit(xs)
    again, clipped = randomizer.admit(admitted)
    if clipped or not np.allclose(dense(admitted), dense(again), rtol=1e-12, atol=0):
        raise LawError("admit changes values it has admitted")
    if randomizer.view != "sums":
        _check_words(randomizer, dense(admitted), repeats, rng)
        return
    labels = randomizer.alphabet.labels
    total = np.zeros((repeats, labels), np.int64)
    for x in dense(admitted):
        reports = [randomizer.randomize(x, rng) for _ in range(repeats)]
        sizes = {(r.reports, r.per_label, r.packed.shape, r.alphabet) for r in reports}
        if sizes != {(1, randomizer.per_label, (1, randomizer.report_bytes), randomizer.alphabet)}:
            raise LawError("the size of a report depends on the datum or on chance")
        literal = np.array([randomizer.reduced(report.sums()) for report in reports])
        fast = randomizer.counts(np.repeat(x[None], repeats, axis=0), rng)
        total += literal
        for label in range(labels):
            check_same_law(literal[:, label], fast[:, label])
    tallies = np.array([randomizer.tally(admitted, rng) for _ in range(repeats)])
    for label in range(labels):
        check_same_law(randomizer.reduced(total)[:, label], randomizer.reduced(tallies)[:, label])


_WORDS = 64  # that are compared, from the first on


def _check_words(
    randomizer: Randomizer, xs: Floats, repeats: int, rng: np.random.Generator
) -> None:
    """How often each word comes, by each sampler, against `randomize`."""
    words = min(randomizer.alphabet.symbols, _WORDS)
    total = np.zeros((repeats, words), np.int64)
    for x in xs:
        defined = [randomizer.randomize(x, rng) for _ in range(repeats)]
        literal = np.array([sent.tally().dense(words) for sent in defined])
        sent = randomizer.reports(np.repeat(x[None], repeats, axis=0), rng)
        if sent.each is None or sent.reports != repeats:
            raise LawError(f"reports of {sent.reports} users, asked were {repeats}")
        fast, said = np.zeros((repeats, words), np.int64), sent.words
        users, looked = np.repeat(np.arange(repeats), sent.each), said < words
        np.add.at(fast, (users[looked], said[looked].astype(np.int64)), 1)
        total += literal
        _check_alike(literal, fast)
    tallies = [randomizer.tallied(xs, rng) for _ in range(repeats)]
    if any(tally.reports != len(xs) for tally in tallies):
        raise LawError("a tally is of other reports than those asked")
    _check_alike(total, np.array([tally.dense(words) for tally in tallies]))


def _check_alike(first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """The same law word by word; a word that comes always as often is compared as it is."""
    for one, other in zip(first.T, second.T, strict=True):
        if one.min() == one.max() == other.min() == other.max():
            continue
        check_same_law(one, other)


def check_runtime(
    make: type[Runtime], protocol: Protocol[object], data: ArrayLike, *, workers: int = 2
) -> None:
    """A runtime gives the very bits of the in-process one, at every fidelity.

    Raises:
        LawError: naming the fidelity at which it does not.
    """
    for fidelity in ("literal", "counts", "aggregate"):
        mine = run(protocol, data, runtime=make(), workers=workers, fidelity=fidelity, seed=1)
        shards = mine.shuffler_shards
        reference = run(protocol, data, fidelity=fidelity, seed=1, shuffler_shards=shards)
        if not np.array_equal(mine.value, reference.value) or mine.costs != reference.costs:
            raise LawError(f"{fidelity}: another result than in process")


def check_protocol(protocol: Protocol[Any], data: ArrayLike, *, seed: int = 1) -> None:
    """A protocol keeps its contract in a run on the data.

    Its functions are pure: asked again, they give the same. Each round's event is the one its
    randomizer derives, and users can decode its broadcast. Any number of workers gives the same
    bits. A query works row by row.

    Raises:
        LawError: naming the round and what does not hold.
    """
    rows = np.asarray(data)
    rounds = 0
    state: Any = protocol.init()
    rng = np.random.default_rng(seed)
    while (spec := protocol.plan(state)) is not None:
        number, vocabulary = rounds, (Cohort, *protocol.vocabulary)
        try:
            sent = spec.broadcast(vocabulary)
            decode(sent, vocabulary)
            asked_of = spec.randomizer, spec.query, spec.cohort
            known = checked_event(spec.event, *asked_of, protocol.honest_fraction)
        except (ParameterError, TypeError, FrameError) as error:
            raise LawError(f"round {number}: {error}") from error
        if not known:
            raise LawError(f"round {number}: {UNCHECKED}")
        again = protocol.plan(state)
        if again is None or again.broadcast() != sent or again.event != spec.event:
            raise LawError(f"round {number}: planned again from the same state it is another")
        asked = np.asfortranarray(
            np.concatenate([rows[low:high] for low, high in spec.cohort.ranges]), np.float64
        )
        together = dense(spec.query(asked))
        alone = [dense(spec.query(np.asfortranarray(row[None])))[0] for row in asked[:16]]
        if not np.allclose(together[:16], alone, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise LawError(f"round {number}: the query of a row depends on other rows")
        _check_apart(number, spec.query, asked[:16])
        values, _ = spec.randomizer.admit(spec.query(asked))
        tally = spec.randomizer.tallied(values, rng)
        before = fingerprint(state)
        estimates = [spec.analyze(tally) for _ in range(2)]
        first, second = (fingerprint(protocol.update(state, each)) for each in estimates)
        if first != second:
            raise LawError(f"round {number}: the same view gives two states")
        following = protocol.update(state, estimates[0])
        if fingerprint(state) != before:
            raise LawError(f"round {number}: update changes the state it is given")
        rounds, state = rounds + 1, following
    if not rounds:
        raise LawError("a protocol has at least one round")
    results = [
        run(protocol, rows, workers=workers, seed=seed) for workers in (1, min(3, len(rows)))
    ]
    if fingerprint(results[0].value) != fingerprint(results[1].value):
        raise LawError("another number of workers gives another result")


def _check_apart(number: int, query: Query, rows: Floats) -> None:
    """Hold what a query proves: a record of another user in place of its own moves a value."""
    if not query.apart < math.inf:
        return
    records = rows.shape[1] if rows.ndim > 2 else 1
    values, others = dense(query(rows)), np.roll(rows, 1, axis=0)
    for place in range(min(records, 8)):
        at = np.s_[:, place] if rows.ndim > 2 else np.s_[:]
        neighbours = rows.copy(order="F")
        neighbours[at] = others[at]
        moved = float(np.linalg.norm(dense(query(neighbours)) - values, axis=-1).max())
        if moved > query.apart * (1 + 1e-9):
            found = f"a record moves a value by {moved:.3g}, stated is {query.apart:.3g}"
            raise LawError(f"round {number}: {found}")
