"""Objectives of empirical risk, and their minimisers with a certificate."""

from protocols.erm.groups import Grouped
from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import Objective
from protocols.erm.payoff import Payoff, Steepness
from protocols.erm.risk import erm
from protocols.erm.saddle import Saddle
from protocols.erm.smooth import ERM, LinearERM
from protocols.erm.solver import certify, minimise

__all__ = [
    "ERM",
    "Grouped",
    "KinkedERM",
    "LinearERM",
    "Objective",
    "Payoff",
    "Saddle",
    "Steepness",
    "certify",
    "erm",
    "minimise",
]
