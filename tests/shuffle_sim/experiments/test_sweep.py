"""Studies: every point once, the same rows anywhere, nothing lost by a kill."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing

import numpy as np
import pytest

from protocols import CarryVectorSum
from shuffle_sim import ParameterError, Privacy, Trial, sweep
from shuffle_sim.experiments import Store, Study, points_of, table_of
from shuffle_sim.protocol.adversary import Dropout

PRIVACY = {"privacy": Privacy(1.0, 1e-6)}
TIMES = ["seconds"]


def summed(n, drop, seed):
    rows = np.random.default_rng(seed).normal(size=(n, 2))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    made = CarryVectorSum(n=n, d=2, norm_bound=1.0, g=4, r=2, b=8, delta=1e-6)
    how = {"adversary": Dropout(drop), "fidelity": "aggregate"} if drop else {}
    return Trial(made, rows, how, truth=rows.sum(axis=0))


def squared(k):
    if k == 3:
        raise ValueError("three\nis none")
    return {"square": k * k, "name": f"n{k}"}


def drawn(k, seed):
    return {"drawn": float(np.random.default_rng(seed).random())}


def killed(k):
    if k == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"k": float(k)}


def test_the_same_rows_on_any_runtime_and_number_of_workers():
    grid = {"n": [50, 80], "drop": [0.0, 0.2]}
    first = sweep(summed, grid, seeds=2, runtime="inprocess").drop(TIMES)
    assert first.num_rows == 8
    assert set(first["reason"].to_pylist()) == {""}
    assert len(set(first["rmse"].to_pylist())) == 8
    for workers in (1, 3):
        assert sweep(summed, grid, seeds=2, workers=workers).drop(TIMES) == first


@pytest.mark.long
def test_ray_gives_the_same_rows_and_outlives_a_worker():
    here = sweep(drawn, {"k": range(3)}, seeds=2, runtime="inprocess").drop(TIMES)
    assert sweep(drawn, {"k": range(3)}, seeds=2, runtime="ray", workers=2).drop(TIMES) == here
    died = sweep(killed, {"k": range(4)}, runtime="ray", workers=2).to_pydict()
    assert [bool(each) for each in died["reason"]] == [False, False, True, False]


def test_a_seed_follows_from_the_point_alone():
    wide = {each.content: each.seed for each in points_of({"k": [1, 2, 3], "m": "a"}, 3)}
    narrow = points_of({"m": "a", "k": 2}, [2])
    assert [wide[each.content] for each in narrow] == [each.seed for each in narrow]
    assert len(set(wide.values())) == 9
    assert [each.seed for each in points_of({"k": 1}, None)] == [None]


def test_a_point_that_fails_has_a_reason_and_the_others_go_on():
    found = sweep(squared, {"k": range(5)}).to_pydict()
    assert found["square"] == [0, 1, 4, None, 16]
    assert found["reason"] == ["", "", "", "ValueError: three is none", ""]


def test_a_worker_that_dies_is_its_point_s_reason():
    found = sweep(killed, {"k": range(5)}, workers=2).to_pydict()
    assert found["measured_k"] == [0.0, 1.0, None, 3.0, 4.0]
    assert found["reason"][2] == "its process ended (exit code -9)"


def test_what_a_store_holds_is_not_run_again(tmp_path):
    marks, store = tmp_path / "marks", tmp_path / "study.sqlite"
    name = str(marks)  # a path that is closed over counts with its file's size

    def make(k):
        with open(name, "a") as file:
            file.write(f"{k}\n")
        return squared(k)

    first = sweep(make, {"k": range(5)}, store=store)
    assert sweep(make, {"k": range(5)}, store=store).drop(TIMES) == first.drop(TIMES)
    assert sorted(marks.read_text().split()) == ["0", "1", "2", "3", "3", "4"]  # 3 had failed
    sweep(make, {"k": range(6)}, store=store)
    assert sorted(marks.read_text().split())[-2:] == ["4", "5"]

    def changed(k):
        return {"square": -k}

    assert sweep(changed, {"k": [1]}, store=store, name="x")["square"].to_pylist() == [-1]


def kept(path):
    """How many points a store holds that another process writes."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as connection:
        try:
            return connection.execute("SELECT count(*) FROM points").fetchone()[0]
        except sqlite3.OperationalError:  # its table is not there yet
            return 0


