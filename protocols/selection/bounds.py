"""A private choice of bounds: a shuffled histogram over powers of two, then what needs the bounds.

Each user says in which bin its cells lie, one unit vector for each column. The histogram is a
vector sum with a charge of its own in the run's ledger. Bins with fewer users than noise could
explain are left out, and the bounds are the ends of the others: a released number gives them, no
datum does. What the bounds cut off costs accuracy, never privacy (docs: tables).
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.then import Then, ThenState
from protocols.selection.budget import rest, within
from protocols.sums.planned import PlannedVectorSum, planned_sum
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec, check_rows
from shuffle_sim.wire.messages import Tally

SHARE = 0.2
"""Of epsilon for the histogram, where none is given. As Gaussian releases compose, a fifth of
epsilon leaves the rest of the run 2 % more noise."""
LOWEST, HIGHEST = -20, 40
"""Bins end at 0 and at plus and minus 2^k for k from one to the other; what lies beyond is counted
in the last ones."""
_MISTAKE = 1e-3  # chance that noise alone passes for a bin with users in it


def edges() -> Floats:
    """Where bins end, increasing, (bins + 1,)."""
    powers = 2.0 ** np.arange(LOWEST, HIGHEST + 1)
    return np.concatenate([-powers[::-1], [0.0], powers])


BINS = len(edges()) - 1


@dataclass(frozen=True)
class MagnitudeBins(Query):
    """Asks each user in which bins its cells lie: unit vectors side by side, over sqrt(columns).

    A cell that is not a number makes the answer not finite: its user then sends zero.

    Attributes:
        places: of the columns, int64.
    """

    places: NDArray[np.int64]

    def __call__(self, rows: Floats) -> Values:
        """Shape (users, columns times BINS); no row is longer than 1."""
        ends, count = edges(), len(self.places)
        found = np.zeros((len(rows), count, BINS))
        users = np.arange(len(rows))
        for at, place in enumerate(self.places.tolist()):
            cells = rows[:, place]
            bins = np.clip(np.searchsorted(ends, cells, side="right") - 1, 0, BINS - 1)
            found[users, at, bins] = 1 / math.sqrt(count)
            # Not finite as a whole: the user sends zero, and no bin gets a part of it.
            found[np.isnan(cells), at, 0] = math.nan
        return found.reshape(len(rows), -1)


@dataclass(frozen=True)
class Bounded(Query):
    """Asks what another query asks, of rows that the user first brings into released bounds.

    Attributes:
        query: asked of the mapped rows.
        lower, upper, center, factor: as of `RowMap`.
    """

    query: Query
    lower: Floats
    upper: Floats
    center: Floats
    factor: Floats
    moves: ClassVar[tuple[str, ...]] = ("lower", "upper", "center", "factor")

    @classmethod
    def of(cls, query: Query, by: RowMap) -> "Bounded":
        """By a map without free columns."""
        return cls(query, by.lower, by.upper, by.center, by.factor)

    def __call__(self, rows: Floats) -> Values:
        inside = np.clip(rows, self.lower, self.upper)
        # Kernels read columns.
        return self.query(np.asfortranarray((inside - self.center) * self.factor))


@dataclass(frozen=True)
class WithBounds:
    """What a run with a private choice of bounds gives.

    Attributes:
        low, high: chosen, shape (free columns,).
        value: of the protocol behind it, in the units that these bounds give.
        reports: in its last round.
    """

    low: Floats
    high: Floats
    value: Any
    reports: int


@dataclass(frozen=True)
class BoundsState(ThenState):
    """With the reports of the last round behind the histogram."""

    reports: int = 0


class ChosenBounds(Then, Protocol[Any]):
    """A round that chooses bounds of some columns, then a protocol on the rows within them.

    Data are rows in their own units, (n, columns), finite; the result is a `WithBounds`.

    Formal guarantee: the ledger has the histogram and every round behind it, over the same users;
    they compose adaptively, since which bounds are taken follows from what was released. At most
    the epsilon asked for, at `delta`.
    """

    bound = math.inf  # none is proven: the map of rows rests on released numbers
    assumes = ""

    def __init__(
        self,
        inner: Protocol[Any],
        histogram: PlannedVectorSum,
        by: RowMap,
        columns: int,
        part: Privacy,
    ) -> None:
        """A histogram, which gets `part`, before a protocol; `calibrated` fits both into one."""
        self.inner, self.histogram, self.by, self.columns = inner, histogram, by, columns
        self.part = part
        self.honest_fraction = inner.honest_fraction
        ends = edges()
        at_most = by.bounded(*(np.full(len(by.free), end) for end in (ends[0], ends[-1])))
        self._widest = at_most

    @classmethod
    def calibrated(
        cls,
        make: Callable[[Privacy], Protocol[Any]],
        *,
        n: int,
        by: RowMap,
        privacy: Privacy,
        share: float = SHARE,
        encoding: str | None = None,
        honest_fraction: float = 1.0,
    ) -> "ChosenBounds":
        """The histogram with a share of epsilon, and a protocol with all that is left.

        Args:
            make: the protocol of a budget, for n users.
            n: users.
            by: how rows are mapped, with the columns that are free.
            privacy: of the whole run.
            share: of epsilon for the histogram; delta is that of the whole run for both.
            encoding: of the histogram, best that of the protocol; None: that of the fewest bits.
            honest_fraction: of the users that add their noise.

        Raises:
            ParameterError: no free column, a share outside (0, 1), or so few users that noise hides
                every bin.
        """
        real("choose_bounds", share, 0.0, 1.0, closed=(False, False))
        if not len(by.free):
            allowed = "left out: every column has bounds"
            raise ParameterError("choose_bounds", share, allowed)
        part = Privacy(share * privacy.epsilon, privacy.delta)
        spec = SumSpec(n, len(by.free) * BINS, part, honest_fraction=honest_fraction)
        histogram = planned_sum(spec, encoding)
        least = _threshold(histogram, len(by.free))
        # A column needs a bin with so many: with fewer users than twice that chance alone decides.
        if least > n / 2:
            allowed = (
                f"a larger share, or left out with bounds of {len(by.free)} columns stated: a bin "
                f"is told from noise from some {least:,.0f} users on, so some {2 * least:,.0f} are "
                f"needed, and there are {n:,}"
            )
            raise ParameterError("choose_bounds", share, allowed)
        columns = len(by.lower)
        fits = partial(cls, histogram=histogram, by=by, columns=columns, part=part)
        return within(lambda left: fits(make(left)), privacy, rest(privacy, part))

    @property
    def users(self) -> int:
        return self.inner.users

    @property
    def delta(self) -> float:
        return self.inner.delta

    @property
    def least(self) -> float:
        """Users in a bin from which on it is told from noise."""
        return _threshold(self.histogram, len(self.by.free))

    @property
    def vocabulary(self) -> tuple[type, ...]:
        own = MagnitudeBins, Bounded, type(self.histogram.randomizer)
        return tuple(dict.fromkeys((*own, *self.inner.vocabulary)))

    @property
    def rounds(self) -> int:
        """Of interaction."""
        return 1 + int(getattr(self.inner, "rounds", 1))

    @property
    def rounds_per_user(self) -> int:
        """In how many of them a user answers at most."""
        return 1 + int(getattr(self.inner, "rounds_per_user", 1))

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen, and why."""
        cut = f"private histogram of powers of two; bins of fewer than {self.least:,.0f} users cut"
        return {"bounds": cut, **getattr(self.inner, "choices", {})}

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.users, self.columns))
        self.inner.check(self._widest(rows))

    def stage(self, results: tuple[Any, ...]) -> RoundSpec | Protocol[Any] | None:
        if results:
            return self.inner if len(results) == 1 else None
        made, query = self.histogram, MagnitudeBins(self.by.free)
        return RoundSpec(
            Cohort.of(0, self.users),
            query,
            made.randomizer,
            made.randomizer.event(made.honest, query),
            made.randomizer.estimate,
            made.minimum,
        )

    def plan(self, state: ThenState) -> RoundSpec | None:
        spec: RoundSpec | None = super().plan(state)
        if spec is None or not state.results:
            return spec
        # Released numbers, so a query by them is as public as one by a model.
        mapped = Bounded.of(spec.query, self.by.bounded(*self._ends(state)))
        return dataclasses.replace(spec, query=mapped, analyze=partial(_counted, spec.analyze))

    def update(self, state: ThenState, estimate: Any) -> ThenState:
        value, reports = estimate if state.results else (estimate, 0)
        after = super().update(state, value)
        return BoundsState(after.results, after.stage, after.inner, reports)

    def _ends(self, state: ThenState) -> tuple[Floats, Floats]:
        counts = np.asarray(state.results[0], np.float64).reshape(len(self.by.free), BINS)
        # Users sent unit vectors over sqrt(columns): counts have it back.
        return chosen(counts * math.sqrt(len(counts)), self.least)

    def result(self, state: Any) -> WithBounds:
        if not state.results:
            raise ParameterError("state", state, "that after the histogram")
        return WithBounds(*self._ends(state), super().result(state), state.reports)


def chosen(counts: Floats, least: float) -> tuple[Floats, Floats]:
    """The ends of the outermost bins with at least so many users; else of the fullest bin.

    Args:
        counts: noisy, (columns, BINS).
        least: users.
    """
    ends = edges()
    # The fullest bin always stays: without one there would be no bounds.
    kept = (counts >= least) | (counts == counts.max(axis=1, keepdims=True))
    first, last = kept.argmax(axis=1), BINS - 1 - kept[:, ::-1].argmax(axis=1)
    return ends[first], ends[last + 1]


def _counted(analyze: Callable[[Tally], Any], tally: Tally) -> tuple[Any, int]:
    """An estimate, and the reports that it comes from."""
    return analyze(tally), tally.reports


def _threshold(histogram: PlannedVectorSum, columns: int) -> float:
    """Users beyond which noise takes a bin in one of 1 / _MISTAKE runs; a rule of accuracy."""
    from scipy.special import ndtri

    # A union bound over all bins of all columns, for noise that is nearly normal.
    deviations = float(-ndtri(_MISTAKE / (columns * BINS)))
    return deviations * histogram.standard_error * math.sqrt(columns)
