"""The same noise never meets other data: what was read is hashed, by block."""

import os

import numpy as np
import pytest

from protocols import CentralSum, VectorSum
from shuffle_sim import Execution, ParameterError, Privacy, run
from shuffle_sim.data.file_population import NpyFiles
from shuffle_sim.errors import DataChangedError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import HostLostError
from shuffle_sim.roles import CuratorShard

N = 64


def written(folder):
    path = folder / "rows.npy"
    np.save(path, np.random.default_rng(0).normal(size=(N, 2)) / 4)
    return path


def change(path):
    """Another value, of the same size and at the same time."""
    before = path.stat()
    rows = np.load(path)
    rows[5, 0] += 0.25
    np.save(path, rows)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


class Dying(InProcessRuntime):
    """It loses a role once in a method, after something was done to the data."""

    def __init__(self, method, then, error=HostLostError):
        self.method, self.then, self.error, self.lost = method, then, error, None

    def call(self, host, method, *arguments, many=(), returns=1):
        if method == self.method and self.lost is None:
            if method != "answer":
                super().call(host, method, *arguments, many=many, returns=returns)
            self.lost = host
            self.then()
            raise self.error("gone")
        return super().call(host, method, *arguments, many=many, returns=returns)

    def alive(self, host):
        return host is not self.lost


def protocol():
    return VectorSum(n=N, d=2, g=4, b=20)


@pytest.mark.parametrize("method", ["answer", "shuffle", "conclude"])
def test_a_round_is_not_drawn_again_over_rows_that_changed(tmp_path, method):
    path = written(tmp_path)
    changed = Dying(method, lambda: change(path))
    with pytest.raises(DataChangedError, match=r"block 0.*the same noise on other data") as caught:
        run(
            protocol(),
            NpyFiles([path]),
            seed=1,
            runtime=changed,
            execution=Execution(block_size=16),
        )
    assert len(caught.value.ledger.charges) == 1
    same = Dying(method, lambda: None)  # the control: rows that stay give the bits of a whole run
    again = run(
        protocol(), NpyFiles([path]), seed=1, runtime=same, execution=Execution(block_size=16)
    )
    whole = run(protocol(), NpyFiles([path]), seed=1, execution=Execution(block_size=16))
    assert np.array_equal(again.value, whole.value)


class KilledError(BaseException):
    """A death of the whole run."""


def test_a_run_is_not_resumed_over_rows_that_changed(tmp_path):
    path, kept = written(tmp_path), tmp_path / "run"
    dying = Dying("conclude", lambda: None, KilledError)
    with pytest.raises(KilledError):
        run(
            protocol(),
            NpyFiles([path]),
            runtime=dying,
            checkpoint=kept,
            execution=Execution(block_size=16),
        )
    original = path.read_bytes()
    change(path)
    with pytest.raises(ParameterError, match="content of the data"):
        run(
            protocol(),
            NpyFiles([path]),
            checkpoint=kept,
            resume=True,
            execution=Execution(block_size=16),
        )
    before = path.stat()
    path.write_bytes(original)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (
        run(
            protocol(),
            NpyFiles([path]),
            checkpoint=kept,
            resume=True,
            execution=Execution(block_size=16),
        ).rounds
        == 1
    )


def test_a_curator_does_not_draw_again_over_rows_that_changed(tmp_path):
    path = written(tmp_path)
    algorithm = CentralSum.calibrated(n=N, d=2, privacy=Privacy(1.0))
    with pytest.raises(DataChangedError):
        run(algorithm, NpyFiles([path]), runtime=Dying("parts", lambda: change(path)))


def test_roles_refuse_rows_other_than_those_first_read(tmp_path):
    path = written(tmp_path)
    population = NpyFiles([path])
    shard = CuratorShard(population, [0], N)
    change(path)
    assert CuratorShard(population, [0], N).contents() != shard.contents()
