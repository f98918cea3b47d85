"""One person with very many records: the run without it, in memory, work and public shape."""

import tracemalloc

import numpy as np
import pyarrow
import pyarrow.parquet
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
from shuffle_sim import Privacy, run
from shuffle_sim.data.persons import MOST_RECORDS, Persons
from shuffle_sim.data.population import Generated
from shuffle_sim.protocol.base import Protocol

N, M, D, MANY = 4000, 3, 3, 200_000
LOGISTIC = Problem(Logistic(), L2Ball(D, 1.0), records=M)
STRONG = Problem(Logistic(), L2Ball(D, 1.0), records=M, ridge=0.2)
PRIVACY = Privacy(4.0, 1e-5)
MIB = 1 << 20


def records(count, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-0.5, 0.5, (count, D))
    return np.column_stack([features, rng.choice([-1.0, 1.0], count)])


EVEN = records(N * M)
MORE = records(MANY - M, 1)
PLACE = 1234


def named(many):
    """Records, and whose they are: person after person."""
    owner = np.repeat(np.arange(N), M)
    if not many:
        return EVEN, owner
    after = (PLACE + 1) * M
    return np.insert(EVEN, [after] * len(MORE), MORE, axis=0), np.insert(
        owner, [after] * len(MORE), PLACE
    )


def made(kind, **own):
    problem = STRONG if kind is UserLevelOneShot else LOGISTIC
    return kind.calibrated(n=N, problem=problem, privacy=PRIVACY, **own)


CASES = {
    "phased-erm": (PhasedERM, {}),
    "phased-sco": (PhasedSCO, {}),
    "accelerated": (AcceleratedPhasedERM, {"phases": 2}),
    "linear time, friendly": (LinearTimePhasedSGD, {"mean": "friendly"}),
    "linear time, chain": (LinearTimePhasedSGD, {"mean": "chain"}),
    "linear time, plain": (LinearTimePhasedSGD, {"mean": "plain"}),
    "gd": (UserLevelGD, {"rounds": 3}),
    "ac-sa": (UserLevelACSA, {"rounds": 3}),
    "one shot": (UserLevelOneShot, {"rounds": 2, "steps": 5}),
}


LONG = ("linear time, plain", "one shot")


@pytest.fixture
def asked(monkeypatch):
    """Records whose slopes were taken; those of a point of their own are counted once, too."""
    found = [0]
    for name in ("gradients", "gradients_at", "derivative"):
        plain = getattr(Logistic, name)

        def counted(loss, at, rows, *more, plain=plain):
            found[0] += len(rows)
            return plain(loss, at, rows, *more)

        monkeypatch.setattr(Logistic, name, counted)
    return found


@pytest.mark.slow_parameters("one shot", "linear time, plain")
@pytest.mark.parametrize(
    "case",
    [pytest.param(each, marks=[pytest.mark.full] * (each in LONG)) for each in CASES],
)
def test_one_person_with_200_000_records_costs_as_any_other(case, asked):
    """Its first m records count: the results are those of the run without the others."""
    kind, own = CASES[case]
    algorithm = made(kind, **own)
    found = []
    for many in (False, True):
        persons = Persons.grouped(*named(many))
        asked[0] = 0
        tracemalloc.start()
        how = {"fidelity": "aggregate"} if isinstance(algorithm, Protocol) else {}
        result = run(algorithm, persons, seed=1, **how)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found.append((result, asked[0], peak))
    (plain, work, _), (uneven, more, peak) = found
    assert work > 0
    assert more == work
    assert peak < 250 * MIB
    assert np.array_equal(uneven.value, plain.value)
    assert (uneven.costs, uneven.rounds) == (plain.costs, plain.rounds)
    assert uneven.privacy == plain.privacy
    assert (plain.reports.left_out, uneven.reports.left_out) == (0, MANY - M)


@pytest.mark.parametrize("case", ["phased-erm", "linear time, chain", "gd"])
@pytest.mark.full
def test_from_files_no_more_is_kept_than_counts(case, asked, tmp_path):
    """The file's row groups are read; what is kept and asked is as without the person."""
    kind, own = CASES[case]
    algorithm, found = made(kind, **own), []
    for many in (False, True):
        rows, owner = named(many)
        columns = {"who": owner} | {f"c{at}": rows[:, at] for at in range(D + 1)}
        path = tmp_path / f"{many}.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=20_000)
        asked[0] = 0
        tracemalloc.start()
        result = run(algorithm, Persons.in_parquet([path], "who"), seed=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found.append((result.value, result.costs, asked[0]))
        assert peak < 250 * MIB
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_where_no_number_is_stated_a_public_one_holds():
    counts = [2, MANY, 5]
    persons = Persons(Generated(sum(counts), lambda rng, k: rng.normal(size=(k, 2))), counts)
    assert LOGISTIC.most_records == M
    assert Problem(Logistic(), L2Ball(D, 1.0)).most_records == MOST_RECORDS
    cut = persons.first(MOST_RECORDS)
    assert cut.records.tolist() == [2, MOST_RECORDS, 5]
    assert (cut.left_out, persons.left_out) == (MANY - MOST_RECORDS, 0)
    wanted = persons.source.rows(0, sum(counts))
    for found, low in zip(cut.rows(0, 3), (0, 2, 2 + MANY), strict=True):
        assert np.array_equal(found, wanted[low : low + len(found)])
    assert cut.width(0) == 2 * MOST_RECORDS == persons.first(MOST_RECORDS).width(0)


def test_deletion_stability_weighs_persons_alike(monkeypatch):
    """No enumeration because somebody has another number of records: that would take its time."""
    problem = Problem(MeanEstimation(), L2Ball(2, 1.0), records=M, ridge=0.5)
    made = DeletionStability.calibrated(n=8, problem=problem, privacy=Privacy(8.0, 0.5), width=5.0)
    monkeypatch.delattr("protocols.central.person.deletion_stability.stable_score")
    even = [np.full((M, 2), 0.1 * at) / 8 for at in range(8)]
    for count in (1, M, 1000):
        data = [*even[:-1], np.tile(even[-1][:1], (count, 1))]
        assert np.array_equal(run(made, data, seed=1).value, run(made, even, seed=1).value)


def test_a_baseline_of_persons_counts_its_optimiser_s_records():
    optimiser = made(UserLevelGD, rounds=3)
    assert Baseline(optimiser, "central").most_records == optimiser.most_records == M
