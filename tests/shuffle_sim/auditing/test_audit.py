"""The audit passes on what is shipped and catches every planted defect."""

import math
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from mutants.clean import CLEAN
from mutants.randomizers import Lawless, ThenLess
from scipy import stats

from protocols import (
    Histogram,
    L2Ball,
    Logistic,
    Problem,
    RealSpace,
    ScalarSum,
    ShuffleGD,
    SingleMessageSum,
    SplitAndMixSum,
    VectorSum,
)
from protocols.comparison.named import named_protocol, usual_size
from protocols.counts.single import Response
from protocols.shuffle import OneShotAverage
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim import Guarantee, ParameterError, Privacy
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.audit import _bench, audit, others
from shuffle_sim.auditing.claims.empirical import exact_odds, gaussian_estimate
from shuffle_sim.auditing.claims.plan import Check, UncheckedError, checked, plan_of
from shuffle_sim.auditing.claims.stated import ORDERED
from shuffle_sim.auditing.laws.scores import ranked
from shuffle_sim.auditing.laws.sequences import check_places
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.auditing.shuffle.canaries import canaries, whole_runs
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.auditing.shuffle.watching import bits_of_chance, chance_of
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds.gaussian import epsilon_gdp
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.protocol.base import Datum
from shuffle_sim.registry import loaded
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.wire.messages import Messages

PRIVACY = Privacy(1.0, 1e-6)


def scalar() -> ScalarSum:
    return ScalarSum.calibrated(n=1000, privacy=PRIVACY, noise_ratio=1.1)


def vector() -> VectorSum:
    return VectorSum.calibrated(n=1000, d=3, privacy=PRIVACY, noise_ratio=1.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(scalar(), marks=pytest.mark.slow),
        pytest.param(vector(), marks=pytest.mark.slow),
        VectorSum(n=50, d=2, g=3, b=9, p=0.2),
        pytest.param(ScalarSum(n=9, g=4, b=20), marks=pytest.mark.slow),
    ],
)
def test_what_is_shipped_passes(protocol):
    report = audit(protocol, repeats=1000, seed=1)
    assert report.passed, report.checks
    assert report.theorem * (1 + 1e-9) >= report.exact >= report.empirical >= 0


@pytest.mark.slow
def test_the_empirical_bound_is_not_vacuous():
    report = audit(ScalarSum(n=200, g=20, b=5), repeats=4_000, seed=2)
    assert report.passed
    assert report.empirical > 0.5 * report.exact


@pytest.mark.full
@pytest.mark.parametrize(("scale", "least"), [(1.0, 0.5), (0.5, 1.1)])
def test_a_vector_sum_shows_half_of_epsilon_and_less_noise_more(scale, least):
    """Power: with a quarter of the noise's variance the bound is broken."""
    protocol = VectorSum.calibrated(n=1000, d=3, privacy=PRIVACY, noise_ratio=1.1)
    proven = ShuffleAccountant().compose(protocol.randomizer.event(1000, Datum())).get_epsilon(1e-6)
    if scale < 1:
        defective(protocol, Quarter)
    assert canaries(protocol, seed=3).epsilon() > least * proven


@pytest.mark.full
def test_a_training_run_of_twenty_rounds_shows_half_of_epsilon():
    problem = Problem(Logistic(), L2Ball(3, 4.0))
    protocol = ShuffleGD.calibrated(
        n=500, problem=problem, privacy=PRIVACY, rounds=20, noise_ratio=1.1, encoding="unary"
    )
    assert canaries(protocol, runs=100, seed=4).epsilon() > 0.5 * PRIVACY.epsilon


@pytest.mark.full
def test_few_runs_of_many_rounds_show_half_too():
    """Twenty runs, as an audit makes of long ones. Of whole runs alone they show a third."""
    problem = Problem(Logistic(), L2Ball(1, 4.0))
    protocol = ShuffleGD.calibrated(
        n=100, problem=problem, privacy=PRIVACY, rounds=120, noise_ratio=1.1, encoding="unary"
    )
    assert canaries(protocol, runs=20, seed=4).epsilon() > 0.5 * PRIVACY.epsilon


