"""Newton's method over a domain with exact projections; a certificate says how near it came."""

import math

import numpy as np

from protocols.erm.objective import Objective
from protocols.problems.domains import Domain
from shuffle_sim.arrays import Floats

_STEPS, _HALVINGS, _DESCENTS = 30, 30, 3000
_NEAR, _DECREASE = 1e-2, 1e-4
"""Steps that are short beside the radius; of what a step promises."""


def newton_over(objective: Objective, w: Floats, radius: float) -> Floats:
    """Near the minimiser of a smooth objective with second derivatives.

    Each step goes to where the second-order model is least over the domain, and is halved while it
    does not pay.
    """
    w = objective.domain.project(w)
    value = objective.value(w)
    for _ in range(_STEPS):
        slope, bend = objective.gradient(w), objective.hessian(w)
        assert bend is not None
        step = _least(objective.domain, w, slope, bend, _NEAR * radius) - w
        if float(np.linalg.norm(step)) <= _NEAR * radius:
            return w + step
        promise, share = -float(slope @ step), 1.0
        for _ in range(_HALVINGS):
            after = objective.value(w + share * step)
            if value - after >= _DECREASE * share * promise:
                break
            share /= 2
        else:
            return w  # values show no more
        w, value = w + share * step, after
    return w


def _least(domain: Domain, w: Floats, slope: Floats, bend: Floats, near: float) -> Floats:
    """Where <slope, z - w> + (z - w)' B (z - w)/2 is least over the domain, nearly.

    By accelerated projected descent (Nesterov 2018, scheme 2.2.22): no record is looked at.
    """
    values = np.linalg.eigvalsh(bend)
    top, root = float(values[-1]), math.sqrt(max(float(values[0]), 1e-12 * values[-1]) / values[-1])
    momentum, z = (1 - root) / (1 + root), w
    ahead = w
    for _ in range(_DESCENTS):
        after = domain.project(ahead - (slope + bend @ (ahead - w)) / top)
        # At a fixed point the distance to the minimiser is at most the move over root^2.
        done = float(np.linalg.norm(after - ahead)) <= near * root * root / 4
        ahead, z = after + momentum * (after - z), after
        if done:
            break
    return z
