"""What theorems give for their own examples: an accountant that states less than that is wrong.

The numbers follow from the proofs (docs: theory), whose oracles the tests hold them to. Who proves
more settles them anew: `python -m shuffle_sim.auditing.claims.settled` prints the table.
"""

import math
from collections.abc import Set
from itertools import pairwise

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.theorems import Theorem, theorem_of
from shuffle_sim.registry import names, registered

_ASKED = (1, 1e-2), (1, 1e-6), (1, 1e-12), (9, 1e-6)  # releases, and delta
_EPSILONS = 0.5, 2.0
_ROUNDED = 1e-5  # of roundings and of searches, relative

SETTLED: dict[str, tuple[float, ...]] = {
    "BinomialShiftEvent": (1.619486, 1.138921, 0.9080551, 0.565725, 0.4551217, 17.73764, 138.2462),
    "BinomialSumEvent": (3.423941, 2.200219, 1.753174, 1.095207, 0, 42.24497, 345.2376),
    "BlanketEvent": (1.670813, 1.201324, 0.6989002, 0.2822672, 0.3990298, 24.48127, 53.43851),
    "BucketSumEvent": (3.340537, 2.521257, 1.808971, 1.604134, 0.2321578, 141.7971, 245.3956),
    "CarrySumEvent": (6.522438, 4.759789, 3.892136, 2.725964, 0.2732332, 170.7934, 470.6808),
    "FixedBlanketEvent": (1.614809, 1.12863, 0.597636, 0.4356256, 0.4028348, 23.33176, 55.68477),
    "GammaEvent": (2.666629, 2.208177, 2.078056, 0.4548717, 0.09259262, 702.1683, 2120.816),
    "GaussianEvent": (1.878275, 1.513493, 1.34164, 1.082896, 0.08263659, 467.9924, 729.3947),
    "GaussianPairEvent": (1.093026, 0.7151, 0.5516534, 0.3184268, 0.1667525, 9.009854, 60.03434),
    "GuardedThresholdEvent": (1.349744, 1.333334, 0, 0.3571456, 0, 17.36411, 29.93361),
    "LaplaceEvent": (1.598315, 1.57576, 1.575758, 0.6481466, 0.1408451, 692.3956, 1381.804),
    "LaplaceSumEvent": (1.073755, 0.9928116, 0, 0.1073818, 0, 3.367071, 39.77252),
    "NonPrivateEvent": (0, 0, 0, 0, 0, 0, 0),
    "ObjectiveEvent": (1.919896, 1.607993, 1.425348, 0.3298961, 0.2634617, 14.72896, 733.0862),
    "PollutionEvent": (1.649966, 0.700229, 0.5239135, 0.3123944, 0, 11.98205, 40.93883),
    "PureEvent": (1.259875, 1.242426, 1.242424, 0.5790389, 0.3225809, 691.1549, 1381.551),
    "PureObjectiveEvent": (1.636322, 1.623321, 1.62332, 0.3540567, 0.2780531, 5.129491, 2072.327),
    "RangeEvent": (1.660826, 1.609093, 1.609091, 0.736054, 0.1639345, 693.2117, 1382.079),
    "ShuffledEvent": (2.264462, 1.739578, 1.351279, 0.7315492, 0.2918449, 29.61345, 1402.766),
    "SplitMixEvent": (0.8349343, 0.8080703, 0, 0, 0, 2.029922, 25.36026),
    "TestedReleaseEvent": (1.068945, 0.7038979, 0, 0, 0, 7.46486, 20.7245),
    "TwoSidedEvent": (0.9119054, 0.5016294, 0, 0.12058, 0, 3.945427, 24.53266),
}
"""By event, what `stated` gives: in each way that epsilon and delta are asked for."""
TOGETHER = (
    *(0.7129958, 0.6383936, 0.5609611, 0.5764307, 0.7304516, 0.4819792, 0.1287931, 0.1420437),
    *(0.7135064, 0.790675, 0.5029436, 0.4083522, 0.5280627, 0.7468027, 0.4980562, 0.4980562),
    *(0.8397444, 0.4781965, 0.4222671, 0.4747814),
)
"""Likewise of two kinds of events at once: of each and the next of the table."""
_LOOSE = 1e-2
"""delta at which all of them have an epsilon."""


def stated(theorem: Theorem[PrivacyEvent]) -> tuple[float, ...]:
    """How much is stated of the examples, in each way to ask: more for less epsilon or delta.

    Sums of 1/(1 + epsilon) over the examples, and of it for all together; and of ln 1/delta.
    """
    alone = [
        [ShuffleAccountant().compose(each, many) for each in theorem.examples] for many in (1, 9)
    ]
    together = ShuffleAccountant()
    for each in theorem.examples:
        together.compose(each)
    found = [
        math.fsum(1 / (1 + each.get_epsilon(delta)) for each in alone[many > 1])
        for many, delta in _ASKED
    ]
    found.append(1 / (1 + together.get_epsilon(1e-6)))
    for epsilon in _EPSILONS:
        deltas = (max(each.get_delta(epsilon), 1e-300) for each in alone[0])
        found.append(math.fsum(math.log(1 / each) for each in deltas))
    return tuple(found)


def pairs() -> list[tuple[str, str]]:
    """Of kinds of events: each and the next of the table."""
    return [*pairwise(sorted(SETTLED.keys() - {"NonPrivateEvent"}))]


def together(one: str, other: str) -> float:
    """1/(1 + epsilon) of both theorems' first examples at once."""
    accountant = ShuffleAccountant()
    for name in (one, other):
        accountant.compose(registered("theorem", name).examples[0])
    return 1 / (1 + accountant.get_epsilon(_LOOSE))


def check_together(kinds: Set[str]) -> None:
    """No accountant states more of two kinds of events than is proven; one is of these kinds.

    Raises:
        LawError: it does.
    """
    for both, most in zip(pairs(), TOGETHER, strict=True):
        if kinds & {*both} and (found := together(*both)) > most * (1 + _ROUNDED) + 1e-9:
            raise LawError(
                f"{' and '.join(both)} cost less together than is proven: {found:.6g} in place of "
                f"{most:.6g}"
            )


def check_settled(kind: type[PrivacyEvent]) -> None:
    """No theorem of ours states more of its examples than is proven; of others' none is known.

    Raises:
        LawError: it does.
    """
    if (known := SETTLED.get(kind.__name__)) is None:
        return
    for place, (found, most) in enumerate(zip(stated(theorem_of(kind)), known, strict=True)):
        if found > most * (1 + _ROUNDED) + 1e-9:
            raise LawError(
                f"{kind.__name__} costs less than is proven for its theorem's examples: "
                f"{found:.6g} in place of {most:.6g} (number {place} of settled.py)"
            )


if __name__ == "__main__":
    for name in names("theorem"):
        row = ", ".join(f"{each:.7g}" for each in stated(registered("theorem", name)))
        print(f'    "{name}": ({row}),')
    print(f"TOGETHER: {', '.join(f'{together(*both):.7g}' for both in pairs())}")
