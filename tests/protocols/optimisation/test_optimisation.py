"""Optimisers: proven bounds, independent solvers, privacy of real runs, schedules, refusals.

Every textbook bound is on an expectation. Where randomness remains, the mean of independent runs is
compared, and the false-alarm rate is stated; the rest is deterministic given the data.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from rounds import quiet
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from protocols.central.record.pan_private import PanPrivateACSA
from protocols.learning.baselines import Baseline
from protocols.optimisation.acceleration import Schedule
from protocols.optimisation.base import DivergedError
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import CuratedPhases, Phased
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Box, Intersection, L2Ball, Simplex
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Hinge, Linear, Logistic, MeanEstimation
from protocols.problems.problem import Problem
from protocols.problems.regression import Absolute, Squared
from protocols.shuffle.acsa import ShuffleACSA
from protocols.shuffle.gd import ShuffleGD
from protocols.shuffle.sgd import ShuffleSGD
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import GaussianEvent
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.wire.messages import Tally

M, D = 40, 3
PRIVACY = Privacy(1.0, 1e-6)


def users(loss, n=M, d=D, seed=0):
    """n users of a problem that is not separable."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    if isinstance(loss, MeanEstimation):
        return x
    margins = x @ np.linspace(2.0, -1.0, d)
    if loss.classification:
        return np.c_[x, np.where(rng.random(n) < 1 / (1 + np.exp(-2 * margins)), 1.0, -1.0)]
    return np.c_[x, np.clip(margins / 2 + rng.normal(size=n) * 0.3, -2, 2)]


def minimiser(problem, rows):
    """By the Nelder-Mead method over the projection, from two starts."""
    best = problem.domain.center
    for start in (problem.domain.center, problem.domain.center * 0.5 + 0.01):
        found = minimize(
            lambda t: problem.risk(problem.domain.project(t), rows), start, method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20_000, "maxfev": 20_000},
        )  # fmt: skip
        best = min(best, problem.domain.project(found.x), key=lambda t: problem.risk(t, rows))
    return best


PROBLEMS = {
    "quadratic": Problem(MeanEstimation(), L2Ball(D, 2.0, [0.5, 0.5, 0.5])),
    "squared": Problem(Squared(1.0, 2.0), L2Ball(D, 2.0)),
    "logistic": Problem(Logistic(), L2Ball(D, 3.0)),
    "hinge": Problem(Hinge(), L2Ball(D, 3.0)),
    "hinge in a box": Problem(Hinge(), Intersection(Box(D, 0.0, 1.5), L2Ball(D, 2.0))),
    "absolute on a simplex": Problem(Absolute(), Simplex(D)),
    "ridge logistic": Problem(Logistic(), L2Ball(D, 3.0), ridge=0.1),
    "ridge hinge": Problem(Hinge(), L2Ball(D, 3.0), ridge=0.1),
}


def exact(protocol_of, problem, rows, rounds):
    """A sequential protocol whose every batch is the whole of `rows`, run without noise."""
    stacked = np.tile(rows, (rounds, 1))
    return noiseless(protocol_of(len(stacked), quiet(problem, len(rows))), stacked)


def noiseless(protocol, rows):
    return run(Baseline(protocol, "none"), rows).value


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("rounds", [1, 7, 60])
@pytest.mark.full
def test_without_noise_every_optimiser_meets_its_textbook_bound(kind, rounds):
    problem = PROBLEMS[kind]
    rows = users(problem.loss)
    star = minimiser(problem, rows)
    distance, least = float(np.linalg.norm(problem.origin - star)), problem.risk(star, rows)
    length = problem.objective_lipschitz

    def gap(theta):
        assert np.abs(problem.domain.project(theta) - theta).max() < 1e-9
        return problem.risk(theta, rows) - least

    eta = distance / (length * math.sqrt(rounds))
    common = {"problem": problem, "privacy": PRIVACY}
    whole = problem, rows, rounds
    sgd = exact(
        lambda n, mean: ShuffleSGD(n=n, rounds=rounds, eta=eta, mean=mean, **common), *whole
    )
    assert gap(sgd) <= ShuffleSGD.gap(problem, distance, eta, rounds, 0.0) + 1e-9
    gd = ShuffleGD(n=M, rounds=rounds, eta=eta, mean=quiet(problem, M), **common)
    # Without noise, and every batch the same users: the same algorithm.
    assert np.allclose(noiseless(gd, rows), sgd)
    smoothing = None if problem.smooth else 10.0
    for beta in (smoothing, 30.0):
        if beta is None and not problem.smooth:
            continue
        schedule = Schedule(rounds, problem.smoothness(beta), 0.0, distance)
        made = exact(
            lambda n, mean, b=beta, schedule=schedule: ShuffleACSA(
                n=n, schedule=schedule, mean=mean, smoothing=b, **common
            ),
            *whole,
        )
        smoothed = 0.0 if beta is None else problem.lipschitz**2 / (2 * beta)
        assert gap(made) <= schedule.gap + smoothed + 1e-9
    if problem.smooth:
        step = 1 / (2 * problem.smoothness())
        gd = ShuffleGD(n=M, rounds=rounds, eta=step, mean=quiet(problem, M), **common)
        value = noiseless(gd, rows)
        assert gap(value) <= distance**2 / (2 * step * rounds) + length * distance / rounds + 1e-9


