"""A cryptographic source for numpy, and integers of exact laws."""

import itertools
import math
import pickle

import numpy as np
import pytest
from runs import run
from scipy import stats

from protocols import SplitAndMixSum, VectorSum
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.protocol.adversary import Coalition
from shuffle_sim.sampling import exact
from shuffle_sim.sampling.chacha import ChaCha20
from shuffle_sim.sampling.randomness import Role, stream
from shuffle_sim.sampling.shuffling import permuted

ALARM = 1e-6
SIZE = 30_000


def generator(key=bytes(32)):
    return np.random.Generator(ChaCha20(key))


def test_the_key_stream_is_that_of_the_standard():
    """RFC 8439, A.1, test vector 1."""
    expected = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    assert ChaCha20(bytes(32)).random_raw(4).tobytes().hex() == expected
    rng = generator()
    words = [int(rng.integers(0, 2**64, dtype=np.uint64)) for _ in range(4)]
    assert words == ChaCha20(bytes(32)).random_raw(4).tolist()


def test_numpy_draws_its_laws_from_it():
    rng = generator()
    assert stats.kstest(rng.random(SIZE), "uniform").pvalue > ALARM
    assert stats.kstest(rng.normal(size=SIZE), "norm").pvalue > ALARM
    assert stats.kstest(rng.normal(size=SIZE) + 0.1, "norm").pvalue < ALARM  # power
    check_pmf(rng.binomial(20, 0.3, SIZE), stats.binom.pmf(range(21), 20, 0.3), false_alarm=ALARM)


def test_streams_are_apart_and_stay_where_they_are():
    places = itertools.product((1, 2), (0, 1), (Role.USERS, Role.SHUFFLER), (0, 2**33))
    firsts = {int(stream(*place, "chacha20").bit_generator.random_raw(1)[0]) for place in places}
    assert len(firsts) == 16
    with pytest.raises(TypeError, match="stays where it is"):
        pickle.dumps(ChaCha20(bytes(32)))


def test_a_large_pool_is_permuted_by_it_alone():
    """A compiled kernel would stretch it to a statistical generator."""
    words = np.arange(1 << 17, dtype=np.uint32)
    assert np.array_equal(permuted([words], generator()), generator().permutation(words))


def test_corrupted_users_draw_from_it_too():
    """They know what they draw: from a statistical generator they could compute all others."""
    seen = set()

    class Looks(Coalition):
        def corrupt(self, round_index, users, rng):
            seen.add(type(rng.bit_generator))
            return super().corrupt(round_index, users, rng)

        def values(self, context, xs, rng):
            seen.add(type(rng.bit_generator))
            return xs

        def report(self, user, x, call_next, rng):
            seen.add(type(rng.bit_generator))
            return call_next(x)

    made, rows = VectorSum(n=40, d=2, g=3, b=9), np.zeros((40, 2))
    run(made, rows, adversary=Looks(0.5), generator="chacha20")
    assert seen == {ChaCha20}


@pytest.mark.parametrize("bound", [1, 3, 2**40, 3 * 2**60, 2**62])
def test_uniform_integers_below_a_bound(bound):
    found = exact.below(bound, SIZE, generator())
    assert found.min() >= 0
    assert found.max() < bound
    cells = np.bincount((found / bound * 12).astype(int), minlength=12)
    if bound > 3:
        assert stats.chisquare(cells[:12]).pvalue > ALARM


@pytest.mark.parametrize("x", [0.0, 2.0**-40, 0.25, 1.0])
def test_a_bernoulli_of_an_exponential(x):
    number = round(x * 2**40)
    found = exact.bernoulli_exp(np.full(SIZE, number), generator())
    assert stats.binomtest(int(found.sum()), SIZE, math.exp(-x)).pvalue > ALARM


