"""What a curator does with a mechanism: the value it gives, the generator, and what it releases."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.privacy.mechanisms import Noise
from shuffle_sim.protocol.release import Release, WholeStatistic
from shuffle_sim.sampling.randomness import entropy_of

_NEAR = 1e-9  # of floating point: sums over blocks are added in another order
_ATOMS = 60  # draws on each table
_BEGUN = 16  # bytes of a generator that are compared


def _precisely(name: str, place: int) -> Callable[..., Any]:
    """A method of a generator that takes the type of its numbers at a place."""
    true = getattr(np.random.Generator, name)

    def drawn(self: np.random.Generator, *given: Any, **named: Any) -> Any:
        asked = [*given[place : place + 1], named.get("dtype", np.float64)][0]
        # By what is asked: a single number of any type comes as a double.
        if np.dtype(asked) != np.float64:
            raise LawError(f"{name} is drawn in single precision: noise takes few values")
        return true(self, *given, **named)

    return drawn


@dataclass(frozen=True)
class Answered:
    """A release of a run, as the curator answered it."""

    release: Release
    released: Any


@dataclass(frozen=True)
class Called:
    """A call of a mechanism: what it was given, where its generator began, and what it made.

    Attributes:
        again: makes it once more, from the same place of the stream; None where no copy is kept.
    """

    value: Any
    sensitivity: float
    begins: bytes | None
    made: Any
    again: Any


@contextmanager
def allowed() -> Iterator[None]:
    """Pass over rows that are refused; what else they stop they must not.

    Raises:
        LawError: rows stop a run that has begun, and so tell of themselves.
    """
    try:
        yield
    except ParameterError:
        pass
    except ShuffleSimError as error:
        raise LawError(f"rows stop a run: {type(error).__name__}: {error}") from error


def value_of(release: Release, data: Population) -> Any:
    """The value of a statistic before noise."""
    rows = np.concatenate([data.rows(*span) for span in release.cohort.ranges])
    if isinstance(release.statistic, WholeStatistic):
        return release.statistic.of(rows)
    return release.statistic(lambda part: part(rows), len(rows))


def charges(seen: Sequence[Answered]) -> Iterator[Charge]:
    """What the releases of a run are charged."""
    releases = (each.release for each in seen)
    return (Charge(one.cohort, one.event) for one in releases if one.event)


def check_careless(release: Release, value: Any, data: Population, turn: int) -> None:
    """What a solver that stops short leads to is as near as certificates promise; one each turn.

    Raises:
        LawError: it is not: privacy would rest on convergence.
    """
    if known := release.statistic.careless():
        statistic, near = known[turn % len(known)]
        other = value_of(replace(release, statistic=statistic), data)
        apart = float(np.linalg.norm(np.subtract(_point(value), _point(other))))
        if not apart <= near * (1 + _NEAR):
            raise LawError(f"a careless solver ends {apart:.6g} away: {near:.6g} is certified")


def _point(value: Any) -> Any:
    """A statistic's value, or its minimiser where it is a function that a mechanism minimises."""
    made = getattr(value, "minimiser", None)
    return value if made is None else made(np.zeros(value.risk.d))


def check_atoms(release: Release, value: Any) -> None:
    """Draws from a density on the rows: none comes again.

    Raises:
        LawError: one does. A float has more values than draws could meet.
    """
    mechanism = release.mechanism
    if isinstance(mechanism, Noise) or hasattr(mechanism, "after") or mechanism.sessions:
        return  # noise has checks of its own
    rng, size = np.random.default_rng(entropy_of(None)), release.sensitivity.value
    drawn = [np.asarray(mechanism.sample(value, size, rng)) for _ in range(_ATOMS)]
    if drawn[0].dtype.kind == "f" and len({each.tobytes() for each in drawn}) < _ATOMS:
        raise LawError(f"of {_ATOMS} draws from a density two are the same")


def sampled(
    release: Release, place: int, value: Any, rng: np.random.Generator, opened: dict[int, int]
) -> Any:
    """What is released of a value; `opened` has the seeds of sessions by their first release."""
    drawn = [rng]
    if release.mechanism.sessions:
        session = place if release.session is None else release.session
        begun = opened.setdefault(session, int(rng.integers(2**62)))
        drawn.append(np.random.default_rng(begun))
    return release.mechanism.sample(value, release.sensitivity.value, *drawn)


class Precise(np.random.Generator):
    """The same numbers of the same generator; none in single precision, of which there are few."""

    standard_normal = _precisely("standard_normal", 1)
    standard_gamma = _precisely("standard_gamma", 2)
    standard_exponential = _precisely("standard_exponential", 1)
    random = _precisely("random", 1)


