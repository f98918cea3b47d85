"""Person-level optimisation in the shuffle model: sensitivity, exact views, law, bounds, refusals.

Data of neighbours differ in all records of one person, chosen to do harm. Every privacy test has a
control: a defect of 10 % or less that it must catch.
"""

import dataclasses
import math
from functools import reduce

import numpy as np
import pytest

from protocols import (
    AcceleratedPhasedERM,
    CarryVectorSum,
    DeletionStability,
    Hinge,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    PhasedERM,
    PhasedSCO,
    Problem,
    RealSpace,
    ShuffleGD,
    UserLevelACSA,
    UserLevelGD,
    UserLevelOneShot,
    VectorSum,
)
from protocols.central.person.friendly import FriendlyMean
from protocols.learning import Baseline
from protocols.optimisation import Phased
from protocols.optimisation.centring import Centring, Spread
from protocols.problems import MeanEstimation
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Gradient
from protocols.shuffle.noisy_mean import NoisyMean
from shuffle_sim import Execution, ParameterError, Privacy, run
from shuffle_sim.arrays import dense
from shuffle_sim.attacks.inputs import LabelFlip
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds.gaussian import delta_gdp, mu_of
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling import kernels
from shuffle_sim.wire.messages import Tally

D = 3
PRIVACY = Privacy(1.0, 1e-6)
PROBLEM = Problem(MeanEstimation(), L2Ball(D, 1.0), records=20)


def mean_of(n, d, norm_bound, g, b):
    """A private mean of few bits, whose noise protects little."""
    return NoisyMean(VectorSum(n=n, d=d, g=g, b=b, norm_bound=norm_bound))


def points(n=200, m=20, d=D, spread=0.3, seed=0):
    """Persons with records around one mean, in the unit ball."""
    rng = np.random.default_rng(seed)
    rows = np.full(d, 0.3) + spread * rng.normal(size=(n, m, d)) / math.sqrt(d)
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=2, keepdims=True))


def small(kind=UserLevelGD, n=200, problem=PROBLEM, **given):
    """A run of few rounds whose center is carried, whatever the bounds say."""
    mean = mean_of(n, problem.d, problem.lipschitz, 4, 3)
    centring = Centring(
        limit=problem.lipschitz, spread=0.4, contraction=0.3, drift=1.0, coarse=2, recentring=0
    )
    common = {"n": n, "problem": problem, "privacy": PRIVACY, "mean": mean}
    common |= {"centring": centring, "rounds": 6}
    if kind is UserLevelGD:
        common["eta"] = 0.5
    return kind(**common | given)


def rounds_of(protocol, persons, between=None):
    """The specs of a run without noise, each with the values that persons send."""
    state = protocol.init()
    while (spec := protocol.plan(state)) is not None:
        low, high = spec.cohort.ranges[0]
        values, _, _ = admitted(spec.query(np.asarray(persons[low:high], float)), spec.randomizer)
        values = dense(values)
        yield spec, state, values
        estimate = values.mean(axis=0) if between is None else between(spec, values)
        state = protocol.update(state, estimate)


ADVERSARIAL = {
    "huge": lambda rows: np.full_like(rows, 1e9),
    "minus huge": lambda rows: np.full_like(rows, -1e9),
    "not a number": lambda rows: np.full_like(rows, np.nan),
    "infinite": lambda rows: np.full_like(rows, np.inf),
    "duplicates": lambda rows: np.repeat(rows[:1], len(rows), axis=0) * -3,
    "mixed": lambda rows: np.where(np.arange(len(rows))[:, None] % 2, 1e9, np.nan),
}


