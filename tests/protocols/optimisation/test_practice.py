"""Tuned parameters: they follow from public numbers, keep epsilon, and learn; no bound is claimed.

Seeds are fixed, so every figure here is deterministic.
"""

import math

import numpy as np
import pytest

from protocols import (
    PrivateLogisticRegression,
    ShuffleACSA,
    ShuffleGD,
    ShuffleLogisticRegression,
    ShuffleSGD,
)
from protocols.learning.baselines import Baseline
from protocols.learning.training import Trainer
from protocols.optimisation import practice
from protocols.optimisation.practice import FeatureCentring, Momentum, clipped
from protocols.optimisation.setting import Setting
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Hinge, Logistic
from protocols.problems.multiclass import Softmax
from protocols.problems.problem import Problem
from protocols.problems.regression import Pinball, Squared
from protocols.shuffle.practice import practical
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import dense
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.trust import Trust

PRIVACY = Privacy(1.0, 1e-5)
PROBLEM = Problem(Logistic(), L2Ball(5, 100.0))


def rows(n, seed=0):
    """Rows in the unit ball, and labels that a linear model predicts with accuracy 0.8 or so."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)) * [1.0, 0.7, 0.5, 0.3, 0.2]
    x /= np.maximum(2.0, np.linalg.norm(x, axis=1, keepdims=True))
    score = x @ [1.0, -2.0, 3.0, -4.0, 5.0]
    return np.column_stack([x, np.where(score + rng.logistic(size=n) / 2 > 0, 1.0, -1.0)])


def accuracy(theta, found):
    return np.mean((found[:, :-1] @ theta > 0) == (found[:, -1] > 0))


@pytest.mark.parametrize("kind", [ShuffleGD, ShuffleSGD, ShuffleACSA])
def test_epsilon_is_recomputed_from_the_ledger(kind):
    made = practical(kind, n=2_000, problem=PROBLEM, privacy=PRIVACY)
    result = run(made, rows(2_000), seed=1)
    charges = result.ledger.charges
    accountant = ShuffleAccountant()
    accountant.compose(charges[0].event, made.rounds_per_user)
    assert len({charge.event for charge in charges}) == 1
    assert result.privacy.epsilon == pytest.approx(accountant.get_epsilon(1e-5))
    assert 0.9 < result.privacy.epsilon <= 1.0
    assert result.ledger.sequentially_interactive == kind.one_shot
    assert made.rounds_per_user == (1 if kind.one_shot else made.rounds)
    assert made.bound == math.inf
    assert "no bound is proven" in made.choices["rounds"]


def test_nothing_that_is_chosen_depends_on_data():
    models = [
        ShuffleLogisticRegression(random_state=1).fit(scale * each[:, :-1], each[:, -1])
        for scale, each in ((1.0, rows(300)), (0.01, rows(300, seed=1)))
    ]
    assert models[0].protocol_.choices == models[1].protocol_.choices
    events = [{charge.event for charge in model.result_.ledger.charges} for model in models]
    assert events[0] == events[1]


def test_gradients_are_clipped_to_what_the_noise_covers():
    """The clip binds: without it, users would exceed the norm bound."""
    made, people = practical(ShuffleGD, n=300, problem=PROBLEM, privacy=PRIVACY), rows(300)
    gradients = dense(PROBLEM.loss.gradients(np.zeros(5), people))
    assert np.linalg.norm(gradients, axis=1).max() > made.mean.norm_bound
    assert run(made, people, seed=1).reports.clipped > 0
    assert made.mean.randomizer.norm_bound == made.problem.lipschitz


@pytest.mark.long
def test_accuracy_rises_with_epsilon_above_the_bound_s():
    people, others = rows(20_000), rows(20_000, seed=1)
    found = {}
    for epsilon in (0.1, 1.0, 4.0):
        privacy = Privacy(epsilon, 1e-5)
        made = practical(ShuffleGD, n=20_000, problem=PROBLEM, privacy=privacy)
        found[epsilon] = accuracy(run(made, people, seed=1).value, others)
    assert found[0.1] < found[1.0] <= found[4.0] + 0.002
    proven = ShuffleGD.calibrated(
        n=20_000, problem=PROBLEM, privacy=PRIVACY, max_rounds_per_user=100
    )
    assert found[1.0] > accuracy(run(proven, people, seed=1).value, others) + 0.01
    free = practical(ShuffleGD, n=20_000, problem=PROBLEM, privacy=PRIVACY, trust="none")
    best = accuracy(run(Baseline(free, Trust.NONE), people, seed=1).value, others)
    assert found[4.0] > best - 0.01


def test_rounds_are_few_where_noise_rules():
    rounds = [
        practical(ShuffleGD, n=n, problem=PROBLEM, privacy=Privacy(0.1, 1e-5)).rounds
        for n in (300, 3_000, 100_000)
    ]
    assert rounds == sorted(rounds)
    assert rounds[0] < 20
    assert 60 < rounds[-1] < 240


@pytest.mark.parametrize(
    ("n", "d", "epsilon", "kind", "rounds"),
    [
        (456, 31, 1.0, ShuffleGD, 18),  # noise rules: as with a limit of 60
        (15_000, 5, 0.1, ShuffleGD, 35),
        (200_000, 18, 4.0, ShuffleGD, 240),  # noise is no matter
        (200_000, 18, 4.0, ShuffleSGD, 60),  # each user in one of the batches
        (10**6, 51, 4.0, ShuffleGD, 60),  # too long for what it may bring
        (10**5, 51, 4.0, ShuffleGD, 240),
    ],
)
@pytest.mark.full
def test_rounds_are_many_where_noise_and_time_allow(n, d, epsilon, kind, rounds):
    loss = Logistic(math.hypot(1, 0.25))
    problem = Problem(loss, L2Ball(d, 1000.0), constant=0.25)
    made = practical(kind, n=n, problem=problem, privacy=Privacy(epsilon, 1e-6))
    assert made.rounds == rounds


@pytest.mark.full
def test_more_rounds_tell_similar_columns_apart():
    """On fresh generated rows; 60 rounds are not enough there, whatever epsilon."""
    n, rng = 40_000, np.random.default_rng(5)
    factor, own = rng.normal(size=(2, n, 1)), rng.normal(size=(2, n, 2))
    x = np.clip(factor / 6 + 0.02 * own, -0.7, 0.7)
    score = factor[..., 0] + own[..., 0] - own[..., 1]
    y = np.where(score + rng.logistic(size=(2, n)) / 4 > 0, 1, 0)
    found = {}
    for rounds in (None, 60):
        model = ShuffleLogisticRegression(epsilon=2.0, rounds=rounds, random_state=1)
        found[rounds] = model.fit(x[0], y[0]).score(x[1], y[1])
    assert found[None] > found[60] + 0.01


def test_momentum_brakes_where_it_overshoots_by_more_than_noise():
    """On a parabola of curvature 1, a step of 8 would diverge."""
    domain = L2Ball(1, 1e6)
    for noise, brakes in ((0.0, True), (1e9, False)):
        momentum = Momentum(60, 8.0, noise)
        state = momentum.init_at(np.array([1.0]))
        for _ in range(60):
            state = momentum.step(state, state.ahead, domain)
        assert (abs(state.theta[0]) < 1e-6) == brakes
        assert (state.eta < 2.0) == brakes


def test_clips_are_as_the_losses_need_them():
    def clip(problem, n=300):
        return clipped(Setting(n=n, problem=problem, privacy=PRIVACY)).lipschitz

    def share(loss, n=300):
        return clip(Problem(loss, L2Ball(5, 100.0)), n) / loss.start_norm()

    assert share(Logistic()) == share(Hinge()) == share(Softmax(5)) == pytest.approx(0.35)
    assert share(Logistic(), 10**6) == 1  # where that leaves rounds enough
    assert share(Pinball(labels=1.0, quantile=0.8)) == 1  # a clip would move the quantile
    shares = [share(Squared(labels=1.0), n) for n in (300, 30_000, 10**7)]
    assert shares[0] == pytest.approx(0.07)  # where noise rules; where it is small, none is needed
    assert shares[0] < shares[1] < shares[2] == 1
    assert clip(Problem(Logistic(), L2Ball(5, 1.0), norm_bound=0.7)) == 0.7


def narrow(n, seed=0, columns=5):
    """Columns within a small part of their bounds, near the lower end; classes of all of them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, columns))
    x = (np.minimum(0.1 * z, 1.7) - 0.7) / math.sqrt(columns)
    return x, np.where(z.sum(axis=1) + rng.logistic(size=n) > 0, 1, 0)


