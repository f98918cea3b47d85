"""Plans in units of the data, days of a year, and budgets by command."""

import inspect
import json
import math
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from protocols import CarryScalarSum
from shuffle_sim import Budget, Privacy, run
from shuffle_sim.cli.app import _COMMANDS, app, flat
from shuffle_sim.errors import ParameterError, parse_number
from shuffle_sim.execution.people_plan import PeoplePlan
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import choose
from shuffle_sim.registry import registered
from shuffle_sim.wire.messages import Tally


def told(*words):
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def refused(*words):
    with pytest.raises(ParameterError) as found:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert "\n" not in str(found.value)
    return found.value.parameter


# Numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10000", 10_000),
        ("1e7", 10**7),
        ("10M", 10**7),
        ("2.5k", 2500),
        ("1_000", 1000),
        ("1G", 10**9),
        ("-3", -3),
        ("9007199254740993", 2**53 + 1),
        ("1.5e1", 15),
    ],
)
def test_whole_numbers_are_read_exactly(text, value):
    assert parse_number(text, int) == value
    assert parse_number(text, float) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["1.5", "", "M", "1e-1", "ten", "1e999999999", "nan", "inf", "1KM"]
)
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises((ValueError, ArithmeticError)):
        parse_number(text, int)


def test_every_option_that_takes_a_number_takes_it_alike():
    numbers = [kind for number in (int, float) for kind in (number, number | None)]
    read = []
    for command in _COMMANDS.values():
        for each in inspect.signature(flat(command)).parameters.values():
            kind, text = get_args(each.annotation)[:2]
            if kind in numbers:
                read.append(text.parser("1e1"))
    assert read == [10] * len(read)
    assert len(read) > 40


@pytest.mark.full
def test_a_number_of_users_may_be_short():
    plans = [told("plan", "--n", many) for many in ("1k", "1e3", "1000")]
    assert plans[0] == plans[1] == plans[2]


# Units


@pytest.mark.parametrize(
    ("d", "encoding"), [(1, "carry"), (1, "unary"), (3, "carry"), (3, "unary")]
)
@pytest.mark.full
def test_a_mean_in_units_is_the_sums(d, encoding):
    spec = SumSpec(1000, d, Privacy(1.0, 1e-6), 4)
    name, plan = choose(spec, 1.5, encoding=encoding, scalar=d == 1)
    found = PeoplePlan.of(name, plan, 100.0, 300.0, "ms")
    made = registered("protocol", name).planned(plan)
    to_units = 200.0 if d == 1 else 100.0 * math.sqrt(d)
    assert found.error == pytest.approx(1.959964 * made.standard_error * to_units / 1000)
    # One who sends only ones in place of the least datum, or only zeros in place of the largest.
    randomizer, least, most = made.randomizer, 0.0, 1.0
    if d > 1:
        least, most = -1 / math.sqrt(d), 1 / math.sqrt(d)
    ones = randomizer.estimate(Tally(randomizer.largest_sums.astype(np.int64), 1))[0]
    zeros = randomizer.estimate(Tally(0 * randomizer.largest_sums.astype(np.int64), 1))[0]
    assert found.moved == pytest.approx(0.01 * max(ones - least, most - zeros) * to_units)
    accountant = ShuffleAccountant().compose(plan.event.with_honest(900), 4)
    assert found.dropouts_epsilon == accountant.get_epsilon(1e-6) > plan.epsilon
    assert found.messages == 4 * randomizer.report_messages


@pytest.mark.parametrize(("encoding", "rotation"), [("carry", None), ("carry", 1), ("unary", None)])
@pytest.mark.full
def test_nobody_moves_a_column_further_than_the_plan_says(encoding, rotation):
    """One user chooses all its messages to push the first column: an estimate is linear."""
    spec = SumSpec(1000, 3, Privacy(1.0, 1e-6), rotation=rotation)
    name, plan = choose(spec, 2.0, encoding=encoding)
    found = PeoplePlan.of(name, plan, -1.0, 1.0, "")
    randomizer = registered("protocol", name).planned(plan).randomizer
    most = randomizer.largest_sums.astype(np.int64)
    silent = randomizer.estimate(Tally(0 * most, 1))[0]
    pushes = [randomizer.estimate(Tally(row, 1))[0] - silent for row in np.diag(most)]
    up = silent + sum(max(0.0, push) for push in pushes)
    down = silent + sum(min(0.0, push) for push in pushes)
    end = 1 / math.sqrt(3)
    moved = 0.01 * max(up + end, end - down) * math.sqrt(3)
    assert 0.3 * found.moved < moved <= found.moved * (1 + 1e-9)


@pytest.mark.full
def test_the_error_in_units_is_the_one_that_runs_have():
    """200 runs at 95 %: 190 +- 3.1; within 5 spreads, 6e-7. Half the error would hold 67 %."""
    spec = SumSpec(400, 1, Privacy(1.0, 1e-6))
    name, plan = choose(spec, 1.5, scalar=True)
    found = PeoplePlan.of(name, plan, 0.0, 2000.0, "ms")
    made, data = registered("protocol", name).planned(plan), np.linspace(0, 1, 400)
    sums = [run(made, data, seed=seed, fidelity="aggregate") for seed in range(200)]
    off = np.abs(2000 * (np.array([each.value for each in sums]) / 400 - data.mean()))
    assert abs((off <= found.error).sum() - 190) <= 16
    assert (off <= found.error / 2).sum() < 190 - 16  # the control


