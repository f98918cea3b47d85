"""`shuffle-sim train`: a linear model by shuffle-private convex optimisation."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from protocols.learning.training import Trainer
from shuffle_sim.cli import options as o
from shuffle_sim.cli import train_compare, train_report
from shuffle_sim.cli.ahead import Ahead, announce
from shuffle_sim.cli.data import declared_of, load
from shuffle_sim.cli.files import check_path, check_picture
from shuffle_sim.cli.learning import Split, Watch
from shuffle_sim.cli.paid import FRACTION, Paid
from shuffle_sim.cli.progress import Bar
from shuffle_sim.cli.running import RunOptions
from shuffle_sim.cli.show import present
from shuffle_sim.data.labelled import labelled
from shuffle_sim.data.population import Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.checkpoint import split_seed
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.execution.options import Execution
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.privacy.trust import Trust

_PROTOCOLS = {Unit.RECORD: "shuffle-gd", Unit.PERSON: "user-level-gd"}
_HYPER, _REPEATS = "calibrated", 5
_HEAVY = "heavy-tailed-erm"
_CHOICES = ("protocol", "hyper", "phases", "batch", "eta", "smoothing", "select", "choose_bounds")
_CHOSEN_BY_COMPARE = dict.fromkeys((*_CHOICES, "mechanism", "model_out", "checkpoint")) | {
    "trust": "shuffle"
}
_OF_MESSAGES = dict.fromkeys(
    (*_CHOICES, "select_fraction", "rounds", "noise_ratio", "max_bits", "encoding", "fidelity")
) | {"honest_fraction": 1.0, "security": "none"}
del _OF_MESSAGES["select"]
"""Options without a use there, by what they are where nobody gives them."""


def train_command(
    context: typer.Context,
    table: o.TableName = None,
    file: o.File = None,
    label: o.Label = None,
    positive: o.Positive = None,
    classes: o.Classes = None,
    columns: o.Columns = None,
    bounds: o.BoundsOption = None,
    choose_bounds: o.ChooseBounds = None,
    schema: o.SchemaFile = None,
    missing: o.Missing = None,
    categories: o.Categories = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    thousands: o.Thousands = None,
    person: o.Person = None,
    records: o.Records = None,
    loss: o.Loss = "logistic",
    quantile: o.Quantile = None,
    threshold: o.Threshold = None,
    radius: o.Radius = None,
    ridge: o.Ridge = 0.0,
    norm_bound: o.NormBound = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help=f"Name of an optimiser, such as shuffle-sgd; default {_PROTOCOLS[Unit.RECORD]}."
        ),
    ] = None,
    trust: o.TrustName = "shuffle",
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="With --trust central: output, objective, gibbs, heavy-tailed-erm or another name."
        ),
    ] = None,
    pure: o.Pure = False,
    moment: o.Moment = None,
    pilot: o.Pilot = False,
    hyper: Annotated[
        str | None,
        typer.Option(help=f"How steps are chosen: calibrated or paper; default {_HYPER}."),
    ] = None,
    choose: Annotated[
        str | None,
        typer.Option(
            help="Parameters: practice (tuned on synthetic data, no proven bound) or bound (the "
            "smallest proven bound); default practice, but bound with --compare, --phases, "
            "--moment, --hyper paper and a curator."
        ),
    ] = None,
    rounds: o.Rounds = None,
    batch: o.Batch = None,
    eta: Annotated[float | None, typer.Option(help="Step size; by default chosen.")] = None,
    smoothing: Annotated[
        float | None, typer.Option(help="Smoothness of the Moreau envelope; by default chosen.")
    ] = None,
    phases: Annotated[
        int | None,
        typer.Option(help="Phases over disjoint users, with --ridge; 0: their number is chosen."),
    ] = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = DELTA,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="NAME=a,b",
            help="Train a model for each value of radius, ridge, norm-bound, rounds, eta or "
            "smoothing within one budget. People who train none choose one by noisy scores; with "
            "--trust central the exponential mechanism does. Repeatable.",
        ),
    ] = None,
    select_fraction: Annotated[
        float | None,
        typer.Option(
            help=f"With --select: fraction of the people asked who score; default {FRACTION}."
        ),
    ] = None,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    encoding: o.Encoding = None,
    honest_fraction: o.HonestFraction = 1.0,
    test_fraction: o.TestFraction = 0.2,
    runtime: o.RuntimeName = "inprocess",
    address: o.Address = None,
    workers: o.Workers = "1",
    placement: o.Placement = "apart",
    fidelity: o.Fidelity = None,
    security: o.Security = "none",
    sealing_seconds: o.SealingSeconds = None,
    round_timeout: o.RoundTimeout = None,
    generator: o.GeneratorName = "sfc64",
    seed: o.Seed = None,
    checkpoint: o.Checkpoint = None,
    resume: o.Resume = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Compare all optimisers, and central, local and non-private training."
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(help=f"With --compare: splits, and runs of a method; default {_REPEATS}."),
    ] = None,
    yes: o.Yes = False,
    json: o.Json = False,
    plot: o.Plot = None,
    model_out: Annotated[Path | None, typer.Option(help="File for the model (.json).")] = None,
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
    if Trust.of(trust) is not Trust.CENTRAL:
        _no_curator(pure, pilot and not compare)
    marks = delimiter, decimal, thousands
    stated = declared_of(schema, missing, categories, *marks, choose_bounds)
    source = load(table, file, columns, bounds, label, person, stated)
    names = _names(classes, source)
    trainer = Trainer.of(
        loss,
        len(source.columns) + 1,
        Privacy(epsilon, 0.0 if pure else delta),
        quantile=quantile,
        threshold=threshold,
        radius=radius,
        ridge=ridge,
        norm_bound=norm_bound,
        noise_ratio=noise_ratio,
        max_bits=max_bits,
        encoding=encoding,
        honest_fraction=honest_fraction,
        moment=moment,
        pilot=pilot,
        records=_records(source.person is not None, records),
        classes=2 if positive else len(names),
        intercept=1 / math.hypot(source.scale.norm, 1),
        choose=choose
        or _choose(mechanism, phases, moment, hyper == "paper", pure, pilot, trust != "shuffle"),
    )
    is_class, given = trainer.classification, names if classes else ()
    rows = labelled(source, classes=is_class, positive=positive or (), names=given)
    how = RunOptions.given(context)
    paid = Paid.of(select or (), select_fraction, choose_bounds, rows.by)
    if plot is not None and choose_bounds is not None:
        raise ParameterError("plot", str(plot), "left out with --choose-bounds: losses are unknown")
    check_picture(plot)
    check_path("model_out", model_out, (".json",))
    if compare:
        _left_out(context, _CHOSEN_BY_COMPARE, "with --compare, which chooses for every method")
        count = _REPEATS if repeats is None else repeats
        summary = train_compare.compared(rows, trainer, test_fraction, count, rounds, seed, how)
        present(summary, train_compare.show, train_compare.draw, json=json, plot=plot)
        return
    if repeats is not None:
        raise ParameterError("repeats", repeats, "given with --compare")
    split = Split.of(rows, trainer, test_fraction, split_seed(checkpoint, resume, seed))
    if Trust.of(trust) is not Trust.SHUFFLE or mechanism is not None:
        heavy = pure or pilot or moment is not None
        named = mechanism or (_HEAVY if heavy and Trust.of(trust) is Trust.CENTRAL else None)
        by_curator = _central(trainer, trust, named, split.people.asked, paid.select)
        _left_out(context, _OF_MESSAGES, "with --trust central: one release")
        if plot is not None:
            raise ParameterError("plot", str(plot), "left out with --trust central: few releases")
        saved: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume, "seed": seed}
        saved |= {"runtime": how.runtime, "workers": how.workers}
        saved["execution"] = Execution(placement=how.placement)
        result = run(by_curator, split.asked, **saved)
        split, result, winner = paid.opened(split, result)
        report = train_report.summed_up(split, by_curator, result, [], winner=winner)
        _finish(report, json, None, model_out)
        return
    optimiser = partial(
        paid.protocol,
        trainer,
        protocol or _PROTOCOLS[trainer.unit],
        split.people.asked,
        hyper=hyper or _HYPER,
        phases=phases,
        batch=batch,
        eta=eta,
        smoothing=smoothing,
    )
    made = optimiser(rounds=rounds)
    ahead = how.ahead(made, split.asked)
    start = announce(ahead, _fewer(made, ahead, optimiser), yes=yes, json=json)
    with Bar("training", made.rounds) as bar:
        watch = Watch(split, made.rounds, delta, lambda moment: bar.step(moment.round, str(moment)))
        result = how.run(
            made,
            split.asked,
            seed,
            checkpoint=checkpoint,
            resume=resume,
            on_round=watch,
            on_start=start,
        )
    split, result, winner = paid.opened(split, result)
    bits = ahead.bits_per_user
    report = train_report.summed_up(split, made, result, watch.moments, bits, winner)
    _finish(report, json, plot, model_out)


def _left_out(context: typer.Context, options: Mapping[str, object], why: str) -> None:
    """Refuse options that differ from what they are where nobody gives them."""
    for name, default in options.items():
        if (value := context.params[name]) not in (default, (), []):
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


def _finish(
    report: train_report.Report, json: bool, plot: Path | None, model_out: Path | None
) -> None:
    """Print, draw and save."""
    present(report, train_report.show, train_report.draw, json=json, plot=plot)
    if model_out is not None:
        train_report.save(report, model_out, quiet=json)


def _choose(*bounds: object) -> str:
    """Tuned parameters, unless anything asked for rests on proven bounds."""
    return "practice" if all(each is None or each is False for each in bounds) else "bound"


def _names(classes: str | None, source: Table) -> tuple[str, ...]:
    """The public classes, from the option or the schema; empty where none were stated."""
    if not classes:
        return source.classes or ()
    names = tuple(each.strip() for each in classes.split(","))
    if len(set(names)) < len(names) or len(names) == 1 or not all(names):
        raise ParameterError("classes", classes, "different names, two at least")
    return names


def _records(persons: bool, records: int | None) -> int | None:
    """Nominal records of a person; None where users are records."""
    if not persons and records is not None:
        raise ParameterError("records", records, "used with --person")
    return 1 if persons and records is None else records


def _central(
    trainer: Trainer,
    trust: str,
    mechanism: str | None,
    n: int,
    select: Mapping[str, Sequence[float]],
) -> Any:
    """The curator's algorithm of a name, or a paid choice among several.

    Raises:
        ParameterError: another trust, or an unknown name.
    """
    if Trust.of(trust) is not Trust.CENTRAL:
        named = ("mechanism", mechanism) if mechanism else ("trust", trust)
        allowed = "used with --trust central; --compare shows all models of trust"
        raise ParameterError(*named, allowed)
    if trainer.choose == "practice":
        allowed = "bound with --trust central: a curator's algorithms rest on proven bounds"
        raise ParameterError("choose", trainer.choose, allowed)
    if select:
        return trainer.selected_by_curator(mechanism or "output", n, select)
    return trainer.central(mechanism or "output", n)


def _no_curator(pure: bool, pilot: bool) -> None:
    """Refuse what only a curator takes."""
    if pure:
        allowed = "given with --trust central: no view of a shuffler is purely private here"
        raise ParameterError("pure", pure, allowed)
    if pilot:
        allowed = "given with --trust central or --compare; in Python there is protocols.Piloted"
        raise ParameterError("pilot", pilot, allowed)
