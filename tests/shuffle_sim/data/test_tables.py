import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shuffle_sim.data.schema import Declared, Schema
from shuffle_sim.data.tables import Table, bundled, read
from shuffle_sim.errors import ParameterError

SHAPES = {
    "breast-cancer": (569, 30),
    "digits": (1797, 64),
    "diabetes": (442, 10),
    "wine": (178, 13),
}
UNCLIPPED = ("digits", "diabetes")
COLUMNS = {
    "age": [31.0, 47.5, 20.25],
    "net income, k=1": [1.0, 2.0, 4.0],
    "größe": [-1.5, 0.0, 2.5],
}
BOUNDS = {"age": (0.0, 120.0), "größe": (-2.0, 3.0)}


def outside(table: Table) -> np.ndarray:
    return (table.rows < table.lower) | (table.rows > table.upper)


@pytest.mark.parametrize("name", SHAPES)
def test_bundled_table_has_its_shape_and_one_name_per_column(name):
    table = bundled(name)
    assert table.name == name
    assert table.rows.shape == SHAPES[name]
    assert table.rows.dtype == np.float64
    assert (
        len(set(table.columns))
        == len(table.columns)
        == table.lower.size
        == table.upper.size
        == SHAPES[name][1]
    )
    assert table.target.shape == SHAPES[name][:1]


@pytest.mark.parametrize("name", SHAPES)
def test_published_bounds_leave_out_a_thousandth_at_most(name):
    table = bundled(name)
    assert (table.lower < table.upper).all()
    assert outside(table).mean() <= (0 if name in UNCLIPPED else 1e-3)
    overshoot = np.maximum(table.lower - table.rows, table.rows - table.upper) / (
        table.upper - table.lower
    )
    assert overshoot.max() < 0.01


@pytest.mark.parametrize("name", SHAPES)
def test_scaled_rows_lie_in_the_unit_ball(name):
    table = bundled(name)
    scaled = table.scaled()
    assert np.linalg.norm(scaled, axis=1).max() <= 1 + 1e-12
    # The range is used.
    assert np.abs(scaled).max() * np.sqrt(SHAPES[name][1]) == pytest.approx(1, abs=0.2)
    assert f"{SHAPES[name][1]} columns" in table.scaling


@pytest.mark.parametrize("name", UNCLIPPED)
def test_means_invert_scaled_where_nothing_is_clipped(name):
    table = bundled(name)
    means = table.means(table.scaled().sum(axis=0), len(table.rows))
    np.testing.assert_allclose(
        means, table.rows.mean(axis=0), rtol=0, atol=1e-13 * (table.upper - table.lower).max()
    )


@pytest.mark.parametrize("name", SHAPES)
def test_means_of_scaled_are_those_of_the_clipped_rows(name):
    table = bundled(name)
    means = table.means(table.scaled().sum(axis=0), len(table.rows))
    clipped = np.clip(table.rows, table.lower, table.upper).mean(axis=0)
    np.testing.assert_allclose((means - clipped) / (table.upper - table.lower), 0, atol=1e-13)


@pytest.mark.wheel
def test_means_invert_scaled_to_the_bit_in_dyadic_numbers():
    lower, upper = np.array([-1.0, 0.0, 2.0, -8.0]), np.array([1.0, 4.0, 10.0, 8.0])
    rows = lower + (upper - lower) * np.random.default_rng(0).integers(0, 17, (64, 4)) / 16
    table = Table(name="dyadic", schema=Schema.within("abcd", lower, upper), rows=rows)
    assert table.means(table.scaled().sum(axis=0), 64).tolist() == rows.mean(axis=0).tolist()


def test_values_outside_the_bounds_are_clipped_to_them():
    table = Table(
        name="t",
        schema=Schema.within("ab", np.zeros(2), np.ones(2)),
        rows=np.array([[-5.0, 1e300], [5.0, 0.5]]),
    )
    np.testing.assert_allclose(table.scaled() * np.sqrt(2), [[-1, 1], [1, 0]], atol=1e-15)


