"""Chooses the noise of histograms: the least that keeps a promise, by the exact theorems.

Rates and parts of planned noise follow from one root of delta, which falls as noise grows. Batches
and the probability to keep the truth back are searched (docs: theory, Counts).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, one_of, real
from shuffle_sim.privacy.bounds import cells, clones, gaussian
from shuffle_sim.privacy.bounds.clones import MAX_EPSILON0, NUMERICAL_ERROR, Corners
from shuffle_sim.privacy.counts import FixedBlanketEvent, PollutionEvent, TwoSidedEvent
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.theorems import theorem_of

KEPT_BACK = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Probabilities to keep the truth back that a plan may take."""
LARGE = 3.0
"""Epsilon from which on it helps."""
FLOODS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Shares of epsilon that a two-sided plan may leave to the flood."""
OBJECTIVES = {"messages": "fewest messages", "error": "least error"}
"""What may be least, as comparisons say it."""
NEAR = 1.1
"""Times the fewest noise messages is few, too: a little more may halve the error."""
_SPARE = 1e-3  # of delta: for noise drawn again at a cap of messages
_CLOSE = 1e-7  # relative, of a root
_STEP, _LONGEST = 0.05, 0.8  # of a scale's logarithm, the first one and the longest


@dataclass(frozen=True)
class OneSided:
    """Noise of `PollutionEvent`: all honest users' together, in each bin.

    Attributes:
        rate: of batches.
        batch: their sizes are uniform on 1 .. batch.
        kept_back: probability with which a user's own message is not sent.
    """

    rate: float
    batch: int = 1
    kept_back: float = 0.0

    @property
    def messages(self) -> float:
        """Noise messages a bin, on average."""
        return self.rate * (self.batch + 1) / 2

    def variance(self, count: float = 0.0) -> float:
        """Of the estimate of a bin that so many users are in."""
        s = self.kept_back
        # rate (J + 1)(2 J + 1)/6. Of c users Bin(c, 1 - s) report: c s (1 - s), over (1 - s)^2.
        noise = self.messages * (2 * self.batch + 1) / 3
        return noise / (1 - s) ** 2 + count * s / (1 - s)

    def law(self, part: float = 1.0) -> Floats:
        """Of what so large a part of the noise adds to a count, (values,)."""
        return cells.compound(self.rate * part, cells.batches(self.batch))


@dataclass(frozen=True)
class TwoSidedNoise:
    """Noise of `TwoSidedEvent`.

    Attributes:
        decay: rho.
        rate: of batches of the flood.
        batch: their sizes are uniform on 1 .. batch.
    """

    decay: float
    rate: float
    batch: int

    @property
    def messages(self) -> float:
        """Noise messages a bin, on average."""
        # Two geometric means, and two messages for each unit of the flood.
        return 2 * self.decay / (1 - self.decay) + self.rate * (self.batch + 1)

    def variance(self, count: float = 0.0) -> float:
        """Of the estimate of a bin, whoever is in it."""
        # That of A - B: the flood is in both counts and cancels.
        return 2 * self.decay / (1 - self.decay) ** 2

    def law(self, part: float = 1.0) -> Floats:
        """Of one user's or more users' noise messages of a bin, (values,)."""
        # Sizes 2, 4, .. 2 J: a batch of pairs as messages; A + B is negative binomial of shape 2.
        pairs = np.zeros(2 * self.batch)
        pairs[1::2] = 1 / self.batch
        flood = cells.compound(self.rate * part, pairs)
        reach = math.ceil(46 / -math.log(self.decay)) + 2
        laplace = scipy.stats.nbinom.pmf(np.arange(reach), 2 * part, 1 - self.decay)
        return np.convolve(flood, laplace)


def spare(privacy: Privacy, releases: int = 1) -> float:
    """Total variation that drawing noise again at a cap may take in each release."""
    return _SPARE * privacy.delta / (1 + math.exp(min(privacy.epsilon, 700.0))) / releases


def least(
    event_of: Callable[[float], PrivacyEvent],
    privacy: Privacy,
    releases: int = 1,
    near: float = 16.0,
) -> float:
    """The least scale of noise whose events keep `privacy`, with a thousandth of delta to spare.

    The search begins at a scale that is near.

    Raises:
        ParameterError: delta is 0, or no scale up to 2^53 keeps it.
    """
    if not privacy.delta:
        raise ParameterError("delta", 0.0, "above 0: an empty bin tells that nobody is in it")
    # The thousandth pays for (1 + e^epsilon) times `spare` in each release.
    target = (1 - _SPARE) * privacy.delta

    def excess(log: float) -> float:
        event = event_of(math.exp(log))
        try:
            found = theorem_of(type(event)).delta(((event, releases),), privacy.epsilon)
        except ParameterError as error:
            if error.parameter == "noise":
                allowed = "weaker, or of fewer releases: beyond that nothing is computed"
                raise ParameterError("privacy", privacy, allowed) from None
            raise
        return math.log(max(found, 1e-300) / target)

    # A bracket, by longer and longer steps: delta is computed at few scales, near the root.
    low = high = math.log(near)
    step = _STEP
    while excess(high) > 0:
        low, high, step = high, high + step, min(2 * step, _LONGEST)
        if high > 35:
            raise ParameterError("privacy", privacy, "weaker: it would take 2^50 messages of noise")
    while low == high or excess(low) <= 0:
        low, high, step = low - step, low, min(2 * step, _LONGEST)
        if low < -20:
            return math.exp(high)
    root = float(scipy.optimize.brentq(excess, low, high, xtol=_CLOSE / 8))
    # Rounded up to what keeps the promise, as the root may lie on either side.
    while excess(root) > 0:
        root += _CLOSE
    return math.exp(root)


@lru_cache(maxsize=1024)
def pollution(
    privacy: Privacy,
    releases: int = 1,
    weights: tuple[float, ...] = (1.0,),
    batch: int = 1,
    kept_back: float = 0.0,
) -> OneSided:
    """The least noise in batches up to `batch`; set i of bins gets weights[i] times its rate."""
    integer("batch", batch, 1, 2**16)
    real("kept_back", kept_back, 0.0, 1.0, closed=(True, False))

    def event(rate: float) -> PrivacyEvent:
        rates = tuple(rate * weight for weight in weights)
        return PollutionEvent(honest=1, planned=1, rates=rates, batch=batch, kept_back=kept_back)

    # What Gaussian noise in two bins of each set would need: of many messages it is close.
    moved = math.sqrt(2 * integer("releases", releases) * sum(1 / each for each in weights))
    near = 1.0
    if privacy.delta:
        near = (
            gaussian.sigma(privacy.epsilon, privacy.delta, moved) ** 2
            / OneSided(1.0, batch).variance()
        )
    return OneSided(least(event, privacy, releases, near), batch, kept_back)


def batched(
    privacy: Privacy, releases: int = 1, weights: tuple[float, ...] = (1.0,)
) -> Iterator[OneSided]:
    """Plans of larger and larger batches, until their messages become more again."""
    best, batch = math.inf, 1
    while batch <= 2**16:
        try:
            plan = pollution(privacy, releases, weights, batch)
        except ParameterError:
            if best == math.inf:
                raise
            batch = max(batch + 1, round(1.4 * batch))  # larger ones need fewer messages
            continue
        yield plan
        if plan.messages > 1.2 * best:
            return
        best = min(best, plan.messages)
        batch = max(batch + 1, round(1.4 * batch))


def one_sided(
    privacy: Privacy,
    objective: str,
    releases: int = 1,
    weights: tuple[float, ...] = (1.0,),
) -> OneSided:
    """One-sided noise: single messages for "error", batches of the fewest for "messages".

    Of plans with nearly the fewest messages it is that of the least variance.

    Raises:
        ParameterError: another objective.
    """
    one_of("objective", objective, OBJECTIVES)
    if objective == "error":
        return pollution(privacy, releases, weights)
    plans = list(batched(privacy, releases, weights))
    fewest = NEAR * min(each.messages for each in plans)
    near = [each for each in plans if each.messages <= fewest]
    return min(near, key=lambda each: each.variance())


@lru_cache(maxsize=256)
def two_sided(privacy: Privacy, releases: int = 1, flood: float = 0.1) -> TwoSidedNoise:
    """Geometric noise for `1 - flood` of epsilon, and the least flood for the rest.

    Raises:
        ParameterError: flood not in [0.01, 0.9].
    """
    real("flood", flood, 0.01, 0.9, closed=(True, True))
    left = flood * privacy.epsilon
    # Two cells, each with a loss of ln(1/rho), in every release.
    decay = math.exp((left - privacy.epsilon) / (2 * releases))
    found = []
    for batch in sorted({max(1, round(times / left)) for times in (2.0, 2.5, 3.0)}):

        def event(rate: float, batch: int = batch) -> PrivacyEvent:
            return TwoSidedEvent(honest=1, planned=1, decay=decay, rate=rate, batch=batch)

        found.append(TwoSidedNoise(decay, least(event, privacy, releases), batch))
    return min(found, key=lambda plan: plan.messages)


@lru_cache(maxsize=256)
def fixed_blanket(privacy: Privacy, honest: int, bins: int) -> int:
    """The least number of uniform messages of each of so many honest users."""

    def messages(total: float) -> PrivacyEvent:
        return FixedBlanketEvent(honest=max(1, math.ceil(total)), each=1, bins=bins)

    # `least` searches a real total; a message more for everybody than it needs is no loss.
    return math.ceil(least(messages, privacy) / honest)


def _greatest(delta_of: Callable[[float], float], privacy: Privacy) -> float:
    """The largest epsilon0 of reports whose permuted view keeps `privacy`; epsilon at least."""
    # Reports of that epsilon need no shuffling: so it is always private.
    low, high = min(privacy.epsilon, MAX_EPSILON0), MAX_EPSILON0
    if not privacy.delta:
        return low
    if delta_of(high) <= privacy.delta:
        return high
    if low == high or delta_of(low * (1 + 1e-9)) > privacy.delta:
        return low
    root = float(
        scipy.optimize.brentq(
            lambda e: math.log(max(delta_of(e), 1e-300) / privacy.delta), low, high, xtol=1e-6
        )
    )
    while delta_of(root) > privacy.delta:
        root -= 1e-6
    return max(low, root)


@lru_cache(maxsize=256)
def local(privacy: Privacy, honest: int, symbols: int | None = None) -> float:
    """epsilon0 of one message a user, in a view of so many honest users.

    Args:
        privacy: of the view.
        honest: users.
        symbols: k of k-ary randomised response; None: of any randomiser.
    """

    epsilon = privacy.epsilon * (1 - 2 * NUMERICAL_ERROR)  # by which epsilon is rounded up

    def delta_of(epsilon0: float) -> float:
        corners = Corners() if symbols is None else Corners.of_response(epsilon0, symbols)
        return clones.delta(honest, epsilon0, epsilon, corners)

    return _greatest(delta_of, privacy)
