"""Many runs of a protocol in a simulated, faulty network: nothing may come of it but time.

Each run is drawn from its seed: the faults and their moments, the order in which roles act, the
number of workers, and whether the driver dies and resumes. A failure names the seed, which repeats
it to the last call.
"""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.execution.engine import run
from shuffle_sim.execution.history import History, violations, windows
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result
from shuffle_sim.execution.simulated import DriverKilledError, Faults, SimRuntime
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.wire.fingerprint import fingerprint

_MEMORY = Path("/dev/shm")
_LIVES = 6  # of a driver; in the last nothing is lost
_STORM = 1000


@dataclass(frozen=True)
class Failure:
    """A seed, and what it broke."""

    seed: int
    violations: tuple[str, ...]

    def __str__(self) -> str:
        """One line."""
        return f"seed {self.seed}: " + "; ".join(self.violations)


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """What came of the seeds.

    Attributes:
        runs: seeds tried.
        failures: those that broke a promise.
        faults: how many of each kind came; "refused" counts repeated messages that a role refused,
            "windows" rounds whose view was released again before it was delivered, "resumed"
            drivers that died.
    """

    runs: int = 0
    failures: tuple[Failure, ...] = ()
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        """Whether no seed broke a promise."""
        return not self.failures


def simulate(
    protocol: Protocol[Any],
    data: Population | ArrayLike,
    *,
    seeds: Iterable[int] = range(1000),
    runtime: type[SimRuntime] = SimRuntime,
    most_failures: int = 1,
    on_run: Callable[[int], None] | None = None,
    **options: Any,
) -> SimulationReport:
    """Run the protocol once for each seed, in a network that fails as the seed decides.

    A run may not differ from one that is left alone: value, guarantee, costs, reports, ledger. Its
    history may not have `violations`. So it holds for every protocol, also a third party's. Take
    few users and rounds: a seed costs a handful of runs.

    Args:
        protocol: to be run.
        data: of its users.
        seeds: each repeats its run.
        runtime: with a planted error, to see whether it is found.
        most_failures: after so many it stops.
        on_run: called with the number of runs done.
        options: of `run` and `Execution`, in place of what a seed would choose: fidelity, security,
            shuffler_shards, adversary, block_size and the like. With `placement` a driver that is
            resumed may find roles together or apart.

    Raises:
        ParameterError: an option that a simulation sets itself.
    """
    for name in ("workers", "checkpoint", "resume", "seed", "on_round", "round_timeout"):
        if name in options:
            raise ParameterError(name, options[name], "left out: a simulation sets it itself")
    bench = _Bench(protocol, data, runtime, options)
    failures, faults, runs = list[Failure](), Counter[str](), 0
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        for seed in seeds:
            found, came = bench.trial(seed, Path(folder) / str(seed))
            shutil.rmtree(Path(folder) / str(seed))
            runs, faults = runs + 1, faults + came
            if found:
                failures.append(Failure(seed, tuple(found)))
            if len(failures) >= most_failures:
                break
            if on_run is not None:
                on_run(runs)
    return SimulationReport(runs=runs, failures=tuple(failures), faults=faults)


class _Bench:
    """A protocol, its data, and the results of runs that were left alone."""

    def __init__(
        self,
        protocol: Protocol[Any],
        data: Population | ArrayLike,
        runtime: type[SimRuntime],
        options: dict[str, Any],
    ) -> None:
        self._protocol, self._data, self._runtime = protocol, data, runtime
        self._options = options
        self._alone: dict[tuple[object, ...], dict[str, Any]] = {}

    def trial(self, seed: int, folder: Path) -> tuple[list[str], Counter[str]]:
        """What one seed breaks, and the faults that came."""
        rng = random.Random(seed)
        chosen = {
            # Few seeds: what a run that is left alone gives is computed once for each.
            "seed": rng.randrange(4),
            "fidelity": rng.choice(("literal", "literal", "counts", "aggregate")),
            "block_size": rng.choice((1, 2, 3)),
        }
        if chosen["fidelity"] == "literal":
            chosen["shuffler_shards"] = rng.choice((1, 1, 2))
        options = chosen | self._options
        rate = rng.choice((0.01, 0.05, 0.2))
        faults = Faults(
            duplicate=rng.choice((0.0, rate)),
            lose=rate,
            kill=rate,
            isolate=rng.choice((0.0, rate)),
            driver=rng.choice((0.0, 0.0, rate / 4)),
            most=_STORM if (storm := rng.random() < 0.05) else Faults.most,
        )
        history, came = History(folder), Counter[str]()
        ledger: PrivacyLedger | None = None
        ended: dict[str, Any] = {"end": "never"}
        for life in range(_LIVES):
            # The last life ends it: else a seed might never come to a result.
            calm = life == _LIVES - 1
            host = self._runtime(rng.getrandbits(32), Faults() if calm else faults, history)
            workers = min(rng.choice((1, 2, 3)), self._protocol.users)
            resume = (folder / FILE).exists()
            how = options | {"workers": workers, "checkpoint": folder, "resume": resume}
            if "placement" in options:  # each life of the driver has its own
                together = {"placement": "together", "workers": options.get("shuffler_shards", 1)}
                how |= together if rng.random() < 0.7 else {"placement": "apart"}
            try:
                ended, ledger = self._ended(runtime=host, **how)
            except DriverKilledError:
                came["resumed"] += 1
                _tear(folder / FILE, rng)
            came += host.faults
            if ledger is not None and not (storm and "attempts" in ended["end"]):
                break
        came["windows"] += windows(history)
        alone = self._left_alone(options | {"placement": "apart"})
        found = [
            f"ended by {value}" if name == "end" else f"another {name} than left alone"
            for name, value in ended.items()
            if alone.get(name) != value
        ]
        return found + violations(history, ledger), came

    def _ended(self, **options: Any) -> tuple[dict[str, Any], PrivacyLedger]:
        """How a run ends: with a result, or with an error alone; and its ledger."""
        execution = Execution.taken(options)
        try:
            result = run(self._protocol, self._data, execution=execution, **options)
        except ShuffleSimError as error:
            return {"end": f"{type(error).__name__}: {error}"}, error.ledger
        return _outcome(result), result.ledger

    def _left_alone(self, options: dict[str, Any]) -> dict[str, Any]:
        key = tuple(sorted((name, repr(value)) for name, value in options.items()))
        if key not in self._alone:
            self._alone[key], _ = self._ended(**options)
        return self._alone[key]


def _outcome(result: Result) -> dict[str, Any]:
    """Everything in a result except how the run was hosted."""
    return {
        "end": "a result",
        "value": fingerprint(result.value),
        "guarantee": result.privacy,
        "promise": result.promised,
        "number of rounds": result.rounds,
        "costs": result.costs,
        "reports": result.reports,
        "ledger": result.ledger.charges,
    }


def _tear(journal: Path, rng: random.Random) -> None:
    """The driver may have died inside its next write: some of a record is on the disk."""
    if rng.random() < 0.5:
        with suppress(FileNotFoundError), journal.open("r+b") as file:
            file.seek(0, 2)
            size = rng.randrange(40, 200)
            record = size.to_bytes(4, "big") + (size ^ 0xFFFFFFFF).to_bytes(4, "big") + bytes(size)
            file.write(record[: rng.randrange(1, len(record))])
