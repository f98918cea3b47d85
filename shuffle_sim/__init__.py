"""shuffle-sim: simulate shuffle-model differential privacy with users, shuffler and analyzer apart."""

from shuffle_sim.engine import run
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.result import Result

__all__ = ["Guarantee", "ParameterError", "Privacy", "Result", "ShuffleSimError", "run"]
