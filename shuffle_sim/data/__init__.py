"""Users' data: where it is, how it is read, scaled, labelled and held out."""

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.labelled import Labelled, held_out
from shuffle_sim.data.persons import PersonMeans, PersonRows, Persons
from shuffle_sim.data.population import (
    Generated,
    InMemory,
    NpyFiles,
    ParquetFiles,
    Population,
    Unit,
    population_of,
)
from shuffle_sim.data.tables import Bounds, Table, bundled, read

__all__ = [
    "Bounds",
    "Cohort",
    "Generated",
    "InMemory",
    "Labelled",
    "NpyFiles",
    "ParquetFiles",
    "PersonMeans",
    "PersonRows",
    "Persons",
    "Population",
    "Table",
    "Unit",
    "bundled",
    "held_out",
    "population_of",
    "read",
]
