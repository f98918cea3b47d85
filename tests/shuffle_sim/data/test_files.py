"""Files from outside: refused by name, before memory is asked for and before any charge."""

import io
import os
import time
import traceback
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from protocols import VectorSum
from shuffle_sim import ParameterError, run
from shuffle_sim.data import archives, files
from shuffle_sim.data.file_population import NpyFiles, ParquetFiles
from shuffle_sim.data.tables import read
from shuffle_sim.errors import DataError
from shuffle_sim.execution.journal import FILE

ROWS = np.random.default_rng(0).normal(size=(40, 2)) / 4
SUM = VectorSum(n=40, d=2, g=3, b=9)


def table(path):
    return read(path, None, {}, (-9.0, 9.0))


def npy(array):
    made = io.BytesIO()
    np.save(made, array, allow_pickle=True)
    return made.getvalue()


def archive(path, members, packed=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", packed) as made:
        for name, content in members:
            made.writestr(name, content)
    return path


def header(text, version=b"\1\0", length=None):
    body = text.encode()
    size = len(body) if length is None else length
    return b"\x93NUMPY" + version + size.to_bytes(2 if version == b"\1\0" else 4, "little") + body


BROKEN_ARRAYS = {
    "objects": npy(np.array([1, None], object)),
    "records": npy(np.zeros(2, [("a", "<f8")])),
    "a header of 4 GiB": header("{", b"\2\0", 2**32 - 1),
    "a header of 64 KiB": header(" " * 65_000),
    "a header that is code": header("{'descr': '<f8', 'fortran_order': f(), 'shape': (1,), }"),
    "nested": header("(" * 3000),
    "a huge shape": header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**62}, 8), }}"),
    "longer than the file": npy(ROWS)[:-1],
    "shorter than the file": npy(ROWS) + b"\0",
    "no array": b"\0" * 200,
    "nothing": b"",
}


@pytest.mark.parametrize("content", BROKEN_ARRAYS.values(), ids=BROKEN_ARRAYS)
def test_arrays_that_are_not_what_they_say_are_refused(content, tmp_path):
    (tmp_path / "rows.npy").write_bytes(content)
    with pytest.raises(ParameterError, match=r"rows\.npy.*a whole \.npy file"):
        NpyFiles([tmp_path / "rows.npy"])
    with pytest.raises(ParameterError, match=r"a readable \.npz table"):
        table(archive(tmp_path / "t.npz", [("a.npy", content)]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(40,), (40, 2), (40, 2, 3), (0, 2), (40, 0)])
def test_rows_are_read_as_numpy_reads_them(order, shape, tmp_path):
    rows = np.asarray(np.random.default_rng(1).normal(size=shape), order=order)
    np.save(tmp_path / "rows.npy", rows)
    np.savez(tmp_path / "rows.npz", rows, np.arange(3), np.array(["a", "bc"]))
    found = files.NpyRows(tmp_path / "rows.npy")
    low, high = (7, 31) if len(rows) else (0, 0)
    np.testing.assert_array_equal(found.read(low, high), rows[low:high])
    first, second, third = archives.read_archive(tmp_path / "rows.npz").values()
    np.testing.assert_array_equal(first, rows)
    assert second.tolist() == [0, 1, 2]
    assert third.tolist() == ["a", "bc"]


