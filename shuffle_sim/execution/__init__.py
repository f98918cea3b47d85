"""Running: the engine, the curator, the runtimes, the checkpoint; what a run gives and costs."""

from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.forecast import Forecast
from shuffle_sim.execution.history import Event, History, violations
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.execution.runtime import HostLostError, Runtime
from shuffle_sim.execution.simulated import Faults, SimRuntime
from shuffle_sim.execution.sizing import SizePlan

__all__ = [
    "Costs",
    "Event",
    "Execution",
    "Faults",
    "Forecast",
    "History",
    "HostLostError",
    "InProcessRuntime",
    "ReportCounts",
    "Result",
    "Runtime",
    "SimRuntime",
    "SizePlan",
    "run",
    "violations",
]
