"""Tables as text: .csv and .tsv files, as spreadsheets and databases write them.

The header alone says how the file is cut: what it holds is public.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shuffle_sim.data import files
from shuffle_sim.data.columns import BLANKS, Marks
from shuffle_sim.errors import ParameterError

DELIMITERS = (",", ";", "\t", "|")
_HEADER_BYTES = 1 << 20  # bytes of a header


def read_text(path: Path, delimiter: str | None, marks: Marks, texts: Iterable[str] = ()) -> Any:
    """An Arrow table of a .csv or .tsv file.

    Names are stripped; where one comes twice the next is NAME.2, and an empty one `column 3`.

    Args:
        path: of UTF-8 text, with a line of names first.
        delimiter: between cells; None: that of the header which is there most often.
        marks: how numbers are written.
        texts: columns that are not taken as numbers.

    Raises:
        ValueError: it is no such file, and what would do.
        ParameterError: it cannot be read, or is larger than what is allowed.
    """
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions

    names, mark, skipped = header(path, delimiter)
    if marks.decimal == mark:
        raise ValueError(f"its cells are cut at {mark!r}, the decimal mark: give --delimiter")
    options = ConvertOptions(
        null_values=list(BLANKS),
        decimal_point=marks.decimal,
        column_types=dict.fromkeys(texts, pa.string()),
    )
    # A blank line is a blank cell where there is one column.
    parse = ParseOptions(delimiter=mark, newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    try:
        return files.read_csv(
            path, ReadOptions(column_names=names, skip_rows=skipped), parse, options
        )
    except ValueError as error:
        if "UTF8" in str(error):
            raise ValueError("not UTF-8: save it as UTF-8 text") from error
        raise


def header(path: Path, delimiter: str | None) -> tuple[list[str], str, int]:
    """(names, delimiter, lines before the first row) of a .csv or .tsv file.

    Raises:
        ValueError: there is no line of names, or it is no UTF-8 text.
    """
    with files.opened(path) as stream:
        lines = [stream.readline(_HEADER_BYTES), stream.readline(_HEADER_BYTES)]
    if lines[0][:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in lines[0]:
        raise ValueError("not UTF-8: save it as UTF-8 text")
    try:
        first, second = (line.decode("utf-8-sig").rstrip("\r\n") for line in lines)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8: save it as UTF-8 text") from error
    skipped = 1
    if first.lower().startswith("sep=") and len(first) == 5:  # a spreadsheet's own line
        first, delimiter, skipped = second, delimiter or first[4], 2
    if not first.strip():
        raise ValueError("its first line is empty: it must hold the columns' names")
    if first.count('"') % 2:
        raise ValueError("a name in its first line does not end there: write each on one line")
    if delimiter is None:
        delimiter = "\t" if path.suffix == ".tsv" else _commonest(first)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ParameterError("delimiter", delimiter, "one character, such as ; or a tab")
    try:
        names = next(csv.reader(io.StringIO(first), delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(f"its first line is none of names ({error})") from error
    files.check_columns(len(names))
    # 0, 1, 2, ... is what libraries write for columns without names.
    if all(_number(name) for name in names) and names != [str(at) for at in range(len(names))]:
        raise ValueError("its first line holds numbers: write the columns' names above it")
    return unlike(names), delimiter, skipped


def unlike(names: Sequence[str]) -> list[str]:
    """Names without blanks around them, all different."""
    found: list[str] = []
    taken = {name.strip() for name in names}
    for place, each in enumerate(names, 1):
        name = base = each.strip() or f"column {place}"
        count = 1
        # A name.2 that stands in the file is not taken away from its column.
        while name in found or (count > 1 and name in taken):
            count += 1
            name = f"{base}.{count}"
        found.append(name)
    return found


def _commonest(line: str) -> str:
    """The delimiter that is there most often outside quotes; a comma where there is none."""
    # Every other piece lies between quotes.
    bare = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=lambda each: (bare.count(each), -DELIMITERS.index(each)))


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
