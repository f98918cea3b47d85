"""A year of daily reports: sums of 8 columns of 10^7 users, within one budget on disk.

    python -m benchmarks.year FOLDER [--days 365] [--users 1e7] [--stop 40] [--workers 2]

Every day is a run of its own on that day's rows, with a checkpoint, charged to FOLDER/budget. Run
it again after a death at any moment: what is over stands in FOLDER/means.csv. The day under way
goes on from its checkpoint, and no day is charged twice. With `--kills 20` all its processes are
killed so often at random, and each time the budget must have charged what is over. As one of all
benchmarks it takes a few days, and says what a year would take.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocols.sums.planned import PlannedSum
from shuffle_sim import Budget, Privacy, run
from shuffle_sim.data.population import Generated
from shuffle_sim.errors import parse_number
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import choose
from shuffle_sim.registry import registered

YEAR, COLUMNS, USERS = 365, 8, 10**7
TOTAL = Privacy(1.0, 1e-8)


def rows(rng: np.random.Generator, count: int, *, day: int) -> NDArray[np.float64]:
    """Made-up rows in the unit ball, whose means move with the day."""
    found = rng.random((count, COLUMNS))
    found += np.sin(2 * np.pi * day / YEAR)
    found /= 2 * np.sqrt(COLUMNS)
    return found


def planned(users: int, days: int) -> PlannedSum:
    """The sum of a day, of which so many fit in the total."""
    name, plan = choose(SumSpec(users, COLUMNS, TOTAL, days), 1.05)
    made: PlannedSum = registered("protocol", name).planned(plan)
    return made


def reported(folder: Path, users: int, days: int, stop: int, workers: int = 1) -> list[float]:
    """The days until `stop`, in turn; how many seconds each took."""
    made, path = planned(users, days), folder / "budget"
    if not path.exists():
        Budget.create(path, privacy=TOTAL, population="made up", users=users)
    budget, seconds, means = Budget(path, population="made up"), [], folder / "means.csv"
    over = len(means.read_text().splitlines()) if means.exists() else 0
    for day in range(over, stop):
        start, place = time.perf_counter(), folder / f"day-{day:03d}"
        found = run(
            made,
            Generated(users, partial(rows, day=day), seed=day),
            fidelity="aggregate",
            runtime="processes" if workers > 1 else "inprocess",
            workers=workers,
            shuffler_shards=1,
            checkpoint=place,
            resume=(place / "run.journal").exists(),
            budget=budget.report(f"day {day}"),
        )
        seconds.append(time.perf_counter() - start)
        with means.open("a") as file:
            file.write(",".join(f"{each:.6g}" for each in found.value / users) + "\n")
        if day % 30 == 0:
            print(f"day {day}: {seconds[-1]:.2f} s, {budget.spent}")
    print(f"{len(budget.reports)} days charged: {budget.spent}")
    return seconds


def killed(folder: Path, times: int, longest: float, words: list[str]) -> None:
    """Run it again and again, and kill it up to `longest` seconds after it began.

    Raises:
        RuntimeError: the budget lost a day.
    """
    rng, charged = np.random.default_rng(), 0
    for each in range(times):
        asked = [sys.executable, "-m", "benchmarks.year", str(folder), *words]
        with subprocess.Popen(asked, stdout=subprocess.DEVNULL, start_new_session=True) as child:
            time.sleep(rng.uniform(2.0, longest))
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        before, charged, means = charged, 0, folder / "means.csv"
        if (folder / "budget").exists():
            charged = len(Budget(folder / "budget", population="made up").reports)
        over = len(means.read_text().splitlines()) if means.exists() else 0
        print(f"kill {each + 1}: {over} days are over, {charged} are charged", flush=True)
        if charged < max(over, before):
            raise RuntimeError("the budget lost a day")


def measure() -> dict[str, object]:
    found = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            seconds = reported(Path(folder), USERS, YEAR, 4, workers)
        found[f"{workers} workers"] = {
            "seconds_a_day": float(np.median(seconds[1:])),
            "minutes_a_year": float(np.median(seconds[1:])) * YEAR / 60,
        }
    return {"year": found}


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    number = partial(parse_number, kind=int)
    for name, default in (
        ("days", YEAR),
        ("users", USERS),
        ("stop", None),
        ("workers", 1),
        ("kills", 0),
    ):
        parser.add_argument(f"--{name}", type=number, default=default)
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    stop = asked.days if asked.stop is None else asked.stop
    start = time.perf_counter()
    words = [f"--{name}={getattr(asked, name)}" for name in ("days", "users", "workers")]
    killed(asked.folder, asked.kills, 40.0, [*words, f"--stop={stop}"])
    reported(asked.folder, asked.users, asked.days, stop, asked.workers)
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
