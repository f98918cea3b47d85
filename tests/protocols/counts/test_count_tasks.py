"""Tasks of counts side by side: errors of every row are those of the theory's tables."""

import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from protocols import GroupMeans, HeavyHitters, Histogram, Quantiles
from protocols.comparison.counts import TASKS, count_methods, planned_task
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.cli.app import app
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.registry import forget, register

PRIVACY = Privacy(1.0, 1e-6)
SIZES = {
    "histogram": (10**6, 1000),
    "heavy-hitters": (10**6, 2**32),
    "quantiles": (10**5, 1024),
    "group-means": (10**5, 100),
}


@pytest.fixture(scope="module")
def rows():
    """All rows; of trees and planes the one of least error, as the others are planned for long."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (HeavyHitters, Quantiles, GroupMeans):
            patch.setattr(kind, "settings", classmethod(_least_error))
        return {
            (task, each.name, each.setting): each
            for task, (n, domain) in SIZES.items()
            for each in count_methods(task, n, domain, PRIVACY, attackers=100)
        }


def _least_error(kind, n, domain, privacy):
    usual = super(kind, kind).settings(n, domain, privacy)
    return {"least error": usual["least error"]}


@pytest.mark.parametrize(
    ("task", "name", "setting", "error", "messages"),
    [
        ("histogram", "histogram", "pollution, least error", 6.531, 1.0427),
        ("histogram", "histogram", "two-sided, 0.1 of epsilon for the flood", 3.1164, 1.431),
        ("histogram", "histogram", "two-sided, 0.3 of epsilon for the flood", 4.02, 1.168),
        ("histogram", "histogram", "response", math.sqrt(42.30 + 40.6), 1),
        ("histogram", "central", "discrete Laplace", 2.7992, 1),
        ("histogram", "central", "Gaussian", 5.9746, 1),
        ("quantiles", "quantiles", "least error", 24.0, 7.46),
        ("quantiles", "central", "discrete Laplace", 22.2, 1),
        ("heavy-hitters", "heavy-hitters", "least error", 92, 15.8),
        ("group-means", "group-means", "least error", 9.05 / 1000, 6.9),
    ],
)
@pytest.mark.full
def test_errors_are_those_of_the_theory(rows, task, name, setting, error, messages):
    found = rows[task, name, setting]
    assert found.error == pytest.approx(error, rel=3e-3)
    assert found.messages == pytest.approx(messages, rel=3e-3)


@pytest.mark.parametrize("task", TASKS)
def test_every_model_of_trust_is_there_with_errors_in_order(rows, task):
    own = [each for key, each in rows.items() if key[0] == task]
    best = {
        trust: min(each.error for each in own if each.trust is trust)
        for trust in (Trust.CENTRAL, Trust.SHUFFLE, Trust.LOCAL)
    }
    assert best[Trust.CENTRAL] < best[Trust.SHUFFLE] < best[Trust.LOCAL] / 10
    single = [each for each in own if each.trust is Trust.SHUFFLE and each.messages == 1]
    assert single
    assert min(each.error for each in single) > best[Trust.SHUFFLE]
    for each in own:
        assert not each.refused
        assert each.attacked >= each.error
        assert each.epsilon is not None
        assert 0 < each.epsilon <= PRIVACY.epsilon * (1 + 1e-9)


def test_a_registered_histogram_is_in_the_comparison():
    class Another(Histogram):
        @classmethod
        def settings(cls, n, domain, privacy):
            made = Histogram.calibrated(n=n, categories=domain, privacy=privacy, method="unary")
            return {"mine": lambda: made}

    register("protocol", "another", Another)
    try:
        found = {each.title: each for each in count_methods("histogram", 1000, 10, PRIVACY)}
        assert found["another, mine"].error == found["histogram, unary"].error
    finally:
        forget()


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_commands_say_the_same(tmp_path):
    asked = "--task", "histogram", "--domain", 100, "--n", "10k"
    found = json.loads(command("compare", *asked, "--json").stdout)
    listed = count_methods("histogram", 10_000, 100, PRIVACY, found["attackers"])
    assert [each["error"] for each in found["methods"]] == [each.error for each in listed]
    picture = tmp_path / "plan.png"
    done = command(
        "plan",
        *asked,
        "--objective",
        "error",
        "--honest-fraction",
        0.8,
        "--plot",
        picture,
        "--verbose",
    )
    assert "plan: 1.533 messages" in done.stdout  # 100 x 42.66 / 8,000
    assert "planned = 8,000" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("task", SIZES)
def test_a_plan_is_what_the_command_of_the_task_runs(task):
    n, domain = 20_000, 64
    kind: Any = (Histogram, HeavyHitters, Quantiles, GroupMeans)[[*SIZES].index(task)]
    made = kind.calibrated(**kind.size(n, domain, PRIVACY))
    planned = planned_task(task, n, domain, PRIVACY).method
    assert (planned.messages, planned.error) == (made.messages_per_user, made.error)
    fewest = planned_task(task, n, domain, PRIVACY, objective="messages").method
    assert (fewest.messages < planned.messages) == (task != "histogram")


@pytest.mark.parametrize("task", SIZES)
def test_plans_of_many_rounds(task):
    n, domain = 20_000, 64
    kind: Any = (Histogram, HeavyHitters, Quantiles, GroupMeans)[[*SIZES].index(task)]
    made = kind.calibrated(**kind.size(n, domain, PRIVACY), rounds=12)
    planned = planned_task(task, n, domain, PRIVACY, rounds=12)
    assert planned.method.error == made.error
    assert 0.999 < planned.method.epsilon == made.epsilon_of(12) <= 1.0
    assert planned.alone == made.epsilon < 0.5


def test_methods_of_many_rounds(monkeypatch):
    """A curator's Gaussian has the root of their number; pure privacy is parted."""
    monkeypatch.setattr(Quantiles, "settings", classmethod(_least_error))
    case = "quantiles", 20_000, 64, PRIVACY
    once = {each.title: each for each in count_methods(*case)}
    often = {each.title: each for each in count_methods(*case, rounds=16)}
    grown = {title: often[title].error / each.error for title, each in once.items()}
    assert grown["central, Gaussian"] == pytest.approx(4.0)
    assert grown["central, discrete Laplace"] == pytest.approx(16.0, rel=0.01)
    assert grown["quantiles, least error"] == pytest.approx(4.0, rel=0.05)
    assert "rounds" in often["shuffle, randomised response"].refused


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (("compare", "--task", "magic"), "task"),
        (("compare", "--domain", "7"), "domain"),
        (("compare", "--task", "histogram"), "domain"),
        (("compare", "--task", "histogram", "--domain", "2^x"), "domain"),
        (("compare", "--task", "histogram", "--domain", "1"), "domain"),
        (("compare", "--task", "heavy-hitters", "--domain", "2^65"), "domain"),
        (("compare", "--task", "quantiles", "--domain", "8", "--d", "2"), "d"),
        (
            ("plan", "--task", "histogram", "--domain", "8", "--n", "9", "--max-bits", "3"),
            "max_bits",
        ),
        (("plan", "--task", "histogram", "--domain", "8", "--n", "9", "--rounds", "0"), "rounds"),
    ],
)
def test_what_is_refused(words, parameter):
    found = command(*words).exception
    assert isinstance(found, ParameterError)
    assert found.parameter == parameter
