"""What the binomial sums P_1D and P_vec share (Cheu et al. 2022, section 3.1)."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.one_round import SumSetting
from protocols.sums.planned import PlannedSum
from shuffle_sim.privacy.binomial_planner import choose_binomial
from shuffle_sim.privacy.guarantee import Privacy


class BinomialSum(PlannedSum):
    """A sum by a `BinomialRandomizer`: numbers in unary, and noise bits beside them.

    Attributes:
        theorem: of the paper, whose constants `paper` takes.
    """

    family, encoding, paper_cost = "binomial", "unary", "section 3.1"
    own = "g", "b", "p"
    choose = staticmethod(choose_binomial)
    theorem: ClassVar[str]
    randomizer: BinomialRandomizer

    @classmethod
    @abstractmethod
    def paper(cls, *args: Any, **kwargs: Any) -> "BinomialSum":
        """The sum with the constants of the paper's theorem."""

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[SumSetting]:
        yield from super().settings(n, d, privacy)
        yield SumSetting(cls.theorem, partial(cls.paper, **cls.size(n, d, privacy)), paper=True)

    @property
    def bits(self) -> int:
        return self.g + self.b

    @property
    def g(self) -> int:
        """Rounding steps over the range."""
        return self.randomizer.g

    @property
    def b(self) -> int:
        """Noise bits per user and coordinate."""
        return self.randomizer.b

    @property
    def p(self) -> float:
        """Success probability of a noise bit."""
        return self.randomizer.p