@pytest.mark.parametrize("protocol", ["gd", "sgd"])
@pytest.mark.full
def test_features_far_from_the_middle_are_centred(protocol):
    """Without a released center descent would be little better than guessing."""
    (X, y), (others, answers) = narrow(5_000), narrow(5_000, seed=1)
    given = {"protocol": protocol, "random_state": 1}
    centred = ShuffleLogisticRegression(**given).fit(X, y)
    plain = ShuffleLogisticRegression(ridge=1e-12, **given).fit(X, y)  # a ridge has no center
    assert "center" in centred.protocol_.choices
    assert "center" not in plain.protocol_.choices
    assert centred.score(others, answers) > 0.75
    assert centred.score(others, answers) > plain.score(others, answers) + 0.03
    assert centred.privacy_.epsilon <= 1


def test_what_looks_costs_what_a_gradient_costs():
    """A round that looks has the event and the norm bound of every other."""
    X, y = narrow(2_000)
    model = ShuffleLogisticRegression(random_state=1).fit(X, y)
    made, charges = model.protocol_, model.result_.ledger.charges
    assert made.momentum.looks.rounds > 0
    assert len(charges) == made.rounds
    assert len({charge.event for charge in charges}) == 1


@pytest.mark.full
def test_several_classes_and_persons_are_centred():
    X, y = narrow(1_500)
    labels = y + (X[:, 0] > -0.7 / math.sqrt(5))
    several = ShuffleLogisticRegression(random_state=1, epsilon=4.0).fit(X, labels)
    assert several.protocol_.momentum.looks.rounds > 0
    assert several.score(X, labels) > 0.6
    persons = ShuffleLogisticRegression(random_state=1, epsilon=4.0)
    persons.fit(X, y, np.arange(1_500) // 2)
    assert persons.protocol_.momentum.looks.rounds > 0
    assert persons.score(X, y) > 0.7


@pytest.mark.parametrize("trust", [Trust.SHUFFLE, Trust.CENTRAL])
def test_centred_rows_are_cut_less_where_noise_allows(trust):
    """By the share of the gradient that the clip leaves: n, d, epsilon and delta alone."""

    problem = Problem(Logistic(math.hypot(1, 0.25)), L2Ball(18, 1000.0), constant=0.25)

    def wide(n, epsilon):
        privacy = Privacy(epsilon, 1e-5)
        made = practical(ShuffleGD, n=n, problem=problem, privacy=privacy, trust=trust)
        return made.momentum.looks.wide

    assert wide(500, 4.0) == wide(3_000, 1.0) == wide(30_000, 1.0) == 1  # where noise rules
    assert 1 < wide(150_000, 1.0) < wide(400_000, 1.0) == 2


def rare(n, seed):
    """Two numbers, and three flags that few people have, which say most of their class."""
    rng = np.random.default_rng(seed)
    flags = rng.random((n, 3)) < 0.05
    x = np.column_stack([rng.uniform(-0.3, 0.3, (n, 2)), 2.0 * flags - 1]) / math.sqrt(5)
    chance = 1 / (1 + np.exp(0.6 - 2 * flags.sum(axis=1)))
    return x, (rng.random(n) < chance).astype(int)


@pytest.mark.full
def test_rare_categories_keep_their_chances(monkeypatch):
    """Planted: the short length, which cuts rows of rare categories, costs 0.03 nats or more."""
    (X, y), (others, answers) = rare(60_000, 0), rare(40_000, 1)

    def log_loss():
        model = PrivateLogisticRegression(epsilon=4.0, random_state=1).fit(X, y)
        margins = model.decision_function(others) * (2 * answers - 1)
        return np.logaddexp(0, -margins).mean()

    found = log_loss()
    monkeypatch.setitem(practice._CENTRED_LENGTH, True, (1.0, 1.0))
    assert found < log_loss() - 0.03


def test_a_mean_that_is_all_noise_is_not_believed():
    looks, loss = FeatureCentring(1, 4, 0.25, 1.0, 1.0), Logistic(math.hypot(1, 0.25))
    unit = looks.asked(loss).unit
    found = unit * np.array([0.3, -0.3, 0.3, -0.3, 0.5])
    for noise, share in ((0.0, 1.0), (0.15, 0.75), (0.4, 0.0)):
        centred = looks.centred(loss, found, noise * unit)
        np.testing.assert_allclose(centred.center, share * found[:4] / unit, atol=1e-12)
        assert 0.1 <= centred.scale <= 1
    assert looks.centred(loss, 0 * found, 0.0).scale == 0.1  # never nothing


@pytest.mark.parametrize(("classes", "features"), [(2, 1.0), (3, 2.0), (7, 0.5)])
def test_no_gradient_at_the_start_is_longer_than_stated(classes, features):
    loss = Softmax(classes, features)
    table = np.array([[features, 0.0, label] for label in range(classes)])
    norms = np.linalg.norm(loss.gradients(np.zeros(2 * classes), table), axis=1)
    assert norms == pytest.approx(np.full(classes, loss.start_norm()))


def test_what_rests_on_bounds_is_refused():
    for name, value in (("schedule", "paper"), ("eta", 0.1)):
        with pytest.raises(ParameterError) as error:
            practical(ShuffleACSA, n=300, problem=PROBLEM, privacy=PRIVACY, **{name: value})
        assert error.value.parameter == name
    trainer = Trainer(Logistic(), 5, PRIVACY, ridge=0.1, choose="practice")
    with pytest.raises(ParameterError, match=r"phases = 0.*choose='bound'"):
        trainer.protocol("shuffle-gd", 300, phases=0)
    with pytest.raises(ParameterError, match=r"hyper = 'paper'.*choose='bound'"):
        trainer.protocol("shuffle-gd", 300, hyper="paper")
    with pytest.raises(ParameterError, match="choose = 'best'"):
        Trainer(Logistic(), 5, PRIVACY, choose="best")
