"""The protocols of the papers: pure mathematics over `shuffle_sim`, no I/O and no Ray."""

from protocols.scalar_sum import ScalarSum
from protocols.vector_sum import VectorSum

__all__ = ["ScalarSum", "VectorSum"]
