"""P_vec: the vector sum (Cheu et al. 2022, Algorithm 2)."""

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.encoding import MAGNITUDES
from protocols.sums.one_round import BinomialSum, choose, claim_of
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import P, SumSpec


class VectorSum(BinomialSum):
    """The sum of n vectors in the l2 ball of radius norm_bound; data (n, d), result (d,).

    Every user sends exactly g + b one-bit messages under each of d labels. Rows above the norm
    bound are scaled to it on the user's side. Formal guarantee: binomial-Gaussian domination with
    the rounding bound (docs/theory/vector-sum.md), at `delta`.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
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
        """Explicit parameters; `calibrate` chooses good ones, `paper` the paper's."""
        self.d = integer("d", d)
        self.norm_bound = real("norm_bound", norm_bound, *MAGNITUDES, closed=(True, True))
        self.sensitivity = 2 * self.norm_bound
        randomizer = BinomialRandomizer(
            self.d, g, b, p, -self.norm_bound, 2 * self.norm_bound, self.norm_bound
        )
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

    @classmethod
    def calibrate(
        cls,
        *,
        n: int,
        d: int,
        privacy: Privacy,
        norm_bound: float = 1.0,
        noise_ratio: float | None = None,
        max_bits: int | None = None,
        honest_fraction: float = 1.0,
    ) -> "VectorSum":
        """The fewest bits for a noise ratio, or the least noise for a number of bits.

        Both by the domination lemma with its rounding bound. `noise_ratio` is the noise over the
        central Gaussian's; `max_bits` counts bits per user and coordinate, g + b.
        """
        plan = choose(
            SumSpec(n, d, privacy, honest_fraction=honest_fraction), noise_ratio, max_bits
        )
        return cls(
            n=n,
            d=d,
            g=plan.g,
            b=plan.b,
            norm_bound=norm_bound,
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )
