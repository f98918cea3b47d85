"""What a run is: all that must be the same for the same bytes to come again."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.code import code_of
from shuffle_sim.wire.fingerprint import fingerprint

version = cache(metadata.version)  # which reads and parses files
_SHAPES = ((3, 1), (64, 5), (257, 33), (400, 100))


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What must be the same for the same bytes to come again.

    Attributes:
        values: what the run is made of, by name; their fingerprints count.
        settings: plain values, by name.
        plan: the first, which names what the run will broadcast or release; its code counts.
        seed: of the run.
        task: 16 bytes that name the run.
        entropy: of the run's random streams.
        libraries: beside numpy, whose versions decide which bits are drawn.
        report: of a budget, that the run is charged to; what comes later is charged there, too.
    """

    values: Mapping[str, Any]
    settings: Mapping[str, object]
    seed: int | None
    task: bytes
    entropy: int = field(repr=False)
    plan: Any = None
    libraries: Sequence[str] = ()
    report: Any = None

    @cached_property
    def marks(self) -> tuple[tuple[str, str], ...]:
        """All of it by name, to be compared when a run is resumed.

        Raises:
            ParameterError: a value that cannot be taken apart.
        """
        try:
            prints = [
                (name, f"{type(value).__qualname__} {fingerprint(value).hex()[:32]}")
                for name, value in self.values.items()
            ]
            code = code_of([*self.values.values(), self.plan])
        except TypeError as error:
            allowed = f"used with {', '.join(self.values)} that pickle can take"
            raise ParameterError("checkpoint", str(error), allowed) from error
        if self.report is not None:
            whose = f"{self.report.name!r} of {self.report.budget.population!r}"
            prints.append(("budget", f"report {whose}"))
        named = "shuffle-sim", "numpy", *self.libraries
        software = ", ".join((*(f"{each} {version(each)}" for each in named), *_arithmetic()))
        return (
            # First the seed: of another one, data that are split or drawn by it differ, too.
            ("seed", str(self.seed)),
            # Then Python: of another minor version, all bytecode differs.
            ("Python", ".".join(platform.python_version_tuple()[:2])),
            *prints,
            *((name, str(value)) for name, value in self.settings.items()),
            # Other versions may draw other bits from the same streams: a second release.
            ("software", software),
            *((f"code of {name}", digest) for name, digest in code.items()),
        )


@cache
def _arithmetic() -> tuple[str, ...]:
    """What decides how a gradient is rounded: processor and linear algebra, by name and by what
    they make of some numbers. A library may choose other ways by its surroundings.
    """
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    found = " ".join(config["SIMD Extensions"].get("found", ()))
    names = platform.machine(), found or "no SIMD", f"{blas['name']} {blas['version']}"
    return *names, f"whose sums round to {_rounded()}"


def _rounded() -> str:
    """A hash of products, sums, norms and exponentials to the last bit."""
    rng, digest = np.random.default_rng(0), hashlib.sha256()
    for rows, columns in _SHAPES:
        x, w = rng.normal(size=(rows, columns)), rng.normal(size=columns)
        turned, y = np.asfortranarray(x), rng.normal(size=rows)
        for found in (x @ w, turned @ w, y @ x, y @ turned, x.T @ x, turned.T @ turned):
            digest.update(found.tobytes())
        for found in (np.linalg.norm(x, axis=1), x.sum(axis=0), np.exp(x), np.tanh(x)):
            digest.update(found.tobytes())
        digest.update(scipy.special.expit(x).tobytes() + scipy.special.softmax(x, axis=1).tobytes())
    return digest.hexdigest()[:16]
