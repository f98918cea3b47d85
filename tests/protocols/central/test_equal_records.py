"""Theorems that need equally many records refuse ragged persons; what is proven here takes them."""

import numpy as np
import pytest

from protocols import (
    AcceleratedPhasedERM,
    Baseline,
    DeletionStability,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    MeanEstimation,
    PhasedERM,
    PhasedSCO,
    Problem,
    UserLevelACSA,
    UserLevelGD,
    UserLevelOneShot,
)
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated

M = 4
LOGISTIC = Problem(Logistic(), L2Ball(2, 1.0), records=M)
STRONG = Problem(Logistic(), L2Ball(2, 1.0), records=M, ridge=0.2)


def asked_for(n, counts):
    """Persons whose records nobody may read: they are refused before."""

    def never(rng, count):
        raise AssertionError("a record was read")

    return Persons(Generated(int(np.sum(counts)), never), np.resize(counts, n))


@pytest.mark.parametrize("kind", [PhasedERM, PhasedSCO, LinearTimePhasedSGD])
def test_printed_constants_refuse_ragged_persons_before_a_record_is_read(kind):
    """And persons of another number of records than the theorem was asked about."""
    if kind is LinearTimePhasedSGD:
        n, privacy, own = 1_000_000, Privacy(1.0, 1e-9), {}
    else:
        n, privacy, own = 2000, Privacy(1.0, 1e-6), {"phases": 1}
    made = kind.paper(n=n, problem=LOGISTIC, privacy=privacy, **own)
    for counts, named in (([M, M - 1] * (n // 2), "ragged persons"), ([M + 1] * n, "not shown")):
        with pytest.raises(ParameterError, match=f"data.*{named}.*with 4 records each"):
            run(made, asked_for(n, counts), seed=1)


def test_printed_constants_take_equal_persons():
    made = PhasedERM.paper(n=2000, problem=LOGISTIC, privacy=Privacy(1.0, 1e-6), phases=1)
    assert run(made, records([M] * 2000), seed=1).privacy.epsilon <= 1.0


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
def test_calibrated_ones_take_ragged_persons(kind):
    problem = STRONG if kind is UserLevelOneShot else LOGISTIC
    made = kind.calibrated(n=300, problem=problem, privacy=Privacy(8.0, 1e-3))
    algorithms = [made, Baseline(made, "central")] if hasattr(made, "mean") else [made]
    for algorithm in algorithms:
        assert algorithm.equal_records is None
        result = run(algorithm, records(1 + np.arange(300) % M), seed=1)
        assert np.isfinite(result.value).all()
        assert result.privacy.epsilon <= 8.0


def test_deletion_stability_takes_ragged_persons():
    problem = Problem(MeanEstimation(), L2Ball(2, 1.0), records=M, ridge=0.5)
    made = DeletionStability.calibrated(n=8, problem=problem, privacy=Privacy(8.0, 0.5), width=5.0)
    ragged = [np.full((1 + at % M, 2), 0.3) for at in range(8)]
    assert np.isfinite(run(made, ragged, seed=1).value).all()


@pytest.mark.parametrize("kind", [UserLevelGD, PhasedERM, LinearTimePhasedSGD])
@pytest.mark.parametrize(
    ("value", "column", "named"), [(0.0, 2, "labelled -1 or"), (3.0, 0, "l2 norm at most 1")]
)
def test_records_for_which_constants_do_not_hold_are_refused(kind, value, column, named):
    """As rows of users with one record are; the last person's count as much as the first's."""
    made = kind.calibrated(n=300, problem=LOGISTIC, privacy=Privacy(8.0, 1e-3))
    algorithms = [made, Baseline(made, "central")] if kind is UserLevelGD else [made]
    data = records(1 + np.arange(300) % M)
    data[-1][0, column] = value
    for algorithm in algorithms:
        with pytest.raises(ParameterError, match=rf"data\[299\].*{named}"):
            run(algorithm, data, seed=1)
