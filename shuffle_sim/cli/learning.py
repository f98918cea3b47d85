"""A model in training: its options, and a run under way."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol as Interface
from typing import runtime_checkable

from protocols.learning.splits import Split
from shuffle_sim.arrays import Floats
from shuffle_sim.cli.options import option
from shuffle_sim.cli.show import size
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Query

MOMENTS = 100
"""Most rounds of a run that are looked at: each epsilon takes some milliseconds to compute."""


@dataclass(frozen=True)
class ProblemOptions:
    """What is predicted, by which loss, on whom."""

    label: str | None = option(None, "Column of the file to predict.")
    positive: list[str] | None = option(
        None,
        "Class that becomes +1; all others become -1. Repeatable. Default: the last of two.",
    )
    classes: str | None = option(
        None,
        "Public classes of the label, separated by commas. With three or more the model has "
        "several classes.",
    )
    records: int | None = option(
        None,
        "With --person: records that a person nominally has. Public. As many count, its first "
        "ones. Default 1, and 1,024 count.",
    )
    loss: str = option(
        "logistic",
        "Of classes: logistic or hinge. Of numbers: squared, huber, absolute or pinball.",
    )
    quantile: float | None = option(None, "Quantile of the pinball loss.")
    threshold: float | None = option(None, "Threshold of the Huber loss, for labels in [-1, 1].")
    radius: float | None = option(
        None, "Radius of the l2 ball of parameters. Default: 20 for classes, 5 for numbers."
    )
    ridge: float = option(0.0, "Public ridge. It makes the objective strongly convex.")
    norm_bound: float | None = option(
        None, "Longer gradients are clipped to it. Default: the loss's own bound."
    )
    test_fraction: float = option(0.2, "Fraction of people that are held out and never asked.")


@dataclass(frozen=True)
class OptimiserOptions:
    """Who trains, and how."""

    protocol: str | None = option(
        None, "Name of an optimiser, such as shuffle-sgd; default shuffle-gd."
    )
    trust: str = option("shuffle", "Who is trusted: shuffle (the shuffler) or central.")
    mechanism: str | None = option(
        None,
        "With --trust central: gradient (default), output, objective, gibbs or another name. "
        "deletion-stability is a demonstration: 6 to 19 persons, at an epsilon of 8 and more.",
    )
    pure: bool = option(
        False, "Delta = 0, with --trust central. No shuffled view is pure.", "--pure"
    )
    moment: str | None = option(
        None,
        "K:G, or K:G:G2:G1: bounds of the moments of the gradients' length; clips are planned for "
        "them. A wrong one costs accuracy, never privacy.",
    )
    pilot: bool = option(
        False, "Estimate clips by a private histogram of a tenth of all.", "--pilot"
    )
    tilt: float | None = option(None, "With --mechanism tilted-erm: the tilt; default 1.")
    adversarial_radius: float | None = option(
        None, "With --mechanism adversarial-erm: l2 norm that features may move by; default 0.1."
    )
    hyper: str | None = option(
        None, "How steps are chosen: calibrated or paper; default calibrated."
    )
    choose: str | None = option(
        None,
        "Parameters: practice (tuned on synthetic data, no proven bound) or bound (the smallest "
        "proven bound); default practice, but bound with --compare, --phases, --moment, --hyper "
        "paper and a curator.",
    )
    rounds: int | None = option(None, "Rounds, where there are several; by default chosen.")
    batch: int | None = option(
        None, "Users in a round of a sequential protocol; by default chosen."
    )
    eta: float | None = option(None, "Step size; by default chosen.")
    smoothing: float | None = option(None, "Smoothness of the Moreau envelope; by default chosen.")
    phases: int | None = option(
        None, "Phases over disjoint users, with --ridge; 0: their number is chosen."
    )
    select: list[str] | None = option(
        None,
        "Train a model for each value of radius, ridge, norm-bound, rounds, eta or smoothing "
        "within one budget. People who train none choose one by noisy scores; with --trust central "
        "the exponential mechanism does. Repeatable.",
        metavar="NAME=a,b",
    )
    select_fraction: float | None = option(
        None, "With --select: fraction of the people asked who score; default 0.1."
    )


@dataclass(frozen=True)
class Moment:
    """What is known after a round.

    Attributes:
        round: rounds over.
        loss: training loss where the analyzer asked for gradients: the simulator's own view.
        epsilon: spent so far, at the run's delta.
        wire_bytes: sent by users so far.
    """

    round: int
    loss: float = field(metadata=SIMULATOR_VIEW)
    epsilon: float
    wire_bytes: int

    def __str__(self) -> str:
        """All but the round."""
        sent = size(self.wire_bytes)
        return f"rounds  loss {self.loss:.4f}  epsilon {self.epsilon:.3f}  sent {sent}"


def selected(texts: Sequence[str], fraction: float | None) -> dict[str, list[float]] | None:
    """Values by parameter, of NAME=a,b as the command line gives it.

    Raises:
        ParameterError: not NAME=a,b, or a fraction without anything to select.
    """
    found: dict[str, list[float]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        try:
            each = [float(value) for value in values.split(",")]
        except ValueError:
            each = []
        if not each or name in found:
            allowed = "NAME=a,b,c, once for a parameter, such as radius=5,100"
            raise ParameterError("select", text, allowed)
        found[name] = each
    if fraction is not None and not found:
        raise ParameterError("select_fraction", fraction, "used with --select")
    return found or None


@runtime_checkable
class AtPoint(Interface):
    """A query at a point."""

    theta: Floats


class Watch:
    """Looks at a run after each round, as `on_round` of `run`; keeps and shows some moments."""

    def __init__(
        self, split: Split, rounds: int, delta: float, show: Callable[[Moment], None]
    ) -> None:
        """Of a run of so many rounds."""
        self.moments: list[Moment] = []
        self._split, self._rounds, self._delta, self._show = split, rounds, delta, show

    def __call__(self, index: int, ledger: PrivacyLedger, costs: Costs, query: Query) -> None:
        """Keep and show the moment, if it is one of those to be looked at.

        Raises:
            ShuffleSimError: the loss is not finite.
        """
        done = index + 1
        if (
            done < self._rounds
            and done * MOMENTS // self._rounds == index * MOMENTS // self._rounds
        ):
            return
        if not isinstance(query, AtPoint) or self._split.source.by is not None:
            return  # a histogram, or the like; or rows whose bounds the run chooses
        loss = self._split.trainer.risk(query.theta, self._split.train)
        if not math.isfinite(loss):
            raise ShuffleSimError(
                f"round {index}: the training loss is {loss}; take smaller steps or a smaller ball"
            )
        self.moments.append(
            Moment(done, loss, ledger.guarantee(self._delta).epsilon, costs.wire_bytes)
        )
        self._show(self.moments[-1])
