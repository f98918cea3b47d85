"""Kinks rounded off: between the loss and the loss less L^2/(2 beta), smooth, and no steeper."""

from dataclasses import dataclass

import numpy as np
import pytest

from protocols import Absolute, Hinge, L2Ball, Logistic, PhasedSCO, Pinball, Problem
from protocols.problems import Softmax
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.smoothed import Smoothed
from shuffle_sim import ParameterError, Privacy, run


@dataclass(frozen=True)
class Tube(LinearLoss):
    """max(0, |margin - y| - 0.4) with a steep end beyond 1: three kinks, and no `kink`."""

    def value(self, margins, labels):
        far = np.abs(margins - labels)
        return np.maximum(0.0, far - 0.4) + np.maximum(0.0, margins - labels - 1.0)

    def derivative(self, margins, labels):
        apart = margins - labels
        return np.sign(apart) * (np.abs(apart) > 0.4) + (apart > 1.0)

    def slope(self, reach):
        return 2.0

    def curvature(self):
        return None


BETA = 8.0
LOSSES = (Hinge(2.0), Absolute(2.0), Pinball(2.0), Tube(2.0))
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
    margins = MARGINS + 0.0047  # off the ends of the ramp
    labels = np.where(MARGINS > 0.3, 1.0, -1.0)
    rise = (made.value(margins + h, labels) - made.value(margins - h, labels)) / (2 * h)
    np.testing.assert_allclose(made.derivative(margins, labels), rise, atol=1e-6)
    bend = (made.derivative(margins + h, labels) - made.derivative(margins - h, labels)) / (2 * h)
    np.testing.assert_allclose(made.second(margins, labels), bend, atol=1e-4)


@pytest.mark.parametrize("blind", [False, True], ids=["newton", "control"])
def test_phases_with_several_kinks_take_few_gradients(blind, monkeypatch):
    """Newton's method knows how the envelope bends; without it descent takes thousands."""
    asked, plain = [0], Smoothed.derivative

    def counted(self, margins, labels):
        asked[0] += 1
        return plain(self, margins, labels)

    problem = Problem(Tube(), L2Ball(2, 1.0), records=4)
    made = PhasedSCO.calibrated(n=600, problem=problem, privacy=Privacy(4.0, 1e-6), phases=2)
    rng = np.random.default_rng(2)
    x = rng.uniform(-0.7, 0.7, (600, 4, 2))
    rows = np.concatenate([x, x @ np.array([[0.9], [-0.3]]) + rng.normal(size=(600, 4, 1))], 2)
    monkeypatch.setattr(Smoothed, "derivative", counted)
    if blind:
        monkeypatch.setattr(Smoothed, "second", lambda self, margins, labels: None)
    result = run(made, rows, seed=1)
    assert result.privacy.epsilon <= 4.0
    assert (asked[0] < 300) is not blind


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Hinge(np.inf)], ids=repr)
def test_what_has_no_envelope_here_is_refused(loss):
    with pytest.raises(ParameterError):
        Smoothed.of(loss, BETA)
