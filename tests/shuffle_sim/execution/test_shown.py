"""Results as notebooks and machines take them."""

import json

import numpy as np
import pytest
from mutants import clean

from protocols import CarryVectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.privacy.bounds.central import best
from shuffle_sim.protocol.adversary import Dropout


@pytest.fixture(scope="module")
def made():
    return CarryVectorSum(n=60, d=3, norm_bound=1.0, g=4, r=2, b=8, delta=1e-6)


def test_a_result_is_one_short_line_and_a_table(made):
    result = run(made, np.zeros((60, 3)), seed=1)
    assert len(repr(result)) < 300
    assert "array (3,)" in repr(result)
    assert "seed: 1: not private" in repr(result)
    page = result._repr_html_() + result.privacy._repr_html_() + result.ledger._repr_html_()
    assert result.privacy.basis in page.replace("&lt;", "<")
    assert "CarrySumEvent</th>" in page


def test_a_protocol_of_one_round_says_what_it_is(made):
    assert repr(made).startswith(
        "CarryVectorSum(n=60, delta=1e-06, CarryRandomizer(coordinates=3, "
    )
    assert "\n" not in repr(made)


def test_a_result_as_json_leaves_the_simulator_s_view_apart(made):
    result = run(made, np.full((60, 3), 2.0), seed=1)
    found = result.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["privacy"]["epsilon"] == result.privacy.epsilon
    assert found["value"] == result.value.tolist()
    assert "60 above the norm bound: the simulator's view" in repr(result)
    assert "clipped" not in found["reports"]
    assert found["simulator_view"]["reports"]["clipped"] == 60


def test_a_standard_error_is_stated_where_all_are_honest(made):
    assert run(made, np.zeros((60, 3)), seed=1).standard_error == made.standard_error
    dropped = run(made, np.zeros((60, 3)), seed=1, adversary=Dropout(0.5))
    assert dropped.standard_error is None
    assert dropped.best_ratio is None


def test_a_sum_says_its_noise_over_the_best_central_noise(made):
    result = run(made, np.zeros((60, 3)), seed=1)
    promised = result.promised
    least, name = best(promised.epsilon, promised.delta, 3)
    assert result.best_ratio is not None
    assert result.best_ratio[0] == pytest.approx(made.standard_error / 2 / least)
    assert result.to_dict()["best_ratio"] == result.best_ratio[0]
    assert f"x central {name}" in repr(result)


@pytest.mark.full
def test_plans_and_comparisons_are_tables():
    from protocols.comparison import sum_methods
    from shuffle_sim.privacy.planner import SumSpec
    from shuffle_sim.protocol.encodings import choose

    privacy = Privacy(1.0, 1e-6)
    _, plan = choose(SumSpec(1000, 3, privacy), 1.1, None, None, False)
    page = plan._repr_html_()
    assert f"{plan.noise_ratio:.4f} x the central Gaussian" in page
    assert plan.best_ratio == pytest.approx(plan.std / best(1.0, 1e-6, 3)[0])
    assert f"{plan.best_ratio:.4f} x the best central noise (l2 Laplace)" in page
    assert "1,000 users" in page
    found = sum_methods(1000, 3, privacy, 10)
    page = found._repr_html_()
    assert page.count("<tr>") == len(found) + 1
    assert all(each.name in page for each in found)
    assert "nan" not in page


@pytest.mark.full
@pytest.mark.parametrize("name", [*clean.PROTOCOLS, *clean.CURATED])
def test_what_every_algorithm_gives_can_be_shown(name):
    """As a line, a table and JSON."""
    if name in clean.CURATED:
        made, rows, _ = clean.CURATED[name]()
    else:
        made = clean.PROTOCOLS[name]()
        rows = Asked(made, None, {}, 7).data
    result = run(made, rows, seed=1)
    assert len(repr(result)) < 500
    assert "privacy" in result._repr_html_()
    json.dumps(result.to_dict())
