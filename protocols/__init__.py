"""The protocols of the papers: pure mathematics over `shuffle_sim`, no I/O and no Ray."""

from protocols.acsa import ShuffleACSA
from protocols.gd import ShuffleGD
from protocols.pan_private import PanPrivateACSA
from protocols.phases import Phased
from protocols.scalar_sum import ScalarSum
from protocols.sgd import ShuffleSGD
from protocols.vector_sum import VectorSum

__all__ = ["PanPrivateACSA", "Phased", "ScalarSum", "ShuffleACSA", "ShuffleGD", "ShuffleSGD", "VectorSum"]
