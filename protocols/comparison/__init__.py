"""Methods side by side: the same problem under another trust model."""

from protocols.comparison.methods import Method, Methods, sum_methods
from protocols.comparison.training import training_methods

__all__ = ["Method", "Methods", "sum_methods", "training_methods"]
