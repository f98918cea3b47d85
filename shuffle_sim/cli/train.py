"""`shuffle-sim train`: a linear model by shuffle-private convex optimisation."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from protocols.comparison.named import OF_MECHANISMS
from protocols.comparison.trained import REPEATS, train_methods
from protocols.learning import pure
from protocols.learning.model import GRADIENT, named_loss
from protocols.learning.splits import Moment, Split, Watch
from protocols.learning.training import DESCENTS, Trainer
from protocols.problems.linear_loss import LinearLoss
from protocols.selection.models import FRACTION
from shuffle_sim.cli import train_report as report
from shuffle_sim.cli.audit import audited
from shuffle_sim.cli.data import listed, load
from shuffle_sim.cli.options import (
    DataOptions,
    HostOptions,
    OptimiserOptions,
    PrivacyOptions,
    ProblemOptions,
    SumOptions,
    option,
)
from shuffle_sim.cli.running import Ahead, Bar, Running, announce
from shuffle_sim.cli.show import Drawn, check_path, notes, size, whole
from shuffle_sim.data.labelled import Labelled, labelled
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError, refuse_given
from shuffle_sim.execution.checkpoint import split_seed
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.plain import plain
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust

_OF_MODEL = "quantile", "threshold", "radius", "ridge", "norm_bound"
_OF_STEPS = "phases", "batch", "eta", "smoothing"
"""Options that a trainer, and that its protocols take under the same names."""
_CHOICES = ("protocol", "hyper", *_OF_STEPS, "select", "choose_bounds")
_OPTIONS = {own: name for name, own in OF_MECHANISMS.items()}
"""Options of single mechanisms, and what these call them; and back."""
_CHOSEN_BY_COMPARE = dict.fromkeys(
    (*_CHOICES, *OF_MECHANISMS, "mechanism", "model_out", "checkpoint", "budget", "audit")
) | {"trust": "shuffle"}
_OF_MESSAGES = dict.fromkeys(
    (*_CHOICES, "select_fraction", "rounds", *("noise_ratio", "max_bits", "encoding", "rotation"))
) | {"fidelity": None, "honest_fraction": 1.0, "security": "none"}
del _OF_MESSAGES["select"], _OF_MESSAGES["phases"], _OF_MESSAGES["smoothing"]
"""Options without a use there, by what they are where nobody gives them."""
_OF_CURATORS = {
    "tilt": "given with --trust central --mechanism tilted-erm",
    "adversarial_radius": "given with --trust central --mechanism adversarial-erm",
    "pure": "given with --trust central: no view of a shuffler is purely private here",
    "pilot": "given with --trust central or --compare; in Python there is protocols.Piloted",
}
_LEAST = "the least proven bound of the excess loss"
_RULES = {"practice": "tuned steps (practice)", "bound": _LEAST}


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
        f"{REPEATS[False]}, with --all {REPEATS[True]}.",
    )


def train_command(
    data: DataOptions,
    problem: ProblemOptions,
    optimiser: OptimiserOptions,
    privacy: PrivacyOptions,
    noise: SumOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    others: CompareOptions,
    model_out: Path | None = option(None, "File for the model (.json)."),
) -> None:
    """Train a linear model by shuffle-private convex optimisation; test it on people held out.

    Example: shuffle-sim train --table breast-cancer --epsilon 2 --rounds 100 --runtime ray

    Example: shuffle-sim train --file people.csv --label income --bounds income=0:500000 --bounds
    age=0:120 --loss huber

    Example: shuffle-sim train --file people.csv --label retired --choose-bounds 0.2

    Example: shuffle-sim train --table breast-cancer --select radius=5,20,100

    Example: shuffle-sim train --table diabetes --loss squared --compare

    Example: shuffle-sim train --table breast-cancer --trust central --mechanism gibbs --ridge 0.003

    Example: shuffle-sim train --table diabetes --loss absolute --trust central --pure --pilot

    Example: shuffle-sim train --file visits.csv --label ill --person patient --records 20
    """
    trust, compare = Trust.of(optimiser.trust), others.compare
    if trust is not Trust.CENTRAL:
        for name in ("pure",) if compare else _OF_CURATORS:
            value = getattr(optimiser, name)
            refuse_given({name: None if value is False else value}, _OF_CURATORS[name])
    source = load(data, problem.label)
    names = _names(problem.classes, source)
    budget = Privacy(privacy.epsilon, 0.0 if optimiser.pure else privacy.delta)
    classes = 2 if problem.positive else len(names)
    optimiser = _with_mechanism(optimiser, problem.loss, budget, classes)
    trainer = _trainer(source, problem, optimiser, budget, classes, **vars(noise))
    named = {"names": names if problem.classes else (), "positive": problem.positive or ()}
    rows = labelled(source, classes=trainer.classification, **named)
    how = Running.of(host, execution, source, data.file)
    check_path("model_out", model_out, (".json",))
    refuse_given({"model_out": host.audit and model_out}, "left out with --audit")
    asked = {**vars(data), **vars(optimiser), **vars(noise), **vars(host), "model_out": model_out}
    if compare:
        _left_out(asked, _CHOSEN_BY_COMPARE, "with --compare, which chooses for every method")
        summary = _compared(rows, trainer, problem, others, optimiser.rounds, how)
        output.present(summary, report.print_comparison, report.draw_comparison)
        return
    refuse_given({"repeats": others.repeats, "all": others.every or None}, "given with --compare")
    seed = split_seed(host.checkpoint, host.resume, host.seed)
    split = Split.of(rows, trainer, problem.test_fraction, seed)
    if trust is not Trust.SHUFFLE or optimiser.mechanism is not None:
        _left_out(asked, _OF_MESSAGES, "with --trust central: one release")
        made_by = partial(_central, asked=optimiser, n=split.people.asked)
        made = made_by(trainer)
        refuse_given({"plot": output.plot}, "left out with --trust central: few releases")
        audited(how, budget, output, made, curated=(trainer, made_by))
        found = report.summed_up(split, made, how.run(made, split.asked), how, [], 0)
    else:
        found = _shuffled(split, data, optimiser, how, output)
    try:
        if model_out is not None:
            with whole("model_out", model_out) as part:
                part.write_text(json.dumps(plain(found.file.public()), indent=2) + "\n")
    finally:  # what was paid for is told, whatever becomes of its file
        output.present(found, report.print_report, report.draw)
    if model_out is not None and not output.json:
        notes.print(f"Model: {model_out}")


def _with_mechanism(
    asked: OptimiserOptions, named: str, budget: Privacy, count: int
) -> OptimiserOptions:
    """With the curator's mechanism where none is named: one rule for estimators and command."""
    if Trust.of(asked.trust) is not Trust.CENTRAL or asked.mechanism is not None:
        return asked
    if asked.pilot or asked.moment is not None:
        return replace(asked, mechanism="heavy-tailed-erm")
    if asked.select:  # among models of one release each
        return replace(asked, mechanism="output")
    loss, outputs = named_loss(named), count if count > 2 else 1
    classes = isinstance(loss, LinearLoss) and loss.classification
    name = pure.mechanism(named, budget, classes=classes, outputs=outputs)
    return replace(asked, mechanism=name)


