"""Privacy accounting: what is promised, which theorem proves it, and what was spent.

`trust` and `guarantee` say what is promised; `events` say what was released; `theorems` prove what
it costs, and `composition` adds it up. `accountant` and `ledger` turn the releases of a run into
its guarantee; `planner` chooses parameters. `mechanisms` and `sparse_vector` are the curator's.
`bounds` holds pure numbers, one theorem family a module.
"""

from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.binomial_planner import (
    BinomialPlan,
    choose_binomial,
    fewest_bits,
    least_noise,
)
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import (
    BinomialSumEvent,
    BlanketEvent,
    GammaEvent,
    GaussianEvent,
    GaussianPairEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PrivacyEvent,
    PureEvent,
    RangeEvent,
    SplitMixEvent,
)
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.planner import Plan, SumSpec
from shuffle_sim.privacy.theorems import Theorem, theorem_of
from shuffle_sim.privacy.trust import Trust

__all__ = [
    "BinomialPlan",
    "BinomialSumEvent",
    "BlanketEvent",
    "GammaEvent",
    "GaussianEvent",
    "GaussianPairEvent",
    "Guarantee",
    "LaplaceEvent",
    "NonPrivateEvent",
    "Parts",
    "Plan",
    "Privacy",
    "PrivacyEvent",
    "PrivacyLedger",
    "PureEvent",
    "RangeEvent",
    "ShuffleAccountant",
    "SplitMixEvent",
    "SumSpec",
    "Theorem",
    "Trust",
    "choose_binomial",
    "fewest_bits",
    "least_noise",
    "theorem_of",
]
