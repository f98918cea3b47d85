"""Rounds of every protocol and broadcast type that there is, found by registry and by class."""

import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import protocols
from protocols import (
    CarryVectorSum,
    FoundHistogram,
    GroupMeans,
    HeavyHitters,
    Histogram,
    Quantiles,
    ShuffleGD,
    ShuffleSGD,
    VectorSum,
)
from protocols.counts.methods import METHODS
from protocols.erm.groups import ByClass, Grouped, Mixture
from protocols.optimisation import Phased
from protocols.problems.domains import L2Ball, RealSpace
from protocols.problems.flattened import Flattened
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import Linear, Logistic, MeanEstimation
from protocols.problems.multiclass import OneVsRestHinge, Softmax
from protocols.problems.problem import Problem
from protocols.problems.regression import Regression
from protocols.problems.smoothed import Smoothed
from protocols.problems.weighted import Weighted
from protocols.selection import ChosenBounds, Selected
from protocols.selection.models import grid
from protocols.shuffle import OneShotAverage
from protocols.shuffle.heavy_tails import Piloted
from protocols.shuffle.lloyd import ShuffleLloyd
from protocols.shuffle.optimiser import optimisers
from protocols.shuffle.practice import practical
from protocols.shuffle.user_level_one_shot import UserLevelOneShot
from protocols.sums.laplace_sum import LaplaceVectorSum
from protocols.sums.one_round import OneRoundSum
from protocols.sums.running_totals import RunningTotals
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.data.population import Unit
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.protocol.base import Protocol, Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import task_of, walked
from shuffle_sim.registry import registered, registered_kinds
from shuffle_sim.roles import Deployment
from shuffle_sim.wire.frames import Context, Frame, Kind

D, N, PRIVACY = 3, 3000, Privacy(1.0, 1e-6)
KINDS: tuple[Any, ...] = (Protocol, Query, Randomizer, Loss)
"""Classes whose concrete subclasses all have a round here."""
_NOT_SENT = {
    "OneRound",
    "BenchRound",
    "Multiples",
    "Tags",
    "WordTags",
    "_Sides",
}  # the frame, and those of audits


@dataclass(frozen=True)
class World:
    """A protocol as its roles have it, and broadcasts of its rounds: one of each form."""

    deployment: Deployment
    broadcasts: tuple[bytes, ...]


def _problem(loss: Loss, d: int = D, **more: Any) -> Problem:
    return Problem(loss, L2Ball(d, 1.0), **more)


def _losses() -> Iterator[tuple[Loss, int]]:
    """All of them, with their parameters for three columns."""
    kinds = {*registered_kinds("loss", LinearLoss).values(), Linear}
    for kind in sorted(kinds, key=lambda each: each.__name__):
        yield (kind(labels=1.0) if issubclass(kind, Regression) else kind()), D
    yield from ((MeanEstimation(), D), (Softmax(2), 2 * D), (OneVsRestHinge(2), 2 * D))
    groups = Grouped(Logistic(), 3)
    yield from ((Weighted(Logistic(), 2.0), D), (groups, D), (Smoothed(), D))
    yield Flattened(MeanEstimation(), 0.5), D
    yield Mixture(groups, (1.0, 2.0, 3.0)), D
    yield from ((ByClass(Logistic()), D), (Mixture(ByClass(Logistic()), (2.0, 2.0)), D))


def _first(kind: type[OneRoundSum]) -> OneRoundSum:
    """The first of its settings that can be had."""
    for setting in kind.settings(N, D, PRIVACY):
        with suppress(ParameterError):
            return setting.make()
    raise AssertionError(f"no setting of {kind.__name__} can be had")


