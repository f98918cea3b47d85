"""What is minimised: losses over bounded convex domains."""

from protocols.problems.domains import Box, Domain, Intersection, L2Ball, Simplex
from protocols.problems.losses import Hinge, Linear, LinearLoss, Logistic, Loss, MeanEstimation
from protocols.problems.multiclass import MultiClass, OneVsRestHinge, Softmax
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Gradient, Problem
from protocols.problems.regression import Absolute, Huber, Pinball, Regression, Squared

__all__ = [
    "Absolute",
    "Box",
    "Domain",
    "Gradient",
    "Hinge",
    "Huber",
    "Intersection",
    "L2Ball",
    "Linear",
    "LinearLoss",
    "Logistic",
    "Loss",
    "MeanEstimation",
    "MeanGradient",
    "MultiClass",
    "OneVsRestHinge",
    "Pinball",
    "Problem",
    "Regression",
    "Simplex",
    "Softmax",
    "Squared",
]