def reference(problem, rows):
    """The optimum by scikit-learn or a closed form."""
    x, y, m = rows[:, :-1], rows[:, -1], len(rows)
    if isinstance(problem.loss, Logistic):
        fitted = LogisticRegression(
            C=1 / (problem.ridge * m), fit_intercept=False, tol=1e-10, max_iter=10_000
        ).fit(x, y)
        return fitted.coef_[0]
    if isinstance(problem.loss, Hinge):
        how = {"loss": "hinge", "fit_intercept": False, "tol": 1e-9, "max_iter": 1_000_000}
        svm = LinearSVC(C=1 / (problem.ridge * m), **how)
        return svm.fit(x, y).coef_[0]
    return np.linalg.solve(x.T @ x / m + problem.ridge * np.eye(problem.d), x.T @ y / m)


@pytest.mark.parametrize(
    "loss", [Squared(1.0, 2.0), Logistic(), Hinge()], ids=lambda loss: type(loss).__name__
)
@pytest.mark.slow
def test_without_noise_every_optimiser_finds_the_optimum(loss):
    problem = Problem(loss, L2Ball(D, 10.0), ridge=0.1)
    rows = users(loss)
    star = reference(problem, rows)
    least = problem.risk(star, rows)
    smoothing = None if problem.smooth else 2000.0
    beta, common = problem.smoothness(smoothing), {"problem": problem, "privacy": PRIVACY}
    rounds, distance = 4000, float(np.linalg.norm(star))
    schedule = Schedule(rounds, beta, 0.0, distance)
    found = {
        "AC-SA": exact(
            lambda n, mean: ShuffleACSA(
                n=n, schedule=schedule, mean=mean, smoothing=smoothing, **common
            ),
            *(problem, rows, rounds),
        ),
    }

    steps = [
        1 / (2 * problem.smoothness(None if problem.smooth else 10.0 * 4**k)) for k in range(7)
    ]
    times = 1200
    for name, kind, batches in (("SGD", ShuffleSGD, times), ("GD", ShuffleGD, 1)):
        # Phases with ever shorter steps, each from the average before.
        n, mean = batches * M, quiet(problem, M)
        phases = [kind(n=n, rounds=times, eta=eta, mean=mean, **common) for eta in steps]
        made = Phased(n=n * len(steps), phases=phases)
        found[name] = noiseless(made, np.tile(rows, (batches * len(steps), 1)))
    for name, theta in found.items():
        assert problem.risk(theta, rows) - least == pytest.approx(0.0, abs=1e-4), name
        if problem.smooth:
            assert np.abs(theta - star).max() < 0.03, name


def test_pan_private_acsa_without_noise_is_acsa():
    problem = Problem(Logistic(), L2Ball(D, 3.0), ridge=0.05)
    rows = users(problem.loss, 200)
    schedule = Schedule(20, problem.smoothness(), 0.3, 2.0)
    pan = PanPrivateACSA(
        problem=problem, n=205, batch=10, noise_multiplier=1e-13, schedule=schedule, privacy=PRIVACY
    )
    acsa = ShuffleACSA(
        problem=problem, n=200, schedule=schedule, mean=quiet(problem, 10), privacy=PRIVACY
    )
    found = run(pan, np.concatenate([rows, rows[:5]]), seed=1)
    assert np.abs(found.value - run(Baseline(acsa, "none"), rows).value).max() < 1e-9
    assert found.ledger.charges[-1].cohort.stop == 200  # five elements are not needed


def test_the_pan_private_memory_holds_noise_at_every_moment():
    """Variance of the running gradient: false alarm below 1e-6 (5 s.e. of 1,500 terms)."""
    problem = Problem(MeanEstimation(), L2Ball(D, 1.0))
    rows = users(problem.loss, 10)
    pan = PanPrivateACSA.calibrated(n=10, problem=problem, privacy=PRIVACY, batch=5)
    first = np.full(D, pan.zeta)
    memory = pan.memory(pan.init(), rows[:3], first)
    fields = {field.name for field in dataclasses.fields(memory)}
    assert fields == {"batch", "read", "theta", "aggregate", "middle", "gradient"}
    held = memory.gradient - (problem.origin - rows[:3]).sum(axis=0) / 5
    assert np.allclose(held, first)  # what was drawn before the first element, whole
    assert np.array_equal(pan.memory(pan.init(), rows[:0], first).gradient, first)
    rng, unit = np.random.default_rng(1), pan.plan(pan.init()).sensitivity.value
    draws = [pan.mechanism.sample(np.zeros(D), unit, rng) for _ in range(500)]
    ratio = np.mean(np.square(draws)) / (2 * pan.zeta**2)  # two noises in what is released
    assert abs(ratio - 1) < 5 * math.sqrt(2 / 1500)
    assert abs(0.5 - 1) > 5 * math.sqrt(2 / 1500)  # power: one noise alone is seen