def test_spread_is_one_standard_error_of_the_means():
    table = bundled("wine")
    sums = table.scaled().sum(axis=0)
    np.testing.assert_allclose(
        table.means(sums + 7.5, 178) - table.means(sums, 178), table.spread(7.5, 178), rtol=1e-9
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_truths_with_blanks_are_truths(tmp_path, suffix):
    path, truths = tmp_path / f"t{suffix}", [True, None, False, True]
    if suffix == ".parquet":
        pq.write_table(pa.table({"a": truths}), path)
    else:
        path.write_text("a,b\nTrue,1\n,1\nfalse,1\nTRUE,1\n")
    declared = Declared(missing="midpoint")
    table = read(path, ["a"], {"a": (0.0, 1.0)}, None, declared=declared)
    assert table.rows[:, 0].tolist() == [1, 0.5, 0, 1]
    with pytest.raises(ParameterError, match="column a, row 2"):
        read(path, ["a"], {"a": (0.0, 1.0)}, None)


def test_truths_among_other_texts_are_texts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\nTrue\nperhaps\n")
    for bounds in ({}, {"a": (0.0, 1.0)}):
        with pytest.raises(ParameterError, match=r"column a = 'text'.*--categories"):
            read(path, None, bounds, None)


@pytest.mark.parametrize("name", ["iris", "", "Wine", "breast_cancer"])
def test_another_name_is_refused_with_the_names_there_are(name):
    with pytest.raises(
        ParameterError, match="one of breast-cancer, diabetes, digits, wine"
    ) as caught:
        bundled(name)
    assert caught.value.parameter == "table"


# Files


def csv(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def parquet(path: Path, columns: dict) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def npz(path: Path, *arrays, **named) -> Path:
    np.savez(path, *arrays, **named)
    return path


def as_csv(folder: Path) -> Path:
    lines = [
        ",".join(f'"{name}"' for name in COLUMNS),
        *(",".join(map(repr, row)) for row in zip(*COLUMNS.values(), strict=True)),
    ]
    return csv(folder / "t.csv", "\n".join(lines))


def as_parquet(folder: Path) -> Path:
    return parquet(folder / "t.parquet", COLUMNS)


def as_npz(folder: Path) -> Path:
    return npz(folder / "t.npz", **COLUMNS)


@pytest.mark.parametrize("write", [as_csv, as_parquet, as_npz])
def test_a_file_gives_back_its_named_columns_in_order(tmp_path, write):
    path = write(tmp_path)
    table = read(path, None, BOUNDS, (0.0, 5.0))
    assert (table.name, table.columns) == (path.name, tuple(COLUMNS))
    assert table.rows.T.tolist() == list(COLUMNS.values())
    assert list(zip(table.lower, table.upper, strict=True)) == [(0, 120), (0, 5), (-2, 3)]
    assert table.target is None


@pytest.mark.parametrize("write", [as_csv, as_parquet, as_npz])
def test_columns_are_chosen_by_name_and_others_need_no_bounds(tmp_path, write):
    table = read(write(tmp_path), ["größe", "age"], BOUNDS, None)
    assert table.columns == ("größe", "age")
    assert table.rows.T.tolist() == [COLUMNS["größe"], COLUMNS["age"]]
    assert (table.lower.tolist(), table.upper.tolist()) == ([-2, 0], [3, 120])


def test_a_matrix_in_an_npz_has_its_columns_numbered(tmp_path):
    matrix = np.arange(12.0).reshape(4, 3)
    path = npz(tmp_path / "m.npz", matrix)
    assert read(path, None, {}, (0, 12)).columns == ("0", "1", "2")
    assert read(path, ["2", "0"], {}, (0, 12)).rows.tolist() == matrix[:, [2, 0]].tolist()


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float32])
def test_every_kind_of_number_becomes_float64(tmp_path, kind):
    rows = np.array([[0, 1], [1, 1]], kind)
    for path in (
        npz(tmp_path / "t.npz", rows),
        parquet(tmp_path / "t.parquet", {"0": rows[:, 0], "1": rows[:, 1]}),
    ):
        table = read(path, None, {}, (0, 1))
        assert table.rows.dtype == np.float64
        assert table.rows.tolist() == [[0, 1], [1, 1]]


