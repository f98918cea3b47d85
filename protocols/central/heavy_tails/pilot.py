"""A private pilot for heavy tails: a histogram of A that chooses the clip for every k at once.

The best clip is where P(A > C) ~ d/(m epsilon): a quantile, free of k and G_k (docs: theory, Heavy
tails). The pilot's users take part in nothing else.
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.central.heavy_tails.plan import (
    Case,
    Clips,
    HeavyTailedPhase,
    Phasing,
    best_phases,
    cased,
)
from protocols.optimisation.tails import BINS, EDGES, Tails, bins_of
from protocols.problems.loss import Loss
from protocols.problems.moments import Moments
from protocols.problems.surrogates import row_norms
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, positive
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total


@dataclass(frozen=True)
class PilotHistogram(Statistic):
    """How many rows have A in each bin, shape (42,).

    Rows that are not finite count as `bins_of` says.

    Attributes:
        loss: gives A of a row, by `row_norms`.
        d: parameters.
        radius: of the domain.
        scale: unit of the edges, public.
    """

    loss: Loss
    d: int
    radius: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    @property
    def sensitivity(self) -> Sensitivity:
        """2 in l1."""
        return Sensitivity(2.0, "l1", "one row leaves a bin and enters another")

    def __call__(self, total: Total, users: int) -> Floats:
        return total(self.part)

    def part(self, rows: Floats) -> Floats:
        """Of some rows."""
        bins = bins_of(
            lambda known: row_norms(self.loss, self.d, known, self.radius), self.scale, rows
        )
        return np.bincount(bins, minlength=BINS).astype(float)


def phases_by_pilot(tails: Tails, setting: Phasing, d: int) -> tuple[HeavyTailedPhase, ...]:
    """The phases with the least bound at the histogram's moments, clips by its quantiles.

    The bound holds for the estimated moments, not for the true ones. An unlucky clip costs
    accuracy, never privacy.
    """
    # Moments of min(A, C) at the clip of all users: bins beyond it are mostly noise.
    lowest = tails.place(integer("n", setting.n), d)
    root = math.sqrt(tails.moment(2, lowest))
    setting = Phasing(
        setting.n,
        setting.noise,
        # G_1 <= G_2, whatever the noise says.
        Moments(2, root, root, min(root, tails.moment(1, lowest))),
        setting.reach,
        setting.slope,
        setting.widened,
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
