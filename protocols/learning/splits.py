"""People asked and people held out, the scores of a model on both, and a training under way."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol as Interface
from typing import runtime_checkable

import numpy as np

from protocols.learning.training import Trained, Trainer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.labelled import Labelled, held_out
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Query

MOMENTS = 100
"""Most rounds of a run that are looked at: each epsilon takes some milliseconds to compute."""


@dataclass(frozen=True)
class PeopleCount:
    """How many are asked, and how many are held out."""

    asked: int
    held_out: int

    def __str__(self) -> str:
        return f"{self.asked:,} people asked, {self.held_out:,} held out"


@dataclass(frozen=True)
class Split:
    """One split of labelled rows, and the trainer of a model on them.

    Attributes:
        source: all rows.
        trainer: of the model.
        train: rows of those who are asked; where they are persons, all their records.
        test: rows of those held out.
        persons: those who are asked, where the table names them.
        people: how many are on each side.
    """

    source: Labelled
    trainer: Trainer
    train: Floats
    test: Floats
    people: PeopleCount
    persons: Persons | None = None

    @classmethod
    def of(cls, source: Labelled, trainer: Trainer, fraction: float, seed: int | None) -> "Split":
        """A random split; persons are held out with all their records."""
        if trainer.unit is Unit.RECORD:
            train, test = held_out(source.rows, fraction, seed)
            return cls(source, trainer, train, test, PeopleCount(len(train), len(test)))
        asked, others = held_out(source.persons, fraction, seed)
        people = PeopleCount(asked.users, others.users)
        train, test = (each.source.rows(0, each.source.users) for each in (asked, others))
        return cls(source, trainer, train, test, people, asked)

    @property
    def asked(self) -> Floats | Persons:
        """What a protocol of the trainer's unit runs on."""
        return self.train if self.persons is None else self.persons

    def opened(self, found: Trained) -> "Split":
        """With the bounds that a run chose for columns which had none."""
        if found.low is None or found.high is None or self.source.by is None:
            return self
        by = self.source.by.bounded(found.low, found.high)
        source = self.source.bounded(found.low, found.high)
        return replace(self, source=source, train=by(self.train), test=by(self.test))

    def scores(self, theta: Floats) -> dict[str, float]:
        """The loss on both sides, and what else `tested` gives."""
        found = self.tested(theta)
        held_out = found.pop("held_out_loss")
        return {
            "held_out_loss": held_out,
            "training_loss": self.trainer.risk(theta, self.train),
        } | found

    def tested(self, theta: Floats) -> dict[str, float]:
        """Held out: the loss, and the accuracy of classes, or the mean absolute error in units."""
        labels, several = self.test[:, -1], theta.reshape(-1, self.test.shape[1] - 1)
        scores = self.test[:, :-1] @ several.T
        found, margins = {"held_out_loss": self.trainer.risk(theta, self.test)}, scores[:, 0]
        if len(several) > 1:
            return found | {"accuracy": float((scores.argmax(axis=1) == labels).mean())}
        if self.source.half_range is None:
            return found | {"accuracy": float(((margins > 0) == (labels > 0)).mean())}
        error = float(np.abs(margins - labels).mean())
        return found | {"mean_absolute_error": error * self.source.half_range}

    def held_out_error(self, theta: Floats) -> float:
        """The standard error of the held-out loss, over its rows as if they were independent."""
        losses = self.trainer.loss.values(theta, self.test)
        return float(losses.std() / math.sqrt(len(losses)))

    def constant(self) -> dict[str, float]:
        """Scores of the best constant prediction, fitted without privacy."""
        margins = self.trainer.constant(self.train)
        theta = np.zeros((len(margins), self.train.shape[1] - 1))
        theta[:, -1] = margins * math.hypot(self.source.table.scale.norm, 1)
        return self.scores(theta.ravel())


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
            # Only where a hundredth of the rounds is completed, and after the last.
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
