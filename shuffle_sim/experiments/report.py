"""One page about the studies of a store: interactive pictures, tables, and how to repeat it.

The page is a single file that needs no network. Its pictures are drawn by Vega-Lite, which is
copied into it; pickers and filters are Vega-Lite's own.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Literal

from shuffle_sim.errors import ParameterError
from shuffle_sim.experiments.store import Kept
from shuffle_sim.experiments.summary import Group, described, groups_of, said, varied
from shuffle_sim.experiments.trial import RUN_COLUMNS

_ERRORS = ("rmse", "held_out_loss", "mean_absolute_error", "accuracy")
_MOST_ROWS = 500  # of the table; the export holds all
_MOST_VALUES = 40  # of a parameter that can be filtered by
_ANY = "all"
_COLOUR = "#888"  # of texts in pictures: readable on light and on dark
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --mark: #b45309; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.picture { width: 100%; } .scroll { overflow-x: auto; }
.vega-embed { width: 100%; padding-right: 0 !important; }
.vega-bindings { display: flex; flex-wrap: wrap; gap: .5rem 1rem; margin-top: .5rem; }
.vega-bind-name { margin-right: .4rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child, .text { text-align: left; }
.view { color: var(--mark); } pre { overflow-x: auto; font-size: .8rem; }
"""


def report(rows: Sequence[Kept], title: str = "Studies") -> str:
    """The page, as HTML.

    Args:
        rows: points of one store.
        title: of the page.

    Raises:
        ParameterError: nothing is to be shown, or the extra `report` is not installed.
    """
    groups = groups_of(rows)
    if not any(each.ran for each in groups):
        raise ParameterError("store", title, "one with a point that ran: there is nothing to show")
    try:
        import vl_convert
    except ImportError as error:
        allowed = "used where the extra is installed: pip install shuffle-sim[report]"
        raise ParameterError("report", title, allowed) from error
    studies: dict[str, list[Group]] = {}
    for each in groups:
        studies.setdefault(each.study, []).append(each)
    sections, specs = list[str](), dict[str, Mapping[str, Any]]()
    for number, (name, members) in enumerate(studies.items()):
        ran_with = dict.fromkeys(
            ", ".join(f"{each} {number}" for each, number in kept.versions.items())
            for kept in rows
            if kept.study == name
        )
        sections.append(_section(name, members, ran_with, f"study-{number}", specs))
    points = f"{len(rows):,} points of {len(studies)} stud{'y' if len(studies) == 1 else 'ies'}"
    failed = sum(each.row is None for each in rows)
    points += f"; {failed:,} failed" if failed else ""
    # "</script" in a text of the study would end the script.
    data = json.dumps(specs, allow_nan=False).replace("<", "\\u003c")
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    shown = (
        "for (const [id, spec] of Object.entries(SPECS)) "
        "vegaEmbed('#' + id, spec, {actions: false, renderer: 'svg'});"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{points}. Bars are two standard errors over repetitions. "
        '<span class="view">Columns in this colour are the simulator\'s view: epsilon does not '
        "cover them.</span></p>\n"
        + "\n".join(sections)
        + f'\n<script type="module">{bundle}\nconst SPECS = {data};\n{shown}</script>\n'
        "</body>\n</html>\n"
    )


def _section(
    name: str,
    groups: Sequence[Group],
    versions: Iterable[str],
    mark: str,
    specs: dict[str, Mapping[str, Any]],
) -> str:
    """A study: pictures, the table, and what failed."""
    parts = [f"<h2>{escape(name)}</h2>"]
    ran = [each for each in groups if each.ran]
    if ran:
        specs[mark] = _picture(ran)
        parts.append(f'<div class="picture" id="{mark}"></div>')
        parts.append(_table(ran))
    names = varied(groups)
    failed = [
        f"{described(each, names) or 'the point'}: {'; '.join(each.reasons)}"
        for each in groups
        if each.reasons
    ]
    if failed:
        listed = "".join(f"<li>{escape(each)}</li>" for each in failed[:_MOST_ROWS])
        parts.append(f"<h3>Failed</h3><ul>{listed}</ul>")
    keys = dict.fromkeys(key for each in groups for key in each.parameters)
    lines = [f"{key} = {_values(groups, key)}" for key in keys]
    again = escape("\n".join([*lines, "", *versions]))
    parts.append(f"<details><summary>To repeat it</summary><pre>{again}</pre></details>")
    return "\n".join(parts)


def _values(groups: Sequence[Group], key: str) -> str:
    found = dict.fromkeys(json.dumps(each.parameters.get(key)) for each in groups)
    return f"[{', '.join(found)}]"


def _table(groups: Sequence[Group]) -> str:
    """The groups; what the simulator alone knows is marked."""
    parameters = varied(groups)
    measured = list(dict.fromkeys(name for each in groups for name in each.mean))
    constant = {
        name for name in measured if len({each.mean.get(name) for each in groups}) == 1
    } - set(_ERRORS)
    shown = sorted(
        (each for each in measured if each not in constant), key=RUN_COLUMNS.__contains__
    )
    head = "".join(f'<th class="text">{escape(name)}</th>' for name in parameters)
    head += "<th>repeats</th>" + "".join(f"<th{_class(name)}>{escape(name)}</th>" for name in shown)
    body = []
    for each in groups[:_MOST_ROWS]:
        cells = "".join(f'<td class="text">{escape(said(each, name))}</td>' for name in parameters)
        cells += f"<td>{each.ran}</td>" + "".join(
            f"<td{_class(name)}>{_number(each, name)}</td>" for name in shown
        )
        body.append(f"<tr>{cells}</tr>")
    more = len(groups) - _MOST_ROWS
    note = f"<p>{more:,} more rows are in the export.</p>" if more > 0 else ""
    same = ", ".join(f"{name} {_number(groups[0], name)}" for name in measured if name in constant)
    common = f"<p>The same everywhere: {escape(same)}.</p>" if same else ""
    return (
        '<details open><summary>Table</summary><div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f"{note}{common}</details>"
    )