@pytest.mark.parametrize(("parts", "scale"), [(1, 1.0), (16, 1.0), (16, 0.7), (256, 1.0)])
@pytest.mark.full
def test_a_gaussian_estimate_is_a_bound_as_often_as_it_says(parts, scale):
    """At confidence 0.9, so that failures can be counted. Power: noise that is 30 % short."""
    rng, mu, above = np.random.default_rng(1), 0.8, 0
    for _ in range(400):
        noise = scale * rng.normal(size=(20, parts)) * np.geomspace(1, 3, parts)
        width = np.linalg.norm(np.geomspace(1, 3, parts))
        low = noise - mu * width / 2 / parts
        found = gaussian_estimate(low, low + mu * width / parts, 1e-4, doubt=0.1)
        above += found > epsilon_gdp(1e-4, mu)
    assert (above > 200) if scale < 1 else (above < 70)  # 40 on average at most: 1e-6


@pytest.mark.parametrize("far", [1.0, 1.3])
@pytest.mark.parametrize("delta", [0.001, 0.05])
def test_exact_odds_give_a_bound_as_often_as_they_say(delta, far):
    """At confidence 0.9: above the truth 20 times at most, of 200. Power: ends 30 % farther."""
    rng, mu, above = np.random.default_rng(1), 0.8, 0
    for _ in range(200):
        low = far * mu * (rng.normal(size=1000) - far * mu / 2)
        found = exact_odds(low, low + (far * mu) ** 2, delta, doubt=0.1)
        above += found > epsilon_gdp(delta, mu)
    assert (above > 60) if far > 1 else (above < 45)  # 1e-6


def test_exact_odds_beside_noise_that_is_missing_show_no_finite_epsilon():
    odds = np.linspace(-1, 1, 400)
    assert exact_odds(odds, odds, 1e-6, mu=math.inf) == math.inf
    assert exact_odds(odds, odds, 0.0, mu=0.5) == math.inf
    assert exact_odds(odds, odds, 0.0) == 1.0
    assert 1.0 < exact_odds(odds, odds, 1e-6, mu=0.5) < 1.0 + epsilon_gdp(1e-6, 0.5)


@pytest.mark.full
def test_a_single_message_is_seen_by_its_symbol():
    protocol = SingleMessageSum.calibrated(n=1000, privacy=PRIVACY)
    assert 0.5 < canaries(protocol, seed=5).epsilon() <= 1


@pytest.mark.full
def test_sums_that_meet_modulo_a_number_pass():
    """With 200 users the noise of a sum of 48 is wider than the modulus."""
    protocol = SplitAndMixSum.calibrated(n=200, privacy=PRIVACY)
    spec = protocol.plan(protocol.init())
    assert spec is not None
    bench = Checks(protocol, spec, 1, 1000, 3e-8, UserShard, Shuffler)
    bench.tallies()
    bench.whole()


def defective(protocol, kind):
    """The protocol with another implementation of its randomizer, which still claims the same
    law.
    """
    honest = protocol.randomizer
    protocol.randomizer = kind(*(getattr(honest, name) for name in honest.__dataclass_fields__))
    protocol.__class__ = type(
        "Defective", (type(protocol),), {"vocabulary": property(lambda _: (Datum, kind))}
    )
    return protocol


class LessNoise(BinomialRandomizer):
    """Draws its noise from (bits, chance) in place of (b, p)."""

    def noise(self):
        return self.b, self.p

    def randomize(self, x, rng):
        return Messages.from_ones(self.counts(np.atleast_1d(x)[None], rng), self.per_label)

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        return rounded + rng.binomial(*self.noise(), rounded.shape)

    def tally(self, xs, rng):
        return self.counts(xs, rng).sum(axis=0)


class Quarter(LessNoise):
    def noise(self):
        return self.b // 4, self.p


