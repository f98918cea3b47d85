"""Estimators: scikit-learn's checks and models, privacy as stated, clipping, refusals.

Seeds are fixed, so every figure here is deterministic; where a law is compared, the false-alarm
rate is stated.
"""

import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import approx_fprime, minimize
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from protocols import ShuffleSGD
from protocols.learning.estimators import (
    ClippingWarning,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleRegressor,
)
from protocols.learning.notes import SelectionWarning
from protocols.optimisation import Phased
from protocols.problems.losses import Hinge, Logistic
from protocols.problems.multiclass import OneVsRestHinge, Softmax
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.sums.buckets import BucketRandomizer
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.planner import SumSpec

CLASSIFIERS = [ShuffleLogisticRegression, ShuffleLinearSVC]
ESTIMATORS = [*CLASSIFIERS, ShuffleRegressor]


def people(n=400, classes=2, d=4, seed=0):
    """Rows in the unit ball, with classes drawn from a softmax of linear scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return x, (x @ (3 * rng.normal(size=(d, classes))) + rng.gumbel(size=(n, classes))).argmax(
        axis=1
    )


def measured(n=400, seed=0):
    """Rows in the unit ball, with targets in [-1, 1]."""
    x, _ = people(n, seed=seed)
    noise = 0.1 * np.random.default_rng(seed + 1).normal(size=n)
    return x, np.clip(x @ [0.5, -0.3, 0.2, 0.0] + 0.2 + noise, -1, 1)


def data_for(estimator, n=400):
    return measured(n) if estimator is ShuffleRegressor else people(n)


# Encodings


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.full
def test_buckets_need_no_noise_ratio(estimator):
    """They cannot have the 1.05 of other encodings; a ratio that was given is refused by name."""
    x, y = data_for(estimator, 2000)
    given = {"epsilon": 4.0, "encoding": "buckets", "rotation": 3, "random_state": 1}
    model = estimator(**given).fit(x, y)
    assert 3.9 < model.privacy_.epsilon <= 4.0
    sums = [spec.randomizer for spec in [model.protocol_.plan(model.protocol_.init())]]
    assert all(isinstance(each, BucketRandomizer) for each in sums)
    assert clone(model).noise_ratio is None
    with pytest.raises(ParameterError, match=r"noise_ratio = 1.05: must be at least"):
        estimator(noise_ratio=1.05, **given).fit(x, y)


# Agreement as the noise vanishes


def with_constant(x):
    return np.column_stack([x, np.ones(len(x))])


def logistic_reference(x, y, ridge):
    return LogisticRegression(
        C=1 / (ridge * len(x)), fit_intercept=False, tol=1e-8, max_iter=10_000
    ).fit(with_constant(x), y)


def hinge_reference(x, y, ridge):
    model = LinearSVC(
        C=1 / (ridge * len(x)), loss="hinge", fit_intercept=False, tol=1e-6, max_iter=1_000_000
    )
    return model.fit(with_constant(x), y)


def ridge_reference(x, y, ridge):
    return Ridge(alpha=ridge * len(x), fit_intercept=False).fit(with_constant(x), y)


def distance(model, reference):
    """Of the parameters, relative to the reference's."""
    ours = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)])
    return np.linalg.norm(ours - reference.coef_) / np.linalg.norm(reference.coef_)


