"""Membership games by name: an algorithm of a curator, and tables that are hard to hide."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from protocols.central.record.sums import CentralSum
from protocols.comparison.named import OF_MECHANISMS, STEPS
from protocols.learning.model import GRADIENT
from protocols.learning.training import Trainer
from protocols.optimisation.base import Optimiser
from protocols.problems.instances import crossed, leaning
from protocols.problems.losses import Linear
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, refuse_given
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import names, registered_kinds

Tables = dict[str, tuple[Floats, Floats]]
Game = tuple[Any, Tables]
"""An algorithm, and pairs of tables that differ in one row, by name."""
_RECORDS = 4  # of a person
_MORE: tuple[dict[str, Any], ...] = ({}, {"intercept": 0.5}, {"ridge": 0.5})
"""What some algorithms need beside a loss."""
_ADDED = "ridge", "constant"  # what is said where that is missing
_LEAN, _BORDER = 12.0, 0.072
"""How many rows pull. Over epsilon: an exponential mechanism is at the other end once in e^6 draws.
Of all rows: the minimiser of a grid's first phase is next to the border (by its exact law)."""


def game_of(
    name: str, n: int, d: int, privacy: Privacy, *, hardest: bool = False, **given: Any
) -> Game:
    """An algorithm of n rows or persons, and pairs of tables that differ in one of them, by name.

    Args:
        name: as registered, "-perturbation" left out if wanted; or GRADIENT.
        n: rows, or persons with four records each.
        d: parameters.
        privacy: of the algorithm.
        hardest: with the linear loss where it is taken, which attains the proofs' distances; slopes
            of the logistic loss are half of L where models begin. And with more tables, which are
            hard for one kind of mechanism.
        given: loss and other attributes of the model, STEPS and OF_MECHANISMS, in place of those
            chosen here.

    Raises:
        ParameterError: an unknown name, or what the algorithm refuses.
    """
    if name in _OWN:
        refuse_given(given, f"left out: {name} has a model of its own")
        return _OWN[name](n, d, privacy, hardest)
    kinds: dict[str, type[Optimiser[Any]]] = registered_kinds("algorithm", Optimiser)
    full = f"{name}-perturbation"
    kind = kinds.get(full, kinds.get(name))
    if kind is None and name in names("protocol"):
        allowed = "a curator's algorithm; users answer this one: give it as protocol"
        raise ParameterError("mechanism", name, allowed)
    if kind is None and name != GRADIENT:
        known = sorted({*kinds, *_OWN})
        raise ParameterError("mechanism", name, f"one of {', '.join([GRADIENT, *known])}")
    records = _RECORDS if kind is not None and kind.unit is Unit.PERSON else None
    steps = {key: given.pop(key) for key in STEPS if key in given}
    steps |= {own: given.pop(key) for key, own in OF_MECHANISMS.items() if key in given}
    every = (given.pop("loss"),) if "loss" in given else (Linear(), "hinge", _Sides(), "logistic")
    refused = None
    for loss, more in product(every if hardest else every[::-1], _MORE):
        try:
            trainer = Trainer.of(loss, d, privacy, **{"records": records} | more | given)
            made = trainer.central(name, n, **steps)
        except ParameterError as why:
            if refused is None or refused.parameter in _ADDED:
                refused = why
            continue
        return made, tables_of(trainer, n, hardest=hardest)
    assert refused is not None
    raise refused


def tables_of(trainer: Trainer, n: int, *, hardest: bool = False) -> Tables:
    """Tables of n rows or persons that are hard to hide from what a trainer makes."""
    persons = trainer.unit is Unit.PERSON
    features = trainer.loss.columns(trainer.d) - 1
    own = {} if persons or not hardest else _harder(n, features, trainer.privacy)
    return trainer.neighbours(n) | own


def steepest_game_of(name: str, n: int, d: int, privacy: Privacy, **given: Any) -> Game | None:
    """The hardest game, whatever the loss: its tables are as far apart as proofs allow.

    None where the algorithm takes no other loss with what is given.

    Args:
        name: as of `game_of`, like the others.
    """
    given.pop("loss", None)
    try:
        return game_of(name, n, d, privacy, hardest=True, **given)
    except ParameterError:
        return None


class _Sides(Linear):
    """The linear loss of two classes."""

    classification = True


def _harder(n: int, d: int, privacy: Privacy) -> Tables:
    few = min(n - 1, max(1, round(_LEAN / privacy.epsilon)))
    pulls = {"leaning": few, "bordering": round(_BORDER * n), "pulled": n - 1}
    found = {which: leaning(n, d, many) for which, many in pulls.items()}
    return found | ({"crossed": crossed(n)} if d == 2 else {})


def _sum(n: int, d: int, privacy: Privacy, hardest: bool) -> Game:
    rows = np.zeros((n, d))
    rows[0, 0] = 1.0
    return CentralSum.calibrated(n=n, d=d, privacy=privacy), {"opposite": (rows, -rows)}


_OWN: dict[str, Callable[[int, int, Privacy, bool], Game]] = {
    "central-sum": _sum,
}
"""Those that no `Trainer` makes."""
