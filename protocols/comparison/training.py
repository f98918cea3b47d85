"""Optimisers on one axis: every registered one, and the best one under every other trust."""

import math
from collections.abc import Callable
from typing import Any

from protocols.comparison.methods import Method, Methods, possible
from protocols.learning.baselines import BASELINES, Baseline
from protocols.learning.training import Trainer
from protocols.optimisation.base import Optimiser
from protocols.shuffle.optimiser import FirstOrder
from protocols.shuffle.practice import PracticalDescent
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.registry import registered, registered_kinds, skipping


def training_methods(
    trainer: Trainer, n: int, rounds: int | None = None, *, every: bool = True
) -> Methods:
    """Every registered optimiser, shuffled or central, and the best one under every other trust.

    The best one is that with tuned steps, or with choose="bound" that of the least proven bound.
    Its steps are chosen for that trust's noise.

    Args:
        trainer: of the model.
        n: users.
        rounds: of the fully interactive optimisers; None: chosen.
        every: False for the best one of each model of trust alone: four methods.

    Raises:
        ParameterError: what every optimiser refuses.
    """
    if rounds is not None:
        integer("rounds", rounds)
    found = []
    for trust in (Trust.SHUFFLE, *BASELINES):
        makes = {name: _made_by(trainer, name, n, trust, rounds) for name in trainer.optimisers()}
        made, refused = possible("protocol", makes)
        if not made:
            raise next(iter(refused.values()))
        best = min(made, key=lambda each: _rank(made[each]))
        if trust is Trust.SHUFFLE and not every:
            for own in dict.fromkeys(each.trust for each in made.values()):
                kinds = (name for name, each in made.items() if each.trust is own)
                first = min(kinds, key=lambda each: _rank(made[each]))
                found.append(_shuffled(trainer, first, made[first]))
            continue
        if trust is Trust.SHUFFLE:
            found += [_shuffled(trainer, name, each) for name, each in made.items()]
            found += [
                Method(
                    name,
                    "",
                    registered("protocol", name).trust,
                    unit=trainer.unit,
                    refused=str(why),
                )
                for name, why in refused.items()
            ]
            continue
        name = "not private" if trust is Trust.NONE else str(trust)
        found.append(_central(trainer, name, best, Baseline(made[best], trust)))
        if trust is Trust.CENTRAL and every:
            if trainer.unit is Unit.PERSON:
                found.append(_clipped_at_length(trainer, n, rounds))
            found += _central_optimisers(trainer, n)
    return Methods(found)


def _rank(made: FirstOrder[Any]) -> tuple[bool, float, int]:
    """Tuned steps go first, where they were asked for; then the least bound."""
    return not isinstance(made, PracticalDescent), made.bound, -made.rounds_per_user


def _clipped_at_length(trainer: Trainer, n: int, rounds: int | None) -> Method:
    """What federated learning does: person-level descent clipped at L about 0, at a curator.

    It is item-level noise with group privacy, too: the noise is the same (docs: Persons). Its steps
    are those of its bound; with tuned steps it is the row of the central model.
    """
    name = "dp-fedsgd"
    try:
        made = trainer.proven().protocol(
            "user-level-gd", n, trust=Trust.CENTRAL, center="fixed", rounds=rounds
        )
    except ParameterError as why:
        return Method(name, "", Trust.CENTRAL, unit=trainer.unit, refused=str(why))
    assert isinstance(made, FirstOrder)
    curator = Baseline(made, Trust.CENTRAL)
    return _central(trainer, name, "clipped at L, steps of its bound", curator)


def _made_by(
    trainer: Trainer, name: str, n: int, trust: Trust, rounds: int | None
) -> Callable[[], FirstOrder[Any]]:
    # Who answers once has as many rounds as batches: nothing to be told.
    given = None if registered("protocol", name).one_shot else rounds

    def made() -> FirstOrder[Any]:
        optimiser = trainer.protocol(name, n, trust=trust, rounds=given)
        assert isinstance(optimiser, FirstOrder)
        return optimiser

    return made


def _central_optimisers(trainer: Trainer, n: int) -> list[Method]:
    """The registered central algorithms that train."""
    trainer = trainer.proven()
    common: dict[str, Any] = {"n": n, "problem": trainer.problem, "privacy": trainer.privacy}
    makes: dict[str, Callable[[], Optimiser[Any]]] = {}
    for name, kind in registered_kinds("algorithm", Optimiser).items():
        if kind.unit is not trainer.unit:
            continue
        given = {key: value for key, value in trainer.tails.items() if key in kind.takes}
        with skipping("algorithm", name):
            for setting, make in kind.settings(**common, **given):
                makes[f"{name}, {setting}" if setting else name] = make
    made, refused = possible("algorithm", makes)
    found = [_central(trainer, name, "", each) for name, each in made.items()]
    return found + [
        Method(name, "", Trust.CENTRAL, unit=trainer.unit, refused=str(why))
        for name, why in refused.items()
    ]


def _shuffled(trainer: Trainer, name: str, optimiser: FirstOrder[Any]) -> Method:
    first = optimiser.plan(optimiser.init())
    bits = 0 if first is None else first.randomizer.report_bits
    times = optimiser.rounds_per_user
    return Method(
        name,
        "",
        optimiser.trust,
        unit=optimiser.unit,
        algorithm=optimiser,
        bits=bits * times,
        rounds_per_user=times,
        bound=math.inf if trainer.clips else optimiser.bound,
        assumes=optimiser.assumes,
    )


def _central(trainer: Trainer, name: str, setting: str, made: Any) -> Method:
    """A curator's optimiser, or a baseline."""
    nothing = trainer.clips or getattr(made, "own_objective", False)  # proven of the mean loss
    return Method(
        name,
        setting,
        made.trust,
        unit=made.unit,
        algorithm=made,
        bits=trainer.d * made.trust.unit_bits * made.rounds_per_user,
        rounds_per_user=made.rounds_per_user,
        bound=math.inf if nothing else made.bound,
        assumes=made.assumes,
    )
