"""Counts, sums, means and variances of a number by group: bit planes."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.counts.one_view import OneView, View, interval_error
from protocols.counts.pollution import Polluting
from protocols.counts.quantiles import ends
from protocols.counts.randomizer import Words
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.base import Query, check_rows


@dataclass(frozen=True)
class GroupValue(Query):
    """Asks for the group, and for the place of the value in its range, clipped to [0, 1].

    Attributes:
        groups: how many.
        low: of the range.
        high: of the range.
    """

    groups: int
    low: float
    high: float

    def __call__(self, rows: Floats) -> Floats:
        """(users, 2), of rows (users, 2): group and value; -2: of no group."""
        group, value = np.asarray(rows, np.float64).reshape(len(rows), 2).T
        inside = (group >= 0) & (group < self.groups) & (group == np.floor(group))
        part = np.clip((value - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.stack([np.where(inside, group, -2.0), np.where(inside, part, 0.0)], axis=1)


@dataclass(frozen=True)
class Planes(Polluting):
    """The group, and the group again for each bit of the value that is 1, plane by plane.

    Sets are the groups, the planes of v in [0, 1] by falling bits, and those of v^2 if there are
    more. Values are rounded at random to multiples of 1/(2^B - 1).

    Attributes:
        bits: B.
    """

    bits: int = 5

    def __post_init__(self) -> None:
        integer("bits", self.bits, 1, 30)
        if len(self.sizes) not in (1 + self.bits, 1 + 2 * self.bits) or len(set(self.sizes)) != 1:
            raise ParameterError("sizes", self.sizes, "the groups, for one or two moments")
        super().__post_init__()

    @property
    def moments(self) -> int:
        """1: sums; 2: sums of squares, too."""
        return (len(self.sizes) - 1) // self.bits

    @property
    def usual_messages(self) -> float:
        """Half of the bits are 1, more or less."""
        # The group is always sent, so only planes are halved.
        return super().usual_messages - (len(self.sizes) - 1) / 2

    @cached_property
    def places(self) -> Floats:
        """What a 1 of each plane of a moment counts in [0, 1], (bits,)."""
        ones = 2.0 ** np.arange(self.bits - 1, -1, -1) / (2.0**self.bits - 1)
        return np.asarray(ones, np.float64)

    def admit(self, values: Values) -> tuple[Values, int]:
        given = np.asarray(dense(values), np.float64).reshape(-1, 2)
        group = given[:, 0]
        inside = (group >= 0) & (group < self.sizes[0]) & (group == np.floor(group))
        found = np.stack([np.where(inside, group, -1.0), np.clip(given[:, 1], 0.0, 1.0)], axis=1)
        outside = (~inside & (group != -1)) | (found[:, 1] != given[:, 1])
        return found, int(outside.sum())

    def own(self, xs: Floats, rng: np.random.Generator) -> Words:
        group = xs[:, :1].astype(np.int64)
        planes = [group]
        for moment in range(1, self.moments + 1):
            steps = np.clip(xs[:, 1], 0.0, 1.0) ** moment * (2**self.bits - 1)
            whole = np.floor(steps)
            whole += rng.random(len(xs)) < steps - whole
            ones = (whole.astype(np.int64)[:, None] >> np.arange(self.bits - 1, -1, -1)) & 1
            planes.append(np.where(ones == 1, group, -1))
        return np.hstack(planes)

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Two groups, all bits 1: every plane of both differs."""
        return np.array([0.0, 1.0]), np.array([self.sizes[0] - 1.0, 1.0])

    def sums(self, estimates: Floats, moment: int) -> Floats:
        """Sums of v^moment by group, (groups,), of the estimates of all bins."""
        planes = estimates.reshape(len(self.sizes), -1)
        first = 1 + (moment - 1) * self.bits
        return np.asarray(self.places @ planes[first : first + self.bits])

    def sum_variance(self, reports: int) -> float:
        """Of the noise in a sum of v or v^2."""
        noise = np.array(self.noise_variance(reports)[1 : 1 + self.bits])
        return float(self.places**2 @ noise)