@pytest.mark.full
def test_a_plan_tells_it_in_sentences():
    words = [
        "plan",
        "--n",
        "10M",
        "--bounds",
        "0:2000",
        "--unit",
        "ms",
        "--rounds",
        "365",
        "--per",
        "day",
        "--delta",
        "1e-8",
    ]
    text = " ".join(CliRunner().invoke(app, words).stdout.split())
    assert "Mean of 10 million people within 0.0382 ms (95 %), in each of 365 rounds" in text
    assert "they can move the mean by 28.17 ms: 1.4% of the range." in text
    assert "If 10% drop out: epsilon 1.057 instead of 1" in text
    assert "messages a person, 0.73 kB; 11.4 GB in all." in text
    assert "One day costs epsilon 0.04551 of 1." in text


@pytest.mark.full
def test_dropouts_beyond_what_is_assumed_release_nothing():
    words = ["plan", "--n", "1000", "--bounds", "0:1", "--honest-fraction", "0.95"]
    assert told(*words)["people"]["dropouts_epsilon"] is None
    assert "nothing is released" in CliRunner().invoke(app, words).stdout


@pytest.mark.full
def test_what_days_cost_is_what_they_compose_to(tmp_path):
    words = [
        "plan",
        "--n",
        "1k",
        "--rounds",
        "12",
        "--per",
        "day",
        "--bounds",
        "0:1",
        "--delta",
        "1e-6",
    ]
    found = told(*words)["horizon"]
    spec = SumSpec(1000, 1, Privacy(1.0, 1e-6), 12)
    _, plan = choose(spec, 1.05, scalar=True)
    for many, spent, left in found["after"]:
        assert spent == ShuffleAccountant().compose(plan.event, many).get_epsilon(1e-6)
        assert left == 1 - spent
    assert [each[0] for each in found["after"]] == [1, 3, 6, 9, 12]
    budget = Budget.create(tmp_path / "b", privacy=Privacy(1.0, 1e-6), population="p", users=1000)
    made = CarryScalarSum(n=1000, **plan.parameters)
    for day in range(3):
        run(made, np.zeros(1000), budget=budget.report(str(day)))
    assert told(*words, "--budget", str(budget.path))["horizon"]["fit"] == 9


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ("--bounds 2:1", "bounds"),
        ("--bounds 1", "bounds"),
        ("--bounds a:b", "bounds"),
        ("--bounds 0:inf", "bounds"),
        ("--unit ms", "unit"),
        ("--budget none", "budget"),
        ("--per day --budget none", "budget"),
    ],
)
def test_bad_units(words, parameter):
    assert refused("plan", "--n", "1000", *words.split()) == parameter


# Budgets


@pytest.mark.full
def test_a_budget_by_command(tmp_path):
    """It is made, spent by a sum and a model, shown; a name is taken once, and what is too much."""
    path = str(tmp_path / "b")
    made = told("budget", "create", path, "--table", "wine", "--epsilon", "2")
    assert (made["population"], made["users"], made["left"]) == ("wine", 178, 2.0)
    words = ["--table", "wine", "--budget", path]
    told("sum", *words, "--report", "a", "--yes")
    assert refused("sum", *words, "--report", "a") == "report"
    assert refused("sum", *words) == "report"
    assert refused("sum", "--table", "wine", "--report", "a") == "report"
    assert refused("sum", *words, "--report", "b", "--population", "beer") == "population"
    assert refused("sum", "--table", "diabetes", "--budget", path, "--report", "b") == "population"
    other = ["--table", "diabetes", "--population", "wine", "--budget", path]
    assert refused("sum", *other, "--report", "b") == "data"
    assert refused("sum", *words, "--report", "b", "--epsilon", "9") == "report"
    told("train", *words, "--report", "model", "--positive", "class_0", "--rounds", "3", "--yes")
    assert refused("train", *words, "--report", "m", "--compare", "--positive", "class_0")
    shown = told("budget", "show", path)
    assert [each["report"] for each in shown["reports"]] == ["a", "model"]
    assert shown["reports"][1]["rounds"] == 3
    assert 1 < shown["spent"]["epsilon"] < 2
    assert shown["left"] == 2 - shown["spent"]["epsilon"]
    for useless in ("--n 9", "--population beer", "--table wine"):
        assert refused("budget", "show", path, *useless.split()) == useless.split()[0].strip("-")
    assert "CarrySumEvent" in CliRunner().invoke(app, ["budget", "show", path]).stdout


def test_a_year_of_sums_by_command_fits(tmp_path):
    path, table = str(tmp_path / "b"), tmp_path / "today.csv"
    words = ["--population", "c", "--n", "1k", "--epsilon", "1"]
    told("budget", "create", path, *words)
    for day in range(3):
        rows = "".join(f"{(user + day) % 10}\n" for user in range(1000))
        table.write_text("steps\n" + rows)
        asked = ["--file", str(table), "--bounds", "0:9", "--rounds", "3", "--population", "c"]
        told("sum", *asked, "--budget", path, "--report", str(day))
    shown = told("budget", "show", path)
    assert 0.95 < shown["spent"]["epsilon"] <= 1
    assert shown["more"] == 0


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ("make b", "action"),
        ("show none", "budget"),
        ("create b --n 10", "population, n"),
        ("create b --table wine --n 10", "n"),
        ("create b --population p --n 0", "users"),
    ],
)
def test_bad_budgets(words, parameter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused("budget", *words.split()) == parameter
    assert not list(tmp_path.iterdir())
