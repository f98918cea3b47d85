"""The protocols of the papers: pure mathematics over `shuffle_sim`, no I/O and no Ray."""

from protocols.central.pan_private import PanPrivateACSA
from protocols.optimisation.phases import Phased
from protocols.shuffle.acsa import ShuffleACSA
from protocols.shuffle.gd import ShuffleGD
from protocols.shuffle.sgd import ShuffleSGD
from protocols.sums.scalar_sum import ScalarSum
from protocols.sums.vector_sum import VectorSum

__all__ = [
    "PanPrivateACSA",
    "Phased",
    "ScalarSum",
    "ShuffleACSA",
    "ShuffleGD",
    "ShuffleSGD",
    "VectorSum",
]
