"""Choose something privately, then go on with it: a pilot, bounds, candidates and their scores."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from shuffle_sim.protocol.base import Algorithm
from shuffle_sim.protocol.release import demand_whole


@dataclass(frozen=True)
class ThenState:
    """What the stages before gave, the stage under way (None: none is left), and its state."""

    results: tuple[Any, ...]
    stage: Any
    inner: Any = None


class Then(Algorithm[Any, Any]):
    """Stages one after the other, each made of what those before released.

    Formal guarantee: that of all that is asked, which composes adaptively in the ledger, as a stage
    is a function of what was released before it.
    """

    @abstractmethod
    def stage(self, results: tuple[Any, ...]) -> Any:
        """The next stage: an algorithm, or what is asked once; None: it is over.

        Args:
            results: of the stages before.
        """

    def framed(self, place: int, asked: Any) -> Any:
        """What is asked in stage `place`, as the users are asked."""
        return asked

    def init(self) -> Any:
        return self._begun(())

    def _begun(self, results: tuple[Any, ...]) -> ThenState:
        stage = self.stage(results)
        demand_whole("stage", type(stage))
        return ThenState(results, stage, stage.init() if isinstance(stage, Algorithm) else None)

    def plan(self, state: Any) -> Any:
        stage = state.stage
        asked = stage.plan(state.inner) if isinstance(stage, Algorithm) else stage
        return None if asked is None else self.framed(len(state.results), asked)

    def update(self, state: Any, estimate: Any) -> Any:
        if not isinstance(state.stage, Algorithm):
            # What was asked once is its own result.
            return self._begun((*state.results, estimate))
        inner = state.stage.update(state.inner, estimate)
        # A plan is a pure function of the state: it may be asked twice.
        if state.stage.plan(inner) is not None:
            return replace(state, inner=inner)
        return self._begun((*state.results, state.stage.result(inner)))

    def result(self, state: Any) -> Any:
        return state.stage.result(state.inner) if state.inner is not None else state.results[-1]
