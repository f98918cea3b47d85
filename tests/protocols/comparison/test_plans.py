"""Sums by name, and plans with the trade-off around them."""

import pytest

from protocols import CarryVectorSum, VectorSum
from protocols.comparison.named import encoded_sum, named_protocol, named_sum
from protocols.comparison.plans import NoiseReport, searched
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.planner import SumSpec

PRIVACY = Privacy(1.0, 1e-6)
SPEC = SumSpec(1000, 3, PRIVACY)


@pytest.mark.full
@pytest.mark.parametrize("wish", [{"noise_ratio": 1.3}, {"max_bits": 12}])
def test_the_plan_meets_its_wish_and_the_curve_goes_both_ways(wish):
    _, plan, curve = searched(SPEC, **wish)
    assert plan.noise_ratio <= 1.3 if "noise_ratio" in wish else plan.bits <= 12
    bits = [row.bits_per_user_and_coordinate for row in curve]
    ratios = [row.noise_ratio for row in curve]
    assert ratios == sorted(ratios)
    assert bits == sorted(bits, reverse=True)
    assert min(bits) <= plan.bits <= max(bits)


def test_two_wishes_are_refused():
    with pytest.raises(ParameterError, match="noise_ratio, max_bits"):
        searched(SPEC, 1.3, 12)
    with pytest.raises(ParameterError, match="noise_ratio, max_bits"):
        encoded_sum(1000, 3, PRIVACY, noise_ratio=1.3, max_bits=12)


def test_a_sum_is_found_by_its_encoding_and_by_its_name():
    name, made = encoded_sum(1000, 3, PRIVACY, encoding="carry", noise_ratio=1.2)
    named = named_sum(name, 1000, 3, PRIVACY, noise_ratio=1.2)
    assert isinstance(made, CarryVectorSum)
    assert made.parameters == named.parameters
    assert encoded_sum(1000, 1, PRIVACY)[1].scalar


@pytest.mark.parametrize(
    ("name", "d", "given", "wrong"),
    [
        ("shuffle-sgd", 3, {}, "one of the sums"),
        ("scalar-sum", 3, {}, "1: scalar-sum sums scalars"),
        ("scalar-sum", 1, {"rotation": 1}, "left out: scalar-sum does not take it"),
    ],
)
def test_what_is_no_such_sum_is_refused(name, d, given, wrong):
    with pytest.raises(ParameterError, match=wrong):
        named_sum(name, 1000, d, PRIVACY, **given)


def test_a_protocol_by_name_is_a_sum_or_an_optimiser_of_records_or_persons():
    assert isinstance(named_protocol("vector-sum", 1000, 3, PRIVACY), VectorSum)
    for name, unit in (("shuffle-sgd", "record"), ("user-level-gd", "person")):
        made = named_protocol(name, 1000, 3, PRIVACY)
        assert (made.users, str(made.unit)) == (1000, unit)
    with pytest.raises(ParameterError, match="has its own"):
        named_protocol("vector-sum", 1000, 3, PRIVACY, encoding="carry")


def test_noise_stands_beside_a_curators_and_the_papers():
    made = VectorSum.calibrated(n=10_000, d=3, privacy=PRIVACY, noise_ratio=1.1)
    found = NoiseReport.of(made, 10_000, 3, PRIVACY)
    assert found.central == pytest.approx(gaussian.sigma(1.0, 1e-6, 2.0))
    assert 1 < found.standard_error_of_sum / found.central <= 1.1
    assert found.best_central <= found.central
    paper = VectorSum.paper(n=10_000, d=3, privacy=PRIVACY)
    assert found.paper.bits == paper.bits
    assert found.paper.ratio == pytest.approx(paper.standard_error / made.standard_error)
    much = Privacy(20.0, 1e-6)  # the paper's theorem ends before
    made = VectorSum.calibrated(n=10_000, d=3, privacy=much, noise_ratio=1.1)
    assert NoiseReport.of(made, 10_000, 3, much).paper.refused
