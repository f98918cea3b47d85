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
_ROOMS = {
    "PublicScaler": "tabular",
    **dict.fromkeys(("PrivateKMeans", "ShuffleKMeans"), "clusters"),
    **dict.fromkeys(
        ("PrivateCovariance", "PrivatePCA", "ShuffleCovariance", "ShufflePCA"), "moments"
    ),
    **dict.fromkeys(("HeavyTailedClassifier", "HeavyTailedRegressor"), "robust"),
    **dict.fromkeys(
        ("PrivateLinearSVC", "PrivateLogisticRegression", "PrivateRidge", "privatize"), "private"
    ),
}


def __getattr__(name: str) -> Any:
    """The estimators are loaded on demand: they need scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = _ROOMS.get(name, "estimators")
    return getattr(import_module(f"protocols.learning.{room}"), name)
