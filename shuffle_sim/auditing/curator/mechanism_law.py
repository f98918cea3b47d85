"""A mechanism itself, far more often than runs call it, and on values of every size and kind."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.entropy import taken
from shuffle_sim.auditing.curator.extremes import check_extremes
from shuffle_sim.auditing.curator.release_law import (
    chances_above,
    check_digits,
    check_tails,
    check_uniform,
    digits_of,
    on_grid,
    uniform_noise,
    uniform_of,
)
from shuffle_sim.auditing.laws.evidence import against_law
from shuffle_sim.auditing.laws.scores import LEVELS, judge
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.privacy.discrete import DiscreteLaplace
from shuffle_sim.privacy.mechanisms import Exponential, Gaussian, Laplace, Noise
from shuffle_sim.privacy.sparse_vector import AboveThreshold
from shuffle_sim.privacy.tested_release import TestedGaussian
from shuffle_sim.protocol.release import Release
from shuffle_sim.sampling.randomness import entropy_of

_OPENED, _DRAWN = 10_000, 1 << 20  # sessions that are opened; draws at once
_TIMES, _FEW = 64, 1000  # values to which noise is added; numbers of noise that comes in vectors
_TESTED, _SCORES, _SHORT = 20_000, 12, 4
"""Draws of a test, of scores that may pass and the first that may not; coordinates of noise."""
_FAR = 6.0  # units of a threshold's noise from it
_LOGS = (np.zeros(2), 150_000), *((np.linspace(0.0, span, 8), 10_000) for span in (2.0, 4.0, 6.0))
"""Log-odds of an exponential mechanism's choices, and how often it is asked: equal ones, and others
of which the worst, in a tail, comes first."""
_CALLS, _SLOW, _NUMBERS = 1 << 15, 1 << 12, 1 << 17  # for vectors as they are released; numbers
_LEAST, _SECONDS = 64, 1.0  # of those calls; of processor time
_TRIPLES = 64  # coordinates of which every three are compared, at most, and at each end every one
_COLLISION = 2.0**-52  # chance that two numbers agree: density times spacing of doubles, at most
_GRIDS = 12, 40  # powers of 1/2 of the spread between which grids are searched
_NARROW = 1 / 64  # of a grid's step: numbers so near its places


def check_mechanism(release: Release, value: Any, alarm: float) -> None:
    """The mechanism itself, and on values of every magnitude.

    Args:
        release: whose mechanism it is.
        value: of its statistic: noise is as long as that.
        alarm: probability of a false alarm.

    Raises:
        LawError: it has another law; by chance with probability `alarm`.
    """
    mechanism, size = release.mechanism, release.sensitivity.value
    rng = np.random.default_rng(entropy_of(None))
    seen, noise = list[Floats](), list[Floats]()
    with naming(f"{type(mechanism).__name__} itself"):
        check_extremes(release, max(1, np.size(value)))
    if isinstance(mechanism, AboveThreshold):
        unit = mechanism.sensitivity / mechanism.epsilon
        far, opened = (
            np.array(mechanism.threshold + _FAR * unit),
            rng.integers(2**62, size=_OPENED),
        )
        asked = [mechanism.sample(far, size, rng, np.random.default_rng(one)) for one in opened]
        # Near the threshold by 6 units: an answer without its noise would never differ.
        passes = float(chances_above(mechanism, [float(far)])[0].mean())
        sums, spread = LEVELS * np.array([float(sum(asked))]), passes * (1 - passes) * _OPENED
        mean, most = np.array([LEVELS * passes * _OPENED]), np.array([LEVELS**2 * spread])
        judge(sums, mean, most, alarm, "sessions that pass")
    elif isinstance(mechanism, Exponential):
        with naming("Exponential itself"):
            for logs, times in _LOGS:
                utilities = logs / mechanism.epsilon * size
                drawn = [mechanism.sample(utilities, size, rng) for _ in range(times)]
                counted, law = np.bincount(drawn, minlength=len(logs)), scipy.special.softmax(logs)
                if len(counted) > len(law) or against_law(counted, law, alarm / len(_LOGS)):
                    raise LawError(f"{len(law)} choices come {counted.tolist()} times")
    elif isinstance(mechanism, TestedGaussian):
        scores = np.unique(np.linspace(0, mechanism.largest + 1, _SCORES).round())
        for score in scores.tolist():
            still = np.append(score, np.zeros(min(np.size(value) - 1, _SHORT)))
            tests = (mechanism.sample(still, size, rng) for _ in range(_TESTED // len(scores)))
            tested = [uniform_of(release, still, each, rng) for each in tests]
            with naming(f"TestedGaussian at a score of {score:g}"):
                if known := [each for each in tested if each is not None]:
                    check_uniform(np.array(known), alarm / len(scores))
    elif (after := getattr(mechanism, "after", None)) is not None:
        still, event, unit = after(value)
        added = (np.asarray(mechanism.sample(still, size, rng)) / unit for _ in range(_FEW))
        seen = [np.array([uniform_noise(event, each) for each in added])]
    elif isinstance(mechanism, Noise):
        for each in _values_for(mechanism, size, rng):
            one = uniform_of(release, each, mechanism.sample(each, size, rng), rng)
            noise += [] if one is None else [one]
        seen = [np.array(noise)]
        with naming(f"{type(mechanism).__name__} itself"):
            _check_vectors(release, np.size(value), rng, alarm / 2)
            _check_words(mechanism)
    with naming(f"{type(mechanism).__name__} itself"):
        for each in seen:
            if each.size:
                check_uniform(each.reshape(-1, 1), alarm / 6 / len(seen))
                check_tails(each, alarm / 6 / len(seen))
                check_cells(each, alarm / 6 / len(seen))


def _check_words(mechanism: Noise) -> None:
    """Every number of noise takes a word of the curator's own stream; half of one, if it is whole.

    Raises:
        LawError: it does not: noise of fewer bits can be tried out.
    """
    d = getattr(mechanism, "coordinates", _TIMES)
    rng = np.random.Generator(np.random.SFC64(entropy_of(None)))
    noise = mechanism.noise(rng, d)
    if (words := taken(rng)) < d / (2 if (noise == np.rint(noise)).all() else 1):
        raise LawError(f"{d} numbers of noise take {words} words of their stream")


def _values_for(mechanism: Noise, size: float, rng: np.random.Generator) -> Iterator[Floats]:
    """Values to which a mechanism adds noise: zeros, and some of every magnitude and sign."""
    d = getattr(mechanism, "coordinates", 1)
    times = _FEW // d
    if isinstance(mechanism, Gaussian | Laplace):  # all at once is fast
        times, d = _TIMES, _DRAWN // _TIMES
    for place in range(times):
        value = _value(place, size, d, rng)
        yield np.rint(value) if isinstance(mechanism, DiscreteLaplace) else value


def _value(place: int, size: float, d: int, rng: np.random.Generator) -> Floats:
    """Zeros, and values of every magnitude: of both signs or one, integers, and all alike."""
    if place % 4 == 0:
        return np.zeros(d)
    # One magnitude for all, or one for each: mechanisms see whole values.
    powers = rng.integers(-10, 21, d if place % 4 == 3 else 1)
    way = rng.standard_normal(d) if place % 2 else rng.random(d)
    value: Floats = size * np.exp2(powers) * way
    kind = place // 4 % 5
    if kind == 1:
        return -np.abs(value)
    if kind == 2:
        return np.abs(value)
    if kind == 3:
        return np.rint(value)
    return np.full(d, value[0]) if kind == 4 else value


def _check_vectors(release: Release, d: int, rng: np.random.Generator, alarm: float) -> None:
    """Noise of the length that is released, call by call: its coordinates, and every three."""
    mechanism, size = release.mechanism, release.sensitivity.value
    assert isinstance(mechanism, Noise)
    quick = isinstance(mechanism, Gaussian | Laplace)
    calls = max(1, min(_CALLS if quick else _SLOW, _NUMBERS // d))
    values, drawn = list[Floats](), list[Floats]()
    began = time.process_time()
    for place in range(calls):
        if place >= _LEAST and time.process_time() - began > _SECONDS:
            break
        one = _value(place // 2 * 2, size, d, rng) if place % 2 else np.zeros(d)
        values.append(np.rint(one) if isinstance(mechanism, DiscreteLaplace) else one)
        drawn.append(np.asarray(mechanism.sample(values[-1], size, rng), float))
    if quick:  # numbers of their own each, so that all rows are one long value
        found = uniform_of(release, np.array(values), np.array(drawn), rng)
        rows = None if found is None else found.reshape(len(drawn), -1)
    else:
        each_row = [uniform_of(release, v, x, rng) for v, x in zip(values, drawn, strict=True)]
        known = [each for each in each_row if each is not None]
        rows = np.array(known) if known else None
    if rows is not None:
        for kind in (rows[::2], rows[1::2]):
            check_uniform(kind, alarm / 12)
            check_cells(kind, alarm / 24)
        ends = np.mod(np.arange(-_TRIPLES, _TRIPLES), rows.shape[1])
        columns = rows[:, np.unique(ends)]
        for column in columns.T:  # an angle may lie amid many others
            check_cells(column, alarm / 12 / len(columns.T))
        check_triples(rows, alarm / 6)
    if on_grid(release, values[0], drawn[0]):
        digits = [digits_of(release, v, x, rng) for v, x in zip(values, drawn, strict=True)]
        check_digits(np.concatenate(digits), alarm / 3)
        return
    # To zeros noise is added without a rounding.
    alone = np.array(drawn[::2])
    if mechanism.spread(d):
        many = mechanism.sample(np.zeros(_DRAWN), size, rng) if quick else alone
        check_exact(np.ravel(many), alarm / 12)
        check_exact(alone.ravel(), alarm / 12)
        check_grids(alone.ravel(), size, size * mechanism.spread(d) / d**0.5, alarm / 6)


def check_cells(numbers: Floats, alarm: float) -> None:
    """Uniform and independent numbers lie as often in each of 32 cells.

    Raises:
        LawError: they do not.
    """
    cells = np.clip(np.floor(LEVELS * numbers.ravel()), 0, LEVELS - 1).astype(np.int64)
    counted = np.bincount(cells, minlength=LEVELS)
    if against_law(counted, np.full(LEVELS, 1 / LEVELS), alarm):
        raise LawError(f"noise comes {counted.min():,} to {counted.max():,} times to 32 cells")


def check_triples(numbers: Floats, alarm: float) -> None:
    """Uniform and independent numbers (draws, columns): products of every three columns."""
    columns = numbers.shape[1]
    if columns < 3:
        return
    chosen = np.random.default_rng(columns).permutation(columns)[:_TRIPLES]
    # Signs alone, and ranks: of mean 0, and no further from it than 1.
    for of, variance in ((np.where(numbers < 0.5, -1.0, 1.0), 1.0), (2 * numbers - 1, 1 / 3)):
        few = of[:, np.sort(chosen)]
        first, second = np.triu_indices(few.shape[1], 1)
        cubes = (few[:, first] * few[:, second]).T @ few
        apart = second[:, None] < np.arange(few.shape[1])  # each three once
        sums = cubes[apart]
        # In units in which a term is at most LEVELS, which is what `judge` expects.
        most = np.full(sums.shape, LEVELS**2 * variance**3 * len(few))
        judge(LEVELS * sums, 0 * sums, most, alarm / 2, "noise: three coordinates")


def check_exact(noise: Floats, alarm: float) -> None:
    """Numbers of a continuous law hardly ever agree as doubles, nor turned.

    Raises:
        LawError: they do: noise takes few values, or comes again.
    """
    row = np.abs(noise)
    met = len(row) - len(np.unique(row))
    # n^2/2 pairs, each of one sign or of two.
    expected = len(row) ** 2 * _COLLISION
    if met and scipy.stats.poisson.sf(met - 1, expected) < alarm:
        raise LawError(f"{met:,} of {len(row):,} draws of noise are the same as others")


def check_grids(noise: Floats, size: float, spread: float, alarm: float) -> None:
    """Numbers of a continuous law are not near multiples of any unit that is tried.

    Units are powers of 2 and of 10, by themselves, of the sensitivity and of the spread.

    Raises:
        LawError: they are: noise lies on a grid.
    """
    low, high = (spread * 2.0**-power for power in (_GRIDS[1], _GRIDS[0]))
    units = set[float]()
    for unit in (1.0, size, spread):
        for base in (2.0, 10.0):
            powers = np.arange(np.ceil(np.log(low / unit) / np.log(base)), 400)
            some = unit * base ** powers[: 2 * (_GRIDS[1] - _GRIDS[0])]
            units |= set(some[(some >= low) & (some <= high)].tolist())
    sure = noise[np.abs(noise) < spread * 8]
    for unit in sorted(units):
        # A unit is 2^-12 of the spread at most: places in it are uniform but for 2^-24.
        off = sure / unit
        near = int((np.abs(off - np.rint(off)) < _NARROW).sum())
        law = scipy.stats.binom(len(sure), 2 * _NARROW)
        if 2 * min(law.cdf(near), law.sf(near - 1)) < alarm / len(units):
            raise LawError(f"noise is near multiples of {unit:.6g} in {near:,} of {len(sure):,}")
