"""The sums end to end: exact laws for small n, unbiasedness and variance, fidelities, costs,
results.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from protocols import ScalarSum, VectorSum
from protocols.sums.binomial import BinomialRandomizer, randomize_scalar
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.arrays import Scaled, dense
from shuffle_sim.auditing import (
    LawError,
    check_pmf,
    check_randomizer,
    check_same_law,
    check_variance,
)
from shuffle_sim.errors import RoundAbortedError
from shuffle_sim.execution.setup import default_block_size
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.roles.reports import user_bytes
from shuffle_sim.sampling.kernels import half_binomial

FIDELITIES = ("literal", "counts", "aggregate")


def tally_pmf(xs: np.ndarray, g: int, b: int, p: float) -> np.ndarray:
    """Exact law of the number of ones: all roundings, enumerated, plus Bin(n b, p)."""
    pmf = np.zeros(len(xs) * (g + b) + 1)
    scaled = xs * g
    noise = binom.pmf(np.arange(len(xs) * b + 1), len(xs) * b, p)
    for ups in itertools.product((0, 1), repeat=len(xs)):
        fraction = scaled - np.floor(scaled)
        weight = np.prod(np.where(ups, fraction, 1 - fraction))
        start = int((np.floor(scaled) + ups).sum()) if weight else 0
        pmf[start : start + noise.size] += weight * noise
    return pmf


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_the_views_law_is_the_exact_pmf_for_small_n(fidelity):
    xs, g, b, p = np.array([0.13, 0.5, 0.97]), 3, 4, 0.3
    protocol = ScalarSum(n=3, g=g, b=b, p=p)
    values = np.array(
        [
            run(protocol, xs, fidelity=fidelity, seed=s, execution=Execution(block_size=3)).value
            for s in range(3000)
        ]
    )
    ones = np.rint(values * g + p * b * 3).astype(int)
    check_pmf(ones, tally_pmf(xs, g, b, p))
    for wrong in (
        tally_pmf(xs, g, b, p * 0.9),
        tally_pmf(np.ceil(xs * g) / g, g, b, p),
    ):  # power: noise, rounding
        with pytest.raises(LawError):
            check_pmf(ones, wrong)


@pytest.mark.full
def test_randomizers_keep_their_contract():
    check_randomizer(BinomialRandomizer(1, 5, 7, 0.2, 0.0, 2.0), np.array([0.0, 1.3, 2.0, 2.5]))
    check_randomizer(
        BinomialRandomizer(2, 9, 70, 0.5, -1.0, 2.0, 1.0), np.array([[0.3, -0.4], [3.0, 4.0]])
    )


@pytest.mark.full
def test_the_contract_check_catches_planted_defects():
    class Halved(BinomialRandomizer):
        def counts(self, xs, rng):
            return self._rounded(xs, rng) + rng.binomial(
                self.b // 2, self.p, (len(xs), self.labels)
            )

    class Upward(BinomialRandomizer):
        def tally(self, xs, rng):
            return np.ceil((xs.reshape(len(xs), -1) - self.lower) * self.g / self.width).astype(
                int
            ).sum(0) + rng.binomial(self.b * len(xs), self.p, self.labels)

    class Longer(BinomialRandomizer):
        def randomize(self, x, rng):
            other = BinomialRandomizer(
                self.labels, self.g + (x > 0.5).item(), self.b, self.p, self.lower, self.width
            )
            return other.randomize(x, rng)

    for broken in (Halved, Upward, Longer):
        with pytest.raises(LawError):
            check_randomizer(broken(1, 5, 8, 0.5, 0.0, 1.0), np.array([0.33, 0.9]))


def test_the_literal_randomizer_sends_g_plus_b_bits():
    rng = np.random.default_rng(0)
    for w in (0.0, 0.1, 1.0, np.nextafter(1.0, 2)):
        bits = randomize_scalar(w, 1.0, 4, 3, 0.5, rng)
        assert bits.size == 7
        assert (np.sort(bits)[::-1] == bits).all()


@pytest.mark.parametrize("b", [1, 14, 64, 65, 200])
def test_counting_random_bits_is_a_binomial(b):
    draws = half_binomial(b, (20_000,), np.random.default_rng(b))
    check_pmf(draws, binom.pmf(np.arange(b + 1), b, 0.5))
    with pytest.raises(LawError):
        check_pmf(
            half_binomial(b + max(1, b // 10), (20_000,), np.random.default_rng(b)),
            binom.pmf(np.arange(b + 1), b, 0.5),
        )


@pytest.mark.full
def test_two_hundred_runs_have_the_predicted_standard_error(ball):
    n, d = 10_000, 10
    protocol = VectorSum.calibrated(
        n=n, d=d, norm_bound=1.0, privacy=Privacy(epsilon=1.0, delta=1e-6), noise_ratio=1.05
    )
    assert protocol.g + protocol.b <= 60
    rows = ball(n, d)
    errors = np.array(
        [run(protocol, rows, fidelity="counts", seed=s).value for s in range(200)]
    ) - rows.sum(axis=0)
    variance = protocol.randomizer.variance(n, rows)
    # False-alarm rate 1e-3 (the seeds are fixed); a standard error 10 % off is then caught with
    # probability above 0.98.
    check_variance(errors, variance, false_alarm=1e-3)
    for wrong in (0.9, 1.1):
        with pytest.raises(LawError):
            check_variance(errors, variance * wrong**2, false_alarm=1e-3)
    # Unbiased: each coordinate's mean error within 5.5 standard errors (false-alarm rate below
    # 4e-7).
    assert (np.abs(errors.mean(axis=0)) < 5.5 * np.sqrt(variance / 200)).all()
    assert (np.sqrt(variance) <= protocol.standard_error).all()
    assert protocol.standard_error <= 1.05 * sigma(1.0, 1e-6, 2.0)


@pytest.mark.full
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_scalar_sums_are_unbiased_with_the_exact_variance(fidelity):
    xs = np.linspace(0, 5, 40)
    protocol = ScalarSum(n=40, g=7, b=6, p=0.25, upper=5.0)
    errors = (
        np.array(
            [
                run(
                    protocol, xs, fidelity=fidelity, seed=s, execution=Execution(block_size=20)
                ).value
                for s in range(1500)
            ]
        )
        - xs.sum()
    )
    variance = protocol.randomizer.variance(40, xs)[0]
    scaled = xs * 7 / 5
    fraction = scaled - np.floor(scaled)
    assert variance == pytest.approx(
        (5 / 7) ** 2 * ((fraction * (1 - fraction)).sum() + 40 * 6 * 0.25 * 0.75)
    )
    check_variance(errors, variance)
    with pytest.raises(LawError):
        check_variance(errors, variance * 1.25**2)
    assert abs(errors.mean()) < 5.5 * math.sqrt(variance / 1500)


@pytest.mark.slow
def test_three_fidelities_have_one_law_and_wrong_noise_is_seen():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 2)) * 0.4
    right, wrong = VectorSum(n=12, d=2, g=4, b=8), VectorSum(n=12, d=2, g=4, b=7)

    def tallies(protocol, fidelity, seed):
        values = np.array(
            [
                run(
                    protocol,
                    rows,
                    fidelity=fidelity,
                    seed=seed + s,
                    execution=Execution(block_size=12),
                ).value[0]
                for s in range(2500)
            ]
        )
        return np.rint((values + 12) * 4 / 2 + 12 * protocol.b / 2 - 12 * 4).astype(int)

    literal = tallies(right, "literal", 0)
    for fidelity in ("counts", "aggregate"):
        check_same_law(literal, tallies(right, fidelity, 10_000))
        with pytest.raises(LawError):
            check_same_law(literal, tallies(wrong, fidelity, 20_000))


def test_literal_costs_are_within_a_tenth_of_the_payload(ball):
    protocol = VectorSum.calibrated(n=10_000, d=10, privacy=Privacy(1.0, 1e-6), noise_ratio=1.05)
    result = run(protocol, ball(10_000, 10), fidelity="literal", seed=1)
    costs = result.costs
    assert costs.measured
    assert costs.messages_per_user == costs.payload_bits_per_user == 10 * (protocol.g + protocol.b)
    assert costs.wire_bytes <= 1.1 * 10_000 * costs.payload_bits_per_user / 8
    for fidelity in ("counts", "aggregate"):  # by formula, the same numbers
        other = run(protocol, ball(10_000, 10), fidelity=fidelity, seed=1).costs
        assert (other.wire_bytes, other.view_bytes, other.measured) == (
            costs.wire_bytes,
            costs.view_bytes,
            False,
        )


def test_results_carry_the_guarantee_and_its_basis(ball):
    privacy = Privacy(1.0, 1e-6)
    result = run(VectorSum.calibrated(n=1000, d=3, privacy=privacy, noise_ratio=1.1), ball(1000, 3))
    assert 0.9 < result.privacy.epsilon <= 1.0
    assert result.privacy.delta == 1e-6
    assert result.privacy.relation == "replace-one"
    assert "domination" in result.privacy.basis
    assert any("honest fraction 1" in note for note in result.privacy.assumptions)
    assert result.private
    seeded = run(
        VectorSum.calibrated(n=1000, d=3, privacy=privacy, noise_ratio=1.1), ball(1000, 3), seed=1
    )
    assert not seeded.private
    assert any("not private" in note for note in seeded.privacy.assumptions)
    by_paper = run(VectorSum.paper(n=1000, d=3, privacy=privacy), ball(1000, 3))
    assert by_paper.privacy.epsilon == 1.0
    assert "Theorem 3.2" in by_paper.privacy.basis
    assert by_paper.fidelity == "aggregate"


@pytest.mark.full
def test_dropouts_are_in_epsilon_and_a_floor_aborts(ball):
    protocol = VectorSum.calibrated(n=2000, d=2, privacy=Privacy(1.0, 1e-6), noise_ratio=1.1)
    result = run(protocol, ball(2000, 2), adversary=Dropout(0.3), seed=3)
    assert result.reports.missing > 500
    assert result.privacy.epsilon > 1.1 > result.promised.epsilon
    floored = VectorSum.calibrated(
        n=2000, d=2, privacy=Privacy(1.0, 1e-6), noise_ratio=1.3, honest_fraction=0.9
    )
    with pytest.raises(RoundAbortedError, match="1800"):
        run(floored, ball(2000, 2), adversary=Dropout(0.3), seed=3)
    kept = run(floored, ball(2000, 2), adversary=Dropout(0.05), seed=3)
    assert kept.privacy.epsilon == kept.promised.epsilon <= 1.0  # 0.9 was counted on, 0.95 reported


def test_rows_above_the_bound_are_clipped_and_counted():
    protocol = VectorSum(n=4, d=2, g=1000, b=50)
    rows = np.array([[3.0, 4.0], [0.1, 0.0], [1e200, 1e200], [0.6, 0.8]])
    result = run(protocol, rows, seed=1)
    assert result.reports.clipped == 2
    expected = np.array([0.6 + 0.1 + math.sqrt(0.5) + 0.6, 0.8 + math.sqrt(0.5) + 0.8])
    assert np.abs(result.value - expected).max() < 6 * protocol.standard_error


def test_admitted_rows_never_exceed_the_bound_beyond_the_margin():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(20_000, 7)) * 10.0 ** rng.integers(-5, 6, (20_000, 1))
    admitted, _ = BinomialRandomizer(7, 3, 3, 0.5, -1.0, 2.0, 1.0).admit(rows)
    # The accountant's margin is 1e-6.
    assert np.linalg.norm(dense(admitted), axis=1).max() <= 1 + 1e-14


@pytest.mark.parametrize("largest", [0.01, 1.5, 1e6])
def test_multiples_of_rows_are_clipped_like_vectors(largest):
    rng = np.random.default_rng(6)
    rows, factors = rng.normal(size=(5000, 7)), rng.uniform(-largest, largest, 5000)
    randomizer = BinomialRandomizer(7, 3, 3, 0.5, -1.0, 2.0, 1.0)
    admitted, clipped = randomizer.admit(Scaled(np.asfortranarray(rows), factors.copy()))
    expected, counted = randomizer.admit(rows * factors[:, None])
    assert clipped == counted
    assert np.allclose(admitted.dense(), dense(expected), rtol=1e-12, atol=0)
    assert np.linalg.norm(admitted.dense(), axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000, 10**6, 10**7, 10**8, 10**9])
@pytest.mark.parametrize("d", [1, 10, 1000])
def test_blocks_are_neither_too_many_nor_too_large(n, d):
    randomizer = BinomialRandomizer(d, 44, 14, 0.5, -1.0, 2.0, 1.0)
    for fidelity in ("literal", "counts", "aggregate"):
        size = default_block_size(n, randomizer, fidelity)
        blocks = -(-n // size)
        assert size >= 1
        assert blocks >= min(n, 9)
        if fidelity == "aggregate":
            assert blocks <= 128
        else:
            assert size == 1 or size * user_bytes(fidelity, randomizer) <= 1 << 21
