"""What people are told of a fit: clipped rows, noise that drowns it, a search nobody paid for."""

import math
import sys
import warnings
from collections.abc import Mapping
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.guarantee import Privacy

CLIPPED = 0.1
"""Share of rows outside the public bounds from which `ClippingWarning` tells."""
DROWNED = 0.5
"""Length of all noise, over that of the longest gradient, from which `NoiseWarning` tells."""
_LARGEST = 64.0  # epsilon
_SEARCHES: WeakSet[object] = WeakSet()
Outside = Mapping[str, NDArray[np.bool_]]
"""Which rows were clipped, (rows,), by the parameter to widen."""


class ClippingWarning(UserWarning):
    """Many rows lie outside the public bounds and were clipped to them.

    Only the simulator sees this; it is no part of a release.
    """


class NoiseWarning(UserWarning):
    """The noise that privacy needs is about as long as the longest mean of what users send.

    It follows from public numbers alone: users, parameters, epsilon and delta.
    """


class SelectionWarning(UserWarning):
    """A search chooses among private fits by scores that nobody paid for."""


def noise_over_signal(n: int, d: int, privacy: Privacy) -> float:
    """Length of the noise of one release with the whole budget, over the longest mean gradient.

    A mean of n gradients of length L moves by 2 L/n at most. Gaussian noise for that is some
    sqrt(d) sigma long, and that of a pure release d/epsilon times as long as the change.
    """
    if privacy.delta > 0:
        return gaussian.sigma(privacy.epsilon, privacy.delta, 2.0) * math.sqrt(d) / n
    return 2 * d / (n * privacy.epsilon)


def tell_of_clipped(rows: int, outside: Outside) -> int:
    """How many rows were clipped; a warning of many names the parameter to widen."""
    every = np.logical_or.reduce([np.zeros(rows, bool), *outside.values()])
    clipped = int(np.count_nonzero(every))
    if clipped > CLIPPED * rows:
        counts = {name: int(np.count_nonzero(each)) for name, each in outside.items()}
        by = ", ".join(f"{count:,} by {name}" for name, count in counts.items() if count)
        message = f"{clipped:,} of {rows:,} rows were clipped to public bounds, {by}"
        warnings.warn(message + "; state wider ones", ClippingWarning, stacklevel=5)
    return clipped


def tell_of_noise(n: int, d: int, privacy: Privacy, what: str = "gradient") -> None:
    """Warn where noise is as long as what is to be learnt, the mean of n vectors of R^d."""
    if (told := drowned(n, d, privacy, what)) is not None:
        warnings.warn(told, NoiseWarning, stacklevel=5)


def drowned(n: int, d: int, privacy: Privacy, what: str = "gradient") -> str | None:
    """What to do where noise drowns the signal; None: it does not."""
    ratio = noise_over_signal(n, d, privacy)
    if ratio <= DROWNED:
        return None
    enough = f"{math.ceil(n * ratio / DROWNED):,} users"
    low, high = privacy.epsilon, _LARGEST
    try:
        if noise_over_signal(n, d, Privacy(high, privacy.delta)) <= DROWNED:
            # In ratios: 40 halvings leave less of them than is printed.
            for _ in range(40):  # noise falls as epsilon grows
                middle = math.sqrt(low * high)
                over = noise_over_signal(n, d, Privacy(middle, privacy.delta)) > DROWNED
                low, high = (middle, high) if over else (low, middle)
            enough += f", or epsilon {high:.2g} for {n:,}"
    except ParameterError:  # a delta that is none: the fit itself refuses it
        return None
    return (
        f"noise drowns the signal: of {n:,} users and {d:,} parameters at epsilon "
        f"{privacy.epsilon:g} it is {ratio:.2g} times as long as the longest {what}; {enough} "
        "would do"
    )


def tell_of_search() -> None:
    """Warn once where a grid search of scikit-learn fits: its choice is not private."""
    # scikit-learn tells a fit nothing of who calls it: the search is found among the callers.
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "sklearn.model_selection._search":
            search = frame.f_locals.get("self")
            # Fits of one search: told once.
            if search is None or search in _SEARCHES:
                continue
            _SEARCHES.add(search)
            message = (
                "the search chooses by scores that are not private, and every fit spends epsilon "
                "again: privacy_ is of one fit. The shuffle estimators pay for a choice: "
                "select={'radius': [5, 100]}"
            )
            warnings.warn(message, SelectionWarning, stacklevel=2)
            return
