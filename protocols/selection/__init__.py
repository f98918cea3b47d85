"""Paid choices: bounds of columns, and one model of a few, by private sums in the same ledger."""

from protocols.selection.bounds import ChosenBounds
from protocols.selection.curator import CuratedSelection
from protocols.selection.models import Selected, Selection

__all__ = ["ChosenBounds", "CuratedSelection", "Selected", "Selection"]
