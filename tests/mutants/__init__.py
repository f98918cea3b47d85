"""The registry of planted defects: each names the check of an audit that must catch it."""

from .curators import CURATED
from .registry import MUTANTS, Mutant

__all__ = ["CURATED", "MUTANTS", "Mutant"]
