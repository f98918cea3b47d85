"""Algorithms of a trusted curator."""