SCRIPT = """
import sys, time
from shuffle_sim import sweep
def make(k, seed):
    time.sleep(0.01)
    return {"value": float(k * seed % 1009)}
table = sweep(make, {"k": range(int(sys.argv[2]))}, seeds=2, workers=2, store=sys.argv[1])
assert table.num_rows == 2 * int(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("kills", "half"), [(3, 60), pytest.param(10, 100, marks=pytest.mark.slow)]
)
@pytest.mark.full
def test_a_study_killed_at_random_ends_like_one_that_was_not(tmp_path, kills, half):
    script = tmp_path / "study.py"
    script.write_text(textwrap.dedent(SCRIPT))
    stores = [tmp_path / "killed.sqlite", tmp_path / "whole.sqlite"]
    command, choose, found = [sys.executable, str(script)], random.Random(5), [0]
    for _ in range(kills):
        run = subprocess.Popen([*command, str(stores[0]), str(half)])
        aim = found[-1] + choose.randint(1, 2 * half // kills)  # a kill falls among the points
        while run.poll() is None and kept(stores[0]) < aim:
            time.sleep(0.02)
        run.kill()
        run.wait(timeout=60)
        found.append(kept(stores[0]))
    assert all(0 < each < 2 * half for each in found[1:-1]), found
    for store in stores:
        subprocess.run([*command, str(store), str(half)], check=True, timeout=240)
    rows = []
    for path in stores:
        store = Store.open(path)
        rows.append({(e.study, e.point.content): (e.point.seed, e.row) for e in store.all()})
        store.close()
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2 * half


@pytest.mark.parametrize(
    ("grid", "seeds", "said"),
    [
        ({"k": []}, 1, "grid: k"),
        ([], 1, "grid"),
        ({"k": [float("nan")]}, 1, "grid: k"),
        ({"k": [object()]}, 1, "grid: k"),
        ({"k": range(1001), "m": range(1001)}, 1, "grid"),
        ({"k": 1}, 0, "seeds"),
        ({"k": 1}, [0.5], "seeds"),
        ({1: 2}, 1, "grid"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused_by_name(grid, seeds, said):
    with pytest.raises(ParameterError) as error:
        points_of(grid, seeds)
    assert error.value.parameter == said


def test_bad_options_are_refused_before_anything_is_run(tmp_path):
    for options, said in (
        ({"workers": 0}, "workers"),
        ({"runtime": "cloud"}, "pool"),
        ({"address": "auto"}, "address"),
        ({"runtime": "inprocess", "workers": 2}, "workers"),
        ({"store": tmp_path}, "store"),
    ):
        with pytest.raises(ParameterError) as error:
            sweep(squared, {"k": 1}, **options)
        assert error.value.parameter == said
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(tmp_path):
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (a)")
    text = tmp_path / "text.sqlite"
    text.write_text("no database, but long enough to be read as a header of one: " * 20)
    newer = tmp_path / "newer.sqlite"
    Store.open(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = [path.read_bytes() for path in (text, other)]
    for path in (other, text, newer):
        with pytest.raises(ParameterError) as error:
            Store.open(path)
        assert error.value.parameter == "store"
    assert [path.read_bytes() for path in (text,)] == before[:1]
    with pytest.raises(ParameterError, match="format 99"):
        Store.open(newer)


def test_a_store_that_another_process_holds_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("shuffle_sim.experiments.store.WAIT", 0.05)
    path = tmp_path / "held.sqlite"
    Store.open(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(ParameterError, match="another process holds it"):
            Store.open(path)
    finally:
        other.close()


def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path):
    store = Store.open(tmp_path / "full.sqlite")
    points = points_of({"k": range(3), "text": "a" * 3000}, 1)
    study = Study(lambda k, text: {"k2": k}, points[:1], "s")
    study.run(store, runtime="inprocess")
    store._connection.execute("PRAGMA max_page_count = 5")
    many = points_of({"k": range(50), "text": "a" * 3000}, 1)
    with pytest.raises(ParameterError, match="full"):
        Study(study.make, many, "s").run(store, runtime="inprocess")
    assert points[0].content in store.rows("s")
    store.close()


def test_what_a_row_cannot_hold_is_a_reason():
    found = sweep(lambda k: {"a": [1, 2]}, {"k": 1}).to_pydict()
    assert found["reason"] == ["row: a = [1, 2]: must be a number, a text, or None"]
    wrong = sweep(len, {"obj": "text"})
    assert wrong["reason"].to_pylist() == ["TypeError: len() takes no keyword arguments"]
    unknown = sweep(lambda k: {"a": float("inf")}, {"k": 1})
    assert unknown["a"].to_pylist() == [None]


def test_columns_of_several_kinds_become_texts():
    table = table_of([])
    assert table.num_rows == 0
    mixed = sweep(lambda k: {"y": k}, {"k": [1, "a", 2.5]})
    assert mixed["y"].to_pylist() == ["1", "a", "2.5"]
