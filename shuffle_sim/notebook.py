"""Tables: values in notebooks, and names that leave numbers their room in a terminal."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from textwrap import fill


def html_table(facts: Mapping[str, object]) -> str:
    """Names and what they are, a row each; what is empty is left out."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(fact))}</td></tr>'
        for name, fact in facts.items()
        if str(fact)
    )
    return f"<table>{rows}</table>"


def html_rows(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows under heads."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(each))}</td>' for each in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def narrowed(rows: Iterable[Iterable[str]], texts: int, room: int) -> list[list[str]]:
    """Cells whose first `texts` columns break at blanks and hyphens, until a row takes `room`.

    The widest column gives way first. No word is cut: then the rows stay wider.
    """
    cells = [[*row] for row in rows]
    columns = [*zip(*cells, strict=True)]
    pieces = [re.split(r"(?<=-)|\s", "\n".join(column)) for column in columns[:texts]]
    least = [max(map(len, each)) for each in pieces]
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    while sum(widths) + 2 * (len(widths) - 1) > room:
        given = [at for at in range(len(least)) if widths[at] > least[at]]
        if not given:
            break
        widths[max(given, key=widths.__getitem__)] -= 1
    for row in cells:
        row[:texts] = (
            fill(cell, width, break_long_words=False)
            for cell, width in zip(row[:texts], widths, strict=False)
        )
    return cells
