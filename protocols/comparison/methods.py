"""Methods on one axis: what each costs, errs and promises at the same privacy.

Registered as comparisons: the command line finds them by their entry points. A sum or an optimiser
is in them by its own entry point alone.
"""

import math
from typing import Any

from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.one_round import BinomialSum, OneRoundSum, Setting
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds import gaussian, paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import Plan
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.kinds import Method, Trainer
from shuffle_sim.registry import names, registered


def sum_methods(n: int, d: int, privacy: Privacy, attackers: int) -> list[Method]:
    """Every registered one-round sum, then the central and the local model, by closed forms.

    Args:
        n: users.
        d: 1 for numbers in [0, 1], more for vectors in the unit l2 ball.
        privacy: of the release.
        attackers: malicious users, who hold the datum 0.
    """
    kinds = sorted(
        (
            (kind.family or name, kind)
            for name in names("protocol")
            if isinstance(kind := registered("protocol", name), type)
            and issubclass(kind, OneRoundSum)
        ),
        key=lambda pair: pair[0],
    )
    found = [
        _sum(family, kind, setting, n, attackers)
        for family, kind in kinds
        if kind.scalar == (d == 1)
        for setting in kind.settings(n, d, privacy)
    ]
    shown = {method.name for method in found}
    others = {family: kind.scalar for family, kind in kinds if family not in shown}
    for family, scalar in others.items():
        reason = f"it sums {'scalars' if scalar else 'vectors'} only"
        found.append(Method(family, "", Trust.SHUFFLE, refused=reason))
    return found + _mechanisms(n, d, privacy, attackers)


def _sum(family: str, kind: type[OneRoundSum], setting: Setting, n: int, attackers: int) -> Method:
    try:
        made = setting.make()
    except ParameterError as why:
        return Method(family, setting.name, Trust.SHUFFLE, refused=str(why))
    randomizer = made.randomizer
    error = math.sqrt(float(randomizer.variance(n).sum()))
    return Method(
        family,
        setting.name,
        Trust.SHUFFLE,
        algorithm=made,
        messages=randomizer.alphabet.labels * randomizer.per_label,
        bits=randomizer.report_bits,
        error=error,
        attacked=math.hypot(error, randomizer.manipulation(attackers, n)),
        colour=kind.colour,
        paper=setting.paper,
    )


def _mechanisms(n: int, d: int, privacy: Privacy, attackers: int) -> list[Method]:
    """A trusted curator, and no trust at all.

    A curator clips: an attacker moves its sum by 1 at most. Nothing bounds a local report.
    """
    error = math.sqrt(d) * gaussian.sigma(privacy.epsilon, privacy.delta, 2.0 if d > 1 else 1.0)
    cases = [("Gaussian", Trust.CENTRAL, error)]
    if d == 1:
        cases.append(("Laplace", Trust.CENTRAL, math.sqrt(2) / privacy.epsilon))
    cases.append(("Gaussian", Trust.LOCAL, error * Trust.LOCAL.noise(n)))
    return [
        Method(
            str(trust),
            setting,
            trust,
            messages=d,
            bits=d * trust.unit_bits,
            error=error,
            attacked=math.hypot(error, attackers)
            if trust is Trust.CENTRAL or not attackers
            else math.inf,
            colour=trust.colour,
        )
        for setting, trust, error in cases
    ]


def planned_methods(plan: Plan) -> list[Method]:
    """What a plan is compared with: errors are per coordinate and round, at sensitivity 1.

    Bits are per user, coordinate and round.
    """
    spec = plan.spec
    cases = [
        ("Gaussian", trust, spec.central * trust.noise(spec.n))
        for trust in (Trust.CENTRAL, Trust.LOCAL)
    ]
    if spec.d == spec.rounds == 1:
        # The optimum for counts (Ghosh, Roughgarden, Sundararajan 2012).
        step = spec.privacy.epsilon / plan.g
        std = math.sqrt(2 * math.exp(-step)) / -math.expm1(-step) / plan.g
        cases.insert(1, ("geometric, delta 0", Trust.CENTRAL, std))
    found = [
        Method(str(trust), setting, trust, bits=trust.unit_bits, error=std, colour=trust.colour)
        for setting, trust, std in cases
    ]
    return [*found, _planned_by_paper(plan)]


def _planned_by_paper(plan: Plan) -> Method:
    """The binomial sum with the paper's constants."""
    spec, privacy = plan.spec, plan.spec.privacy
    case = BinomialSum.family, "the paper's constants", Trust.SHUFFLE
    try:
        each, share = (
            (privacy.epsilon, privacy.delta)
            if spec.rounds == 1
            else paper.interactive_budget(privacy.epsilon, privacy.delta, spec.rounds)
        )
        constants = (
            paper.lemma_3_1(spec.n, each, share)
            if spec.d == 1
            else paper.theorem_3_2(spec.n, spec.d, each, share)
        )
    except ParameterError as error:
        return Method(*case, refused=str(error))
    variance = spec.n * (constants.b * constants.p * (1 - constants.p) + 0.25)
    return Method(
        *case,
        bits=constants.g + constants.b,
        error=math.sqrt(variance) / constants.g,
        colour=BinomialSum.colour,
        paper=True,
    )


def training_methods(trainer: Trainer, n: int, rounds: int | None = None) -> list[Method]:
    """Every registered optimiser, and the best one under every other trust.

    The best one is that of the least proven bound, its steps chosen for that trust's noise.

    Args:
        trainer: of the model.
        n: users.
        rounds: of the fully interactive optimisers; None: chosen.

    Raises:
        ParameterError: what every optimiser refuses.
    """
    if rounds is not None:
        integer("rounds", rounds)
    found = []
    for trust in Trust:
        made: dict[str, FirstOrder[Any]] = {}
        refused: dict[str, ParameterError] = {}
        for name in trainer.optimisers():
            given = None if registered("protocol", name).one_shot else rounds
            try:
                optimiser = trainer.protocol(name, n, tuned_for=trust, rounds=given)
            except ParameterError as error:
                refused[name] = error
            else:
                assert isinstance(optimiser, FirstOrder)
                made[name] = optimiser
        if not made:
            raise next(iter(refused.values()))
        if trust is Trust.SHUFFLE:
            found += [_training(trainer, name, "", each, trust) for name, each in made.items()]
            found += [Method(name, "", trust, refused=str(why)) for name, why in refused.items()]
        else:
            name = "not private" if trust is Trust.NONE else str(trust)
            best = min(made, key=lambda each: made[each].bound)
            found.append(_training(trainer, name, best, made[best], trust))
    return found


def _training(
    trainer: Trainer, name: str, setting: str, optimiser: FirstOrder[Any], trust: Trust
) -> Method:
    bits = trainer.d * trust.unit_bits
    if trust is Trust.SHUFFLE and (spec := optimiser.plan(optimiser.init())) is not None:
        bits = spec.randomizer.report_bits
    return Method(
        name,
        setting,
        trust,
        algorithm=optimiser,
        bits=bits * optimiser.rounds_per_user,
        rounds_per_user=optimiser.rounds_per_user,
        bound=math.inf if trainer.clips else optimiser.bound,
        colour=trust.colour,
    )
