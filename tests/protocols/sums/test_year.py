"""A year of daily reports within one budget, killed and resumed on any day."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.year import TOTAL, planned, rows
from shuffle_sim import Budget

ROOT = Path(__file__).parents[3]
WORDS = ["--users", "3000", "--days", "20"]


@pytest.mark.full
def test_a_year_that_is_killed_ends_within_its_budget(tmp_path):
    """By SIGKILL after some days, twice; then to its end."""
    command = [sys.executable, "-m", "benchmarks.year", str(tmp_path), *WORDS]
    means = tmp_path / "means.csv"
    for least in (3, 8):
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        while running.poll() is None and not (
            means.exists() and len(means.read_text().splitlines()) >= least
        ):
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        done = len(means.read_text().splitlines())
        assert done <= len(Budget(tmp_path / "budget").reports) <= done + 1
    # As a program again: a journal names the module that its code stands in.
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True, timeout=300)
    budget = Budget(tmp_path / "budget")
    assert [each.name for each in budget.reports] == [f"day {day}" for day in range(20)]
    assert 0.95 < budget.spent.epsilon <= TOTAL.epsilon
    made, found = planned(3000, 20), np.loadtxt(means, delimiter=",")
    true = [rows(np.random.default_rng(0), 200_000, day=day).mean(axis=0) for day in range(20)]
    spread = np.hypot(made.standard_error / 3000, 0.06 / np.sqrt(3000))
    assert np.abs(found - true).max() < 7 * spread  # 160 normal numbers; 5e-10
