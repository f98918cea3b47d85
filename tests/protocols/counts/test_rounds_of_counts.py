"""Counts of many days: their releases together keep the promise, and no more noise is made."""

import json
import math
from typing import Any

import pytest
from commands import command

from protocols import GroupMeans, Histogram, Quantiles
from shuffle_sim import Budget, ParameterError, Privacy
from shuffle_sim.privacy.accountant import ShuffleAccountant

TOTAL, N = Privacy(1.0, 1e-6), 2000
RANGE = {"n": N, "privacy": TOTAL, "low": 0.0, "high": 1.0}
COUNTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "batches": (Histogram, {"n": N, "privacy": TOTAL, "categories": 4}),
    "error": (Histogram, {"n": N, "privacy": TOTAL, "categories": 4, "objective": "error"}),
    "two-sided": (Histogram, {"n": N, "privacy": TOTAL, "categories": 4, "method": "two-sided"}),
    "quantiles": (Quantiles, {**RANGE, "leaves": 16}),
    "means": (GroupMeans, {**RANGE, "groups": 3, "bits": 3, "objective": "error"}),
}


def composed(made, times):
    """epsilon of so many releases, with the noise that caps draw again."""
    accountant = ShuffleAccountant()
    accountant.compose(made.plan(made.init()).event, times)
    return accountant.get_epsilon(TOTAL.delta)


@pytest.mark.parametrize("name", COUNTS)
def test_all_rounds_together_cost_what_was_asked_for(name):
    kind, given = COUNTS[name]
    made, once = kind.calibrated(**given, rounds=20), kind.calibrated(**given)
    assert 0.97 < composed(made, 20) <= 1.0
    assert composed(once, 20) > 2.0  # the control: noise of one round
    # Noise grows as the root of the rounds; two-sided noise composes as pure steps do.
    most = 21 if name == "two-sided" else 1.4 * math.sqrt(20)
    assert 0.6 * math.sqrt(20) < made.error / once.error < most


def test_a_budget_takes_as_many_reports_as_were_planned(tmp_path):
    kind, given = COUNTS["batches"]
    made = kind.calibrated(**given, rounds=20)
    budget = Budget.create(tmp_path / "b", privacy=TOTAL, population="towns", users=N)
    assert 20 <= budget.more(made.plan(made.init()).event) <= 21


@pytest.mark.parametrize("method", ["response", "unary", "fixed-blanket"])
def test_one_message_a_user_is_not_planned_for_several_rounds(method):
    with pytest.raises(ParameterError, match="pollution or two-sided"):
        Histogram.calibrated(n=N, categories=4, privacy=TOTAL, method=method, rounds=2)


@pytest.mark.parametrize("rounds", [0, -1, 1.5])
def test_rounds_are_a_number_of_them(rounds):
    for kind, given in COUNTS.values():
        with pytest.raises(ParameterError, match="rounds"):
            kind.calibrated(**given, rounds=rounds)


def test_the_command_says_what_one_report_costs_and_all(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("where\n" + "\n".join("ab"[each % 2] for each in range(400)) + "\n")
    asked = "histogram", "--file", str(path), "--column", "where"
    listed = (*asked, "--categories", "where=a,b", "--rounds", "10")
    done = command(*listed, "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["run"]
    assert run["privacy"]["epsilon"] < 0.5
    assert 0.97 < run["whole"]["epsilon"] <= 1.0
    assert "of 10 such reports: epsilon" in command(*listed).stdout


@pytest.mark.parametrize("asked", [("histogram", "--find"), ("heavy-hitters",)])
def test_searches_say_it_too(asked, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("where\n" + "\n".join("ab"[each % 2] for each in range(3000)) + "\n")
    privacy = "--epsilon", "8", "--delta", "1e-4", "--rounds", "3"
    done = command(*asked, "--file", str(path), "--column", "where", *privacy, "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["run"]
    assert run["privacy"]["epsilon"] < 5
    assert 7.9 < run["whole"]["epsilon"] <= 8.0