def test_pan_private_runs_are_the_curators_also_in_phases():
    problem = Problem(MeanEstimation(), L2Ball(D, 1.0), ridge=0.5)
    common = {"n": 400, "problem": problem, "privacy": PRIVACY}
    for made in (
        PanPrivateACSA.calibrated(batch=50, **common),
        CuratedPhases.calibrated(optimiser=PanPrivateACSA, phases=2, **common),
    ):
        found = run(made, users(problem.loss, 400), seed=3)
        assert found.trust == "central"
        assert len(found.ledger.charges) == found.rounds == made.rounds
        # Either of two noises covers an element, so the ledger has one of them.
        assert found.privacy.epsilon == pytest.approx(1.0, rel=1e-6)
        assert any("one intrusion" in each for each in found.privacy.assumptions)
    with pytest.raises(ParameterError, match="CentralAlgorithm"):
        CuratedPhases.calibrated(optimiser=ShuffleSGD, phases=2, **common)


def test_pan_private_noise_by_the_paper_is_larger():
    problem = Problem(Hinge(), L2Ball(D, 1.0))
    privacy = Privacy(0.5, 1e-6)
    kwargs = {"n": 1000, "problem": problem, "privacy": privacy, "batch": 50}
    paper, tight = PanPrivateACSA.paper(**kwargs), PanPrivateACSA.calibrated(**kwargs)
    assert paper.zeta**2 == pytest.approx(8 * math.log(2e6) / (50**2 * 0.25))
    assert 1.2 < paper.zeta / tight.zeta < 1.6
    spent = ShuffleAccountant().compose(paper.mechanism.event).guarantee(1e-6)
    assert spent.epsilon < 0.5
    with pytest.raises(ParameterError, match="epsilon"):
        PanPrivateACSA.paper(n=1000, problem=problem, privacy=Privacy(1.0, 1e-6))
    with pytest.raises(ParameterError, match=r"\+1"):
        run(tight, np.tile([0.1, 0.1, 0.1, 3.0], (1000, 1)))


