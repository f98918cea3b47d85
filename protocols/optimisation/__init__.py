"""What optimisers share, whoever adds the noise."""

from protocols.optimisation.acceleration import AcceleratedState, Schedule
from protocols.optimisation.base import Calibrated, DivergedError, Optimiser, OptimiserState
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import CuratedPhases, Phased, Phases
from protocols.optimisation.setting import Setting

__all__ = [
    "AcceleratedState",
    "Calibrated",
    "Choices",
    "CuratedPhases",
    "DivergedError",
    "Optimiser",
    "OptimiserState",
    "Phased",
    "Phases",
    "Schedule",
    "Setting",
]
