"""Whole runs of a trusted curator: how far every release moves, and what its noise has in common.

The curator itself is run, without a seed. Its releases are seen as the algorithm gets them; the
values before noise are computed here, on the rows and at the states of those runs.
"""

import time
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.curves import check_curves
from shuffle_sim.auditing.claims.entropy import check_entropy
from shuffle_sim.auditing.claims.neighbours import (
    RereadRows,
    diverse,
    longer,
    nearly,
    neighbours,
    unsound,
)
from shuffle_sim.auditing.claims.plan import UncheckedError
from shuffle_sim.auditing.claims.resuming import Drawn, Kept, renamed
from shuffle_sim.auditing.claims.stated import check_beside, check_charged
from shuffle_sim.auditing.curator.calls import (
    Answered,
    Called,
    Notes,
    allowed,
    charges,
    check_called,
    value_of,
)
from shuffle_sim.auditing.curator.following import check_followed, check_untold
from shuffle_sim.auditing.curator.mechanism_law import check_mechanism
from shuffle_sim.auditing.curator.noise_together import check_independent, check_released_differ
from shuffle_sim.auditing.curator.release_law import (
    DIGITS,
    check_distance,
    digits_of,
    threshold_uniform,
    uniform_of,
)
from shuffle_sim.auditing.curator.whole_tables import check_diverse, check_whole
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.sparse_vector import AboveThreshold
from shuffle_sim.protocol.release import CentralAlgorithm
from shuffle_sim.sampling.randomness import GENERATORS

_SECONDS = 1.0
"""Times `effort`: of the clock for runs, elsewhere too; of this processor for neighbours."""
_FEWEST, _MOST = 12, 600  # runs
_STATED, _STATES = 4, 60  # runs, and states of them, at which neighbours are compared
_ALIKE = 24  # tables that are compared two by two
_OTHERS = 14  # tables of which some are looked at: of long rows, and of short ones
_LONG = 10.0, 1e3  # times a row
_MECHANISMS, _TABLES, _BITS, _ENTROPY = 4, 8, 128, 4
"""Looked at: mechanisms, neighbours, bits of seeds and of entropy."""
_SEEDS = 8
"""Bits of seeds, however long runs take: 16 used ones of 128 hold all 8 once in 10^6."""


