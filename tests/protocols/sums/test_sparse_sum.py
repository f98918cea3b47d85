"""Sums by buckets: exact laws, errors as stated, the same at every fidelity, attacks, bad input."""

import math

import numpy as np
import pytest

from protocols import SparseVectorSum
from protocols.shuffle import NoisyMean
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.rotation import rotated
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.auditing import LawError, check_pmf, check_same_law
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.wire.messages import Tally

POINT = Privacy(1.0, 1e-6)
SMALL = BucketRandomizer(5, 4, 0.3, 1.0, 0.8, 3)


def law(randomizer, x):
    """Of the word in each bucket, (buckets, 2 B)."""
    clip = randomizer.span * randomizer.norm_bound
    v = np.clip(rotated(x[None], randomizer.rotation), -clip, clip)[0] * randomizer.a / clip
    each = np.stack([0.5 - v, 0.5 + v], axis=1) / randomizer.bucket
    return each.reshape(randomizer.buckets, -1)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.full
def test_words_have_their_exact_law(fast):
    """In every bucket; false-alarm rate 1e-6 each. Signs a little too fair are caught."""
    rng, draws = np.random.default_rng(1), 20_000
    x = np.array([0.6, -0.5, 0.1, 0.0, -0.6])
    if fast:
        words = SMALL.reports(np.repeat(x[None], draws, axis=0), rng).words.reshape(draws, -1)
    else:
        words = np.array([SMALL.randomize(x, rng).words for _ in range(draws)])
    for bucket, exact in enumerate(law(SMALL, x)):
        seen = words[:, bucket].astype(int) - 2 * SMALL.bucket * bucket
        check_pmf(seen, exact)
    with pytest.raises(LawError):
        check_pmf(words.astype(int).ravel() % (2 * SMALL.bucket), law(SMALL, 0.3 * x).mean(axis=0))


def test_the_error_is_that_stated():
    """Over many rounds, within 2 %; and no bias where nothing is clipped."""
    rng = np.random.default_rng(2)
    randomizer = BucketRandomizer(64, 8, 0.2, 1.0, 1.0, 5)
    xs = rng.normal(size=(300, 64))
    xs /= np.linalg.norm(xs, axis=1, keepdims=True)
    errors = np.array(
        [
            randomizer.estimate(Tally.counted(randomizer.reports(xs, rng).words, reports=300))
            - xs.sum(axis=0)
            for _ in range(400)
        ]
    )
    stated = float(randomizer.variance(300, xs)[0])
    assert np.mean(errors**2) == pytest.approx(stated, rel=0.02)
    assert abs(errors.mean()) < 5 * math.sqrt(stated / errors.size)
    assert randomizer.variance(300)[0] == pytest.approx(stated + 300 / 64)


@pytest.mark.full
def test_all_fidelities_and_workers_agree():
    protocol = SparseVectorSum(n=600, d=40, bucket=8, a=0.1, delta=1e-2)
    xs = np.full((600, 40), 0.1)
    values = [
        run(protocol, xs, fidelity=fidelity, workers=workers, seed=4).value
        for fidelity in ("literal", "counts", "aggregate")
        for workers in (1, 2)
    ]
    assert all(np.array_equal(value, values[0]) for value in values)
    sums = [
        [round(float(run(protocol, xs, fidelity=f, seed=s).value[0]) * 8) for s in range(60)]
        for f in ("literal", "aggregate")
    ]
    check_same_law(*map(np.array, sums))


@pytest.mark.full
def test_a_calibrated_sum_costs_and_errs_as_it_says():
    protocol = SparseVectorSum.calibrated(n=4000, d=1000, privacy=POINT, noise_ratio=3.0)
    xs = np.zeros((4000, 1000))
    xs[np.arange(4000), np.arange(4000) % 1000] = 1.0
    result = run(protocol, xs, fidelity="literal", seed=1)
    assert result.privacy.epsilon <= 1.0
    assert result.costs.messages_per_user == protocol.randomizer.buckets
    assert result.costs.payload_bits_per_user == protocol.bits * 1024 < 1000
    error = math.sqrt(float(np.mean((result.value - xs.sum(axis=0)) ** 2)))
    assert error < 1.1 * math.hypot(protocol.standard_error, protocol.clipping_bias / 32)


def test_optimisers_take_rotated_sums():
    """A mean by the fewest bits of all encodings, in a ball of any radius."""
    spec = SumSpec(4000, 1000, POINT, 1, 1.0, rotation=3)
    mean = NoisyMean.calibrated(spec, 2.0, 3.0)
    assert isinstance(mean.sum, SparseVectorSum)
    other = mean.within(0.5)
    assert other.sum.parameters == mean.sum.parameters
    assert other.squared_noise == pytest.approx(mean.squared_noise / 16)


@pytest.mark.parametrize("name", ["sign-flip", "scaling", "dropout", "garbage", "twice"])
def test_a_malicious_user_moves_the_sum_as_stated_at_most(name):
    protocol = SparseVectorSum(n=400, d=60, bucket=8, a=0.2, delta=1e-1)
    xs = np.zeros((400, 60))
    share = "rate" if name == "dropout" else "fraction"
    result = run(protocol, xs, adversary=attack(f"{name}:{share}=0.2"), fidelity="literal", seed=3)
    corrupted = result.reports.corrupted
    noise = protocol.standard_error * math.sqrt(60)
    most = protocol.randomizer.manipulation(corrupted, 400) + 1.5 * noise
    assert np.linalg.norm(result.value) < most


def test_words_of_one_bucket_twice_are_refused():
    honest = SMALL.randomize(np.zeros(5), np.random.default_rng(0))
    assert SMALL.proper(honest)
    again = honest.words.astype(int)
    again[1] = again[0]
    assert not SMALL.proper(SMALL.singly(again))
    assert not SMALL.proper(SMALL.singly(again[:1]))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"bucket": 3}, "bucket"),
        ({"bucket": 128}, "bucket"),
        ({"a": 0.5}, "a"),
        ({"a": 0.0}, "a"),
        ({"span": 0.0}, "span"),
        ({"rotation": -1}, "rotation"),
        ({"norm_bound": math.nan}, "norm_bound"),
    ],
)
def test_bad_parameters_are_refused(given, name):
    with pytest.raises(ParameterError) as refused:
        SparseVectorSum(**({"n": 500, "d": 40, "bucket": 4, "a": 0.1} | given))
    assert refused.value.parameter == name


@pytest.mark.parametrize("fidelity", ["literal", "aggregate"])
def test_the_kernel_is_chosen_by_rotated_coordinates(fidelity):
    """Not by the few messages: the rotation is what takes time."""
    for d, kernel in ((1 << 14, "compiled"), (1 << 10, "numpy")):
        made = SparseVectorSum(n=200, d=d, bucket=d // 4, a=0.1)
        assert run(made, np.eye(200, d), fidelity=fidelity, seed=1).kernel == kernel
