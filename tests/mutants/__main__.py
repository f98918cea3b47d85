"""How often each planted defect is caught, and how many clean audits raise an alarm.

python -m tests.mutants --times 20 [--names A,B]; python -m tests.mutants --clean 400
"""

import argparse
import time
import warnings

import pytest

from . import clean
from .curators import CURATED
from .registry import MUTANTS
from .running import caught, caught_curator, uncached


def rates(times: int, names: list[str], slow: bool) -> None:
    """Print a row for each defect as it is done."""
    print("| defect | check | caught | seconds each |\n|---|---|---|---|")
    rows = [(each.name, each.check, each) for each in MUTANTS if slow or not each.slow]
    rows += [(name, check, None) for name, (_, _, check) in CURATED.items()]
    for name, check, mutant in rows:
        if names and not any(each in name for each in names):
            continue
        found, began = 0, time.process_time()
        for seed in range(times):
            uncached()
            with pytest.MonkeyPatch.context() as patch:
                if mutant is None:
                    found += caught_curator(name, patch)
                else:
                    found += caught(mutant, patch, seed)
        each = (time.process_time() - began) / times
        print(f"| {name} | {check} | {found} of {times} | {each:.1f} |", flush=True)


def alarms(audits: int, first: int) -> None:
    """Print each audit without a defect that fails, and how many do not."""
    began, failed = time.process_time(), 0
    for seed in range(first, first + audits):
        kinds = [*clean.CLEAN, *clean.CURATED]
        bad = clean.alarms(name := kinds[seed % len(kinds)], seed)
        failed += bool(bad)
        spent, done = time.process_time() - began, seed + 1 - first
        print(f"{seed} {name}: {bad or 'passed'}; {failed} of {done}, {spent:.0f} s", flush=True)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="that each defect is planted")
    parser.add_argument("--names", default="", help="parts of names, with commas; all by default")
    parser.add_argument("--slow", action="store_true", help="those on Ray, too")
    parser.add_argument("--clean", type=int, help="audits without a defect, in place of defects")
    parser.add_argument("--first", type=int, default=0, help="seed of those")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.clean is not None:
        alarms(given.clean, given.first)
    else:
        rates(given.times, [each for each in given.names.split(",") if each], given.slow)


if __name__ == "__main__":
    main()
