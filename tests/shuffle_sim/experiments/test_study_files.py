"""Studies in files, on the command line, and their page in a real browser."""

import itertools
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocols.comparison.tasks import sum_task
from shuffle_sim import ParameterError, sweep
from shuffle_sim.cli.app import main
from shuffle_sim.experiments import Store
from shuffle_sim.experiments.report import report
from shuffle_sim.experiments.study import read
from shuffle_sim.privacy.bounds import gaussian

STUDY = """
task = "sum"
name = "sums"
seeds = 2

[grid]
protocol = ["carry-vector-sum", "vector-sum"]
n = { log = [100, 1000, 2] }
d = 2
noise_ratio = 1.5
fidelity = "aggregate"
"""


@pytest.fixture
def study(tmp_path):
    def write(text=STUDY, name="study"):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return write


def command(*words, code=0):
    done = subprocess.run(
        [Path(sys.executable).with_name("shuffle-sim"), "experiment", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_file_gives_the_points_of_its_grid(study):
    found = read(study())
    assert found.name == "sums"
    assert [each.parameters["n"] for each in found.points[:4]] == [100, 100, 1000, 1000]
    ranges = read(study(STUDY.replace("log = [100, 1000, 2]", "range = [100, 200, 3]")))
    assert sorted({each.parameters["n"] for each in ranges.points}) == [100, 150, 200]
    several = STUDY.replace("[grid]", "[[grid]]") + '\n[[grid]]\nprotocol = "vector-sum"\nn = 9\n'
    assert len(read(study(several)).points) == 10
    own = STUDY.partition("[grid]")[0].replace('"sum"', '"mine.py:make"') + "[grid]\nk = [1, 2]\n"
    path = study(own)
    (path.parent / "mine.py").write_text("def make(k, seed):\n    return {'y': k}\n")
    assert [each.parameters for each in read(path).points[::2]] == [{"k": 1}, {"k": 2}]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("seeds", "seedz", 4, "did you mean seeds"),
        ("noise_ratio", "noise_ration", 10, "did you mean noise_ratio"),
        ('"sum"', '"summ"', 2, "did you mean sum"),
        ("seeds = 2", 'seeds = "2"', 4, "int"),
        ("[100, 1000, 2]", '[100, 1000, "a"]', 8, "log"),
        ("[100, 1000, 2]", "[0, 1000, 3]", 8, "above zero"),
        ("{ log = [100, 1000, 2] }", "[]", 8, "one value at least"),
        ('protocol = ["carry-vector-sum", "vector-sum"]', "", 6, "with protocol"),
        ("[grid]", "[grit]", 6, "did you mean grid"),
        ('"sum"', '"nowhere.py:make"', 2, "a file beside the study"),
        ("d = 2", "d = = 2", None, "TOML"),
    ],
)
def test_an_error_of_a_file_names_line_and_key(study, old, new, line, said):
    path = study(STUDY.replace(old, new, 1))
    with pytest.raises(ParameterError, match="study") as error:
        read(path)
    assert said in str(error.value)
    if line is not None:
        assert f"line {line}: " in str(error.value)


