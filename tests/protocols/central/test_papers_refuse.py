"""What an algorithm of the papers cannot serve is refused in one line that says what fits."""

import warnings

import numpy as np
import pytest

import protocols as p
from shuffle_sim import ParameterError, Privacy

BALL, WIDE = p.L2Ball(2, 1.0), p.L2Ball(4, 1.0)
PURE, USUAL = Privacy(1.0), Privacy(1.0, 1e-6)


class Concave(p.Logistic):
    """Not convex."""

    def value(self, margins, labels):
        return -np.asarray(super().value(margins, labels))

    def derivative(self, margins, labels):
        return -np.asarray(super().derivative(margins, labels))


def asked(kind, loss, privacy, domain=BALL, ridge=0.1, records=1, n=300):
    problem = p.Problem(loss, domain, ridge, records=records)
    return getattr(p, kind).calibrated(n=n, problem=problem, privacy=privacy)


REFUSED = [
    (lambda: asked("OutputPerturbation", Concave(), PURE), "must be convex"),
    (lambda: asked("PhasedERM", Concave(), USUAL, records=8), "must be convex"),
    (lambda: asked("AcceleratedPhasedERM", Concave(), USUAL, records=8), "must be convex"),
    (lambda: asked("ObjectivePerturbation", p.Hinge(), PURE), "take mechanism output$"),
    (
        lambda: asked("Gibbs", p.OneVsRestHinge(2), USUAL, WIDE, 0.0),
        "its minimiser can be certified",
    ),
    (lambda: asked("LocalisedExponential", p.Hinge(), PURE, WIDE, 0.0), "Gibbs if linear"),
    (lambda: asked("PhasedERM", p.Logistic(), PURE, records=8), r"delta = 0\.0: must be above 0"),
    (lambda: asked("AcceleratedPhasedERM", p.Logistic(), PURE, records=8), r"delta = 0\.0"),
    (lambda: asked("LinearTimePhasedSGD", p.Logistic(), PURE, records=8), r"delta = 0\.0: must be"),
    (lambda: asked("ShuffleACSA", p.Logistic(), PURE), r"delta = 0\.0"),
    (lambda: asked("DeletionStability", p.Logistic(), Privacy(8.0, 0.5), n=100), "6 to 19 persons"),
    (
        lambda: p.AcceleratedPhasedERM.paper(
            n=3000, problem=p.Problem(p.Logistic(), BALL, records=8), privacy=USUAL
        ),
        "K_i is above n_i for every n",
    ),
    (
        lambda: asked("SaddleERM", p.Grouped(p.Hinge(), 2), PURE),
        r"must be smooth, such as Logistic\(",
    ),
    (lambda: asked("SaddleERM", p.Squared(labels=1.0), PURE), "a smooth loss of two classes"),
    (lambda: p.Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [-1, -1, 1, 1]), "it is empty or flat"),
    (lambda: p.Polytope([[1, 0]], [1]), "must be of a bounded set"),
    (
        lambda: p.AcceleratedPhasedERM(
            problem=p.Problem(p.Hinge(), BALL, records=8), n=10, privacy=USUAL, phases=()
        ),
        "must be given: the loss has kinks",
    ),
]


@pytest.mark.parametrize(("ask", "said"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(ask, said):
    """And with no warning before it, which would be a second one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ParameterError, match=said) as refused:
            ask()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["OutputPerturbation", "PureSGD", "LinearTimePhasedSGD"])
def test_a_budget_that_is_too_small_is_named_as_it_was_given(name):
    """Not by the parts that algorithms make of it."""
    kind = getattr(p, name)
    problem = p.Problem(p.Logistic(), BALL, 0.1, records=8 if "Linear" in name else 1)
    with pytest.raises(ParameterError, match=f"epsilon = 1e-09: must be larger for {name}"):
        kind.calibrated(n=300, problem=problem, privacy=Privacy(1e-9, 1e-6))


def test_so_is_a_delta():
    with pytest.raises(ParameterError, match="delta = 1e-12: must be larger for LinearTimePhas"):
        asked("LinearTimePhasedSGD", p.Logistic(), Privacy(1.0, 1e-12), records=8)


def test_a_loss_without_curvature_is_drawn_from_with_any_ridge():
    made = asked("Gibbs", p.Linear(), USUAL, WIDE, 0.0, n=3000)
    bent = asked("Gibbs", p.Logistic(), USUAL, WIDE, 0.0, n=3000)
    assert 0 < made.bound < 1.1 * bent.bound
