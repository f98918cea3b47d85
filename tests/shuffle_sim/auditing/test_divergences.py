"""Lower bounds of the divergence of several numbers together, beside that of their joint laws."""

import numpy as np
import pytest

from shuffle_sim.auditing.laws.losses import Losses, hockey

EPSILONS = 0.0, 0.3, 1.0, 3.0


def laws(seed, size=12, gone=0):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(size, 0.4), 2)
    q[:gone] = 0.0
    return p, q / q.sum()


@pytest.mark.parametrize("gone", [0, 2])
def test_together_they_tell_what_their_joint_laws_do(gone):
    pairs = [laws(0), laws(1, gone=gone), laws(2)]
    p, q = (np.einsum("a,b,c->abc", *some) for some in zip(*pairs, strict=True))
    found = Losses.of(pairs)
    for epsilon in EPSILONS:
        exact = hockey(p, q, epsilon)
        assert exact - 1e-3 <= found.delta(epsilon) <= exact + 1e-12


def test_laws_without_a_common_outcome_are_told_apart():
    apart = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert Losses.of([laws(0), apart]).delta(5.0) == pytest.approx(1.0)


def test_more_numbers_tell_more():
    one, two = Losses.of([laws(0)]), Losses.of([laws(0), laws(0)])
    assert two.delta(1.0) > one.delta(1.0) + 0.05
