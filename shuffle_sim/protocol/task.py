"""The task that users and the shuffler agree to before the first round; they refuse the rest."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import FrameError, ParameterError, integer
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.base import BROADCAST, Protocol, Query, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.codec import by_name, count_values, plain
from shuffle_sim.wire.messages import Tally
from shuffle_sim.wire.schema import demand_fit, demand_types, field_types, form

LARGEST_REPORT = 1 << 44
"""Bits of a user's report that roles work on; at literal fidelity less fit a frame."""
_MOST_ROUNDS = 2**32  # frames count them in four bytes
_ROOM = 1024  # bytes and values beyond twice those of rounds that were walked through


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
        for each in fields(self):
            if (value := getattr(self, each.name)) is not None:
                integer(f"limits.{each.name}", value, 1, LARGEST_REPORT)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What the rounds of a run may ask: users and the shuffler hold it, and refuse anything else.

    Attributes:
        rounds: of the run, at most.
        participation: rounds that a user answers in, at most.
        cohort: users asked in a round, at least.
        minimum: reports without which nothing is released, at least.
        report_bits: of a user's report, at most.
        size: bytes of a broadcast, at most.
        values: in a broadcast, at most.
        forms: of queries with their randomizers, without what moves (`schema.form`).
        events: what their views cost; None in it: one that derives none. Empty: any, where rounds
            depend on what was seen.
        chosen: names of fields that follow from views there.
    """

    rounds: int
    participation: int
    cohort: int
    minimum: int
    report_bits: int
    size: int
    values: int
    forms: frozenset[bytes]
    events: tuple[PrivacyEvent | None, ...] = ()
    chosen: tuple[str, ...] = ()

    def demand(self, tree: Any, classes: Mapping[str, type]) -> None:
        """Refuse the tree of a broadcast, before anything in it is built.

        Raises:
            FrameError: `not-agreed`, where it holds another query or randomizer.
        """
        if _form(tree, classes, self.chosen) not in self.forms:
            raise FrameError("not-agreed", f"another query or randomizer: {tree[2:4]!r:.200}")

    def check(
        self, index: int, cohort: Cohort, query: Query, randomizer: Randomizer, minimum: int
    ) -> None:
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
        if self.events and _strength(randomizer, query) not in self.events:
            raise FrameError("not-agreed", f"another strength: {randomizer!r:.200}")

    def within(self, limits: TaskLimits) -> "Task":
        """The task, as far as `limits` go beyond it.

        Raises:
            ParameterError: the protocol itself exceeds a limit, naming it.
        """
        for each in fields(limits):
            limit, asked = getattr(limits, each.name), getattr(self, each.name)
            # Cohort and minimum protect by being large: of them limits are floors.
            most = each.name not in ("cohort", "minimum")
            if limit is not None and (asked > limit if most else asked < limit):
                allowed = f"at {'least' if most else 'most'} {asked:,}: the protocol asks for that"
                raise ParameterError(f"limits.{each.name}", limit, allowed)
        return self


def _strength(randomizer: Randomizer, query: Query) -> PrivacyEvent | None:
    """What a view costs of so many users; another scale or clip is no other randomness."""
    try:
        return randomizer.event(_SIZE, query)
    except ParameterError:
        return None


def _form(tree: Any, classes: Mapping[str, type], chosen: Collection[str]) -> bytes:
    """Of the query and the randomizer in the tree of a broadcast."""
    _, _, query, randomizer, _ = tree
    return form(("t", query, randomizer), classes, chosen)


_SIZE = 10_000  # users for whom events are compared


def task_of(protocol: Protocol[Any], limits: TaskLimits | None = None) -> Task:
    """What a protocol asks for, in all its rounds; nobody is asked for it.

    The rounds are walked through with sums from the middle of what can be. Where rounds depend on
    what was seen (`protocol.adaptive`), of numbers only limits bind. What the queries and
    randomizers of its examples hold binds there, too, but for the fields that it names as `chosen`.

    Raises:
        ParameterError: it exceeds a limit, or broadcasts what is not of its annotations.
    """
    given = limits or TaskLimits()
    if not protocol.adaptive:
        # A copy: one that remembers is left as it was.
        return _of(protocol, walked(copy(protocol))).within(given)
    asked = _of(protocol, protocol.examples())
    asked.within(TaskLimits(cohort=given.cohort, minimum=given.minimum))
    return replace(
        asked,
        rounds=given.rounds or _MOST_ROUNDS,
        participation=given.participation or _MOST_ROUNDS,
        cohort=given.cohort or 1,
        minimum=given.minimum or 1,
        report_bits=given.report_bits or LARGEST_REPORT,
        events=(),
    )


def walked(protocol: Protocol[Any]) -> Iterator[RoundSpec]:
    """All rounds, with sums from the middle of what messages can add up to in place of views.

    Of words, all users send the one in the middle of the domain, as often as messages allow.
    """
    state = protocol.init()
    while (spec := protocol.plan(state)) is not None:
        yield spec
        randomizer, users = spec.randomizer, spec.cohort.size
        if randomizer.view == "sums":
            # Python integers, halved before they must fit 64 bits.
            middle = (users * randomizer.largest_sums // 2).astype(np.int64)
            tally = Tally(middle, users)
        else:
            word = np.full(1, randomizer.alphabet.symbols // 2, np.uint64)
            # Counts say a word once and how often; messages say it each time. There noise may be
            # many messages of each user, and a word below that is as good as not there.
            often = [1] * users
            if randomizer.view == "counts":
                often = [max(users, users * randomizer.per_label // 2)]
            tally = Tally(np.array(often), users, np.repeat(word, len(often)))
        state = protocol.update(state, spec.analyze(tally))


def _of(protocol: Protocol[Any], specs: Iterable[RoundSpec]) -> Task:
    """The task that just these rounds are."""
    vocabulary = (Cohort, *protocol.vocabulary)
    demand_types(vocabulary)
    for kind in vocabulary:
        if issubclass(kind, Query) and "apart" in field_types(kind):
            allowed = "computed from what the query holds every row to, not a field"
            raise ParameterError(f"{kind.__qualname__}.apart", "a field", allowed)
    classes, chosen = by_name(vocabulary), protocol.chosen if protocol.adaptive else ()
    answers, forms, events = Participation(), set[bytes](), list[PrivacyEvent | None]()
    randomizers = dict[tuple[bytes, int], Randomizer]()
    rounds = participation = bits = size = values = 0
    cohort = minimum = _MOST_ROUNDS
    for spec in specs:
        rounds += 1
        participation = max(participation, answers.add(spec.cohort))
        cohort, minimum = min(cohort, spec.cohort.size), min(minimum, spec.minimum)
        sent = spec.broadcast(classes.values())
        try:
            tree = plain(sent)
            found = _form(tree, classes, chosen)
            if found not in forms:  # it has the types of all but the cohort
                demand_fit(tree, BROADCAST, classes)
        except ValueError as error:
            allowed = f"one whose rounds are of their annotations ({error})"
            raise ParameterError("protocol", type(protocol).__name__, allowed) from error
        # Counting walks through all of it: only of the largest so far, hence the room beyond.
        if len(sent) > size:
            size, values = len(sent), max(values, count_values(sent, len(sent)))
        made = found, id(spec.randomizer)
        if made not in randomizers:
            forms.add(found)
            randomizers[made] = spec.randomizer  # kept: ids stay their own
            bits = max(bits, spec.randomizer.report_bits)
            strength = _strength(spec.randomizer, spec.query)
            if strength not in events:
                events.append(strength)
    return Task(
        rounds=rounds,
        participation=participation,
        cohort=cohort,
        minimum=minimum,
        report_bits=min(bits, LARGEST_REPORT),
        size=2 * size + _ROOM,
        values=2 * values + _ROOM,
        forms=frozenset(forms),
        events=tuple(events),
        chosen=chosen,
    )


class Participation:
    """In how many rounds users were asked, by ranges of users with the same number."""

    def __init__(self) -> None:
        """Nobody was."""
        self._starts, self._counts = [0], [0]

    def most(self, cohort: Cohort) -> int:
        """Of the users of a cohort, in how many rounds one was asked at most."""
        return max(
            max(self._counts[self._first(start) : bisect_left(self._starts, stop)])
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

    def _cut(self, place: int) -> int:
        """Begin a range at a user, and say where it is."""
        at = bisect_left(self._starts, place)
        if at == len(self._starts) or self._starts[at] != place:
            self._starts.insert(at, place)
            # Both halves of a range were asked as often.
            self._counts.insert(at, self._counts[at - 1])
        return at
