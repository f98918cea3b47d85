"""What the training of one model gave: printed, drawn and saved."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from protocols.learning.splits import Moment, PeopleCount, Split
from protocols.learning.training import Trained
from protocols.selection.models import Selection
from shuffle_sim.arrays import Floats
from shuffle_sim.cli import show
from shuffle_sim.cli.running import RunSummary, asked_of
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.labelled import Labelled
from shuffle_sim.data.model import LinearModel
from shuffle_sim.data.moments import NORMAL_95
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.plain import SIMULATOR_VIEW, Json, plain
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Winner:
    """Of a paid selection: its name, and the noisy scores, which epsilon covers."""

    chosen: str
    scores: Mapping[str, float]

    @classmethod
    def of(cls, selection: Selection | None) -> "Winner | None":
        """Of a selection, if there was one."""
        return None if selection is None else cls(selection.chosen, selection.scores)


@dataclass(frozen=True)
class ClippedRows:
    """How much was outside the public bounds, or above the norm bound.

    A curator clips inside a statistic, and does not count: `gradients` is None.
    """

    cells: int
    labels: int
    gradients: int | None


@dataclass(frozen=True)
class TrainedModel:
    """A linear model in the table's own units."""

    loss: dict[str, Json]
    radius: float
    ridge: float
    columns: tuple[str, ...]
    lower: Floats
    upper: Floats
    weights: Floats
    intercept: Floats
    target_bounds: Bounds | None


@dataclass(frozen=True)
class Chosen:
    """The optimiser, its bound, what that assumes of the data, and what was chosen."""

    name: str
    rounds: int
    rounds_per_user: int
    excess_bound: float
    bound_assumes: str
    choices: Mapping[str, str]


@dataclass(frozen=True)
class TrainingReport:
    """What the training of one model gave."""

    table: str
    people: PeopleCount
    labels: str
    scaling: str
    clipped: ClippedRows = field(metadata=SIMULATOR_VIEW)
    model: TrainedModel
    scores: dict[str, float] = field(metadata=SIMULATOR_VIEW)
    held_out_error: float = field(metadata=SIMULATOR_VIEW)
    constant: dict[str, float] = field(metadata=SIMULATOR_VIEW)
    protocol: Chosen
    privacy: Guarantee
    warnings: tuple[str, ...]
    private: bool
    sequentially_interactive: bool
    costs: Costs
    payload_bits_per_user: float
    chosen_bounds: dict[str, Bounds]
    selected: Winner | None
    reports: ReportCounts
    history: list[Moment]
    run: RunSummary
    execution: Mapping[str, Any]
    trust: Trust
    file: LinearModel = field(repr=False)


def summed_up(
    split: Split,
    made: Any,
    result: Result,
    execution: Execution,
    moments: Sequence[Moment] = (),
    bits: float = 0,
) -> TrainingReport:
    """Of a run that is over, in which a user sent so many bits."""
    found = Trained.of(result.value)
    split = split.opened(found)
    source, trainer, table = split.source, split.trainer, split.source.table
    loss = type(trainer.loss).__name__
    weights, intercept = source.weights(found.theta)
    privacy = _with_classes(result.privacy, source)
    saved = LinearModel(
        loss=loss,
        schema=table.schema,
        weights=weights,
        intercept=intercept,
        classes=source.names,
        target=table.target_name,
        labels=source.rule,
        target_bounds=table.target_bounds if source.names is None else None,
        privacy=cast("dict[str, Json]", plain(privacy)),
        private=result.private,
    )
    bound = math.inf if trainer.clips else made.bound
    gradients = result.reports.clipped if result.trust is Trust.SHUFFLE else None
    return TrainingReport(
        table=table.name,
        people=split.people,
        labels=source.rule,
        scaling=source.scaling,
        clipped=ClippedRows(table.clipped_cells, source.clipped_labels, gradients),
        model=TrainedModel(
            loss=cast("dict[str, Json]", plain(trainer.loss)) | {"name": loss},
            radius=trainer.problem.domain.radius,
            ridge=trainer.ridge,
            columns=table.columns,
            lower=table.lower,
            upper=table.upper,
            weights=weights,
            intercept=intercept,
            target_bounds=table.target_bounds if source.half_range else None,
        ),
        scores=split.scores(found.theta),
        held_out_error=split.held_out_error(found.theta),
        constant=split.constant(),
        protocol=Chosen(
            type(made).__name__,
            result.rounds,
            made.rounds_per_user,
            bound,
            made.assumes,
            made.choices,
        ),
        privacy=privacy,
        warnings=trainer.privacy.warnings(split.people.asked),
        private=result.private,
        sequentially_interactive=result.ledger.sequentially_interactive,
        costs=result.costs,
        payload_bits_per_user=bits,
        chosen_bounds=table.chosen_bounds,
        selected=Winner.of(found.selection),
        reports=result.reports,
        history=list(moments),
        run=RunSummary.of(result),
        execution=asked_of(execution),
        trust=result.trust,
        file=saved,
    )


def _with_classes(privacy: Guarantee, source: Labelled) -> Guarantee:
    """What more is assumed: that the labels' classes are public, and of blanks."""
    notes = () if source.half_range is not None else ("the classes of labels are public",)
    every = (*privacy.assumptions, *notes, *source.table.assumptions)
    return replace(privacy, assumptions=every)