def truncated(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def emptied(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def garbage(path: Path) -> Path:
    path.write_bytes(b"this is not a table\n\0\xff")
    return path


def wrong_bit(path: Path) -> Path:
    """One bit of the first array's data is not what its checksum says."""
    data = bytearray(path.read_bytes())
    data[data.index(b"\x93NUMPY") + 130] ^= 1
    path.write_bytes(data)
    return path


def npy(path: Path) -> Path:
    np.save(path.with_suffix(".npy"), np.ones(3))
    return Path(shutil.move(path.with_suffix(".npy"), path))


UNREADABLE = {
    "missing csv": lambda f: f / "no.csv",
    "missing parquet": lambda f: f / "no.parquet",
    "missing npz": lambda f: f / "no.npz",
    "folder csv": lambda f: folder(f / "t.csv"),
    "folder parquet": lambda f: folder(f / "t.parquet"),
    "folder npz": lambda f: folder(f / "t.npz"),
    "no suffix": lambda f: garbage(f / "table"),
    "txt": lambda f: csv(f / "t.txt", "a\n1\n"),
    "npy": lambda f: npy(f / "t.npy"),
    "npy named npz": lambda f: npy(f / "t.npz"),
    "empty csv": lambda f: emptied(f / "t.csv"),
    "empty parquet": lambda f: emptied(f / "t.parquet"),
    "empty npz": lambda f: emptied(f / "t.npz"),
    "csv with a header only": lambda f: csv(f / "t.csv", "a,b\n"),
    "parquet without rows": lambda f: parquet(f / "t.parquet", {"a": pa.array([], pa.float64())}),
    "parquet without columns": lambda f: parquet(f / "t.parquet", {}),
    "npz without arrays": lambda f: npz(f / "t.npz"),
    "npz without rows": lambda f: npz(f / "t.npz", np.zeros((0, 3))),
    "npz without columns": lambda f: npz(f / "t.npz", np.zeros((3, 0))),
    "garbage parquet": lambda f: garbage(f / "t.parquet"),
    "garbage npz": lambda f: garbage(f / "t.npz"),
    "truncated parquet": lambda f: truncated(as_parquet(f)),
    "truncated npz": lambda f: truncated(as_npz(f)),
    "npz with a wrong bit": lambda f: wrong_bit(as_npz(f)),
    "ragged csv": lambda f: csv(f / "t.csv", "a,b\n1,2\n3\n"),
    "ragged npz": lambda f: npz(f / "t.npz", a=[1.0, 2.0], b=[1.0, 2.0, 3.0]),
    "object npz": lambda f: npz(f / "t.npz", a=np.array([1, None], object)),
    "scalar npz": lambda f: npz(f / "t.npz", a=1.0),
    "cube npz": lambda f: npz(f / "t.npz", np.zeros((2, 2, 2))),
    "column and matrix npz": lambda f: npz(f / "t.npz", a=[1.0, 2.0], b=np.zeros((2, 2))),
}


def refusal(path: Path, columns=None, bounds=None, everywhere=(0.0, 10.0)) -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        read(path, columns, bounds or {}, everywhere)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path, make):
    path = make(tmp_path)
    error = refusal(path)
    assert error.parameter == "file"
    assert str(path) in str(error)


NOT_NUMBERS = {
    "strings csv": ("b", lambda f: csv(f / "t.csv", "a,b\n1,x\n2,y\n")),
    "dates csv": ("a", lambda f: csv(f / "t.csv", "a,b\n2020-01-01,1\n")),
    "strings parquet": ("b", lambda f: parquet(f / "t.parquet", {"a": [1.0], "b": ["x"]})),
    "lists parquet": ("a", lambda f: parquet(f / "t.parquet", {"a": [[1.0, 2.0]]})),
    "complex npz": ("a", lambda f: npz(f / "t.npz", a=np.array([1j]))),
    "strings npz": ("a", lambda f: npz(f / "t.npz", a=np.array(["x"]))),
    "nan csv, row 2": ("a", lambda f: csv(f / "t.csv", "a,b\n1,2\nnan,3\n")),
    "infinity csv, row 2": ("b", lambda f: csv(f / "t.csv", "a,b\n1,2\n1,inf\n")),
    "gap csv, row 2": ("a", lambda f: csv(f / "t.csv", "a,b\n1,2\n,3\n")),
    "gap in integers csv, row 1": ("b", lambda f: csv(f / "t.csv", "a,b\n1,\n2,3\n")),
    "gap parquet, row 3": ("a", lambda f: parquet(f / "t.parquet", {"a": [1, 2, None]})),
    "nan npz, row 2": ("a", lambda f: npz(f / "t.npz", a=[1.0, np.nan])),
    "nan matrix npz, row 2": (
        "2",
        lambda f: npz(f / "t.npz", np.array([[1.0, 1.0, 1.0], [1.0, 1.0, np.nan]])),
    ),
}


@pytest.mark.parametrize("case", NOT_NUMBERS)
def test_a_column_of_no_finite_numbers_is_refused_by_its_row(tmp_path, case):
    column, make = NOT_NUMBERS[case]
    row = case.rpartition(", row ")[2] if ", row " in case else None
    assert refusal(make(tmp_path)).parameter == f"column {column}" + (f", row {row}" if row else "")


@pytest.mark.parametrize("write", [as_csv, as_parquet, as_npz])
def test_a_missing_column_is_refused_with_the_columns_there_are(tmp_path, write):
    path = write(tmp_path)
    for error in (refusal(path, ["age", "Age"]), refusal(path, ["age"], {"Age": (0, 1)})):
        assert (error.parameter, error.value) == ("column", "Age")
        assert all(name in str(error) for name in COLUMNS)


def test_a_column_without_public_bounds_is_refused_by_name(tmp_path):
    error = refusal(as_csv(tmp_path), ["age", "größe"], {"age": (0, 1)}, everywhere=None)
    assert error.parameter == "bounds"
    assert "größe" in str(error)


@pytest.mark.parametrize(
    "limits", [(1.0, 0.0), (1.0, 1.0), (np.nan, 1.0), (0.0, np.nan), (0.0, np.inf), (-np.inf, 0.0)]
)
def test_bounds_that_are_not_two_finite_numbers_are_refused(tmp_path, limits):
    path = as_csv(tmp_path)
    assert refusal(path, ["age"], {"age": limits}).parameter == "bounds of age"
    assert refusal(path, ["age"], {}, everywhere=limits).parameter == "bounds of age"


def test_bounds_whose_difference_overflows_are_refused(tmp_path):
    assert refusal(as_csv(tmp_path), ["age"], {"age": (-1e308, 1e308)}).parameter == "bounds of age"


CLEAR = {
    "missing parquet": (r"no such file|not exist|not found", r"$^"),
    "folder parquet": (r"directory|folder|not a file", r"one length"),
    "garbage npz": (r"npz|zip", r"pickle|unsafely"),
    "object npz": (r"object", r"allow_pickle"),
    "parquet without columns": (r"column", r"one length"),
    "npz without arrays": (r"column|array", r"one length"),
}


@pytest.mark.parametrize("case", CLEAR)
def test_the_message_says_what_is_wrong_with_the_file(tmp_path, case):
    wanted, unwanted = CLEAR[case]
    with pytest.raises(ParameterError, match=f"(?i){wanted}") as caught:
        read(UNREADABLE[case](tmp_path), None, {}, (0, 1))
    assert not any(word in str(caught.value) for word in unwanted.split("|"))


def test_a_column_name_of_two_lines_makes_one_line(tmp_path):
    path = parquet(tmp_path / "t.parquet", {"a\nb": [1.0], "c": ["x"]})
    refusal(path, ["x"])


def test_a_long_path_does_not_hide_the_name_of_the_file(tmp_path):
    path = tmp_path / ("deep" * 20) / "people.csv"
    assert "people.csv" in str(refusal(path))
