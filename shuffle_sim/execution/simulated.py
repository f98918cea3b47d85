"""A runtime in which everything that can go wrong between roles does, as a seed decides.

All roles live in this process, as in `InProcessRuntime`, but a call is a message: it waits in the
queue of the role it goes to, and a scheduler chooses which role runs next. At every call the seed
may delay, duplicate or lose, kill the role before or after it, or kill the driver. Roles at
different places run in any order; one role runs its calls in the order they were made, as an actor
does. No time passes: what never comes is lost, as after `round_timeout`.

What a deterministic simulation finds is found again by its seed.
"""

import copy
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shuffle_sim.errors import ParameterError, ShuffleSimError, integer
from shuffle_sim.execution.history import History
from shuffle_sim.execution.runtime import ATTEMPTS, HostLostError, Runtime
from shuffle_sim.roles import Deployment, Station

MESSAGES = frozenset(
    (
        *("answer", "collect", "accept", "shuffle", "release", "view", "receive", "conclude"),
        *("gather", "deliver", "finish", "whole"),  # of a station
    )
)
"""Methods that may come again at any later time: their arguments name the round.

Others are the driver's own control of a role, and come again at once or not at all.
"""
_BORN = frozenset(("__init__", "renew"))
"""Methods with which a role's life begins; no message to an earlier life reaches a later one."""
_EAGER = 3  # calls that roles get done, at most, while the driver makes one