class Runs:
    """Runs of an algorithm by the curator, without a seed.

    Args:
        algorithm: what is run.
        first: rows.
        second: rows of which one differs.
        options: of the runs, as for `run`.
        effort: how much longer runs and neighbours are looked at than usually.
    """

    def __init__(
        self,
        algorithm: CentralAlgorithm[Any],
        first: Floats,
        second: Floats,
        options: dict[str, Any],
        *,
        effort: float = 1.0,
    ) -> None:
        """Run it, as often as there is time."""
        self._algorithm, self._first, self._second = algorithm, first, second
        self._untouched = deepcopy(algorithm)  # by rows: runs may keep what they saw
        self._options, self._seconds = options, _SECONDS * effort
        self._most = _MOST * (4 if effort > 1 else 1)
        began = time.perf_counter()
        self.runs: list[list[Answered]] = []
        self.called: list[list[Called]] = []
        self.results, self.said = list[Result](), list[dict[str, str]]()
        fewest = _FEWEST if effort >= 1 else _STATED
        while len(self.runs) < fewest or (
            len(self.runs) < self._most and time.perf_counter() - began < self._seconds
        ):
            seen, called, result = self._run(self._first)
            self.runs.append(seen)
            self.called.append(called)
            self.results.append(result)

    def _run(
        self, rows: Any, drawn: Drawn | None = None, named: str = "", **more: Any
    ) -> tuple[list[Answered], list[Called], Result]:
        seen, notes = list[Answered](), Notes(drawn)
        watched = renamed(copy(self._algorithm), named)
        if "choices" in vars(watched):  # shown beside the result; each run says its own
            watched.choices = dict(watched.choices)
        with notes.listening(watched, seen):
            result = run(watched, rows, **self._options | more)
        self.said.append(vars(watched).get("choices", {}))
        return seen, notes.called, result

    def values(self) -> None:
        """Every release is what its mechanism made of the statistic's own value, as stated.

        Mechanisms begin where no other does: in all releases of all runs, also of runs whose
        seeds differ in one bit.

        Raises:
            LawError: naming the release.
        """
        base, began = self._population(self._first), time.perf_counter()
        begun = list[bytes | None]()
        for seen, called in [*zip(self.runs, self.called, strict=True)][:_FEWEST]:
            check_called(seen, called, base)
        begun += [each.begins for called in self.called for each in called]
        of_first = self.said[: len(self.runs)]
        alike = all(each == of_first[0] for each in of_first)  # else they follow from releases
        others = diverse(self._algorithm, self._first, self._second)
        tables = [*unsound(self._algorithm, self._first), *longer(self._algorithm, self._first)]
        tables += [each for each, _ in islice(others, 0, _OTHERS, _OTHERS // 2)]
        tables += [each for _, each in islice(self.neighbours(), _TABLES)]
        for place, population in enumerate(tables):
            if place > 5 and time.perf_counter() - began > self._seconds / 2:
                break
            with allowed():
                seen, called, result = self._run(population)
                begun += [each.begins for each in called]
                check_called(seen, called, population)
                check_beside(self.results[0], result)
                if alike and self.said[-1] != self.said[0]:
                    raise LawError("what an algorithm says of its choices follows from rows")
        generator = getattr(self._options.get("execution"), "generator", GENERATORS[0])
        if generator == GENERATORS[0]:  # another takes no seed
            for place, bit in enumerate(np.random.default_rng(_BITS).permutation(_BITS).tolist()):
                if place >= _SEEDS and time.perf_counter() - began > self._seconds / 2:
                    break
                _, called, _ = self._run(self._first, seed=1 << bit)
                begun += [each.begins for each in called]
        bits = np.random.default_rng(len(begun)).permutation(_BITS)[:_ENTROPY].tolist()
        if None not in begun:
            check_entropy(lambda: self._run(self._first)[1][0].begins, bits)
        known = [each for each in begun if each is not None]
        if len(set(known)) < len(known):
            raise LawError("two releases draw from one place of a stream")

    def followed(self) -> None:
        """What is asked of the rows, and the result, follow from what was released alone.

        Raises:
            LawError: they do not.
        """
        pair, others = (self._first, self._second), islice(self.neighbours(), 1, 40)
        check_followed(self._untouched, *pair, [each for _, each in others], self._seconds)
        # Other hosts, and what a caller hangs in, have files of their own.
        how = self._options.get("execution") or Execution()
        how = replace(how, on_round=None, on_plan=None, on_start=None)
        check_untold(
            partial(self._run, runtime="inprocess", workers=1, execution=how),
            self._first,
            self._second,
        )

    def resumed(self) -> None:
        """What a stopped run leaves on disk, and who may go on.

        Raises:
            LawError: as `Kept.check`.
        """

        def started(rows: Any, drawn: Drawn | None, named: str, **given: Any) -> Result:
            seen, _, found = self._run(rows, drawn, named, **given)
            check_charged(found, charges(seen))
            return found

        execution = self._options.get("execution") or Execution()
        others = [self._second, *nearly(self._first)]
        drawing = [{"generator": each} for each in GENERATORS if each != execution.generator]
        Kept(started, self._first, others, execution, drawing=drawing).check()

    def charged(self) -> None:
        """Every run charges all that it releases, as planned.

        Raises:
            LawError: one does not.
        """
        for found, seen in [*zip(self.results, self.runs, strict=True)][:_FEWEST]:
            check_charged(found, charges(seen))
        ledger = self.results[0].ledger
        check_curves((each.event for each in ledger.charges), self._algorithm.delta)

    def _population(self, rows: Floats) -> Population:
        return population_for(self._algorithm.unit, rows, self._algorithm.most_records)

    def neighbours(self) -> Iterator[tuple[int, Population]]:
        """Tables that differ from the first in one row: which one, and the table."""
        starts = {low for each in self.runs[0] for low, _ in each.release.cohort.ranges[:1]}
        return neighbours(self._algorithm, self._first, self._second, starts)

    def distances(self) -> None:
        """No release of a run moves farther between neighbours than it states.

        Raises:
            LawError: naming the release.
            UncheckedError: a norm in which distances are not computed.
        """
        whole = self._algorithm, (self._first, self._second), self._seconds
        check_whole(self.runs[0][0].release, *whole)
        check_diverse([each.release for each in self.runs[0]], *whole)
        self._reread()
        base, began, known = self._population(self._first), time.process_time(), True
        answered = [each for found in self.runs[:_STATED] for each in enumerate(found)]
        if len(answered) > _STATES:
            kept = np.linspace(0, len(answered) - 1, _STATES).astype(int)
            answered = [answered[each] for each in kept]
        values = [value_of(each.release, base) for _, each in answered]
        alike: dict[tuple[int, int], list[Any]] = {}
        for row, population in self.neighbours():
            for at, ((place, each), value) in enumerate(zip(answered, values, strict=True)):
                # Tables that differ from the first in one row differ from each other in it, too.
                others = alike.setdefault((row, at), [value])
                found = value_of(each.release, population)
                with naming(f"release {place}"):
                    for other in others[-_ALIKE:]:
                        known &= check_distance(each.release, other, found)
                others.append(found)
                if time.process_time() - began > self._seconds:
                    return
        if not known:
            raise UncheckedError("a distance of functions, whose norm is not computed")

    def _reread(self) -> None:
        """Rows far out that are not in memory, so not seen before a run, are refused or clipped."""
        base, place = self._population(self._first), len(self._first) // 2
        for row, far in product((0, place), _LONG) if isinstance(base, InMemory) else ():
            (table := self._first.copy())[row] *= far
            population = RereadRows(InMemory(table))
            with allowed(), naming("rows that are not in memory"):
                for each in self._run(population)[0][:_FEWEST]:
                    value = value_of(each.release, base)
                    check_distance(each.release, value, value_of(each.release, population))

    def noise(self, alarm: float) -> None:
        """The noise of all releases of all runs: no draw comes again, and none tells of another.

        Raises:
            LawError: naming what is off; by chance with probability `alarm`.
            UncheckedError: a mechanism whose noise has no law here.
        """
        base, rng = self._population(self._first), np.random.default_rng(len(self.runs))
        values: dict[bytes, Any] = {}
        drawn, digits, unknown = list[list[Floats]](), list[Floats](), set[str]()
        for found in self.runs:
            mine, sessions = list[Floats](), dict[int, list[tuple[Answered, Any]]]()
            for place, each in enumerate(found):
                key = each.release.public()
                if key not in values:
                    values[key] = value_of(each.release, base)
                if isinstance(each.release.mechanism, AboveThreshold):
                    opened = each.release.session
                    sessions.setdefault(place if opened is None else opened, []).append(
                        (each, values[key])
                    )
                    continue
                uniform = uniform_of(each.release, values[key], each.released, rng)
                if uniform is None:
                    unknown.add(type(each.release.mechanism).__name__)
                    continue
                mine.append(uniform)
                digits.append(digits_of(each.release, values[key], each.released, rng))
            for asked in sessions.values():
                mechanism: Any = asked[0][0].release.mechanism
                answers = [bool(each.released) for each, _ in asked]
                kept = [value for _, value in asked]
                mine.append(threshold_uniform(mechanism, kept, answers, rng))
            drawn.append(mine)
        if any(drawn):
            every = np.concatenate([*digits, np.empty((0, DIGITS))])
            check_independent(drawn, every, 4 * alarm / 5)
        else:
            check_released_differ([found[-1].released for found in self.runs if found])
        kinds = {repr(each.release.mechanism): each.release for each in self.runs[0]}
        for one in (few := [*kinds.values()][:_MECHANISMS]):
            check_mechanism(one, values[one.public()], alarm / 5 / len(few))
        if unknown:
            raise UncheckedError(f"{', '.join(sorted(unknown))}: no law of its noise")
