"""Algorithms of a trusted curator."""

from protocols.central import heavy_tails, person, record
from protocols.central.heavy_tails import *
from protocols.central.person import *
from protocols.central.record import *

__all__: list[str] = []
__all__ += heavy_tails.__all__
__all__ += person.__all__
__all__ += record.__all__
