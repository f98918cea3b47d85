"""One run on two neighbours with one transcript: how far each of its answers moved."""

import dataclasses
import inspect
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.central.person.outlier_removal import FriendlyGradient, FriendlyScore
from protocols.central.record.objective_perturbation import RowGradients
from shuffle_sim.arrays import Scaled
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import InMemory, Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.mechanisms import Noise
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.protocol.binding import checked_event
from shuffle_sim.protocol.release import Release, WholeStatistic
from shuffle_sim.roles.users import admitted
from shuffle_sim.wire.messages import Tally

from .statements import coupled, encoded, moved

MOST_ANSWERS = 400
MET: set[type] = set()
"""Classes of algorithms, and of what they asked, in all walks of this process."""


@dataclass(frozen=True)
class Answer:
    """One release or round: what moved over what is stated, and why where that is infinite."""

    index: int
    what: str
    ratio: float
    why: str = ""


def populations(algorithm: Any, pair: tuple[Any, Any], whole: bool) -> list[Any] | None:
    """Both neighbours as a run takes them; None where it refuses one before anything is asked.

    Args:
        algorithm: what runs.
        pair: of neighbours.
        whole: whether one party has all rows and checks them. Others are not checked where they
            are not all in one memory: users answer with whatever they have.
    """
    made: list[Any] = []
    for each in pair:
        if algorithm.unit is Unit.PERSON:
            counts = np.array([len(person) for person in each])
            persons = Persons(InMemory(np.concatenate(each)), counts)
            made.append(persons.first(algorithm.most_records))
        else:
            made.append(InMemory(each))
            try:
                algorithm.check(made[-1].array)
            except ParameterError:
                if whole:
                    return None
    return made


def walk(algorithm: Any, pair: tuple[Any, Any], rng: np.random.Generator) -> Iterator[Answer]:
    """Every answer of a run; the transcript is the first neighbour's.

    What fails on one of the neighbours, once the run has begun, tells them apart: infinite.
    """
    state, quiet = algorithm.init(), float(rng.random() < 0.5)
    whole = isinstance(getattr(algorithm.plan(state), "statistic", None), WholeStatistic)
    data = populations(algorithm, pair, whole)
    if data is None:
        return
    if algorithm.unit is Unit.PERSON:
        most = max(each.records.max() for each in data)
        if most > algorithm.most_records:
            yield Answer(-1, "records of a person", most / algorithm.most_records)
    memory: dict[Any, Any] = {}
    for index in range(MOST_ANSWERS):
        try:
            asked = algorithm.plan(state)
        except (ArithmeticError, ParameterError):
            return  # the transcript is public, and so is how it ends
        if asked is None:
            return
        rounds = isinstance(asked, RoundSpec)
        parts = ("query", "randomizer") if rounds else ("statistic", "mechanism")
        MET.update({type(algorithm), *(type(getattr(asked, each)) for each in parts)})
        what = type(getattr(asked, parts[0])).__name__
        try:
            with np.errstate(all="ignore"):
                if rounds:
                    kind = type(asked.query), type(asked.randomizer), "other queries"
                    found, estimate = _round(asked, data, rng, others=kind not in memory)
                    memory[kind] = True
                else:
                    found, estimate = _release(asked, data, rng, quiet, memory, index)
        except Exception as error:  # whatever it is, it comes after the charge
            yield Answer(index, what, np.inf, f"{type(error).__name__}: {error}"[:300])
            return
        for name, ratio in found:
            yield Answer(index, name or what, ratio)
        try:
            state = algorithm.update(state, estimate)
        except RuntimeError:  # diverged: of the public transcript
            return


def _rows(data: Any, cohort: Any) -> Any:
    return np.concatenate([data.rows(*span) for span in cohort.ranges])


def _value(release: Release, data: Any) -> Any:
    rows = _rows(data, release.cohort)
    if isinstance(release.statistic, WholeStatistic):
        return release.statistic.of(rows)
    return release.statistic(lambda part: part(rows), len(rows))


