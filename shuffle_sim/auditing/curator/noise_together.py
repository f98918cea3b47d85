"""The noise of all releases of a curator's runs, together."""

from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.curator.release_law import check_digits, check_tails, check_uniform
from shuffle_sim.auditing.laws.sequences import check_distinct, check_lags
from shuffle_sim.auditing.laws.statistics import LawError, naming


def check_independent(drawn: list[list[Floats]], digits: Floats, alarm: float) -> None:
    """Uniform numbers of all releases: fresh, uniform, and independent of each other.

    Args:
        drawn: by run and release.
        digits: of the noise of all.
        alarm: probability of a false alarm.

    Raises:
        LawError: naming what is off.
    """
    row = np.concatenate([each for mine in drawn for each in mine])
    check_distinct(row, alarm / 5)
    check_digits(digits, alarm / 5)
    by_width: dict[int, list[Floats]] = {}
    for one in (one for mine in drawn for one in mine):
        by_width.setdefault(len(one), []).append(one)
    for same in by_width.values():
        check_uniform(np.array(same), alarm / 5 / len(by_width))
    check_lags(2 * row[None] - 1, 1 / 3, alarm / 10, "noise of releases")
    check_tails(row, alarm / 20)
    places = max(map(len, drawn))
    for place in range(places):
        mine = np.concatenate([each[place] for each in drawn if place < len(each)])
        with naming(f"release {place}"):
            check_uniform(mine[:, None], alarm / 20 / places)
    # Every two numbers of a run, also of two releases, over all runs.
    long = min(sum(map(len, mine)) for mine in drawn)
    if min(map(len, drawn)) > 1:
        check_uniform(np.array([np.concatenate(mine)[:long] for mine in drawn]), alarm / 5)


def check_released_differ(last: list[Any]) -> None:
    """Two runs do not release the same floats.

    Args:
        last: what each run released last.

    Raises:
        LawError: they do.
    """
    arrays = [np.ravel(np.asarray(each)) for each in last]
    floats = [each.tobytes() for each in arrays if each.dtype.kind == "f" and each.size]
    if len(floats) > 1 and len(set(floats)) == 1:
        raise LawError(f"{len(floats)} runs without a seed release the same")
