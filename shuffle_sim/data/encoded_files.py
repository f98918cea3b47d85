"""Tables that are too large for memory: each shard encodes the rows that it reads, by a schema."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from shuffle_sim.data.file_columns import from_arrow
from shuffle_sim.data.file_population import ParquetFiles
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import ParameterError


class EncodedFiles(ParquetFiles):
    """Rows in Parquet files as a schema encodes them, scaled into the l2 unit ball.

    Numbers, dates, booleans and categories are taken, one row group at a time. `schema.scale` has
    the way back into the units of the columns.

    Attributes:
        schema: of the columns.
    """

    def __init__(self, paths: Sequence[str | Path], schema: Schema) -> None:
        """Read what the files say of themselves, not their rows.

        Args:
            paths: the files.
            schema: with bounds for every column. `missing` may be "midpoint" or "indicator".

        Raises:
            ParameterError: a file without one of the columns, or that is no whole Parquet file; or
                a schema that leaves rows out, or bounds to be chosen.
        """
        if schema.missing == "drop":
            allowed = "midpoint or indicator for files: how many rows there are is fixed beforehand"
            raise ParameterError("missing", schema.missing, allowed)
        if schema.free:
            allowed = "given for every column of files: no run chooses those"
            raise ParameterError("bounds", schema.names[schema.free[0]], allowed)
        self.schema = schema
        super().__init__(paths, [column.name for column in schema.columns])

    def _described(self, path: Path) -> tuple[list[int], tuple[int, ...]]:
        described, groups = self.described(path)
        for column in self.schema.columns:
            if column.name not in described.names:
                allowed = f"there: the file has {', '.join(described.names)}"
                raise ParameterError(f"column {column.name} of {path}", None, allowed)
        return groups, (len(self.schema.names),)

    def _rows_of(self, table: Any) -> NDArray[Any]:
        return self.schema.scaled(self.schema.encode(from_arrow(table)))
