"""Sums over all users in one round."""
