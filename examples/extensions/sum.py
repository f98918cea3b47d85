"""A sum of your own: numbers in [0, 1] in four steps, each hidden among sixty noise bits."""

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.one_round import OneRoundSum


class CoarseSum(OneRoundSum):
    """Every user sends 64 bits, whatever the privacy asked for; the result says what it is."""

    scalar, sensitivity = True, 1.0

    @classmethod
    def calibrated(cls, *, n, privacy):
        return cls(n, BinomialRandomizer(1, 4, 60, 0.5, 0.0, 1.0), privacy.delta, 1.0)
