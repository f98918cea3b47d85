"""The samplers that randomizers share: their exact laws, far into the tails.

A report holds little noise where many users share it, and what is cut off there is seldom. So the
samplers are drawn from on their own, as often as it takes.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.scores import Ints, inside
from shuffle_sim.auditing.laws.statistics import check_pmf, naming
from shuffle_sim.auditing.laws.tails import judge_tails, tail_sums
from shuffle_sim.execution.code import code_of
from shuffle_sim.sampling import exact

_DRAWS = 2**17  # of each sampler: of what has a chance of 1e-3 some 130
_SINGLE = 2**12  # of the one that draws a number at a time
_RATES = 0.07, 0.6, 2.5
_BEYOND = 1e-15  # of a law is left out
Part = tuple[str, Callable[[int, np.random.Generator], ArrayLike], Floats]
"""Of a randomizer's noise: name, draws of so many, and their law, (values,)."""


def samplers_of(value: object) -> set[str]:
    """The names of the samplers that the code of a value reaches."""
    within = exact.__name__ + "."
    found = {name.removeprefix(within) for name in code_of([value]) if name.startswith(within)}
    return {name for name in found if not name.startswith("_")}


def check_samplers(
    names: Collection[str], parts: Iterable[Part], rng: np.random.Generator, alarm: float
) -> None:
    """Draws of samplers and of parts of noise against their laws, and how often they are far out.

    Raises:
        LawError: naming the sampler.
    """
    cases = [
        (f"{name}({told})", draw, law) for name, told, draw, law in _cases(rng) if name in names
    ]
    cases += [(name, partial(draw, _DRAWS, rng), law) for name, draw, law in parts]
    alarm /= 2 * max(1, len(cases))
    for name, draw, law in cases:
        with naming(name):
            seen = inside(np.asarray(draw(), np.int64), law)
            check_pmf(seen, law, false_alarm=alarm)
            judge_tails([tail_sums(seen, law)], alarm, "tail")


def _cases(
    rng: np.random.Generator,
) -> Iterator[tuple[str, str, Callable[[], ArrayLike], Floats]]:
    """Name, parameters, draws and law."""
    for bound in (3, 1000):
        law = np.full(bound, 1 / bound)
        yield "below", f"{bound}", partial(exact.below, bound, _DRAWS, rng), law
    for rate in _RATES:
        number, lost = int(rate * (1 << exact.FRACTION)), -math.expm1(-rate)
        told, numbers = f"{rate}", np.full(_DRAWS, min(number, 1 << exact.FRACTION))
        heads = math.exp(-min(rate, 1.0))
        coins = partial(exact.bernoulli_exp, numbers, rng)
        yield "bernoulli_exp", told, coins, np.array([1 - heads, heads])
        geometric = scipy.stats.geom(lost, -1)
        yield "geometric", told, partial(exact.geometric, number, _DRAWS, rng), _pmf(geometric)
        series = scipy.stats.logser(math.exp(-rate))
        yield "log_series", told, partial(exact.log_series, rate, _DRAWS, rng), _pmf(series)
        for shape in (1, 60):  # of 40: a small part of a whole one, and more than one
            counts = partial(exact.negative_binomial, shape, 40, rate, _DRAWS // 4, rng)
            law = _pmf(scipy.stats.nbinom(shape / 40, lost))
            yield "negative_binomial", f"{shape}/40, {rate}", counts, law
        yield "poisson", told, partial(_singly, number, rng), _pmf(scipy.stats.poisson(rate))


def _singly(number: int, rng: np.random.Generator) -> Ints:
    return np.array([exact.poisson(number, rng) for _ in range(_SINGLE)])


def _pmf(law: "scipy.stats.rv_frozen") -> Floats:
    return np.asarray(law.pmf(np.arange(law.isf(_BEYOND) + 2)))
