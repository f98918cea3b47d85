"""Optimisers of the shuffle model: every user adds a little of the noise."""

from protocols.shuffle.acsa import ShuffleACSA
from protocols.shuffle.gd import ShuffleGD
from protocols.shuffle.heavy_tails import Piloted
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.one_shot import UserLevelOneShot
from protocols.shuffle.optimiser import FirstOrder
from protocols.shuffle.sgd import ShuffleSGD
from protocols.shuffle.user_level import UserLevelACSA, UserLevelGD

__all__ = [
    "FirstOrder",
    "NoisyMean",
    "Piloted",
    "ShuffleACSA",
    "ShuffleGD",
    "ShuffleSGD",
    "UserLevelACSA",
    "UserLevelGD",
    "UserLevelOneShot",
]
