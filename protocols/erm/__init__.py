"""Objectives of empirical risk, and their minimisers with a certificate."""

from protocols.erm.erm import erm
from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import FiniteSum, Kinked, Objective, gradient_rounding
from protocols.erm.saddle import Grouped, Saddle
from protocols.erm.smooth import ERM, LinearERM, SoftmaxERM
from protocols.erm.solver import Certificate, Minimiser, certify, minimise

__all__ = [
    "ERM",
    "Certificate",
    "FiniteSum",
    "Grouped",
    "Kinked",
    "KinkedERM",
    "LinearERM",
    "Minimiser",
    "Objective",
    "Saddle",
    "SoftmaxERM",
    "certify",
    "erm",
    "gradient_rounding",
    "minimise",
]
