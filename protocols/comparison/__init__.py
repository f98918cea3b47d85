"""Methods side by side: the same problem under another trust model."""

from protocols.comparison.methods import Method, Methods, sum_methods
from protocols.comparison.trained import TrainedMethod, TrainedMethods, train_methods
from protocols.comparison.training import training_methods

__all__ = [
    "Method",
    "Methods",
    "TrainedMethod",
    "TrainedMethods",
    "sum_methods",
    "train_methods",
    "training_methods",
]
