"""The paper's own constants: Cheu, Joseph, Mao, Peng (2022), with the conditions its proofs use.

They are proof devices, far from tight (docs/theory/vector-sum.md, "The paper's
constants"): kept for fidelity and for comparison.
"""

import math
from dataclasses import dataclass

from shuffle_sim.errors import ParameterError, integer, positive, real

# ln((1 + a)/(1 - a)) <= 3 a holds up to here; the proof of Lemma 3.1 uses it with a = epsilon/(3
# g).
_LOG_BOUND = 0.8585
_MIN_EPSILON, _MAX_EPSILON = 1e-4, 15.0  # below, noise bits are more than are sent
_MIN_COUNTED = 1e-9  # of a round among billions, which is counted only
_MIN_DELTA = 1e-100


@dataclass(frozen=True)
class Constants:
    """Parameters (g, b, p) chosen by a theorem."""

    g: int
    b: int
    p: float


def lemma_3_1(n: int, epsilon: float, delta: float, g: int | None = None) -> Constants:
    """Parameters of the scalar sum on [0, 1] by Lemma 3.1.

    g >= sqrt(n) and b > 180 g^2 ln(2/delta)/(epsilon^2 n).

    Args:
        n: users.
        epsilon: in (0, 15].
        delta: in (0, 1/2).
        g: rounding steps; ceil(sqrt n) where not given.

    Raises:
        ParameterError: outside the lemma's range, or where its proof's hidden condition epsilon/(3
            g) <= 0.8585 fails.
    """
    integer("n", n)
    real("epsilon", epsilon, _MIN_EPSILON / 100, _MAX_EPSILON)
    real("delta", delta, _MIN_DELTA, 0.5, closed=(True, False))
    # ceil(sqrt n), in integers.
    least = math.isqrt(n - 1) + 1
    return _constants(n, epsilon, delta, least if g is None else integer("g", g, least))


def _constants(n: int, epsilon: float, delta: float, steps: int) -> Constants:
    if epsilon / (3 * steps) > _LOG_BOUND:
        raise ParameterError(
            "epsilon", epsilon, f"at most {3 * steps * _LOG_BOUND:g} at g = {steps}: the proof of "
                                "Lemma 3.1 needs "
            f"epsilon/(3 g) <= {_LOG_BOUND}; take g >= {math.ceil(epsilon / (3 * _LOG_BOUND))}"
        )  # fmt: skip
    wanted = 90 * steps**2 * math.log(2 / delta) / (epsilon**2 * n)
    # p = wanted/b is below 1/2, as b is above 2 wanted.
    b = math.floor(2 * wanted) + 1
    return Constants(steps, b, wanted / b)


def theorem_3_2(n: int, d: int, epsilon: float, delta: float) -> Constants:
    """Parameters of the vector sum by Theorem 3.2, rescaled to a unit ball.

    They are those of Lemma 3.1 at the theorem's (epsilon_hat, delta_hat).

    Raises:
        ParameterError: outside epsilon in (0, 15], delta in (0, 1/2).
    """
    real("epsilon", epsilon, _MIN_EPSILON, _MAX_EPSILON)
    return _of_vectors(n, d, epsilon, delta)


def _of_vectors(n: int, d: int, epsilon: float, delta: float) -> Constants:
    integer("n", n)
    integer("d", d)
    real("delta", delta, _MIN_DELTA, 0.5, closed=(True, False))
    g = max(math.ceil(2 * math.sqrt(n)), math.ceil(math.sqrt(d)), 4)
    share = delta / (d + 1)
    return _constants(n, epsilon / (18 * math.sqrt(math.log(1 / share))), share, g)


def robust_epsilon(epsilon: float, honest_fraction: float) -> float:
    """epsilon/gamma of the sums when only a fraction gamma is honest.

    Source: Claim A.8 and Corollary A.9.

    Raises:
        ParameterError: outside epsilon in (0, 1], honest fraction in [1/3, 1].
    """
    real("epsilon", epsilon, 0.0, 1.0)
    return epsilon / real("honest_fraction", honest_fraction, 1 / 3, 1.0, closed=(True, True))


