"""The printed accuracy of output perturbation: each class its corollary, by hand."""

import math

import numpy as np
import pytest

from protocols import (
    AdversarialERM,
    Grouped,
    Hinge,
    L2Ball,
    Logistic,
    MeanEstimation,
    OutputPerturbation,
    Problem,
    SaddleERM,
    TiltedERM,
)
from protocols.erm.tilted import TiltedRisk
from shuffle_sim import Privacy, run
from shuffle_sim.privacy.bounds.paper import c_delta

N, D, SIZE, RIDGE = 400, 3, 2.0, 0.1
PURE, APPROXIMATE = Privacy(2.0), Privacy(2.0, 1e-5)
C = c_delta(1e-5)
WIDE = C + math.sqrt(C * C + 2.0)
PURE_Q, Q = D / 2.0, math.sqrt(D) * WIDE / 2.0
BALL = L2Ball(D, SIZE)
SHARP, RIDGED = Problem(Hinge(), BALL, RIDGE), Problem(Logistic(), BALL, RIDGE)
KINKS, SMOOTH = Problem(Hinge(), BALL), Problem(Logistic(), BALL)
L = Logistic().lipschitz(SIZE)  # of the hinge 1
KAPPA = (0.25 + RIDGE) / RIDGE
UNIT = L ** (4 / 3) * SIZE ** (2 / 3) / 0.25 ** (1 / 3)


def printed(problem, privacy, kind=OutputPerturbation, **given):
    """(ridge that is used, alpha of the radius, what was chosen)."""
    made = kind.paper(n=N, problem=problem, privacy=privacy, **given)
    curved = made.risk.strong_convexity
    return made.ridge, made.radius**2 * curved / 2, made.choices


CASES = {
    "Corollary 3.2, pure": (SHARP, PURE, {}, 10 / N * min(1 / N, PURE_Q)),
    "Corollary 3.2": (SHARP, APPROXIMATE, {}, 10 / N * min(1 / N, Q)),
    "Corollary 3.2, at an epsilon above n d": (
        SHARP,
        Privacy(4.0 * N * D),
        {},
        10 / N * 1 / (4 * N),
    ),
    "Corollary 3.2, smooth, by a subgradient method": (
        RIDGED,
        Privacy(4.0 * N * D),
        {"solver": "stochastic-subgradient"},
        L**2 * 10 / N * 1 / (4 * N),
    ),
    "Theorem 3.2, pure": (RIDGED, Privacy(20.0), {}, L**2 * 10 / N**2 * KAPPA * (D / 20) ** 2),
    "Theorem 3.2": (RIDGED, APPROXIMATE, {}, L**2 * 10 / N**2),
    "Corollary 3.6, pure": (KINKS, PURE, {}, SIZE * (PURE_Q / N) ** 1.5 / (1 + PURE_Q) ** 2),
    "Corollary 3.6, which lacks": (KINKS, APPROXIMATE, {}, SIZE * (Q / N) ** 1.5),
    "Corollary 3.8, pure": (SMOOTH, PURE, {}, UNIT * PURE_Q ** (-2 / 3) * N ** (-4 / 3)),
    "Corollary 3.8": (SMOOTH, APPROXIMATE, {}, UNIT * (N / Q) ** (2 / 3) / N**2),
}


@pytest.mark.parametrize("case", CASES)
def test_the_class_decides_which_alpha_is_taken(case):
    problem, privacy, given, alpha = CASES[case]
    _, used, why = printed(problem, privacy, **given)
    assert used == pytest.approx(alpha)
    assert why["alpha"].split(": ")[1].startswith(case.split(",")[0])
    assert ("lacks" in why["alpha"]) == ("lacks" in case)


def test_a_ridge_that_was_given_is_not_called_the_papers():
    assert printed(RIDGED, PURE)[2]["ridge"] == "given"
    assert printed(KINKS, PURE)[2]["ridge"].endswith(": Theorem 3.4")
    assert printed(SMOOTH, PURE)[2]["ridge"].endswith(": Theorem 3.5")
    by_loss = printed(Problem(MeanEstimation(), BALL), PURE)
    assert by_loss[0] == 0.0
    assert "given" not in by_loss[2]["ridge"]


