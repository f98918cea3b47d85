"""Shuffle-private optimisers."""
