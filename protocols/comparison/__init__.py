"""Methods side by side: the same problem under another trust model."""

from protocols.comparison.baselines import BASELINES, Baseline, ClippedMean

__all__ = ["BASELINES", "Baseline", "ClippedMean"]
