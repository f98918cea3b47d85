"""Certified minimisation: any solver, a computable certificate, a polisher.

`minimise(objective, radius)` is the one way in: a point that is certainly within `radius` of the
minimiser, or a refusal by public constants. Objectives are in `protocols.erm`.
"""

from protocols.erm.solver.certificate import Certificate, certify
from protocols.erm.solver.minimise import (
    SOLVERS,
    THETA,
    Minimiser,
    OracleCalls,
    UncertifiedError,
    counted,
    demand_radius,
    minimise,
    solver_of,
)

__all__ = [
    "SOLVERS",
    "THETA",
    "Certificate",
    "Minimiser",
    "OracleCalls",
    "UncertifiedError",
    "certify",
    "counted",
    "demand_radius",
    "minimise",
    "solver_of",
]