def made() -> dict[str, Protocol[Any]]:
    """Protocols by name: whatever is registered, and what is made of them."""
    common: dict[str, Any] = {"n": N, "privacy": PRIVACY}
    found: dict[str, Protocol[Any]] = {
        name: _first(kind) for name, kind in registered_kinds("protocol", OneRoundSum).items()
    }
    ridge = _problem(Logistic(), ridge=0.5, records=4)
    for unit in Unit:
        found |= {
            name: kind.calibrated(problem=ridge, **common)
            for name, kind in optimisers(unit).items()
        }
    for loss, d in _losses():
        problem = _problem(loss, d)
        found[f"sgd {type(loss).__name__}"] = ShuffleSGD.calibrated(
            problem=problem, batch=N // 3, **common
        )
    person = registered("protocol", "user-level-gd")
    line, ones = np.full(D, np.inf), np.ones(D)
    by = RowMap(-line, line, 0 * ones, ones, np.arange(D), ones / 2)
    whole, real = Problem(Logistic(), RealSpace(D), 0.2), _problem(Logistic(), constant=0.5)
    return found | {
        **{
            f"histogram {method}": Histogram.calibrated(categories=5, method=method, **common)
            for method in METHODS
        },
        "heavy hitters": HeavyHitters.calibrated(levels=(6, 4, 4), kept=9, **common),
        "found": FoundHistogram.calibrated(bits=16, kept=9, **common),
        "quantiles": Quantiles.calibrated(low=0.0, high=1.0, leaves=16, **common),
        "group means": GroupMeans.calibrated(groups=4, low=0.0, high=1.0, bits=2, **common),
        "running totals": RunningTotals.calibrated(n=N // 4, rounds=4, privacy=PRIVACY),
        "floods of vectors": LaplaceVectorSum.calibrated(d=2, **common),
        "rotated": CarryVectorSum(n=N, d=D, g=2.0, r=2, b=30, rotation=5),
        "one shot": UserLevelOneShot.calibrated(problem=ridge, **common),
        "average person": OneShotAverage.calibrated(records=4, problem=whole, **common),
        "average record": OneShotAverage.calibrated(
            records=4, problem=whole, protects="record", **common
        ),
        "clusters": ShuffleLloyd(d=D, clusters=2, rounds=3, **common),
        "phased": Phased.calibrated(problem=ridge, optimiser=ShuffleSGD, phases=2, **common),
        "tuned": practical(ShuffleGD, problem=real, rounds=7, **common),
        "tuned person": practical(person, problem=real, rounds=7, **common),
        "piloted": Piloted(
            ShuffleSGD, problem=_problem(Logistic(np.inf), norm_bound=np.inf), **common
        ),
        "bounds": ChosenBounds.calibrated(
            lambda left: VectorSum.calibrated(n=30 * N, d=D, privacy=left, noise_ratio=1.1),
            n=30 * N,
            by=by,
            privacy=Privacy(3.0, 1e-6),
        ),
        "selected": Selected.calibrated(
            grid(
                {"radius": (0.5, 2.0)},
                lambda users, privacy, radius: practical(
                    ShuffleGD,
                    n=users,
                    problem=Problem(Logistic(), L2Ball(D, radius)),
                    privacy=privacy,
                    rounds=2,
                ),
            ),
            **common,
        ),
    }


@lru_cache
def worlds() -> dict[bytes, World]:
    """By the 16 bytes that name their run."""
    found = {}
    for name, protocol in made().items():
        task, agreed = hashlib.sha256(name.encode()).digest()[:16], task_of(protocol)
        deployment = Deployment(
            protocol=protocol,
            task=task,
            entropy=7,
            fidelity="aggregate",
            block_size=64,
            agreed=agreed,
        )
        rounds: dict[Any, bytes] = {}
        for index, spec in zip(range(60), walked(protocol), strict=False):
            payload = spec.broadcast()
            context = Context.of_broadcast(task, index, payload)
            kinds = type(spec.query), type(getattr(spec.query, "loss", None))
            sent = Frame(Kind.ROUND, context, 0, 0, payload).tobytes()
            rounds.setdefault((*kinds, spec.randomizer.alphabet.labels), sent)
        found[task] = World(deployment, tuple(rounds.values()))
    return found


def sent(world: World) -> set[type]:
    """The protocol, and all classes that its broadcasts hold."""
    found: set[type] = {type(world.deployment.protocol)}
    left: list[Any] = [world.deployment.opened(each) for each in world.broadcasts]
    while left:
        value = left.pop()
        found.add(type(value))
        left += vars(value).values() if hasattr(value, "__dataclass_fields__") else ()
    return found


def concrete() -> set[type]:
    """All classes of the kinds in what is shipped."""
    for package in (protocols,):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    left, found = list(KINDS), set[type]()
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        shipped = kind.__module__.partition(".")[0] in ("protocols", "shuffle_sim")
        if shipped and not inspect.isabstract(kind) and kind.__name__ not in _NOT_SENT:
            found.add(kind)
    return found
