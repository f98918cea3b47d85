"""Algorithms of a trusted curator."""

from protocols.central.accelerated_erm import AcceleratedPhasedERM
from protocols.central.clipped_descent import GaussianGD, PureSGD
from protocols.central.deletion_stability import DeletionStability
from protocols.central.exponential import ExponentialMechanism, Gibbs
from protocols.central.exponential_grid import ExponentialGrid
from protocols.central.friendly import FriendlyMean
from protocols.central.heavy_tails import HeavyTailedERM
from protocols.central.linear_time import LinearTimePhasedSGD
from protocols.central.localised import LocalisedExponential
from protocols.central.objective_perturbation import ObjectivePerturbation
from protocols.central.optimiser import CentralOptimiser
from protocols.central.output_perturbation import (
    AdversarialERM,
    OutputPerturbation,
    SaddleERM,
    TiltedERM,
)
from protocols.central.pan_private import PanPrivateACSA, PanState
from protocols.central.phased_output import PhasedERM, PhasedSCO
from protocols.central.pop_localize import PopLocalize
from protocols.central.sums import BallSum, CentralSum

__all__ = [
    "AcceleratedPhasedERM",
    "AdversarialERM",
    "BallSum",
    "CentralOptimiser",
    "CentralSum",
    "DeletionStability",
    "ExponentialGrid",
    "ExponentialMechanism",
    "FriendlyMean",
    "GaussianGD",
    "Gibbs",
    "HeavyTailedERM",
    "LinearTimePhasedSGD",
    "LocalisedExponential",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PanPrivateACSA",
    "PanState",
    "PhasedERM",
    "PhasedSCO",
    "PopLocalize",
    "PureSGD",
    "SaddleERM",
    "TiltedERM",
]