@pytest.mark.long
def test_a_study_from_the_command_line_to_a_page(study, tmp_path):
    path, store = study(), tmp_path / "kept.sqlite"
    told = json.loads(command("run", path, "--store", store, "--workers", 2, "--json"))
    assert len(told["points"]) == 8
    assert all(each["rmse"] > 0 for each in told["points"])
    assert "sums" in command("list", store)
    assert "rmse" in command("show", store)
    command("export", store, "--out", tmp_path / "points.parquet")
    command("export", store, "--out", tmp_path / "points.csv")
    assert len((tmp_path / "points.csv").read_text().splitlines()) == 9
    command("report", store, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "src=" not in page.partition("<script")[0]
    shutil.copy(store, tmp_path / "other.sqlite")
    assert command("diff", store, tmp_path / "other.sqlite") == "0 of 8 points differ\n"
    command("run", study(STUDY.replace("[100, 1000, 2]", "[1, 1000, 2]")), "--store", store, code=1)
    assert "workers" in command("run", path, "--store", store, "--workers", 0, code=2)
    assert "a store that is there" in command("show", tmp_path / "none.sqlite", code=2)


@pytest.mark.slow
def test_columns_have_one_name_and_numbers_their_order(study, tmp_path):
    grid = STUDY.replace("[100, 1000, 2]", "[100, 2000, 2]").replace("seeds = 2", "seeds = 1")
    path = study(f"{grid}epsilon = [0.5, 2.0]\n", name="a long name " * 9)
    store = path.with_suffix(".sqlite")
    told = command("run", path)
    table = command("show", store)
    header, cells = table.partition("0.5")[::2]
    assert header.split().count("epsilon") == 2
    assert header.split().count("measured") == 1
    assert "…" not in header
    lines = [line.split()[:2] for line in f"0.5{cells}".splitlines()]
    shown = [each for each in lines if each[0] in ("0.5", "2.0")]  # others are wrapped cells
    assert shown == [[e, n] for e in ("0.5", "2.0") for n in ("100", "100", "2000", "2000")]
    assert str(store) in told
    words = shlex.split(next(line for line in told.splitlines() if line.startswith("Next")))[1:]
    assert words[:3] == ["shuffle-sim", "experiment", "report"]
    command(*words[2:])
    page = store.with_suffix(".html").read_text()
    assert page.count(">epsilon</th>") == 1
    assert '<th class="view">measured_epsilon' not in page  # no datum went into it
    refused = study(grid.replace("d = 2", "d = 0"))
    done = command("run", refused, "--store", tmp_path / "failed.sqlite", "--json", code=1)
    assert "4 of 4 points failed" in done


@pytest.mark.full
def test_training_is_a_task(study, tmp_path):
    path = study(
        'task = "train"\n[grid]\ntable = "breast-cancer"\nprotocol = ["output", "shuffle-gd"]\n'
        'ridge = 0.1\nepsilon = 4.0\nfidelity = "aggregate"\nchoose = "bound"\n'
    )
    store = Store.open(None)
    rows = read(path).run(store, runtime="inprocess")
    scores = {each.point.parameters["protocol"]: each for each in rows}
    assert scores["shuffle-gd"].row["accuracy"] > 0.7
    assert scores["output"].reason  # a curator sends no messages: fidelity is refused
    store.close()


def test_a_report_of_nothing_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="nothing to show"):
        report([])


@pytest.mark.full
def test_texts_of_a_study_cannot_leave_their_place(tmp_path):
    store = Store.open(None)
    evil = "</script><b id=evil>"
    path = tmp_path / "evil.sqlite"
    sweep(lambda k, t: {"y": float(len(k))}, {"k": [evil, "b"], "t": [1, 2]}, store=path, name=evil)
    store = Store.open(path)
    page = report(list(store.all()), title=evil)
    store.close()
    assert "<b id=evil>" not in page


