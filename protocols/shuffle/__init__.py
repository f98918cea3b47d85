"""Optimisers of the shuffle model: every user adds a little of the noise."""

from protocols.shuffle.acsa import ShuffleACSA
from protocols.shuffle.gd import ShuffleGD
from protocols.shuffle.heavy_tails import Piloted
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.one_shot import OneShotAverage
from protocols.shuffle.optimiser import FirstOrder
from protocols.shuffle.sgd import ShuffleSGD
from protocols.shuffle.user_level_acsa import UserLevelACSA
from protocols.shuffle.user_level_gd import UserLevelGD
from protocols.shuffle.user_level_one_shot import UserLevelOneShot

__all__ = [
    "FirstOrder",
    "NoisyMean",
    "OneShotAverage",
    "Piloted",
    "ShuffleACSA",
    "ShuffleGD",
    "ShuffleSGD",
    "UserLevelACSA",
    "UserLevelGD",
    "UserLevelOneShot",
]
