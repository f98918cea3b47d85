"""An attack of your own: every attacker claims the same vector, far along the first coordinate."""

import numpy as np

from shuffle_sim.protocol.adversary import Coalition


class Shove(Coalition):
    """Their values become `length` times the first unit vector, before they are clipped."""

    def __init__(self, fraction, length=1.0):
        super().__init__(fraction)
        self.length = length

    def values(self, context, xs, rng):
        return self.length * np.eye(xs.shape[1])[np.zeros(len(xs), int)]
