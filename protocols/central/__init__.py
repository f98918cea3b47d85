"""Algorithms of a trusted curator."""

from protocols.central.pan_private import PanPrivateACSA
from protocols.central.sums import CentralSum

__all__ = ["CentralSum", "PanPrivateACSA"]