@pytest.mark.parametrize(
    ("estimator", "data", "reference", "curvature", "radius"),
    [
        (ShuffleLogisticRegression, people(5_000, 2), logistic_reference, 0.5, 5.0),
        (ShuffleLogisticRegression, people(5_000, 3), logistic_reference, 1.0, 5.0),
        (
            ShuffleRegressor,
            measured(5_000),
            ridge_reference,
            2.0,
            1.0,
        ),  # its noise grows with the radius
    ],
    ids=["logistic", "multinomial", "ridge"],
)
@pytest.mark.full
def test_as_noise_vanishes_smooth_models_are_scikit_learn_s(
    estimator, data, reference, curvature, radius
):
    """The tolerance is a theorem.

    For eta = 1/beta the iterates approach by 1 - eta lambda each, so that their average is off
    by 1/(eta lambda T) of the distance at most. Noise of length rho a round moves it by
    rho/(lambda sqrt T) in the root mean square (4 times that: false alarm below 1e-4 for these
    dimensions).
    """
    ridge, rounds, eta = 0.2, 300, 1 / (curvature + 0.2)
    model = estimator(
        epsilon=64,
        ridge=ridge,
        rounds=rounds,
        eta=eta,
        radius=radius,
        choose="bound",
        random_state=1,
    ).fit(*data)
    found = reference(*data, ridge)
    rho = math.sqrt(model.protocol_.mean.squared_noise) / np.linalg.norm(found.coef_)
    tolerance = 1 / (eta * ridge * rounds) + 4 * rho / (ridge * math.sqrt(rounds))
    assert distance(model, found) < tolerance < 0.08
    # Power: a larger ridge is seen.
    assert distance(model, reference(*data, 1.5 * ridge)) > tolerance
    assert distance(model, reference(-data[0], data[1], ridge)) > tolerance


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.full
def test_as_noise_vanishes_the_linear_svc_is_scikit_learn_s(classes):
    """Excess objective within Lemma 4.2 plus the envelope's error, at the step given."""
    (x, y), ridge, rounds, eta = people(5_000, classes), 0.2, 300, 0.05
    model = ShuffleLinearSVC(
        epsilon=64, ridge=ridge, rounds=rounds, eta=eta, radius=4, choose="bound", random_state=1
    ).fit(x, y)
    reference = hinge_reference(x, y, ridge)
    problem, star = model.protocol_.problem, reference.coef_.ravel()
    rows = np.column_stack([with_constant(x), 2.0 * y - 1 if classes == 2 else y])
    noise = model.protocol_.mean.squared_noise
    bound = (
        ShuffleSGD.gap(problem, np.linalg.norm(star), eta, rounds, noise)
        + problem.lipschitz**2 * eta / 2
    )
    gap = problem.risk(model.result_.value, rows) - problem.risk(star, rows)
    assert -1e-4 < gap < bound
    assert problem.risk(-star, rows) - problem.risk(star, rows) > bound  # power
    assert np.mean(model.predict(x) == reference.predict(with_constant(x))) > 0.98


@pytest.mark.full
def test_the_regressor_answers_in_the_units_of_the_data():
    x, y = measured()
    model = ShuffleRegressor(random_state=1).fit(x, y)
    scaled = ShuffleRegressor(random_state=1, feature_bound=50.0, target_bounds=(0.0, 400.0)).fit(
        50 * x, 200 + 200 * y
    )
    assert np.allclose(scaled.coef_ * 50, 200 * model.coef_)
    assert np.allclose(scaled.predict(50 * x), 200 + 200 * model.predict(x))
    through_zero = ShuffleRegressor(
        random_state=1, fit_intercept=False, target_bounds=(0.0, 2.0)
    ).fit(x, np.abs(y))
    assert through_zero.intercept_ == 0
    assert through_zero.predict(np.zeros((1, 4))) == 0


# What it does at an epsilon people use


