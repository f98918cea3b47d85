"""Scikit-learn estimators for unbounded features, by a trusted curator, purely private.

Rows are taken as they are: no bound of features or targets is needed. Gradients are clipped, and
the clip is chosen by moments that are given, or by a private histogram (`HeavyTailedERM`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.learning.linear_model import (
    LinearEstimator,
    Sample,
    of_one_fit,
    refuse_groups,
    seed_of,
)
from protocols.learning.targets import LinearClassifier, LinearRegressor
from protocols.learning.training import Trainer
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.moments import Moments
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, flag, positive
from shuffle_sim.execution.runtime import Runtime


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyTailedModel(LinearEstimator):
    """What the estimators share; not for use by itself.

    Formal guarantee: `privacy_`, pure, of the whole training, replace-one. What is public: every
    parameter, the numbers of rows and columns, the column names and the classes.

    Args:
        epsilon: of the whole training; delta is 0.
        moments: of the largest gradient of a row over the ball, as (k, G_k) or (k, G_k, G_2, G_1);
            None: a private histogram of a tenth of the rows, or with `feature_bound` the loss's own
            bound, where it has one.
        feature_bound: l2 bound of a row; longer rows are clipped. None: none.
        radius: l2 bound of all parameters together, the intercept included, in the data's units.
        ridge: adds ridge/2 times the squared l2 norm of all parameters.
        fit_intercept: whether a constant is fitted.
        scale: unit of the histogram's bins, 2^-10 to 2^10 of it; public.
        noise: "float", or "discrete" for noise drawn exactly.
        runtime: "inprocess", "processes", "ray", another registered name, or a runtime.
        workers: shards of the data.
        random_state: None takes entropy from the operating system; anything else makes the training
            reproducible, and therefore not private.

    Attributes:
        coef_, intercept_: the model.
        n_iter_: releases.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        algorithm_: what was run; its `choices` say what was chosen, and why.
        result_: of the run.
        privacy_: the guarantee.
    """

    epsilon: float = 1.0
    moments: Any = None
    feature_bound: float | None = None
    radius: float = 10.0
    ridge: float = 0.0
    fit_intercept: bool = True
    scale: float = 1.0
    noise: str = "float"
    runtime: str | Runtime = "inprocess"
    workers: int = 1
    random_state: Any = None

    def _train(self, data: Sample) -> tuple[Floats, Floats]:
        refuse_groups(data.groups)
        flag("fit_intercept", self.fit_intercept)
        X = data.X
        (n, columns), constant = X.shape, int(self.fit_intercept)
        bound = math.inf
        if self.feature_bound is not None:
            bound = positive("feature_bound", self.feature_bound)
            # hypot: squares of unbounded features may overflow.
            X = X * (bound / np.maximum(np.hypot.reduce(X, axis=1, keepdims=True), bound))
        rows = np.column_stack([X, np.ones((n, constant)), data.labels])
        made = data.loss(math.hypot(bound, constant))
        known = made.lipschitz(positive("radius", self.radius))
        given: dict[str, Any] = {"noise": self.noise}
        moments = None if self.moments is None else _moments(self.moments)
        # Only gradients without any bound need a private look at their size.
        pilot = moments is None and math.isinf(known)
        if pilot:
            given["scale"] = positive("scale", self.scale)
            if n < 2:
                raise ParameterError("X", f"{n} sample", "more than one sample: some for a pilot")
        trainer = Trainer(
            made,
            data.outputs * (columns + constant),
            Privacy(self.epsilon),
            radius=self.radius,
            ridge=self.ridge,
            norm_bound=math.inf if math.isinf(known) else None,
            moments=moments,
            pilot=pilot,
        )
        seed = seed_of(self.random_state)
        algorithm = trainer.central("heavy-tailed-erm", n, **given)
        order = np.random.default_rng(seed).permutation(n)  # phases of neighbouring rows: no sample
        result = run(algorithm, rows[order], seed=seed, runtime=self.runtime, workers=self.workers)
        self.algorithm_, self.result_ = algorithm, result
        self.privacy_, self.n_iter_ = of_one_fit(result.privacy), result.rounds
        theta = np.asarray(result.value).reshape(data.outputs, -1)
        return theta[:, :columns], theta[:, columns:].sum(axis=1)


def _moments(given: Any) -> Moments:
    if isinstance(given, Moments):
        return given
    if not isinstance(given, Sequence) or not 2 <= len(given) <= 4:
        raise ParameterError("moments", given, "(k, G_k), (k, G_k, G_2) or (k, G_k, G_2, G_1)")
    return Moments(*given)


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyTailedRegressor(HeavyTailedModel, LinearRegressor):
    """Robust linear regression on features and targets without bounds, purely private.

    Args:
        loss: "absolute", "huber", "pinball", "squared" or another registered loss of numbers; or
            such a loss.
        threshold: of the Huber loss, in the target's units.
        quantile: of the pinball loss.
    """

    loss: str | LinearLoss = "absolute"
    threshold: float = 1.0
    quantile: float = 0.5

    target_bounds = None
    loss_parameters = ("threshold", "quantile")


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyTailedClassifier(HeavyTailedModel, LinearClassifier):
    """A linear classifier on features without bounds, purely private.

    Args:
        loss: "logistic", "hinge" or another registered loss of classes; or such a loss. More than
            two classes take "logistic", as softmax: one joint model.
        classes: the public labels; None takes those in y and assumes that they are public.
    """

    loss: str | LinearLoss = "logistic"
    classes: Sequence[Any] | None = None
