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
    from protocols.learning.private import (
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        privatize,
    )
    from protocols.learning.robust import HeavyTailedClassifier, HeavyTailedRegressor

__all__ = [
    "ClippingWarning",
    "HeavyTailedClassifier",
    "HeavyTailedRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShuffleRegressor",
    "Trainer",
    "privatize",
]
_PRIVATE = ("PrivateLinearSVC", "PrivateLogisticRegression", "PrivateRidge", "privatize")


def __getattr__(name: str) -> Any:
    """The estimators are loaded on demand: they need scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "private" if name in _PRIVATE else "estimators"
    room = "robust" if name.startswith("HeavyTailed") else room
    return getattr(import_module(f"protocols.learning.{room}"), name)
