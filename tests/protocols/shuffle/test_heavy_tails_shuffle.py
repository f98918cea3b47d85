"""Heavy tails in the shuffle model: planned clips, their slopes, and the pilot round."""

import math

import numpy as np
import pytest

from protocols import (
    Absolute,
    L2Ball,
    Logistic,
    Moments,
    Problem,
    ShuffleACSA,
    ShuffleGD,
    ShuffleSGD,
)
from protocols.optimisation.tails import BINS
from protocols.shuffle.heavy_tails import (
    Piloted,
    TailBins,
    calibrated,
    planned_clip,
)
from shuffle_sim import ParameterError, Privacy, run

APPROXIMATE = Privacy(1.0, 1e-6)
MOMENTS = Moments(4, 1.45, 1.0, 0.9)


def slopes_of(k: float) -> dict[str, float]:
    """Exponents of n in the bounds with planned clips: SGD, smoothed AC-SA, full-batch descent."""
    if math.isinf(k):
        return {"shuffle-sgd": -0.5, "shuffle-acsa": -2 / 3, "shuffle-gd": -1.0}
    return {
        "shuffle-sgd": -(k - 1) / (2 * k - 1),
        "shuffle-acsa": -2 * (k - 1) / (3 * k - 1),
        "shuffle-gd": -(1 - 1 / k),
    }


def problem_of(loss, d=5, radius=3.0, **others):
    return Problem(loss, L2Ball(d, radius), norm_bound=math.inf, **others)


@pytest.mark.slow_parameters("ShuffleACSA-4.0")
@pytest.mark.full
@pytest.mark.parametrize("k", [2.0, 4.0, math.inf])
@pytest.mark.parametrize(
    "kind", [ShuffleSGD, ShuffleACSA, ShuffleGD], ids=lambda kind: kind.__name__
)
@pytest.mark.long
def test_bounds_with_planned_clips_have_the_sheets_slopes(kind, k):
    # Full-batch descent without its sampling error and with as many rounds as it wants.
    alone = kind is ShuffleGD
    problem = problem_of(Absolute(math.inf), 10, 1.0, declared_spread=0.0 if alone else None)
    given = {"rounds": 10**13} if alone else {}
    moments, sizes = Moments(k, 1.0 if k == 2 else 1.3, 1.0, 1.0), (10**5, 10**6, 10**7)
    bounds = [
        planned_clip(kind, n=n, problem=problem, privacy=APPROXIMATE, moments=moments, **given)[1]
        for n in sizes
    ]
    slope = float(np.polyfit(np.log(sizes), np.log(bounds), 1)[0])
    name = {ShuffleSGD: "shuffle-sgd", ShuffleACSA: "shuffle-acsa", ShuffleGD: "shuffle-gd"}[kind]
    assert slope == pytest.approx(slopes_of(k)[name], abs=0.05)


@pytest.mark.full
def test_a_clip_that_is_not_planned_has_a_larger_bound():
    problem = problem_of(Absolute(math.inf))
    asked = {"n": 10**5, "problem": problem, "privacy": APPROXIMATE, "moments": MOMENTS}
    clip, least = planned_clip(ShuffleSGD, **asked)
    made = calibrated(ShuffleSGD, **asked)
    assert made.problem.norm_bound == clip
    assert made.bound == pytest.approx(least, rel=0.05)  # with the noise really used
    assert "assumed" in made.choices["clip"]
    # Without the bias the bound would be too good.
    assert (
        made.bound > ShuffleSGD.calibrated(n=10**5, problem=made.problem, privacy=APPROXIMATE).bound
    )


def heavy_rows(n, d=5, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2.5, size=(n, d)) / math.sqrt(d * 5)
    signs = np.where(rng.random(n) < 1 / (1 + np.exp(-4 * x.sum(axis=1))), 1.0, -1.0)
    rows = np.column_stack([x, signs])
    rows[::5000, 0] = math.nan
    return rows


@pytest.mark.full
def test_a_pilot_round_chooses_the_clip_by_the_same_messages():
    n, problem = 60_000, problem_of(Logistic(math.inf))
    made = Piloted(ShuffleSGD, n=n, problem=problem, privacy=APPROXIMATE)
    rows = heavy_rows(n)
    with pytest.raises(ParameterError):
        ShuffleSGD.calibrated(n=n, problem=problem, privacy=APPROXIMATE)
    result = run(made, rows, seed=2, fidelity="aggregate")
    assert result.privacy.epsilon <= 1.0 + 1e-9
    assert result.privacy.delta == 1e-6  # no view of a shuffler is called pure
    assert result.reports.nonfinite > 0
    known = rows[np.isfinite(rows).all(axis=1)]
    assert problem.risk(result.value, known) < 0.97 * problem.risk(np.zeros(5), known)


def test_the_pilots_answer_is_a_unit_vector_whatever_the_row():
    answers = TailBins(Logistic(math.inf), 3.0)(
        np.array([[math.nan, 1.0], [1e308, 1.0], [0.0, -1.0], [math.inf, 1.0]])
    )
    assert answers.shape == (4, BINS)
    assert (answers.sum(axis=1) == 1).all()
    assert answers[1, -1] == answers[0, 0] == answers[2, 0] == 1


def test_no_shuffle_protocol_is_made_for_delta_zero():
    problem = problem_of(Absolute(math.inf))
    with pytest.raises(ParameterError, match="delta"):
        calibrated(ShuffleSGD, n=1000, problem=problem, privacy=Privacy(1.0), moments=MOMENTS)
    with pytest.raises(ParameterError, match="delta"):
        Piloted(ShuffleSGD, n=1000, problem=problem, privacy=Privacy(1.0))
