"""How small the honest fraction of a batch may be when users are drawn into batches at random."""

import scipy

from shuffle_sim.errors import integer, real


def least_honest_fraction(users: int, batch: int, corrupted: float, failure: float = 1e-6) -> float:
    """The honest fraction that all the disjoint random batches have, except with `failure`.

    The honest users of a batch are hypergeometric; the union bound over the batches is taken of
    their lower tail.

    Args:
        users: of the population.
        batch: users in each batch; as many whole batches as there are.
        corrupted: fraction of the population.
        failure: probability with which some batch may have fewer.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    integer("users", users)
    integer("batch", batch, 1, users)
    bad = round(real("corrupted", corrupted, 0.0, 1.0, closed=(True, True)) * users)
    # Honest users of the population, of whom a batch is drawn without replacement.
    law = scipy.stats.hypergeom(users, users - bad, batch)
    quantile = int(
        law.ppf(real("failure", failure, 0.0, 1.0, closed=(False, False)) / (users // batch))
    )
    # The quantile is found in floats: settle it on the tail itself. `least` is the largest k with
    # P(fewer than k) small enough.
    least = max(0, quantile - 2)
    while least < batch and (users // batch) * law.cdf(least) <= failure:
        least += 1
    return least / batch
