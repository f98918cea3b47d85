"""Counts of all users: histograms, heavy hitters, quantiles, sums by group."""

from protocols.counts.found import FoundCounts, FoundHistogram
from protocols.counts.groups import GroupInterval, GroupMeans, GroupTable
from protocols.counts.heavy_hitters import HeavyHitters, HeavyItems
from protocols.counts.histogram import CountIntervals, Histogram
from protocols.counts.items import Coded, columns_of, hash_of, prefix_of, text_of
from protocols.counts.one_view import plausible, with_known_total
from protocols.counts.quantiles import Distribution, Quantiles

__all__ = [
    "Coded",
    "CountIntervals",
    "Distribution",
    "FoundCounts",
    "FoundHistogram",
    "GroupInterval",
    "GroupMeans",
    "GroupTable",
    "HeavyHitters",
    "HeavyItems",
    "Histogram",
    "Quantiles",
    "columns_of",
    "hash_of",
    "plausible",
    "prefix_of",
    "text_of",
    "with_known_total",
]
