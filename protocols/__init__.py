"""The protocols of the papers: pure mathematics over `shuffle_sim`, no I/O and no Ray."""

from typing import TYPE_CHECKING, Any

from protocols import learning
from protocols.central.heavy_tails import *
from protocols.central.person import *
from protocols.central.record import *
from protocols.comparison import *
from protocols.counts import *
from protocols.erm import *  # `protocols.erm` becomes the function
from protocols.optimisation import *
from protocols.problems import *
from protocols.selection import *
from protocols.shuffle import *
from protocols.sums import *

if TYPE_CHECKING:
    from protocols.learning import *

__all__ = [
    "ERM",
    "Absolute",
    "AcceleratedPhasedERM",
    "AdversarialERM",
    "Box",
    "CarryScalarSum",
    "CarryVectorSum",
    "CentralSum",
    "CentredObjective",
    "Choices",
    "DeletionStability",
    "ExponentialGrid",
    "ExponentialMechanism",
    "FoundHistogram",
    "GaussianGD",
    "Gibbs",
    "GroupMeans",
    "HeavyHitters",
    "HeavyTailedClassifier",
    "HeavyTailedERM",
    "HeavyTailedRegressor",
    "Hinge",
    "Histogram",
    "Huber",
    "L2Ball",
    "LaplaceScalarSum",
    "LaplaceVectorSum",
    "LinearLoss",
    "LinearTimePhasedSGD",
    "LocalisedExponential",
    "Logistic",
    "Loss",
    "Moments",
    "ObjectivePerturbation",
    "Optimiser",
    "OutputPerturbation",
    "PanPrivateACSA",
    "PhasedERM",
    "PhasedSCO",
    "Phases",
    "Pinball",
    "PopLocalize",
    "PrivateCovariance",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivateRidge",
    "Problem",
    "PublicScaler",
    "PureSGD",
    "Quantiles",
    "RealSpace",
    "RunningTotals",
    "SaddleERM",
    "ScalarSum",
    "Setting",
    "ShuffleACSA",
    "ShuffleCovariance",
    "ShuffleGD",
    "ShuffleKMeans",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShufflePCA",
    "ShuffleRegressor",
    "ShuffleSGD",
    "SingleMessageSum",
    "SparseVectorSum",
    "SplitAndMixSum",
    "SplitAndMixVectorSum",
    "Squared",
    "TiltedERM",
    "Trainer",
    "UserLevelACSA",
    "UserLevelGD",
    "UserLevelOneShot",
    "VectorSum",
    "erm",
    "minimise",
    "privatize",
]
"""What most need; all else that a room exports is imported from it, as `protocols.sums`."""


def __getattr__(name: str) -> Any:
    """What `protocols.learning` exports is loaded on demand: it needs scikit-learn."""
    if name not in learning.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(learning, name)
