"""Gradients without a bound, under pure differential privacy."""

from protocols.central.heavy_tails.clipped_descent import GaussianGD, PureSGD
from protocols.central.heavy_tails.exponential_grid import ExponentialGrid
from protocols.central.heavy_tails.heavy_tailed_erm import HeavyTailedERM
from protocols.central.heavy_tails.pop_localize import PopLocalize

__all__ = [
    "ExponentialGrid",
    "GaussianGD",
    "HeavyTailedERM",
    "PopLocalize",
    "PureSGD",
]
