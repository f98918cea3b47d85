"""shuffle-sim: simulate shuffle-model differential privacy, users, shuffler and analyzer apart."""

from shuffle_sim.data.model import load_model
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, PluginWarning, ShuffleSimError, WeakPrivacyWarning
from shuffle_sim.execution.budget import Budget
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result
from shuffle_sim.experiments.sweep import sweep
from shuffle_sim.experiments.trial import Trial
from shuffle_sim.privacy.amplification import amplify
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.registry import register

__all__ = [
    "Budget",
    "Execution",
    "Guarantee",
    "ParameterError",
    "PluginWarning",
    "Privacy",
    "Result",
    "ShuffleSimError",
    "Trial",
    "Trust",
    "Unit",
    "WeakPrivacyWarning",
    "amplify",
    "load_model",
    "register",
    "run",
    "sweep",
]
