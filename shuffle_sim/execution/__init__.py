"""Running: the engine, the curator, the runtimes, the checkpoint; what a run gives and costs."""

from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.forecast import Forecast
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.execution.runtime import HostLostError, InProcessRuntime, Runtime

__all__ = [
    "Costs",
    "Forecast",
    "HostLostError",
    "InProcessRuntime",
    "ReportCounts",
    "Result",
    "Runtime",
    "run",
]
