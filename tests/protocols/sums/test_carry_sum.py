"""Sums with carries: exact laws with planted defects, accuracy, the same on every path, attacks."""

import math
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields

import numpy as np
import pytest
from mutants.running import make
from sum_errors import check_errors

from protocols.sums.carry import CarryRandomizer
from protocols.sums.carry_sum import CarryScalarSum, CarryVectorSum
from shuffle_sim import Execution, ParameterError, Privacy, run
from shuffle_sim.arrays import Scaled
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.attacks.studies import at_fraction
from shuffle_sim.auditing import LawError, check_pmf, check_randomizer, check_same_law
from shuffle_sim.auditing.audit import audit
from shuffle_sim.privacy.bounds import carry, gaussian
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import choose
from shuffle_sim.registry import names
from shuffle_sim.sampling.kernels import KERNELS, using
from shuffle_sim.wire.messages import Messages, Tally

POINT = Privacy(1.0, 1e-6)
BALL = -1.0, 2.0, 1.0
SMALL = [
    CarryRandomizer(2, 3.0, 2, 0, 0, *BALL),
    CarryRandomizer(2, 2.7, 2, 0, 1, *BALL),
    CarryRandomizer(2, 6.3, 3, 1, 2, *BALL),
    CarryRandomizer(1, 9.5, 2, 2, 3, 0.0, 2.0),
    CarryRandomizer(2, 0.6, 1, 0, 0, *BALL),
    CarryRandomizer(1, 0.9, 1, 0, 0, 0.0, 2.0),
]
VECTORS = np.array([[0.1, -0.7], [0.9, 0.2], [-1.0, 0.0]])
NUMBERS = np.array([0.0, 0.71, 2.0])


def values(randomizer):
    return VECTORS if randomizer.norm_bound else NUMBERS


def counted(randomizer, x, draws, rng, kernel):
    """Counts of so many users who all hold x."""
    with using(kernel):
        return randomizer.counts(np.repeat(x[None], draws, axis=0), rng)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("randomizer", SMALL)
@pytest.mark.full
def test_counts_and_tallies_have_the_law_of_randomize(randomizer, kernel):
    with using(kernel):
        check_randomizer(randomizer, values(randomizer), repeats=1500, seed=3)


@pytest.mark.parametrize(
    "randomizer",
    [
        CarryRandomizer(1, 2.7, 2, 1, 16, *BALL),  # more levels than the kernels take
        CarryRandomizer(1, 2.0**15, 2, 0, 14, *BALL),  # larger numbers
        CarryRandomizer(1, 3.3, 3, 2, 2, 50.0, 2.0),  # a range far from 0
    ],
)
def test_what_the_kernels_do_not_take_has_the_same_law(randomizer):
    """Under every label; false-alarm rate 1e-6 each."""
    rng, x = np.random.default_rng(14), randomizer.lower + 0.37 * randomizer.width
    counts = randomizer.counts(np.full((6000, 1), x), rng)
    for label in range(randomizer.alphabet.labels):
        check_pmf(counts[:, label], randomizer.count_pmf(np.array([x]), label))
    sums = randomizer.reports(np.full((50, 1), x), rng).sums()
    number = randomizer.totals(Tally(sums, 50))
    spread = 8 * math.sqrt(50 * (randomizer.r + 1) / 12 + 50 * randomizer.b / 4)
    assert abs(number - 50 * (0.37 * randomizer.g + randomizer.center)) < spread


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("randomizer", [*SMALL, CarryRandomizer(3, 5.5, 2, 0, 16, *BALL)])
def test_samplers_make_the_same_of_the_same_seed(randomizer, kernel):
    """Reports, counts and tally; multiples of rows and their dense vectors; pieces and all."""
    rng, users = np.random.default_rng(15), 700
    xs = rng.uniform(-0.5, 0.5, (users, randomizer.coordinates))
    xs += 0.5 * (randomizer.norm_bound is None)
    factors = rng.choice([1.0, 0.5, 0.25], users)  # exact products
    multiples = Scaled(np.asfortranarray(xs), factors)
    with using(kernel):
        seen = [
            [
                randomizer.tally(each, np.random.default_rng(16)),
                randomizer.counts(each, np.random.default_rng(16)).sum(axis=0),
                randomizer.reports(each, np.random.default_rng(16)).sums(),
            ]
            for each in (multiples, multiples.dense(), np.asfortranarray(multiples.dense()))
        ]
    assert (np.array(seen) == seen[0][0]).all()
    assert (randomizer.tally(xs, np.random.default_rng(16)) != seen[0][0]).any()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("randomizer", SMALL)