class Notes:
    """The calls of mechanisms in a run.

    Attributes:
        called: in order.
    """

    def __init__(self, drawn: Callable[[Any, Any], None] | None = None) -> None:
        """None as yet; `drawn` is told of each before it is made."""
        self.called: list[Called] = []
        self._drawn = drawn

    @contextmanager
    def listening(self, algorithm: object, seen: list[Answered]) -> Iterator[None]:
        """Note within how releases of an algorithm of this class are answered.

        Classes are told, not copies of them: what looks at a type finds the usual one.
        """
        kind: Any = type(algorithm)
        plan, update = kind.plan, kind.update
        with ExitStack() as told:
            known, within = set[type](), list[bool]()

            def planned(this: Any, state: Any) -> Release | None:
                release: Release | None = plan(this, state)
                if release is not None and (made := type(release.mechanism)) not in known:
                    known.add(made)
                    sample = partial(self._sampled, _itself(made.sample))
                    told.enter_context(_told(made, within, sample=sample))
                return release

            def updated(this: Any, state: Any, released: Any) -> Any:
                if (release := plan(this, state)) is not None:
                    seen.append(Answered(release, released))
                return update(this, state, released)

            told.enter_context(_told(kind, [], plan=planned, update=updated))
            yield

    def _sampled(
        self, true: Any, this: Any, value: Any, sensitivity: float, rng: Any, *opened: Any
    ) -> Any:
        given, begins, again = deepcopy(value), None, None
        # A cryptographic stream stays where it is, and is not looked at.
        with suppress(TypeError):
            begins = deepcopy(rng).bytes(_BEGUN)
            drawn = [Precise(deepcopy(each).bit_generator) for each in (rng, *opened)]
            again = partial(true, this, given, sensitivity, *drawn)
        if self._drawn is not None:
            self._drawn(len(self.called), begins)
        made = true(this, value, sensitivity, rng, *opened)
        self.called.append(Called(given, sensitivity, begins, deepcopy(made), again))
        return made


@contextmanager
def _told(kind: type, within: list[bool], **methods: Callable[..., Any]) -> Iterator[None]:
    """Methods of a class are these, but for calls from one of those that share `within`."""
    before = {name: vars(kind).get(name) for name in methods}
    for name, noted in methods.items():
        setattr(kind, name, _Outermost(getattr(kind, name), noted, within))
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                delattr(kind, name)
            else:
                setattr(kind, name, own)


class _Outermost:
    """A method that notes its calls, but for those from one of those that share `within`."""

    def __init__(
        self, true: Callable[..., Any], noted: Callable[..., Any], within: list[bool]
    ) -> None:
        self.true, self._noted, self._within = true, noted, within

    def __get__(self, this: object, kind: type | None = None) -> Callable[..., Any]:
        return self if this is None else partial(self, this)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._within:
            return self.true(*given, **named)
        self._within.append(True)
        try:
            return self._noted(*given, **named)
        finally:
            self._within.pop()

    def __reduce__(self) -> tuple[Any, ...]:
        """Where a class is sent to nobody listens."""
        return _itself, (self.true,)


def _itself(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method that was there before anybody listened."""
    return _itself(method.true) if isinstance(method, _Outermost) else method


def check_called(seen: Sequence[Answered], called: Sequence[Called], data: Population) -> None:
    """Every release is what its mechanism made, once, of the statistic's value.

    Args:
        seen: releases of a run in order.
        called: its calls of mechanisms in order.
        data: of the run.

    Raises:
        LawError: naming the release that is not.
    """
    if len(called) != len(seen):
        raise LawError(f"{len(seen)} releases call mechanisms {len(called)} times")
    for place, (one, call) in enumerate(zip(seen, called, strict=True)):
        stated = one.release.sensitivity.value
        if call.sensitivity != stated:
            raise LawError(f"release {place}: noise for {call.sensitivity:g}, stated is {stated:g}")
        if not _alike(value_of(one.release, data), call.value, _NEAR):
            raise LawError(f"release {place}: noise is added to another value than the statistic's")
        if not _alike(call.made, one.released, 0.0):
            raise LawError(f"release {place}: it is not what its mechanism made")
        # Outside of the run: what draws otherwise for this release alone would show.
        if call.again is not None and not _alike(call.made, call.again(), 0.0):
            raise LawError(f"release {place}: its mechanism draws otherwise within a run")


def _alike(wanted: Any, found: Any, near: float) -> bool:
    if wanted is None or found is None:
        return wanted is found
    try:
        one, other = np.asarray(wanted, float), np.asarray(found, float)
    except (TypeError, ValueError):
        return True  # functions and the like: nothing is known of how near they are
    if one.shape != other.shape:
        return False
    far = near * float(np.abs(one).max(initial=0.0))
    return bool((np.abs(one - other) <= far).all())
