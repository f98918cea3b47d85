"""What is known of heavy tails: moments of A(z), the largest gradient of a row over the domain."""

import math
from dataclasses import dataclass

from shuffle_sim.errors import ParameterError, positive, real


def kappa(k: float) -> float:
    """(k - 1)^(k - 1)/k^k: the largest (a - C)/a^k is kappa/C^(k - 1), at a = k C/(k - 1)."""
    # By logarithms: k^k overflows from k = 144 on.
    return math.exp((k - 1) * math.log(k - 1) - k * math.log(k))


@dataclass(frozen=True)
class Moments:
    """E A^k <= gk^k, E A^2 <= g2^2 and E A <= g1, where A(z) = sup_w ||grad f(w, z)||.

    They are an assumption about the population. A wrong one costs accuracy, never privacy.

    Attributes:
        k: at least 2; infinite: A <= gk always.
        gk: in units of a gradient.
        g2: None: gk, which is never below it.
        g1: None: g2.

    Raises:
        ParameterError: k below 2, or moments that are below one another.
    """

    k: float
    gk: float
    g2: float | None = None
    g1: float | None = None

    def __post_init__(self) -> None:
        """Check the order G_1 <= G_2 <= G_k."""
        if self.k != math.inf:
            real("k", self.k, 2.0, math.inf, closed=(True, False))
        upper = positive("gk", self.gk)
        for name in ("g2", "g1"):
            value = getattr(self, name)
            value = upper if value is None else positive(name, value)
            if value > upper * (1 + 1e-12):
                allowed = f"at most {upper:g}: moments grow, G_1 <= G_2 <= G_k"
                raise ParameterError(name, value, allowed)
            object.__setattr__(self, name, value)
            upper = value

    @classmethod
    def bounded(cls, lipschitz: float) -> "Moments":
        """Of gradients that are never longer."""
        return cls(math.inf, lipschitz)

    @property
    def mean(self) -> float:
        """G_1."""
        assert self.g1 is not None
        return self.g1

    @property
    def root(self) -> float:
        """G_2."""
        assert self.g2 is not None
        return self.g2

    @property
    def tail(self) -> float:
        """(kappa_k G_k^k)^(1/(k-1)): the bias of a clip C is (tail/C)^(k-1); infinite k: none."""
        return math.exp((math.log(kappa(self.k)) + self.k * math.log(self.gk)) / (self.k - 1))

    def bias(self, clip: float) -> float:
        """B >= E (A - clip)_+: kappa_k G_k^k/clip^(k-1)."""
        if math.isinf(self.k):
            return max(0.0, self.gk - clip)
        # (a - C)_+ <= kappa a^k/C^(k - 1) for every a: in the mean, too.
        return math.exp((self.k - 1) * math.log(self.tail / clip))

    def __str__(self) -> str:
        """The assumption in words."""
        last = f"A <= {self.gk:g}" if math.isinf(self.k) else f"G_{self.k:g} = {self.gk:g}"
        return f"G_1 = {self.mean:g}, G_2 = {self.root:g}, {last}"
