"""The ledger: what was released on whom, and what that means for the worst-off user."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.notebook import html_table
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.theorems import theorem_of


@dataclass(frozen=True)
class Charge:
    """One release: the cohort and the event, as planned or, after the round, as it really was."""

    cohort: Cohort
    event: PrivacyEvent


class PrivacyLedger:
    """Records every release before it happens; disjoint cohorts compose in parallel, overlapping
    ones per worst user.

    Whether a run was sequential or fully interactive is read off here, from the cohorts really
    used.
    """

    def __init__(self, *, sequential: bool = False) -> None:
        """Start empty; `sequential` makes `charge` refuse a user who already answered."""
        self._planned: list[Charge] = []
        self._settled: dict[int, Charge] = {}
        self._sequential = sequential
        # Disjoint ranges, neighbours merged: as batches come in order, one.
        self._asked: list[tuple[int, int]] = []

    def charge(self, cohort: Cohort, event: PrivacyEvent) -> None:
        """Record a release that is about to happen; from now on it counts as spent, whatever
        becomes of the round.

        Raises:
            ParameterError: the event is of a kind no accountant knows, or a protocol that claims to
                be sequentially interactive asks a user a second time.
        """
        # Refused before anything is released: what nobody can account for is never charged.
        theorem_of(type(event))
        self._planned.append(Charge(cohort, event))
        if self._sequential and not self._first_time(cohort):
            allowed = "users not asked before: the protocol claims sequential interactivity"
            raise ParameterError("cohort", cohort.ranges, allowed)

    def _first_time(self, cohort: Cohort) -> bool:
        """Whether nobody of the cohort was asked before; from now on they were."""
        # A start for the merge, before all users; taken off at the end.
        merged, first = [(-1, -1)], True
        for start, stop in sorted((*self._asked, *cohort.ranges)):
            begin, end = merged[-1]
            first &= start >= end
            if start <= end:
                merged[-1] = begin, max(end, stop)
            else:
                merged.append((start, stop))
        self._asked = merged[1:]
        return first

    def doubt(self, honest: int) -> None:
        """Until it is settled, only so many users are sure to have added noise to the last charge.

        Nothing follows from it here: an error says what is not known. Where charges outlive a run
        they count as that.
        """

    def settle(self, honest: int) -> None:
        """Record how many users of the last charge really added their noise."""
        last = self._planned[-1]
        self._settled[len(self._planned) - 1] = Charge(last.cohort, last.event.with_honest(honest))

    @property
    def settled(self) -> bool:
        """Whether it is known of the last charge how many users added their noise."""
        return not self._planned or len(self._planned) - 1 in self._settled

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All releases as planned, in order."""
        return tuple(self._planned)

    @property
    def sequentially_interactive(self) -> bool:
        """Whether every user answered in at most one round."""
        return all(sum(events.values()) <= 1 for _, events in self.users())

    def users(self, *, settled: bool = True) -> Iterator[tuple[int, Counter[PrivacyEvent]]]:
        """Groups of users with the same history: (first user, events); users never asked are left
        out.
        """
        charges = [self._settled.get(i, c) if settled else c for i, c in enumerate(self._planned)]
        edges = sorted(
            (place, step, index)
            for index, charge in enumerate(charges)
            for start, stop in charge.cohort.ranges
            for place, step in ((start, 1), (stop, -1))
        )
        # Sweeps over the users: between two edges nobody's history changes.
        active: Counter[PrivacyEvent] = Counter()
        for position, (place, step, index) in enumerate(edges):
            active[charges[index].event] += step
            if not active[charges[index].event]:
                del active[charges[index].event]
            if active and (position + 1 == len(edges) or edges[position + 1][0] > place):
                yield place, Counter(active)

    def __repr__(self) -> str:
        """How much was charged."""
        return f"PrivacyLedger({len(self._planned)} charges)"

    def _repr_html_(self) -> str:
        """A table for notebooks: each kind of release, and how often it was charged."""
        kinds = Counter(type(each.event).__name__ for each in self._planned)
        return html_table({name: f"charged {many:,} times" for name, many in kinds.items()})

    def guarantee(
        self, delta: float, *, settled: bool = True, assumptions: tuple[str, ...] = ()
    ) -> Guarantee:
        """The guarantee of the whole run for its worst-off user at `delta`.

        Args:
            delta: in [0, 1).
            settled: with the noise that was really added; False: as planned.
            assumptions: carried into the guarantee.
        """
        worst: Guarantee | None = None
        bases: dict[str, None] = {}
        seen: set[frozenset[tuple[PrivacyEvent, int]]] = set()
        for _, events in self.users(settled=settled):
            key = frozenset(events.items())
            if key in seen:
                continue
            seen.add(key)
            accountant = ShuffleAccountant()
            for event, count in events.items():
                accountant.compose(event, count)
            found = accountant.guarantee(delta, assumptions)
            bases[found.basis] = None
            if worst is None or found.epsilon > worst.epsilon:
                worst = found
        if worst is None:
            return ShuffleAccountant().guarantee(delta, assumptions)
        others = [each for each in bases if each != worst.basis]  # of users with other releases
        return replace(worst, basis="; of others ".join([worst.basis, *others]))


def maximal(histories: Iterable[Counter[PrivacyEvent]]) -> list[Counter[PrivacyEvent]]:
    """Histories that no other one contains: whoever has fewer releases has a smaller epsilon."""
    distinct = {frozenset(each.items()): each for each in histories}
    found: list[Counter[PrivacyEvent]] = []
    for each in sorted(distinct.values(), key=Counter.total, reverse=True):
        if not any(each <= larger for larger in found):
            found.append(each)
    return found