def print_report(report: TrainingReport) -> None:
    """Print it for people."""
    model, made, run = report.model, report.protocol, report.run
    interaction = "sequential" if report.sequentially_interactive else "fully interactive"
    how = (
        f"{run.fidelity} messages, runtime {run.runtime}, {show.plural(run.workers, 'user shard')}"
    )
    seen = "the analyzer sees only the permuted messages"
    if report.trust is not Trust.SHUFFLE:
        interaction, how, seen = report.trust.trusted, "", "the curator releases the model alone"
    show.details.print(
        f"{show.plural(len(model.columns), 'column')}; {report.labels}\nPublic scaling: "
        f"{report.scaling}.\n{model.loss['name']} loss, ball of radius {model.radius:g}, ridge "
        f"{model.ridge:g}, {interaction}{f', {how}' if how else ''}\n"
    )
    show.console.print(
        f"[bold]{report.table}[/]: {report.people}; {made.name}, "
        f"{show.plural(made.rounds, 'round')}"
    )
    scores = (
        (name.replace("_", " "), show.number(value), show.number(report.constant[name]))
        for name, value in report.scores.items()
    )
    show.print_table(("", "this model", "best constant"), scores)
    error = show.number(report.held_out_error)
    show.details.print(f"Standard error of the held out loss, over its rows: {error}.")
    show.notes.print(f"These scores are the simulator's own view; {seen}.\n")
    show.print_fact("Bound", *_bound(made, report.constant["held_out_loss"]))
    show.print_privacy(report.privacy, report.warnings)
    show.print_bounds(report.chosen_bounds)
    if report.selected is not None:
        scores_of = (f"{name}: {score:.4f}" for name, score in report.selected.scores.items())
        how = "noisy scores (epsilon covers them)"
        if report.trust is not Trust.SHUFFLE:
            how = "the exponential mechanism (epsilon covers it)"
        show.print_fact("Selected", f"{report.selected.chosen}, by {how}", *scores_of)
    if report.trust is Trust.SHUFFLE:
        several = report.chosen_bounds or report.selected
        each = f"{show.plural(made.rounds_per_user, 'report')} of {'at most ' if several else ''}"
        each += f"{report.costs.payload_bits_per_user:,}"
        show.print_costs(report.payload_bits_per_user, each, report.costs, report.reports)
    cells, labels, gradients = astuple(report.clipped)
    clipped = f"{cells:,} cells and {labels:,} labels outside the public bounds"
    if gradients is not None:
        clipped += f", {gradients:,} gradients above the norm bound"
    show.print_reports(report.reports, clipped)
    if report.reports.left_out:
        show.print_fact(
            "Left out",
            f"{report.reports.left_out:,} records beyond a person's first ones",
            "That number is the simulator's view, too.",
        )
    chosen = [f"{name}: {why}" for name, why in made.choices.items()]
    show.print_fact("Chosen", *chosen, where=show.details)


def _bound(made: Chosen, constant: float) -> list[str]:
    bound = made.excess_bound
    if bound == math.inf:
        return ["none is proven for these parameters"]
    most = f"at most {show.number(bound)}, proven"
    proven = f"expected excess loss over the best model in the ball: {most}"
    if made.bound_assumes:
        proven += f" only where {made.bound_assumes}"
    if bound <= constant:
        return [proven]
    return [
        proven,
        f"This is above the loss of a constant ({show.number(constant)}): it promises nothing "
        "here.",
        "With so few people, only the scores on held-out people show how good the model is.",
    ]


def draw(report: TrainingReport) -> "Figure":
    """Loss and epsilon by round."""
    history, rounds = report.history, [moment.round for moment in report.history]
    figure = show.new_figure(7, 5)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    marker = "." if len(rounds) < 30 else ""
    losses, epsilons = [each.loss for each in history], [each.epsilon for each in history]
    colour = report.trust.colour
    upper.plot(rounds, losses, ":", marker=marker, color=colour, label="training, points asked for")
    held_out, constant = report.scores["held_out_loss"], report.constant["held_out_loss"]
    upper.axhline(held_out, color=colour, label="held out, result, 95 %")
    around = NORMAL_95 * report.held_out_error
    upper.axhspan(held_out - around, held_out + around, color=colour, alpha=0.15, lw=0)
    upper.axhline(constant, color="gray", ls="--", label="held out, best constant")
    found = f"held-out loss {show.number(held_out)}, of a constant {show.number(constant)}"
    budget = f"ε = {report.privacy.epsilon:.3g}, δ = {report.privacy.delta:g}"
    show.dress(upper, f"{report.table}: {found}\n{report.protocol.name}, {budget}", up="mean loss")
    lower.plot(rounds, epsilons, marker=marker, color=colour)
    lower.set_ylim(0, None)
    lower.xaxis.get_major_locator().set_params(integer=True)
    show.dress(lower, "", "round", "ε spent")
    show.legend(figure)
    return figure


def save(report: TrainingReport, path: Path) -> None:
    """Write the model and its guarantee as JSON: nothing that epsilon does not cover.

    Raises:
        ParameterError: it cannot be written.
    """
    with show.whole("model_out", path) as part:
        part.write_text(json.dumps(plain(report.file.public()), indent=2) + "\n")