def largest_move(protocol, persons, kinds=ADVERSARIAL, stretch=1.0):
    """Over all rounds: the largest distance of sums of neighbours, in units of the event's own."""
    worst = 0.0
    for spec, _, values in rounds_of(protocol, persons):
        bound = spec.randomizer.norm_bound
        ends = [values[0], -values[0]]
        for change in kinds.values():
            other = np.asarray(persons[:1], float).copy()
            other[0] = change(other[0])
            query = spec.query
            sent, _, _ = admitted(query(other), spec.randomizer)
            ends.append(dense(sent)[0])
        ends = [end * stretch for end in ends]
        assert all(np.isfinite(end).all() for end in ends)
        gaps = [np.linalg.norm(a - b) for a in ends for b in ends]
        worst = max(worst, max(gaps) / (2 * bound))
    return worst


@pytest.mark.parametrize("kind", [UserLevelGD, "carry"])
def test_a_replaced_person_moves_each_sum_by_at_most_two_radii(kind):
    persons = points()
    if kind == "carry":
        sums = CarryVectorSum(n=200, d=D, g=4.0, b=4, norm_bound=PROBLEM.lipschitz)
        protocol = small(mean=NoisyMean(sums))
    else:
        protocol = small(kind)
    worst = largest_move(protocol, persons)
    assert 0.5 < worst <= 1 + 1e-12
    assert largest_move(protocol, persons, stretch=1.1 / worst) > 1  # control: 10 % too long


def exact_law(randomizer, values):
    """The exact law of the tallies, an axis for each coordinate: they are rounded independently."""
    laws = []
    for label in range(values.shape[1]):
        law = np.ones(1)
        for value in values:
            law = np.convolve(law, randomizer.count_pmf(value, label))
        laws.append(law)
    return reduce(np.multiply.outer, laws)


def exact_delta(protocol, data, other, epsilon, rare=1e-14):
    """The exact delta of the views of all rounds at epsilon, in both directions.

    Views rarer than `rare` are left out, so it is at most that much per view too small.
    """

    def walk(state, p, q):
        spec = protocol.plan(state)
        laws = []
        for rows in (data, other):
            values, _, _ = admitted(spec.query(rows[:, :, None]), spec.randomizer)
            laws.append(exact_law(spec.randomizer, dense(values)))
        here, there = p * laws[0], q * laws[1]
        if state.round + 1 == protocol.rounds:
            losses = here - math.exp(epsilon) * there, there - math.exp(epsilon) * here
            return np.array([np.maximum(0.0, each).sum() for each in losses])
        found = np.zeros(2)
        for ones in zip(*np.nonzero(np.maximum(here, there) > rare), strict=True):
            tally = Tally(np.array(ones), len(data))
            found += walk(protocol.update(state, spec.analyze(tally)), here[ones], there[ones])
        return found

    return float(walk(protocol.init(), 1.0, 1.0).max())


@pytest.mark.full
def test_exact_views_of_two_rounds_cost_what_is_accounted():
    """Persons answer twice; the second center and radius follow from the first view."""
    problem = Problem(MeanEstimation(), L2Ball(1, 1.0), records=2)
    mean = mean_of(3, 1, 2.0, 2, 8)
    centring = Centring(limit=2.0, spread=0.5, contraction=0.2, drift=1.0)
    protocol = small(n=3, problem=problem, mean=mean, centring=centring, rounds=2, eta=0.5)
    event = protocol.plan(protocol.init()).event
    accountant = ShuffleAccountant().compose(event, 2)
    worst, control = 0.0, 0.0
    for others in ([0.9, 0.9], [-0.9, 0.9], [0.0, 0.0]):
        for ends in ((1e9, -1e9), (3.0, -3.0), (np.nan, 1e9)):
            data, other = (np.array([[end] * 2, [others[0]] * 2, [others[1]] * 2]) for end in ends)
            for epsilon in (0.5, 1.5):
                accounted = accountant.get_delta(epsilon)
                worst = max(worst, exact_delta(protocol, data, other, epsilon) / accounted)
                loud = exact_delta(small(n=3, problem=problem, mean=mean_of(3, 1, 2.0, 2, 2),
                    centring=centring, rounds=2, eta=0.5), data, other, epsilon)  # fmt: skip
                control = max(control, loud / accounted)
    assert 0.05 < worst <= 1
    assert control > 1  # less noise than the event states is seen


