"""What attacks do, measured: to privacy, to a sum and to a trained model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, runtime_checkable
from typing import Protocol as Interface

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.catalogue import attack, parameters
from shuffle_sim.attacks.outputs import Noiseless, step_to_next
from shuffle_sim.auditing.audit import empirical_epsilon
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.events import BinomialSumEvent, PrivacyEvent
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec
from shuffle_sim.sampling.randomness import entropy_of
from shuffle_sim.wire.messages import Tally


@dataclass(frozen=True)
class PrivacyRow:
    """Privacy at one honest fraction, all at the protocol's delta.

    Attributes:
        fraction: of the users, honest.
        honest: users.
        paper: the epsilon planned over the fraction (appendix A.3); None where it says nothing.
        proven: recomputed for the noise of the honest users.
        exact: of the worst pair that is known, by exact arithmetic; NaN where none is known.
        empirical: lower bound from samples of the implemented randomizer, with confidence 1 - 1e-4;
            NaN where views are of words.
    """

    fraction: float
    honest: int
    paper: float | None
    proven: float
    exact: float
    empirical: float


def privacy_study(
    protocol: Protocol[Any],
    fractions: Sequence[float],
    *,
    repeats: int = 4000,
    seed: int | None = None,
    on_row: Callable[[int, int], None] = lambda row, rows: None,
) -> list[PrivacyRow]:
    """Privacy of a one-round sum when only a fraction of its users is honest.

    The analyzer knows the noise of all others. `on_row` is told which row begins, of how many.

    Raises:
        ParameterError: fractions outside (0, 1], or a protocol of another kind.
    """
    spec, event = _sum_of(protocol)
    honest = [honest_users(fraction, spec.cohort.size) for fraction in fractions]
    entropy, delta = entropy_of(seed), protocol.delta
    planned = _proven(event, delta)
    rows: list[PrivacyRow] = []
    for index, (fraction, users) in enumerate(zip(fractions, honest, strict=True)):
        on_row(index + 1, len(honest))
        mine, empirical = event.with_honest(users), math.nan
        if spec.randomizer.view == "sums":
            own = (entropy + index) % 2**128
            empirical = empirical_epsilon(spec.randomizer, users, delta, repeats=repeats, seed=own)
        # Of too few honest users the event may be of another kind, and have another theorem.
        exact = _number(theorem_of(type(mine)).exact(mine, delta))
        by_paper = _by_paper(event, planned, fraction)
        rows.append(PrivacyRow(fraction, users, by_paper, _proven(mine, delta), exact, empirical))
    return rows


def _sum_of(protocol: Protocol[Any]) -> tuple[RoundSpec, PrivacyEvent]:
    """The one round of a sum, and its event with everybody's noise."""
    spec = protocol.plan(protocol.init())
    if spec is not None and (
        isinstance(spec.randomizer, Reaching) or spec.randomizer.view == "counts"
    ):
        event = spec.randomizer.event(spec.cohort.size, spec.query)
        if event is not None:
            return spec, event
    allowed = "a sum whose reports are bounded, or whose messages are counted"
    raise ParameterError("protocol", type(protocol).__name__, allowed)


def _number(found: float | None) -> float:
    return math.nan if found is None else found


def _proven(event: PrivacyEvent, delta: float) -> float:
    return ShuffleAccountant().compose(event).get_epsilon(delta)


def _by_paper(event: PrivacyEvent, planned: float, fraction: float) -> float | None:
    if not isinstance(event, BinomialSumEvent):  # it speaks of no other sum
        return None
    try:
        return paper.robust_epsilon(planned, fraction)
    except ParameterError:
        return None


@runtime_checkable
class Reaching(Interface):
    """The randomizer of a sum, whose reports reach so far."""

    def reach(self) -> tuple[float, float]:
        """How far a report moves a coordinate that is sent up from datum 0, and how far down."""

    def manipulation(self, attackers: int, reports: int) -> float:
        """How far reports move the sum in l2."""

    def event(self, users: int, query: Query) -> PrivacyEvent:
        """The release of the view, with the noise of so many honest users."""


@dataclass(frozen=True)
class Reach:
    """How far one report moves a vector sum from datum 0, in norm bounds.

    Attributes:
        up: in one coordinate that is sent.
        down: in one coordinate that is sent.
        l2: in all coordinates at once.
    """

    up: float
    down: float
    l2: float

    @classmethod
    def of(cls, protocol: Any) -> "Reach":
        """Of a sum of vectors in a ball.

        Raises:
            ParameterError: for any other.
        """
        randomizer, bound = protocol.randomizer, getattr(protocol, "norm_bound", None)
        if bound is None or not isinstance(randomizer, Reaching):
            allowed = "a sum of vectors in a ball: in unary, with carries or in buckets"
            raise ParameterError("protocol", type(protocol).__name__, allowed)
        up, down = randomizer.reach()
        return cls(up / bound, down / bound, randomizer.manipulation(1, protocol.n) / bound)


@dataclass(frozen=True)
class BiasRow:
    """How far (l2, in norm bounds) a corrupted user moves a vector sum from its honest value.

    Attributes:
        attack: as `catalogue.attack` takes it, without the fraction.
        datum: what all users hold: "zero" or "edge" (length 1 along the first coordinate).
        expected: by closed form.
        observed: length of the mean displacement over the repeats, for each corrupted user.
        error: standard error of the displacement by formula, root of the sum over coordinates.
    """

    attack: str
    datum: str
    expected: float
    observed: float
    error: float


