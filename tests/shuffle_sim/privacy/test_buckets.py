"""Theorem S: a secret coordinate in each bucket, against the sheet and exact views."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import buckets
from shuffle_sim.privacy.bounds.buckets import Buckets
from shuffle_sim.privacy.bucket_planner import choose_buckets
from shuffle_sim.privacy.bucket_sum import BucketSum, BucketSumEvent
from shuffle_sim.privacy.carry_theorem import Carry
from shuffle_sim.privacy.events import CarrySumEvent, GaussianEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec

POINT = Privacy(1.0, 1e-6)


@pytest.mark.parametrize(
    ("uniform", "order", "a", "expected"),
    [
        (5000, 16.0, 0.2, 1.05765991),
        (500, 8.0, 0.3, 1.43081785),
        (10**5, 24.0, 0.4, 1.04208554),
    ],
)
def test_the_gain_of_the_sheet(uniform, order, a, expected):
    found = buckets.gain(uniform, np.array([order]), a)[0]
    assert found == pytest.approx(expected, abs=1e-8)


def test_the_gain_is_the_mean_it_stands_for():
    """By quadrature over |G|."""
    order, uniform, a = 12.0, 900, 0.25
    x = np.linspace(0, 40, 400_001)
    w = 2 * a * (2 * (order - 2) + 1 + math.sqrt((order - 1) / (1 - 2 * a) ** 2) * x)
    value = np.exp(w**2 / (2 * uniform) - x**2 / 2) * (1 + w**2 / uniform)
    mean = np.trapezoid(value, x) * math.sqrt(2 / math.pi)
    assert buckets.gain(uniform, np.array([order]), a)[0] == pytest.approx(mean, rel=1e-8)


def test_a_round_of_the_sheet():
    each = Buckets(10_000, 4096, 0.2, 3.5)
    assert buckets.least_uniform(10_000, 0.6, 1e-8 / 4096) == 5661
    assert each.divergences(1e-8)[14] == pytest.approx(0.299832, abs=4e-6)
    assert buckets.delta(((each, 1),), 1.0, 1e-8) == pytest.approx(1.0544e-7, rel=5e-4)


def exact_hockey_stick(others, size, a, v, w, epsilon):
    """Of one bucket: the whole view by enumeration, the changing user at v or w, others at rest."""

    def law(biases):
        return np.array([[0.5 - b, 0.5 + b] for b in biases]).ravel() / size

    def view(users):
        found = {(0,) * (2 * size): 1.0}
        for biases in users:
            following: dict[tuple[int, ...], float] = {}
            for (counts, mass), (j, p) in itertools.product(found.items(), enumerate(law(biases))):
                key = (*counts[:j], counts[j] + 1, *counts[j + 1 :])
                following[key] = following.get(key, 0.0) + mass * p
            found = following
        return found

    one, two = view([*others, v]), view([*others, w])
    return sum(max(p - math.exp(epsilon) * two[key], 0.0) for key, p in one.items())


@pytest.mark.parametrize("a", [0.05, 0.15])
@pytest.mark.full
def test_no_exact_view_of_a_bucket_is_above_the_bound(a):
    """Of 24 users and two coordinates, all others in a corner; the test shows what 3 a would be."""
    honest = 24
    each = Buckets(honest, 1, a, math.sqrt(2))
    for epsilon in (0.02, 0.1, 0.4):
        bound = min(buckets.delta(((each, 1),), epsilon, lost) for lost in buckets.LOST)
        for v, w in (((a, 0.0), (-a, 0.0)), ((a, 0.0), (0.0, a))):
            assert exact_hockey_stick([(a, a)] * (honest - 1), 2, a, v, w, epsilon) <= bound
    if a == 0.05:
        far = exact_hockey_stick([(a, a)] * (honest - 1), 2, a, (3 * a, 0.0), (-3 * a, 0.0), 0.1)
        each = Buckets(honest, 1, a, math.sqrt(2))
        assert far > min(buckets.delta(((each, 1),), 0.1, lost) for lost in buckets.LOST)


def bit_law(plus, minus, a, v):
    """Ones of so many users at either end, and of one of chance 1/2 + v."""
    ends = (binom.pmf(np.arange(n + 1), n, 0.5 + b) for n, b in ((plus, a), (minus, -a)))
    return np.convolve(np.convolve(*ends), [0.5 - v, 0.5 + v])


@pytest.mark.parametrize("more", [1.0, 1.35])
def test_buckets_of_one_coordinate_are_bits(more):
    """Exact views of two coordinates, all others in corners; a third more bias is too much."""
    others, a, found = 800, 0.35, []
    event = BucketSumEvent(others + 1, 2, 1, a)
    bound = BucketSum().delta(((event, 1),), 0.5)
    assert bound < min(buckets.delta(((event.bound, 1),), 0.5, lost) for lost in buckets.LOST) / 50
    moved = more * a
    for turn, at in itertools.product((0.0, np.pi / 8, np.pi / 4), (0, others // 2, others)):
        v = moved * np.array([np.cos(turn), np.sin(turn)])
        one, two = (
            np.outer(*(bit_law(at, others - at, moved, sign * each) for each in v))
            for sign in (1, -1)
        )
        found.append(float(np.maximum(one - math.exp(0.5) * two, 0).sum()))
    assert (max(found) <= bound) == (more == 1.0)


@pytest.mark.parametrize(
    ("honest", "d", "bias", "span", "least"),
    [
        (1000, 2, 0.40, 1.0, 0.4),
        (1000, 1024, 0.1396, 0.09375, 0.8),
        (1000, 4096, 0.0713, 0.04297, 0.88),
        (10_000, 2**14, 0.1556, 0.02930, 0.93),
    ],
)
def test_of_long_vectors_a_pair_has_nearly_what_is_proven(honest, d, bias, span, least):
    """Of short ones it has not: the theorem is slack where a bit is right nine times in ten."""
    event = BucketSumEvent(honest, d, 1, bias, span)
    proven, exact = BucketSum().epsilon(((event, 1),), 1e-6), BucketSum().exact(event, 1e-6)
    assert exact is not None
    assert least <= exact / proven <= 1


def test_bits_of_rounds_add_up_and_beside_other_kinds_they_are_gaussian():
    event = BucketSumEvent(10_000, 64, 1, 0.2, 0.4)
    bits = CarrySumEvent(10_000, 1.0, 1, coordinates=64, span=0.4)
    both = ((event, 3), (replace(event, bias=0.1), 2))
    same = tuple((replace(bits, sensitivity=each.bias / 0.2), count) for each, count in both)
    assert BucketSum().epsilon(both, 1e-6) == pytest.approx(Carry().epsilon(same, 1e-6), rel=1e-9)
    other = GaussianEvent(5.0)
    assert epsilon_of(event, other) == pytest.approx(epsilon_of(bits, other), rel=1e-9)
    # Of two sizes nothing is one bit.
    mixed = ((event, 1), (BucketSumEvent(10_000, 16, 4, 0.2, 0.4), 1))
    rounds = tuple((each.bound, count) for each, count in mixed)
    assert BucketSum().delta(mixed, 0.5) == min(
        buckets.delta(rounds, 0.5, lost) for lost in buckets.LOST
    )


@pytest.mark.parametrize(("bias", "span"), [(np.nextafter(0.5, 0), 1.0), (0.3, 1e-13)])
def test_bits_at_the_ends_of_what_is_allowed(bias, span):
    event = BucketSumEvent(10**6, 4, 1, float(bias), span)
    assert (event.one_bit is None) == (span == 1.0)
    if event.one_bit is not None:  # k below 1: the cube is all that bounds
        cube = replace(event, span=0.5)
        assert event.one_bit == cube.one_bit
    assert BucketSum().epsilon(((event, 1),), 1e-6) > 0


def epsilon_of(*events):
    accountant = ShuffleAccountant()
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(1e-6)


def moment(uniform, order, v, w):
    """E (1 + x_w)^order (1 + x_v)^(1 - order) over that many uniform messages of one bucket."""
    size = 2 * len(v)
    signs = np.array([[-1.0, 1.0] * len(v)])
    weights = [2 / uniform * signs[0] * np.repeat(u, 2) for u in (v, w)]
    total = 0.0
    for cuts in itertools.combinations(range(uniform + size - 1), size - 1):
        edges = np.array([-1, *cuts, uniform + size - 1])
        counts = np.diff(edges) - 1
        log = math.lgamma(uniform + 1) - sum(math.lgamma(c + 1) for c in counts)
        one, two = (1 + float(counts @ each) for each in weights)
        total += math.exp(log - uniform * math.log(size)) * two**order * one ** (1 - order)
    return total


@pytest.mark.parametrize("order", [2, 8])
def test_exact_moments_are_below_the_bound_and_less_noise_not(order):
    """Of uniform messages and the changing user's; a tenth more bias than was planned is caught."""
    uniform, a = 30, 0.02
    for v, w in (((a, a), (-a, -a)), ((a, 0.0), (0.0, -a))):
        gap = float(np.mean(np.subtract(w, v) ** 2))
        gain = buckets.gain(uniform, np.array([float(order)]), a)[0]
        most = 1 + order * (order - 1) / 2 * 4 / uniform * gap * gain
        assert moment(uniform, order, np.array(v), np.array(w)) <= most
        assert moment(uniform, order, 1.1 * np.array(v), 1.1 * np.array(w)) > most


