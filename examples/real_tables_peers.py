"""Competitors of real_tables.py that run in environments of their own, one process for each.

An environment is made by `venv` and `pip` where it is not there. A process reads the name of a file
of rows, writes predictions beside it, and prints that name: it starts once for all tables.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats

PACKAGES = {
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn==1.5.2"),
    "dpsgd": ("dp-accounting==0.6.0", "numpy"),
}
_MADE = "made"
"""A file of an environment that is complete."""


@dataclass
class Peer:
    """A competitor's process.

    Attributes:
        name: of its script and its environment.
        folder: where environments are, and files for the process.
    """

    name: str
    folder: Path
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    @property
    def python(self) -> Path:
        """Of the environment."""
        return self.folder / self.name / "bin" / "python"

    def __enter__(self) -> Self:
        """Make the environment, and start."""
        place = self.folder / self.name
        if not (place / _MADE).exists():  # or an earlier run was stopped while it was made
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=1800)
            install = [str(self.python), "-m", "pip", "install", "--quiet", *PACKAGES[self.name]]
            subprocess.run(install, check=True, timeout=1800)
            (place / _MADE).touch()
        script = Path(__file__).with_name(f"real_tables_{self.name}.py")
        words = [str(self.python), "-E", "-u", str(script), str(self.folder)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End the process."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def predictions(
        self,
        X: Floats,
        y: Floats,
        test: Floats,
        limits: Floats,
        bounds: tuple[float, float] | None,
        epsilons: list[float],
        seed: int,
    ) -> dict[str, NDArray[np.float64]]:
        """By setting of the competitor: (epsilons, rows of `test`); NaN where it refused.

        Args:
            X: rows in the unit ball.
            y: 0 or 1, or numbers.
            test: rows that are held out.
            limits: public bounds of columns, (2, columns).
            bounds: public bounds of y; None: classes.
            epsilons: one model for each.
            seed: of the noise.

        Raises:
            RuntimeError: the process ended; its error stands on standard error.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = self.folder / f"{self.name}-asked.npz"
        ends = np.array(bounds if bounds is not None else ())
        plain = {"X": X, "y": y, "test": test, "limits": limits, "bounds": ends}
        np.savez(asked, epsilons=np.array(epsilons), seed=np.array(seed), **plain)
        self._process.stdin.write(f"{asked}\n")
        self._process.stdin.flush()
        answered = self._process.stdout.readline().strip()
        if not answered:
            raise RuntimeError(f"the process of {self.name} ended")
        with np.load(answered) as found:
            return {name: found[name] for name in found.files}
