"""Points of a study as Ray tasks, on this machine or in a cluster."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from actors.deadlines import within
from actors.runtime import RayRuntime, cores
from shuffle_sim.experiments import Outcome, Point
from shuffle_sim.experiments.pools import PointRunner
from shuffle_sim.experiments.trial import Make

_pickle: Any = ray.cloudpickle


class RayPool:
    """A task for each point; Ray repeats none, so that a point that kills its worker ends."""

    def __init__(self, address: str | None = None) -> None:
        """Join the cluster at `address`, or for None start or reuse a local Ray."""
        self._host = RayRuntime(address)

    def outcomes(
        self, make: Make, points: Sequence[Point], workers: int | None
    ) -> Iterator[tuple[Point, Outcome]]:
        """Each point; by default as many at a time as the cluster has cores.

        Raises:
            ParameterError: the cluster cannot be reached.
        """
        if not points:
            return
        try:
            self._host.start()
            # Not tried again: a point that takes the memory of its node would do so once more.
            task: Any = ray.remote(num_cpus=1, max_retries=0)(_measure)
            # Once for all points: a task of its own would carry the function each time.
            shared, waiting = ray.put((_pickle.dumps(make), sys.path)), deque(points)
            many = workers or cores()
            running: dict[Any, Point] = {}
            while waiting or running:
                while waiting and len(running) < many:
                    point = waiting.popleft()
                    running[task.remote(shared, point)] = point
                # In a thread of its own: Ctrl-C is seen while the points take their time.
                (ended, *_), _ = within(None, lambda: ray.wait(list(running)))
                yield running.pop(ended), _outcome(ended)
        finally:
            self._host.close()


def _measure(shared: tuple[bytes, list[str]], point: Point) -> Outcome:
    made, path = shared
    # A function is sent by the name of its module, which is found where this process found it.
    sys.path.extend(each for each in path if each not in sys.path)
    return PointRunner(_pickle.loads(made)).measure(point)


def _outcome(handle: Any) -> Outcome:
    try:
        found: Outcome = ray.get(handle)
    except ray.exceptions.RayError as error:
        return Outcome(None, f"its worker ended ({str(error).splitlines()[0]})")
    return found
