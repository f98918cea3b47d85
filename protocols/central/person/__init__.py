"""Everything of one person protected, however many records they have."""

from protocols.central.person.accelerated_erm import AcceleratedPhasedERM
from protocols.central.person.deletion_stability import DeletionStability
from protocols.central.person.linear_time import LinearTimePhasedSGD
from protocols.central.person.phased_output import PhasedERM, PhasedSCO

__all__ = [
    "AcceleratedPhasedERM",
    "DeletionStability",
    "LinearTimePhasedSGD",
    "PhasedERM",
    "PhasedSCO",
]
