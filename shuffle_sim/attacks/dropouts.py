"""Users that stay silent, beside the independent ones of `adversary.Dropout`."""

import numpy as np

from shuffle_sim.errors import one_of
from shuffle_sim.protocol.adversary import AttackContext, Coalition, Dropout, Users


class Leave(Coalition):
    """Each user is gone for the whole run with probability `fraction`, whatever is asked."""

    silent = True


class Blackout(Dropout):
    """Correlated: in each round a block is silent as a whole with probability `rate`."""

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        return users if rng.random() < self.rate else users[:0]


class CutOff(Dropout):
    """Mid-round: with probability `rate` the users of a block after a random place are silent."""

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        return users[rng.integers(users.size) :] if rng.random() < self.rate else users[:0]


class ChosenDropout(Dropout):
    """Chosen after the query: on average the share `rate` of each block, of most telling values.

    Attributes:
        rate: share of the users.
        by: "largest" or "smallest" sum of the value's coordinates, or "norm": farthest from zero.
    """

    ORDERS = ("largest", "smallest", "norm")

    def __init__(self, rate: float, by: str = "largest") -> None:
        super().__init__(rate)
        one_of("by", by, self.ORDERS)
        self.by = by

    def select(self, context: AttackContext, rng: np.random.Generator) -> Users:
        values = context.honest.reshape(context.users.size, -1)
        score = np.linalg.norm(values, axis=1) if self.by == "norm" else values.sum(axis=1)
        order = np.argsort(score if self.by == "smallest" else -score, kind="stable")
        # On average that share: rounded, of a block of seven nobody would be a twentieth.
        gone = int(self.rate * context.users.size + rng.random())
        return np.sort(context.users[order[:gone]])
