"""Methods on one axis: what each costs, errs and promises at the same privacy.

A sum or an optimiser is in them by its own registration alone. One that breaks in a way that nobody
planned is left out, with one warning that names it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from protocols.central.record.sums import CentralSum
from protocols.sums.binomial_sum import BinomialSum
from protocols.sums.one_round import OneRoundSum, SumSetting
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.notebook import html_rows
from shuffle_sim.privacy.bounds import central, gaussian, paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import Plan
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.encodings import choose, encodings, robust
from shuffle_sim.protocol.release import CentralAlgorithm
from shuffle_sim.registry import registered_kinds, skipping

Made = TypeVar("Made")


@dataclass(frozen=True)
class Method:
    """A method in a comparison: one setting of an algorithm under one trust model.

    Errors are root mean squares, in l2 over the coordinates, with rounding at its worst.

    Attributes:
        name: of the algorithm or of the trust model.
        setting: of that.
        trust: who must be trusted.
        unit: whose data the guarantee protects.
        algorithm: what runs it; None where formulas alone are compared.
        messages: that a user sends in a round.
        bits: that a user sends in the whole run, the papers' count.
        limit_bits: that unbiased reports with this error take at least, added by a trusted party;
            0 where that says nothing.
        error: with honest users only.
        attacked: with malicious users that send the worst they can; infinite where nothing bounds
            them.
        rounds_per_user: in how many rounds a user answers at most.
        bound: proven, of the expected excess loss; infinite where none is proven.
        assumes: what the bound assumes of the data; "" for nothing.
        paper: whether a paper's constants were taken as they are.
        epsilon: proven, where it is not that of the whole comparison.
        refused: why it cannot be had; all numbers are then without meaning.
    """

    name: str
    setting: str
    trust: Trust
    unit: Unit = Unit.RECORD
    algorithm: Protocol[Any] | CentralAlgorithm[Any] | None = field(default=None, repr=False)
    messages: float = 0
    bits: float = 0
    limit_bits: float = 0.0
    error: float = math.nan
    attacked: float = math.nan
    rounds_per_user: int = 1
    bound: float = math.inf
    assumes: str = ""
    paper: bool = False
    epsilon: float | None = None
    refused: str = ""

    @property
    def title(self) -> str:
        """Name and setting."""
        return f"{self.name}, {self.setting}" if self.setting else self.name


class Methods(list[Method]):
    """A comparison: methods at one privacy."""

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        heads = "method", "setting", "trusted", "bits", "error", "bound", "refused"
        rows = (
            (
                each.name,
                each.setting,
                each.trust.trusted,
                *(_shown(one) for one in (each.bits, each.error, each.bound)),
                each.refused,
            )
            for each in self
        )
        return html_rows(heads, rows)


def _shown(value: float) -> str:
    return f"{value:,.4g}" if math.isfinite(value) else "-"


def sum_methods(n: int, d: int, privacy: Privacy, attackers: int) -> Methods:
    """Every registered sum, shuffled or central, then the local model, by closed forms.

    Args:
        n: users.
        d: 1 for numbers in [0, 1], more for vectors in the unit l2 ball.
        privacy: of the release.
        attackers: malicious users, who hold the datum 0.
    """
    sums: dict[str, type[OneRoundSum]] = registered_kinds("protocol", OneRoundSum)
    kinds = sorted(
        ((kind.family or name, name, kind) for name, kind in sums.items()),
        key=lambda each: each[0],
    )
    made = [method for each in kinds for method in _settings(*each, n, d, privacy, attackers)]
    # Different wishes may be met by the same sum.
    # Backwards: of equal ones the first is written last, and stays.
    same = {(each.name, each.bits, each.error, each.refused): each for each in reversed(made)}
    found = [*reversed(same.values())]
    shown = {method.name for method in found}
    others = {family: kind for family, _, kind in kinds if family not in shown}
    for family, kind in others.items():
        reason = f"it sums {'scalars' if kind.scalar else 'vectors'} only"
        found.append(Method(family, "", kind.trust, refused=reason))
    case = n, d, privacy, attackers
    return Methods([*found, *_curators(*case), _local(*case)])


def _settings(
    family: str,
    name: str,
    kind: type[OneRoundSum],
    n: int,
    d: int,
    privacy: Privacy,
    attackers: int,
) -> Iterator[Method]:
    """A registered sum in each of its settings; as far as it can be had."""
    if kind.scalar == (d == 1):
        with skipping("protocol", name):
            for setting in kind.settings(n, d, privacy):
                yield _sum(family, kind, setting, n, d, attackers)


def _limit_bits(error: float, n: int, d: int) -> float:
    """What unbiased reports take at least for an error of the sum (docs: Cheaper sums).

    A value halfway between two neighbours of the k reports that a coordinate can send has a
    variance of at least a quarter of their squared distance. So k - 1 distances cover the range.
    """
    width = 2.0 if d > 1 else 1.0
    # error^2 >= n d (w/(2 (k - 1)))^2, solved for k; log2 k bits in each coordinate.
    return d * math.log2(1 + width * math.sqrt(n * d) / (2 * error))


def _sum(
    family: str, kind: type[OneRoundSum], setting: SumSetting, n: int, d: int, attackers: int
) -> Method:
    try:
        made = setting.make()
    except ParameterError as why:
        return Method(family, setting.name, kind.trust, refused=str(why))
    randomizer = made.randomizer
    # In l2: the sum over coordinates.
    error = math.sqrt(float(randomizer.variance(n).sum()))
    return Method(
        family,
        setting.name,
        kind.trust,
        algorithm=made,
        messages=randomizer.usual_messages,
        bits=randomizer.usual_bits,
        limit_bits=_limit_bits(error, n, d),
        error=error,
        attacked=math.hypot(error, randomizer.manipulation(attackers, n)),
        paper=setting.paper,
    )


def _curators(n: int, d: int, privacy: Privacy, attackers: int) -> list[Method]:
    """The registered central sums: a curator clips, so an attacker moves its sum by 1 at most."""
    found = []
    for name, kind in registered_kinds("algorithm", CentralSum).items():
        made, refused = dict[str, CentralSum](), dict[str, ParameterError]()
        with skipping("algorithm", name):
            made, refused = possible("algorithm", dict(kind.settings(n, d, privacy)), name)
        for setting, each in made.items():
            found.append(
                Method(
                    kind.family,
                    setting,
                    each.trust,
                    algorithm=each,
                    messages=d,
                    bits=d * each.trust.unit_bits,
                    error=each.error,
                    attacked=math.hypot(each.error, attackers),
                )
            )
        for setting, why in refused.items():
            found.append(Method(kind.family, setting, kind.trust, refused=str(why)))
    least, noise = central.best(privacy.epsilon, privacy.delta, d)
    if noise == "staircase":  # others are registered
        case = CentralSum.family, f"{noise}, the least noise", Trust.CENTRAL
        whole = math.hypot(least, attackers)
        bits = Trust.CENTRAL.unit_bits
        found.append(Method(*case, messages=1, bits=bits, error=least, attacked=whole))
    return found


def _local(n: int, d: int, privacy: Privacy, attackers: int) -> Method:
    """No trust at all: nothing bounds a report."""
    trust = Trust.LOCAL
    # Two vectors of the unit ball are 2 apart, two numbers of [0, 1] are 1.
    central = math.sqrt(d) * gaussian.sigma(privacy.epsilon, privacy.delta, 2.0 if d > 1 else 1.0)
    error = central * trust.noise(n)
    return Method(
        str(trust),
        "Gaussian",
        trust,
        messages=d,
        bits=d * trust.unit_bits,
        error=error,
        attacked=math.inf if attackers else error,
    )


def planned_methods(plan: Plan) -> Methods:
    """What a plan is compared with: errors are per coordinate and round, at sensitivity 1.

    Bits are per user, coordinate and round.
    """
    spec = plan.spec
    cases = [
        ("Gaussian", trust, spec.central * trust.noise(spec.n))
        for trust in (Trust.CENTRAL, Trust.LOCAL)
    ]
    privacy = spec.privacy.epsilon, spec.privacy.delta
    least, name = central.best(*privacy, spec.d, spec.rounds)
    if name != "Gaussian":
        cases.insert(1, (f"{name}, the least noise", Trust.CENTRAL, least))
    found = [
        Method(str(trust), setting, trust, bits=trust.unit_bits, error=std)
        for setting, trust, std in cases
    ]
    return Methods([*found, *_encoded(plan), _planned_by_paper(plan)])


def _encoded(plan: Plan) -> list[Method]:
    """Every encoding at the plan's noise ratio."""
    spec, found = plan.spec, []
    scalar = spec.d == spec.rounds == 1
    for encoding, name in encodings(scalar).items():
        if not robust(name):
            continue  # the plan itself may be of it
        case = f"encoding {encoding}", f"{plan.noise_ratio:.4g} x central", Trust.SHUFFLE
        try:
            _, each = choose(spec, plan.noise_ratio, None, encoding, scalar)
        except ParameterError as why:
            found.append(Method(*case, refused=str(why)))
        else:
            found.append(Method(*case, bits=each.bits, error=each.std))
    return found


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
    # b p (1 - p) of the noise and 1/4 of the rounding of each user, in steps.
    variance = spec.n * (constants.b * constants.p * (1 - constants.p) + 0.25)
    return Method(
        *case,
        bits=constants.g + constants.b,
        error=math.sqrt(variance) / constants.g,
        paper=True,
    )


def possible(
    kind: str, makes: Mapping[str, Callable[[], Made]], owner: str | None = None
) -> tuple[dict[str, Made], dict[str, ParameterError]]:
    """What can be made, and why the others cannot; `owner` is registered, or each by its name."""
    made, refused = {}, {}
    for name, make in makes.items():
        try:
            with skipping(kind, owner or name.partition(",")[0]):
                made[name] = make()
        except ParameterError as error:
            refused[name] = error
    return made, refused
