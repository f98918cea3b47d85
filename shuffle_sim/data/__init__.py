"""Users' data: where it is, how it is read, scaled, labelled and held out."""

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.file_population import EncodedFiles, NpyFiles, ParquetFiles
from shuffle_sim.data.labelled import Labelled, held_out
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import Generated, InMemory, Population, Unit, population_of
from shuffle_sim.data.schema import Declared, Schema, read_schema
from shuffle_sim.data.tables import Table, bundled, read

__all__ = [
    "Bounds",
    "Cohort",
    "Declared",
    "EncodedFiles",
    "Generated",
    "InMemory",
    "Labelled",
    "NpyFiles",
    "ParquetFiles",
    "PersonMeans",
    "PersonRows",
    "Persons",
    "Population",
    "Schema",
    "Table",
    "Unit",
    "bundled",
    "held_out",
    "population_of",
    "read",
    "read_schema",
]