def test_corollary_3_7_is_of_any_objective():
    """Tilted risk is no average: without a ridge neither ridge nor alpha falls with n."""
    tilt = 0.5
    beta = 0.25 + tilt * L**2
    unit = L ** (4 / 3) * SIZE ** (2 / 3) / beta ** (1 / 3)
    for privacy, q, alpha in (
        (PURE, PURE_Q, unit * PURE_Q ** (-2 / 3)),
        (APPROXIMATE, Q, unit * 2.0 / math.sqrt(D * WIDE) * min(1.0, 1 / beta)),
    ):
        ridge, used, why = printed(SMOOTH, privacy, TiltedERM, tilt=tilt)
        assert ridge == pytest.approx((beta * L**2 / SIZE**2) ** (1 / 3) * q ** (2 / 3))
        assert used == pytest.approx(alpha)
        assert "Corollary 3.7" in why["alpha"]
    for solver, name in (("subgradient", "Corollary 3.5"), ("agd", "Corollary 3.7")):
        assert name in printed(SMOOTH, PURE, TiltedERM, tilt=tilt, solver=solver)[2]["alpha"]
    made = TiltedERM.paper(n=N, problem=SMOOTH, privacy=PURE, tilt=tilt)
    assert made.shift == pytest.approx(2 * SIZE)  # the domain's diameter: 2 L/mu tells nothing


def test_tilted_risk_has_the_alphas_of_its_own_proofs():
    tilt = 0.1
    made = TiltedERM.paper(n=N, problem=RIDGED, privacy=PURE, tilt=tilt)
    assert isinstance(made.risk, TiltedRisk)
    heavy = math.exp(tilt * made.risk.spread(SIZE))
    kappa = (0.25 + tilt * L**2 + RIDGE) / RIDGE
    _, alpha, why = printed(RIDGED, PURE, TiltedERM, tilt=tilt)
    assert alpha == pytest.approx(L**2 * 10 / N**2 * min(kappa * PURE_Q**2, heavy**2))
    assert "Theorem 5.2" in why["alpha"]
    assert made.statistic.printed == pytest.approx(2 * (L + RIDGE * SIZE) / RIDGE * heavy / N)
    _, alpha, why = printed(RIDGED, PURE, TiltedERM, tilt=tilt, solver="subgradient")
    assert alpha == pytest.approx(L**2 * 10 * heavy / N * min(heavy / N, PURE_Q))
    assert "Theorem 5.1" in why["alpha"]


def test_other_objectives_take_the_class_that_they_are_in():
    """The worst perturbation has kinks, whatever the loss; groups are a saddle problem."""
    _, alpha, why = printed(RIDGED, PURE, AdversarialERM, radius=0.1)
    slope = 1.1 / (1 + math.exp(-1.1 * SIZE))
    assert alpha == pytest.approx(slope**2 * 10 / N**2)
    assert "Corollary 3.2" in why["alpha"]
    groups = Problem(Grouped(Logistic(), 2), BALL, RIDGE)
    assert "Theorem 5.3" in printed(groups, PURE, SaddleERM)[2]["alpha"]


@pytest.mark.full
@pytest.mark.parametrize("privacy", [PURE, APPROXIMATE], ids=["pure", "approximate"])
@pytest.mark.parametrize("problem", [SHARP, KINKS, SMOOTH], ids=["sharp", "kinks", "smooth"])
def test_each_class_runs(problem, privacy):
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, (N, D))
    rows = np.column_stack([x, np.where(x[:, 0] > 0, 1.0, -1.0)])
    result = run(OutputPerturbation.paper(n=N, problem=problem, privacy=privacy), rows, seed=1)
    assert np.linalg.norm(result.value) <= SIZE + 1e-9
    assert result.privacy.epsilon <= privacy.epsilon
