"""Objectives of empirical risk, and their minimisers with a certificate."""

from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import Objective
from protocols.erm.risk import erm
from protocols.erm.saddle import Grouped, Saddle
from protocols.erm.smooth import ERM, LinearERM
from protocols.erm.solver import certify, minimise

__all__ = [
    "ERM",
    "Grouped",
    "KinkedERM",
    "LinearERM",
    "Objective",
    "Saddle",
    "certify",
    "erm",
    "minimise",
]
