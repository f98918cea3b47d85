"""Errors of a sum over many trials, against the standard error that it states."""

import math

import numpy as np
import pytest

from protocols.sums.carry_sum import CarryVectorSum
from shuffle_sim.arrays import Floats
from shuffle_sim.auditing import LawError, check_variance
from shuffle_sim.wire.messages import Tally


def check_errors(
    protocol: CarryVectorSum, xs: Floats, trials: int, rng: np.random.Generator
) -> None:
    """Unbiased within 5 standard errors, their size within 2 %; 4 % more or less is caught."""
    randomizer, truth = protocol.randomizer, xs.sum(axis=0)
    tallies = (Tally(randomizer.tally(xs, rng), len(xs)) for _ in range(trials))
    errors = np.concatenate([randomizer.estimate(tally) - truth for tally in tallies])
    check_variance(errors, protocol.standard_error**2)
    assert abs(errors.mean()) < 5 * protocol.standard_error / math.sqrt(errors.size)
    assert abs(math.sqrt(float(np.mean(errors**2))) / protocol.standard_error - 1) < 0.02
    for scale in (0.96, 1.04):
        with pytest.raises(LawError):
            check_variance(scale * errors, protocol.standard_error**2)
