"""`histogram`, `heavy-hitters`, `quantiles` and `sum --by`, from a file to numbers and pictures."""

import csv
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shuffle_sim.cli.app import main
from shuffle_sim.cli.counts_report import Counts
from shuffle_sim.cli.show import MOST

REGIONS = ("north", "south", "east")
CATEGORIES = ("--categories", "region=north,south,east")
BOUNDS = ("--bounds", "minutes=0:100")


BY = ("sum", "--file", "F", "--columns", "minutes", "--by", "region", *CATEGORIES)
USELESS = (
    ("--variance",),
    ("--choose-bounds", "0.2"),
    ("--missing", "drop"),
)
"""What a sum takes and one by group does not."""


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """3,000 visits: region, minutes and page."""
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("visits") / "visits.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["region", "minutes", "page", "zip"])
        for i in range(3000):
            page = f"/p{min(i % 7, 3)}" if i % 50 else f"/x{i}"
            writer.writerow([REGIONS[i % 3], f"{rng.uniform(0, 100):.2f}", page, i % 5])
    return path


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*words, code=0):
        monkeypatch.setattr("sys.argv", ["shuffle-sim", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert ended.value.code == code, told.err
        return told.out if code == 0 else told.err

    return run


def test_counts_and_sums_of_a_file_share_its_budget(command, visits, tmp_path):
    """Its people have the file's name where nobody names them."""
    budget, numbers = tmp_path / "budget", ("--columns", "minutes", *BOUNDS)
    command("budget", "create", budget, "--file", visits, *numbers, "--epsilon", 9)
    spending = {
        "sum": ("sum", "--file", visits, *numbers),
        "by": ("sum", "--file", visits, *numbers, "--by", "region", *CATEGORIES),
        "histogram": ("histogram", "--file", visits, "--column", "region", *CATEGORIES),
    }
    for name, words in spending.items():
        command(*words, "--epsilon", 0.5, "--budget", budget, "--report", name)
    shown = json.loads(command("budget", "show", budget, "--json"))
    assert shown["population"] == "visits.csv"
    assert [each["report"] for each in shown["reports"]] == list(spending)


def test_a_histogram_counts_categories(command, visits, tmp_path):
    picture = tmp_path / "bars.png"
    asked = ("histogram", "--file", visits, "--column", "region", *CATEGORIES, "--seed", 3)
    found = json.loads(command(*asked, "--plot", picture, "--json"))
    assert found["categories"] == [*REGIONS, "other"]
    # Each bin is 7 standard errors from the truth with a chance below 1e-9.
    assert np.abs(np.array(found["counts"]) - [1000, 1000, 1000, 0]).max() < 7 * 8
    assert found["simulator_view"]["true"] == [1000.0, 1000.0, 1000.0, 0.0]
    assert all(low <= high for low, high in zip(found["low"], found["high"], strict=True))
    assert found["run"]["privacy"]["epsilon"] <= 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = command(*asked)
    assert "Epsilon does not cover them." in " ".join(shown.split())


def test_blank_cells_are_told_apart_from_clipped_values(command, tmp_path):
    path = tmp_path / "gaps.csv"
    lines = [f"{each},{minute}" for each in ("north", "west", "", "N/A") for minute in range(100)]
    path.write_text("region,minutes\n" + "\n".join(lines) + "\n")
    asked = ("--file", path, "--categories", "region=north", "--seed", 3)
    found = json.loads(command("histogram", *asked, "--column", "region", "--json"))
    assert found["simulator_view"]["true"] == [100.0, 100.0]  # west is other
    assert found["simulator_view"]["run"]["blank"] == 200
    told = " ".join(command("histogram", *asked, "--column", "region").split())
    assert "0 values outside what is public were clipped (the simulator's view)" in told
    assert "200 users left a cell blank: counted nowhere, not even as other" in told
    grouped = ("--columns", "minutes", "--by", "region", "--bounds", "minutes=0:100")
    assert "200 users left a cell blank" in command("sum", *asked, *grouped)
    listed = ("--file", path, "--categories", "region=north,N/A", "--seed", 3)
    told = command("histogram", *listed, "--column", "region")
    assert "100 users left a cell blank" in told  # what is listed is a category, not a blank
    items = ("--file", path, "--column", "region", "--epsilon", 8, "--seed", 3)
    assert "(blank)" in command("heavy-hitters", *items)
    for method in ("response", "fixed-blanket"):
        one = ("histogram", *asked, "--column", "region", "--method", method)
        assert "where cells are blank" in command(*one, code=2)


def test_two_columns_make_a_table_and_methods_are_named(command, visits):
    asked = ("histogram", "--file", visits, "--column", "region", "--with", "zip", *CATEGORIES)
    more = ("--categories", "zip=0,1,2,3,4", "--method", "two-sided", "--objective", "error")
    found = json.loads(command(*asked, *more, "--seed", 3, "--json"))
    assert found["categories"][:2] == ["north, 0", "north, 1"]
    assert len(found["counts"]) == 4 * 6
    assert found["standard_error"] < 1.3 * found["central_laplace"]


@pytest.mark.full
def test_categories_are_found_and_then_counted(command, visits):
    asked = ("histogram", "--file", visits, "--column", "page", "--find", "--fidelity", "aggregate")
    found = json.loads(command(*asked, "--epsilon", 4, "--seed", 5, "--json"))
    assert set(found["categories"]) == {"/p0", "/p1", "/p2", "/p3", "(all others)"}
    true = np.array(found["simulator_view"]["true"])
    assert true.sum() == 3000
    assert np.abs(found["counts"] - true).max() < 7 * found["standard_error"]
    assert found["run"]["reports"]["asked"] == 9 * 3000  # eight levels, then the histogram
    assert 3.9 < found["run"]["privacy"]["epsilon"] <= 4  # of both
    told = command(*asked, *CATEGORIES, code=2)
    assert "categories" in told
    assert "--find does not take it" in told


def test_many_categories_are_drawn_as_the_largest_and_a_line():
    counts = np.arange(500.0)
    run: Any = SimpleNamespace(people=9, epsilon="1")
    names = tuple(map(str, range(500)))
    found = Counts("city", names, counts, counts, counts, counts, counts, 0.95, 1.0, 1.0, run)
    figure = found.draw()
    (axes,) = figure.axes
    assert len(axes.patches) == MOST
    assert [each.get_text() for each in axes.get_yticklabels()][:2] == ["499", "498"]
    said = " ".join(figure.legends[0].get_title().get_text().split())
    assert "470 smaller ones are not shown. The others have 110,215 together." in said


@pytest.mark.full
def test_quantiles_are_in_the_units_of_the_column(command, visits, tmp_path):
    asked = ("quantiles", "--file", visits, "--column", "minutes", *BOUNDS, "--seed", 2)
    picture = tmp_path / "cdf.svg"
    found = json.loads(command(*asked, "--shares", "0.25,0.5", "--json", "--plot", picture))
    assert found["shares"] == [0.25, 0.5]
    true = found["simulator_view"]["true"]
    assert all(
        low <= each <= high
        for low, each, high in zip(found["low"], true, found["high"], strict=True)
    )
    assert np.abs(np.array(found["values"]) - true).max() < 10
    assert picture.stat().st_size > 1000


@pytest.mark.full
def test_heavy_hitters_are_texts_or_numbers(command, visits):
    asked = ("heavy-hitters", "--file", visits, "--epsilon", 4, "--seed", 2, "--json")
    found = json.loads(command(*asked, "--column", "page", "--fidelity", "aggregate"))
    assert set(found["items"]) == {"/p0", "/p1", "/p2", "/p3"}
    numbers = json.loads(command(*asked, "--column", "zip", "--bits", 8))
    assert set(numbers["items"]) == {"0", "1", "2", "3", "4"}


@pytest.mark.full
def test_a_sum_by_group_has_counts_and_means(command, visits):
    asked = ("sum", "--file", visits, "--columns", "minutes", "--by", "region", *BOUNDS)
    found = json.loads(command(*asked, *CATEGORIES, "--epsilon", 4, "--seed", 2, "--json"))
    assert found["groups"] == [*REGIONS, "other"]
    true = found["simulator_view"]["true_means"]
    ends = zip(found["mean_low"][:3], true[:3], found["mean_high"][:3], strict=True)
    assert all(low <= each <= high for low, each, high in ends)
    assert true[3] is None  # nobody is there


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("histogram", "--column", "region"), "file"),
        (("histogram", "--file", "F", "--column", "region"), "--categories region="),
        (("histogram", "--file", "F", "--column", "none", *CATEGORIES), "none"),
        (("quantiles", "--file", "F", "--column", "minutes"), "--bounds minutes="),
        (("quantiles", "--file", "F", "--column", "region", "--bounds", "0:1"), "region"),
        (
            ("quantiles", "--file", "F", "--column", "minutes", *BOUNDS, "--shares", "a"),
            "shares",
        ),
        (("heavy-hitters", "--file", "F", "--column", "page", "--bits", "8"), "whole numbers"),
        (("sum", "--file", "F", "--by", "region", *BOUNDS), "one column with --by"),
        *(((*BY, *BOUNDS, *words), words[0].strip("-").replace("-", "_")) for words in USELESS),
        (("histogram", "--file", "F", "--column", "region", "--schema", "P"), "'nobody'"),
        (
            ("quantiles", "--file", "F", "--column", "minutes", *BOUNDS, "--shares", "0.5,1.5"),
            "shares",
        ),
        (
            ("quantiles", "--file", "F", "--column", "minutes", *BOUNDS, "--shares", "nan"),
            "shares",
        ),
        (("heavy-hitters", "--file", "F", "--column", "zip", "--bits", "65"), "bits"),
        (("heavy-hitters", "--file", "F", "--column", "zip", "--bits", "1e15"), "bits"),
        (
            ("histogram", "--file", "F", "--column", "region", *CATEGORIES, "--delta", "0"),
            "delta",
        ),
    ],
)
@pytest.mark.full
def test_bad_input_is_one_line_that_names_it(command, visits, words, said):
    schema = visits.with_name("person.toml")
    schema.write_text(
        'person = "nobody"\n[columns.region]\ntype = "category"\ncategories = ["a"]\n'
    )
    files = {"F": visits, "P": schema}
    told = command(*(files.get(each, each) for each in words), code=2)
    assert said in told
    assert told.count("\n") == 1