def interactive_budget(epsilon: float, delta: float, rounds: int) -> tuple[float, float]:
    """(epsilon_0, delta_0) of each round of P_GD (Algorithm 5).

    They are epsilon/(2 sqrt(2 T ln(1/delta))) and delta/(T + 1).

    Raises:
        ParameterError: where composing them does not give back (epsilon, delta), as at epsilon 1,
            delta 0.1, T 10,000.
    """
    real("epsilon", epsilon, 0.0, math.inf, closed=(False, False))
    real("delta", delta, 0.0, 1.0, closed=(False, False))
    integer("rounds", rounds)
    each = epsilon / (2 * math.sqrt(2 * rounds * math.log(1 / delta)))
    # Advanced composition of T rounds with slack delta/(T + 1), over epsilon.
    spent = (
        0.5 * math.sqrt(1 + math.log(rounds + 1) / math.log(1 / delta))
        + rounds * each * math.expm1(each) / epsilon
    )
    if spent > 1:
        raise ParameterError(
            "delta", delta, f"smaller: composing {rounds} rounds would spend {spent:.3f} of epsilon"
        )
    return each, delta / (rounds + 1)


@dataclass(frozen=True)
class PrintedCost:
    """What an algorithm would send with the paper's constants: counted, never run.

    Attributes:
        rounds: T, in each of which every user answers.
        messages: of one bit each, that a user sends in a round: d (g + b).
        bits: that a user sends over the run, the papers' count: T d (g + b).
        epsilon: of a round.
    """

    rounds: int
    messages: int
    bits: int
    epsilon: float


def interactive_rounds(n: int, d: int, epsilon: float, delta: float) -> int:
    """T of Theorem 4.9: min(n, epsilon^2 n^2/(d ln^2(n d/delta))), and 1 at least."""
    return max(1, min(n, math.floor((epsilon * n / math.log(n * d / delta)) ** 2 / d)))


def algorithm_5(n: int, d: int, epsilon: float, delta: float) -> PrintedCost:
    """P_GD as printed: T of Theorem 4.9, and the constants of Theorem 3.2 in each round.

    Args:
        n: users.
        d: coordinates.
        epsilon: of the whole run, in (0, 15].
        delta: of the whole run, in (0, 1/2).

    Raises:
        ParameterError: out of range, or as `interactive_budget`.
    """
    integer("n", n)
    integer("d", d)
    rounds = interactive_rounds(n, d, epsilon, delta)
    each, share = interactive_budget(epsilon, delta, rounds)
    constants = _of_vectors(n, d, real("epsilon", each, _MIN_COUNTED, _MAX_EPSILON), share)
    messages = d * (constants.g + constants.b)
    return PrintedCost(rounds, messages, rounds * messages, each)


def c_delta(delta: float) -> float:
    """c of Lowy and Razaviyayn (2021), equation 3: sqrt(ln(2/(sqrt(16 delta + 1) - 1))).

    Raises:
        ParameterError: delta outside (0, 1/2).
    """
    real("delta", delta, 0.0, 0.5, closed=(False, False))
    return math.sqrt(math.log(2 / (math.sqrt(16 * delta + 1) - 1)))


def output_sigma(epsilon: float, delta: float) -> float:
    """Their Gaussian noise at sensitivity 1: (c + sqrt(c^2 + epsilon))/(sqrt 2 epsilon).

    Private for every epsilon, and 1.02 to 66 times the analytic Gaussian's.

    Raises:
        ParameterError: epsilon not above 0, or delta outside (0, 1/2).
    """
    c = c_delta(delta)
    return (c + math.sqrt(c * c + positive("epsilon", epsilon))) / (math.sqrt(2) * epsilon)
