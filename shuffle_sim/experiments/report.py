"""One page about the studies of a store: interactive pictures, tables, and how to repeat it.

The page is a single file that needs no network. Its pictures are drawn by Vega-Lite, which is
copied into it; pickers and filters are Vega-Lite's own.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

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
:root { color-scheme: light dark; --line: #8885; --mark: light-dark(#b45309, #fbbf24); }
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
    # What is the same everywhere is said once, below; errors are always shown.
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
    # An axis on which nothing differs shows nothing.
    alive = [name for name in columns if len({each.mean.get(name) for each in groups}) > 1]
    axes = list(dict.fromkeys([*numbers, *(alive or columns)]))
    x, y = next(iter(numbers), axes[0]), next((e for e in _ERRORS if e in columns), axes[-1])
    # Colours part what is no number; numbers are better seen across.
    names = [name for name in parameters if name not in numbers] or [*parameters, _ANY]

    def menu(param: str, value: str, among: Sequence[str], title: str = "") -> alt.Parameter:
        bound = alt.binding_select(options=list(among), name=title or param.title())
        return alt.param(param, value=value, bind=bound)

    def tick(param: str, name: str, title: str) -> alt.Parameter:
        return alt.param(param, value=_wide(groups, name), bind=alt.binding_checkbox(name=title))

    pickers = [menu("across", x, axes), menu("up", y, axes)]
    pickers += [menu("colour", names[0], [*parameters, _ANY])]
    pickers += [tick("log_x", x, "Log across"), tick("log_y", y, "Log up")]
    filters = {}
    for number, name in enumerate(parameters):
        values = list(dict.fromkeys(said(each, name) for each in groups))
        if 1 < len(values) <= _MOST_VALUES:
            filters[name] = menu(f"filter_{number}", _ANY, [_ANY, *values], name)
    rows = [_drawn(each, parameters, numbers, axes) for each in groups]
    base = alt.Chart(alt.InlineData(values=rows)).transform_calculate(
        group=f"colour === '{_ANY}' ? '{_ANY}' : datum[colour]",
        across_value="datum.values[across]",
        up_value="datum.values[up]",
        bar="2 * (datum.bars[up] || 0)",
    )
    base = base.transform_calculate(
        x=_placed("datum.across_value", "log_x"),
        y=_placed("datum.up_value", "log_y"),
        # On a logarithmic axis a bar that reaches zero would have no end.
        low=_placed(
            "max(datum.up_value - datum.bar, log_y ? datum.up_value / 1e3 : -1e300)", "log_y"
        ),
        high=_placed("datum.up_value + datum.bar", "log_y"),
    )
    for name, chosen in filters.items():
        wanted = f"{chosen.name} === '{_ANY}' || datum[{json.dumps(name)}] === {chosen.name}"
        base = base.transform_filter(wanted)
    base = base.transform_filter("isValid(datum.x) && isValid(datum.y)")
    chart = alt.layer(*_layers(base)).add_params(*pickers, *filters.values())
    made: dict[str, Any] = (
        chart.properties(width="container", height=340, background="transparent")
        .properties(title=alt.TitleParams(f"{y} against {x}", anchor="start"))
        .configure_axis(labelColor=_COLOUR, gridColor=_COLOUR, gridOpacity=0.2, titleColor=_COLOUR)
        .configure_legend(labelColor=_COLOUR, labelLimit=0)
        .configure_title(color=_COLOUR, fontSize=15)
        .configure_view(stroke=None)
        .to_dict()
    )
    made["title"]["text"] = {"expr": "up + ' against ' + across"}
    return made


def _drawn(
    group: Group, parameters: Sequence[str], numbers: Sequence[str], axes: Sequence[str]
) -> dict[str, Any]:
    """A point of the picture: what may be across, up, a colour or a filter."""
    measured = [name for name in axes if name not in numbers]
    return {
        **{name: said(group, name) for name in parameters},
        "values": {
            **{name: group.mean[name] for name in measured if name in group.mean},
            **{name: group.parameters[name] for name in numbers},
        },
        "bars": {name: group.error[name] for name in measured if group.error.get(name)},
        "about": described(group, parameters) or "the point",
    }


def _placed(value: str, logarithmic: str) -> str:
    """Where a value is drawn: a scale's type is fixed, so that logarithms are taken here."""
    return f"{logarithmic} ? ({value} > 0 ? log({value}) / LN10 : null) : {value}"


def _layers(base: Any) -> tuple[Any, Any]:
    """Bars, and points with what they are."""
    import altair as alt

    def axis(logarithmic: str) -> Any:
        shown = f"{logarithmic} ? format(pow(10, datum.value), '.3~g') : datum.label"
        return alt.Axis(title=None, labelExpr=shown)

    x = alt.X("x:Q", axis=axis("log_x"), scale=alt.Scale(zero=False, padding=16))
    colour = alt.Color("group:N", title=None, legend=alt.Legend(orient="top", columns=2))
    told = [
        alt.Tooltip("about:N", title="point"),
        alt.Tooltip("across_value:Q", title="x", format=",.5~g"),
        alt.Tooltip("up_value:Q", title="y", format=",.5~g"),
    ]
    scale = alt.Scale(zero=False)
    y = alt.Y("y:Q", axis=axis("log_y"), scale=scale)
    points = base.mark_point(filled=True, size=60).encode(x, y, colour, tooltip=told)
    low = alt.Y("low:Q", axis=axis("log_y"), scale=scale)
    return base.mark_rule(clip=True).encode(x, low, alt.Y2("high:Q"), colour), points


def _wide(groups: Sequence[Group], name: str) -> bool:
    """Whether all values are above zero and span a factor of 30: a logarithmic axis shows more."""
    values = [
        each.mean[name] if name in each.mean else each.parameters.get(name) for each in groups
    ]
    found = [float(each) for each in values if isinstance(each, int | float)]
    return bool(found) and min(found) > 0 and max(found) > 30 * min(found)