def test_without_a_center_it_is_descent_on_persons_means():
    """m equal records and tau >= L: every round is ShuffleGD's, in law."""
    rows = points(m=1)[:, 0]
    persons = np.repeat(rows[:, None], 20, axis=1)
    mean = mean_of(200, D, PROBLEM.lipschitz, 4, 3)
    plain = ShuffleGD(n=200, problem=PROBLEM, privacy=PRIVACY, mean=mean, rounds=6, eta=0.5)
    ours = small(centring=Centring.fixed(PROBLEM.lipschitz))
    theirs = plain.init()
    for spec, state, values in rounds_of(ours, persons):
        asked = plain.plan(theirs)
        assert (spec.randomizer, spec.event) == (asked.randomizer, asked.event)
        assert isinstance(asked.query, Gradient)
        assert np.allclose(spec.query.theta, asked.query.theta, atol=1e-15)
        assert state.radius == PROBLEM.lipschitz
        assert not state.center.any()
        expected, _, _ = admitted(asked.query(rows), asked.randomizer)
        assert np.allclose(values, dense(expected), atol=1e-14)
        theirs = plain.update(theirs, dense(expected).mean(axis=0))


def test_center_and_radius_follow_public_numbers_only():
    centring = Centring(limit=1.0, spread=0.1, contraction=0.5, drift=2.0)
    center, radius = centring.following(np.ones(2), 0.4, 0.1)
    assert center.tolist() == [1.0, 1.0]
    assert radius == pytest.approx(0.1 + 0.5 * 0.4 + 2.0 * 0.1)
    center, radius = centring.following(np.ones(2), 0.4, 5.0)  # moved too far: nobody is cut
    assert (center.tolist(), radius) == ([0.0, 0.0], 1.0)
    start = dataclasses.replace(centring, coarse=2)
    assert start.first() == pytest.approx(0.1 + 0.5 * (0.1 + 0.5))
    assert start.radii(np.array([0.1, 0.0])).tolist() == pytest.approx(
        [0.4, 0.1 + 0.2 + 0.2, 0.1 + 0.25]
    )
    fixed = Centring.fixed(1.0)
    assert fixed.following(np.ones(2), 1.0, 0.0)[1] == 1.0
    turn = dataclasses.replace(centring, coarse=1, recentring=2)
    assert [turn.is_step(i) for i in range(7)] == [False] * 3 + [True, False, False, True]
    assert turn.rounds(2) == 7


def test_planned_radii_hold_those_of_a_run():
    """The bound's radii are never below those that a run without noise has."""
    problem = dataclasses.replace(PROBLEM, records=400)
    made = UserLevelGD.calibrated(
        n=4000, problem=problem, privacy=PRIVACY, rounds=12, center="carried"
    )
    assert made.centring.carried
    persons = points(m=4)
    quiet = dataclasses.replace(made, n=200, mean=mean_of(200, D, problem.lipschitz, 4, 3))
    radii, where = [], []
    for spec, state, _ in rounds_of(quiet, persons):
        if made.centring.is_step(state.round):
            radii.append(state.radius)
            where.append(spec.query.theta)
    moves = np.linalg.norm(np.diff(where, axis=0), axis=1)
    assert (np.array(radii) <= made.centring.radii(moves) + 1e-12).all()


