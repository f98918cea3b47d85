"""Runs of many small rounds for tests that stop them, and what must not depend on a stop."""

from dataclasses import replace

import numpy as np

from protocols import CarryVectorSum, ShuffleGD, ShuffleSGD, VectorSum
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.shuffle.noisy_mean import NoisyMean
from shuffle_sim import Privacy
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.roles import Deployment

USERS, ROUNDS = 60, 6
PROBLEM = Problem(Logistic(), L2Ball(2, 1.0))
PRIVACY = Privacy(50.0, 1e-3)


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(USERS, 2))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return np.c_[x, np.where(x[:, 0] + rng.normal(size=USERS) > 0, 1.0, -1.0)]


def quiet(problem, batch):
    """An average whose bits are never looked at."""
    return NoisyMean(VectorSum(n=batch, d=problem.d, g=8, b=8, norm_bound=problem.lipschitz))


def deployed(protocol, block_size, **own):
    """What its roles are set up with; where nothing else is said, with every message."""
    given = {"task": bytes(16), "entropy": 5, "fidelity": "literal", **own}
    return Deployment(protocol=protocol, block_size=block_size, **given)


def interactive(rounds=ROUNDS, eta=0.5):
    """Every user answers in every round, by a sum with carries."""
    carries = CarryVectorSum(n=USERS, d=2, g=2.5, r=3, b=16, norm_bound=PROBLEM.lipschitz)
    mean = NoisyMean(carries)
    return ShuffleGD(problem=PROBLEM, n=USERS, rounds=rounds, eta=eta, mean=mean, privacy=PRIVACY)


def sequential(rounds=ROUNDS, eta=0.5):
    """Every user answers once, by a binomial sum."""
    mean = NoisyMean(VectorSum(n=USERS // rounds, d=2, g=4, b=12, norm_bound=PROBLEM.lipschitz))
    return ShuffleSGD(problem=PROBLEM, n=USERS, rounds=rounds, eta=eta, mean=mean, privacy=PRIVACY)


PROTOCOLS = {"interactive": interactive, "sequential": sequential}


def outcome(result):
    """Everything in a result except how the run was hosted."""
    value = np.asarray(result.value).tobytes()
    charged = result.ledger.charges
    return (
        value,
        result.privacy,
        result.promised,
        result.rounds,
        result.costs,
        result.reports,
        charged,
        result.fidelity,
    )


class Redraws(Runtime):
    """A defect of any runtime: it begins a lost round again with fresh entropy."""

    def _put_back(self):
        self._deployment = replace(self._deployment, entropy=self._deployment.entropy + 1)
        super()._put_back()


class Forgets(Runtime):
    """Another: it builds the analyzer again without the last round, which is planned once more."""

    def _put_back(self):
        kept = self._over
        self._over = kept[:-1]
        super()._put_back()
        self._over = kept


class Remembers(Adversary):
    """A third of the users send again what they sent when they were first asked."""

    def __init__(self):
        self.first = {}

    def corrupt(self, round_index, users, rng):
        return users[users % 3 == 0]

    def report(self, user, x, call_next, rng):
        return self.first.setdefault(user, call_next(x))


def records(journal):
    """A checkpoint's records with their heads: the beginning, then charge and outcome in turn."""
    data, found = journal.read_bytes(), []
    while data:
        size = 40 + int.from_bytes(data[:4], "big")
        found.append(data[:size])
        data = data[size:]
    return found
