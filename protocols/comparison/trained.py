"""Methods trained on the same splits of a table: scores on people held out, and how they vary."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from protocols.comparison.methods import Method
from protocols.comparison.training import training_methods
from protocols.learning.splits import PeopleCount, Split
from protocols.learning.training import Trainer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.labelled import Labelled
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import integer
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import Result
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.sampling.randomness import entropy_of

REPEATS = {False: 20, True: 5}
"""Splits of a comparison, by whether all methods are in it."""


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


Scores = dict[str, SplitScore]


@dataclass(frozen=True)
class TrainedMethod:
    """What a method gave on all splits."""

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
class TrainedMethods:
    """Methods that were trained on the same splits.

    Attributes:
        people: asked and held out.
        repeats: splits, and runs of each method.
        constant: scores of the best constant predictions, fitted without privacy.
        methods: in the order of `training_methods`.
        refused: why others cannot be had, by name.
    """

    people: PeopleCount
    repeats: int
    constant: Scores = field(metadata=SIMULATOR_VIEW)
    methods: list[TrainedMethod]
    refused: dict[str, str]


def train_methods(
    source: Labelled,
    trainer: Trainer,
    *,
    test_fraction: float = 0.2,
    repeats: int | None = None,
    rounds: int | None = None,
    every: bool = False,
    seed: int | None = None,
    shuffled: Callable[..., Result] | None = None,
    on_run: Callable[[str, int, int], object] = lambda name, done, of: None,
) -> TrainedMethods:
    """Train on the same splits by every method, or by the best one of each model of trust.

    Args:
        source: labelled rows, of records or of persons.
        trainer: of the model.
        test_fraction: of the people, who are held out.
        repeats: splits, and runs of a method, up to 1000; None: REPEATS.
        rounds: of the fully interactive optimisers; None: chosen.
        every: all optimisers, and all algorithms.
        seed: of all splits and runs; None: from the OS.
        shuffled: what runs a protocol; it takes that, rows and `seed`. None: `run`, by tallies.
        on_run: called before each run with the method, the runs that are over, and all.

    Raises:
        ParameterError: what every optimiser refuses, or repeats outside [1, 1000].
    """
    shuffled = shuffled or partial(run, fidelity="aggregate")
    repeats = REPEATS[every] if repeats is None else integer("repeats", repeats, 1, 1000)
    seeds: list[int | None] = [None] * repeats
    if seed is not None:
        # With seed, seed + 1, ... neighbouring seeds would share most of their splits.
        drawn = np.random.SeedSequence(entropy_of(seed)).generate_state(repeats)
        seeds = [int(each) for each in drawn]
    splits = [Split.of(source, trainer, test_fraction, each) for each in seeds]
    people = splits[0].people
    methods = training_methods(trainer, people.asked, rounds, every=every)
    records = min(len(split.train) for split in splits)
    if every and trainer.unit is Unit.PERSON:  # beside them, what protects a record only
        methods.extend(training_methods(trainer.for_records(), records, rounds))
    possible, found = [each for each in methods if not each.refused], list[TrainedMethod]()
    for place, method in enumerate(possible):
        runs = []
        for done, (split, each) in enumerate(zip(splits, seeds, strict=True)):
            on_run(method.name, place * repeats + done, len(possible) * repeats)
            runs.append(_run(method, split, records, each, shuffled))
        scores = [split.scores(run.value) for split, run in zip(splits, runs, strict=True)]
        one = TrainedMethod(
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
        found.append(one)
    refused = {_named(each): each.refused for each in methods if each.refused}
    constant = _spread([split.constant() for split in splits])
    return TrainedMethods(people, repeats, constant, found, refused)


def _run(
    method: Method, split: Split, records: int, seed: int | None, shuffled: Callable[..., Result]
) -> Result:
    """On persons, or on as many of their records as every split has."""
    rows: Floats | Persons = split.asked
    if split.persons is not None and method.unit is Unit.RECORD:
        rows = np.random.default_rng(entropy_of(seed)).permutation(split.train)[:records]
    algorithm: Any = method.algorithm
    how = shuffled if isinstance(algorithm, Protocol) else run
    return how(algorithm, rows, seed=seed)


def _named(method: Method) -> str:
    """Its name, unique among records and persons."""
    return method.name if method.unit is Unit.RECORD else f"{method.name} (person)"


def _spread(scores: list[dict[str, float]]) -> Scores:
    return {name: SplitScore.of([each[name] for each in scores]) for name in scores[0]}
