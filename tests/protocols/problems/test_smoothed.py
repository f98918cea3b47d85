"""Kinks rounded off: between the loss and the loss less L^2/(2 beta), smooth, and no steeper."""

import numpy as np
import pytest

from protocols import Absolute, Hinge, L2Ball, Logistic, Pinball, Problem
from protocols.problems import Softmax
from protocols.problems.smoothed import Smoothed
from shuffle_sim import ParameterError

BETA = 8.0
LOSSES = (Hinge(2.0), Absolute(2.0), Pinball(2.0))
MARGINS = np.linspace(-3, 3, 601)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_an_envelope_is_near_the_loss_and_smooth(loss):
    made, labels = Smoothed.of(loss, BETA), np.where(MARGINS > 0.3, 1.0, -1.0)
    below = loss.value(MARGINS, labels) - made.value(MARGINS, labels)
    error = loss.lipschitz(1.0) ** 2 / (2 * BETA)
    assert -1e-12 <= below.min() < 1e-12
    assert 0.2 * error < below.max() <= error * (1 + 1e-12)  # a tenth of it would be seen
    assert made.smoothness() == pytest.approx(BETA)
    assert made.lipschitz(1.0) == loss.lipschitz(1.0)
    Problem(made, L2Ball(2, 1.0))  # holds slope and curvature against the derivative


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_its_derivatives_are_those_of_its_values(loss):
    made, h = Smoothed.of(loss, BETA), 1e-6
    margins = MARGINS + 0.00171  # off the ends of the ramp
    labels = np.where(MARGINS > 0.3, 1.0, -1.0)
    rise = (made.value(margins + h, labels) - made.value(margins - h, labels)) / (2 * h)
    np.testing.assert_allclose(made.derivative(margins, labels), rise, atol=1e-6)
    bend = (made.derivative(margins + h, labels) - made.derivative(margins - h, labels)) / (2 * h)
    np.testing.assert_allclose(made.second(margins, labels), bend, atol=1e-4)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Hinge(np.inf)], ids=repr)
def test_what_has_no_envelope_here_is_refused(loss):
    with pytest.raises(ParameterError):
        Smoothed.of(loss, BETA)
