"""Methods side by side: the same problem under another trust model."""

from protocols.comparison.baselines import Baseline, run_baseline

__all__ = [
    "Baseline",
    "run_baseline",
]
