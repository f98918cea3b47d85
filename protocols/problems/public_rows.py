"""Rows that a loss takes, made up: what they show of it is public."""

from collections.abc import Callable
from typing import Any

import numpy as np

from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError

_PROBE = 40


def public_rows(loss: Loss, d: int, check: Callable[[Floats], Any]) -> Floats | None:
    """Rows that the loss takes; None where it is not known what it takes.

    Args:
        loss: has rows of `columns(d)` numbers.
        d: parameters.
        check: refuses rows; the refusal of the loss itself is passed on.
    """
    rng, columns = np.random.default_rng(0), loss.columns(d)
    rows = rng.normal(size=(_PROBE, columns))
    rows /= 2 * np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= min(1.0, getattr(loss, "features", 1.0))
    side = np.where(rows[:, 0] > 0, 1.0, -1.0) * min(1.0, getattr(loss, "label_bound", 1.0))
    # Labels -1 and +1, classes 0 and 1, labels and a group, none: one of them fits.
    for last in ([side], [np.maximum(side, 0.0)], [side, np.zeros(_PROBE)], []):
        made = np.column_stack([rows[:, : columns - len(last)], *last])
        try:
            check(made)
        except ParameterError as error:
            if error.parameter == "loss":  # it is not what it states
                raise
            continue
        return made
    return None
