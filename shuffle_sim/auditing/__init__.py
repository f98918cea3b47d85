"""Checks of what is implemented: the audit, and conformance checks for third-party code."""

from shuffle_sim.auditing.audit import AuditReport, empirical_epsilon
from shuffle_sim.auditing.central import CentralAudit, audit_central
from shuffle_sim.auditing.claims.conformance import (
    check_protocol,
    check_randomizer,
    check_runtime,
    check_theorem,
)
from shuffle_sim.auditing.claims.plan import Check, Planned
from shuffle_sim.auditing.laws.statistics import LawError, check_pmf, check_same_law, check_variance
from shuffle_sim.auditing.simulation import Failure, SimulationReport, simulate

__all__ = [
    "AuditReport",
    "CentralAudit",
    "Check",
    "Failure",
    "LawError",
    "Planned",
    "SimulationReport",
    "audit_central",
    "check_pmf",
    "check_protocol",
    "check_randomizer",
    "check_runtime",
    "check_same_law",
    "check_theorem",
    "check_variance",
    "empirical_epsilon",
    "simulate",
]