def test_nobody_sends_nothing(randomizer, kernel):
    rng, none = np.random.default_rng(17), values(randomizer)[:0]
    with using(kernel):
        assert randomizer.counts(none, rng).shape == (0, randomizer.alphabet.labels)
        assert (randomizer.tally(none, rng) == np.zeros(randomizer.alphabet.labels)).all()
        reports = randomizer.reports(none, rng)
    assert reports.packed.shape == (0, randomizer.report_bytes)


@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_are_the_same_with_any_workers_and_either_kernel(kernel):
    xs = np.random.default_rng(18).uniform(-0.5, 0.5, (3000, 3))
    protocol = CarryVectorSum(n=3000, d=3, g=4.0, levels=1)
    for fidelity in ("aggregate", "counts", "literal"):
        results = [
            run(
                protocol,
                xs,
                fidelity=fidelity,
                execution=Execution(kernel=kernel, block_size=1024),
                seed=4,
                workers=w,
            )
            for w in (1, 2)
        ]
        assert np.array_equal(results[0].value, results[1].value)
        error = (results[0].value - xs.sum(axis=0)) / protocol.standard_error
        assert np.abs(error).max() < 6


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("randomizer", SMALL)
@pytest.mark.full
def test_every_report_has_its_exact_law(randomizer, kernel):
    """By all three samplers and under every label; false-alarm rate 1e-6 each."""
    rng, draws = np.random.default_rng(4), 4000
    for x in values(randomizer):
        rows = np.repeat(np.atleast_2d(x), draws, axis=0)
        literal = np.array([randomizer.randomize(x, rng).sums() for _ in range(draws)])
        with using(kernel):
            reports, counts = randomizer.reports(rows, rng), randomizer.counts(rows, rng)
        sums = [Messages(reports.alphabet, 1, row[None]).sums() for row in reports.packed]
        for seen in (literal, np.array(sums), counts):
            for label in range(randomizer.alphabet.labels):
                check_pmf(seen[:, label], randomizer.count_pmf(x, label))


@pytest.mark.full
def test_the_digits_of_a_user_have_their_joint_law():
    """Digits and rest of one user at L = 2, all outcomes together, by both samplers."""
    randomizer, rng, draws = (
        CarryRandomizer(1, 5.4, 2, 0, 2, 0.0, 1.0),
        np.random.default_rng(5),
        20_000,
    )
    weights = np.array([100, 10, 1])
    for x in (0.0, 0.37):
        exact: dict[int, float] = {}
        w = 5.4 * x
        for j, mass in enumerate(carry.law(w, 2, 0)):
            for coins in range(4):
                number, key = math.floor(w) + j, 0
                for level in range(2):
                    half = (number + (coins >> level & 1)) // 2
                    key = 10 * key + number - 2 * half + 1
                    number = half
                exact[10 * key + number] = exact.get(10 * key + number, 0.0) + mass / 4
        pmf = np.zeros(1000)
        pmf[list(exact)] = list(exact.values())
        row = np.array([[x]])
        for kernel in KERNELS:
            check_pmf(counted(randomizer, row[0], draws, rng, kernel) @ weights, pmf)
        check_pmf([randomizer.randomize(row[0], rng).sums() @ weights for _ in range(draws)], pmf)


@pytest.mark.full
def test_coordinates_are_rounded_and_carried_independently():
    """By both samplers; coins used for both are caught. False-alarm rate 1e-6 each."""
    randomizer, x = SMALL[1], np.array([0.3, 0.3])
    rng = np.random.default_rng(11)
    seen = {
        **{kernel: counted(randomizer, x, 8000, rng, kernel) for kernel in KERNELS},
        "literal": np.array([randomizer.randomize(x, rng).sums() for _ in range(8000)]),
    }
    for counts in seen.values():
        for first, second in ((0, 2), (1, 3), (0, 3), (1, 2)):
            laws = randomizer.count_pmf(x, first), randomizer.count_pmf(x, second)
            joint = np.outer(*laws).ravel()
            check_pmf(counts[:, first] * len(laws[1]) + counts[:, second], joint)
            shared = counts[:, [0, 1, 0, 1]]
            with pytest.raises(LawError):
                check_pmf(shared[:, first] * len(laws[1]) + shared[:, second], joint)