@pytest.mark.full
def test_filters_and_axes_of_the_page_work_in_a_browser(tmp_path):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium here: install the packages chromium and chromium-driver")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    path = tmp_path / "page.sqlite"
    grid = {"kind": ["a", "b", "c"], "k": [1, 2, 3, 4]}
    sweep(lambda kind, k: {"rmse": float(k), "other": 2.0 * k}, grid, store=path, name="s")
    store = Store.open(path)
    page = tmp_path / "page.html"
    page.write_text(report(list(store.all())), encoding="utf-8")
    store.close()
    options = ChromeOptions()
    options.binary_location = chromium
    folder = tmp_path / "profile"
    for each in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking"):
        options.add_argument(f"--{each}")
    options.add_argument(f"--user-data-dir={folder}")
    browser = Chrome(options=options, service=ChromeService(driver))
    narrow = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        browser.get(page.as_uri())

        def drawn():
            return len(browser.find_elements(By.CSS_SELECTOR, ".mark-symbol.role-mark path"))

        wait = WebDriverWait(browser, 60)
        wait.until(lambda _: drawn() == 12)
        assert browser.execute_script("return document.body.scrollWidth") <= 400
        title = browser.find_element(By.CSS_SELECTOR, ".role-title-text").text
        assert title == "rmse against k"
        menus = {
            each.find_element(By.CSS_SELECTOR, ".vega-bind-name").text: Select(
                each.find_element(By.TAG_NAME, "select")
            )
            for each in browser.find_elements(By.CSS_SELECTOR, ".vega-bind:has(select)")
        }
        ticks = browser.find_elements(By.CSS_SELECTOR, ".vega-bind input[type=checkbox]")
        menus["kind"].select_by_visible_text("b")
        wait.until(lambda _: drawn() == 4)
        menus["Up"].select_by_visible_text("other")
        wait.until(
            lambda _: (
                browser.find_element(By.CSS_SELECTOR, ".role-title-text").text == "other against k"
            )
        )
        labels = browser.find_elements(By.CSS_SELECTOR, ".mark-symbol.role-mark path")
        told = {each.get_attribute("aria-label") for each in labels}
        assert any("y: 8" in each for each in told), told

        def heights():
            marks = browser.find_elements(By.CSS_SELECTOR, ".mark-symbol.role-mark path")
            places = sorted(each.location["y"] for each in marks)
            return [round(high - low) for low, high in itertools.pairwise(places)]

        assert max(heights()) - min(heights()) <= 2  # 2, 4, 6, 8 are evenly apart
        ticks[1].click()
        wait.until(lambda _: max(heights()) > 2 * min(heights()))  # their logarithms are not
        assert drawn() == 4
    finally:
        browser.quit()


SHIPPED = sorted((Path(__file__).parents[3] / "examples" / "studies").glob("*.toml"))


def test_five_studies_are_shipped_and_can_be_read():
    assert len(SHIPPED) == 5
    assert all(len(read(each).points) >= 40 for each in SHIPPED)


def test_counting_is_a_task(study):
    path = study(
        'task = "histogram"\nseeds = 2\n[grid]\nn = 300\ncategories = 4\n'
        'method = ["pollution", "response"]\nepsilon = 2.0\n'
    )
    store = Store.open(None)
    rows = [each.row for each in read(path).run(store, runtime="inprocess")]
    store.close()
    assert all(0 < row["rmse"] <= row["largest_error"] <= 300 for row in rows)
    assert all(row["ranges_hold"] in (0.0, 1.0) for row in rows)
    assert len({row["payload_bits_per_user"] for row in rows}) >= 2


def test_a_sum_is_told_of_a_wish_for_one():
    """One bit, and the central Gaussian's own noise: both equal the default of another option."""
    assert sum_task("carry-vector-sum", 20_000, 8, max_bits=1, seed=1).algorithm.bits == 1
    with pytest.raises(ParameterError, match="exactly one"):
        sum_task("carry-vector-sum", 20_000, 8, noise_ratio=1.0, max_bits=3, seed=1)
    made = sum_task("laplace-scalar-sum", 2000, noise_ratio=1.0, seed=1).algorithm
    assert made.standard_error == pytest.approx(gaussian.sigma(1.0, 1e-6), rel=0.02)


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("KeyboardInterrupt", 130, "interrupted; points that ended are kept"),
        ("ValueError('no')", 1, "1 of 1 points failed\n"),  # no others are kept
    ],
)
def test_a_study_that_stops_says_what_is_kept(tmp_path, monkeypatch, capsys, raised, code, said):
    (tmp_path / "mine.py").write_text(f"def make(k, seed):\n    raise {raised}\n")
    (tmp_path / "own.toml").write_text('task = "mine.py:make"\n[grid]\nk = 1\n')
    line = ["experiment", "run", str(tmp_path / "own.toml"), "--runtime", "inprocess"]
    monkeypatch.setattr(sys, "argv", ["shuffle-sim", *line])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert said in capsys.readouterr().err
