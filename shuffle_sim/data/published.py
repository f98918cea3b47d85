"""Tables bundled with scikit-learn, within the ranges that their descriptions publish."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.schema import Schema
from shuffle_sim.data.tables import Table

_BREAST_CANCER = """
6.981:28.11 9.71:39.28 43.79:188.5 143.5:2501 0.053:0.163 0.019:0.345 0:0.427 0:0.201
0.106:0.304 0.05:0.097 0.112:2.873 0.36:4.885 0.757:21.98 6.802:542.2 0.002:0.031 0.002:0.135
0:0.396 0:0.053 0.008:0.079 0.001:0.03 7.93:36.04 12.02:49.54 50.41:251.2 185.2:4254 0.071:0.223
0.027:1.058 0:1.252 0:0.291 0.156:0.664 0.055:0.208
"""
_WINE = """
11:14.8 0.74:5.8 1.36:3.23 10.6:30 70:162 0.98:3.88 0.34:5.08 0.13:0.66 0.41:3.58 1.3:13
0.48:1.71 1.27:4 278:1680
"""


def breast_cancer() -> Table:
    """569 tumours in 30 measurements; malignant or benign."""
    from sklearn.datasets import load_breast_cancer

    return _table("breast-cancer", load_breast_cancer, _BREAST_CANCER)


def digits() -> Table:
    """1,797 images of 8 x 8 pixels, from 0 to 16; which digit it is."""
    from sklearn.datasets import load_digits

    return _table("digits", load_digits, "0:16 " * 64)


def diabetes() -> Table:
    """442 people, ten columns scaled to unit sum of squares; progress of the disease."""
    from sklearn.datasets import load_diabetes

    return _table("diabetes", load_diabetes, "-0.2:0.2 " * 10, (25.0, 346.0))


def wine() -> Table:
    """178 wines in 13 measurements; one of three growers."""
    from sklearn.datasets import load_wine

    return _table("wine", load_wine, _WINE)


def _table(
    name: str, load: Callable[[], Any], published: str, target_bounds: Bounds | None = None
) -> Table:
    loaded = load()
    bounds = np.array([[float(end) for end in pair.split(":")] for pair in published.split()])
    names = [str(column) for column in loaded.feature_names]
    return Table(
        name=name,
        schema=Schema.within(names, *bounds.T),
        rows=np.asarray(loaded.data, float),
        target=loaded.target if target_bounds else loaded.target_names[loaded.target],
        target_bounds=target_bounds,
    )
