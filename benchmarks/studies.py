"""Studies: the overhead of a point, two workers over one, and how a large page opens.

The page is opened in Chromium, where it is installed; the time ends when all points are drawn. Each
number is the least, the median and the largest; pairs are taken in turn.
"""

import math
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.placement import spread
from shuffle_sim import sweep
from shuffle_sim.experiments import Outcome, Store, points_of
from shuffle_sim.experiments.report import report

REPEATS, EMPTY, WORK = 5, 300, 2_000_000
PAGE: dict[str, Any] = {"method": [f"m{each}" for each in range(5)], "n": range(1, 201)}
"""With five repetitions these are 5,000 points of 1,000 combinations."""


def measure() -> dict[str, object]:
    return {
        "overhead_of_a_point_milliseconds": spread([_overhead() for _ in range(REPEATS)]),
        "target_overhead": 20,
        "two_workers_over_one": spread([_taken(2) / _taken(1) for _ in range(REPEATS)]),
        "target_two_over_one": 0.6,
        **page(),
    }


def _overhead() -> float:
    started = time.perf_counter()
    sweep(lambda k: {"k2": k}, {"k": range(EMPTY)}, workers=1)
    return 1000 * (time.perf_counter() - started) / EMPTY


def _taken(workers: int) -> float:
    started = time.perf_counter()
    sweep(_bound, {"k": range(8)}, workers=workers)
    return time.perf_counter() - started


def _bound(k: int) -> dict[str, float]:
    return {"sum": math.fsum(math.sqrt(each + k) for each in range(WORK))}


def page() -> dict[str, object]:
    """Bytes of a page of 5,000 points, and the seconds until all its points are drawn."""
    store = Store.open(None)
    for at, point in enumerate(points_of(PAGE, 5)):
        n = float(point.parameters["n"])
        row = {"rmse": (1 + at % 7 / 70) * math.sqrt(n), "payload_bits_per_user": 3 * n}
        store.keep("page", "code", point, Outcome(row | {"epsilon": 1 / n}))
    text = report(list(store.all()), "5,000 points")
    store.close()
    found: dict[str, object] = {"page_megabytes": len(text.encode()) / 1e6, "target_megabytes": 5}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(text, encoding="utf-8")
        try:
            times = [_opened(file, Path(folder) / f"profile{each}") for each in range(3)]
            found |= {"seconds_to_open": spread(times), "target_seconds": 2}
        except FileNotFoundError as error:
            found["not_opened"] = str(error)
    return found


def _opened(file: Path, profile: Path) -> float:
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise FileNotFoundError("Chromium and its driver are not installed")
    options = ChromeOptions()
    options.binary_location = chromium
    for each in ("headless", "no-sandbox", "disable-gpu", f"user-data-dir={profile}"):
        options.add_argument(f"--{each}")
    browser = Chrome(options=options, service=ChromeService(driver))
    try:
        marks = By.CSS_SELECTOR, ".mark-symbol.role-mark path"
        started = time.perf_counter()
        browser.get(file.as_uri())
        WebDriverWait(browser, 300, 0.05).until(lambda page: page.find_elements(*marks))
        return time.perf_counter() - started
    finally:
        browser.quit()
