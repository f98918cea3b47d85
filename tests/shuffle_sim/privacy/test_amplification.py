"""Amplification by shuffling against whole views by enumeration, and the sheet's numbers."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from shuffle_sim import ParameterError, amplify
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.privacy.bounds import clones
from shuffle_sim.privacy.bounds.clones import Corners
from shuffle_sim.privacy.bounds.losses import LossLaw
from shuffle_sim.privacy.events import GaussianEvent


def response(epsilon0, symbols):
    """Law of k-ary randomised response on each input, (inputs, outputs)."""
    e = math.exp(epsilon0)
    return (np.ones((symbols, symbols)) + (e - 1) * np.eye(symbols)) / (e + symbols - 1)


def view(laws):
    """The law of the histogram of one message of each law."""
    found = Counter({(0,) * len(laws[0]): 1.0})
    for law in laws:
        after = Counter()
        for counts, p in found.items():
            for at, q in enumerate(law):
                after[(*counts[:at], counts[at] + 1, *counts[at + 1 :])] += p * q
        found = after
    return found


def divergence(randomizer, one, other, rest, epsilon):
    """delta of the whole view, one user's input exchanged, by enumeration."""
    here, there = (view([randomizer[x] for x in (mine, *rest)]) for mine in (one, other))
    return sum(max(0.0, p - math.exp(epsilon) * there[at]) for at, p in here.items())


def worst(randomizer, users, epsilon):
    inputs = range(len(randomizer))
    return max(
        divergence(randomizer, 0, 1, rest, epsilon)
        for rest in product(inputs, repeat=users - 1)
        if list(rest) == sorted(rest)
    )


@pytest.mark.parametrize(
    ("users", "epsilon0", "delta", "upper", "lower"),
    [
        (10**5, 4, 1e-6, 0.118153066535, 0.117024771436),
        (10**4, 1, 1e-8, 0.0564473289819, 0.049810745368),
        (10**6, 6, 1e-9, 0.144339576671, 0.144152979285),
        (10**3, 2, 1e-5, 0.339509257138, 0.318077427401),
        (10**9, 8, 1e-10, 0.0123258844227, 0.0123237419592),
        (10**9, 1, 1e-12, 2.04808886e-4, 1.81045791e-4),
    ],
)
@pytest.mark.full
def test_epsilons_of_the_sheet(users, epsilon0, delta, upper, lower):
    digits = 5e-9 if users < 10**9 else 1e-7  # as many as it prints
    proven = clones.epsilon(users, epsilon0, delta)
    assert proven == pytest.approx(upper, rel=digits)
    least = clones.least_epsilon(users, epsilon0, delta)
    assert least == pytest.approx(lower, rel=digits)
    if users < 10**6:
        assert clones.delta(users, epsilon0, proven) <= delta
        assert clones.least_delta(users, epsilon0, least) >= delta


def test_deltas_of_the_sheet():
    assert clones.delta(10**5, 4, 0.1) == pytest.approx(8.788969375e-6, rel=3e-9)
    assert clones.least_delta(10**5, 4, 0.1) == pytest.approx(7.869923839e-6, rel=3e-9)
    assert clones.delta(10**6, 6, 0.14) == pytest.approx(2.264290233e-9, rel=3e-9)
    assert clones.least_delta(10**6, 6, 0.14) == pytest.approx(2.189146005e-9, rel=3e-9)
    assert clones.delta(5, 2, 0.5) == pytest.approx(0.417594409815, rel=3e-9)
    # 100-ary: the sheet has 9.957458e-7 below, and 9.999347e-7 above by finer chords than ours.
    known = Corners.of_response(5.79112, 100)
    assert 9.957458e-7 <= clones.delta(10**4, 5.79112, 1, known) <= 1.0002 * 9.999347e-7
    least = clones.least_delta(10**4, 5.79112, 1, 100)
    assert least == pytest.approx(9.957458e-7, rel=1e-6)
    for users, epsilon0, epsilon, sampling, found in (
        (5, 2, 0.3, 0.4, 0.206349525164),
        (6, 3, 0.5, 0.7, 0.492124258786),
    ):
        corners = Corners().sampled(sampling)
        assert clones.delta(users, epsilon0, epsilon, corners) == pytest.approx(found, rel=3e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.7, 1.3])
