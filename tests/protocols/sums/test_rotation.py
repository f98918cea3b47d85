"""Sums with carries under a public rotation: the transform, clipping, its bias, laws, privacy."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy
from sum_errors import check_errors

from protocols.sums.carry import CarryRandomizer
from protocols.sums.carry_sum import CarryScalarSum, CarryVectorSum
from protocols.sums.rotation import (
    clipping_probability,
    rotated,
    span_without_clipping,
    unrotated,
)
from shuffle_sim import Execution, ParameterError, Privacy, run
from shuffle_sim.arrays import Scaled
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.auditing import check_pmf, check_randomizer
from shuffle_sim.auditing.audit import audit
from shuffle_sim.privacy.bounds.carry import Carries
from shuffle_sim.privacy.bounds.clipping import clipping_loss, padded
from shuffle_sim.privacy.carry_planner import choose_carries
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Datum
from shuffle_sim.sampling.kernels import using
from shuffle_sim.wire.codec import decode, encode
from shuffle_sim.wire.messages import Tally

POINT = Privacy(1.0, 1e-6)


def on_sphere(users: int, d: int, seed: int) -> np.ndarray:
    xs = np.random.default_rng(seed).normal(size=(users, d))
    return xs / np.linalg.norm(xs, axis=1, keepdims=True)


# The transform


@pytest.mark.parametrize("d", [1, 2, 5, 11, 64])
def test_the_transform_is_that_of_scipy_and_orthogonal(d):
    size = padded(d)
    xs = on_sphere(6, d, seed=1)
    found = rotated(xs, 7)
    signs = np.sign(rotated(np.eye(d), 7)[:, 0])  # the matrix's first column is of ones
    plain = np.pad(xs * signs, ((0, 0), (0, size - d)))
    assert found == pytest.approx(plain @ scipy.linalg.hadamard(size) / math.sqrt(size), abs=1e-14)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(6), abs=1e-14)
    assert unrotated(found[0], 7, d) == pytest.approx(xs[0], abs=1e-14)
    assert (rotated(xs[2:3], 7) == found[2:3]).all()  # to the last bit, whatever the batch


@pytest.mark.parametrize("d", [1, 2, 100, 2048, 4097, 9000, 20_000])
@pytest.mark.full
def test_both_kernels_turn_to_the_same_bits(d):
    xs = on_sphere(3, d, seed=2)
    kept = xs.copy()
    with using("compiled"):
        compiled = rotated(xs, 7), unrotated(rotated(xs, 7)[1], 7, d)
    assert np.array_equal(compiled[0], rotated(xs, 7))
    assert np.array_equal(compiled[1], unrotated(rotated(xs, 7)[1], 7, d))
    assert np.array_equal(xs, kept)


@pytest.mark.full
def test_multiples_of_rows_turn_as_they_are_in_every_layout():
    xs, factors = on_sphere(19, 300, seed=3), np.linspace(-2.0, 1.0, 19)
    expected = rotated(xs * factors[:, None], 7)
    for rows in (xs, np.asfortranarray(xs), np.repeat(xs, 2, axis=0)[::2]):
        scaled = Scaled(rows, factors)
        for kernel in ("numpy", "compiled"):
            with using(kernel):
                assert np.array_equal(rotated(scaled, 7), expected)
                assert np.array_equal(rotated(scaled[3:14], 7), expected[3:14])


def test_signs_are_those_of_the_seed_for_ever():
    signs = [np.sign(rotated(np.eye(8), seed)[:, 0]).astype(int).tolist() for seed in (0, 7)]
    assert signs[0] != signs[1]
    assert signs == SIGNS
    many = np.sign([rotated(np.eye(64), seed)[:, 0] for seed in range(64)])
    assert abs(many.sum()) < 6 * 64  # fair: 6 standard deviations


SIGNS = [[1, -1, 1, -1, -1, -1, -1, -1], [-1, 1, 1, 1, -1, 1, -1, -1]]


# Clipping


@pytest.mark.parametrize("span", [0.6, 0.9, 1.0])
def test_clipping_is_as_rare_as_stated(span):
    """Over 400 seeds, for the data on which it is most frequent; the loss, too."""
    d, users = 16, 4
    xs = np.zeros((users, d))
    xs[:2] = 1 / 4
    xs[2:, 0] = 1.0
    excess = [np.abs(rotated(xs, seed)) - span for seed in range(400)]
    clipped = float(np.mean([(each > 0).any() for each in excess]))
    lost = np.mean([(each.clip(min=0) ** 2).sum(axis=1) for each in excess], axis=0)
    assert clipped <= clipping_probability(users, d, span) + 1e-12
    assert (np.sqrt(lost) <= clipping_loss(d, span) + 1e-12).all()
    if span < 0.7:
        assert clipped > 0
        assert clipping_loss(d, span) < 3 * float(np.sqrt(lost.max()))


def test_a_span_at_which_nothing_is_clipped():
    span = span_without_clipping(10**6, 1000, 1e-3)
    assert span == pytest.approx(math.sqrt(2 * math.log(2 * 1024 * 10**9) / 1024))
    assert clipping_probability(10**6, 1000, span) == pytest.approx(1e-3)
    assert span_without_clipping(10**6, 4, 1e-3) == 1.0
    protocol = CarryVectorSum.calibrated(
        n=2000, d=200, privacy=POINT, noise_ratio=1.2, rotation=1, span=0.55
    )
    assert 0 < protocol.clipping_probability < 1e-6
    assert protocol.clipping_bias < 1e-3 * protocol.standard_error
    xs = on_sphere(2000, 200, seed=2)
    assert (np.abs(rotated(xs, 1)) < 0.55).all()


@pytest.mark.parametrize("rotation", [None, 5])
def test_the_bias_is_below_the_one_stated(rotation):
    """Of equal vectors, which share it: without noise, by the mean of one user's number."""
    protocol = CarryVectorSum(n=3000, d=60, g=2.0, rotation=rotation, span=0.35, delta=1e-3)
    biases = []
    for seed in range(30):
        randomizer = protocol.randomizer
        if rotation is not None:
            randomizer = replace(randomizer, rotation=seed)
        x = on_sphere(1, 60, seed)
        inside = randomizer._scaled(x)[0] * randomizer.width / randomizer.g + randomizer.lowest
        back = inside if rotation is None else unrotated(inside, seed, 60)
        biases.append(3000 * np.linalg.norm(back - x[0]))
    assert 0 < math.sqrt(np.mean(np.square(biases))) <= protocol.clipping_bias
    if rotation is None:
        assert max(biases) <= protocol.clipping_bias == 3000 * (1 - 0.35)
        assert protocol.clipping_probability == 1
    assert CarryVectorSum(n=3000, d=60, g=2.0, delta=1e-3).clipping_bias == 0