MAKERS: dict[str, tuple[Callable, bool]] = {
    "sgd": (ShuffleSGD.calibrated, True),
    "ac-sa": (ShuffleACSA.calibrated, True),
    "gd": (lambda **kwargs: ShuffleGD.calibrated(rounds=8, **kwargs), False),
    "phased ac-sa": (
        lambda **kwargs: Phased.calibrated(optimiser=ShuffleACSA, phases=2, **kwargs),
        True,
    ),
    "phased sgd": (
        lambda **kwargs: Phased.calibrated(optimiser=ShuffleSGD, phases=2, **kwargs),
        True,
    ),
    "phased gd": (
        lambda n, **kwargs: Phased(
            n=n, phases=[ShuffleGD.calibrated(n=n // 2, rounds=5, **kwargs)] * 2
        ),
        False,
    ),
}


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    "loss", [Logistic(), Hinge(), MeanEstimation()], ids=lambda loss: type(loss).__name__
)
@pytest.mark.full
def test_runs_keep_the_epsilon_and_sequential_ones_ask_once(kind, loss, fidelity):
    make, sequential = MAKERS[kind]
    n = 1200
    problem = Problem(loss, L2Ball(D, 2.0), ridge=0.2)
    protocol = make(n=n, problem=problem, privacy=PRIVACY)
    result = run(protocol, users(loss, n), fidelity=fidelity, seed=3)
    assert result.ledger.sequentially_interactive is sequential
    assert 0.9 < result.privacy.epsilon <= 1.0
    assert result.rounds == protocol.rounds
    assert result.reports.clipped == 0
    assert np.linalg.norm(result.value) <= 2.0 + 1e-9
    assert all(isinstance(why, str) and why for why in protocol.choices.values())


def test_steps_are_chosen_for_the_noise_of_an_average():
    """rho^2 against 800 runs: false alarm below 1e-6 (5.5 standard errors)."""
    n, d = 300, 4
    problem = Problem(MeanEstimation(), L2Ball(d, 1.0))
    protocol = ShuffleSGD.calibrated(
        n=n,
        problem=problem,
        privacy=PRIVACY,
        batch=n,
        rounds=1,
        eta=1e-9,
        encoding="unary",
    )
    rows = users(problem.loss, n, d)
    spec = protocol.plan(protocol.init())
    sums = [
        spec.randomizer.tally(spec.query(rows), np.random.default_rng(seed)) for seed in range(800)
    ]
    tally = run(protocol, rows, seed=1, fidelity="aggregate").ledger.charges[0]
    assert tally.event == protocol.mean.event
    width, bias = (
        2 * problem.lipschitz / protocol.mean.sum.parameters["g"],
        n * protocol.mean.sum.parameters["b"] / 2,
    )
    means = np.array([width * (ones - bias) / n - problem.lipschitz for ones in sums])
    variance = spec.randomizer.variance(n, spec.query(rows))  # type: ignore[attr-defined]
    exact_variance = variance.sum() / n**2
    measured = np.square(means - spec.query(rows).mean(axis=0)).sum(axis=1).mean()
    error = 5.5 * math.sqrt(2 / (800 * d))
    assert abs(measured / exact_variance - 1) < error
    assert exact_variance <= protocol.mean.squared_noise
    expected = Setting(n=n, problem=problem, privacy=PRIVACY).squared_noise(n)
    assert protocol.mean.squared_noise <= expected * (1 + 1e-12)
    assert protocol.mean.squared_noise == pytest.approx(
        d
        * (2 * problem.lipschitz / protocol.mean.sum.parameters["g"]) ** 2
        * (n * protocol.mean.sum.parameters["b"] / 4 + n / 4)
        / n**2
    )
    assert error < 0.21  # power: a tenth more noise is 0.21 more variance


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sgd", "ac-sa", "gd", "phased ac-sa", "phased gd"])
def test_measured_gaps_are_below_the_proven_bounds(kind):
    """The mean of ten runs against a bound on the expectation; all are far below."""
    n = 4000
    problem = Problem(MeanEstimation(), L2Ball(D, 1.0), ridge=0.0)
    rows = users(problem.loss, n)
    protocol = MAKERS[kind][0](n=n, problem=problem, privacy=PRIVACY)
    least = problem.risk(rows.mean(axis=0), rows)
    gaps = [
        problem.risk(run(protocol, rows, seed=s, fidelity="aggregate").value, rows) - least
        for s in range(10)
    ]
    assert 0 <= np.mean(gaps) <= protocol.bound < math.inf


def test_baselines_share_the_optimiser_and_differ_in_noise():
    n = 3000
    problem = Problem(Logistic(), L2Ball(D, 3.0))
    rows = users(problem.loss, n)
    protocol = ShuffleGD.calibrated(n=n, problem=problem, privacy=PRIVACY, rounds=20)
    results = {
        trust: run(Baseline(protocol, trust), rows, seed=1)
        for trust in ("none", "central", "local")
    }
    assert math.isinf(results["none"].privacy.epsilon)
    for model in ("central", "local"):
        assert 0.999 < results[model].privacy.epsilon <= 1.0 + 1e-9
        (event,) = {charge.event for charge in results[model].ledger.charges}
        assert isinstance(event, GaussianEvent)
        assert not results[model].ledger.sequentially_interactive
        assert any("floating-point" in note for note in results[model].privacy.assumptions)
    away = {
        model: np.linalg.norm(results[model].value - results["none"].value) for model in results
    }
    assert away["none"] < away["central"] < away["local"]
    tuned = ShuffleSGD.calibrated(n=n, problem=problem, privacy=PRIVACY, trust="local")
    assert (
        tuned.eta
        < ShuffleSGD.calibrated(n=n, problem=problem, privacy=PRIVACY, trust="none").eta * 10
    )
    assert "local" in tuned.choices["trust"]
    local, central, none = (
        Setting(n=n, problem=problem, privacy=PRIVACY, trust=trust).squared_noise(100)
        for trust in (Trust.LOCAL, "central", Trust.NONE)
    )
    assert local == pytest.approx(100 * central)
    assert none == 0.0
    with pytest.raises(ParameterError, match="trust"):
        Baseline(protocol, "shuffle")
    with pytest.raises(ParameterError, match="data"):
        run(Baseline(protocol, "none"), rows[:10])


@pytest.mark.full
def test_papers_constants_run_and_carry_its_theorems():
    problem = Problem(Logistic(), L2Ball(D, 2.0))
    rows = users(problem.loss, 2000)
    for protocol, theorem in (
        (ShuffleSGD.paper(n=2000, problem=problem, privacy=PRIVACY), "Theorem 4.1"),
        (ShuffleACSA.paper(n=2000, problem=problem, privacy=PRIVACY), "Theorem 4.3"),
        (
            ShuffleACSA.paper(n=2000, problem=Problem(Hinge(), L2Ball(D, 2.0)), privacy=PRIVACY),
            "Theorem 4.7",
        ),
        (
            ShuffleGD.paper(n=2000, problem=problem, privacy=Privacy(10.0, 1e-6), rounds=3),
            "Theorem 4.9",
        ),
    ):
        assert protocol.claim is not None
        assert theorem in protocol.claim.basis
        result = run(protocol, rows, seed=1, fidelity="aggregate")
        assert result.privacy.epsilon == protocol.privacy.epsilon
        assert np.isfinite(result.value).all()
    # At epsilon 1 and n rounds it asks for 5.6e16 coins a coordinate.
    with pytest.raises(ParameterError, match="n b"):
        ShuffleGD.paper(n=2000, problem=problem, privacy=PRIVACY)
    sgd = ShuffleSGD.paper(n=2000, problem=problem, privacy=PRIVACY)
    scale = math.sqrt(D) * math.log(D / 1e-6)
    assert sgd.mean.batch == math.ceil(scale)
    assert sgd.rounds == 2000 // sgd.mean.batch
    length, batch = problem.lipschitz, sgd.mean.batch
    assert sgd.eta == pytest.approx(
        batch * 4.0 / (length * math.sqrt(sgd.rounds) * (batch + scale))
    )
    tight = ShuffleSGD.calibrated(n=2000, problem=problem, privacy=PRIVACY, batch=batch)
    assert sgd.mean.squared_noise > 100 * tight.mean.squared_noise


def test_the_papers_schedule_is_refused_where_it_can_diverge():
    beta, rounds, diameter = 1.0, 50, 2.0
    least = beta * rounds / (rounds + 2) * diameter / (rounds + 2) ** 1.5
    sound = Schedule(rounds, beta, least * 1.001, diameter, "paper")
    for t in range(1, rounds + 1):
        weight, inverse = sound.at(t)
        assert inverse >= beta * weight
    for sigma in (0.0, least * 0.999):
        with pytest.raises(ParameterError, match="L_t < beta a_t"):
            Schedule(rounds, beta, sigma, diameter, "paper")
    # What the refusal is for: without noise and constraint it blows up.
    free = object.__new__(Schedule)
    for name, value in {
        "rounds": rounds,
        "beta": beta,
        "sigma": 0.0,
        "distance": diameter,
        "kind": "paper",
    }.items():
        object.__setattr__(free, name, value)
    theta = aggregate = 1.0
    for t in range(1, rounds + 1):
        weight, inverse = free.at(t)
        theta -= beta * (weight * theta + (1 - weight) * aggregate) / inverse
        aggregate = weight * theta + (1 - weight) * aggregate
    assert beta * aggregate**2 / 2 > 1e28
    problem = Problem(Logistic(), L2Ball(D, 3.0))
    with pytest.raises(ParameterError, match="schedule"):
        ShuffleACSA.calibrated(n=1000, problem=problem, privacy=PRIVACY, schedule="lan")


def test_schedules_both_stay_below_the_default_bound():
    """Mean of 20 runs with Gaussian oracle noise; the bound holds in expectation."""
    problem = Problem(MeanEstimation(), L2Ball(D, 1.0))
    rows = np.zeros((30 * 20, D)) + 0.5
    for sigma in (0.05, 1.0):
        default = Schedule(20, 1.0, sigma, problem.reach)
        least = problem.risk(np.full(D, 0.5), rows)
        for kind in ("default", "paper"):
            schedule = dataclasses.replace(
                default, kind=kind, distance=2.0 if kind == "paper" else problem.reach
            )
            protocol = ShuffleACSA(
                problem=problem, n=600, schedule=schedule, mean=quiet(problem, 30), privacy=PRIVACY
            )
            gaps = []
            for seed in range(20):
                rng, state = np.random.default_rng(seed), protocol.init()
                while (spec := protocol.plan(state)) is not None:
                    noise = rng.normal(0, sigma / math.sqrt(D), D)
                    state = protocol.update(state, spec.query(rows[:30]).mean(axis=0) + noise)
                gaps.append(problem.risk(protocol.result(state), rows) - least)
            assert np.mean(gaps) <= default.gap


@pytest.mark.full
def test_smoothed_acsa_takes_the_envelope_of_theory():
    problem = Problem(Hinge(), L2Ball(D, 3.0))
    protocol = ShuffleACSA.calibrated(n=5000, problem=problem, privacy=PRIVACY)
    t = protocol.rounds
    assert protocol.smoothing == pytest.approx(
        problem.lipschitz * math.sqrt(t * (t + 1)) / (2 * problem.reach)
    )
    assert protocol.bound == pytest.approx(
        protocol.schedule.gap + problem.lipschitz**2 / (2 * protocol.smoothing)
    )
    assert (
        ShuffleACSA.calibrated(n=5000, problem=problem, privacy=PRIVACY, smoothing=7.0).smoothing
        == 7.0
    )
    assert (
        ShuffleACSA.calibrated(n=5000, problem=PROBLEMS["logistic"], privacy=PRIVACY).smoothing
        is None
    )


def test_a_ridge_is_public_and_costs_no_noise():
    plain, ridged = (Problem(Logistic(), L2Ball(D, 3.0), ridge=ridge) for ridge in (0.0, 0.5))
    kwargs = {"n": 500, "privacy": PRIVACY, "batch": 100}
    first, second = (
        ShuffleSGD.calibrated(problem=problem, **kwargs) for problem in (plain, ridged)
    )
    assert first.mean.randomizer == second.mean.randomizer
    state = dataclasses.replace(second.init(), theta=np.ones(D))
    after = second.update(state, np.zeros(D))
    assert np.allclose(after.theta, 1 - second.eta * 0.5)


@pytest.mark.full
def test_more_phases_start_nearer_and_use_disjoint_users():
    problem = Problem(Logistic(), L2Ball(D, 5.0), ridge=0.2)
    common = {"n": 20_000, "problem": problem, "privacy": PRIVACY}
    protocol = Phased.calibrated(optimiser=ShuffleACSA, **common)
    assert sum(phase.n for phase in protocol.phases) <= 20_000
    distances = [vars(phase)["schedule"].distance for phase in protocol.phases]
    assert len(distances) > 1
    assert distances == sorted(distances, reverse=True)
    assert protocol.bound < ShuffleACSA.calibrated(**common).bound
    bounds = [
        Phased.calibrated(optimiser=ShuffleACSA, phases=k, **common).bound for k in range(1, 7)
    ]
    # Chosen before bits are searched, which move rho a little.
    assert protocol.bound == pytest.approx(min(bounds), rel=0.02)


def recursion(n: int, root: float) -> int:
    """Phases until n^(1/r^(k-1)) is at most 2: the proof of Theorem 4.8, step by step."""
    phases, log = 1, math.log2(n)
    while log > 1 + 1e-12:
        phases, log = phases + 1, log / root
    return phases


PRINTED_PHASES = ((Phased, ShuffleACSA), (CuratedPhases, PanPrivateACSA))


@pytest.mark.parametrize(("kind", "optimiser"), PRINTED_PHASES, ids=["shuffled", "pan-private"])
@pytest.mark.parametrize(("loss", "root"), [(Logistic(), 5 / 3), (Hinge(), 2.0)])
@pytest.mark.parametrize("n", [3000, 300_000])
def test_printed_phases_are_equal_groups_that_start_nearer(kind, optimiser, loss, root, n):
    problem, privacy = Problem(loss, L2Ball(D, 1.0), ridge=0.1), Privacy(0.9, 1e-6)
    made = kind.paper(n=n, problem=problem, privacy=privacy, optimiser=optimiser)
    count = recursion(n, root)
    assert [phase.n for phase in made.phases] == [n // count] * count
    assert len({phase.privacy for phase in made.phases}) == 1
    L, D1, each = problem.objective_lipschitz, 2.0, n // count
    log = math.log(1e6) if kind is CuratedPhases else math.log(D * 1e6) ** 2
    for phase in made.phases:
        assert phase.schedule.distance == pytest.approx(D1)
        noise = (D * log) ** (1 / 3) * D1 * L / (0.9 * each) ** (2 / 3)
        if problem.smooth:
            smooth = (problem.smoothness() * D1**6 * L**4) ** 0.2
            noise = (D * log) ** 0.4 * smooth / (0.9 * each) ** 0.8
        gap = D1 * L / math.sqrt(each) + noise
        gap = phase.bound if math.isfinite(phase.bound) else gap
        D1 = min(D1, math.sqrt(2 * gap / 0.1))
    assert D1 < 2.0 or n == 3000
    assert math.isfinite(made.bound) is (optimiser is PanPrivateACSA)
    given = kind.paper(n=n, problem=problem, privacy=privacy, optimiser=optimiser, phases=2)
    assert len(given.phases) == 2


def test_printed_phases_run_and_meet_the_proven_bound():
    """Of pan-private ones, in the mean of 20 runs, and 3 standard errors above it."""
    problem, n = Problem(MeanEstimation(), L2Ball(D, 1.0), ridge=0.5), 4000
    rows = users(problem.loss, n)
    star = rows.mean(axis=0) / 1.5
    common = {"n": n, "problem": problem, "privacy": Privacy(0.9, 1e-6)}
    made = CuratedPhases.paper(optimiser=PanPrivateACSA, **common)
    found = [run(made, rows, seed=seed) for seed in range(20)]
    losses = [problem.risk(each.value, rows) - problem.risk(star, rows) for each in found]
    error = np.std(losses, ddof=1) / math.sqrt(20)
    assert np.mean(losses) + 3 * error < made.bound
    assert {each.privacy.epsilon <= 0.9 for each in found} == {True}
    shuffled = Phased.paper(optimiser=ShuffleACSA, **common, phases=2)
    spent = run(shuffled, rows, seed=1, fidelity="aggregate").privacy
    assert spent.epsilon <= 0.9
    assert shuffled.rounds_per_user == 1


@pytest.mark.parametrize("loss", [Logistic(), Hinge()])
def test_printed_phases_of_descent_are_as_few_for_smooth_losses(loss):
    """P_GD's gap is linear in D, so its recursion is that of kinks: sqrt(gap) E."""
    problem, privacy = Problem(loss, L2Ball(D, 1.0), ridge=0.1), Privacy(0.9, 1e-6)
    made = Phased.paper(n=3000, problem=problem, privacy=privacy, optimiser=ShuffleGD)
    assert len(made.phases) == recursion(3000, 2.0) == 5


def test_no_paper_runs_other_phases():
    common = {"n": 3000, "privacy": PRIVACY, "optimiser": ShuffleSGD}
    ridged = Problem(Logistic(), L2Ball(D, 1.0), ridge=0.1)
    with pytest.raises(ParameterError, match="a paper runs in phases"):
        Phased.paper(problem=ridged, **common)
    with pytest.raises(ParameterError, match="strong_convexity"):
        Phased.paper(problem=dataclasses.replace(ridged, ridge=0.0), **common)
    with pytest.raises(ParameterError, match="a user for each phase"):
        Phased.paper(problem=ridged, **common | {"n": 3, "optimiser": ShuffleACSA, "phases": 4})


@pytest.mark.full
def test_dropouts_bias_nothing_and_show_in_epsilon():
    """Half of the users silent: the estimate moves by noise only; false alarm 1e-6 (6 s.e.)."""
    n = 4000
    problem = Problem(MeanEstimation(), L2Ball(D, 1.0))
    rows = np.tile(np.array([0.3, -0.2, 0.1]), (n, 1))
    protocol = ShuffleGD.calibrated(n=n, problem=problem, privacy=PRIVACY, rounds=1, eta=0.5)
    state = protocol.init()
    spec = protocol.plan(state)
    reports = n // 2
    ones = spec.randomizer.tally(spec.query(rows[:reports]), np.random.default_rng(0))
    estimate = spec.analyze(Tally(ones, reports))
    error = np.sqrt(spec.randomizer.variance(reports)) / reports  # type: ignore[attr-defined]
    assert (np.abs(estimate + rows[0]) < 6 * error).all()
    result = run(protocol, rows, adversary=Dropout(0.5), seed=1, fidelity="counts")
    assert result.privacy.epsilon > 1.2
    assert result.promised.epsilon <= 1.0


@pytest.mark.parametrize("kind", ["sgd", "ac-sa", "gd"])
@pytest.mark.full
def test_a_state_that_is_not_finite_stops_with_its_round(kind):
    protocol = MAKERS[kind][0](n=1000, problem=PROBLEMS["ridge logistic"], privacy=PRIVACY)
    state = protocol.update(protocol.init(), np.full(D, 0.1))
    for bad in (np.nan, np.inf):
        with pytest.raises(DivergedError, match="round 1"):
            protocol.update(state, np.array([0.0, bad, 0.0]))
    with pytest.raises(DivergedError) as caught:
        protocol.update(state, np.full(D, np.nan))
    assert caught.value.round == 1


@dataclasses.dataclass(frozen=True)
class Concave(LinearLoss):
    curve: float | None = -1.0

    def value(self, margins, labels):
        return -(margins**2) / 2

    def derivative(self, margins, labels):
        return -margins

    def slope(self, reach):
        return reach

    def curvature(self):
        return self.curve


def test_problems_that_are_not_convex_or_bounded_are_refused():
    ball = L2Ball(D, 1.0)

    class Sunken(MeanEstimation):
        def strong_convexity(self):
            return -1.0

    for make, match in (
        (lambda: Problem(Squared(), ball), "lipschitz"),  # labels without a bound
        (lambda: Problem(Concave(), ball), "smoothness"),
        (lambda: Problem(Sunken(), ball), "strong_convexity"),
        (lambda: Problem(Logistic(), None), "domain"),
        (lambda: Problem("logistic", ball), "loss"),
        (lambda: Problem(Logistic(), ball, ridge=-1.0), "ridge"),
        (lambda: Problem(Logistic(), ball, norm_bound=0.0), "norm_bound"),
        (lambda: Problem(Logistic(), ball, start=[0.0, float("nan"), 0.0]), "start"),
    ):
        with pytest.raises(ParameterError, match=match):
            make()
    assert Problem(Squared(), ball, norm_bound=2.0).lipschitz == 2.0
    assert Problem(Logistic(), ball, start=[3.0, 0.0, 0.0]).origin.tolist() == [1.0, 0.0, 0.0]


def test_bad_parameters_are_refused_by_name():
    problem, kinked = PROBLEMS["logistic"], PROBLEMS["hinge"]
    common = {"n": 100, "problem": problem, "privacy": PRIVACY}
    mean = quiet(problem, 10)
    for make, match in (
        (lambda: ShuffleSGD.calibrated(rounds=101, **common), "rounds = 101"),
        (lambda: ShuffleSGD.calibrated(batch=10, rounds=11, **common), "rounds = 11"),
        (lambda: ShuffleSGD.calibrated(batch=101, **common), "batch = 101"),
        (lambda: ShuffleACSA.calibrated(rounds=101, **common), "rounds = 101"),
        (lambda: ShuffleACSA.calibrated(batch=101, **common), "batch = 101"),
        (lambda: ShuffleACSA.paper(batch=101, **common), "batch = 101"),
        (lambda: ShuffleGD.calibrated(batch=50, **common), "batch = 50"),
        (lambda: ShuffleGD.calibrated(rounds=0, **common), "rounds = 0"),
        (lambda: ShuffleSGD.calibrated(eta=-1.0, **common), "eta"),
        (lambda: ShuffleSGD.calibrated(trust="quantum", **common), "trust = 'quantum'"),
        (lambda: ShuffleSGD(rounds=11, eta=1.0, mean=mean, **common), "rounds = 11"),
        (lambda: ShuffleGD(rounds=1, eta=1.0, mean=quiet(problem, 101), **common), "batch = 101"),
        (lambda: PanPrivateACSA.calibrated(batch=101, **common), "batch = 101"),
        (lambda: Phased.calibrated(optimiser=ShuffleSGD, **common), "strong_convexity"),
        (lambda: Phased(n=100, phases=[]), "phases"),
        (
            lambda: ShuffleACSA(
                n=100,
                problem=kinked,
                schedule=Schedule(2, 1.0, 1.0, 1.0),
                mean=mean,
                privacy=PRIVACY,
            ),
            "smoothing",
        ),
        (lambda: Schedule(5, 0.0, 0.0, 1.0), "smoothness"),
        (lambda: ShuffleSGD.calibrated(n=100, problem=problem, privacy=1.0), "privacy"),
        (lambda: ShuffleSGD.calibrated(n=100, problem=kinked.loss, privacy=PRIVACY), "problem"),
    ):
        with pytest.raises(ParameterError, match=match):
            make()


@pytest.mark.full
def test_data_of_another_shape_is_refused_before_any_charge():
    problem = PROBLEMS["logistic"]
    protocol = ShuffleSGD.calibrated(n=M, problem=problem, privacy=PRIVACY)
    rows = users(problem.loss)
    zeros = np.c_[rows[:, :-1], np.zeros(M)]
    for bad, match in (
        (rows[:-1], "shape"),
        (rows[:, :-1], "shape"),
        (zeros, r"\+1"),
        (rows * 3, "norm at most 1"),
    ):
        with pytest.raises(ParameterError, match=match):
            run(protocol, bad, seed=1)
    ridged = PROBLEMS["ridge logistic"]
    phased = Phased.calibrated(
        n=M, problem=ridged, privacy=PRIVACY, optimiser=ShuffleACSA, phases=2
    )
    for bad, match in ((rows[:-1], "shape"), (zeros, r"\+1")):
        with pytest.raises(ParameterError, match=match):
            run(phased, bad, seed=1)


def test_declared_constants_move_plans_and_not_privacy():
    plain = Problem(Linear(), L2Ball(D, 1.0))
    kinked = dataclasses.replace(plain, declared_smoothness=math.inf)
    assert plain.smooth
    assert not kinked.smooth
    assert ShuffleACSA.calibrated(n=2000, problem=kinked, privacy=PRIVACY).smoothing is not None
    alike = dataclasses.replace(plain, declared_spread=0.0)
    kwargs = {"n": 2000, "privacy": PRIVACY, "rounds": 20}
    known, unknown = (
        ShuffleACSA.calibrated(problem=problem, **kwargs) for problem in (alike, plain)
    )
    assert known.mean.randomizer == unknown.mean.randomizer
    # The bound is for the noise that was planned: a little more than what whole bits leave.
    planned = Setting(n=2000, problem=alike, privacy=PRIVACY).squared_noise(100)
    assert known.schedule.sigma == pytest.approx(math.sqrt(planned))
    assert 0.95 < known.mean.squared_noise / planned <= 1
    assert unknown.schedule.sigma**2 == pytest.approx(known.schedule.sigma**2 + 1 / 100)
    for bad in ({"declared_spread": -1.0}, {"declared_smoothness": math.nan}):
        with pytest.raises(ParameterError, match="declared"):
            dataclasses.replace(plain, **bad)


def test_gd_chooses_no_more_rounds_than_pay():
    problem = Problem(Linear(), L2Ball(D, 1.0))
    protocol = ShuffleGD.calibrated(n=1000, problem=problem, privacy=PRIVACY)
    setting = Setting(n=1000, problem=problem, privacy=PRIVACY)
    most = ShuffleGD.expected_bound(setting, Choices({"rounds": 1000}))
    assert protocol.bound <= 1.06 * most
    assert protocol.rounds_per_user == protocol.rounds