class DriverKilledError(BaseException):
    """The driver is killed here; what it had not written is gone."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How often each fault comes.

    Attributes:
        duplicate: probability that a call is run again, at once or later.
        lose: that a call, or what it gives, is lost though its role lives.
        kill: that a role dies before the call or after it.
        isolate: that a role counts as dead although it goes on with the calls it has.
        driver: that the driver is killed when it calls or waits.
        most: calls lost and roles killed or isolated, altogether. Fewer than `ATTEMPTS` of them
            never abort a round.
    """

    duplicate: float = 0.0
    lose: float = 0.0
    kill: float = 0.0
    isolate: float = 0.0
    driver: float = 0.0
    most: int = ATTEMPTS - 1

    def __post_init__(self) -> None:
        """Refuse what are no probabilities.

        Raises:
            ParameterError: one is outside [0, 1], or `most` is negative.
        """
        for name in ("duplicate", "lose", "kill", "isolate", "driver"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ParameterError(name, value, "a probability")
        integer("most", self.most, 0)


class _Handle:
    """What a call will give: "waiting", "given", "failed" or "lost"."""

    __slots__ = ("state", "value")

    def __init__(self) -> None:
        self.state, self.value = "waiting", None

    def settle(self, state: str, value: Any = None) -> None:
        self.state, self.value = state, value


class _Host:
    """A place where one role lives."""

    def __init__(self, role: Any) -> None:
        self.role, self.alive, self.life = role, True, 0
        self.queue: deque[_Call] = deque()
        self.gave: deque[_Handle] = deque(maxlen=8)


class _Call:
    """A message that waits for its role."""

    __slots__ = ("arguments", "handles", "host", "life", "many", "method")

    def __init__(
        self,
        host: _Host,
        method: str,
        arguments: tuple[Any, ...],
        many: list[Any],
        handles: list[_Handle],
    ) -> None:
        self.host, self.method, self.life = host, method, host.life
        self.arguments, self.many, self.handles = arguments, many, handles

    def settle(self, state: str, value: Any = None) -> None:
        for handle in self.handles:
            handle.settle(state, value)

    @property
    def needs(self) -> list[_Handle]:
        return [each for each in (*self.arguments, *self.many) if isinstance(each, _Handle)]


class SimRuntime(Runtime):
    """Hosts the roles in a simulated, faulty network.

    Attributes:
        history: what was done.
        faults: how many of each kind came.
    """

    name = "simulated"

    def __init__(
        self, seed: int, faults: Faults | None = None, history: History | None = None
    ) -> None:
        """Draw all that happens from the seed.

        Args:
            seed: of the schedule and the faults; the run has its own.
            faults: how often they come; without, calls are delayed and reordered only.
            history: to go on with, that of a run to be resumed; by default a new one.
        """
        self._rng = random.Random(integer("seed", seed, 0))
        self._may = faults or Faults()
        self.history = history or History()
        self.faults: Counter[str] = Counter()
        self._deployment: Any = None  # a curator has none
        self._hosts: list[_Host] = []
        self._late: list[_Call] = []

    def host(self, role: type, *arguments: Any) -> _Host:
        first, *rest = arguments
        if isinstance(first, Deployment) and first.adversary is not None:
            # As in a process of its own: what corrupted users remember there is not seen elsewhere.
            first = replace(first, adversary=copy.deepcopy(first.adversary))
        host = _Host(role(first, *rest))
        if isinstance(host.role, Station):  # what its roles exchange is seen, too
            host.role.watch = partial(self.history.note, self._deployment)
        self._hosts.append(host)
        return host

    def alive(self, host: _Host) -> bool:
        if host.alive and self._harmed("isolate"):
            return False
        return host.alive

    def call(
        self, host: _Host, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        self._driver()
        handles = [_Handle() for _ in range(returns)]
        host.queue.append(_Call(host, method, arguments, list(many), handles))
        for _ in range(self._rng.randrange(_EAGER + 1)):
            self._step()
        return handles

    def get(self, handles: list[Any]) -> list[Any]:
        """Let roles go on until all is there.

        Raises:
            HostLostError: something is lost.
            ShuffleSimError: what a role raised.
        """
        while any(handle.state == "waiting" for handle in handles) and self._step():
            pass
        self._driver()
        for handle in handles:
            if handle.state == "failed":
                raise handle.value
            if handle.state != "given":
                raise HostLostError("lost in the simulation")
        return [handle.value for handle in handles]

    def close(self) -> None:
        for _ in range(self._rng.randrange(12)):
            if not self._step():
                break
        self._hosts, self._late = [], []

    def _driver(self) -> None:
        if self._rng.random() < self._may.driver:
            self.faults["driver"] += 1
            raise DriverKilledError

    def _harmed(self, fault: str) -> bool:
        """Whether this fault comes now."""
        spent = sum(self.faults[each] for each in ("lose", "kill", "isolate"))
        if self._rng.random() >= getattr(self._may, fault) or spent >= self._may.most:
            return False
        self.faults[fault] += 1
        return True

    def _step(self) -> bool:
        """One role, any that can, takes its next call; False if none can."""
        if self._late and self._rng.random() < 0.2:
            self._again(self._late.pop(self._rng.randrange(len(self._late))))
        ready = [host for host in self._hosts if host.queue and _settled(host.queue[0])]
        if not ready:
            return False
        self._run(self._rng.choice(ready).queue.popleft())
        return True

    def _run(self, call: _Call) -> None:
        host = call.host
        bad = next((each for each in call.needs if each.state != "given"), None)
        if bad is not None or not host.alive:
            call.settle("lost" if bad is None else bad.state, None if bad is None else bad.value)
            return
        # Before or after the call: what a role did is done, though nobody hears of it.
        before = self._rng.random() < 0.5
        killed, lost = self._harmed("kill"), self._harmed("lose")
        if before and (killed or lost):
            call.settle("lost")
        else:
            self._give(call, lost)
        if killed:
            self._die(host)

    def _give(self, call: _Call, lost: bool) -> None:
        """The role does it; what it gives may be lost, and the message may come again."""
        try:
            value = self._done(call)
        except ShuffleSimError as error:
            call.settle("failed", error)
        else:
            values = [value] if len(call.handles) == 1 else list(value)
            for handle, each in zip(call.handles, values, strict=True):
                handle.settle("lost" if lost else "given", each)
            call.host.gave += call.handles
        if self._rng.random() < self._may.duplicate:
            self.faults["duplicate"] += 1
            if call.method in MESSAGES and self._rng.random() < 0.5:
                self._late.append(call)
            else:
                self._again(call)

    def _done(self, call: _Call) -> Any:
        """What the role gives; the history notes it."""
        if call.method in _BORN:
            call.host.life += 1
        # What arrived is part of the message: it comes with it if that comes again.
        call.arguments = tuple(_value(each) for each in call.arguments)
        call.many = [_value(each) for each in call.many]
        together = [call.many] if call.many else []
        value = getattr(call.host.role, call.method)(*call.arguments, *together)
        if not isinstance(call.host.role, Station):
            self.history.note(self._deployment, call.method, call.arguments, value)
        return value

    def _again(self, call: _Call) -> None:
        """The same message comes once more; nobody waits for what it gives."""
        if call.host.alive and (call.host.life == call.life or call.method in _BORN):
            try:
                self._done(call)
            except ShuffleSimError:
                self.faults["refused"] += 1

    def _die(self, host: _Host) -> None:
        """Its calls, and half of what nobody has taken yet, go with it."""
        host.alive = False
        for call in host.queue:
            call.settle("lost")
        host.queue.clear()
        for handle in host.gave:
            if self._rng.random() < 0.5:
                handle.settle("lost")


def _settled(call: _Call) -> bool:
    return all(each.state != "waiting" for each in call.needs)


def _value(each: Any) -> Any:
    return each.value if isinstance(each, _Handle) else each
