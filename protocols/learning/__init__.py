"""Training of linear models: the trainer, and estimators for scikit-learn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from protocols.learning.training import Trainer

if TYPE_CHECKING:
    from protocols.learning.estimators import (
        ClippingWarning,
        ShuffleLinearSVC,
        ShuffleLogisticRegression,
        ShuffleRegressor,
    )
    from protocols.learning.robust import HeavyTailedClassifier, HeavyTailedRegressor

__all__ = [
    "ClippingWarning",
    "HeavyTailedClassifier",
    "HeavyTailedRegressor",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShuffleRegressor",
    "Trainer",
]


def __getattr__(name: str) -> Any:
    """The estimators are loaded on demand: they need scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "robust" if name.startswith("HeavyTailed") else "estimators"
    return getattr(import_module(f"protocols.learning.{module}"), name)
