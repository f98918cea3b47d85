"""Training of linear models: the trainer, and estimators for scikit-learn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from protocols.learning.baselines import Baseline
from protocols.learning.training import Trainer

if TYPE_CHECKING:
    from protocols.learning.clusters import PrivateKMeans, ShuffleKMeans
    from protocols.learning.estimators import (
        ClippingWarning,
        ShuffleLinearSVC,
        ShuffleLogisticRegression,
        ShuffleRegressor,
    )
    from protocols.learning.moments import (
        PrivateCovariance,
        PrivatePCA,
        ShuffleCovariance,
        ShufflePCA,
    )
    from protocols.learning.private import (
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        privatize,
    )
    from protocols.learning.robust import HeavyTailedClassifier, HeavyTailedRegressor
    from protocols.learning.tabular import PublicScaler

__all__ = [
    "Baseline",
    "ClippingWarning",
    "HeavyTailedClassifier",
    "HeavyTailedRegressor",
    "PrivateCovariance",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivateRidge",
    "PublicScaler",
    "ShuffleCovariance",
    "ShuffleKMeans",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShufflePCA",
    "ShuffleRegressor",
    "Trainer",
    "privatize",
]
_ROOMS = "estimators", "private", "robust", "moments", "clusters", "tabular"


def __getattr__(name: str) -> Any:
    """The estimators are loaded on demand: they need scikit-learn."""
    if name in __all__:
        for room in _ROOMS:
            found = vars(import_module(f"protocols.learning.{room}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
