"""The vocabulary of algorithms: queries, randomizers, rounds, releases and adversaries."""

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
from shuffle_sim.protocol.base import Algorithm, Datum, Protocol, Query, RoundSpec, check_rows
from shuffle_sim.protocol.one_round import LocalRandomizer, OneRound
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.release import (
    CentralAlgorithm,
    Release,
    Sensitivity,
    Statistic,
    WholeStatistic,
)

__all__ = [
    "Adversary",
    "Algorithm",
    "AttackContext",
    "CallNext",
    "CentralAlgorithm",
    "Chain",
    "Coalition",
    "Datum",
    "Dropout",
    "LocalRandomizer",
    "OneRound",
    "Protocol",
    "Query",
    "Randomizer",
    "Release",
    "Report",
    "RoundSpec",
    "Sensitivity",
    "Statistic",
    "Users",
    "WholeStatistic",
    "check_rows",
]