@pytest.mark.parametrize("randomizer", SMALL)
def test_the_analyzer_gets_the_total_exactly(randomizer):
    rng, users = np.random.default_rng(6), 500
    xs = np.resize(values(randomizer), (users, randomizer.coordinates))
    seeds = rng.integers(2**32)
    numbers = replace(randomizer, levels=0).counts(xs, np.random.default_rng(seeds)).sum(axis=0)
    tally = Tally(randomizer.tally(xs, np.random.default_rng(seeds)), users)
    assert (randomizer.totals(tally) == numbers).all()
    reports = randomizer.reports(xs, np.random.default_rng(seeds))
    assert (randomizer.totals(Tally(reports.sums(), users)) == numbers).all()


def test_parameters_of_a_report():
    randomizer = CarryRandomizer(10, 11.397, 2, 0, 1, *BALL)
    assert (randomizer.largest, randomizer.top, randomizer.bits) == (13, 7, 9)
    assert randomizer.report_bits == randomizer.report_messages == 90
    assert randomizer.alphabet.labels == 20
    assert randomizer.largest_sums.tolist() == [2, 7] * 10
    with pytest.raises(ParameterError):
        replace(randomizer, r=0)


# The sums


@pytest.fixture(scope="module")
def vector():
    return CarryVectorSum.calibrated(n=10_000, d=10, privacy=POINT, noise_ratio=1.05)


def test_the_point_of_the_sheet(vector):
    assert (vector.r, vector.b, vector.levels, vector.bits) == (2, 0, 1, 9)
    ratio = vector.standard_error / gaussian.sigma(1.0, 1e-6, 2.0)
    assert 1.03 < ratio <= 1.05
    result = run(vector, np.zeros((10_000, 10)), fidelity="aggregate", seed=1)
    assert 0.99 < result.privacy.epsilon <= 1.0
    assert result.costs.payload_bits_per_user == result.costs.messages_per_user == 90
    assert result.costs.label_bits_per_user == 90 * 5


@pytest.mark.full
def test_the_noise_is_that_predicted():
    """At all coordinates, of data anywhere."""
    protocol = CarryVectorSum.calibrated(n=600, d=200, privacy=Privacy(2.0, 1e-5), noise_ratio=1.2)
    rng = np.random.default_rng(7)
    xs = rng.normal(size=(600, 200))
    xs /= np.linalg.norm(xs, axis=1, keepdims=True) / rng.random((600, 1))
    check_errors(protocol, xs, 250, rng)


@pytest.mark.slow
def test_fidelities_have_one_law():
    """Of the total; power: noise twice as large is caught."""
    protocol = CarryScalarSum(n=300, g=3.3, r=5, b=4, delta=1e-3)
    xs = np.linspace(0, 1, 300)
    totals = {
        fidelity: np.rint(
            [3.3 * run(protocol, xs, fidelity=fidelity, seed=seed).value for seed in range(300)]
        ).astype(int)
        for fidelity in ("literal", "counts", "aggregate")
    }
    check_same_law(totals["literal"], totals["counts"])
    check_same_law(totals["literal"], totals["aggregate"])
    with pytest.raises(LawError):
        check_same_law(totals["literal"], 2 * totals["aggregate"] - round(3.3 * xs.sum()))


@dataclass(frozen=True)
class _Biased(CarryRandomizer):
    """Carries that are too rare."""

    def counts(self, xs, rng):
        counts = super().counts(xs, rng).copy()
        unlucky = (rng.random(len(counts)) < 0.4) & (counts[:, 0] == 0)
        counts[unlucky, 0], counts[unlucky, 1] = 2, counts[unlucky, 1] - 1
        return counts


@dataclass(frozen=True)
class _OneUniform(CarryRandomizer):
    """Stochastic rounding without noise."""

    def counts(self, xs, rng):
        rounded = np.floor(self._scaled(xs) + rng.random((len(xs), self.coordinates))).astype(int)
        counts = super().counts(xs, rng)
        if self.levels == 0:
            return rounded.reshape(counts.shape)
        return counts


