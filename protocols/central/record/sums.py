"""The trusted curator's sum: rows clipped to a ball, added, and released by one mechanism."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.sums.encoding import MAGNITUDES
from shuffle_sim.arrays import Floats, all_finite, lengths
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, one_of, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian, Noise, RelaxedGamma
from shuffle_sim.protocol.base import check_rows
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic, Total

MECHANISMS: dict[str, Callable[[Privacy, int], Noise]] = {
    "gaussian": lambda privacy, d: Gaussian.calibrated(privacy),
    "gamma": RelaxedGamma.calibrated,
}
"""By name: privacy and coordinates to a mechanism in l2; gamma is the l2-Laplace at delta 0."""


@dataclass(frozen=True)
class BallSum(Statistic):
    """The sum of rows scaled into the l2 ball around 0, (users, d) to (d,).

    Attributes:
        radius: of the ball.
        d: columns of the rows; None: any.
    """

    radius: float
    d: int | None = None

    @property
    def sensitivity(self) -> Sensitivity:
        """2 radius."""
        proof = "one summand differs, and two vectors of the ball are at most 2 radius apart"
        return Sensitivity(2 * self.radius, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return total(self.part)

    def part(self, rows: Floats) -> Floats:
        """The sum of some rows; a row that is not finite counts as 0.

        Raises:
            ParameterError: rows that are no vectors, such as persons' records: only vectors are
                clipped to the radius as a whole.
        """
        if rows.ndim != 2 or self.d not in (None, rows.shape[1]):
            allowed = f"(users, {self.d or 'd'}): one vector for each user"
            raise ParameterError("data.shape", rows.shape, allowed)
        # A copy is made only where a row asks for it.
        if not all_finite(rows):
            rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        # 1 exactly within the ball; einsum scales and adds without a copy of the rows.
        factors = self.radius / np.maximum(lengths(rows), self.radius)
        return np.asarray(np.einsum("i,ij->j", factors, rows))


class CentralSum(CentralAlgorithm[Floats | None]):
    """The sum of n vectors of R^d in the l2 ball of radius norm_bound, in one release.

    Data of shape (n, d), result of shape (d,). Formal guarantee: that of the mechanism for the
    sensitivity 2 norm_bound.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.

    Attributes:
        family: the name under which comparisons show it.
    """

    family: ClassVar[str] = "central"

    def __init__(
        self, *, n: int, d: int, mechanism: Noise, norm_bound: float = 1.0, delta: float = 0.0
    ) -> None:
        """Explicit parameters; `calibrated` chooses the mechanism."""
        self.n, self.d = integer("n", n), integer("d", d)
        self.norm_bound = real("norm_bound", norm_bound, *MAGNITUDES, closed=(True, True))
        self._delta = real("delta", delta, 0.0, 1.0, closed=(True, False))
        self.mechanism, self.statistic = mechanism, BallSum(self.norm_bound, self.d)
        self._release = Release.of(Cohort.of(0, self.n), self.statistic, mechanism)

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        d: int,
        privacy: Privacy,
        norm_bound: float = 1.0,
        mechanism: str | None = None,
    ) -> "CentralSum":
        """With the least noise for `privacy`.

        Args:
            n: users.
            d: coordinates.
            privacy: of the release; delta = 0 for pure differential privacy.
            norm_bound: longer rows are scaled to it.
            mechanism: one of MECHANISMS; None: the one with the smaller error.
        """
        names = list(MECHANISMS) if mechanism is None else [mechanism]
        if mechanism is None and privacy.delta == 0:
            names.remove("gaussian")
        for name in names:
            one_of("mechanism", name, MECHANISMS)
        made = [MECHANISMS[name](privacy, integer("d", d)) for name in names]
        best = min(made, key=lambda each: each.spread(d))
        return cls(n=n, d=d, mechanism=best, norm_bound=norm_bound, delta=privacy.delta)

    @classmethod
    def settings(
        cls, n: int, d: int, privacy: Privacy
    ) -> Iterator[tuple[str, Callable[[], "CentralSum"]]]:
        """The settings that a comparison of sums shows; one coordinate is a number in [0, 1]."""
        common: dict[str, Any] = {"n": n, "d": d, "privacy": privacy}
        common["norm_bound"] = 0.5 if d == 1 else 1.0  # around the public middle of [0, 1]
        for name in MECHANISMS:
            yield name, partial(cls.calibrated, mechanism=name, **common)

    @property
    def error(self) -> float:
        """Root mean square l2 error of the release."""
        return self.mechanism.error(self.statistic.sensitivity.value, self.d)

    @property
    def standard_error(self) -> float:
        """Predicted standard deviation of each coordinate."""
        return self.error / math.sqrt(self.d)

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n, self.d))

    def init(self) -> Floats | None:
        return None

    def plan(self, state: Floats | None) -> Release | None:
        return self._release if state is None else None

    def update(self, state: Floats | None, estimate: Any) -> Floats:
        return np.asarray(estimate)

    def result(self, state: Floats | None) -> Floats:
        if state is None:
            raise ParameterError("state", state, "that of a finished release")
        return state