@dataclass(frozen=True)
class GroupInterval:
    """Certified ranges by group, all at once; in the units of the data.

    Attributes:
        counts: (groups, 2).
        sums: (groups, 2).
        means: (groups, 2).
        confidence: with which all hold.
    """

    counts: Floats
    sums: Floats
    means: Floats
    confidence: float


@dataclass(frozen=True)
class GroupTable:
    """Counts, sums and means by group, in the units of the data.

    Attributes:
        counts: unbiased, (groups,).
        sums: unbiased, (groups,).
        means: sums over counts, inside the range; not a number where a count is below 1.
        variances: of the values in each group, where second moments were asked for.
        count_error: standard deviation of a count.
        sum_errors: of the sums, with the rounding at its worst, (groups,).
        mean_errors: of the means, to first order, (groups,).
        variance_errors: of the variances, to first order; as they are clipped at 0, above it.
        reports: R.
    """

    counts: Floats
    sums: Floats
    means: Floats
    variances: Floats | None
    count_error: float
    sum_errors: Floats
    mean_errors: Floats
    variance_errors: Floats | None
    reports: int


class GroupMeans(OneView[Planes]):
    """Counts, sums and means of a number in [low, high] by group; data (group, value), (n, 2).

    Values outside the range are clipped, rows of no group are dropped, and both are counted.

    Formal guarantee: exact pairs of noisy counts, of all planes together (docs: theory, Counts).

    Attributes:
        groups: how many.
        value: of a run: a `GroupTable`.
    """

    task: ClassVar[str] = "group-means"

    def __init__(
        self,
        *,
        n: int,
        low: float,
        high: float,
        randomizer: Planes,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        super().__init__(n, randomizer, delta, honest_fraction)
        # 1e150: squares of the width are taken.
        self.low, self.high = ends(low, high, 1e150)
        self.groups = randomizer.sizes[0]

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        groups: int,
        low: float,
        high: float,
        privacy: Privacy,
        bits: int = 5,
        moments: int = 1,
        objective: str = "error",
        honest_fraction: float = 1.0,
        rounds: int = 1,
    ) -> Self:
        """The least noise, or the fewest messages, for the privacy.

        Args:
            n: users.
            groups: how many.
            low: end of the values' range, public.
            high: end of the range, public.
            privacy: of the view.
            bits: B of a value; rounding adds 2^-B/(2 sqrt(count)) of the range to a mean at most.
            moments: 2: variances, too.
            objective: "error", or "messages" for noise in batches.
            honest_fraction: of the users whose noise is counted on.
            rounds: such reports, as of days, that a user answers; the privacy is of all.
        """
        honest = honest_users(honest_fraction, integer("n", n, 2))
        integer("groups", groups, 1, 2**22)
        integer("moments", moments, 1, 2)
        # Noise of plane l in proportion to 2^l: least for the sum of all weighted variances.
        planes = tuple(2.0**plane for plane in range(integer("bits", bits, 1, 30)))
        weights = (1.0, *planes * moments)
        plan = count_planner.one_sided(privacy, objective, integer("rounds", rounds), weights)
        sizes = (groups,) * len(weights)
        made: dict[str, Any] = {"weights": weights, "bits": bits, "releases": rounds}
        return cls(
            n=n,
            low=low,
            high=high,
            randomizer=Planes.of_plan(plan, sizes, honest, privacy, **made),
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )

    @classmethod
    def size(cls, n: int, domain: int, privacy: Privacy) -> dict[str, Any]:
        return {"n": n, "low": 0.0, "high": 1.0, "privacy": privacy, "groups": domain}

    @property
    def error(self) -> float:
        """Standard error of the mean of a group of average size, 1/2, in ranges."""
        # S - C/2 over C, to first order: the variance of S, and a quarter of that of C.
        users = np.array([self.n / self.groups])
        noise = self.randomizer.sum_variance(self.n) + self._rounding(users)[0]
        noise += self.randomizer.noise_variance(self.n)[0] / 4
        return math.sqrt(noise) / float(users[0])

    def attacked(self, attackers: int) -> float:
        """All messages they may send are of the plane that counts most, or of users."""
        planes = self.randomizer
        most = planes.manipulation(attackers) * max(float(planes.places[0]), 0.5)
        return math.hypot(self.error, most * self.groups / self.n)

    @property
    def query(self) -> Query:
        return GroupValue(self.groups, self.low, self.high)

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n, 2))

    def _rounding(self, counts: Floats) -> Floats:
        """Variance of the rounding in a sum of v, at its worst."""
        return np.asarray(np.maximum(counts, 0.0) / (2.0**self.randomizer.bits - 1) ** 2 / 4)

    def answer(self, view: View) -> GroupTable:
        planes, reports, width = self.randomizer, view.reports, self.high - self.low
        counts = view.estimates[: self.groups]
        first = planes.sums(view.estimates, 1)
        noise, count_noise = planes.sum_variance(reports), planes.noise_variance(reports)[0]
        known = counts >= 1
        safe = np.where(known, counts, 1.0)
        part = np.clip(first / safe, 0.0, 1.0)
        means = np.where(known, self.low + width * part, np.nan)
        rounding = self._rounding(counts)
        variances = variance_errors = None
        if planes.moments == 2:
            second = np.clip(planes.sums(view.estimates, 2) / safe, 0.0, 1.0)
            variances = np.where(known, width**2 * np.maximum(second - part**2, 0.0), np.nan)
            # C dV = dS2 - 2 p dS1 + (2 p^2 - S2/C) dC, to first order; S2 has the noise of S1.
            apart = (1 + 4 * part**2) * (noise + rounding) + (
                second - 2 * part**2
            ) ** 2 * count_noise
            variance_errors = np.where(known, width**2 * np.sqrt(apart) / safe, np.nan)
        # C dp = dS - p dC.
        by_mean = noise + rounding + part**2 * count_noise
        return GroupTable(
            counts,
            self.low * counts + width * first,
            means,
            variances,
            math.sqrt(count_noise),
            np.sqrt(self.low**2 * count_noise + width**2 * (noise + rounding)),
            np.where(known, width * np.sqrt(by_mean) / safe, np.nan),
            variance_errors,
            reports,
        )

    def interval(self, table: GroupTable, confidence: float = 0.95) -> GroupInterval:
        """Certified ranges of all counts, sums and means of a run's table at once.

        Counts by the exact law of their noise, sums and means by Bernstein's inequality for it and
        Hoeffding's for the rounding. A third of what may fail goes to each kind.
        """
        beta = interval_error((2 + confidence) / 3, self.groups, False)
        real("confidence", confidence, 0.0, 1.0, closed=(False, False))
        planes, reports, width = self.randomizer, table.reports, self.high - self.low
        honest = min(self.honest, reports)
        low, high = planes.ranges_of(table.counts, reports, honest, beta)
        # Two sides of the noise, and two of the rounding.
        x, jump = math.log(4 / beta), planes.batch
        # Hoeffding: `high` users at most, each within a step of 1/(2^B - 1).
        rounding = np.sqrt(high * x / 2) / (2.0**planes.bits - 1)

        def width_of(count_part: float) -> Floats:
            """Of the noise in sums of v, less count_part times the counts."""
            noise = planes.noise_variance(reports)[0] * count_part**2
            noise += planes.sum_variance(reports)
            slope = jump * max(abs(count_part), float(planes.places[0])) * x / 3
            return slope + math.sqrt(slope**2 + 2 * x * noise) + rounding

        half = width * width_of(self.low / width)
        sums = np.stack([table.sums - half, table.sums + half], axis=1)
        # |S - v C| is at its largest where v is 0 or 1: convex in v.
        with np.errstate(divide="ignore", invalid="ignore"):
            # Over `low`, which is below both the true count and its estimate.
            room = np.where(low > 0, width * width_of(1.0) / low, np.inf)
        # A count below 1 has no mean: `low` is 0 there, and the range is whole.
        means = np.nan_to_num(table.means, nan=(self.low + self.high) / 2)
        ends = np.stack([means - room, means + room], axis=1)
        ends = np.clip(ends, self.low, self.high)
        counts = np.stack([low, high], axis=1)
        return GroupInterval(counts, sums, ends, confidence)
