"""Persons of other numbers of records than the nominal one: taken by all, printed or calibrated."""

import numpy as np
import pytest

from protocols import (
    AcceleratedPhasedERM,
    DeletionStability,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    PhasedERM,
    PhasedSCO,
    Problem,
    UserLevelACSA,
    UserLevelGD,
    UserLevelOneShot,
)
from protocols.learning import Baseline
from protocols.problems import MeanEstimation
from shuffle_sim import ParameterError, Privacy, run

M = 4
LOGISTIC = Problem(Logistic(), L2Ball(2, 1.0), records=M)
STRONG = Problem(Logistic(), L2Ball(2, 1.0), records=M, ridge=0.2)


def records(counts, seed=0):
    rng = np.random.default_rng(seed)
    return [
        np.column_stack([rng.uniform(-0.5, 0.5, (count, 2)), rng.choice([-1.0, 1.0], count)])
        for count in counts
    ]


@pytest.mark.parametrize(
    "kind",
    [
        *(PhasedERM, PhasedSCO, LinearTimePhasedSGD, AcceleratedPhasedERM),
        *(UserLevelGD, UserLevelACSA, UserLevelOneShot),
    ],
)
@pytest.mark.full
def test_calibrated_ones_take_ragged_persons(kind):
    problem = STRONG if kind is UserLevelOneShot else LOGISTIC
    made = kind.calibrated(n=300, problem=problem, privacy=Privacy(8.0, 1e-3))
    algorithms = [made, Baseline(made, "central")] if hasattr(made, "mean") else [made]
    for algorithm in algorithms:
        result = run(algorithm, records(1 + np.arange(300) % M), seed=1)
        assert np.isfinite(result.value).all()
        assert result.privacy.epsilon <= 8.0


@pytest.mark.parametrize("kind", [PhasedERM, PhasedSCO, LinearTimePhasedSGD])
def test_printed_constants_take_any_number_of_records(kind):
    """Privacy is proven for any; a refusal would say how many records somebody has."""
    if kind is LinearTimePhasedSGD:
        made = kind.paper(n=1_000_000, problem=LOGISTIC, privacy=Privacy(1.0, 1e-9))
        assert made.most_records == M
        return
    made = kind.paper(n=2000, problem=LOGISTIC, privacy=Privacy(1.0, 1e-6), phases=1)
    for counts in ([M] * 2000, [M + 1, M - 1] * 1000):
        assert run(made, records(counts), seed=1).privacy.epsilon <= 1.0


def test_deletion_stability_takes_ragged_persons():
    problem = Problem(MeanEstimation(), L2Ball(2, 1.0), records=M, ridge=0.5)
    made = DeletionStability.calibrated(n=8, problem=problem, privacy=Privacy(8.0, 0.5), width=5.0)
    ragged = [np.full((1 + at % M, 2), 0.3) for at in range(8)]
    assert np.isfinite(run(made, ragged, seed=1).value).all()


@pytest.mark.parametrize("kind", [UserLevelGD, PhasedERM, LinearTimePhasedSGD])
@pytest.mark.parametrize(
    ("value", "column", "named"), [(0.0, 2, "labelled -1 or"), (3.0, 0, "l2 norm at most 1")]
)
@pytest.mark.full
def test_records_for_which_constants_do_not_hold_are_refused(kind, value, column, named):
    """As rows of users with one record are; the last person's count as much as the first's."""
    made = kind.calibrated(n=300, problem=LOGISTIC, privacy=Privacy(8.0, 1e-3))
    algorithms = [made, Baseline(made, "central")] if kind is UserLevelGD else [made]
    data = records(1 + np.arange(300) % M)
    data[-1][0, column] = value
    for algorithm in algorithms:
        with pytest.raises(ParameterError, match=rf"data\[299\].*{named}"):
            run(algorithm, data, seed=1)
