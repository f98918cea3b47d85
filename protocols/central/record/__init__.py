"""One release about records: of a certified minimiser, of a sum, of a stream."""

from protocols.central.record.centred import CentredObjective
from protocols.central.record.exponential import ExponentialMechanism, Gibbs
from protocols.central.record.localised import LocalisedExponential
from protocols.central.record.objective_perturbation import ObjectivePerturbation
from protocols.central.record.output_perturbation import (
    AdversarialERM,
    OutputPerturbation,
    SaddleERM,
    TiltedERM,
)
from protocols.central.record.pan_private import PanPrivateACSA
from protocols.central.record.sums import BallSum, CentralSum

__all__ = [
    "AdversarialERM",
    "BallSum",
    "CentralSum",
    "CentredObjective",
    "ExponentialMechanism",
    "Gibbs",
    "LocalisedExponential",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PanPrivateACSA",
    "SaddleERM",
    "TiltedERM",
]