def _release(
    release: Release,
    data: list[Any],
    rng: np.random.Generator,
    quiet: float,
    memory: dict[Any, Any],
    index: int,
) -> tuple[list[tuple[str, float]], Any]:
    values, stated = [_value(release, each) for each in data], release.sensitivity.value
    found = [("", moved(release.mechanism, values[0], values[1], stated))]
    if getattr(release.mechanism.event, "coupled", False):
        rows = getattr(release.statistic, "statistic", release.statistic)  # of moved rows
        assert isinstance(rows, RowGradients)
        bent = coupled(rows.risk.loss)
        found += [("bends of slopes", bent)] if bent > 1 + 1e-6 else []
    if isinstance(release.statistic, FriendlyScore):
        memory["scores"] = values
    if isinstance(release.statistic, FriendlyGradient):
        mean = release.statistic.mean
        least = mean.points - 3 * mean.largest  # as Removal has it: below, nothing is promised
        if min(memory["scores"]) < least:
            found = []
    if isinstance(release.mechanism, Noise):
        size = np.size(values[0])
        noise = release.mechanism.noise(rng, size).reshape(np.shape(values[0]))
        return found, np.asarray(values[0], float) + quiet * stated * noise
    drawn = [rng]
    if release.mechanism.sessions:
        first = index if release.session is None else release.session
        drawn.append(np.random.default_rng(memory.setdefault(first, int(rng.integers(2**62)))))
    return found, release.mechanism.sample(values[0], stated, *drawn)


def _round(
    spec: RoundSpec, data: list[Any], rng: np.random.Generator, *, others: bool
) -> tuple[list[tuple[str, float]], Any]:
    """Of a kind of rounds the first is asked with other queries, too."""
    values = _values(spec, data)
    found = list(encoded(spec.event, spec.randomizer, *values))
    for other in _accepted(spec) if others else ():
        try:
            found += encoded(other.event, other.randomizer, *_values(other, data))
        except (ParameterError, ValueError):
            continue  # users refuse to answer it, or it is none
    if spec.randomizer.view != "sums":
        return found, spec.analyze(spec.randomizer.tallied(values[0], rng))
    tally = Tally(spec.randomizer.tally(values[0], rng), spec.cohort.size)
    return found, spec.analyze(tally)


def _values(spec: RoundSpec, data: list[Any]) -> list[Any]:
    values: list[Any] = [_answered(spec.query, _rows(each, spec.cohort)) for each in data]
    if isinstance(spec.query, Datum) and values[0].ndim > 2:  # then users' rows are anything
        width = getattr(spec.randomizer, "labels", 1)
        values = [np.full((len(each), width), 1e300) for each in values]
        values[1][0] *= -1
    return [admitted(each, spec.randomizer)[0] for each in values]


def _answered(query: Any, rows: Any) -> Any:
    """Of all users: each asks its own rows only, so those who hold the same are asked once."""
    kinds: dict[bytes, int] = {}
    place = [kinds.setdefault(each.tobytes(), len(kinds)) for each in rows]
    found = query(_floats(rows[np.unique(place, return_index=True)[1]]))
    if not isinstance(found, Scaled):
        return found[place]
    norms = None if found.squared_norms is None else found.squared_norms[place]
    return Scaled(np.asfortranarray(found.rows[place]), found.factors[place], norms)


def _floats(rows: Any) -> Any:
    return rows if rows.dtype == object else np.asfortranarray(rows, float)


def _accepted(spec: RoundSpec) -> Iterator[RoundSpec]:
    """Rounds with another query of which users believe that the event is the same."""
    for query in (Datum(), *_bent(spec.query)):
        given = {"query": query, "honest_fraction": 1.0} | {
            name: getattr(spec, name) for name in ("event", "randomizer", "cohort")
        }
        named = inspect.signature(checked_event).parameters
        try:
            checked_event(**{name: given[name] for name in named})
        except ParameterError:
            continue
        yield dataclasses.replace(spec, query=query)


def _bent(query: Any) -> Iterator[Any]:
    """With one of its numbers much smaller or larger."""
    for each in dataclasses.fields(query):
        number = getattr(query, each.name)
        for times in (0.01, 100.0) if type(number) is float else ():
            with suppress(ParameterError):
                yield dataclasses.replace(query, **{each.name: number * times})