@pytest.mark.slow_parameters("ShuffleLinearSVC-counterpart3-4-0.03")
@pytest.mark.full
@pytest.mark.parametrize(
    ("estimator", "counterpart", "classes", "short"),
    [
        (ShuffleLogisticRegression, LogisticRegression(), 2, 0.01),
        (ShuffleLogisticRegression, LogisticRegression(), 4, 0.01),
        (ShuffleLinearSVC, LinearSVC(loss="hinge", max_iter=100_000), 2, 0.01),
        (
            ShuffleLinearSVC,
            LinearSVC(loss="hinge", max_iter=100_000),
            4,
            0.03,
        ),  # optimisation's, not privacy's: docs
    ],
)
@pytest.mark.full
def test_accuracy_at_epsilon_1_is_near_scikit_learn_s(estimator, counterpart, classes, short):
    """Held-out accuracy is short of the counterpart's by no more than stated, for three seeds."""
    x, y = people(20_000, classes, seed=5)
    train, test = slice(15_000), slice(15_000, None)
    reference = counterpart.fit(x[train], y[train]).score(x[test], y[test])
    for seed in (3, 4, 5):
        model = estimator(random_state=seed).fit(x[train], y[train])
        assert model.privacy_.epsilon <= 1
        assert model.score(x[test], y[test]) > reference - short
    assert np.bincount(y[test]).max() / 5_000 < reference - 0.1  # power: learning nothing fails


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "pinball"])
@pytest.mark.full
def test_every_loss_of_the_regressor_finds_its_quantile_or_mean(loss):
    """Symmetric noise: half of the targets lie below the prediction, or pinball's share."""
    x, y = measured(20_000)
    protocol = "gd" if loss in ("squared", "huber") else "acsa"  # kinks take more and shorter steps
    model = ShuffleRegressor(
        loss=loss, quantile=0.8, protocol=protocol, radius=2, random_state=2
    ).fit(x, y)
    assert model.privacy_.epsilon <= 1
    assert model.score(x, y) > 0.6
    assert abs(np.mean(y < model.predict(x)) - (0.8 if loss == "pinball" else 0.5)) < 0.12


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("protocol", ["gd", "sgd", "acsa", "shuffle-gd"])
@pytest.mark.full
def test_every_protocol_trains_and_is_as_interactive_as_it_says(estimator, protocol):
    trained(estimator, protocol, {})


@pytest.mark.parametrize(
    ("estimator", "protocol"),
    [
        (ShuffleRegressor, "acsa"),
        pytest.param(ShuffleLogisticRegression, "gd", marks=pytest.mark.slow),
        pytest.param(ShuffleLinearSVC, "sgd", marks=pytest.mark.slow),
    ],
)
@pytest.mark.full
def test_every_protocol_trains_in_phases(estimator, protocol):
    model = trained(estimator, protocol, {"phases": True, "ridge": 0.5, "choose": "bound"})
    assert isinstance(model.protocol_, Phased)


def trained(estimator, protocol, parameters):
    x, y = data_for(estimator, 3000)
    model = estimator(protocol=protocol, epsilon=4.0, radius=3, random_state=1, **parameters).fit(
        x, y
    )
    assert model.result_.ledger.sequentially_interactive == ("gd" not in protocol.split("-"))
    assert model.privacy_.epsilon <= 4.0
    assert model.n_iter_ == model.result_.rounds == model.costs_.rounds
    assert model.score(x, y) > (
        0.0 if estimator is ShuffleRegressor else np.bincount(y).max() / len(y)
    )
    return model


# Privacy


@pytest.mark.parametrize("protocol", ["gd", "acsa"])
@pytest.mark.parametrize(
    ("estimator", "classes", "vectors"),
    [(c, k, 1 if k == 2 else k) for c in CLASSIFIERS for k in (2, 4)],
)
@pytest.mark.full
def test_the_guarantee_holds_for_all_classes_together(estimator, protocol, classes, vectors):
    """Recomputed from the ledger: one release a round, of every class's gradient at once."""
    x, y = people(classes=classes)
    asked = {"epsilon": 1.5, "delta": 1e-5, "protocol": protocol, "random_state": 1}
    model = estimator(choose="bound", **asked).fit(x, y)
    charges = model.result_.ledger.charges
    assert len(charges) == model.n_iter_
    assert {charge.event.coordinates for charge in charges} == {vectors * 5}
    accountant = ShuffleAccountant()
    accountant.compose(charges[0].event, model.n_iter_ if protocol == "gd" else 1)
    assert model.privacy_.epsilon == pytest.approx(accountant.get_epsilon(1e-5))
    assert model.privacy_.epsilon <= 1.5
    assert model.privacy_.delta == 1e-5
    assert any("classes" in each for each in model.privacy_.assumptions)
    # The release's sensitivity rests on the bound of a user's gradient: none was longer.
    assert model.result_.reports.clipped == 0
    worst = worst_gradient(model.protocol_.problem.loss, 5)
    assert (
        0.98 * model.protocol_.mean.norm_bound
        < worst
        <= model.protocol_.mean.norm_bound * (1 + 1e-12)
    )