@pytest.mark.parametrize(("claim", "failed"), [(0.1, [ORDERED.name]), (None, [])])
@pytest.mark.full
def test_an_epsilon_out_of_order_is_caught(claim, failed, monkeypatch):
    """A claim of a tenth of the exact epsilon; other checks do not look at it, and are left out."""
    monkeypatch.setattr("shuffle_sim.auditing.audit.steps_of", lambda *_, **__: [])
    monkeypatch.setattr(Asked, "steps", lambda _: [])
    protocol = scalar()
    if claim is not None:
        protocol._claim = Guarantee(claim, 1e-6, basis="a wrong theorem")
    report = audit(protocol, repeats=1000, seed=3)
    assert [check.name for check in report.checks if check.passed is False] == failed
    assert report.passed is not bool(failed)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.full
def test_every_protocol_that_is_registered_can_be_looked_at(d):
    made = 0
    for name in loaded("protocol"):
        with suppress(ParameterError):  # of scalars, or of more categories
            protocol = named_protocol(name, 60, d, Privacy(2.0, 1e-6))
            spec = protocol.plan(protocol.init())
            bench = _bench(protocol, spec, (1, 1000, 1e-8, UserShard, Shuffler))
            made += len(list(plan_of(bench))) > 5
    assert made > 10


@pytest.mark.parametrize("repeats", [0, 999, 1.5])
def test_too_few_repeats_are_refused(repeats):
    with pytest.raises(ParameterError, match="repeats"):
        audit(scalar(), repeats=repeats)


@pytest.mark.full
def test_canaries_move_what_a_query_lets_neighbours_move():
    """Noise for one record of a person: its canaries move no farther, and nothing is refuted."""
    protocol = OneShotAverage.calibrated(
        n=60,
        records=20,
        problem=Problem(Logistic(), RealSpace(2), 0.1),
        privacy=Privacy(1.0, 1e-5),
        protects="record",
    )
    seen = canaries(protocol, seed=1)
    assert 0.6 < seen.epsilon() <= 1.0


@pytest.mark.full
def test_where_no_law_is_known_whole_runs_bound_epsilon():
    class Foreign(ScalarSum):
        def plan(self, state):
            planned = super().plan(state)
            return planned and replace(planned, randomizer=Lawless())

        vocabulary = property(lambda _: (Datum, Lawless))

    protocol = Foreign(n=12, g=5, b=9)
    spec = protocol.plan(protocol.init())
    bench = Checks(protocol, spec, 1, 1000, 1e-8, UserShard, Shuffler)
    missing = {kind.method for kind, planned in plan_of(bench) if planned.missing}
    assert {"counts_law", "streams", "search"} <= missing
    assert not missing & {"keys", "order"}
    exact = math.log(stats.binom.pmf(5, 5, 0.7) / stats.binom.pmf(5, 5, 0.3))
    found = whole_runs(protocol, np.full(12, 0.5), seed=1).epsilon()
    assert 0.0 < found < exact  # eleven others hide the one: it is far below that of a report


@pytest.mark.slow
def test_a_randomizer_that_only_later_rounds_have_is_looked_at():
    report = audit(ThenLess(n=60, d=2, g=4, b=12), repeats=1000, seed=5)
    failed = [check.name for check in report.checks if check.passed is False]
    assert failed
    assert all(name.startswith("round 2: ") for name in failed)


def test_an_audit_says_which_randomizers_it_left_out():
    class Many(ThenLess):
        def plan(self, state):
            if state[0] == 13:
                return None
            spec = VectorSum.plan(self, VectorSum.init(self))
            one: Any = spec.randomizer
            return replace(spec, randomizer=replace(one, p=(1 + state[0]) / 30))

    protocol = Many(n=60, d=2, g=4, b=12)
    rounds, left = others(protocol, protocol.plan(protocol.init()))
    assert ([index for index, _ in rounds], left) == ([2, 3, 4, 5, 6, 7, 8, 13], 4)


