import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.binomial_planner import fewest_bits, least_noise
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec


def task(n=10_000, d=10, epsilon=1.0, delta=1e-6, **more):
    return SumSpec(n, d, Privacy(epsilon, delta), **more)


@pytest.mark.parametrize(
    ("what", "ratio", "bits"),
    [
        (task(), 1.05, 60),
        (task(), 1.02, 125),
        (task(n=569, d=30, delta=1e-5), 1.05, 50),
        (task(n=1_000_000), 1.05, 384),
        (task(d=100), 1.05, 65),
    ],
)
def test_the_bits_promised(what, ratio, bits):
    plan = fewest_bits(what, ratio)
    assert plan.bits <= bits
    assert plan.noise_ratio <= ratio
    assert plan.epsilon <= what.privacy.epsilon


def test_a_thousand_rounds_are_within_3_percent_of_central():
    plan = fewest_bits(task(rounds=1000), 1.03)
    assert plan.noise_ratio <= 1.03
    assert plan.epsilon <= 1.0


@pytest.mark.parametrize(
    "what",
    [
        task(n=200, d=3),
        task(n=1000, d=1),
        task(n=300, d=2, epsilon=3.0),
        task(n=2000, d=4, rounds=5),
    ],
)
@pytest.mark.parametrize("ratio", [1.1, 1.3])
@pytest.mark.full
def test_fewest_bits_is_what_brute_force_finds(what, ratio):
    plan = fewest_bits(what, ratio)
    better = [
        (g, bits - g)
        for bits in range(2, plan.bits)
        for g in range(1, bits)
        if what.noise_ratio(g, bits - g) <= ratio and what.private(g, bits - g)
    ]
    assert not better
    assert what.private(plan.g, plan.b)


@pytest.mark.slow_parameters("45-what1")
@pytest.mark.full
@pytest.mark.parametrize("what", [task(n=200, d=3), task(n=1000, d=1), task(n=500, d=4, rounds=5)])
@pytest.mark.parametrize("budget", [25, 45])
def test_least_noise_is_what_brute_force_finds(what, budget):
    plan = least_noise(what, budget)
    assert plan.bits <= budget
    best = min(
        what.noise_ratio(g, b)
        for b in range(1, budget)
        for g in range(1, budget - b + 1)
        if what.private(g, b)
    )
    assert plan.noise_ratio == best


def test_an_honest_fraction_costs_noise_or_is_refused():
    assert fewest_bits(task(honest_fraction=0.8), 1.3).bits > fewest_bits(task(), 1.3).bits
    with pytest.raises(ParameterError, match="honest"):
        fewest_bits(task(honest_fraction=0.8), 1.1)


@pytest.mark.parametrize("n", [10**3, 10**6, 10**9])
def test_any_n_is_planned_and_close_to_what_was_asked(n):
    for d in (1, 1000):
        plan = fewest_bits(task(n=n, d=d), 1.02)
        assert 1.0 < plan.noise_ratio <= 1.02
        assert 0.9 < plan.epsilon <= 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: fewest_bits(task(), 1.0),
        lambda: fewest_bits(task(), float("nan")),
        lambda: least_noise(task(n=10, d=10), 3),
        lambda: least_noise(task(), 1),
        lambda: task(delta=1e-50),
        lambda: task(n=0),
        lambda: task(honest_fraction=0.0),
        lambda: task(rounds=0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ParameterError):
        call()


@pytest.mark.parametrize(
    ("n", "d", "rounds", "ratio"),
    [
        (1438, 31, 50, 1.034),
        (10_000, 10, 1, 1.05),
        (569, 30, 1, 1.05),
        (300, 1, 1, 1.1),
        (5000, 3, 7, 1.2),
    ],
)
@pytest.mark.full
def test_the_least_noise_is_never_above_that_of_the_fewest_bits(n, d, rounds, ratio):
    what = SumSpec(n, d, Privacy(1.0, 1e-5), rounds)
    fewest = fewest_bits(what, ratio)
    for budget in (fewest.bits, fewest.bits + 1, fewest.bits + 7, fewest.bits * 5 // 4):
        least = least_noise(what, budget)
        assert least.noise_ratio <= fewest.noise_ratio
        assert least.bits <= budget
        assert least.epsilon <= 1.0


@pytest.mark.parametrize(
    ("n", "d", "ratio"),
    [(10_000, 10, 1.0000001), (2**40, 10, 1.00001), (2**40, 1, 1.00001), (10_000, 1, 1 + 1e-8)],
)
def test_a_ratio_out_of_reach_is_refused_in_words_of_the_ratio(n, d, ratio):
    with pytest.raises(
        ParameterError, match=r"noise_ratio.*larger: not reached within [\d,]+ bits"
    ) as caught:
        fewest_bits(SumSpec(n, d, Privacy(1.0, 1e-6)), ratio)
    assert caught.value.parameter == "noise_ratio"