@pytest.mark.parametrize(("users", "epsilon0"), [(2, 1.0), (4, 1.5), (6, 2.0)])
def test_the_formula_is_the_clone_pair_by_double_sums(users, epsilon0, epsilon):
    pair = clones.pair(users, epsilon0)
    here, there = pair.here, pair.there
    exact = np.maximum(here - math.exp(epsilon) * there, 0.0).sum()
    assert clones.delta(users, epsilon0, epsilon) == pytest.approx(exact, rel=1e-8)
    back = np.maximum(there - math.exp(epsilon) * here, 0.0).sum()
    assert back == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("users", "epsilon0", "epsilon", "exact"),
    [(4, 1, 0.3, 0.122728764068), (5, 2, 0.5, 0.375245321761), (6, 1.5, 0.2, 0.248737589289)],
)
def test_randomised_response_of_three_symbols_over_all_data(users, epsilon0, epsilon, exact):
    found = worst(response(epsilon0, 3), users, epsilon)
    assert found == pytest.approx(exact, rel=1e-9)
    assert clones.least_delta(users, epsilon0, epsilon) == pytest.approx(exact, rel=3e-9)
    assert clones.delta(users, epsilon0, epsilon) >= found


@pytest.mark.parametrize(
    ("users", "epsilon0", "epsilon", "exact"),
    [(4, 1, 0.3, 0.143791959046), (6, 2, 0.5, 0.362746685218), (6, 1, 0.2, 0.112562033)],
)
def test_randomised_response_of_two_symbols_over_all_data(users, epsilon0, epsilon, exact):
    assert worst(response(epsilon0, 2), users, epsilon) == pytest.approx(exact, rel=1e-9)
    assert clones.delta(users, epsilon0, epsilon) >= exact


@pytest.mark.parametrize("symbols", [3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.1, 0.6])
def test_a_known_response_is_between_its_views_and_clones(symbols, epsilon):
    users, epsilon0 = 4, 1.4
    found = worst(response(epsilon0, symbols), users, epsilon)
    known = clones.delta(users, epsilon0, epsilon, Corners.of_response(epsilon0, symbols))
    assert found <= known <= clones.delta(users, epsilon0, epsilon)
    assert clones.least_delta(users, epsilon0, epsilon, symbols) <= found * (1 + 1e-9)


def extremal(rng, epsilon0, inputs, outputs):
    """A random epsilon0-private randomiser: least densities times 1, e or between, normalised."""
    while True:
        base = rng.dirichlet(np.ones(outputs))
        lift = rng.choice([0.0, 1.0, rng.random()], (inputs, outputs)) * (math.exp(epsilon0) - 1)
        law = base * (1 + lift)
        law /= law.sum(axis=1, keepdims=True)
        ratio = (law.max(axis=0) / law.min(axis=0)).max()
        if 1.01 < ratio <= math.exp(epsilon0):
            return law


def test_no_private_randomiser_is_above_the_bound():
    rng, closest, caught = np.random.default_rng(5), 0.0, 0
    for _ in range(150):
        epsilon0, users = float(rng.uniform(0.3, 3)), int(rng.integers(2, 5))
        law = extremal(rng, epsilon0, int(rng.integers(2, 4)), int(rng.integers(2, 5)))
        true0 = math.log((law.max(axis=0) / law.min(axis=0)).max())
        rest = rng.integers(0, len(law), users - 1)
        epsilon = float(rng.uniform(0, 0.9 * true0))
        found = divergence(law, 0, 1, rest, epsilon)
        proven = clones.delta(users, true0, epsilon)
        assert found <= proven
        closest = max(closest, found / proven)
        # A planted defect: clones of twice as many users.
        caught += found > clones.delta(2 * users, true0, epsilon)
    assert closest > 0.9
    assert caught >= 10


def test_losses_on_a_grid_are_above_brute_force_and_near():
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    p[0], q[1] = p[0] + q[1], 0.0  # one outcome that only the first law has
    q /= q.sum()
    p /= p.sum()
    here, there = p, q
    for rounds in (1, 2, 3):
        if rounds > 1:
            here, there = np.outer(here, p).ravel(), np.outer(there, q).ravel()
        law = LossLaw.of(p, q, 1e-4).times(rounds)
        for epsilon in (0.0, 0.5, 2.0):
            exact = np.maximum(here - math.exp(epsilon) * there, 0.0).sum()
            assert exact <= law.delta(epsilon) <= exact * (1 + 1e-6) + 1e-10
            coarse = LossLaw.of(p, q, 0.05).times(rounds).delta(epsilon)
            assert coarse >= law.delta(epsilon) * (1 - 1e-6)


@pytest.mark.parametrize(
    ("users", "epsilon0", "delta", "rounds", "low", "high"),
    [
        (10**5, 4, 1e-6, 10, 0.403978, 0.404038),
        (10**5, 4, 1e-6, 100, 1.39226, 1.39247),
        (10**6, 6, 1e-9, 10, 0.4768, 0.476911),
        (10**6, 6, 1e-9, 100, 1.590, 1.59066),
    ],
)
@pytest.mark.full
def test_rounds_of_the_sheet(users, epsilon0, delta, rounds, low, high):
    found = amplify(epsilon0, users, delta, rounds=rounds)
    assert low <= found.epsilon <= high * (1 + 2e-3 if delta < 1e-6 else 1 + 2e-4)
    assert found.epsilon < rounds * amplify(epsilon0, users, delta / rounds).epsilon


