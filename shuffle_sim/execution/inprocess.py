"""All roles in this process, one after the other: the same bytes pass between them as anywhere."""

from collections.abc import Sequence
from typing import Any

from shuffle_sim.execution.runtime import Runtime


class InProcessRuntime(Runtime):
    """Hosts the roles in this process."""

    name = "inprocess"

    def host(self, role: type, *arguments: Any) -> Any:
        return role(*arguments)

    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        value = getattr(host, method)(*arguments, *([list(many)] if many else []))
        return [value] if returns == 1 else list(value)

    def get(self, handles: list[Any]) -> list[Any]:
        return handles
