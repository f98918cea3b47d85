"""What a training chooses privately, and pays for: bounds of columns, and one model of a few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from protocols.learning.training import Trainer
from protocols.selection.bounds import ChosenBounds
from shuffle_sim.cli.learning import Split
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.guarantee import Privacy

FRACTION = 0.1
"""Of the people asked, who score candidates and train none, where none is given."""


@dataclass(frozen=True)
class Winner:
    """Of a paid selection: its name, and the noisy scores, which epsilon covers."""

    chosen: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Paid:
    """What is chosen.

    Attributes:
        select: values of the trainer's parameters among which one model is selected.
        fraction: of the people asked, who score.
        share: of epsilon for bounds.
        by: how users map their rows, with the columns without bounds; None: all are mapped.
    """

    select: Mapping[str, Sequence[float]] = field(default_factory=dict)
    fraction: float = FRACTION
    share: float | None = None
    by: RowMap | None = None

    @classmethod
    def of(
        cls,
        select: Sequence[str],
        fraction: float | None,
        share: float | None,
        by: RowMap | None,
    ) -> "Paid":
        """As the command line gives it.

        Raises:
            ParameterError: not NAME=a,b, or a fraction without anything to select.
        """
        found: dict[str, list[float]] = {}
        for text in select:
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
        return cls(found, FRACTION if fraction is None else fraction, share, by)

    def protocol(self, trainer: Trainer, name: str, n: int, **given: Any) -> Any:
        """The optimiser of a name, with what is chosen around it; errors name the parameter."""

        def made(privacy: Privacy) -> Any:
            within = trainer.within(privacy)
            if self.select:
                return within.selected(name, n, self.select, self.fraction, **given)
            return within.protocol(name, n, **given)

        if self.share is None:
            return made(trainer.privacy)
        assert self.by is not None
        return ChosenBounds.calibrated(
            made,
            n=n,
            by=self.by,
            privacy=trainer.privacy,
            share=self.share,
            encoding=trainer.encoding,
            honest_fraction=trainer.honest_fraction,
        )

    def opened(self, split: Split, result: Result) -> tuple[Split, Result, Winner | None]:
        """The split in the bounds that were chosen, the model alone, and what was selected."""
        value, winner = result.value, None
        if self.share is not None:
            split, value = split.bounded(value.low, value.high), value.value
        if self.select:
            winner, value = Winner(value.chosen, value.scores), value.theta
        return split, replace(result, value=value), winner
