"""What `--json` prints, as a JSON schema for each command: made from the types of the summaries."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from shuffle_sim.cli import (
    attack,
    audit,
    budget,
    compare,
    counts_report,
    data,
    experiment,
    plan,
    tasks,
    train_compare,
    train_report,
)
from shuffle_sim.cli.sum import SumReport as Sum
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.privacy.amplification import Amplification

SUMMARIES: dict[str, tuple[type, ...]] = {
    "sum": (Sum, counts_report.Groups),
    "histogram": (counts_report.Counts,),
    "heavy-hitters": (counts_report.Heavy,),
    "quantiles": (counts_report.Ranks,),
    "train": (train_report.TrainingReport, train_compare.TrainComparison),
    "evaluate": (data.ModelScores,),
    "plan": (plan.PlanReport, tasks.Summary),
    "budget": (budget.BudgetReport,),
    "amplify": (Amplification,),
    "audit": (audit.AuditSummary, audit.CuratorSummary),
    "attack": (attack.AttackFinding,),
    "compare": (compare.ComparisonReport, tasks.Summary),
    "cost": (plan.CostSummary,),
    "experiment run": (experiment.Points,),
    "experiment list": (experiment.Studies,),
    "experiment show": (experiment.Points,),
    "experiment diff": (experiment.Difference,),
}
"""By command, with and without the options that make it another task."""
_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # null for a number that is none
    str: {"type": "string"},
    type(None): {"type": "null"},
}


def schema(command: str) -> dict[str, Any]:
    """The JSON schema of what a command prints.

    Raises:
        ParameterError: there is no such command, or it prints no JSON.
    """
    if command not in SUMMARIES:
        raise ParameterError("json_schema", command, f"one of {', '.join(SUMMARIES)}")
    kinds = [_of(kind, top=True) for kind in SUMMARIES[command]]
    found = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": command, **found}


def _of(kind: Any, *, top: bool = False) -> dict[str, Any]:
    """Of a type, by the rules of `shuffle_sim.execution.plain`."""
    origin, arguments = get_origin(kind), get_args(kind)
    name = origin or kind
    single = name if isinstance(name, type) else object
    found: dict[str, Any] = dict(_PLAIN.get(kind, {}))
    if dataclasses.is_dataclass(single):
        found = _of_fields(single, top=top)
    elif origin in (Union, types.UnionType):
        found = {"anyOf": [_of(each) for each in arguments]}
    elif issubclass(single, Enum):
        found = {"type": "string", "enum": [each.value for each in single]}
    elif issubclass(single, Mapping):
        found = {"type": "object", "additionalProperties": _of(arguments[1]) if arguments else {}}
    elif single is not str and issubclass(single, np.ndarray | Sequence):
        items = {each for each in arguments if each is not ... and single is not np.ndarray}
        found = {"type": "array", "items": _of(items.pop()) if len(items) == 1 else {}}
    return found


def _of_fields(kind: type, *, top: bool) -> dict[str, Any]:
    from shuffle_sim.auditing.audit import AuditReport
    from shuffle_sim.auditing.central import CentralAudit

    late: dict[str, Any] = {
        each.__name__: each for each in (AuditReport, CentralAudit, Mapping)
    } | {"Axes": Any}
    hints = get_type_hints(kind, localns=late)
    shown = [
        each.name
        for each in dataclasses.fields(kind)
        if each.repr and not set(SIMULATOR_VIEW) & set(each.metadata)
    ]
    properties = {name: _of(hints[name]) for name in shown}
    if top:
        properties["simulator_view"] = {"type": "object"}  # what epsilon does not cover
    return {
        "type": "object",
        "properties": properties,
        "required": shown,
        "additionalProperties": False,
    }
