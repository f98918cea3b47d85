"""A model to be trained under attack: what `shuffle-sim attack --study training` finds by name."""

import numpy as np

from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.shuffle.sgd import ShuffleSGD
from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.studies import TargetModel
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.encodings import at_least, usual_ratio


def logistic(
    n: int,
    d: int,
    privacy: Privacy,
    noise_ratio: float | None = None,
    encoding: str | None = None,
    rotation: int | None = None,
    seed: int = 0,
) -> TargetModel:
    """Logistic regression by sequential SGD on synthetic people.

    Features lie in the unit ball; the sign of the sum of the first two is the label.

    The error is that of classification, on 20,000 others. The labels of one in ten are noise, so no
    model comes below 0.05.
    """
    rng = np.random.default_rng(seed)

    def people(count: int) -> Floats:
        features = rng.normal(size=(count, d))
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
        labels = np.where(features[:, :2].sum(axis=1) > 0, 1.0, -1.0)
        noisy = rng.random(count) < 0.1
        return np.column_stack([features, np.where(noisy, rng.choice([-1.0, 1.0], count), labels)])

    # The smallest proven bound is at batches of some twenty people, in which a third of attackers
    # may be half of a batch.
    problem, batch = Problem(Logistic(), L2Ball(d, 4.0)), min(n, 100)

    def made(ratio: float) -> ShuffleSGD:
        return ShuffleSGD.calibrated(
            n=n,
            problem=problem,
            privacy=privacy,
            batch=batch,
            noise_ratio=ratio,
            encoding=encoding,
            rotation=rotation,
        )

    usual = usual_ratio(encoding, 1.0)
    protocol = at_least(made, usual) if noise_ratio is None else made(noise_ratio)
    rows, others = people(n), people(20_000)

    def error(theta: Floats) -> float:
        return float((np.where(others[:, :-1] @ theta > 0, 1.0, -1.0) != others[:, -1]).mean())

    return TargetModel(protocol, rows, error)