@pytest.mark.parametrize("kind", [UserLevelGD, UserLevelACSA])
@pytest.mark.full
def test_a_run_spends_what_was_asked_for_on_persons(kind):
    problem = dataclasses.replace(PROBLEM, records=400)
    protocol = kind.calibrated(n=300, problem=problem, privacy=Privacy(4.0, 1e-6), rounds=8)
    counts = np.random.default_rng(0).integers(1, 6, 300)
    ragged = [rows[:count] for rows, count in zip(points(300, 6), counts, strict=True)]
    sent = set()
    for data in (points(300, 2), ragged):
        for fidelity in ("aggregate", "counts"):
            result = run(protocol, data, fidelity=fidelity, seed=1)
            assert result.unit is Unit.PERSON
            assert 0.9 * 4 < result.privacy.epsilon <= 4.0
            assert "person" in str(result.privacy)
            sent.add((result.costs.messages_per_user, result.costs.payload_bits_per_user))
    assert len(sent) == 1  # m and raggedness never change what is sent
    again = run(Baseline(protocol, "central"), points(300, 2), seed=1)
    assert again.privacy.epsilon <= 4.0
    assert again.unit is Unit.PERSON


@pytest.mark.full
def test_the_compiled_kernel_is_the_default_for_many_records():
    """Nominal ones, which are public. Its bits do not depend on how persons are placed."""
    labels = Problem(Logistic(), L2Ball(D, 1.0), records=10_000)
    mean, fixed = mean_of(300, D, labels.lipschitz, 20, 20), Centring.fixed(labels.lipschitz)
    protocol = small(n=300, rounds=3, problem=labels, mean=mean, centring=fixed)
    x = points(300, 3) / 4
    equal = np.concatenate([x, np.where(x[:, :, :1] > 0, 1.0, -1.0)], axis=2)
    ragged = [rows[: 1 + at % 3] for at, rows in enumerate(equal)]
    expected = kernels.available(None, math.inf)
    for data in (equal, ragged):
        results = [
            run(
                protocol,
                data,
                seed=3,
                fidelity=fidelity,
                workers=workers,
                execution=Execution(kernel=kernel),
            )
            for fidelity in ("aggregate", "counts")
            for workers, kernel in ((1, None), (3, None), (2, expected))
        ]
        assert {each.kernel for each in results} == {expected}
        for each in (results[:3], results[3:]):
            assert all((one.value == each[0].value).all() for one in each)
    few = dataclasses.replace(protocol, problem=dataclasses.replace(labels, records=1))
    assert run(few, equal, seed=3, fidelity="aggregate").kernel == "numpy"


def test_clipping_at_l_has_the_noise_of_groups_of_items():
    """Groups of m at mu/m are at mu exactly: a record's sensitivity is m times smaller, its noise
    multiplier m times larger. A center makes another mechanism of it.
    """
    n, m, rounds, L = 200, 20, 6, PROBLEM.lipschitz
    mu = mu_of(PRIVACY.epsilon, PRIVACY.delta)
    item = 2 * L / (n * m) * math.sqrt(rounds) / (mu / m)  # of one round
    fixed = small(centring=Centring.fixed(L))
    for protocol, same in ((fixed, True), (small(), False)):
        twin = Baseline(protocol, "central")
        state = twin.init()
        for _ in range(5):
            state = twin.update(state, np.full(D, 0.1))
        release = twin.plan(state)
        assert isinstance(release.mechanism, Gaussian)
        noise = release.sensitivity.value * release.mechanism.noise_multiplier
        assert (noise == pytest.approx(item, rel=1e-9)) == same
    assert delta_gdp(1.0, m * (mu / m)) == pytest.approx(1e-6, rel=1e-6)


def test_the_central_twin_draws_noise_for_each_radius():
    protocol = small()
    twin = Baseline(protocol, "central")
    state, seen = twin.init(), []
    while (release := twin.plan(state)) is not None:
        assert release.sensitivity.value == pytest.approx(2 * state.radius / 200)
        seen.append(state.radius)
        state = twin.update(state, np.full(D, 0.1))
    assert min(seen) < max(seen) == PROBLEM.lipschitz


