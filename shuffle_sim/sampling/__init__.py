"""Random streams by role, the inner loops that draw from them, and the uniform permutation."""

from shuffle_sim.sampling.carries import digit_counts, digit_sums, pack_reports, split_numbers
from shuffle_sim.sampling.kernels import (
    KERNELS,
    MAX_STEPS,
    available,
    column_sums,
    half_binomial,
    margins_and_norms,
    rounded_sum,
    rounded_values,
    using,
)
from shuffle_sim.sampling.randomness import Role, entropy_of, stream
from shuffle_sim.sampling.shuffling import arrange, permute, permuted, share_out

__all__ = [
    "KERNELS",
    "MAX_STEPS",
    "Role",
    "arrange",
    "available",
    "column_sums",
    "digit_counts",
    "digit_sums",
    "entropy_of",
    "half_binomial",
    "margins_and_norms",
    "pack_reports",
    "permute",
    "permuted",
    "rounded_sum",
    "rounded_values",
    "share_out",
    "split_numbers",
    "stream",
    "using",
]
