"""Rows that change while a run goes on: users do not answer, or noise would meet other data."""

import numpy as np

from shuffle_sim.auditing.claims.aside import check_error
from shuffle_sim.auditing.claims.neighbours import RereadRows
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.bench import round_frame
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import DataChangedError
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.roles import Deployment, UserShard

_ROWS = 48  # of a block, at both ends and between, of each of which one bit changes


def broadcast(deployment: Deployment, index: int, spec: RoundSpec) -> bytes:
    """The frame that asks users for a round."""
    return round_frame(spec.broadcast(deployment.vocabulary), index, deployment.task)


def check_changed(
    kind: type[UserShard], deployment: Deployment, spec: RoundSpec, population: Population
) -> None:
    """Users of a block in which one bit of any row has changed since it was read.

    Raises:
        LawError: they answer, or the error tells their rows.
    """
    rows = np.array(population.rows(0, min(population.users, deployment.block_size)))
    if rows.dtype != np.float64:
        return
    users = len(rows)
    for place in np.unique(np.linspace(0, users - 1, _ROWS).astype(int)):
        given = rows.copy()
        inner = RereadRows(InMemory(given))
        shard = kind(deployment, inner, deployment.blocks()[:1])
        given.reshape(users, -1)[place, :1].view(np.uint64)[...] ^= np.uint64(1)
        try:
            shard.answer(broadcast(deployment, 0, spec))
        except DataChangedError as error:
            check_error(error, given.ravel())
            continue
        raise LawError(f"row {place:,} of {users:,} changed on the way, and its user answers")
