"""What all sums share: one round over all users."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.sums.encoding import SumRandomizer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.base import Datum, Protocol, RoundSpec, check_rows


@dataclass(frozen=True)
class SumState:
    """The estimate, once the round is over."""

    estimate: Floats | None = None


@dataclass(frozen=True)
class Setting:
    """A setting in which comparisons show a sum.

    Attributes:
        name: what the table says.
        make: makes the sum; raises ParameterError where it cannot be had.
        paper: whether a paper's constants are taken as they are.
    """

    name: str
    make: Callable[[], "OneRoundSum"]
    paper: bool = False


class OneRoundSum(Protocol[SumState]):
    """A sum over all users in one round; comparisons find its subclasses by their entry points.

    Attributes:
        scalar: whether data are numbers, of shape (n,), not vectors, of shape (n, d).
        family: its name in comparisons, shared by the scalar and the vector sum of a kind; empty:
            its registered name.
        colour: in pictures.
        sensitivity: l2 distance of two users' data at most: what the central Gaussian needs.
    """

    scalar: ClassVar[bool] = False
    family: ClassVar[str] = ""
    colour: ClassVar[str] = "tab:brown"
    sensitivity: float

    def __init__(
        self, n: int, randomizer: SumRandomizer, delta: float, honest_fraction: float
    ) -> None:
        """Keep the parameters; subclasses name them."""
        self.n = integer("n", n)
        self.randomizer = randomizer
        self.honest = honest_users(honest_fraction, self.n)
        self.honest_fraction = honest_fraction
        self._delta = real("delta", delta, 0.0, 1.0, closed=(False, False))
        self._claim: Guarantee | None = None
        randomizer.event(self.honest, Datum())  # refuses what the accountant cannot do

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
        kind: Any = cls
        if "calibrate" in vars(cls) and "calibrated" not in vars(cls):
            kind.calibrated = vars(cls)["calibrate"]

    @classmethod
    def size(cls, n: int, d: int, privacy: Privacy) -> dict[str, Any]:
        """What `calibrated` must be given; d of vectors only."""
        return {"n": n, "privacy": privacy} | ({} if cls.scalar else {"d": d})

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[Setting]:
        """What comparisons show; here the sum as it is calibrated."""
        return [Setting("calibrated", partial(cls.calibrated, **cls.size(n, d, privacy)))]

    @property
    def users(self) -> int:
        return self.n

    @property
    def delta(self) -> float:
        return self._delta

    @property
    def minimum(self) -> int:
        """Reports without which no view is released.

        Only an honest fraction below 1 agrees on a floor; at 1 any dropout is stated in the
        result's epsilon instead.
        """
        return self.honest if self.honest_fraction < 1 else 1

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (Datum, type(self.randomizer))

    @property
    def claims_sequential(self) -> bool:
        return True

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

    def init(self) -> SumState:
        return SumState()

    def plan(self, state: SumState) -> RoundSpec | None:
        if state.estimate is not None:
            return None
        query = Datum()
        return RoundSpec(
            Cohort.of(0, self.n),
            query,
            self.randomizer,
            self.randomizer.event(self.honest, query),
            self.randomizer.estimate,
            self.minimum,
        )

    def update(self, state: SumState, estimate: Any) -> SumState:
        return SumState(estimate)

    def result(self, state: SumState) -> Any:
        if state.estimate is None:
            raise ParameterError("state", state, "that of a finished round")
        return float(state.estimate[0]) if self.scalar else state.estimate


def claim_of(privacy: Privacy, theorem: str) -> Guarantee:
    """The guarantee a theorem of the paper states."""
    return Guarantee(
        privacy.epsilon, privacy.delta, basis=f"{theorem} of Cheu, Joseph, Mao and Peng (2022)"
    )
