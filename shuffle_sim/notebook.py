"""Values as tables in notebooks."""

from collections.abc import Iterable, Mapping
from html import escape


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
