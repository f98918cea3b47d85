"""Methods side by side: the same problem under another trust model."""

from protocols.comparison.methods import Method

__all__ = ["Method"]