# The randomizer and its sum

BALL = -1.0, 2.0, 1.0
SMALL = [
    CarryRandomizer(2, 5.4, 2, 0, 1, *BALL, 0.75, None),
    CarryRandomizer(2, 5.4, 2, 0, 1, *BALL, 0.8, 3),
    CarryRandomizer(3, 4.0, 3, 1, 0, *BALL, 0.7, 4),
]


@pytest.mark.parametrize("randomizer", SMALL)
@pytest.mark.full
def test_all_samplers_have_the_exact_law(randomizer):
    """And a broadcast brings the randomizer to the users whole. False-alarm rate 1e-6 each."""
    xs = on_sphere(3, randomizer.coordinates, seed=3)
    check_randomizer(randomizer, xs, repeats=1500, seed=3)
    rng, known = np.random.default_rng(4), (CarryRandomizer,)
    counts = randomizer.counts(np.repeat(xs[:1], 4000, axis=0), rng)
    for label in range(randomizer.alphabet.labels):
        check_pmf(counts[:, label], randomizer.count_pmf(xs[0], label))
    assert decode(encode(randomizer, known), known) == randomizer


@pytest.mark.parametrize("randomizer", SMALL)
def test_all_ones_and_all_zeros_are_the_ends(randomizer):
    columns = np.diff(randomizer.alphabet.edges)
    ends = [randomizer.estimate(Tally(ones, 1)) for ones in (columns, 0 * columns)]
    far = max(float(np.linalg.norm(end)) for end in ends)
    assert far <= randomizer.manipulation(1, 10) * (1 + 1e-12)
    assert far >= 0.4 * randomizer.manipulation(1, 10)


