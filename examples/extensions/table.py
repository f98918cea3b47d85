"""A table of your own, with public bounds that are not computed from it."""

import numpy as np

from shuffle_sim.data import Schema, Table


def harvest():
    """200 fields with rain and sun; whether the harvest was good."""
    rng = np.random.default_rng(1)
    rows = rng.uniform((100.0, 500.0), (900.0, 2500.0), (200, 2))
    good = np.where(rows @ (1 / 400, -1 / 1000) > 0, "good", "poor")
    schema = Schema.within(("rain", "sun"), lower=(0, 0), upper=(1000, 3000))
    return Table(name="harvest", schema=schema, rows=rows, target=good, target_name="harvest")
