"""What all sums share: one round over all users."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.sums.encoding import SumRandomizer
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.protocol.base import check_rows
from shuffle_sim.protocol.one_round import OneRound


@dataclass(frozen=True)
class SumSetting:
    """A setting in which comparisons show a sum.

    Attributes:
        name: what the table says.
        make: makes the sum; raises ParameterError where it cannot be had.
        paper: whether a paper's constants are taken as they are.
    """

    name: str
    make: Callable[[], "OneRoundSum"]
    paper: bool = False


class OneRoundSum(OneRound):
    """A sum over all users in one round; comparisons find its subclasses by their entry points.

    Attributes:
        scalar: whether data are numbers, of shape (n,), not vectors, of shape (n, d).
        family: its name in comparisons, shared by the scalar and the vector sum of a kind; empty:
            its registered name.
        sensitivity: l2 distance of two users' data at most: what the central Gaussian needs.
    """

    scalar: ClassVar[bool] = False
    family: ClassVar[str] = ""
    sensitivity: float
    randomizer: SumRandomizer

    def __init__(
        self, n: int, randomizer: SumRandomizer, delta: float, honest_fraction: float
    ) -> None:
        super().__init__(n, randomizer, delta, honest_fraction)
        self._claim: Guarantee | None = None

    @classmethod
    @abstractmethod
    def calibrated(cls, *args: Any, **kwargs: Any) -> "OneRoundSum":
        """The sum for `n`, `privacy` and, of vectors, `d`; all other parameters have defaults."""

    @classmethod
    def calibrate(cls, *args: Any, **kwargs: Any) -> "OneRoundSum":
        """The same, by its earlier name."""
        return cls.calibrated(*args, **kwargs)

    def __init_subclass__(cls) -> None:
        """A sum that was written with the earlier name has the other, too."""
        super().__init_subclass__()
        # Only where the class itself wrote the earlier name: an inherited one is served already.
        kind: Any = cls
        if "calibrate" in vars(cls) and "calibrated" not in vars(cls):
            kind.calibrated = vars(cls)["calibrate"]

    @classmethod
    def size(cls, n: int, d: int, privacy: Privacy) -> dict[str, Any]:
        """What `calibrated` must be given; d of vectors only."""
        return {"n": n, "privacy": privacy} | ({} if cls.scalar else {"d": d})

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[SumSetting]:
        """What comparisons show; here the sum as it is calibrated."""
        return [SumSetting("calibrated", partial(cls.calibrated, **cls.size(n, d, privacy)))]

    @property
    def claim(self) -> Guarantee | None:
        """What the paper's theorem promises, where `paper` set the parameters."""
        return self._claim

    @property
    def standard_error(self) -> float:
        """Predicted standard deviation of each coordinate of the sum, rounding at its worst."""
        return float(np.sqrt(self.randomizer.variance(self.n)[0]))

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n,) if self.scalar else (self.n, self.randomizer.variance(1).size))

    def answer(self, view: Any) -> Any:
        return float(view[0]) if self.scalar else view


def claim_of(privacy: Privacy, theorem: str) -> Guarantee:
    """The guarantee a theorem of the paper states."""
    return Guarantee(
        privacy.epsilon, privacy.delta, basis=f"{theorem} of Cheu, Joseph, Mao and Peng (2022)"
    )
