"""The task that users and the shuffler agree to before the first round; they refuse the rest."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError, ParameterError, integer
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Tally

LARGEST_REPORT = 1 << 44
"""Bits of a user's report that roles work on; at literal fidelity less fit a frame."""
_MOST_ROUNDS = 2**32  # frames count them in four bytes


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """What users are ready to take part in; None: whatever the protocol asks.

    Attributes:
        rounds: of the run, at most.
        participation: rounds that a user answers in, at most.
        cohort: users asked in a round, at least.
        minimum: reports without which the shuffler releases nothing, at least.
        report_bits: of a user's report, at most.
    """

    rounds: int | None = None
    participation: int | None = None
    cohort: int | None = None
    minimum: int | None = None
    report_bits: int | None = None

    def __post_init__(self) -> None:
        """Check every limit."""
        for each in fields(self):
            if (value := getattr(self, each.name)) is not None:
                integer(f"limits.{each.name}", value, 1, LARGEST_REPORT)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the rounds of a run may ask: users and the shuffler hold it, and refuse anything else.

    Attributes:
        rounds: of the run, at most.
        participation: rounds that a user answers in, at most.
        cohort: users asked in a round, at least.
        minimum: reports without which nothing is released, at least.
        report_bits: of a user's report, at most.
        randomizers: those that may be broadcast, and those whose view costs as much; empty: any of
            the vocabulary, where rounds depend on what was seen.
    """

    rounds: int
    participation: int
    cohort: int
    minimum: int
    report_bits: int
    randomizers: tuple[Randomizer, ...] = ()

    def check(self, index: int, cohort: Cohort, randomizer: Randomizer, minimum: int) -> None:
        """Refuse a round outside the task.

        Raises:
            FrameError: `not-agreed`, naming what is outside.
        """
        asked = {
            "round": (index, index < self.rounds, f"below {self.rounds:,}"),
            "cohort": (cohort.size, cohort.size >= self.cohort, f"at least {self.cohort:,}"),
            "minimum": (minimum, minimum >= self.minimum, f"at least {self.minimum:,}"),
        }
        for name, (value, agreed, allowed) in asked.items():
            if not agreed:
                raise FrameError("not-agreed", f"{name} {value:,}, agreed is {allowed}")
        bits = randomizer.report_bits
        if bits > self.report_bits:
            raise FrameError("not-agreed", f"{bits:,} bits a report, at most {self.report_bits:,}")
        if self.randomizers and not any(
            randomizer == each or _as_strong(randomizer, each) for each in self.randomizers
        ):
            raise FrameError("not-agreed", f"another randomizer: {randomizer!r:.200}")

    def within(self, limits: TaskLimits) -> "Task":
        """The task, as far as `limits` go beyond it.

        Raises:
            ParameterError: the protocol itself exceeds a limit, naming it.
        """
        for each in fields(limits):
            limit, asked = getattr(limits, each.name), getattr(self, each.name)
            most = each.name not in ("cohort", "minimum")
            if limit is not None and (asked > limit if most else asked < limit):
                allowed = f"at {'least' if most else 'most'} {asked:,}: the protocol asks for that"
                raise ParameterError(f"limits.{each.name}", limit, allowed)
        return self


def _as_strong(randomizer: Randomizer, agreed: Randomizer) -> bool:
    """Whether a view costs the same: another scale or clip is no other randomness."""
    if type(randomizer) is not type(agreed):
        return False
    try:
        one, other = randomizer.event(_SIZE), agreed.event(_SIZE)
    except ParameterError:
        return False
    return one is not None and one == other


_SIZE = 10_000  # users for whom two events are compared


def task_of(protocol: Protocol[Any], limits: TaskLimits | None = None) -> Task:
    """What a protocol asks for, in all its rounds; nobody is asked for it.

    The rounds are walked through with sums from the middle of what can be. Where rounds depend on
    what was seen (`protocol.adaptive`), only limits bind, and the size of reports.

    Raises:
        ParameterError: it exceeds a limit.
    """
    given = limits or TaskLimits()
    if protocol.adaptive:
        task = Task(
            rounds=given.rounds or _MOST_ROUNDS,
            participation=given.participation or _MOST_ROUNDS,
            cohort=given.cohort or 1,
            minimum=given.minimum or 1,
            report_bits=given.report_bits or LARGEST_REPORT,
        )
        first = protocol.plan(protocol.init())
        if first is not None:
            asked = _of([first])
            asked.within(TaskLimits(cohort=given.cohort, minimum=given.minimum))
        return task
    return _of(walked(copy(protocol))).within(given)  # one that remembers is left as it was


def walked(protocol: Protocol[Any]) -> Iterator[RoundSpec]:
    """All rounds, with sums from the middle of what messages can add up to in place of views."""
    state = protocol.init()
    while (spec := protocol.plan(state)) is not None:
        yield spec
        middle = (spec.cohort.size * spec.randomizer.largest_sums // 2).astype(np.int64)
        state = protocol.update(state, spec.analyze(Tally(middle, spec.cohort.size)))


def _of(specs: Iterable[RoundSpec]) -> Task:
    """The task that just these rounds are."""
    answers, randomizers = Participation(), dict[int, Randomizer]()
    rounds = participation = bits = 0
    cohort = minimum = _MOST_ROUNDS
    kinds: list[Randomizer] = []
    for spec in specs:
        rounds += 1
        participation = max(participation, answers.add(spec.cohort))
        cohort, minimum = min(cohort, spec.cohort.size), min(minimum, spec.minimum)
        if id(spec.randomizer) not in randomizers:
            randomizers[id(spec.randomizer)] = spec.randomizer  # kept: ids stay their own
            bits = max(bits, spec.randomizer.report_bits)
            if not any(_as_strong(spec.randomizer, each) for each in kinds):
                kinds.append(spec.randomizer)
    return Task(
        rounds=rounds,
        participation=participation,
        cohort=cohort,
        minimum=minimum,
        report_bits=min(bits, LARGEST_REPORT),
        randomizers=tuple(kinds),
    )


class Participation:
    """In how many rounds users were asked, by ranges of users with the same number."""

    def __init__(self) -> None:
        """Nobody was."""
        self._starts, self._counts = [0], [0]

    def most(self, cohort: Cohort) -> int:
        """Of the users of a cohort, in how many rounds one was asked at most."""
        return max(
            max(self._counts[self._first(start) : self._after(stop)])
            for start, stop in cohort.ranges
        )

    def add(self, cohort: Cohort) -> int:
        """Count a round of these users; the most that one of them was asked."""
        for start, stop in cohort.ranges:
            low, high = self._cut(start), self._cut(stop)
            self._counts[low:high] = [count + 1 for count in self._counts[low:high]]
        return self.most(cohort)

    def _first(self, place: int) -> int:
        """The range that a user is in."""
        at = bisect_left(self._starts, place)
        return at if at < len(self._starts) and self._starts[at] == place else at - 1

    def _after(self, stop: int) -> int:
        return bisect_left(self._starts, stop)

    def _cut(self, place: int) -> int:
        """Begin a range at a user, and say where it is."""
        at = bisect_left(self._starts, place)
        if at == len(self._starts) or self._starts[at] != place:
            self._starts.insert(at, place)
            self._counts.insert(at, self._counts[at - 1])
        return at
