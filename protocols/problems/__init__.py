"""What is minimised: losses over bounded convex domains."""

from protocols.problems.domains import Box, Domain, Intersection, L2Ball, RealSpace, Simplex
from protocols.problems.erm import erm
from protocols.problems.kinked_erm import KinkedERM
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import Hinge, Linear, Logistic, MeanEstimation
from protocols.problems.moments import Moments
from protocols.problems.multiclass import MultiClass, OneVsRestHinge, Softmax
from protocols.problems.objective import FiniteSum, Kinked, Objective, gradient_rounding
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Gradient, Problem
from protocols.problems.regression import Absolute, Huber, Pinball, Regression, Squared
from protocols.problems.saddle import Grouped, Saddle
from protocols.problems.smooth_erm import ERM, LinearERM, SoftmaxERM
from protocols.problems.surrogates import Surrogate
from protocols.problems.weighted import Weighted

__all__ = [
    "ERM",
    "Absolute",
    "Box",
    "Domain",
    "FiniteSum",
    "Gradient",
    "Grouped",
    "Hinge",
    "Huber",
    "Intersection",
    "Kinked",
    "KinkedERM",
    "L2Ball",
    "Linear",
    "LinearERM",
    "LinearLoss",
    "Logistic",
    "Loss",
    "MeanEstimation",
    "MeanGradient",
    "Moments",
    "MultiClass",
    "Objective",
    "OneVsRestHinge",
    "Pinball",
    "Problem",
    "RealSpace",
    "Regression",
    "Saddle",
    "Simplex",
    "Softmax",
    "SoftmaxERM",
    "Squared",
    "Surrogate",
    "Weighted",
    "erm",
    "gradient_rounding",
]
