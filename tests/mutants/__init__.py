"""The registry of planted defects: each names the check of an audit that must catch it."""

from .registry import CURATED, MUTANTS, Mutant

__all__ = ["CURATED", "MUTANTS", "Mutant"]