def worst_gradient(loss, columns):
    """The longest gradient of 20,000 pairs of parameters and a user at the features' bound."""
    rng = np.random.default_rng(0)
    vectors = getattr(loss, "classes", 1)
    found = 0.0
    for size in (0.0, 2.0, 10.0):  # the largest is also the radius
        theta = rng.normal(size=vectors * columns)
        theta *= size / np.linalg.norm(theta)
        x = rng.normal(size=(5_000, columns))
        x = np.concatenate([x, theta.reshape(vectors, columns), -theta.reshape(vectors, columns)])
        x *= loss.features / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
        y = (
            rng.integers(vectors, size=len(x))
            if vectors > 1
            else rng.choice([-1.0, 1.0], size=len(x))
        )
        found = max(
            found,
            np.linalg.norm(dense(loss.gradients(theta, np.column_stack([x, y]))), axis=1).max(),
        )
    return found


def test_power_a_bound_for_one_class_would_be_seen():
    """Four classes whose gradients are bounded as one class's: users exceed the bound."""
    loss = OneVsRestHinge(4, math.sqrt(2))
    assert worst_gradient(loss, 5) > 1.9 * Hinge(math.sqrt(2)).lipschitz(10.0)
    assert worst_gradient(Softmax(4, math.sqrt(2)), 5) > 1.3 * Logistic(math.sqrt(2)).lipschitz(
        10.0
    )


def test_one_vector_for_all_classes_costs_no_more_noise():
    """K releases at 1/sqrt(K) of the budget carry, per coordinate, the noise of a stacked one."""
    model = ShuffleLinearSVC(random_state=1, rounds=10, choose="bound").fit(*people(classes=4))
    one = NoisyMean.calibrated(SumSpec(400, 5, Privacy(1.0, 1e-6), rounds=40), math.sqrt(2))
    assert model.protocol_.mean.squared_noise / 20 <= 1.06 * one.squared_noise / 5


@pytest.mark.parametrize(
    "loss", [Softmax(3, 2.0), OneVsRestHinge(3, 2.0)], ids=["softmax", "hinge"]
)
def test_gradients_of_several_classes_are_those_of_the_loss(loss):
    rng = np.random.default_rng(0)
    theta, rows = (
        rng.normal(size=9),
        np.column_stack([rng.normal(size=(20, 3)) / 2, rng.integers(3, size=20)]),
    )
    for row in rows[:, None]:
        numeric = approx_fprime(theta, lambda t, row=row: loss.values(t, row)[0], 1e-7)
        assert np.allclose(loss.gradients(theta, row)[0], numeric, atol=1e-5)


def test_the_envelope_of_the_hinge_losses_is_that_of_their_sum():
    loss, beta, rng = OneVsRestHinge(3, 2.0), 3.0, np.random.default_rng(0)
    for row in np.column_stack([rng.normal(size=(5, 2)) / 2, rng.integers(3, size=5)])[:, None]:
        theta = rng.normal(size=6)
        gradient = dense(loss.gradients(theta, row, beta))[0]
        near = theta - gradient / beta

        def objective(t, row=row, theta=theta):
            return loss.values(t, row)[0] + beta / 2 * np.sum((t - theta) ** 2)

        found = min(
            (
                minimize(
                    objective, theta, method="Powell", options={"xtol": 1e-9, "ftol": 1e-12}
                ).fun
            ),
            objective(theta),
        )
        assert objective(near) <= found + 1e-7
    with pytest.raises(ParameterError, match="smooth as it is"):
        Softmax(3).gradients(np.zeros(6), np.zeros((1, 3)), 1.0)


