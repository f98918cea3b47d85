"""Tables that are too large for memory: shards encode what they read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocols import CarryVectorSum
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data import EncodedFiles, Schema
from shuffle_sim.data.column_kinds import Category, Date, FreeNumber, Number, moment_of
from shuffle_sim.data.tables import table_of
from shuffle_sim.errors import DataError

COLUMNS = (
    Number(name="age", limits=(0.0, 120.0)),
    Category(name="job", categories=("cook", "nurse")),
    Date(name="born", first=moment_of("1900-01-01", None), last=moment_of("2030-01-01", None)),
)
ROWS = 500


def cells() -> dict:
    rng = np.random.default_rng(0)
    age = [None if at % 50 == 0 else float(at % 90) for at in range(ROWS)]
    job = rng.choice(["cook", "nurse", "pilot"], ROWS)
    born = np.datetime64("1950-01-01") + rng.integers(0, 9000, ROWS).astype("timedelta64[D]")
    return {"age": np.array(age, float), "job": job.astype(object), "born": born}


@pytest.fixture
def paths(tmp_path):
    table = pa.table({name: pa.array(each, from_pandas=True) for name, each in cells().items()})
    made = [tmp_path / f"{part}.parquet" for part in range(2)]
    pq.write_table(table.slice(0, 300), made[0], row_group_size=70)
    pq.write_table(table.slice(300), made[1], row_group_size=70)
    return made


@pytest.mark.parametrize("missing", ["midpoint", "indicator"])
def test_shards_read_what_the_whole_table_would_be(paths, missing):
    schema = Schema(columns=COLUMNS, missing=missing)
    files = EncodedFiles(paths, schema)
    whole = table_of(schema, cells(), "all").scaled()
    assert files.users == ROWS
    assert np.allclose(files.rows(0, ROWS), whole)
    assert np.allclose(files.rows(123, 321), whole[123:321])  # across groups and files
    assert np.linalg.norm(files.rows(0, ROWS), axis=1).max() <= 1 + 1e-12


def test_a_sum_over_them_is_that_over_memory(paths):
    schema = Schema(columns=COLUMNS, missing="midpoint")
    d = len(schema.names)
    made = CarryVectorSum.calibrated(n=ROWS, d=d, privacy=Privacy(1.0, 1e-6), noise_ratio=1.2)
    memory = table_of(schema, cells(), "all").scaled()
    found = [run(made, data, seed=1).value for data in (EncodedFiles(paths, schema), memory)]
    assert np.array_equal(*found)


def test_what_does_not_fit_is_refused_by_name(paths):
    for columns, missing, named in (
        (COLUMNS, "drop", "midpoint or indicator"),
        ((*COLUMNS, Number(name="pay", limits=(0.0, 1.0))), "midpoint", "column pay of"),
        ((FreeNumber(name="age"),), None, "bounds"),
    ):
        with pytest.raises(ParameterError, match=named):
            EncodedFiles(paths, Schema(columns=columns, missing=missing))


def test_a_cell_that_does_not_fit_ends_the_run_by_its_column(paths):
    strict = Category(name="job", categories=("cook", "nurse"), other=False)
    files = EncodedFiles(paths, Schema(columns=(strict,)))
    with pytest.raises(DataError, match=r"0\.parquet cannot be read \(column job, row"):
        files.rows(0, ROWS)
