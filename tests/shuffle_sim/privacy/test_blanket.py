"""The privacy blanket of randomised response against the whole view, enumerated."""

import itertools
import math

import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import blanket
from shuffle_sim.privacy.events import BlanketEvent


def view_law(data: tuple[int, ...], gamma: float, symbols: int) -> dict[tuple[int, ...], float]:
    """The law of the histogram of the messages of users with these symbols."""
    law = {(0,) * symbols: 1.0}
    for x in data:
        after: dict[tuple[int, ...], float] = {}
        for counts, p in law.items():
            for y in range(symbols):
                seen = tuple(c + (i == y) for i, c in enumerate(counts))
                after[seen] = after.get(seen, 0.0) + p * (gamma / symbols + (1 - gamma) * (x == y))
        law = after
    return law


def hockey_stick(first: dict, second: dict, epsilon: float) -> float:
    return sum(max(0.0, p - math.exp(epsilon) * second.get(view, 0.0)) for view, p in first.items())


@pytest.mark.parametrize(
    ("users", "gamma", "symbols"), [(2, 0.5, 2), (6, 0.3, 2), (5, 0.4, 3), (7, 0.7, 3), (4, 0.6, 4)]
)
def test_delta_is_never_below_that_of_any_view(users, gamma, symbols):
    for epsilon in (0.1, 0.5, 1.0):
        worst = 0.0
        for others in itertools.combinations_with_replacement(range(symbols), users - 1):
            laws = [view_law((x, *others), gamma, symbols) for x in (0, 1)]
            for first, second in (laws, reversed(laws)):
                worst = max(worst, hockey_stick(first, second, epsilon))
        assert worst <= blanket.delta(users, gamma, symbols, epsilon) + 1e-15


@pytest.mark.parametrize(("users", "gamma", "symbols"), [(3, 0.5, 2), (4, 0.3, 3), (6, 0.6, 3)])
def test_delta_is_exact_for_who_knows_the_blanket(users, gamma, symbols):
    # The attacker sees which of the others drew uniformly: what is left are M uniform messages and
    # the user's.
    epsilon, truth = 0.4, 0.0
    for drew in range(users):
        weight = math.comb(users - 1, drew) * gamma**drew * (1 - gamma) ** (users - 1 - drew)
        uniform = view_law((0,) * drew, 1.0, symbols)
        seen = []
        for x in (0, 1):
            law: dict[tuple[int, ...], float] = {}
            for counts, p in uniform.items():
                for y in range(symbols):
                    view = tuple(c + (i == y) for i, c in enumerate(counts))
                    law[view] = law.get(view, 0.0) + p * (gamma / symbols + (1 - gamma) * (x == y))
            seen.append(law)
        truth += weight * hockey_stick(seen[0], seen[1], epsilon)
    assert truth <= blanket.delta(users, gamma, symbols, epsilon) <= truth * (1 + 1e-6) + 1e-11


def test_a_planted_forgotten_noise_is_caught():
    # Half the blanket, as if users drew with gamma / 2: the claim for gamma must not cover it.
    laws = [view_law((x, 0, 0, 0, 0), 0.2, 3) for x in (0, 1)]
    assert hockey_stick(laws[0], laws[1], 0.5) > blanket.delta(5, 0.4, 3, 0.5)


def test_at_the_point_of_the_theory_page():
    assert (
        blanket.epsilon(10_000, 0.0324, 8, 1e-6) <= 1.0 < blanket.epsilon(10_000, 0.0318, 8, 1e-6)
    )
    # Theorem 3.1 asks for about five times the blanket it needs.
    by_theorem = blanket.theorem(10_000, 7, 1.0, 1e-6)
    assert by_theorem == pytest.approx(14 * 8 * math.log(2e6) / 9999)
    assert blanket.epsilon(10_000, by_theorem, 8, 1e-6) < 0.5
    big = blanket.epsilon(10**7, 1e-4, 100, 1e-6)
    assert 1.0 < big < 10.0  # for many users in bounded time and memory


def test_epsilon_is_at_most_one_response_s_and_deltas_add_up():
    own = math.log1p(0.3 * 4 / 0.7)
    assert blanket.epsilon(1, 0.7, 4, 1e-9) == pytest.approx(own)
    event = BlanketEvent(1000, 0.3, 4)
    one, two = (ShuffleAccountant().compose(event, count) for count in (1, 2))
    assert two.get_epsilon(1e-6) == pytest.approx(2 * one.get_epsilon(5e-7))
    assert one.get_delta(one.get_epsilon(1e-6)) <= 1e-6
    assert "basic composition" in two.basis
    fewer = ShuffleAccountant().compose(event.with_honest(300))
    assert fewer.get_epsilon(1e-6) > one.get_epsilon(1e-6)


@pytest.mark.parametrize(
    "bad", [(0, 0.5, 3), (10, 0.0, 3), (10, 1.5, 3), (10, 0.5, 1), (10, math.nan, 3)]
)
def test_bad_responses_are_refused(bad):
    with pytest.raises(ParameterError):
        BlanketEvent(*bad)
