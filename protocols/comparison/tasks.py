"""What a study may run without own code: sums and counts of generated data, training on a table."""

from typing import Any

import numpy as np

from protocols.counts.histogram import Histogram
from protocols.learning.splits import Split
from protocols.learning.training import Trained, Trainer
from shuffle_sim.attacks import attacks
from shuffle_sim.data.labelled import labelled
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.result import Result
from shuffle_sim.experiments import Trial
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.registry import registered


def sum_task(
    protocol: str,
    n: int,
    d: int = 1,
    epsilon: float = 1.0,
    delta: float = DELTA,
    noise_ratio: float | None = None,
    max_bits: int | None = None,
    honest_fraction: float = 1.0,
    attack: str = "",
    fidelity: str | None = None,
    seed: int | None = None,
) -> Trial:
    """A sum of n random users, beside the true sum.

    Args:
        protocol: a registered sum.
        n: users; each has a number in [0, 1] or a vector of length 1, uniform.
        d: coordinates; 1 where the protocol sums numbers.
        epsilon: of the run.
        delta: of the run.
        noise_ratio: noise allowed, as a multiple of the central Gaussian's.
        max_bits: bits allowed per user and coordinate, instead.
        honest_fraction: of the users that are assumed to add their noise.
        attack: as in --attack; several with " + " between them.
        fidelity: as in `run`.
        seed: of the point.

    Raises:
        ParameterError: an unknown protocol, or what it cannot do.
    """
    kind = registered("protocol", protocol)
    if not hasattr(kind, "size"):
        raise ParameterError("protocol", protocol, "a sum")
    # What was not asked for is left to the sum; 1 is a number of bits, and a ratio to refuse.
    honest = None if honest_fraction == 1 else honest_fraction
    given = {"noise_ratio": noise_ratio, "max_bits": max_bits, "honest_fraction": honest}
    options = {name: value for name, value in given.items() if value is not None}
    rng = np.random.default_rng(seed)
    rows = rng.random(n) if kind.scalar else rng.standard_normal((n, d))
    if not kind.scalar:
        # Normal vectors have no direction of their own: so divided they are uniform on the sphere.
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    made = kind.calibrated(**kind.size(n, d, Privacy(epsilon, delta)), **options)
    how = {"adversary": attacks([each for each in attack.split(" + ") if each])}
    return Trial(made, rows, how | {"fidelity": fidelity}, truth=rows.sum(axis=0))


def histogram_task(
    n: int,
    categories: int,
    method: str | None = None,
    epsilon: float = 1.0,
    delta: float = DELTA,
    honest_fraction: float = 1.0,
    skew: float = 1.0,
    fidelity: str | None = None,
    seed: int | None = None,
) -> Trial:
    """Counts of n users by category, beside the true counts.

    Args:
        n: users.
        categories: how many; the k-th has a share in proportion to k^-skew.
        method: of `Histogram`; None: its default.
        epsilon: of the run.
        delta: of the run.
        honest_fraction: of the users that are assumed to add their noise.
        skew: of the shares; 0: equal ones.
        fidelity: as in `run`.
        seed: of the point.

    Raises:
        ParameterError: an unknown method, or what it cannot do.
    """
    shares = np.arange(1, categories + 1) ** -float(skew)
    rows = np.random.default_rng(seed).choice(categories, n, p=shares / shares.sum())
    made = Histogram.calibrated(
        n=n,
        categories=categories,
        privacy=Privacy(epsilon, delta),
        method=method,
        honest_fraction=honest_fraction,
    )
    true = np.bincount(rows, minlength=categories)

    def metrics(result: Result) -> dict[str, float]:
        value = np.asarray(result.value, float)
        # All bins at once, as the metric asks whether every range holds.
        ranges = made.interval(value, together=True, reports=result.reports.accepted)
        inside = (ranges.low <= true) & (true <= ranges.high)
        far = float(np.abs(value - true).max())
        return {"largest_error": far, "ranges_hold": float(inside.all())}

    return Trial(made, rows, {"fidelity": fidelity}, truth=true, metrics=metrics)


def train_task(
    table: str,
    protocol: str = "shuffle-gd",
    epsilon: float = 1.0,
    delta: float = DELTA,
    loss: str = "logistic",
    classes: str = "",
    radius: float | None = None,
    ridge: float = 0.0,
    choose: str = "practice",
    attack: str = "",
    test_fraction: float = 0.2,
    fidelity: str | None = None,
    seed: int | None = None,
) -> Trial:
    """A linear model on a registered table, scored on people held out.

    Args:
        table: its name, such as breast-cancer.
        protocol: a registered optimiser of the shuffle model, or a curator's mechanism.
        epsilon: of the run.
        delta: of the run.
        loss: its registered name.
        classes: public ones of the label, with commas between them; by default the table's.
        radius: of the ball of parameters; None: by the loss.
        ridge: public.
        choose: "practice" (tuned parameters) or "bound" (the smallest proven bound).
        attack: as in --attack; several with " + " between them.
        test_fraction: of the people, held out.
        fidelity: as in `run`; None for a curator.
        seed: of the point; the split is drawn from it, too.

    Raises:
        ParameterError: an unknown name, or what the optimiser cannot do.
    """
    source = registered("table", table)()
    names = tuple(classes.split(",")) if classes else source.classes or ()
    trainer = Trainer.of(
        loss,
        len(source.columns) + 1,
        Privacy(epsilon, delta),
        classes=len(names),
        radius=radius,
        ridge=ridge,
        choose=choose,
    )
    rows = labelled(source, classes=trainer.classification, names=names)
    split = Split.of(rows, trainer, test_fraction, seed)
    made: Any
    if protocol in trainer.optimisers():
        made = trainer.protocol(protocol, len(split.train))
    else:
        made = trainer.proven().central(protocol, len(split.train))
    adversary = attacks([each for each in attack.split(" + ") if each])

    def metrics(result: Result) -> dict[str, float]:
        return split.tested(Trained.of(result.value).theta)

    how = {"adversary": adversary, "fidelity": fidelity}
    return Trial(made, split.train, how, metrics=metrics)