@pytest.mark.parametrize("rate", [0.02, 0.7, 2.5])
def test_a_geometric_has_its_law(rate):
    number = math.floor(rate * 2**40)
    found = exact.geometric(number, SIZE, generator())
    law = stats.geom.pmf(np.arange(1, int(30 / rate) + 40), -math.expm1(-rate))
    check_pmf(found, law, false_alarm=ALARM)
    wrong = stats.geom.pmf(np.arange(1, int(30 / rate) + 40), -math.expm1(-1.1 * rate))
    with pytest.raises(LawError):  # power: a rate a tenth off
        check_pmf(found, wrong, false_alarm=ALARM)


@pytest.mark.parametrize(("shape", "rate"), [((1, 7), 0.3), ((1, 40), 0.05), ((9, 4), 1.4)])
def test_shares_have_their_law_and_another_shape_is_caught(shape, rate):
    found = exact.negative_binomial(shape[0], shape[1], rate, SIZE, generator())
    cells = np.arange(int(60 / rate))
    success = -math.expm1(-rate)
    check_pmf(found, stats.nbinom.pmf(cells, shape[0] / shape[1], success), false_alarm=ALARM)
    planted = exact.negative_binomial(4 * shape[0], 5 * shape[1], rate, SIZE, generator())
    law = stats.nbinom.pmf(cells, shape[0] / shape[1], success)
    with pytest.raises(LawError):  # power: a fifth less noise
        check_pmf(planted, law, false_alarm=ALARM)


def test_shares_add_up_to_discrete_laplace_noise():
    n, rate = 25, 0.4
    shares = [
        exact.negative_binomial(1, n, rate, 8000 * n, generator(bytes([k] * 32))) for k in (1, 2)
    ]
    noise = (shares[0] - shares[1]).reshape(-1, n).sum(axis=1)
    law = stats.dlaplace.pmf(np.arange(-90, 91), rate)
    check_pmf(noise + 90, law, false_alarm=ALARM)


def test_split_and_mix_draws_from_a_cryptographic_source():
    protocol = SplitAndMixSum.calibrated(n=30, privacy=Privacy(2.0, 1e-6), rounding=0.3)
    randomizer = protocol.randomizer
    rng, values = generator(), np.full(2000, 0.5)
    found = randomizer.count_index(randomizer.counts(values, rng)[:, 0], 1)
    check_pmf(found, randomizer.count_pmf(np.array([0.5]), 0), false_alarm=ALARM)
    totals = np.array([int(randomizer.noise(30, (), rng)) for _ in range(1000)])
    index, law = randomizer.total_law(totals, 30)
    check_pmf(index, law, false_alarm=ALARM)


# As an option of runs


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_runs_draw_from_it_and_say_so(fidelity, tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 2)) / 4
    protocol = VectorSum(n=300, d=2, g=20, b=9)
    given = {"fidelity": fidelity, "generator": "chacha20"}
    result = run(protocol, rows, checkpoint=tmp_path / "run", **given)
    assert any("drawn by ChaCha20" in each for each in result.privacy.assumptions)
    again = run(protocol, rows, checkpoint=tmp_path / "run", resume=True, **given)
    assert np.array_equal(result.value, again.value)
    spread = math.sqrt(float(protocol.randomizer.variance(300).max()))
    assert np.abs(result.value - rows.sum(axis=0)).max() < 7 * spread
    with pytest.raises(ParameterError, match="its generator is chacha20"):
        run(protocol, rows, checkpoint=tmp_path / "run", resume=True, fidelity=fidelity)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"generator": "dice"}, "one of sfc64, chacha20"),
        ({"generator": "chacha20", "seed": 1}, "not private, whatever draws"),
        ({"generator": "chacha20", "kernel": "compiled"}, "numpy with chacha20"),
    ],
)
def test_what_cannot_be_had_is_refused(given, says):
    with pytest.raises(ParameterError, match=says):
        run(VectorSum(n=10, d=2, g=3, b=9), np.zeros((10, 2)), **given)
