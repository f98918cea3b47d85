"""The actors: each hosts one role, and only passes bytes and records on.

Ray retries nothing: where an actor is lost, the runtime puts the roles back and sends the same
bytes again.
"""

import os
from typing import Any, ClassVar

import ray

from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.roles import Analyzer, CuratorShard, Shuffler, Station, UserShard


class _Host:
    """Hosts a role."""

    role: ClassVar[type]

    def __init__(self, *arguments: Any) -> None:
        """Build the role here; the population comes once, by reference.

        An error is kept for the first call: Ray would make text of it.
        """
        self._error: ShuffleSimError | None = None
        try:
            self._hosted = self.role(*arguments)
        except ShuffleSimError as error:
            self._error = error

    def where(self) -> tuple[int, str]:
        """Process and node: who does not answer in time is ended there."""
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def call(self, method: str, many: int, *arguments: Any) -> Any:
        """Call a method of the role.

        The last `many` arguments, if any, go in as one list: Ray resolves no nested references.
        """
        if self._error is not None:
            raise self._error
        alone = len(arguments) - many
        return getattr(self._hosted, method)(
            *arguments[:alone], *([list(arguments[alone:])] if many else [])
        )


def hosting(role: type) -> type[_Host]:
    """A class of hosts for one role, by whose name Ray calls its actors."""
    return type(f"_{role.__name__}Host", (_Host,), {"role": role, "__module__": __name__})


# No restart and no second try: a method that draws would draw anew (docs/design.md, rule 6). 0
# cores: roles wait for each other, so none may wait for a place.
_actor: Any = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=0)
ACTORS: dict[type, Any] = {
    role: _actor(hosting(role)) for role in (UserShard, Shuffler, Analyzer, Station, CuratorShard)
}
UserShardActor, ShufflerActor, AnalyzerActor, StationActor, CuratorShardActor = ACTORS.values()