def test_dropouts_attacks_and_checkpoints_are_as_everywhere(tmp_path):
    protocol = small(rounds=4)
    persons = Persons.in_memory(points())
    plain = run(protocol, persons, seed=3, fidelity="counts", checkpoint=tmp_path / "run")
    again = run(
        protocol, persons, seed=3, fidelity="counts", checkpoint=tmp_path / "run", resume=True
    )
    assert (again.value == plain.value).all()
    lossy = run(protocol, persons, seed=3, fidelity="counts", adversary=Dropout(0.2))
    assert lossy.privacy.epsilon > plain.privacy.epsilon
    labels = Problem(Logistic(), L2Ball(D, 1.0), records=5)
    rows = np.concatenate([points(200, 5), np.ones((200, 5, 1))], axis=2)
    mean = mean_of(200, D, labels.lipschitz, 4, 3)
    trained = small(problem=labels, mean=mean, centring=Centring.fixed(labels.lipschitz))
    flipped = run(trained, rows, seed=3, adversary=LabelFlip(1.0), fidelity="counts")
    assert flipped.value @ run(trained, rows, seed=3, fidelity="counts").value < 0


@pytest.mark.full
def test_literal_messages_and_onions_carry_the_same_protocol():
    protocol = small(n=20, rounds=3, mean=mean_of(20, D, PROBLEM.lipschitz, 2, 2))
    values = [
        run(protocol, points(20), seed=5, fidelity="literal", security=security).value
        for security in ("none", "onion")
    ]
    assert (values[0] == values[1]).all()


def test_the_planner_takes_a_center_where_its_bound_is_smaller():
    few = UserLevelGD.calibrated(n=2000, problem=PROBLEM, privacy=PRIVACY, rounds=20)
    assert not few.centring.carried
    assert few.choices["center"].startswith("fixed: bound")
    logistic = Problem(Logistic(), L2Ball(10, 3.0))
    for m, chosen in ((4, "fixed: bound"), (25, "fixed: bound"), (64, "within 5%"), (400, "")):
        problem = dataclasses.replace(logistic, records=m)
        made = UserLevelGD.calibrated(n=2000, problem=problem, privacy=PRIVACY, rounds=25, eta=3.8)
        assert made.centring.carried == (m > 30)
        assert chosen in made.choices["center"]
    many = dataclasses.replace(PROBLEM, records=400)
    made = UserLevelGD.calibrated(n=2000, problem=many, privacy=PRIVACY, rounds=20)
    assert made.centring.carried
    assert "fixed at L" in made.choices["center"]
    beside = UserLevelGD.calibrated(
        n=2000, problem=many, privacy=PRIVACY, rounds=20, center="fixed"
    )
    assert made.bound < 1.05 * beside.bound
    assert made.centring.first() < beside.centring.first() / 3
    with pytest.raises(ParameterError, match="center = 'carried'"):
        UserLevelGD.calibrated(n=50, problem=many, privacy=PRIVACY, center="carried", rounds=20)


@pytest.mark.full
def test_a_carried_center_is_nearer_with_many_records():
    """n = 1000: the mean of 8 runs of a quadratic, planned for m = 400: some 20 times nearer."""
    problem = Problem(MeanEstimation(), L2Ball(5, 1.0), records=400)
    persons = points(1000, 40, 5)
    means = Persons.in_memory(persons.mean(axis=1, keepdims=True))  # all that the quadratic asks
    best = persons.reshape(-1, 5).mean(axis=0)
    gaps = {}
    for center in ("carried", "fixed"):
        made = UserLevelGD.calibrated(
            n=1000, problem=problem, privacy=PRIVACY, rounds=12, eta=0.9, center=center
        )
        runs = [run(made, means, seed=s, fidelity="aggregate").value for s in range(8)]
        gaps[center] = np.mean([((value - best) ** 2).sum() / 2 for value in runs])
    assert gaps["carried"] * 4 < gaps["fixed"]


