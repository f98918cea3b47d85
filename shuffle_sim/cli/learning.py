"""A model in training: the people it learns from and those held out, its scores, and what is seen
of a run under way.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shuffle_sim.arrays import Floats
from shuffle_sim.cli.show import size
from shuffle_sim.data.labelled import Labelled, held_out
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.privacy.ledger import PrivacyLedger

MOMENTS = 100
"""Rounds of a run that are looked at, at most: the epsilon of many rounds takes some milliseconds
to compute.
"""


@dataclass(frozen=True)
class Split:
    """One split of labelled rows, and the trainer of a model on them.

    Attributes:
        source: all rows.
        trainer: registered as "linear".
        train: rows of those who are asked.
        test: rows of those held out.
    """

    source: Labelled
    trainer: Any
    train: Floats
    test: Floats

    @classmethod
    def of(cls, source: Labelled, trainer: Any, fraction: float, seed: int | None) -> "Split":
        """A random split."""
        return cls(source, trainer, *held_out(source.rows, fraction, seed))

    def scores(self, theta: Floats) -> dict[str, float]:
        """Held-out and training loss; accuracy of classes, or the mean absolute error in the
        target's own units.
        """
        margins, labels = self.test[:, :-1] @ theta, self.test[:, -1]
        found = {
            "held_out_loss": self.trainer.risk(theta, self.test),
            "training_loss": self.trainer.risk(theta, self.train),
        }
        if self.source.half_range is None:
            return found | {"accuracy": float(((margins > 0) == (labels > 0)).mean())}
        return found | {
            "mean_absolute_error": float(np.abs(margins - labels).mean()) * self.source.half_range
        }

    def constant(self) -> dict[str, float]:
        """Scores of the best constant prediction, fitted without privacy."""
        theta = np.zeros(self.train.shape[1] - 1)
        theta[-1] = self.trainer.constant(self.train) * math.sqrt(theta.size)
        return self.scores(theta)


@dataclass(frozen=True)
class Moment:
    """What is known after a round.

    Attributes:
        round: rounds over.
        loss: training loss where the analyzer had just asked for gradients: the simulator's own
        view.
        epsilon: spent so far, at the run's delta.
        wire_bytes: sent by users so far.
    """

    round: int
    loss: float
    epsilon: float
    wire_bytes: int


class Watch:
    """Looks at a run after each round, as `on_round` of `run`; keeps some moments and shows the
    last one.
    """

    def __init__(
        self, split: Split, rounds: int, delta: float, show: Callable[[Moment], None]
    ) -> None:
        """Of a run of so many rounds."""
        self.moments: list[Moment] = []
        self._split, self._rounds, self._delta, self._show = split, rounds, delta, show

    def __call__(self, index: int, ledger: PrivacyLedger, costs: Costs, query: Any) -> None:
        """Look.

        Raises:
            ShuffleSimError: the loss is not finite: there is nothing left to train.
        """
        done = index + 1
        if (
            done < self._rounds
            and done * MOMENTS // self._rounds == index * MOMENTS // self._rounds
        ):
            return
        loss = self._split.trainer.risk(query.theta, self._split.train)
        if not math.isfinite(loss):
            raise ShuffleSimError(
                f"round {index}: the training loss is {loss}; take smaller steps or a smaller ball"
            )
        self.moments.append(
            Moment(done, loss, ledger.guarantee(self._delta).epsilon, costs.wire_bytes)
        )
        self._show(self.moments[-1])


class Bar:
    """A progress bar on the standard error, where that is a terminal."""

    def __init__(self, title: str, total: int) -> None:
        """Of so many steps."""
        screen = Console(stderr=True)
        words = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[told]}"),
        )
        self._progress = Progress(
            *words,
            TimeElapsedColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )
        self._task = self._progress.add_task(title, total=total, told="")

    def __enter__(self) -> "Bar":
        """Appear."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Vanish."""
        self._progress.stop()

    def moment(self, moment: Moment) -> None:
        """Show a moment of a run."""
        told = (
            f"rounds  loss {moment.loss:.4f}  epsilon {moment.epsilon:.3f}  sent "
            f"{size(moment.wire_bytes)}"
        )
        self.step(moment.round, told)

    def step(self, completed: int, told: str) -> None:
        """Show how far it is."""
        self._progress.update(self._task, completed=completed, told=told)
