"""P_1D: the binomial scalar sum (Cheu et al. 2022, Algorithm 1)."""

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.binomial_sum import BinomialSum
from protocols.sums.one_round import claim_of
from protocols.sums.planned import PlannedScalarSum
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import P


class ScalarSum(PlannedScalarSum, BinomialSum):
    """The sum of n scalars in [0, upper] from one-bit messages; data of shape (n,).

    Every user sends exactly g + b bits: its value rounded at random to g steps, in ones, plus
    Bin(b, p) more ones. Formal guarantee: exact two-sided accounting of Bin(n b, p) against its
    shift by g, at `delta`.
    """

    theorem = "Lemma 3.1"

    def __init__(
        self,
        *,
        n: int,
        g: int,
        b: int,
        p: float = P,
        upper: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        width = self._bound(upper)
        super().__init__(n, BinomialRandomizer(1, g, b, p, 0.0, width), delta, honest_fraction)

    @classmethod
    def paper(
        cls, *, n: int, privacy: Privacy, upper: float = 1.0, g: int | None = None
    ) -> "ScalarSum":
        """The constants of Lemma 3.1, after rescaling to [0, 1]; refused where its proof fails."""
        chosen = paper.lemma_3_1(n, privacy.epsilon, privacy.delta, g)
        protocol = cls(n=n, g=chosen.g, b=chosen.b, p=chosen.p, upper=upper, delta=privacy.delta)
        protocol._claim = claim_of(privacy, cls.theorem)
        return protocol