@dataclass(frozen=True)
class _NotScaled(CarryRandomizer):
    """Vectors longer than the bound by a tenth are let in."""

    def admit(self, values):
        longer = CarryRandomizer(*vars_of(self))
        object.__setattr__(longer, "norm_bound", 1.1)  # which it would refuse itself
        return longer.admit(values)


def moved(randomizer: CarryRandomizer, seed: int) -> tuple[float, float]:
    """The largest l2 and coordinate differences of the steps, of data anywhere."""
    rng = np.random.default_rng(seed)
    d = randomizer.coordinates
    far = np.concatenate([on_sphere(300, d, seed), np.eye(d), rotated(np.eye(padded(d)), 4)[:, :d]])
    xs = np.concatenate([far, 1.1 * far, rng.normal(size=(100, d))])
    steps = [randomizer._scaled(randomizer.admit(sign * xs)[0]) for sign in (1, -1)]
    change = np.abs(steps[0] - steps[1])
    return float(np.linalg.norm(change, axis=1).max()), float(change.max())


@pytest.mark.parametrize("randomizer", SMALL)
def test_no_two_data_are_farther_apart_than_the_event_says(randomizer):
    """By brute force, antipodal data in and outside of the ball; 10 % more is caught."""
    event = randomizer.event(100, Datum())
    most, widest = moved(randomizer, seed=5)
    assert 0.95 * event.sensitivity < most <= event.sensitivity * (1 + 1e-12)
    assert widest == pytest.approx(event.sensitivity * event.span)
    planted, _ = moved(_NotScaled(*vars_of(randomizer)), seed=5)
    assert planted > 1.02 * event.sensitivity


def test_a_cube_may_be_smaller_than_the_ball():
    randomizer = replace(SMALL[0], span=0.4)
    event = randomizer.event(100, Datum())
    round_ = Carries(99, event.sensitivity, 2, 0, 1, 2, event.span)
    assert moved(randomizer, seed=5) == pytest.approx((round_.reach, round_.widest))
    assert round_.reach == pytest.approx(0.4 * math.sqrt(2) * 5.4)


def vars_of(randomizer: CarryRandomizer) -> tuple:
    return tuple(getattr(randomizer, name) for name in randomizer.__dataclass_fields__)


def test_the_worst_pair_is_at_the_ends_of_the_first_coordinate():
    for randomizer in SMALL:
        ends = [randomizer._scaled(x[None])[0, 0] for x in randomizer.worst_pair()]
        assert ends == pytest.approx([0.0, randomizer.steps])
        assert all(randomizer.admit(x[None])[1] == 0 for x in randomizer.worst_pair())


@pytest.mark.full
def test_the_sum_is_unbiased_with_the_predicted_noise():
    """Where nothing is clipped."""
    protocol = CarryVectorSum.calibrated(
        n=600, d=130, privacy=Privacy(2.0, 1e-5), noise_ratio=1.2, rotation=9, span=0.42
    )
    randomizer, rng = protocol.randomizer, np.random.default_rng(8)
    assert randomizer.alphabet.labels == 256 * (protocol.levels + 1)
    xs = on_sphere(600, 130, seed=6) * rng.random((600, 1))
    assert (np.abs(rotated(xs, 9)) < 0.42).all()
    check_errors(protocol, xs, 110, rng)


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_runs_at_every_fidelity(fidelity):
    protocol = CarryVectorSum.calibrated(
        n=4000, d=100, privacy=POINT, noise_ratio=1.1, honest_fraction=0.9, rotation=2
    )
    xs = np.full((4000, 100), 0.1)
    result = run(protocol, xs, fidelity=fidelity, adversary=attack("dropout:rate=0.05"), seed=4)
    assert result.privacy.epsilon <= 1.0
    assert result.costs.payload_bits_per_user == 128 * protocol.bits
    error = np.linalg.norm(result.value - 0.1 * result.reports.accepted)
    assert error < protocol.clipping_bias + 1.3 * 10 * protocol.standard_error