def test_a_long_number_is_no_item_of_few_bits(command, tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("zip\n" + "1\n" * 9 + "9" * 5000 + "\n")
    told = command("heavy-hitters", "--file", path, "--column", "zip", "--bits", "20", code=2)
    assert "whole numbers from 0 to 2^20 - 1" in told


@pytest.mark.parametrize(
    "asked",
    [
        ("histogram", "--column", "region", *CATEGORIES),
        ("histogram", "--column", "page", "--find", "--fidelity", "aggregate"),
        ("heavy-hitters", "--column", "page", "--fidelity", "aggregate"),
        ("quantiles", "--column", "minutes", *BOUNDS, "--leaves", "16"),
        (*BY[:1], *BY[3:], *BOUNDS),
    ],
    ids=lambda asked: "-".join(asked[:4:3]),
)
def test_a_person_counts_with_one_of_its_records(command, tmp_path, asked):
    """100 persons: one with half of all rows, who weighs no more than others."""
    path = tmp_path / "persons.csv"
    rows = [(0, "north", 90, "/a")] * 400 + [(each % 100, "south", 10, "/b") for each in range(400)]
    lines = (",".join(map(str, row)) for row in rows)
    path.write_text("\n".join(["who,region,minutes,page", *lines]) + "\n")
    told = (*asked, "--file", path, "--person", "who", "--epsilon", 8, "--seed", 3)
    found = json.loads(command(*told, "--json"))
    assert found["run"]["people"] == 100
    assert found["run"]["privacy"]["unit"] == "person"
    view = found["simulator_view"]
    if "true" in view and "quantiles" not in asked:
        assert max(view["true"]) >= 99
    assert "the person: one of its records counts" in " ".join(command(*told).split())


def test_numbers_beyond_the_bounds_are_counted_for_their_owner(command, visits):
    """A half of the minutes is above 50; what is shown as true is clipped, and says so."""
    bounds, few = ("--bounds", "minutes=0:50"), ("--epsilon", 4, "--seed", 2)
    ranked = ("quantiles", "--file", visits, "--column", "minutes", *bounds, "--leaves", 16, *few)
    grouped = ("sum", "--file", visits, "--columns", "minutes", "--by", "region", *CATEGORIES)
    with visits.open() as file:
        above = sum(float(row["minutes"]) > 50 for row in csv.DictReader(file))
    for asked in (ranked, (*grouped, *bounds, *few)):
        found = json.loads(command(*asked, "--json"))
        assert found["simulator_view"]["run"]["outside"] == above
        shown = command(*asked)
        assert "true, clipped" in shown
        assert f"{above:,} values outside" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("text", "cut"), [("weather today", True), ("cat", False), ("東京都庁", True)]
)
def test_items_that_may_go_on_say_so(command, tmp_path, text, cut):
    """Of three bytes each a letter: two are shown, and eight were told apart."""
    file = tmp_path / "asked.csv"
    file.write_text("q\n" + f"{text}\n" * 500)
    shown = command("heavy-hitters", "--file", file, "--column", "q", "--epsilon", 4, "--seed", 1)
    assert ("some may go on" in shown) == cut
