"""Studies: the points of a grid, run over all cores, kept in a store and shown in a report."""

from shuffle_sim.experiments.points import Point, points_of
from shuffle_sim.experiments.store import Kept, Store
from shuffle_sim.experiments.sweep import Study, sweep, table_of
from shuffle_sim.experiments.trial import Outcome, Trial

__all__ = ["Kept", "Outcome", "Point", "Store", "Study", "Trial", "points_of", "sweep", "table_of"]