def test_rows_that_are_no_row_of_several_classes_are_refused():
    for row, message in (
        ([3.0, 0.0, 1.0], "l2 norm"),
        ([0.1, 0.0, 3.0], "labelled"),
        ([0.1, 0.0, 0.5], "labelled"),
    ):
        with pytest.raises(ParameterError, match=message):
            Softmax(3).check(np.array([[0.0, 0.0, 0.0], row]), 6)
    with pytest.raises(ParameterError, match="classes = 1"):
        Softmax(1)


# Reproducibility


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.full
def test_a_seed_reproduces_and_its_absence_is_private(estimator):
    x, y = data_for(estimator)
    first, again, other = (
        estimator(random_state=seed, protocol="acsa").fit(x, y) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.coef_, again.coef_)
    assert not np.array_equal(first.coef_, other.coef_)
    assert not first.result_.private
    free = [estimator(protocol="acsa").fit(x, y) for _ in range(2)]
    assert all(each.result_.private for each in free)
    assert not np.array_equal(free[0].coef_, free[1].coef_)
    drawn = [
        estimator(random_state=np.random.RandomState(0), protocol="acsa").fit(x, y)
        for _ in range(2)
    ]
    assert np.array_equal(drawn[0].coef_, drawn[1].coef_)
    assert not drawn[0].result_.private


@pytest.mark.full
def test_what_was_chosen_is_recorded():
    data = people(80)
    chosen, asked = (
        ShuffleLogisticRegression(rounds=rounds, choose="bound")
        .fit(*data)
        .protocol_.choices["rounds"]
        for rounds in (None, 3)
    )
    assert "best bound" in chosen
    assert asked == "given"
    few, most = (
        ShuffleLogisticRegression(rounds=rounds, choose="bound").fit(*people(1000)).protocol_
        for rounds in (None, 100)
    )
    assert 3 < few.rounds < 100
    assert few.bound <= 1.05 * most.bound
    practical = ShuffleLogisticRegression().fit(*people(1000)).protocol_
    assert "no bound is proven" in practical.choices["rounds"]
    assert practical.bound == math.inf


def test_batches_are_a_sample_though_the_rows_are_sorted():
    x, y = people(2000)
    order = np.argsort(y, kind="stable")
    model = ShuffleLogisticRegression(protocol="sgd", batch=200, epsilon=8.0, random_state=1).fit(
        x[order], y[order]
    )
    assert model.score(x, y) > 0.8


def test_workers_and_fidelity_are_handed_on():
    x, y = people(60)
    alone = ShuffleLogisticRegression(random_state=1, rounds=3).fit(x, y)
    two = clone(alone).set_params(workers=2, runtime=InProcessRuntime()).fit(x, y)
    assert np.array_equal(alone.coef_, two.coef_)
    assert (alone.result_.workers, two.result_.workers) == (1, 2)
    literal = clone(alone).set_params(fidelity="literal", noise_ratio=2.0).fit(x, y)
    assert literal.result_.fidelity == "literal"
    assert literal.costs_.measured
    assert literal.costs_.wire_bytes > 0


# Clipping


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.full
def test_rows_beyond_the_bound_train_as_clipped_and_are_counted(estimator):
    x, y = data_for(estimator)
    x = 3 * x
    x[0] = 1e300
    norms = np.hypot.reduce(x, axis=1)
    with pytest.warns(ClippingWarning, match="public bounds"):
        long = estimator(random_state=1, rounds=10).fit(x, y)
    assert long.clipped_ == np.count_nonzero(norms > 1)
    short = estimator(random_state=1, rounds=10).fit(
        x / np.maximum(norms, 1)[:, None] * (1 - 1e-12), y
    )
    assert short.clipped_ == 0
    assert np.allclose(long.coef_, short.coef_, atol=1e-6)
    wide = estimator(random_state=1, rounds=10, feature_bound=3.0).fit(x, y)
    assert wide.clipped_ == 1  # few: no warning
    assert not np.allclose(long.coef_, wide.coef_)


