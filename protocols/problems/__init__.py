"""What is minimised: losses over bounded convex domains."""

from protocols.problems.domains import Box, Domain, Intersection, L2Ball, RealSpace, Simplex
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import Hinge, Linear, Logistic, MeanEstimation
from protocols.problems.moments import Moments
from protocols.problems.multiclass import MultiClass, OneVsRestHinge, Softmax
from protocols.problems.polytope import Polytope
from protocols.problems.problem import Gradient, Problem
from protocols.problems.regression import Absolute, Huber, Pinball, Squared
from protocols.problems.weighted import Weighted

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
    "Moments",
    "MultiClass",
    "OneVsRestHinge",
    "Pinball",
    "Polytope",
    "Problem",
    "RealSpace",
    "Simplex",
    "Softmax",
    "Squared",
    "Weighted",
]
