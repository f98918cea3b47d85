"""A checkpoint that cannot be written gives what it has; one behind a link is not opened."""

import os
from contextlib import contextmanager

import numpy as np
import pytest
from rounds import interactive, outcome, records, rows

from protocols import CentralSum
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.errors import CheckpointError
from shuffle_sim.execution.checkpoint import split_seed
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import FILE

NOBODY = 65534
HOW = {"seed": 5, "fidelity": "literal", "checkpoint": "run"}


@contextmanager
def not_writable(folder):
    """As who owns the folder, and may not write it; root may write what it likes."""
    root, journal = os.geteuid() == 0, folder / FILE
    journal.chmod(0o400)
    folder.chmod(0o500)
    if root:
        os.chown(journal, NOBODY, NOBODY)
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        with pytest.raises(PermissionError):  # the control
            (folder / "other").touch()
        with pytest.raises(PermissionError):
            journal.open("ab")
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """The folder of a run that is over, its result and its journal."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # the folders above may be closed to others
    whole = run(interactive(), rows(), **HOW)
    return tmp_path / "run", whole, (tmp_path / "run" / FILE).read_bytes()


class Never(InProcessRuntime):
    def exchange(self, broadcast):
        raise AssertionError("asked")


@pytest.mark.parametrize("cut", [0, 20])
def test_a_finished_run_is_given_from_a_read_only_checkpoint(finished, cut):
    folder, whole, data = finished
    rest = data[:cut]  # a record that was cut short
    (folder / FILE).write_bytes(data + rest)
    before = (folder / FILE).stat().st_mtime_ns
    with not_writable(folder):
        again = run(interactive(), rows(), **HOW, runtime=Never(), resume=True)
    assert outcome(again) == outcome(whole)
    assert (folder / FILE).read_bytes() == data + rest
    assert (folder / FILE).stat().st_mtime_ns == before


def test_the_curators_run_is_given_too(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    total = CentralSum.calibrated(n=9, d=2, privacy=Privacy(1.0))
    whole = run(total, np.zeros((9, 2)), checkpoint="run")
    with not_writable(tmp_path / "run"):
        again = run(total, np.zeros((9, 2)), checkpoint="run", resume=True)
    assert np.array_equal(again.value, whole.value)


@pytest.mark.parametrize("kept", [1, 2, 3], ids=["begun", "charged", "a round"])
def test_a_run_not_finished_asks_nobody_where_it_cannot_write(finished, kept):
    folder, whole, _ = finished
    part = b"".join(records(folder / FILE)[:kept])
    (folder / FILE).write_bytes(part)
    with not_writable(folder), pytest.raises(CheckpointError) as told:
        run(interactive(), rows(), **HOW, runtime=Never(), resume=True)
    assert "Permission denied" in str(told.value)
    assert "\n" not in str(told.value)
    assert (folder / FILE).read_bytes() == part
    assert outcome(run(interactive(), rows(), **HOW, resume=True)) == outcome(whole)  # the control


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("target", ["elsewhere", "/dev/zero", "nowhere"])
def test_a_journal_behind_a_link_is_not_opened(finished, resume, target):
    folder, _, data = finished
    (folder / FILE).rename(folder / "elsewhere")
    (folder / FILE).symlink_to(target)
    reason = "symbolic link" if resume else "without a run"
    with pytest.raises(ParameterError, match=reason):
        run(interactive(), rows(), **HOW, resume=resume)
    assert (folder / "elsewhere").read_bytes() == data


def test_a_link_between_reading_and_writing_is_not_followed(finished, monkeypatch):
    folder, _, data = finished
    really = os.open

    def late(path, flags, *mode, dir_fd=None):
        if flags & os.O_RDWR and str(path).endswith(FILE):
            (folder / FILE).rename(folder / "elsewhere")
            (folder / FILE).symlink_to(folder / "elsewhere")
        return really(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(ParameterError, match="symbolic link"):
        run(interactive(), rows(), **HOW, resume=True)
    assert (folder / "elsewhere").read_bytes() == data


@pytest.mark.parametrize("resume", [True, False])
def test_a_seed_of_a_split_behind_a_link_is_not_read(tmp_path, resume):
    (tmp_path / "mine").write_text("7")
    (tmp_path / "split").symlink_to(tmp_path / "mine")
    with pytest.raises(ParameterError, match="symbolic link"):
        split_seed(tmp_path, resume, None)
    (tmp_path / "split").unlink()
    (tmp_path / "mine").rename(tmp_path / "split")
    assert split_seed(tmp_path, resume, None) == 7  # the control


def test_a_seed_of_a_split_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    steps, sync, rename = [], os.fsync, os.replace

    def synced(number):
        steps.append(os.fstat(number).st_size)
        sync(number)

    def renamed(*names):
        steps.append("named")
        rename(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    split_seed(tmp_path, False, None)
    assert steps == [(tmp_path / "split").stat().st_size, "named"]