def _trainer(
    source: Table,
    problem: ProblemOptions,
    optimiser: OptimiserOptions,
    budget: Privacy,
    classes: int,
    **noise: Any,
) -> Trainer:
    """What makes the model."""
    persons = source.person is not None
    if not persons and problem.records is not None:
        raise ParameterError("records", problem.records, "used with --person")
    descends = optimiser.mechanism == GRADIENT
    proven = None if descends else optimiser.mechanism, optimiser.phases, optimiser.moment
    flags = optimiser.hyper == "paper", optimiser.pure, optimiser.pilot
    curated = optimiser.trust != "shuffle" and not descends
    chosen = "practice" if proven == (None,) * 3 and not any((*flags, curated)) else "bound"
    return Trainer.of(
        problem.loss,
        len(source.columns) + 1,
        budget,
        moment=optimiser.moment,
        pilot=optimiser.pilot,
        records=1 if persons and problem.records is None else problem.records,
        classes=classes,
        intercept=1 / math.hypot(source.scale.norm, 1),
        choose=optimiser.choose or chosen,
        **{name: getattr(problem, name) for name in _OF_MODEL},
        **noise,
    )


def _shuffled(
    split: Split,
    data: DataOptions,
    optimiser: OptimiserOptions,
    how: Running,
    output: Drawn,
) -> report.TrainingReport:
    """Train by the shuffle model."""
    if output.plot is not None and data.choose_bounds is not None:
        allowed = "left out with --choose-bounds: losses are unknown"
        raise ParameterError("plot", str(output.plot), allowed)
    trainer, fraction = split.trainer, optimiser.select_fraction
    make = partial(
        trainer.paid,
        optimiser.protocol or DESCENTS[trainer.unit],
        split.people.asked,
        select=optimiser.selected,
        fraction=FRACTION if fraction is None else fraction,
        share=data.choose_bounds,
        by=split.source.by,
        hyper=optimiser.hyper or "calibrated",
        **{name: getattr(optimiser, name) for name in _OF_STEPS},
    )
    made = make(rounds=optimiser.rounds)
    audited(how, trainer.privacy, output, made, split.asked)
    ahead = how.ahead(made, split.asked)
    start = announce(ahead, _fewer(made, ahead, make), yes=how.yes, json=output.json)
    with Bar("training", made.rounds) as bar:

        def step(found: Moment) -> None:
            loss, spent = f"loss {found.loss:.4f}", f"epsilon {found.epsilon:.3f}"
            bar.step(found.round, f"rounds  {loss}  {spent}  sent {size(found.wire_bytes)}")

        watch = Watch(split, made.rounds, trainer.privacy.delta, step)
        result = how.run(made, split.asked, on_round=watch, on_start=start)
    return report.summed_up(split, made, result, how, watch.moments, ahead.bits_per_user)


