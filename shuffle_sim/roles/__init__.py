"""The three roles as plain classes; a runtime hosts and connects them, in process or in actors.

What passes between them is bytes. What a `UserShard` reports beside them (`ShardRecord`) and what a
`Shuffler` records (`ShuffleRecord`) is the simulator's own view of the run; neither role sees the
other's.
"""

from shuffle_sim.roles.analyzer import Analyzer
from shuffle_sim.roles.block_rows import CuratorShard
from shuffle_sim.roles.channel import Directory
from shuffle_sim.roles.deployment import FIDELITIES, SECURITIES, Broadcast, Deployment
from shuffle_sim.roles.records import (
    Conclusion,
    PlannedRound,
    ShardRecord,
    ShuffleRecord,
    ViewRecord,
)
from shuffle_sim.roles.reports import count_type, read_reports
from shuffle_sim.roles.shuffler import Shuffler
from shuffle_sim.roles.station import Station
from shuffle_sim.roles.users import UserShard

__all__ = [
    "FIDELITIES",
    "SECURITIES",
    "Analyzer",
    "Broadcast",
    "Conclusion",
    "CuratorShard",
    "Deployment",
    "Directory",
    "PlannedRound",
    "ShardRecord",
    "ShuffleRecord",
    "Shuffler",
    "Station",
    "UserShard",
    "ViewRecord",
    "count_type",
    "read_reports",
]
