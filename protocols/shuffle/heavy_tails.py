"""Heavy tails in the shuffle model: users clip, and the clip is planned for a moment or a pilot.

Clipping at C leaves the privacy of a round as it is, and adds a bias: the clipped gradients' mean
is within B(C) = E (A - C)_+ of the gradient, for any loss. Projected methods pay D B(C) for it. The
second moment is G_2^2, not C^2 (docs: theory, Heavy tails). No shuffler's view is purely private.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import moved
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.optimisation.tails import BINS, EDGES, SHARE, Tails, bins_of
from protocols.optimisation.then import Then, ThenState
from protocols.problems.loss import Loss
from protocols.problems.moments import Moments
from protocols.problems.problem import Gradient, Problem, demand, demand_diameter
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec
from shuffle_sim.protocol.encodings import encodings

_LOOSE = 4.0  # noise ratio with which an encoding is there, if it is with any batch
_CLIPS = np.geomspace(0.1, 1e6, 141)  # in units of G_2


def clipped(problem: Problem, clip: float, root: float) -> Problem:
    """The problem with users that clip at C, and gradients of second moment G_2^2."""
    least = min(clip, root)
    spread = least if problem.declared_spread is None else min(least, problem.declared_spread)
    return dataclasses.replace(
        problem, norm_bound=clip, declared_root=least, declared_spread=spread
    )


def planned_clip(
    kind: type[FirstOrder[Any]],
    *,
    n: int,
    problem: Problem,
    privacy: Privacy,
    moments: Moments,
    **given: Any,
) -> tuple[float, float]:
    """(C, bound): the clip with the least bound of an optimiser, D B(C) included.

    Args:
        kind: of the optimiser.
        n: users.
        problem: loss and domain; its norm_bound is not used.
        privacy: of the run.
        moments: of A.
        given: what the optimiser takes.
    """
    clips = [moments.gk] if math.isinf(moments.k) else (moments.root * _CLIPS).tolist()

    def cost(clip: float) -> float:
        setting = Setting(n=n, problem=clipped(problem, clip, moments.root), privacy=privacy)
        # Gradients off by B(C) cost <bias, theta - theta*> in each step, D B(C) at most.
        bias = problem.domain.diameter * moments.bias(clip)
        return kind.expected_bound(setting, Choices(given)) + bias

    value, (clip,) = least(cost, clips)
    return clip, value


def calibrated(
    kind: type[FirstOrder[Any]],
    *,
    n: int,
    problem: Problem,
    privacy: Privacy,
    moments: Moments,
    **given: Any,
) -> FirstOrder[Any]:
    """An optimiser of the shuffle model with the clip of `planned_clip`; its bound has the bias.

    Raises:
        ParameterError: as the optimiser's `calibrated`.
    """
    demand(problem, privacy)
    taken = {name: value for name, value in given.items() if name in kind.takes}
    clip, _ = planned_clip(kind, n=n, problem=problem, privacy=privacy, moments=moments, **taken)
    made = kind.calibrated(
        n=n, problem=clipped(problem, clip, moments.root), privacy=privacy, **given
    )
    made.bound += problem.domain.diameter * moments.bias(clip)
    why = f"{clip:.4g}: least bound with its bias D B(C), for {moments} (assumed)"
    made.choices = {"clip": why, **made.choices}
    return made


@dataclass(frozen=True)
class TailBins(Query):
    """Asks each user for the bin of its A, as a unit vector of BINS coordinates.

    Attributes:
        loss: states A of a row.
        radius: of the domain.
        scale: unit of the bins, public.
    """

    loss: Loss
    radius: float
    scale: float = 1.0

    def __call__(self, rows: Floats) -> Floats:
        # One bin of length 1: the vector sum's norm bound holds without a clip.
        def reach(rows: Floats) -> Floats:
            return self.loss.reach_norms(rows, self.radius)

        return np.asarray(np.eye(BINS)[bins_of(reach, self.scale, rows)])


class Piloted(Then, Protocol[Any]):
    """A pilot round that chooses the clip, then an optimiser on all other users.

    The pilot's users send the bin of their A by the same messages (P_vec, one-hot). Formal
    guarantee: each round's; pilot and optimiser have disjoint users. No bound of the excess: the
    clip rests on estimated tails.
    """

    bound = math.inf
    adaptive = True
    chosen = ("smoothing", "g", "r", "b", "levels", "span", "rotation")

    def __init__(
        self,
        kind: type[FirstOrder[Any]],
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        pilot: int | None = None,
        scale: float = 1.0,
        **given: Any,
    ) -> None:
        """With n_0 = `pilot` users first, by default a tenth.

        Args:
            kind: of the optimiser.
            n: users.
            problem: loss and domain; its norm_bound is not used.
            privacy: of the whole run.
            pilot: n_0.
            scale: unit of the bins, public.
            given: what the optimiser's `calibrated` takes.
        """
        demand(problem, privacy)
        demand_diameter(problem)
        self.kind, self.problem = kind, problem
        self.privacy, self._delta = privacy, privacy.delta
        problem.loss.reach_norms(np.zeros((1, 1)), 1.0)  # refuses a loss without A(z)
        self.n = integer("n", n, 2)
        self.pilot = integer("pilot", pilot or max(1, int(SHARE * n)), 1, n - 1)
        self.scale, self.given = scale, given
        spec = SumSpec(self.pilot, BINS, privacy)
        self.mean = NoisyMean.calibrated(spec, 1.0)
        self._examples = (*super().examples(), *self._gradients())
        self.choices = {"pilot": f"{self.pilot} users: the clip by a private histogram of A"}

    @property
    def vocabulary(self) -> tuple[type, ...]:
        kinds = dict.fromkeys(type(each.randomizer) for each in self._examples)
        return (Gradient, TailBins, *kinds, *self.problem.loss.vocabulary)

    def examples(self) -> Iterable[RoundSpec]:
        return self._examples

    def _gradients(self) -> Iterator[RoundSpec]:
        query = Gradient(self.problem.loss, self.problem.origin)
        spec = SumSpec(self.n - self.pilot, self.problem.d, self.privacy)
        for encoding in encodings():
            with suppress(ParameterError):
                mean = NoisyMean.calibrated(spec, 1.0, _LOOSE, encoding)
                yield mean.spec(Cohort.of(self.pilot, self.n), query)

    def check(self, rows: NDArray[Any]) -> None:
        shape = (self.n, self.problem.loss.columns(self.problem.d))
        if rows.shape != shape:
            raise ParameterError("data.shape", rows.shape, str(shape))

    def stage(self, results: tuple[Any, ...]) -> RoundSpec | FirstOrder[Any] | None:
        if not results:
            query = TailBins(self.problem.loss, self.problem.domain.radius, self.scale)
            return self.mean.spec(Cohort.of(0, self.pilot), query)
        counts = np.asarray(results[0], np.float64) * self.pilot
        return self._chosen(counts) if len(results) == 1 else None

    def framed(self, place: int, asked: RoundSpec) -> RoundSpec:
        cohort = moved(asked.cohort, self.pilot) if place else asked.cohort
        return dataclasses.replace(asked, cohort=cohort)

    def result(self, state: ThenState) -> Any:
        return super().result(state) if state.results else self.problem.origin

    def _chosen(self, counts: Floats) -> FirstOrder[Any]:
        """With the clip of the least bound at the histogram's tails, E (A - C)_+ ~ C P(A > C)."""
        tails = Tails(counts, self.pilot, self.privacy.epsilon, self.scale)
        # Three standard deviations of one count: a tail that looks empty may hold as many.
        floor = 3 * math.sqrt(self.mean.squared_noise / BINS) * self.pilot
        above = np.cumsum(counts[::-1])[::-1][1:]
        common: dict[str, Any] = {"n": self.n - self.pilot, "privacy": self.privacy}

        def problem(place: int) -> Problem:
            root = math.sqrt(tails.moment(2, place))
            return clipped(self.problem, float(self.scale * EDGES[place]), root)

        def bound(place: int) -> float:
            tried = problem(place)
            cost = self.kind.expected_bound(Setting(problem=tried, **common), Choices())
            # E (A - C)_+ ~ C P(A > C), for tails of index 2 and more.
            share = max(float(above[place]), floor) / self.pilot
            return cost + tried.domain.diameter * tried.lipschitz * min(share, 1.0)

        _, (place,) = least(bound, range(len(EDGES)))
        return self.kind.calibrated(problem=problem(place), **common, **self.given)
