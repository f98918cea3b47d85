"""How a histogram's noise may be made: each method's randomizers that keep a promise."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from protocols.counts.one_view import capped
from protocols.counts.pollution import Categories
from protocols.counts.randomizer import Counting
from protocols.counts.single import FixedBlanket, Response, Unary
from protocols.counts.two_sided import TwoSided
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.guarantee import Privacy

METHODS = {
    "pollution": ("batch", "kept_back"),
    "two-sided": ("flood",),
    "response": (),
    "fixed-blanket": (),
    "unary": (),
}
"""Of making noise, and what each may be told; the two-sided one is taken where it is named only."""
_COMPOSED = "pollution", "two-sided"  # of which many releases are planned together
_FLOOD = 0.1  # of epsilon, where no budget of messages bounds what less of it would take


@dataclass(frozen=True)
class AskedCounts:
    """What a histogram is calibrated for."""

    honest: int
    bins: int
    privacy: Privacy
    most: float
    least_error: bool
    batch: int | None
    kept_back: float | None
    flood: float | None
    rounds: int = 1

    def offers(self, method: str) -> Iterator[Counting]:
        """Randomizers of a method that keep the promise.

        Raises:
            ParameterError: several rounds, by one message a user.
        """
        if self.rounds > 1 and method not in _COMPOSED:
            allowed = f"{' or '.join(_COMPOSED)} with rounds: of others none is planned"
            raise ParameterError("method", method, allowed)
        if method == "pollution":
            known = (self.bins,), self.honest, self.privacy
            for plan in self._one_sided():
                yield Categories.of_plan(plan, *known, releases=self.rounds)
        elif method == "two-sided":
            yield from self._two_sided()
        elif method == "response":
            epsilon0 = count_planner.local(self.privacy, self.honest, self.bins)
            yield Response(self.bins, epsilon0)
        elif method == "unary":
            yield Unary(self.bins, count_planner.local(self.privacy, self.honest))
        else:
            each = count_planner.fixed_blanket(self.privacy, self.honest, self.bins)
            yield FixedBlanket(self.bins, each)

    def _one_sided(self) -> Iterator[count_planner.OneSided]:
        """Batches with the truth sent; and at large epsilon single messages with it kept back."""
        kept = self.kept_back
        if self.batch is not None or kept is not None:
            yield count_planner.pollution(
                self.privacy,
                self.rounds,
                batch=1 if self.batch is None else self.batch,
                kept_back=kept or 0.0,
            )
            return
        yield from count_planner.batched(self.privacy, self.rounds)
        if self.privacy.epsilon >= count_planner.LARGE:
            for part in count_planner.KEPT_BACK[1:]:
                yield count_planner.pollution(self.privacy, self.rounds, kept_back=part)

    def _two_sided(self) -> Iterator[TwoSided]:
        """Floods from the fewest messages on, as long as the budget allows."""
        if self.flood is not None:
            floods: tuple[float, ...] = (self.flood,)
        elif self.most == math.inf:
            floods = (_FLOOD,) if self.least_error else (max(count_planner.FLOODS),)
        else:
            floods = count_planner.FLOODS[::-1]
        for flood in floods:
            plan = count_planner.two_sided(self.privacy, self.rounds, flood)
            law = plan.law(self.bins / self.honest)
            most = capped(1, law, self.honest, self.privacy, self.rounds)
            made = TwoSided(self.bins, plan.decay, plan.rate, self.honest, most, plan.batch)
            # The first beyond the budget is yielded, too:
            # it tells how many messages the least would be.
            yield made
            if made.usual_messages > self.most:
                return