def test_targets_beyond_the_bounds_train_as_if_clipped_before():
    x, y = measured()
    y[:3] = [5.0, -7.0, 1e300]
    model = ShuffleRegressor(random_state=1).fit(x, y)
    assert model.clipped_ == 3
    assert np.array_equal(
        model.coef_, ShuffleRegressor(random_state=1).fit(x, np.clip(y, -1, 1)).coef_
    )


def test_bounds_never_come_from_the_data():
    """Everything public about a run is the same on other data of the same shape."""
    x, y = people()
    models = [
        ShuffleLogisticRegression(random_state=1, rounds=2).fit(rows, y) for rows in (x, x / 100)
    ]
    events = [[charge.event for charge in model.result_.ledger.charges] for model in models]
    assert events[0] == events[1]
    assert models[0].protocol_.choices == models[1].protocol_.choices


# Life in scikit-learn


def halved(rows):
    return rows / 2


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.full
def test_pipelines_searches_pickles_and_clones(estimator):
    x, y = data_for(estimator)
    pipeline = make_pipeline(FunctionTransformer(halved), estimator(random_state=1, rounds=3))
    scores = cross_val_score(pipeline, x, y, cv=3)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    name = pipeline.steps[-1][0]
    search = GridSearchCV(
        pipeline, {f"{name}__radius": [1.0, 5.0], f"{name}__protocol": ["gd", "sgd"]}, cv=2
    )
    with pytest.warns(SelectionWarning, match=r"select=") as caught:
        search.fit(x, y)
    assert len(caught) == 1  # of nine fits
    best = search.best_estimator_[-1]
    assert {"radius": best.radius, "protocol": best.protocol} == {
        k.partition("__")[2]: v for k, v in search.best_params_.items()
    }
    loaded = pickle.loads(pickle.dumps(best))
    assert np.array_equal(loaded.predict(x), best.predict(x))
    assert str(loaded.privacy_) == str(best.privacy_)
    copy = clone(best)
    assert copy.get_params() == best.get_params()
    assert not hasattr(copy, "coef_")


def test_columns_keep_their_names():
    x, y = measured()
    table = pa.table({"age": x[:, 0], "income": x[:, 1]})
    model = ShuffleRegressor(random_state=1, rounds=2).fit(table, y)
    assert model.feature_names_in_.tolist() == ["age", "income"]
    turned = pa.table({"more": y, "income": x[:, 1], "age": x[:, 0]})
    assert np.array_equal(model.predict(turned), model.predict(table))
    with pytest.raises(ParameterError, match="column income"):
        model.predict(pa.table({"age": x[:, 0], "more": x[:, 1]}))


@pytest.mark.parametrize("estimator", CLASSIFIERS)
@pytest.mark.full
def test_public_classes_may_be_more_than_occur(estimator):
    x, y = people()
    names = np.array(["no", "yes"])[y]
    taken = estimator(random_state=1, rounds=2).fit(x, names)
    assert taken.classes_.tolist() == ["no", "yes"]
    assert taken.coef_.shape == (1, 4)
    assert any("taken from y" in each for each in taken.privacy_.assumptions)
    given = estimator(random_state=1, rounds=2, classes=["maybe", "no", "yes"]).fit(x, names)
    assert given.classes_.tolist() == ["maybe", "no", "yes"]
    assert given.coef_.shape == (3, 4)
    assert given.decision_function(x).shape == (400, 3)
    assert any("(given)" in each for each in given.privacy_.assumptions)
    with pytest.raises(ParameterError, match=r"y\[\d+\] \(not shown\).*one of the classes"):
        estimator(classes=["no", "maybe"]).fit(x, names)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.full