@pytest.mark.long
def test_actors_draw_the_same_bits():
    protocol = CarryVectorSum(n=300, d=5, g=2.0, r=4, b=2, delta=1e-2, rotation=2, span=0.9)
    xs = on_sphere(300, 5, seed=7)
    settings = {"seed": 4, "execution": Execution(block_size=64), "fidelity": "literal"}
    here = run(protocol, xs, **settings)
    there = run(protocol, xs, runtime="ray", workers=2, **settings)
    assert np.array_equal(here.value, there.value)


@pytest.mark.slow
def test_the_audit_passes():
    report = audit(
        CarryVectorSum(n=300, d=3, g=2.0, r=4, delta=1e-3, rotation=1, span=0.9),
        repeats=1000,
        seed=2,
    )
    assert report.passed, report.checks


# Planning

TABLE = {
    32: (5, 8, 9, 13, 19, 23),
    128: (4, 5, 8, 11, 17, 21),
    1024: (3, 3, 5, 8, 14, 18),
}


@pytest.mark.parametrize("size", TABLE)
@pytest.mark.full
def test_the_table_of_the_sheet(size):
    """Bits at 3.5 times the root mean square: within a bit, but for two fewer at 32 and 10^4."""
    sizes = (10**3, 10**4, 10**5, 10**6, 10**8, 10**9)
    for n, expected in zip(sizes, TABLE[size], strict=True):
        plan = choose_carries(SumSpec(n, size, POINT, rotation=0), 1.05)
        assert expected - (2 if (size, n) == (32, 10**4) else 1) <= plan.bits <= expected
        assert plan.noise_ratio <= 1.05
        assert plan.epsilon <= 1.0


@pytest.mark.parametrize("max_bits", [3, 5, 8])
def test_a_budget_of_bits_is_kept(max_bits):
    given = {"n": 10_000, "d": 100, "privacy": POINT, "max_bits": max_bits}
    sent = CarryVectorSum.calibrated(**given, rotation=1)
    assert sent.bits <= max_bits
    assert sent.span == pytest.approx(3.5 / math.sqrt(128))
    assert sent.standard_error < CarryVectorSum.calibrated(**given).standard_error


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"span": 0.0}, "span"),
        ({"span": -0.1}, "span"),
        ({"span": 1.001}, "span"),
        ({"span": math.nan}, "span"),
        ({"span": True}, "span"),
        ({"rotation": -1}, "rotation"),
        ({"rotation": 2**63}, "rotation"),
        ({"rotation": True}, "rotation"),
        ({"rotation": 0.5}, "rotation"),
        ({"rotation": 1, "d": 0}, "d"),
        ({"rotation": 1, "d": 2.5}, "d"),
        ({"rotation": 1, "span": 2.0}, "span"),
    ],
)
def test_bad_parameters_are_refused(given, name):
    for make, more in ((CarryVectorSum, {"g": 3.0}), (CarryVectorSum.calibrated, CALIBRATED)):
        with pytest.raises(ParameterError) as refused:
            make(**({"n": 2000, "d": 2} | more | given))
        assert refused.value.parameter == name


CALIBRATED = {"privacy": POINT, "noise_ratio": 1.3}


@pytest.mark.parametrize("given", [{"span": 0.5}, {"rotation": 1}])
def test_scalars_have_neither(given):
    randomizer = CarryScalarSum(n=2000, g=3.0).randomizer
    with pytest.raises(ParameterError, match="vectors"):
        replace(randomizer, **given)


@pytest.mark.parametrize(
    ("given", "name"), [((0, 2, 0.1), "users"), ((2, 0, 0.1), "d"), ((2, 2, 0.0), "probability")]
)
def test_bad_spans_are_refused(given, name):
    with pytest.raises(ParameterError) as refused:
        span_without_clipping(*given)
    assert refused.value.parameter == name
