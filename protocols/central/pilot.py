"""A private pilot for heavy tails: a histogram of A that chooses the clip for every k at once.

The best clip is where P(A > C) ~ d/(m epsilon): a quantile, free of k and G_k (docs: theory, Heavy
tails). The pilot's users take part in nothing else.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protocols.central.heavy_tails_plan import Case, Clips, Phase, Setting, best_phases, cased
from protocols.problems.losses import Loss
from protocols.problems.moments import Moments
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, positive
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total

EDGES = 2.0 ** (np.arange(-20, 21) / 2)
"""Upper edges of the bins, in units of `PilotHistogram.scale`; one more bin is above them."""
SHARE = 0.1
"""Of the users that are asked in the pilot, where not given."""


@dataclass(frozen=True)
class PilotHistogram(Statistic):
    """How many rows have A in each bin, shape (42,).

    A row that is not finite counts in the lowest bin: it adds nothing to any gradient. An A beyond
    doubles counts in the highest.

    Attributes:
        loss: states A of a row, `Loss.reach_norms`.
        radius: of the domain.
        scale: unit of the edges, public.
    """

    loss: Loss
    radius: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the range."""
        positive("scale", self.scale)

    @property
    def sensitivity(self) -> Sensitivity:
        """2 in l1."""
        return Sensitivity(2.0, "l1", "one row leaves a bin and enters another")

    def __call__(self, total: Total, users: int) -> Floats:
        """Counts as floats."""
        return total(partial(_counted, self))

    def part(self, rows: Floats) -> Floats:
        """Of some rows."""
        return _counted(self, rows)


def _counted(asked: PilotHistogram, rows: Floats) -> Floats:
    rows = np.asarray(rows, np.float64)
    known: NDArray[np.bool_] = np.asarray(np.isfinite(rows).all(axis=1))
    with np.errstate(over="ignore"):
        reach = asked.loss.reach_norms(np.where(known[:, None], rows, 0.0), asked.radius)
    reach = np.where(known, np.nan_to_num(reach, nan=math.inf, posinf=math.inf), 0.0)
    bins = np.searchsorted(asked.scale * EDGES, reach)
    return np.bincount(bins, minlength=EDGES.size + 1).astype(float)


@dataclass(frozen=True)
class Tails:
    """What a noisy histogram says of A.

    Attributes:
        counts: noisy, (42,).
        users: n_0 of the pilot.
        epsilon: of the run.
        scale: unit of the edges.
    """

    counts: Floats
    users: int
    epsilon: float
    scale: float = 1.0

    def target(self, users: int, d: int) -> float:
        """The noisy tail count at which a phase of m users clips.

        6 (d + 1)/epsilon of m users, as the theorem's own optimum has it; 16/epsilon at least, the
        noise of some bins.
        """
        return max(self.users / users * 6 * (d + 1), 16) / self.epsilon

    def place(self, users: int, d: int) -> int:
        """Index of the least edge whose noisy tail count is at most the target."""
        tails = np.cumsum(self.counts[::-1])[::-1][1:]  # above each edge
        below = np.flatnonzero(np.less_equal(tails, self.target(users, d)))
        return int(below[0]) if below.size else EDGES.size - 1

    def clip(self, users: int, d: int) -> float:
        """C of a phase of m users."""
        return float(self.scale * EDGES[self.place(users, d)])

    def moment(self, power: int, place: int) -> float:
        """E min(A, C)^power at most, by upper edges, C the edge at `place`."""
        edges = self.scale * EDGES[: place + 1]
        inside = float(np.maximum(self.counts[: place + 1], 0.0) @ edges**power)
        above = max(0.0, float(self.counts[place + 1 :].sum())) * float(edges[-1]) ** power
        return max((inside + above) / self.users, float(edges[0]) ** power)


def phases_by_pilot(tails: Tails, setting: Setting, d: int) -> tuple[Phase, ...]:
    """The phases with the least bound at the histogram's moments, clips by its quantiles.

    The bound holds for the estimated moments, not for the true ones. An unlucky clip costs
    accuracy, never privacy.
    """
    lowest = tails.place(integer("n", setting.n), d)
    root = math.sqrt(tails.moment(2, lowest))
    setting = Setting(
        setting.n,
        setting.noise,
        Moments(2, root, root, min(root, tails.moment(1, lowest))),
        setting.reach,
        setting.slope,
    )

    def clips_of(case: Case) -> Clips:
        users = case.users[:, 0].astype(int).tolist()
        places = [tails.place(m, d) for m in users]
        clips = (tails.scale * EDGES[places])[:, None]
        shares = np.array([tails.target(m, d) / tails.users for m in users])[:, None]
        mean = np.array([tails.moment(1, place) for place in places])[:, None]
        square = np.array([tails.moment(2, place) for place in places])[:, None]
        wide = np.broadcast_to(clips, case.strong.shape)
        biases = wide * np.minimum(shares, 1.0)  # E (A - C)_+ ~ C P(A > C) from index 2 on
        return Clips(wide, cased(setting, case, wide, biases, mean, np.sqrt(square)))

    return best_phases(setting, 1, clips_of)[0]