def test_probabilities_are_those_of_the_scores(classes):
    x, y = people(classes=classes)
    model = ShuffleLogisticRegression(random_state=1).fit(x, y)
    probabilities, scores = model.predict_proba(x), model.decision_function(x)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(probabilities.argmax(axis=1), model.predict(x))
    assert np.allclose(np.exp(model.predict_log_proba(x)), probabilities)
    odds = probabilities[:, 1] / probabilities[:, 0]
    assert np.allclose(np.log(odds), scores if classes == 2 else scores[:, 1] - scores[:, 0])
    far = model.decision_function(1e4 * x)
    assert np.isfinite(model.predict_proba(1e4 * x)).all()
    assert np.abs(far).max() > 50


# Bad input

BAD = [
    ("epsilon", 0.0),
    ("epsilon", -1.0),
    ("epsilon", math.nan),
    ("epsilon", 1e9),
    ("epsilon", "1"),
    ("protocol", ["gd"]),
    ("delta", 0.0),
    ("delta", 1.0),
    ("delta", 1e-51),
    ("protocol", "adam"),
    ("phases", "yes"),
    ("choose", "best"),
    ("choose", None),
    ("rounds", 0),
    ("rounds", 2.5),
    ("batch", 10),
    ("eta", 0.0),
    ("eta", math.inf),
    ("radius", 0.0),
    ("radius", math.inf),
    ("feature_bound", 0.0),
    ("feature_bound", math.nan),
    ("feature_bound", None),
    ("ridge", -1.0),
    ("ridge", math.nan),
    ("fit_intercept", "no"),
    ("noise_ratio", 1.0),
    ("noise_ratio", 0.0),
    ("honest_fraction", 0.0),
    ("honest_fraction", 1.1),
    ("runtime", "cloud"),
    ("workers", 0),
    ("workers", 401),
    ("fidelity", "exact"),
    ("random_state", -1),
    ("random_state", "seed"),
]


def refused(estimator, name, data):
    with pytest.raises(ParameterError) as error:
        estimator.fit(*data)
    assert error.value.parameter == name
    assert error.value.ledger is None or not error.value.ledger.charges  # nothing was released
    assert not hasattr(estimator, "coef_")
    assert not hasattr(estimator, "result_")


@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
@pytest.mark.parametrize("estimator", [ShuffleLogisticRegression, ShuffleRegressor])
def test_bad_parameters_are_refused_by_name_before_any_release(estimator, name, value):
    refused(estimator(**{name: value}), name, data_for(estimator))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"loss": "cubic"}, "loss"),
        ({"loss": "huber", "threshold": 0.0}, "threshold"),
        ({"loss": "pinball", "quantile": 1.0}, "quantile"),
        ({"target_bounds": (1.0, 1.0)}, "target_bounds"),
        ({"target_bounds": (0.0, math.inf)}, "target_bounds"),
        ({"target_bounds": 3.0}, "target_bounds"),
        ({"target_bounds": (0.0, 1.0, 2.0)}, "target_bounds"),
        ({"phases": True, "ridge": 0.1, "rounds": 3, "choose": "bound"}, "rounds"),
        ({"phases": True, "ridge": 0.1}, "phases"),
        ({"protocol": "acsa", "eta": 0.1}, "eta"),
        ({"protocol": "sgd", "batch": 1000}, "batch"),
        ({"protocol": "sgd", "batch": 100, "rounds": 5}, "rounds"),
        ({"phases": True}, "ridge"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused_by_name(parameters, name):
    refused(ShuffleRegressor(**parameters), name, measured())


def test_bad_classes_and_rows_are_refused():
    x, y = people()
    refused(ShuffleLinearSVC(classes=[0]), "classes", (x, y))
    refused(ShuffleLinearSVC(), "classes", (x, np.zeros(400)))
    for estimator in ESTIMATORS:
        for rows, labels, message in (
            (x[:0], y[:0], "0 sample"),
            (x * np.nan, y, "NaN"),
            (x, y[:-1], "inconsistent"),
        ):
            with pytest.raises(ValueError, match=message):
                estimator().fit(rows, labels)
    with pytest.raises(ValueError, match="continuous"):
        ShuffleLinearSVC().fit(x, x[:, 0])
