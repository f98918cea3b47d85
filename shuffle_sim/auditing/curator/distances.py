"""How far apart the values of two neighbours are, in the norm of a sensitivity."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.events import GaussianPairEvent, RangeEvent
from shuffle_sim.protocol.release import Release

_FAR = (0.1, 1.0, 10.0, 1000.0)
"""Lengths of the points at which functions are compared; projected, where there is a domain."""
_STEP, _FLAT, _FINITE = 1e-3, 1e-9, 1e-3  # between slopes; of rounding, of finite differences
_WAYS = 8  # random directions of those, and coordinates


def distance(norm: str, first: Any, second: Any) -> float | None:
    """In the norm, from below where values are functions; None: it is not known here.

    Functions have a `domain`, and `gradient(w)` and `value(w)` at its points.
    """
    if norm == "gradient" or hasattr(first, "domain"):
        return _of_functions(norm, first, second)
    if (found := _DISTANCES.get(norm)) is None:
        return None
    return float(found(np.ravel(np.asarray(second, float) - np.asarray(first, float))))


def check_event_of(release: Release, first: Any, second: Any) -> None:
    """What an event says of functions beside their distance: how sharp a density, how bent slopes.

    Raises:
        LawError: a density is sharper, or slopes bend apart faster.
    """
    if (factor := sharper(release, first)) > 1 + 1e-9:
        raise LawError(f"the density is {factor:.6g} times as sharp as its event allows")
    if (factor := bent(release, first, second)) > 1 + _FINITE:
        raise LawError(f"slopes bend apart {factor:.6g} times as fast as the event allows")


def sharper(release: Release, value: Any) -> float:
    """How much sharper a draw of density ~ e^(-k F) is than its event allows: k over the most.

    1 where no such density is drawn, or nothing is known of its event.
    """
    event, size = release.event, release.sensitivity.value
    if (sharpness := getattr(release.mechanism, "sharpness", None)) is None:
        return 1.0
    ridge = value.strong_convexity
    if isinstance(event, GaussianPairEvent):  # mu = S sqrt(k/ridge) (Gopi, Lee and Liu 2022)
        most = ridge * (event.mu / size) ** 2
    elif isinstance(event, RangeEvent):
        most = event.epsilon / size
    else:
        return 1.0
    return float(sharpness(ridge, size) / most)


def bent(release: Release, first: Any, second: Any) -> float:
    """How far slopes of neighbours' functions bend apart, over what the event's curvature allows.

    In the middle, along coordinates and random directions; 0 where the event states none.
    """
    stated = getattr(release.event, "curvature", None)
    if stated is None or not all(hasattr(first, each) for each in ("gradient", "strong_convexity")):
        return 0.0
    centre, rng = np.asarray(first.domain.center, float), np.random.default_rng(1)

    def apart(w: Floats) -> Floats:
        return np.asarray(second.gradient(w) - first.gradient(w))

    most = 0.0
    for way in [*np.eye(len(centre))[:_WAYS], *rng.normal(size=(_WAYS, len(centre)))]:
        step = way * (_STEP / float(np.linalg.norm(way)))
        most = max(most, abs(float((apart(centre + step) - apart(centre)) @ step)) / _STEP**2)
    # A row's largest second derivative over the ridge, both of the sum or of the mean.
    allowed = stated * first.strong_convexity
    return most / allowed if allowed else math.inf if most > _FLAT else 0.0


_DISTANCES: dict[str, Callable[[Floats], Any]] = {
    "l2": np.linalg.norm,
    "l1": lambda apart: np.abs(apart).sum(),
    "range": lambda apart: apart.max(initial=0.0) - apart.min(initial=0.0),
}


def _of_functions(norm: str, first: Any, second: Any) -> float | None:
    """The largest change of slopes, or the range of the change of values, over some points."""
    needed = {"gradient": "gradient", "range": "value"}.get(norm, "")
    if not all(hasattr(first, each) for each in ("domain", needed)):
        return None
    points = list(_points(first, second))
    if norm == "range":
        changes = np.array([second.value(w) - first.value(w) for w in points])
        return float(changes.max() - changes.min())
    return max(float(np.linalg.norm(second.gradient(w) - first.gradient(w))) for w in points)


def _points(first: Any, second: Any) -> Iterator[Floats]:
    """Along the change of the slope in the middle, coordinates, and random directions."""
    domain = first.domain
    centre, rng = np.asarray(domain.center, float), np.random.default_rng(0)
    ways = [*np.eye(len(centre))[:_WAYS], *rng.normal(size=(_WAYS, len(centre)))]
    if hasattr(first, "gradient"):
        ways.insert(0, second.gradient(centre) - first.gradient(centre))
    yield centre
    for way in ways:
        if length := float(np.linalg.norm(way)):
            for far in _FAR:
                yield domain.project(centre + far * way / length)
                yield domain.project(centre - far * way / length)