def _class(name: str) -> str:
    return "" if name in RUN_COLUMNS else ' class="view"'


def _number(group: Group, name: str) -> str:
    if name not in group.mean:
        return ""
    error = group.error[name]
    return f"{group.mean[name]:,.5g}" + (f" &plusmn; {error:.2g}" if error else "")


def _picture(groups: Sequence[Group]) -> Mapping[str, Any]:
    """Any column against any other, with bars; coloured and filtered by parameters."""
    import altair as alt

    parameters = varied(groups)
    columns = list(dict.fromkeys(name for each in groups for name in each.mean))
    numbers = [
        name
        for name in parameters
        if all(type(each.parameters.get(name)) in (int, float) for each in groups)
    ]
    alive = [name for name in columns if len({each.mean.get(name) for each in groups}) > 1]
    axes = list(dict.fromkeys([*numbers, *(alive or columns)]))
    names = [name for name in parameters if name not in numbers] or parameters
    y = next((name for name in _ERRORS if name in columns), axes[-1])
    x = next(iter(numbers), axes[0])
    pickers = {
        "Across": alt.param(
            "across", value=x, bind=alt.binding_select(options=axes, name="Across")
        ),
        "Up": alt.param("up", value=y, bind=alt.binding_select(options=axes, name="Up")),
        "Colour": alt.param(
            "colour",
            value=names[0] if names else _ANY,
            bind=alt.binding_select(options=[*parameters, _ANY], name="Colour"),
        ),
    }
    filters = {}
    for number, name in enumerate(parameters):
        values = list(dict.fromkeys(said(each, name) for each in groups))
        if 1 < len(values) <= _MOST_VALUES:
            bound = alt.binding_select(options=[_ANY, *values], name=name)
            filters[name] = alt.param(f"filter_{number}", value=_ANY, bind=bound)
    rows = [
        {
            **{name: said(each, name) for name in parameters},
            "values": {
                **{name: each.mean[name] for name in axes if name in each.mean},
                **{name: each.parameters[name] for name in numbers},
            },
            "bars": {
                name: each.error[name]
                for name in axes
                if each.error.get(name) and name not in numbers
            },
            "about": described(each, parameters) or "the point",
        }
        for each in groups
    ]
    base = alt.Chart(alt.InlineData(values=rows)).transform_calculate(
        x="datum.values[across]",
        y="datum.values[up]",
        low="datum.values[up] - 2 * (datum.bars[up] || 0)",
        high="datum.values[up] + 2 * (datum.bars[up] || 0)",
        group=f"colour === '{_ANY}' ? '{_ANY}' : datum[colour]",
    )
    for name, filtered in filters.items():
        wanted = f"{filtered.name} === '{_ANY}' || datum[{json.dumps(name)}] === {filtered.name}"
        base = base.transform_filter(wanted)
    base = base.transform_filter("isValid(datum.x) && isValid(datum.y)")
    across = alt.X("x:Q", title=None, scale=alt.Scale(zero=False, type=_scale(groups, x)))
    colour = alt.Color("group:N", title=None, legend=alt.Legend(orient="top", columns=2))
    points = base.mark_point(filled=True, size=60).encode(
        across,
        alt.Y("y:Q", title=None, scale=alt.Scale(zero=False, type=_scale(groups, y))),
        colour,
        tooltip=[
            alt.Tooltip("about:N", title="point"),
            alt.Tooltip("x:Q", format=",.5~g"),
            alt.Tooltip("y:Q", format=",.5~g"),
        ],
    )
    bars = base.mark_rule(clip=True).encode(
        across, alt.Y("low:Q", title=None), alt.Y2("high:Q"), colour
    )
    title = alt.TitleParams(f"{y} against {x}", anchor="start")
    chart = (
        alt.layer(bars, points)
        .add_params(*pickers.values(), *filters.values())
        .properties(width="container", height=340, title=title, background="transparent")
        .configure_axis(labelColor=_COLOUR, gridColor=_COLOUR, gridOpacity=0.2, titleColor=_COLOUR)
        .configure_legend(labelColor=_COLOUR, labelLimit=0)
        .configure_title(color=_COLOUR, fontSize=15)
        .configure_view(stroke=None)
    )
    made: dict[str, Any] = chart.to_dict()
    made["title"]["text"] = {"expr": "up + ' against ' + across"}
    return made


def _scale(groups: Sequence[Group], name: str) -> Literal["log", "linear"]:
    """Logarithmic where all values are above zero and span a factor of 30."""
    values = [
        each.mean[name] if name in each.mean else each.parameters.get(name) for each in groups
    ]
    found = [float(each) for each in values if isinstance(each, int | float)]
    return "log" if found and min(found) > 0 and max(found) > 30 * min(found) else "linear"
