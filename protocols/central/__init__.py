"""Algorithms of a trusted curator."""

from protocols.central.optimiser import CentralOptimiser
from protocols.central.pan_private import PanPrivateACSA, PanState
from protocols.central.sums import BallSum, CentralSum

__all__ = ["BallSum", "CentralOptimiser", "CentralSum", "PanPrivateACSA", "PanState"]
