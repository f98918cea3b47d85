"""Draws so seldom that no run has them: noise and choices must follow them all the same.

A generator whose first numbers are far out stands in for what comes once in 10^9 draws. A law whose
tails are cut, or drawn again, has another support for every value: that alone is more than delta.
So has one that ends at 0 where its numbers are small.
"""

from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.events import GammaEvent, GaussianEvent, LaplaceEvent
from shuffle_sim.privacy.mechanisms import Exponential, Noise
from shuffle_sim.protocol.release import Release

_FAR = {"standard_normal": 7.0, "laplace": 40.0, "standard_gamma": 40.0}
"""Of normals 10^-12 are farther, of the others e^-40."""
_TIMES = 2.0, 1e-3, 1e-6, 1e-9
"""Noise is compared at so many times those numbers: farther out, and ever nearer to none."""
_FOLLOWS, _CHOICES, _UNLIKELY, _GUMBEL = 0.95, 8, 20.0, 60.0


class Extreme(np.random.Generator):
    """The first numbers that a method is asked for are `times` as far out as `_FAR`."""

    def __init__(self, times: float = 1.0, place: int = 0) -> None:
        """The generator; `place` of the first Gumbel numbers is large."""
        super().__init__(np.random.SFC64(place))
        self._times, self._place = times, place
        self.asked = set[str]()

    def standard_normal(self, size: Any = None, *args: Any, **more: Any) -> Any:
        usual = super().standard_normal(size, *args, **more)
        return self._first("standard_normal", usual, 0.0)

    def standard_gamma(self, shape: Any, size: Any = None, *args: Any, **more: Any) -> Any:
        usual = super().standard_gamma(shape, size, *args, **more)
        return self._first("standard_gamma", usual, float(np.max(shape)))

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return loc + scale * self._first("laplace", super().laplace(0.0, 1.0, size), 0.0)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        found = np.asarray(super().gumbel(loc, scale, size))
        if "gumbel" not in self.asked and self._place < found.size:
            self.asked.add("gumbel")
            found[self._place] = _GUMBEL
        return found

    def _first(self, name: str, usual: Any, beyond: float) -> Any:
        if name in self.asked:
            return usual
        self.asked.add(name)
        far = self._times * (beyond + _FAR[name])
        return far if np.ndim(usual) == 0 else np.full(np.shape(usual), far)


def check_extremes(release: Release, d: int) -> None:
    """Noise follows numbers that are far out, and every choice can be made.

    Args:
        release: whose mechanism it is; one that draws by other means is not looked at.
        d: coordinates of its noise.

    Raises:
        LawError: tails are cut or drawn again, or a choice never comes.
    """
    mechanism, size = release.mechanism, release.sensitivity.value
    if isinstance(mechanism, Exponential):
        for place in range(_CHOICES):
            utilities = np.zeros(_CHOICES)
            utilities[place] = -_UNLIKELY / mechanism.epsilon * size
            rng = Extreme(place=place)
            if mechanism.sample(utilities, size, rng) != place and rng.asked:
                raise LawError(f"a choice of chance e^-{_UNLIKELY:g} never comes")
    elif isinstance(mechanism, Noise) and isinstance(
        release.event, GaussianEvent | GammaEvent | LaplaceEvent
    ):
        far, asked = _norm_at(release, d, 1.0)
        for times in _TIMES if asked else ():
            if _norm_at(release, d, times)[0] < _FOLLOWS * times * far:
                where = "far out" if times > 1 else "near 0"
                raise LawError(f"numbers that are {where} are cut, or drawn again")


def _norm_at(release: Release, d: int, times: float) -> tuple[float, bool]:
    """Of the noise that follows numbers so many times as far out; whether any were asked for."""
    rng = Extreme(times)
    noise: Floats = release.mechanism.sample(np.zeros(d), release.sensitivity.value, rng)
    return float(np.linalg.norm(noise)), bool(rng.asked)