@pytest.mark.full
def test_archives_that_are_bombs_are_refused_at_once(tmp_path):
    """Power: the honest ones beside them are read."""
    honest = archive(tmp_path / "h.npz", [("a.npy", npy(ROWS[:, 0]))], zipfile.ZIP_DEFLATED)
    assert table(honest).rows.shape == (40, 1)
    zeros = np.zeros((1 << 25) + (1 << 20))  # just above the size from which packing counts
    bomb = archive(tmp_path / "b.npz", [("a.npy", npy(zeros))], zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    del zeros
    many = archive(tmp_path / "m.npz", [(f"{i}.npy", b"") for i in range(30_000)])
    foreign = archive(tmp_path / "f.npz", [("a.npy", npy(ROWS)), ("run.sh", b"rm")])
    slow = archive(tmp_path / "s.npz", [("a.npy", npy(ROWS))], zipfile.ZIP_LZMA)
    start = time.perf_counter()
    tracemalloc.start()
    try:
        for path, says in (
            (bomb, "a bomb"),
            (many, "more than 16,384 arrays"),
            (foreign, "not arrays"),
            (slow, "numpy has not"),
        ):
            with pytest.raises(ParameterError, match=says):
                table(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 20  # a minute and more before


def test_tables_beyond_the_limits_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{i}" for i in range(20_000)) + "\n" + ",".join("1" * 20_000) + "\n")
    with pytest.raises(ParameterError, match="20,000 columns"):
        table(path)
    monkeypatch.setattr(files, "LARGEST_TABLE", 1000)
    path.write_text("a\n" + "1\n" * 1000)
    with pytest.raises(ParameterError, match="at most 1,000 bytes"):
        table(path)
    parquet.write_table(pa.table({"a": np.zeros(126)}), tmp_path / "t.parquet")
    with pytest.raises(ParameterError, match="126 cells"):
        table(tmp_path / "t.parquet")
    np.savez_compressed(tmp_path / "t.npz", a=np.zeros(200))
    with pytest.raises(ParameterError, match="bytes, at most 1,000 fit"):
        table(tmp_path / "t.npz")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz", "npy"])
def test_pipes_devices_folders_and_long_names_are_refused(suffix, tmp_path):
    pipe, folder = tmp_path / f"pipe.{suffix}", tmp_path / f"folder.{suffix}"
    os.mkfifo(pipe)
    folder.mkdir()
    device = tmp_path / f"zero.{suffix}"
    device.symlink_to("/dev/zero")
    take = table if suffix != "npy" else lambda path: NpyFiles([path])
    for path in (
        pipe,
        folder,
        device,
        tmp_path / f"{'x' * 300}.{suffix}",
        tmp_path / f"no.{suffix}",
    ):
        with pytest.raises(ParameterError, match="a file"):
            take(path)


def test_a_parquet_file_that_breaks_in_its_pages_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"a": ROWS[:, 0], "b": ROWS[:, 1]}
    parquet.write_table(pa.table(columns), path, write_page_checksum=True, compression="none")
    whole = run(SUM, ParquetFiles([path]), seed=1)
    assert whole.reports.accepted == 40
    broken = bytearray(path.read_bytes())
    broken[200] ^= 1
    path.write_bytes(broken)
    with pytest.raises(DataError, match=r"t\.parquet cannot be read") as caught:
        run(SUM, ParquetFiles([path]), seed=1)
    assert caught.value.ledger is None or not caught.value.ledger.charges


def test_a_wrong_parquet_file_is_refused_without_the_cell(tmp_path):
    """Text that is no UTF-8 is found where it is taken, and pyarrow shows it."""
    offsets, bad = np.array([0, 6, 9], np.int32), b"SECRET\xff\xfe\xfd"
    column = pa.Array.from_buffers(pa.string(), 2, [None, *map(pa.py_buffer, (offsets, bad))])
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": [1.0, 2.0], "who": column}), path)
    with pytest.raises(ParameterError, match="Wrapping") as caught:
        read(path, ["a"], {}, (-9.0, 9.0), person="who")
    assert "SECRET" not in shown(caught.value)
    assert "\\x" not in shown(caught.value)


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\nSECRET,3,4\n", "a,b\n1,2\nSECRET\n", 'a,b\n1,2\n"SECRET,3\n', "a\n1\nSECRET"],
)
def test_what_is_wrong_in_a_text_is_said_without_the_row(text, tmp_path):
    """Not even as the cause of the error, which Python prints, too."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ParameterError) as caught:
        table(path)
    assert "SECRET" not in shown(caught.value)


def shown(error):
    """What Python prints of it and its causes, but the lines of our source."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("    "))


def test_an_npy_file_that_was_cut_is_named(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    rows = NpyFiles([tmp_path / "rows.npy"])
    os.truncate(tmp_path / "rows.npy", 400)
    with pytest.raises(DataError, match=r"rows\.npy was cut") as caught:
        run(SUM, rows, seed=1)
    assert caught.value.ledger is None or not caught.value.ledger.charges


def test_a_parquet_file_with_fewer_rows_than_before_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": ROWS[:, 0]}), path)
    rows = ParquetFiles([path])
    parquet.write_table(pa.table({"a": ROWS[:9, 0]}), path)
    with pytest.raises(DataError, match=r"t\.parquet has other rows"):
        rows.rows(0, 40)


# Journals


def test_a_pipe_or_device_as_journal_is_refused(tmp_path):
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(ParameterError, match="pipe or device"):
        run(SUM, ROWS, seed=1, checkpoint=tmp_path, resume=True)
    (tmp_path / FILE).unlink()
    os.mkdir(tmp_path / FILE)
    with pytest.raises(ParameterError, match="not a folder"):
        run(SUM, ROWS, seed=1, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("folder", ["", "x" * 300, "a\0b", f"{'y' * 256}/run"])
def test_folders_that_no_disk_takes_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"checkpoint = .* a name of 1 to 255 bytes"):
        run(SUM, ROWS, seed=1, checkpoint=folder)
    assert not list(Path().iterdir())


def test_a_disk_that_is_read_only_is_refused_before_anything(tmp_path, monkeypatch):
    really = os.open

    def read_only(path, flags, *mode):
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return really(path, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(ParameterError, match="Read-only file system"):
        run(SUM, ROWS, seed=1, checkpoint=tmp_path)
    with pytest.raises(ParameterError, match="checkpoint"):
        run(SUM, ROWS, seed=1, checkpoint="/proc/run")
