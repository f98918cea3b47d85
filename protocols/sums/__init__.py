"""Sums over all users in one round."""

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.binomial_sum import BinomialSum
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.carry_sum import CarryScalarSum, CarryVectorSum
from protocols.sums.encoding import SumRandomizer
from protocols.sums.floods import FloodRandomizer
from protocols.sums.laplace_sum import LaplaceScalarSum, LaplaceVectorSum
from protocols.sums.one_round import OneRoundSum
from protocols.sums.planned import PlannedScalarSum, PlannedSum, PlannedVectorSum
from protocols.sums.running_totals import RunningTotals
from protocols.sums.scalar_sum import ScalarSum
from protocols.sums.single_message import SingleMessageRandomizer, SingleMessageSum
from protocols.sums.sparse_sum import SparseVectorSum
from protocols.sums.split_mix import SplitMixRandomizer
from protocols.sums.split_mix_sum import SplitAndMixSum, SplitAndMixVectorSum
from protocols.sums.vector_sum import VectorSum

__all__ = [
    "BinomialRandomizer",
    "BinomialSum",
    "BucketRandomizer",
    "CarryRandomizer",
    "CarryScalarSum",
    "CarryVectorSum",
    "FloodRandomizer",
    "LaplaceScalarSum",
    "LaplaceVectorSum",
    "OneRoundSum",
    "PlannedScalarSum",
    "PlannedSum",
    "PlannedVectorSum",
    "RunningTotals",
    "ScalarSum",
    "SingleMessageRandomizer",
    "SingleMessageSum",
    "SparseVectorSum",
    "SplitAndMixSum",
    "SplitAndMixVectorSum",
    "SplitMixRandomizer",
    "SumRandomizer",
    "VectorSum",
]
