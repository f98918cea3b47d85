"""Methods on one axis: what each costs, errs and promises at the same privacy.

A sum or an optimiser is in them by its own registration alone. One that breaks in a way that nobody
planned is left out, with one warning that names it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from protocols.central.record.sums import CentralSum
from protocols.sums.one_round import OneRoundSum, SumSetting
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError
from shuffle_sim.notebook import html_rows
from shuffle_sim.privacy.bounds import central, gaussian
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol
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

    @classmethod
    def tried(
        cls, name: str, setting: str, trust: Trust, numbers: Callable[[], Mapping[str, Any]]
    ) -> "Method":
        """With its numbers, or refused where they cannot be had."""
        try:
            found = numbers()
        except ParameterError as why:
            found = {"refused": str(why)}
        return cls(name, setting, trust, **found)

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
                numbers = partial(_numbers, setting, n, d, attackers)
                yield Method.tried(family, setting.name, kind.trust, numbers)


def _limit_bits(error: float, n: int, d: int) -> float:
    """What unbiased reports take at least for an error of the sum (docs: Cheaper sums).

    A value halfway between two neighbours of the k reports that a coordinate can send has a
    variance of at least a quarter of their squared distance. So k - 1 distances cover the range.
    """
    width = 2.0 if d > 1 else 1.0
    # error^2 >= n d (w/(2 (k - 1)))^2, solved for k; log2 k bits in each coordinate.
    return d * math.log2(1 + width * math.sqrt(n * d) / (2 * error))


def _numbers(setting: SumSetting, n: int, d: int, attackers: int) -> dict[str, Any]:
    """Of one setting of a sum."""
    made = setting.make()
    randomizer = made.randomizer
    # In l2: the sum over coordinates.
    error = math.sqrt(float(randomizer.variance(n).sum()))
    return {
        "algorithm": made,
        "messages": randomizer.usual_messages,
        "bits": randomizer.usual_bits,
        "limit_bits": _limit_bits(error, n, d),
        "error": error,
        "attacked": math.hypot(error, randomizer.manipulation(attackers, n)),
        "paper": setting.paper,
    }


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
