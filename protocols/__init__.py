"""The protocols of the papers: pure mathematics over `shuffle_sim`, no I/O and no Ray."""

from typing import TYPE_CHECKING, Any

from protocols import (
    central,
    comparison,
    counts,
    learning,
    optimisation,
    problems,
    selection,
    shuffle,
    sums,
)
from protocols import erm as empirical  # below, `protocols.erm` becomes the function
from protocols.central.heavy_tails import *
from protocols.central.person import *
from protocols.central.record import *
from protocols.comparison import *
from protocols.counts import *
from protocols.erm import *
from protocols.optimisation import *
from protocols.problems import *
from protocols.selection import *
from protocols.shuffle import *
from protocols.sums import *

if TYPE_CHECKING:
    from protocols.learning import *

__all__ = (
    central.__all__
    + comparison.__all__
    + counts.__all__
    + empirical.__all__
    + learning.__all__
    + optimisation.__all__
    + problems.__all__
    + selection.__all__
    + shuffle.__all__
    + sums.__all__
)


def __getattr__(name: str) -> Any:
    """What `protocols.learning` exports is loaded on demand: it needs scikit-learn."""
    if name not in learning.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(learning, name)