def test_rounds_keep_the_epsilon0_of_one_report():
    one, found = amplify(2.0, 1000, 1e-6), amplify(2.0, 1000, 1e-6, rounds=12)
    assert (found.epsilon0, found.rounds, found.least) == (2.0, 12, one.least)
    assert "epsilon0 2 in each of 12 rounds; no theorem can prove less for one round" in str(found)
    assert "round" not in str(one)
    # Two epsilons of 12 rounds are compared, not one of 12 rounds with one of a report.
    few = amplify(0.5, 20, 1e-6, rounds=12)
    assert few.epsilon > few.epsilon0
    assert few.amplified == (few.epsilon < 0.99 * 12 * few.epsilon0)


@pytest.mark.parametrize(
    ("users", "symbols", "epsilon0", "by_clones"),
    [
        (10**4, 100, 5.7911, 5.4700),
        (10**6, 1000, 10.1105, 10.0625),
        (10**6, 10**5, 11.2159, 10.0625),
    ],
)
def test_a_known_response_may_keep_less_of_its_own_noise(users, symbols, epsilon0, by_clones):
    found = amplify(epsilon0, users, 1e-6, symbols=symbols)
    assert found.least <= found.epsilon == pytest.approx(1.0, abs=1e-4)
    assert amplify(by_clones, users, 1e-6).epsilon == pytest.approx(1.0, abs=2e-4)


def test_a_secret_sample_promises_more_than_a_public_cohort():
    found = amplify(4, 10**5, 1e-6, sampling=0.1)
    assert found.epsilon == pytest.approx(0.034272, abs=1e-6)
    assert amplify(4, 10**4, 1e-6).epsilon == pytest.approx(0.410812, abs=1e-6)


def test_few_users_are_told_that_nothing_is_amplified():
    found = amplify(2.0, 2, 1e-9)
    assert not found.amplified
    assert 1.99 < found.epsilon <= 2.0
    assert "too few to amplify" in str(found)
    assert "no theorem can prove less than 0.117025" in str(amplify(4, 10**5, 1e-6))


def test_a_round_composes_in_the_accountant_with_other_kinds():
    alone = ShuffleAccountant().compose(ShuffledEvent(10**5, 4.0)).get_epsilon(1e-6)
    assert alone == amplify(4.0, 10**5, 1e-6).epsilon
    both = ShuffleAccountant().compose(ShuffledEvent(10**5, 4.0)).compose(GaussianEvent(20.0))
    assert alone < both.get_epsilon(1e-6) < alone + 0.3
    assert ShuffleAccountant().compose(ShuffledEvent(10**5, 4.0)).get_epsilon(0.0) == 4.0
    assert ShuffledEvent(100, 1.0).with_honest(60) == ShuffledEvent(60, 1.0)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"epsilon0": 31.0}, "epsilon0"),
        ({"epsilon0": 0.0}, "epsilon0"),
        ({"n": 0}, "n"),
        ({"delta": 0.0}, "delta"),
        ({"rounds": 0}, "rounds"),
        ({"sampling": 0.0}, "sampling"),
        ({"symbols": 1}, "symbols"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
    ],
)
def test_what_no_theorem_speaks_of_is_refused(given, name):
    asked = {"epsilon0": 1.0, "n": 100, "delta": 1e-6} | given
    with pytest.raises(ParameterError) as refused:
        amplify(asked.pop("epsilon0"), asked.pop("n"), asked.pop("delta"), **asked)
    assert refused.value.parameter == name


def test_masses_of_no_randomiser_are_refused():
    with pytest.raises(ParameterError, match="corners"):
        ShuffledEvent(10, 1.0, 0.3, 0.4)


@pytest.mark.parametrize(("users", "epsilon0"), [(1, 30.0), (10**10, 22.0), (10**14, 29.9)])
def test_pairs_keep_the_digits_of_a_rare_lie(users, epsilon0):
    # 1 less the chance of the truth would be off by 1e-3 at epsilon0 = 30, and the clones with it.
    pair, lie = clones.pair(users, epsilon0), 1 / (1 + math.exp(epsilon0))
    largest = math.log((pair.here[pair.there > 0] / pair.there[pair.there > 0]).max())
    assert largest == pytest.approx(epsilon0, rel=1e-12)
    alone = math.exp((users - 1) * math.log1p(-2 * lie))
    assert pair.here[:2].sum() == pytest.approx(alone, rel=1e-9)
