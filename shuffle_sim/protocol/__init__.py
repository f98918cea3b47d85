"""The vocabulary that protocols are written in: queries, randomizers, rounds and adversaries."""

from shuffle_sim.protocol.adversary import (
    Adversary,
    AttackContext,
    CallNext,
    Chain,
    Coalition,
    Dropout,
    Report,
    Users,
)
from shuffle_sim.protocol.base import Datum, Protocol, Query, RoundSpec, check_rows
from shuffle_sim.protocol.randomizer import Randomizer

__all__ = [
    "Adversary",
    "AttackContext",
    "CallNext",
    "Chain",
    "Coalition",
    "Datum",
    "Dropout",
    "Protocol",
    "Query",
    "Randomizer",
    "Report",
    "RoundSpec",
    "Users",
    "check_rows",
]
