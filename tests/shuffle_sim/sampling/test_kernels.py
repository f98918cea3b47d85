"""The inner loops: exact law of rounded sums, ties included; numpy and compiled agree."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from protocols import VectorSum
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.auditing import LawError, check_pmf, check_same_law
from shuffle_sim.sampling import compiled, kernels
from shuffle_sim.sampling.kernels import KERNELS, column_sums, rounded_sum, rounded_values, using


def bernoulli_sum_pmf(fractions: np.ndarray) -> np.ndarray:
    pmf = np.ones(1)
    for f in fractions:
        pmf = np.convolve(pmf, [1 - f, f])
    return pmf


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("with_factors", [True, False])
@pytest.mark.full
def test_a_rounded_sum_has_its_exact_law(kernel, with_factors):
    rng = np.random.default_rng(1)
    columns = np.ascontiguousarray(rng.uniform(-1, 1, (2, 37)))
    factors = rng.uniform(-1, 1, 37) if with_factors else None
    scaled = columns[0] * (1 if factors is None else factors) * 9.0 + 9.0
    with using(kernel):
        draws = np.array([rounded_sum(columns, factors, 9.0, 9.0, rng)[0] for _ in range(6000)])
    pmf = bernoulli_sum_pmf(scaled % 1)
    check_pmf(draws - int(np.floor(scaled).sum()), pmf)
    with pytest.raises(LawError):  # power: fractions a tenth off
        check_pmf(draws - int(np.floor(scaled).sum()), bernoulli_sum_pmf(scaled % 1 * 0.9))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.full
def test_rounded_values_have_their_exact_law_one_by_one(kernel):
    rng = np.random.default_rng(4)
    columns = np.ascontiguousarray(rng.uniform(-1, 1, (2, 300)))
    with using(kernel):
        draws = np.array(
            [rounded_values(columns, None, 9.0, 9.0, rng) for _ in range(4000)], np.int64
        )
    scaled = columns * 9.0 + 9.0
    up = draws - np.floor(scaled).astype(np.int64)
    assert set(np.unique(up)) == {0, 1}
    z = (up.mean(axis=0) - scaled % 1) / np.sqrt((scaled % 1) * (1 - scaled % 1) / 4000)
    assert (z**2).sum() < chi2.isf(1e-6, z.size)  # false alarm 1e-6
    check_pmf(up[:, 0].sum(axis=1), bernoulli_sum_pmf(scaled[0] % 1))  # and independent
    wrong = up.mean(axis=0) - (scaled % 1) * 0.98  # power: fractions a fiftieth off
    assert (wrong**2 / ((scaled % 1) * (1 - scaled % 1) / 4000)).sum() > chi2.isf(1e-6, z.size)


@pytest.mark.full
@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_numpy_and_compiled_have_one_law_in_a_run(ball, fidelity):
    rows, protocol = ball(64, 2), VectorSum(n=64, d=2, g=5, b=6)

    def tallies(kernel):
        runs = (
            run(
                protocol,
                rows,
                fidelity=fidelity,
                execution=Execution(kernel=kernel, block_size=64),
                seed=s,
            )
            for s in range(600)
        )
        return np.array([round((r.value[0] + 64) * 5 / 2 + 64 * 3 - 64 * 5 / 2) for r in runs])

    plain, quick = tallies("numpy"), tallies("compiled")
    check_same_law(plain, quick)
    with pytest.raises(LawError):  # power: three quarters of a standard deviation too much
        check_same_law(plain, quick + 8)


class Scripted:
    """A generator whose raw bits are all ones and whose uniforms are given: every value with clean
    low bits is tied.
    """

    def __init__(self, uniform: float) -> None:
        self.bit_generator, self._uniform = self, uniform

    def random_raw(self, size):
        return np.full(size, 2**64 - 1, np.uint64)

    def random(self, size):
        return np.full(size, self._uniform)


@pytest.mark.parametrize("phi", [0.25, 0.75])
def test_a_tie_is_decided_by_what_the_sixteen_bits_left_over(phi):
    # 2^16 s = 65536 * 3 + phi: with r all ones, q + r has low bits all ones, and only phi > u
    # rounds up.
    columns = np.full((1, 5), (3 * 65536 + phi) / 65536)
    for uniform in (0.1, 0.5, 0.9):
        expected = 5 * (3 + (uniform < phi))
        assert rounded_sum(columns, None, 1.0, 0.0, Scripted(uniform))[0] == expected
        sums = np.empty(1, np.int64)
        state, random, ties = (
            np.zeros((4, 16), np.uint64),
            np.empty((4, 16), np.uint64),
            np.full(64, uniform),
        )
        state[0] = 2**64 - 1  # the first sixteen words are a + b + counter: all ones
        compiled.rounded_sum(
            columns, np.full(5, 65536.0), 0.0, np.empty(0), state.copy(), random, ties, sums
        )
        assert sums[0] == expected
        values = np.empty((1, 5), np.uint16)
        compiled.rounded_values(
            columns, np.full(5, 65536.0), 0.0, state.copy(), random, ties, values
        )
        assert values.sum() == expected


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [0, 1, 255, 256, 5000, 20_000])
def test_what_is_read_next_changes_nothing(kernel, size):
    columns, ahead = (
        np.random.default_rng(4).random((3, 5000)),
        np.asfortranarray(np.full((size, 3), np.nan)),
    )
    with using(kernel):
        alone = rounded_sum(columns, None, 9.0, 1.0, np.random.default_rng(5))
        kernels.expect(ahead)
        assert (
            rounded_sum(columns, None, 9.0, 1.0, np.random.default_rng(5)).tolist()
            == alone.tolist()
        )
        kernels.expect(None)


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_on_the_edges_never_leave_the_range(kernel):
    rng = np.random.default_rng(2)
    columns = np.concatenate(
        [np.full((1, 5000), 1.0), np.full((1, 5000), -1.0), np.full((1, 5000), 1 - 1e-12)]
    )
    with using(kernel):
        for g in (1, 53, kernels.MAX_STEPS):
            top, bottom, near = rounded_sum(columns, None, g / 2, g / 2, rng)
            assert (top, bottom) == (5000 * g, 0)
            assert near <= 5000 * g


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 21])
def test_margins_and_norms_agree(d):
    rng = np.random.default_rng(3)
    rows, theta = np.asfortranarray(rng.normal(size=(1001, d))), rng.normal(size=d)
    plain = kernels.margins_and_norms(rows, theta)
    with using("compiled"):
        quick = kernels.margins_and_norms(rows, theta)
    for a, b, c in zip(plain, quick, (rows @ theta, (rows**2).sum(axis=1)), strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(b, c, rtol=1e-12, atol=1e-12)


def test_the_words_of_the_sixteen_generators_are_sfc64():
    # One lane against numpy's own SFC64 with the same state.
    reference = np.random.SFC64(5)
    words = reference.state["state"]["state"]  # a, b, c, counter
    state = np.tile(np.array(words, np.uint64)[:, None], (1, 16))
    out = np.empty((40, 16), np.uint64)
    compiled.fill(state, out)
    expected = reference.random_raw(40)
    assert (out == expected[:, None]).all()


def test_one_seed_gives_the_same_bits_with_either_kernel(ball):
    rows, protocol = ball(3000, 3), VectorSum(n=3000, d=3, g=20, b=9)
    for kernel in KERNELS:
        results = [
            run(
                protocol,
                rows,
                fidelity="aggregate",
                execution=Execution(kernel=kernel),
                seed=4,
                workers=w,
            ).value
            for w in (1, 3)
        ]
        assert np.array_equal(*results)


def test_the_kernel_is_named_and_bad_names_are_refused(ball, monkeypatch):
    protocol = VectorSum(n=30, d=2, g=3, b=30)
    assert run(protocol, ball(30, 2)).kernel == "numpy"
    assert kernels.available(None, math.inf) == "compiled"
    with pytest.raises(ParameterError, match="kernel"):
        run(protocol, ball(30, 2), execution=Execution(kernel="fortran"))
    monkeypatch.setattr(kernels, "find_spec", lambda _: None)
    assert kernels.available(None, math.inf) == "numpy"
    with pytest.raises(ParameterError, match="numba"):
        kernels.available("compiled", 1.0)


@pytest.mark.parametrize("d", [1, 3, 10])
def test_both_kernels_bring_rows_into_the_ball_alike(d):
    rng = np.random.default_rng(d)
    rows = np.asfortranarray(rng.normal(size=(1001, d)))
    rows[0], rows[1], rows[2] = 0.0, 1e-170, 2.0 / math.sqrt(d)  # squares vanish; on the sphere
    found = {}
    for kernel in KERNELS:
        with using(kernel):
            squares = kernels.squared_norms(rows)
            arranged, with_it = kernels.arranged(rows.copy("C"))
            assert np.array_equal(arranged, rows)
            if kernel == "compiled":
                np.testing.assert_allclose(with_it, squares, rtol=1e-14)
            factors = np.full(len(rows), 0.5)
            assert kernels.shorten(squares, 2.0, factors) == np.count_nonzero(
                np.linalg.norm(rows, axis=1) > 2 * (1 + 1e-12)
            )
            found[kernel] = 2 * factors
            assert found[kernel].max() == found[kernel][0] == found[kernel][1] == 1.0
            norms = np.linalg.norm(rows * found[kernel][:, None], axis=1)
            assert norms.max() <= 2 * (1 + 1e-12)
            for bad in (np.inf, np.nan, 1e200):
                wrong = rows.copy("F")
                wrong[700] = bad
                assert not np.isfinite(kernels.squared_norms(wrong)[700])
                with_it = kernels.arranged(wrong.copy("C"))[1]
                assert with_it is None or not np.isfinite(with_it[700])
    np.testing.assert_allclose(found["numpy"], found["compiled"], rtol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64])
@pytest.mark.parametrize("rows", [0, 1, 257, 70_000])
def test_columns_are_summed_without_overflow(kernel, kind, rows):
    counts = np.full((rows, 3), 255, kind)
    if rows:
        counts[:, 1], counts[-1] = 9, [7, 7, np.iinfo(kind).max // 2]
    with using(kernel):
        sums, most = column_sums(counts)
    assert sums.tolist() == [sum(column) for column in counts.T.tolist()]
    assert most.tolist() == [max(column, default=0) for column in counts.T.tolist()]
