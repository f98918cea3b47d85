"""Records that are built by name and added up field by field."""

from collections import Counter
from dataclasses import MISSING, fields

import pytest

from shuffle_sim import Result
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.exchange import Exchange
from shuffle_sim.execution.forecast import Forecast
from shuffle_sim.execution.result import ReportCounts
from shuffle_sim.protocol.adversary import AttackContext
from shuffle_sim.roles import (
    Broadcast,
    Conclusion,
    Deployment,
    PlannedRound,
    ShardRecord,
    ShuffleRecord,
    ViewRecord,
)

RECORDS = [
    *(AttackContext, Broadcast, Conclusion, Costs, Deployment, Exchange, Forecast, PlannedRound),
    *(ReportCounts, Result, ShardRecord, ShuffleRecord, ViewRecord),
]


@pytest.mark.parametrize("kind", RECORDS)
def test_records_are_built_by_name_only(kind):
    with pytest.raises(TypeError, match="positional"):
        kind(*[0] * sum(field.default is MISSING for field in fields(kind)), 0)


@pytest.mark.parametrize("kind", [ShardRecord, ShuffleRecord])
def test_records_add_up_every_field(kind):
    def made(scale):
        """Every field has a value of its own."""
        values = {}
        for place, field in enumerate(fields(kind)):
            zero, number = getattr(kind(), field.name), scale + place
            values[field.name] = (
                Counter({"a": number, scale: 1})
                if isinstance(zero, Counter)
                else (number,)
                if isinstance(zero, tuple)
                else number
            )
        return kind(**values)

    a, b = made(10), made(1000)
    for field in fields(kind):
        name = field.name
        assert getattr(a + b, name) == getattr(a, name) + getattr(b, name)
    assert sum([a, b], kind()) == a + b
    assert len({str(value) for value in vars(a + b).values()}) == len(fields(kind))