def test_kinks_are_smoothed_and_recentred():
    problem = Problem(Hinge(), L2Ball(D, 1.0), records=10_000)
    made = UserLevelGD.calibrated(n=50_000, problem=problem, privacy=PRIVACY, center="carried")
    assert made.smoothing == pytest.approx(1 / made.eta)
    accelerated = UserLevelACSA.calibrated(n=5000, problem=problem, privacy=PRIVACY, rounds=9)
    assert accelerated.smoothing > 0
    rows = np.concatenate([points(5000, 2), np.ones((5000, 2, 1))], axis=2)
    assert np.isfinite(run(accelerated, rows, seed=1, fidelity="aggregate").value).all()


def test_sequential_batches_ask_every_person_once():
    problem = dataclasses.replace(PROBLEM, records=100)
    made = UserLevelACSA.calibrated(n=600, problem=problem, privacy=PRIVACY, batch=100)
    assert (made.rounds, made.rounds_per_user) == (6, 1)
    result = run(made, points(600, 2), seed=1, fidelity="aggregate")
    assert result.privacy.epsilon <= 1.0
    asked = [spec.cohort.ranges for spec, _, _ in rounds_of(made, points(600, 2))]
    assert asked == [((i * 100, (i + 1) * 100),) for i in range(6)]


@pytest.mark.full
def test_phases_serve_strongly_convex_persons():
    problem = dataclasses.replace(PROBLEM, ridge=0.5)
    made = Phased.calibrated(
        n=600, problem=problem, privacy=PRIVACY, optimiser=UserLevelGD, phases=2
    )
    assert made.unit is Unit.PERSON
    result = run(made, points(600, 2), seed=1, fidelity="aggregate")
    assert (result.unit, result.privacy.epsilon <= 1.0) == (Unit.PERSON, True)
    alone = ShuffleGD.calibrated(n=300, problem=problem, privacy=PRIVACY, rounds=2)
    with pytest.raises(ParameterError, match="of one unit"):
        Phased(n=900, phases=[made.phases[0], alone])


def test_clip_bias_and_radii_are_those_of_the_theory():
    spread = Spread(10_000, 100, 1.0, deviations=3.0, fail=1e-3)
    assert spread.bias(0.0, 0.0, 1.0) == pytest.approx(0.1 * 0.00338369, rel=1e-5)
    assert spread.tau == pytest.approx(0.4 + 0.001 * (1 + math.sqrt(2 * math.log(1000))))
    assert spread.contraction(0.01, 4) == pytest.approx(0.05 * (2 + math.sqrt(2 * math.log(1000))))


def test_what_is_not_of_persons_is_refused_before_a_draw():
    protocol = small()
    for data in (points()[:, 0], points()[:, 0].tolist()):
        with pytest.raises(ParameterError, match=r"^data"):
            run(protocol, data)
    with pytest.raises(ParameterError, match="rows of 200 users"):
        run(protocol, points(199))
    bad = points()
    bad[4, 0, 0] = np.nan
    with pytest.raises(ParameterError, match=r"data\[4\]"):
        run(protocol, bad)
    with pytest.raises(ParameterError, match="center = 'median'"):
        UserLevelGD.calibrated(n=200, problem=PROBLEM, privacy=PRIVACY, center="median")
    with pytest.raises(ParameterError, match="records = 0"):
        dataclasses.replace(PROBLEM, records=0)
    with pytest.raises(ParameterError, match="spread"):
        Centring(limit=1.0, spread=0.0)
    with pytest.raises(ParameterError, match="rounds"):
        small(rounds=2)
    with pytest.raises(ParameterError, match="mean"):
        small(mean=mean_of(200, D, 1.0, 4, 3))
    turned = CarryVectorSum(n=200, d=D, g=4.0, b=4, norm_bound=PROBLEM.lipschitz, rotation=1)
    made = small(mean=NoisyMean(turned))  # radii change, and what a round costs must not
    assert made.mean.within(PROBLEM.lipschitz / 8).event == made.mean.event


