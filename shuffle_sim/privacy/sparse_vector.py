"""Above-threshold: private tests of a row of queries, until the first that is below."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shuffle_sim.errors import ParameterError, positive, real
from shuffle_sim.privacy.events import PrivacyEvent, PureEvent
from shuffle_sim.privacy.mechanisms import Norm, PureMechanism, checked

SHARE = 1 / (1 + 2 ** (2 / 3))  # of epsilon for the threshold: the split of Lyu, Su and Li (2017)
PROOF = "above-threshold (Dwork and Roth 2014, Algorithm 1; Lyu, Su and Li 2017)"


@dataclass(frozen=True)
class AboveThreshold(PureMechanism[bool]):
    """Whether queries are above a threshold, until the first that is below.

    Source: Dwork and Roth (2014), Algorithm 1, with the split of Lyu, Su and Li (2017). All answers
    together, up to and including the first False, are epsilon-differentially private. So no query
    may follow a False. The threshold's noise is drawn once. Each query gets noise of its own.

    Attributes:
        epsilon: of all answers together, above 0.
        threshold: of the queries.
        sensitivity: of every query.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """

    norm: ClassVar[Norm] = "l2"
    sessions: ClassVar[bool] = True
    threshold: float
    sensitivity: float

    def __post_init__(self) -> None:
        super().__post_init__()
        real("threshold", self.threshold, -math.inf, math.inf, closed=(False, False))
        positive("sensitivity", self.sensitivity)

    @property
    def event(self) -> PrivacyEvent:
        return PureEvent(self.epsilon, PROOF)

    def sample(
        self,
        value: Any,
        sensitivity: float,
        rng: np.random.Generator,
        opened: np.random.Generator | None = None,
    ) -> bool:
        """Whether the query's noisy value is at least the noisy threshold.

        Args:
            value: of the query, a number.
            sensitivity: that of the mechanism.
            rng: the generator of this query.
            opened: a generator in its state at the session's start, the same at every query; the
                noise of the threshold comes from it.

        Raises:
            ParameterError: before any draw, if the value is no finite number, the sensitivity not
                that of the mechanism, or `opened` missing or the query's own generator.
        """
        query = checked(value, sensitivity)
        if sensitivity != self.sensitivity:
            raise ParameterError("sensitivity", sensitivity, f"{self.sensitivity} at every query")
        if query.ndim:
            raise ParameterError("value", f"of shape {query.shape}", "one number")
        if opened is None or opened is rng:
            raise ParameterError("opened", opened, "the generator of the session's start")
        unit = sensitivity / self.epsilon
        # 2 S for a query: it may fall by S while the threshold rises by S.
        level = self.threshold + opened.laplace(scale=unit / SHARE)
        return bool(query + rng.laplace(scale=2 * unit / (1 - SHARE)) >= level)
