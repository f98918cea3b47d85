"""Methods side by side: the same problem under another trust model."""

from protocols.comparison.baselines import Baseline

__all__ = ["Baseline"]
