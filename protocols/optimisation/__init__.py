"""What optimisers share, whoever adds the noise."""

from protocols.optimisation.base import DivergedError, Optimiser
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import CuratedPhases, Phased, Phases
from protocols.optimisation.setting import Setting

__all__ = [
    "Choices",
    "CuratedPhases",
    "DivergedError",
    "Optimiser",
    "Phased",
    "Phases",
    "Setting",
]
