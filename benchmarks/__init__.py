"""Benchmarks: every number is a ratio, or a share of a budget, within one run."""
