"""P_vec: the vector sum (Cheu et al. 2022, Algorithm 2)."""

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.binomial_sum import BinomialSum
from protocols.sums.one_round import claim_of
from protocols.sums.planned import PlannedVectorSum
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import P


class VectorSum(PlannedVectorSum, BinomialSum):
    """The sum of n vectors in the l2 ball of radius norm_bound; data (n, d), result (d,).

    Every user sends exactly g + b one-bit messages under each of d labels. Rows above the norm
    bound are scaled to it on the user's side. Formal guarantee: binomial-Gaussian domination with
    the rounding bound (docs/theory/vector-sum.md), at `delta`.
    """

    theorem = "Theorem 3.2"

    def __init__(
        self,
        *,
        n: int,
        d: int,
        g: int,
        b: int,
        p: float = P,
        norm_bound: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        d, norm_bound = self._bound(d, norm_bound)
        randomizer = BinomialRandomizer(d, g, b, p, -norm_bound, 2 * norm_bound, norm_bound)
        super().__init__(n, randomizer, delta, honest_fraction)

    @classmethod
    def paper(cls, *, n: int, d: int, privacy: Privacy, norm_bound: float = 1.0) -> "VectorSum":
        """The constants of Theorem 3.2, for comparison: some hundred times the noise needed."""
        chosen = paper.theorem_3_2(n, d, privacy.epsilon, privacy.delta)
        protocol = cls(
            n=n, d=d, g=chosen.g, b=chosen.b, p=chosen.p, norm_bound=norm_bound, delta=privacy.delta
        )
        protocol._claim = claim_of(privacy, cls.theorem)
        return protocol