def test_thresholds_are_numbers_that_are_stated():
    """Nothing here estimates a spread or a radius from data at no charge."""
    for name in ("declared_spread", "declared_smoothness", "norm_bound"):
        for value in ("estimated", points()[:, 0], -1.0, math.nan):
            with pytest.raises(ParameterError, match=name):
                dataclasses.replace(PROBLEM, **{name: value})
    for name in ("deviations", "fail", "coarse"):
        with pytest.raises(ParameterError, match=name):
            UserLevelGD.calibrated(
                n=2000, problem=PROBLEM, privacy=PRIVACY, rounds=6, **{name: "estimated"}
            )
    for name in ("contraction", "spread", "limit"):
        with pytest.raises(ParameterError, match="norm_bound" if name == "limit" else name):
            Centring(**{"limit": 1.0, "spread": 0.5} | {name: "estimated"})


def test_bounds_say_what_they_assume():
    """A center assumes i.i.d. records; persons who answer again, more; privacy nothing."""
    carried = Centring(limit=2.0, spread=0.4)
    alone = Centring.fixed(PROBLEM.lipschitz)
    assert "as stable as plain descent" in small(centring=carried).assumes
    assert small(centring=alone).assumes == ""
    assert Baseline(small(centring=carried), "central").assumes == small(centring=carried).assumes
    problem = dataclasses.replace(PROBLEM, records=100)
    batches = UserLevelACSA.calibrated(n=600, problem=problem, privacy=PRIVACY, batch=100)
    assert "over the persons asked" not in batches.assumes
    everybody = UserLevelACSA.calibrated(n=600, problem=problem, privacy=PRIVACY, rounds=8)
    assert "over the persons asked" in everybody.assumes
    phases = Phased(n=200, phases=[small(n=100, mean=mean_of(100, D, 2.0, 4, 3))] * 2)
    assert phases.assumes == small().assumes


def test_the_query_takes_its_center_away_and_nothing_else():
    rows = points(5, 4)
    plain = MeanGradient(MeanEstimation(), np.full(D, 0.2))
    moved = dataclasses.replace(plain, center=np.full(D, 0.1))
    assert np.allclose(dense(plain(rows)) - dense(moved(rows)), 0.1)


@pytest.mark.parametrize(
    "kind",
    [
        *(UserLevelGD, UserLevelACSA, UserLevelOneShot, PhasedERM, PhasedSCO),
        *(LinearTimePhasedSGD, AcceleratedPhasedERM),
    ],
)
def test_unbounded_domains_and_gradients_are_refused_by_name(kind):
    problem = Problem(Logistic(), RealSpace(3), ridge=0.1, records=25)
    with pytest.raises(ParameterError, match="domain = 'RealSpace'"):
        kind.calibrated(n=2000, problem=problem, privacy=PRIVACY)
    unbounded = Problem(Logistic(), L2Ball(3, 1.0), ridge=0.1, records=25, norm_bound=math.inf)
    with pytest.raises(ParameterError, match="norm_bound = inf"):
        kind.calibrated(n=2000, problem=unbounded, privacy=PRIVACY)


def test_thresholds_are_public_and_not_decided_by_data():
    """No word, function or array of values stands for a radius, a spread or a count."""
    given = {"n": 2000, "problem": PROBLEM, "privacy": PRIVACY, "rounds": 10}
    strong = Problem(MeanEstimation(), L2Ball(2, 1.0), ridge=0.5, records=5)
    few = {"n": 8, "problem": strong, "privacy": Privacy(8.0, 0.5)}
    for bad in ("auto", "data", np.ones(5), lambda rows: 1.0, math.nan, -1.0):
        for name in ("declared_spread", "norm_bound", "records"):
            with pytest.raises(ParameterError, match=f"{name} = "):
                dataclasses.replace(PROBLEM, **{name: bad})
        with pytest.raises(ParameterError, match="deviations = "):
            UserLevelGD.calibrated(**given, center="carried", deviations=bad)
        with pytest.raises(ParameterError, match="radius = "):
            FriendlyMean(100, bad, 2)
        with pytest.raises(ParameterError, match="width = "):
            DeletionStability.calibrated(**few, width=bad)
