"""`shuffle-sim train --compare`: every optimiser; central, local and non-private training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from protocols.comparison.methods import Method
from protocols.comparison.training import training_methods
from protocols.learning.splits import PeopleCount, Split
from protocols.learning.training import Trainer
from shuffle_sim.arrays import Floats
from shuffle_sim.cli import show
from shuffle_sim.cli.options import option
from shuffle_sim.cli.running import Bar, Running, RunSummary, asked_of
from shuffle_sim.data.labelled import Labelled
from shuffle_sim.data.moments import NORMAL_95
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import integer
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.sampling.randomness import entropy_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_REPEATS = {False: 20, True: 5}
"""Splits of a comparison, by whether all methods are in it."""


@dataclass(frozen=True)
class CompareOptions:
    """Whether other methods are trained, too."""

    compare: bool = option(
        False, "Compare shuffled with central, local and non-private training.", "--compare"
    )
    every: bool = option(False, "With --compare: all optimisers, and all algorithms.", "--all")
    repeats: int | None = option(
        None,
        "With --compare: splits, and runs of a method; default "
        f"{_REPEATS[False]}, with --all {_REPEATS[True]}.",
    )


@dataclass(frozen=True)
class SplitScore:
    """A score on every split, its mean and its standard deviation (0 of a single one)."""

    mean: float
    std: float
    values: list[float]

    @classmethod
    def of(cls, values: list[float]) -> "SplitScore":
        """Of the values."""
        std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), std, values)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.std / math.sqrt(len(self.values))

    def __str__(self) -> str:
        return f"{show.number(self.mean)}±{self.error:.1g}"


Scores = dict[str, SplitScore]
_NAME = 20  # characters of a name in a line
_RULES = {
    "practice": "the optimiser with tuned steps (practice)",
    "bound": "the optimiser with the least proven bound of the excess loss",
}


@dataclass(frozen=True)
class MethodRow:
    """What a method gave."""

    method: str
    optimiser: str
    trust: Trust
    unit: Unit
    rounds: int
    rounds_per_user: int
    bits_per_user: float
    excess_bound: float
    bound_assumes: str
    privacy: Guarantee
    scores: Scores = field(metadata=SIMULATOR_VIEW)


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
    methods: list[MethodRow]
    warnings: tuple[str, ...]
    refused: dict[str, str]


def compared(
    source: Labelled,
    trainer: Trainer,
    test_fraction: float,
    asked: CompareOptions,
    rounds: int | None,
    how: Running,
) -> TrainComparison:
    """Train on the same splits by every method, or by the best one of each model of trust.

    Raises:
        ParameterError: what every optimiser refuses, or repeats outside [1, 1000].
    """
    every = asked.every
    repeats = (
        _REPEATS[every] if asked.repeats is None else integer("repeats", asked.repeats, 1, 1000)
    )
    seed = how.options["seed"]
    seeds: list[int | None] = [None] * repeats
    if seed is not None:
        # With seed, seed + 1, ... neighbouring seeds would share most of their splits.
        drawn = np.random.SeedSequence(entropy_of(seed)).generate_state(repeats)
        seeds = [int(each) for each in drawn]
    splits = [Split.of(source, trainer, test_fraction, each) for each in seeds]
    methods = training_methods(trainer, splits[0].people.asked, rounds, every=every)
    records = min(len(split.train) for split in splits)
    if every and trainer.unit is Unit.PERSON:  # beside them, what protects a record only
        methods.extend(training_methods(trainer.for_records(), records, rounds))
    fidelity = how.options["fidelity"] or "aggregate"
    how = replace(how, options=how.options | {"fidelity": fidelity})
    possible = [method for method in methods if not method.refused]
    rows = []
    with Bar("comparing", len(possible) * repeats) as bar:
        for place, method in enumerate(possible):
            runs = []
            for done, (split, each) in enumerate(zip(splits, seeds, strict=True)):
                bar.step(place * repeats + done, f"runs  {method.name}")
                runs.append(_run(method, split, records, each, how))
            scores = [split.scores(run.value) for split, run in zip(splits, runs, strict=True)]
            row = MethodRow(
                method=_named(method),
                optimiser=method.setting or method.name,
                trust=method.trust,
                unit=method.unit,
                rounds=runs[-1].rounds,
                rounds_per_user=method.rounds_per_user,
                bits_per_user=method.bits,
                excess_bound=method.bound,
                bound_assumes=method.assumes,
                privacy=runs[-1].privacy,
                scores=_spread(scores),
            )
            rows.append(row)
    return TrainComparison(
        table=source.table.name,
        people=splits[0].people,
        labels=source.rule,
        scaling=source.scaling,
        loss=type(trainer.loss).__name__,
        radius=trainer.problem.domain.radius,
        ridge=trainer.ridge,
        asked_for=trainer.privacy,
        repeats=repeats,
        run=how.summary,
        execution=asked_of(how.execution),
        constant=_spread([split.constant() for split in splits]),
        rule=_RULES[trainer.choose],
        methods=rows,
        warnings=trainer.privacy.warnings(splits[0].people.asked),
        refused={_named(method): method.refused for method in methods if method.refused},
    )


def _run(method: Method, split: Split, records: int, seed: int | None, how: Running) -> Result:
    """On persons, or on as many of their records as every split has."""
    assert method.algorithm is not None
    rows: Floats | Persons = split.asked
    if split.persons is not None and method.unit is Unit.RECORD:
        rows = np.random.default_rng(entropy_of(seed)).permutation(split.train)[:records]
    if isinstance(method.algorithm, Protocol):
        return replace(how, options=how.options | {"seed": seed}).run(method.algorithm, rows)
    return run(method.algorithm, rows, seed=seed)


def _named(method: Method) -> str:
    """Its name, unique among records and persons."""
    return method.name if method.unit is Unit.RECORD else f"{method.name} (person)"


def _spread(scores: list[dict[str, float]]) -> Scores:
    return {name: SplitScore.of([each[name] for each in scores]) for name in scores[0]}


def print_report(summary: TrainComparison) -> None:
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
        scores = [str(row.scores[name]) for name in names]
        counts = f"{row.bits_per_user:,}", f"{row.rounds:,}"
        name = fill(row.method, _NAME, break_long_words=False)  # at a hyphen
        table.add_row(name, row.trust.trusted, *scores, spent, *counts)
    table.add_row("best constant", "", *(str(summary.constant[name]) for name in names))
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


def draw(summary: TrainComparison) -> "Figure":
    """Held-out loss and bits, by method."""
    methods, places = summary.methods[: show.MOST], np.arange(len(summary.methods[: show.MOST]))
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
    figure.suptitle(
        f"{summary.table}: {best.method} has a loss of {show.number(score.mean)}, a constant "
        f"{show.number(constant)}\n{summary.people.asked:,} people, ε = {asked.epsilon:g}, δ = "
        f"{asked.delta:g}",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    show.legend(figure, 4)
    return figure