@pytest.mark.full
@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_the_run_that_is_asked_for_passes(runtime):
    protocol = VectorSum(n=60, d=2, g=4, b=12)
    for how in ({"workers": 2}, {"security": "transport"}, {"shuffler_shards": 2}):
        asked = Asked(protocol, None, {"runtime": runtime, **how}, 7)
        assert [step.make for step in asked.steps()].count(None) == 0
        for step in asked.steps():
            step.make()


@pytest.mark.slow
def test_four_hundred_clean_audits_raise_no_alarm():
    """False alarms of at most 1e-6 each: 400 without one."""
    names = list(CLEAN)
    for seed in range(400):
        make, options = CLEAN[names[seed % len(names)]]
        report = audit(make(), repeats=1000, seed=seed, **options)
        assert report.passed, (seed, [each for each in report.checks if each.passed is False])


def test_frames_of_little_chance_that_agree_are_no_alarm():
    """Reports of categories are mostly the truth: of 48 frames of four users 28 agreed once."""
    randomizer = Histogram.calibrated(
        n=60, categories=4, privacy=Privacy(3.0, 1e-4), method="response"
    ).randomizer
    bits = bits_of_chance(randomizer, np.zeros(1), 0)
    assert isinstance(randomizer, Response)
    assert bits == pytest.approx(math.log2(1 + 3 * math.exp(-randomizer.epsilon0)))
    assert chance_of(28, [4 * bits] * 48) > 0.1  # by the mean of all laws it was 2^-34
    assert chance_of(48, [4 * bits] * 48) < 2.0**-30  # power: all agree


def test_the_chance_that_frames_agree_is_that_of_all_outcomes():
    bits = [0.5, 0.5, 1.0, 3.0]
    for same in range(5):
        every = 0.0
        for hits in product((False, True), repeat=4):
            laws = (2**-each if hit else 1 - 2**-each for hit, each in zip(hits, bits, strict=True))
            every += math.prod(laws) * (sum(hits) >= same)
        assert chance_of(same, bits) == pytest.approx(every)


def test_places_of_a_block_are_looked_at():
    """Draws of one law pass; one in 64 that is always the middle is seen by its squares."""
    pmf = np.full(5, 0.2)
    draws = np.random.default_rng(0).integers(0, 5, (4, 40_000))
    ranks, variance = ranked(pmf)

    def check(values):
        check_places([(ranks[values], np.full(values.shape[1], variance))], 1e-9, "draws")

    check(draws)
    draws[:, 63::64] = 2
    with pytest.raises(LawError, match="places"):
        check(draws)


def asked_under_dropout(name, rate, **given):
    made = named_protocol(name, 60, 1, Privacy(3.0, 1e-3), **given)
    return Asked(made, None, {"adversary": Dropout(rate)}, 3)


def test_an_audit_that_is_stopped_says_what_it_checked():
    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        checked("all is well", stopped)
    assert caught.value.__notes__ == ["as it was checked that all is well"]


def test_a_machine_that_is_too_small_refutes_nothing():
    def large():
        raise MemoryError("8 GiB")

    found = checked("all is well", large)
    assert found == Check("all is well", None, "it does not fit into memory: 8 GiB")


def test_a_run_that_an_adversary_ends_is_not_checked():
    """It is no defect: fewer reports than agreed are not released."""
    with pytest.raises(UncheckedError, match="the adversary ends the run"):
        asked_under_dropout("laplace-scalar-sum", 0.3).unseeded()


def test_corrupted_users_may_be_asked_again_when_a_run_goes_on():
    asked_under_dropout("single-message", 0.3, honest_fraction=0.4).resumed()


@pytest.mark.parametrize("name", ["group-means", "quantiles", "histogram", "heavy-hitters"])
def test_counts_are_audited_with_several_cells_by_default(name):
    made = named_protocol(name, 2000, usual_size(name), Privacy(1.0, 1e-6))
    first, second = made.plan(made.init()).randomizer.worst_pair()
    assert not np.array_equal(first, second)
