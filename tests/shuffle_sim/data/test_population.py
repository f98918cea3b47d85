import pickle

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from protocols import ScalarSum, VectorSum
from shuffle_sim import ParameterError, run
from shuffle_sim.data.file_population import NpyFiles, ParquetFiles
from shuffle_sim.data.population import Generated, InMemory


def rows_of(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(-0.5, 0.5, (count, 2))


def test_generated_rows_do_not_depend_on_the_range_asked_for():
    population = Generated(150_000, rows_of, seed=3)
    whole = population.rows(0, 150_000)
    assert whole.shape == (150_000, 2)
    for start, stop in ((0, 1), (65_530, 65_540), (131_072, 150_000), (10, 140_000)):
        assert np.array_equal(
            pickle.loads(pickle.dumps(population)).rows(start, stop), whole[start:stop]
        )
    assert not np.array_equal(whole, Generated(150_000, rows_of, seed=4).rows(0, 150_000))


@pytest.fixture
def files(tmp_path):
    rows = rows_of(np.random.default_rng(0), 500)
    paths = [tmp_path / f"part{i}.npy" for i in range(3)]
    for path, part in zip(paths, np.split(rows, [200, 201]), strict=True):
        np.save(path, part)
    return paths, rows


def test_rows_come_from_the_files_they_lie_in(files):
    paths, rows = files
    population = NpyFiles(paths)
    assert population.users == 500
    for start, stop in ((0, 500), (199, 202), (200, 201), (450, 500)):
        assert np.array_equal(population.rows(start, stop), rows[start:stop])


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_files_generators_and_memory_give_the_same_bits(files, fidelity):
    paths, rows = files
    protocol = VectorSum(n=500, d=2, g=9, b=12)
    reference = run(protocol, rows, fidelity=fidelity, seed=1).value
    for workers in (1, 4):
        assert np.array_equal(
            run(protocol, NpyFiles(paths), fidelity=fidelity, seed=1, workers=workers).value,
            reference,
        )
    made = Generated(500, rows_of, seed=7)
    same = run(protocol, made.rows(0, 500), fidelity=fidelity, seed=1).value
    assert np.array_equal(run(protocol, made, fidelity=fidelity, seed=1, workers=3).value, same)


def test_unfitting_files_are_refused_before_the_first_release(files, tmp_path):
    paths, _ = files
    with pytest.raises(ParameterError, match=r"no\.npy"):
        NpyFiles([*paths, tmp_path / "no.npy"])
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[:-9])
    with pytest.raises(ParameterError, match="part1"):
        NpyFiles(paths)
    np.save(paths[1], np.zeros((3, 5)))
    with pytest.raises(ParameterError, match="part1"):
        NpyFiles(paths)
    np.save(paths[1], np.array(["x"]))
    with pytest.raises(ParameterError, match="part1"):
        NpyFiles(paths)
    with pytest.raises(ParameterError, match="at least one"):
        NpyFiles([])
    with pytest.raises(ParameterError, match="rows of 9 users"):
        run(VectorSum(n=9, d=2, g=9, b=12), Generated(10, rows_of))


def test_rows_that_are_not_finite_become_zero_and_are_counted():
    def broken(rng, count):
        rows = rows_of(rng, count)
        rows[::10] = np.nan
        return rows

    protocol = VectorSum(n=200, d=2, g=500, b=2000)
    result = run(protocol, Generated(200, broken), seed=1)
    assert result.reports.nonfinite == 20
    kept = Generated(200, rows_of).rows(0, 200)
    kept[::10] = 0
    assert np.abs(result.value - kept.sum(axis=0)).max() < 6 * protocol.standard_error


def test_a_generator_that_makes_too_few_rows_is_refused():
    with pytest.raises(ParameterError, match="make"):
        Generated(10, lambda rng, count: rng.random((count - 1, 2))).rows(0, 10)


def test_memory_is_resident_and_nothing_else():
    assert InMemory(np.zeros(3)).resident
    assert not Generated(3, rows_of).resident


@pytest.fixture
def parquet(tmp_path):
    rows = rows_of(np.random.default_rng(0), 500)
    paths = [tmp_path / f"part{i}.parquet" for i in range(2)]
    for path, part in zip(paths, np.split(rows, [310]), strict=True):
        table = pyarrow.table({"b": part[:, 1], "name": ["x"] * len(part), "a": part[:, 0]})
        pyarrow.parquet.write_table(table, path, row_group_size=64)
    return paths, rows


def test_parquet_rows_come_from_the_row_groups_they_lie_in(parquet):
    paths, rows = parquet
    population = ParquetFiles(paths, ["a", "b"])
    assert population.users == 500
    for start, stop in ((0, 500), (63, 65), (309, 311), (64, 128), (499, 500), (0, 1)):
        assert np.array_equal(
            pickle.loads(pickle.dumps(population)).rows(start, stop), rows[start:stop]
        )
    assert np.array_equal(ParquetFiles(paths, ["b"]).rows(300, 320), rows[300:320, 1])


def test_an_empty_file_between_others_is_passed_over(parquet, tmp_path):
    paths, rows = parquet
    empty = pyarrow.table({"a": np.empty(0), "b": np.empty(0)})
    pyarrow.parquet.write_table(empty, tmp_path / "empty.parquet")
    population = ParquetFiles([paths[0], tmp_path / "empty.parquet", paths[1]], ["a", "b"])
    assert np.array_equal(population.rows(300, 320), rows[300:320])


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_parquet_and_memory_give_the_same_bits(parquet, fidelity):
    paths, rows = parquet
    protocol = VectorSum(n=500, d=2, g=9, b=12)
    reference = run(protocol, rows, fidelity=fidelity, seed=1).value
    for workers in (1, 4):
        read = ParquetFiles(paths, ["a", "b"])
        assert np.array_equal(
            run(protocol, read, fidelity=fidelity, seed=1, workers=workers).value, reference
        )


def test_a_missing_value_is_sent_as_zero_and_counted(tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.table({"a": [0.5, None, 0.25], "b": [1, 2, 3]}), tmp_path / "gap.parquet"
    )
    result = run(
        ScalarSum(n=3, g=4, b=9),
        ParquetFiles([tmp_path / "gap.parquet"], ["a"]),
        fidelity="literal",
        seed=1,
    )
    assert result.reports.nonfinite == 1


def test_bad_parquet_files_are_refused_before_the_first_release(parquet, tmp_path):
    paths, _ = parquet
    for columns, message in (
        (["a", "c"], "column c"),
        (["a", "name"], "column name"),
        (None, "column name"),
    ):
        with pytest.raises(ParameterError, match=message):
            ParquetFiles(paths, columns)
    with pytest.raises(ParameterError, match=r"no\.parquet"):
        ParquetFiles([*paths, tmp_path / "no.parquet"], ["a"])
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    with pytest.raises(ParameterError, match="part1"):
        ParquetFiles(paths, ["a", "b"])
    with pytest.raises(ParameterError, match="at least one"):
        ParquetFiles([])


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_rows_of_another_width_are_refused_before_a_release(parquet, fidelity):
    with pytest.raises(ParameterError, match=r"data\.shape"):
        run(
            VectorSum(n=500, d=3, g=9, b=12),
            ParquetFiles(parquet[0], ["a", "b"]),
            fidelity=fidelity,
            seed=1,
        )