@pytest.mark.parametrize(
    "defect", [_Biased(1, 5.4, 2, 0, 1, 0.0, 2.0), _OneUniform(1, 5.4, 2, 0, 0, 0.0, 2.0)]
)
def test_planted_defects_are_caught(defect):
    with pytest.raises(LawError):
        check_randomizer(defect, NUMBERS, repeats=2000, seed=3)


@pytest.mark.parametrize(
    "protocol",
    [
        CarryScalarSum(n=600, g=3.0, r=3, delta=1e-6),
        CarryVectorSum(n=2500, d=2, g=4.0, levels=1, delta=1e-5),
    ],
)
@pytest.mark.slow
def test_the_audit_passes_and_catches_too_little_noise(protocol):
    report = audit(protocol, repeats=1000, seed=2)
    assert report.passed, report.checks
    assert report.theorem >= report.exact >= report.empirical >= 0
    assert report.exact > 0.75 * report.theorem
    if protocol.levels == 0:
        fields = (getattr(protocol.randomizer, each.name) for each in dataclass_fields(_OneUniform))
        protocol.randomizer = _OneUniform(*fields)
        with pytest.raises(LawError):
            make("counts_law", protocol, {}, {})


@pytest.mark.parametrize("security", ["none", "transport", "onion"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.full
def test_literal_runs_count_and_seal_every_message(security, shards):
    protocol = CarryVectorSum(n=60, d=2, g=2.5, r=4, b=24, levels=0, delta=1e-2)
    protocol.randomizer = replace(protocol.randomizer, levels=2)  # few users: law, not privacy
    rng = np.random.default_rng(8)
    xs = rng.normal(size=(60, 2)) / 4
    result = run(
        protocol,
        xs,
        fidelity="literal",
        seed=3,
        security=security,
        shuffler_shards=shards,
        execution=Execution(block_size=16),
    )
    assert result.reports.accepted == 60
    assert result.costs.measured
    assert result.costs.payload_bits_per_user == 2 * protocol.bits
    deviation = (result.value - xs.sum(axis=0)) / protocol.standard_error
    assert np.abs(deviation).max() < 6
    plain = run(protocol, xs, fidelity="literal", seed=3, execution=Execution(block_size=16))
    assert np.array_equal(plain.value, result.value)


# Attacks


@pytest.mark.parametrize("name", sorted(set(names("attack")) - {"no-noise"}))
@pytest.mark.full
def test_a_malicious_user_moves_a_coordinate_by_the_width(name):
    """Nearly half of the users attack: no report is worth more than the ends of the width."""
    protocol = CarryVectorSum(n=100, d=2, g=3.0, r=4, b=12, delta=1e-2)
    protocol.randomizer = replace(protocol.randomizer, levels=2)
    columns = np.diff(protocol.randomizer.alphabet.edges)
    high, low = (protocol.randomizer.estimate(Tally(ones, 1)) for ones in (columns, 0 * columns))
    xs = np.tile([0.6, -0.8], (100, 1))
    result = run(protocol, xs, adversary=at_fraction(name, 0.45), fidelity="literal", seed=5)
    accepted = result.reports.accepted
    assert 0 < accepted <= 100
    assert (result.value <= accepted * high + 1e-9).all()
    assert (result.value >= accepted * low - 1e-9).all()
    if name in ("ones", "zeros"):  # power: the end is reached but for the honest users
        honest = accepted - result.reports.corrupted
        end, other = (high, low) if name == "ones" else (low, high)
        assert (abs(result.value - accepted * end) <= honest * abs(end - other)).all()


def test_noise_that_is_not_separable_cannot_be_left_out():
    protocol = CarryVectorSum(n=900, d=2, g=3.0, r=4, delta=1e-2)
    with pytest.raises(ParameterError, match="no-noise"):
        run(protocol, np.zeros((900, 2)), adversary=attack("no-noise:fraction=0.1"), seed=1)


def test_all_ones_and_all_zeros_are_the_ends_of_the_width():
    for randomizer in SMALL:
        columns = np.diff(randomizer.alphabet.edges)
        ends = [randomizer.estimate(Tally(ones, 1)) for ones in (columns, 0 * columns)]
        width = (2**randomizer.levels * (randomizer.top + 2) - 2) * randomizer.width / randomizer.g
        assert ends[0] - ends[1] == pytest.approx(np.full(randomizer.coordinates, width))
        far = max(np.linalg.norm(end) for end in ends)
        assert randomizer.manipulation(1, 10) == pytest.approx(far)
        assert randomizer.manipulation(7, 10) == pytest.approx(7 * far)


@pytest.mark.full
def test_dropouts_are_charged_and_the_sum_stays_unbiased():
    protocol = CarryVectorSum.calibrated(
        n=4000, d=3, privacy=POINT, noise_ratio=1.4, honest_fraction=0.7
    )
    xs = np.full((4000, 3), 0.5)
    result = run(protocol, xs, adversary=attack("dropout:rate=0.2"), fidelity="aggregate", seed=9)
    accepted = result.reports.accepted
    assert 3000 < accepted < 3400
    assert result.privacy.epsilon <= 1.0
    expected = 0.5 * accepted
    assert np.abs(result.value - expected).max() < 6 * protocol.standard_error
    colluding = run(
        protocol, xs, adversary=attack("collude:fraction=0.25"), fidelity="aggregate", seed=9
    )
    assert colluding.privacy.epsilon <= 1.0
    trusting = CarryVectorSum(
        n=4000, d=3, g=protocol.g, r=protocol.r, b=protocol.b, levels=protocol.levels
    )
    fewer = run(trusting, xs, adversary=attack("dropout:rate=0.5"), fidelity="aggregate", seed=9)
    assert fewer.privacy.epsilon > 1.05


# Bad input


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"r": 1}, "g span"),
        ({"r": 0}, "r"),
        ({"r": 6}, "r"),
        ({"r": 2.5}, "r"),
        ({"g": math.inf}, "g"),
        ({"g": math.nan}, "g"),
        ({"g": 0.0}, "g"),
        ({"g": -1.0}, "g"),
        ({"b": -1}, "b"),
        ({"levels": -1}, "levels"),
        ({"levels": 5}, "levels"),
        ({"n": 0}, "n"),
        ({"n": 40}, "n"),
        ({"d": 0}, "d"),
        ({"norm_bound": 0.0}, "norm_bound"),
        ({"delta": 0.0}, "delta"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
    ],
)
def test_bad_parameters_are_refused(given, name):
    with pytest.raises(ParameterError) as refused:
        CarryVectorSum(**({"n": 2000, "d": 2, "g": 3.0} | given))
    assert refused.value.parameter == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "noise_ratio, max_bits"),
        ({"max_bits": 0}, "max_bits"),
        ({"max_bits": 1, "n": 100}, "max_bits"),
        ({"noise_ratio": 1.0}, "noise_ratio"),
        ({"noise_ratio": 1.1, "honest_fraction": 0.5}, "noise_ratio"),
        ({"noise_ratio": 1.1, "upper": math.nan}, "upper"),
    ],
)
@pytest.mark.full
def test_bad_calibrations_are_refused(given, name):
    with pytest.raises(ParameterError) as refused:
        CarryScalarSum.calibrated(**({"n": 2000, "privacy": POINT} | given))
    assert refused.value.parameter == name


@pytest.mark.parametrize("data", [np.zeros(2000), np.zeros((2000, 4)), np.full((2000, 2), np.nan)])
def test_bad_data_are_refused(data):
    with pytest.raises(ParameterError, match="data"):
        run(CarryVectorSum(n=2000, d=2, g=3.0, levels=1), data, seed=1)


def test_training_on_the_digits_takes_a_fiftieth_of_the_bits():
    """docs/train.md's table: 1,438 people, 65 coordinates, 50 rounds; noise 1.2 times central."""
    spec = SumSpec(1438, 65, Privacy(1.0, 1e-5), rounds=50)
    name, plan = choose(spec, 1.2, None, None)
    chosen, unary = (50 * 65 * each.bits for each in (plan, choose(spec, 1.2, None, "unary")[1]))
    assert (name, chosen, unary) == ("carry-vector-sum", 6500, 594_750)
    assert plan.noise_ratio <= 1.2