def manipulation_study(
    protocol: Any, *, fraction: float = 0.02, repeats: int = 10, seed: int | None = None
) -> list[BiasRow]:
    """Displacement of a vector sum by each attack that has a closed form, at one datum of all.

    Args:
        protocol: a `VectorSum`, a `CarryVectorSum` or a `SparseVectorSum`.
        fraction: of the users that attack.
        repeats: runs of each attack.
        seed: to reproduce it.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    integer("repeats", repeats)
    real("fraction", fraction, 0.0, 1.0)
    far, randomizer = Reach.of(protocol), protocol.randomizer
    reports = (randomizer.extreme(highest=each).tally() for each in (False, True))
    down, up = (float(np.linalg.norm(randomizer.estimate(each))) for each in reports)
    cases = [
        ("sign-flip", "edge", 2.0),
        ("scaling:factor=-10", "edge", 2.0),
        ("ipm:scale=10", "edge", 2.0),
        ("zeros", "zero", down / protocol.norm_bound),
        ("ones", "zero", up / protocol.norm_bound),
        ("twice", "zero", 0.0),
    ]
    if randomizer.view == "sums":  # words under other labels are mostly refused
        cases.insert(3, ("wrong-labels", "edge", _moved_labels(protocol)))
    if isinstance(randomizer, Noiseless):
        cases.insert(4, ("no-noise", "zero", math.sqrt(protocol.d) * (far.down - 1)))
    entropy = entropy_of(seed)
    return [
        BiasRow(
            name,
            datum,
            expected,
            *_displacement(protocol, name, datum, fraction, repeats, entropy + 1000 * index),
        )
        for index, (name, datum, expected) in enumerate(cases)
    ]


def _moved_labels(protocol: Any) -> float:
    """How far a report moves whose messages are under the next label, in norm bounds, on average.

    The estimate is linear in the ones; those of the datum at the edge have a known law.
    """
    randomizer, x = protocol.randomizer, np.zeros(protocol.d)
    x[0] = protocol.norm_bound
    laws = [randomizer.count_pmf(x, label) for label in range(randomizer.alphabet.labels)]
    ones = np.array([float(law @ np.arange(len(law))) for law in laws])
    moved = np.roll(ones, step_to_next(randomizer.alphabet))
    before, after = (randomizer.estimate(Tally(each, 1)) for each in (ones, moved))
    return float(np.linalg.norm(after - before)) / float(protocol.norm_bound)


def _displacement(
    protocol: Any, name: str, datum: str, fraction: float, repeats: int, entropy: int
) -> tuple[float, float]:
    rows = np.zeros((protocol.n, protocol.d))
    rows[:, 0] = protocol.norm_bound if datum == "edge" else 0.0
    moved, corrupted = np.zeros(protocol.d), 0
    for index in range(repeats):
        adversary, seed = at_fraction(name, fraction), (entropy + index) % 2**128
        result = run(protocol, rows, adversary=adversary, fidelity="aggregate", seed=seed)
        moved += result.value - rows.sum(axis=0)
        corrupted += result.reports.corrupted
    if not corrupted:
        raise ParameterError(
            "fraction", fraction, f"so large that some of {protocol.n} users are corrupted"
        )
    scale = corrupted * protocol.norm_bound
    error = protocol.standard_error * math.sqrt(protocol.d * repeats)
    return float(np.linalg.norm(moved)) / scale, error / scale


def at_fraction(name: str, fraction: float) -> Adversary:
    """The attack "name" or "name:key=value" on a fraction of the users; of dropouts, at this rate.

    Raises:
        ParameterError: for what `attack` refuses, and for a text that has a fraction of its own.
    """
    kind, _, options = name.partition(":")
    share = "rate" if "rate" in parameters(kind) else "fraction"
    if f"{share}=" in options:
        raise ParameterError("attack", name, f"without {share}: it is what the study sets")
    return attack(f"{name}{',' if options else ':'}{share}={fraction!r}")


@dataclass(frozen=True)
class TargetModel:
    """A model to be trained under attack.

    Attributes:
        protocol: that trains it.
        rows: of the users.
        error: of a result, on data held out.
    """

    protocol: Protocol[Any]
    rows: Floats
    error: Callable[[Any], float]


@dataclass(frozen=True)
class TrainingRow:
    """A model trained under attack.

    Attributes:
        attack: by name.
        fraction: of the users that attack.
        error: mean of the model's error over the repeats.
        spread: its standard error.
        epsilon: stated for the honest users, the worst of the repeats.
    """

    attack: str
    fraction: float
    error: float = field(metadata=SIMULATOR_VIEW)
    spread: float = field(metadata=SIMULATOR_VIEW)
    epsilon: float


def training_study(
    target_model: TargetModel,
    attacks: Sequence[str],
    fractions: Sequence[float],
    *,
    repeats: int = 5,
    seed: int | None = None,
) -> list[TrainingRow]:
    """The error of a model without attackers, then by attack and fraction; all at the same seeds.

    Raises:
        ParameterError: fractions outside [0, 1], unknown attacks: before anything is trained.
    """
    integer("repeats", repeats, 2)
    cases = [
        (name, fraction, at_fraction(name, fraction))
        for name in attacks
        for fraction in fractions
        if fraction
    ]
    entropy = entropy_of(seed)
    seeds = [(entropy + index) % 2**128 for index in range(repeats)]
    trained, found = partial(run, target_model.protocol, target_model.rows), list[TrainingRow]()
    for name, fraction, adversary in [("none", 0.0, None), *cases]:
        runs = [trained(adversary=adversary, fidelity="aggregate", seed=seed) for seed in seeds]
        errors = [target_model.error(result.value) for result in runs]
        spread = float(np.std(errors, ddof=1)) / math.sqrt(repeats)
        epsilon = max(result.privacy.epsilon for result in runs)
        found.append(TrainingRow(name, fraction, float(np.mean(errors)), spread, epsilon))
    return found
