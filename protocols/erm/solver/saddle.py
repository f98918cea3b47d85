"""Extragradient for convex-concave saddle problems."""

import numpy as np

from protocols.erm.objective import Objective
from protocols.erm.saddle import Saddle
from protocols.erm.solver.certificate import certify
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError

_MOST, _LOOK = 50_000, 20


def extragradient(
    objective: Objective, radius: float, w: Floats, rng: np.random.Generator
) -> Floats:
    """A step with the slopes at a step ahead, both projected (Korpelevich 1976).

    Steps are 1/(2 steepness).

    Raises:
        ParameterError: no saddle problem.
    """
    if not isinstance(objective, Saddle):
        raise ParameterError("solver", "extragradient", "newton or another: no saddle problem")
    step, v = 1 / (2 * objective.steepness), objective.opponent.center
    mine, other = objective.domain.project, objective.opponent.project
    for t in range(1, _MOST + 1):
        down, up = objective.slopes(w, v)
        down, up = objective.slopes(mine(w - step * down), other(v + step * up))
        w, v = mine(w - step * down), other(v + step * up)
        if t % _LOOK == 0 and certify(objective, w).radius <= radius:
            break
    return w