def _compared(
    source: Labelled,
    trainer: Trainer,
    problem: ProblemOptions,
    asked: CompareOptions,
    rounds: int | None,
    how: Running,
) -> report.TrainComparison:
    """Train by other methods, too."""
    how = how.having(fidelity=how.options["fidelity"] or "aggregate")
    summary = how.summary
    with Bar("comparing", 1) as bar:
        found = train_methods(
            source,
            trainer,
            test_fraction=problem.test_fraction,
            repeats=asked.repeats,
            rounds=rounds,
            every=asked.every,
            seed=summary.seed,
            shuffled=lambda made, asked, seed: how.having(seed=seed).run(made, asked),
            on_run=lambda name, done, every: bar.step(done, f"runs  {name}", every),
        )
    table = source.table.name, found.people, source.rule, source.scaling
    model = type(trainer.loss).__name__, trainer.problem.domain.radius, trainer.ridge
    asked_for = trainer.privacy, found.repeats, summary, how.execution.asked
    warnings = trainer.privacy.warnings(found.people.asked)
    rule = f"the optimiser with {_RULES[trainer.choose]}"
    methods = found.constant, rule, found.methods, warnings, found.refused
    return report.TrainComparison(*(*table, *model, *asked_for, *methods))


def _left_out(given: Mapping[str, Any], options: Mapping[str, object], why: str) -> None:
    """Refuse options that differ from what they are where nobody gives them."""
    for name, default in options.items():
        if (value := given[name]) not in (default, (), []):
            raise ParameterError(name, str(value), f"left out {why}")


def _fewer(made: Any, ahead: Ahead, optimiser: Callable[..., Any]) -> Iterator[str]:
    """What fewer rounds would cost in accuracy, by the proven bounds."""
    for rounds in (made.rounds // 2, made.rounds // 4, made.rounds // 10):
        with suppress(ParameterError):
            other = optimiser(rounds=max(1, rounds))
            bits = forecast(other).user_payload_bits
            if bits < ahead.bits_per_user:
                known = math.isfinite(other.bound + made.bound)
                times = f", {other.bound / made.bound:.2f} x the proven bound" if known else ""
                yield f"--rounds {other.rounds}: {bits:,} bits a user{times}"


def _names(classes: str | None, source: Table) -> tuple[str, ...]:
    """The public classes, from the option or the schema; empty where none were stated."""
    if not classes:
        return source.classes or ()
    names = tuple(listed(classes))
    if len(set(names)) < len(names) or len(names) == 1 or not all(names):
        raise ParameterError("classes", classes, "different names, two at least")
    return names


def _central(
    trainer: Trainer,
    asked: OptimiserOptions,
    n: int,
) -> Any:
    """The curator's algorithm of a name, or a paid choice among several.

    Raises:
        ParameterError: another trust, or an unknown name.
    """
    trust, mechanism = Trust.of(asked.trust), asked.mechanism
    if trust is not Trust.CENTRAL:
        named = ("mechanism", mechanism) if mechanism else ("trust", asked.trust)
        allowed = "used with --trust central" if mechanism else "shuffle or central here"
        allowed += "; --compare shows all models of trust"
        raise ParameterError(*named, allowed)
    assert mechanism is not None  # by `_with_mechanism`
    if trainer.choose == "practice" and mechanism != GRADIENT:
        allowed = "bound with --trust central: a curator's algorithms rest on proven bounds"
        raise ParameterError("choose", trainer.choose, allowed)
    own, select = _of_mechanism(asked), asked.selected
    if own and (select or mechanism == GRADIENT):
        allowed = "left out with --select and with --mechanism gradient"
        name, value = next(iter(own.items()))
        raise ParameterError(_OPTIONS.get(name, name), value, allowed)
    if select:
        return trainer.selected_by_curator(mechanism, n, select)
    if trainer.privacy.delta == 0 and mechanism == pure.SGD:
        own |= pure.descent(n, trainer.d, trainer.privacy.epsilon)
    if trainer.privacy.delta == 0 and mechanism in pure.RIDGE and not trainer.ridge:
        trainer = replace(trainer, ridge=pure.ridge(mechanism, n, trainer.d, trainer.privacy))
    try:
        return trainer.central(mechanism, n, **own)
    except ParameterError as error:
        if error.parameter not in own:
            raise
        option_of = _OPTIONS.get(error.parameter, error.parameter)
        raise ParameterError(option_of, error.value, error.allowed) from error


def _of_mechanism(asked: OptimiserOptions) -> dict[str, Any]:
    """What was given for some mechanisms alone, by their own names."""
    given = {own: getattr(asked, option) for option, own in OF_MECHANISMS.items()}
    given |= {"phases": asked.phases, "smoothing": asked.smoothing}
    return {own: value for own, value in given.items() if value is not None}