@pytest.mark.parametrize(
    ("n", "d", "size", "flat", "a", "ratio"),
    [
        (10**4, 10**4, 4, 3.5, 0.215592, 2.25321),
        (10**4, 10**6, 1024, 1.5, 0.194197, 2.04028),
        (10**6, 10**6, 32, 4.0, 0.433812, 9.08570),
    ],
)
def test_plans_of_the_sheet(n, d, size, flat, a, ratio):
    sent = 1 << (d - 1).bit_length()
    spec = SumSpec(n, d, POINT, rotation=0, span=flat / math.sqrt(sent))
    bits = sent // size * size.bit_length() / d
    plan = choose_buckets(spec, max_bits=bits * (1 + 1e-9))
    assert (plan.size, plan.report_bits) == (size, round(bits * d))
    assert plan.a == pytest.approx(a, rel=2e-5)
    assert plan.noise_ratio**2 == pytest.approx(ratio, rel=4e-5)
    assert plan.epsilon <= 1.0


@pytest.mark.parametrize(("delta", "rounds"), [(1e-5, 3), (2e-6, 1), (3e-6, 1)])
@pytest.mark.parametrize("size", [1, 4])
def test_no_plan_takes_more_than_it_was_asked_for(delta, rounds, size):
    """Deltas between those of which a hundredth is a probability that the accountant tries."""
    spec = SumSpec(2000, 256, Privacy(1.0, delta), rounds, rotation=0)
    plan = choose_buckets(spec, max_bits=256 // size * size.bit_length() / 256)
    assert 0.99 < plan.epsilon <= 1.0


@pytest.mark.full
def test_the_bits_that_a_million_coordinates_take():
    """At 2.5 and at 1.65 times the central Gaussian's mean square error, bias and all."""
    spec = SumSpec(10**4, 10**6, POINT, rotation=0)
    for wish, most in ((2.5, 12_000), (1.65, 70_000)):
        plan = choose_buckets(spec, math.sqrt(wish))
        assert plan.report_bits <= most
        assert plan.error_ratio**2 <= wish
        accountant = ShuffleAccountant().compose(plan.event)
        assert accountant.get_delta(1.0) <= 1e-6


def test_rounds_add_up_and_fewer_honest_users_cost_more():
    event = BucketSumEvent(10_000, 4096, 4, 0.1, 3.5 / 128)
    once, often = (ShuffleAccountant().compose(event, count).get_epsilon(1e-6) for count in (1, 9))
    assert 2.5 * once < often < 4 * once
    fewer = ShuffleAccountant().compose(event.with_honest(5000)).get_epsilon(1e-6)
    assert fewer > 1.3 * once
    assert math.isinf(ShuffleAccountant().compose(event.with_honest(1)).get_epsilon(1e-6))


@pytest.mark.parametrize(
    ("spec", "given", "name"),
    [
        (SumSpec(10**4, 100, POINT), {"noise_ratio": 3.0}, "rotation"),
        (SumSpec(10**4, 100, POINT, rotation=0), {"noise_ratio": 1.0}, "noise_ratio"),
        (SumSpec(10**4, 100, POINT, rotation=0), {"max_bits": 1e-9}, "max_bits"),
        (SumSpec(1, 100, POINT, rotation=0), {"noise_ratio": 3.0}, "n"),
    ],
)
def test_plans_that_cannot_be_had_are_refused(spec, given, name):
    with pytest.raises(ParameterError) as refused:
        choose_buckets(spec, **given)
    assert refused.value.parameter == name


@pytest.mark.parametrize("bias", [0.0, 0.5, math.nan])
def test_signs_that_reveal_are_refused(bias):
    with pytest.raises(ParameterError):
        replace(BucketSumEvent(100, 4, 4, 0.1), bias=bias)
