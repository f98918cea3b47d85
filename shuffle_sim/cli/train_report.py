"""What training gave, of one model or of many methods: printed, drawn and saved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any, cast

from protocols.comparison.trained import Scores, SplitScore, TrainedMethod
from protocols.learning.splits import Moment, PeopleCount, Split
from protocols.learning.training import Trained
from protocols.selection.models import Selection
from shuffle_sim.arrays import Floats
from shuffle_sim.cli import show
from shuffle_sim.cli.running import Running
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.model import LinearModel
from shuffle_sim.data.moments import NORMAL_95
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import SIMULATOR_VIEW, Json, plain
from shuffle_sim.execution.result import ReportCounts, Result, RunSummary
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    selected: Selection | None
    reports: ReportCounts
    history: list[Moment]
    run: RunSummary
    execution: Mapping[str, Any]
    trust: Trust
    file: LinearModel = field(repr=False)


def summed_up(
    split: Split, made: Any, result: Result, how: Running, moments: Sequence[Moment], bits: float
) -> TrainingReport:
    """Of a run that is over, in which a user sent so many bits."""
    found = Trained.of(result.value)
    split = split.opened(found)
    source, trainer, table = split.source, split.trainer, split.source.table
    privacy = result.privacy.assuming(*source.assumptions)
    promised = cast("dict[str, Json]", plain(privacy))
    loss = type(trainer.loss).__name__
    saved = source.model(found.theta, loss, promised, private=result.private)
    proven = made.rounds_per_user, math.inf if trainer.clips else made.bound, made.assumes
    named = cast("dict[str, Json]", plain(trainer.loss)) | {"name": loss}
    ball = named, trainer.problem.domain.radius, trainer.ridge
    limits, ends = (table.columns, table.lower, table.upper), saved.target_bounds
    gradients = result.reports.clipped if result.trust is Trust.SHUFFLE else None
    return TrainingReport(
        table=table.name,
        people=split.people,
        labels=source.rule,
        scaling=source.scaling,
        clipped=ClippedRows(table.clipped_cells, source.clipped_labels, gradients),
        model=TrainedModel(*ball, *limits, saved.weights, saved.intercept, ends),
        scores=split.scores(found.theta),
        held_out_error=split.held_out_error(found.theta),
        constant=split.constant(),
        protocol=Chosen(type(made).__name__, result.rounds, *proven, made.choices),
        privacy=privacy,
        warnings=trainer.privacy.warnings(split.people.asked),
        private=result.private,
        sequentially_interactive=result.ledger.sequentially_interactive,
        costs=result.costs,
        payload_bits_per_user=bits,
        chosen_bounds=table.chosen_bounds,
        selected=found.selection,
        reports=result.reports,
        history=list(moments),
        run=RunSummary.of(result),
        execution=how.execution.asked,
        trust=result.trust,
        file=saved,
    )


def print_report(report: TrainingReport) -> None:
    """Print it for people."""
    model, made, run = report.model, report.protocol, report.run
    interaction = "sequential" if report.sequentially_interactive else "fully interactive"
    shards = show.plural(run.workers, "user shard")
    how = f"{run.fidelity} messages, runtime {run.runtime}, {shards}"
    seen = "the analyzer sees only the permuted messages"
    by = "noisy scores (epsilon covers them)"
    if report.trust is not Trust.SHUFFLE:
        interaction, how, seen = report.trust.trusted, "", "the curator releases the model alone"
        by = "the exponential mechanism (epsilon covers it)"
    show.details.print(
        f"{show.plural(len(model.columns), 'column')}; {report.labels}\nPublic scaling: "
        f"{report.scaling}.\n{model.loss['name']} loss, ball of radius {model.radius:g}, ridge "
        f"{model.ridge:g}, {interaction}{f', {how}' if how else ''}\n"
    )
    show.console.print(
        f"[bold]{report.table}[/]: {report.people}; {made.name}, "
        f"{show.plural(made.rounds, 'round')}"
    )
    scored = report.scores, report.constant
    rows = ((n.replace("_", " "), *(show.number(s[n]) for s in scored)) for n in scored[0])
    show.print_table(("", "this model", "best constant"), rows)
    off = show.number(report.held_out_error)
    show.details.print(f"Standard error of the held out loss, over its rows: {off}.")
    show.notes.print(f"These scores are the simulator's own view; {seen}.\n")
    show.print_fact("Bound", *_bound(report, *(s["held_out_loss"] for s in scored)))
    show.print_privacy(report.privacy, report.warnings)
    show.print_bounds(report.chosen_bounds)
    if report.selected is not None:
        scores_of = (f"{name}: {score:.4f}" for name, score in report.selected.scores.items())
        show.print_fact("Selected", f"{report.selected.chosen}, by {by}", *scores_of)
    if report.trust is Trust.SHUFFLE:
        several = report.chosen_bounds or report.selected
        each = f"{show.plural(made.rounds_per_user, 'report')} of {'at most ' if several else ''}"
        each += f"{report.costs.payload_bits_per_user:,}"
        show.print_costs(report.payload_bits_per_user, each, report.costs, report.reports)
    cells, labels, gradients = astuple(report.clipped)
    clipped = f"{cells:,} cells and {labels:,} labels outside the public bounds"
    if gradients is not None:
        clipped += f", {gradients:,} gradients above the norm bound"
    show.print_reports(report.reports, clipped, report.costs.rounds)
    if report.reports.left_out:
        show.print_fact(
            "Left out",
            f"{report.reports.left_out:,} records beyond a person's first ones",
            "That number is the simulator's view, too.",
        )
    chosen = [f"{name}: {why}" for name, why in made.choices.items()]
    show.print_fact("Chosen", *chosen, where=show.details)


def _bound(report: TrainingReport, held_out: float, constant: float) -> list[str]:
    made = report.protocol
    if made.excess_bound == math.inf:
        worse = "A constant has less loss: chances are too sure. For better ones: --choose bound."
        if report.file.classes is None:
            worse = "A constant has less loss. More rounds, people or a larger epsilon may help."
        return ["none is proven for these parameters", *[worse] * (held_out > constant)]
    only = f" only where {made.bound_assumes}" * bool(made.bound_assumes)
    most = f"at most {show.number(made.excess_bound)}, proven{only}"
    vacuous = (
        f"This is above the loss of a constant ({show.number(constant)}): it promises nothing.",
        "With so few people, only the scores on held-out people show how good the model is.",
    )
    proven = f"expected excess loss over the best model in the ball: {most}"
    return [proven, *(vacuous if made.excess_bound > constant else ())]


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


@dataclass(frozen=True)
class TrainComparison:
    """What is compared, and what came of it; `refused` has a reason for each method."""

    table: str
    people: PeopleCount
    labels: str
    scaling: str
    loss: str
    radius: float
    ridge: float
    asked_for: Privacy
    repeats: int
    run: RunSummary
    execution: Mapping[str, Any]
    constant: Scores = field(metadata=SIMULATOR_VIEW)
    rule: str
    methods: list[TrainedMethod]
    warnings: tuple[str, ...]
    refused: dict[str, str]


def print_comparison(summary: TrainComparison) -> None:
    """Print it for people."""
    asked, splits = summary.asked_for, show.plural(summary.repeats, "split")
    show.console.print(
        f"\n[bold]{summary.table}[/]: {summary.people}; asked for epsilon {asked.epsilon:g} at "
        f"delta {asked.delta:g}; {splits}\n"
    )
    show.details.print(
        f"{summary.labels}\n{summary.loss} loss, ball of radius {summary.radius:g}, ridge "
        f"{summary.ridge:g}, {summary.run.fidelity} messages\nPublic scaling: {summary.scaling}.\n"
    )
    names = [name for name in summary.constant if name != "training_loss"]
    heads = [name.replace("_", "\n") for name in names]
    table = show.grid("", "trusted", *heads, "epsilon", "bits per\nuser", "rounds", texts=2)
    table.collapse_padding = True  # room for names
    for row in summary.methods:
        spent = "none" if math.isinf(row.privacy.epsilon) else f"{row.privacy.epsilon:.3f}"
        scores = [_score(row.scores[name]) for name in names]
        counts = f"{row.bits_per_user:,}", f"{row.rounds:,}"
        name = fill(row.method, 20, break_long_words=False)  # at a hyphen
        table.add_row(name, row.trust.trusted, *scores, spent, *counts)
    table.add_row("best constant", "", *(_score(summary.constant[name]) for name in names))
    show.console.print(table)
    show.notes.print(
        f"\nMean±standard error over {splits}, the same for all. Scores are the simulator's own "
        "view."
    )
    show.details.print(
        f"Central, local and non-private training take {summary.rule}.\n"
        "Optimisers, their bounds, and what gives epsilon:"
    )
    for row in summary.methods:
        by = "" if row.optimiser == row.method else f"{row.optimiser}, "
        proven = math.isfinite(row.excess_bound)
        bound = f"bound {show.number(row.excess_bound)}" if proven else "no proven bound"
        if proven and row.bound_assumes:
            bound += f", where {row.bound_assumes}"
        show.details.print(f"  {row.method}: {by}{bound}; epsilon by {row.privacy.basis}")
    for name, reason in summary.refused.items():
        show.notes.print(f"  {name}: refused: {reason}")
    show.print_warnings(summary.warnings)
    constant = summary.constant["held_out_loss"].mean
    vacuous = [row.method for row in summary.methods if constant < row.excess_bound < math.inf]
    if vacuous:
        show.details.print(
            f"The bound is above the loss of a constant for: {'; '.join(vacuous)}. It promises "
            "nothing there. With so few people, only the scores on held-out people show how good "
            "the models are."
        )


def _score(found: SplitScore) -> str:
    return f"{show.number(found.mean)}±{found.error:.1g}"


def draw_comparison(summary: TrainComparison) -> "Figure":
    """Held-out loss and bits, by method."""
    methods = summary.methods[: show.MOST]
    places = range(len(methods))
    figure = show.new_figure(9, 1.9 + 0.5 * len(methods))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, row in zip(places, methods, strict=True):
        score, colour = row.scores["held_out_loss"], row.trust.colour
        left.plot(score.values, [place] * summary.repeats, "o", ms=4, alpha=0.3, color=colour)
        bars = {"fmt": "|", "ms": 12, "color": colour, "capsize": 3}
        left.errorbar([score.mean], [place], xerr=[NORMAL_95 * score.error], **bars)
    constant = summary.constant["held_out_loss"].mean
    left.axvline(constant, color="gray", ls="--", lw=1, label="best constant")
    left.plot([], [], "o", ms=4, alpha=0.3, color="gray", label="one split")
    left.errorbar([], [], xerr=[], fmt="|", color="gray", capsize=3, label="mean, 95 %")
    titles = [row.method + f"\n{row.optimiser}" * (row.optimiser != row.method) for row in methods]
    left.set_yticks(places, titles)
    left.invert_yaxis()
    show.dress(left, "", f"held-out {summary.loss.lower()} loss")
    bits = [row.bits_per_user for row in methods]
    for place, row in zip(places, methods, strict=True):
        first = methods.index(row) == [each.trust for each in methods].index(row.trust)
        label = f"{row.trust}: {row.trust.unit}" if first else ""
        right.barh(place, row.bits_per_user, color=row.trust.colour, alpha=0.6, label=label)
        right.text(row.bits_per_user * 1.2, place, f"{row.bits_per_user:,}", va="center")
    right.set_xscale("log")
    right.set_xlim(min(bits) / 5, max(bits) * 60)
    show.dress(right, "", "bits per user, whole run")
    shuffled = [each for each in methods if each.trust is Trust.SHUFFLE] or methods
    best = min(shuffled, key=lambda each: each.scores["held_out_loss"].mean)
    asked, score = summary.asked_for, best.scores["held_out_loss"]
    title = (
        f"{summary.table}: {best.method} has a loss of {show.number(score.mean)}, a constant "
        f"{show.number(constant)}\n{summary.people.asked:,} people, {show.budget(asked)}"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    show.legend(figure, 4)
    return figure
