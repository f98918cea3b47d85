"""`shuffle-sim experiment`: studies from a file, the store that keeps them, and their report."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffle_sim.cli import show
from shuffle_sim.cli.options import HostOptions, option, same
from shuffle_sim.cli.running import Bar
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.experiments import Kept, Store, table_of
from shuffle_sim.experiments.report import report
from shuffle_sim.experiments.study import read
from shuffle_sim.experiments.summary import Group, described, groups_of, said, varied
from shuffle_sim.experiments.trial import RUN_COLUMNS, Outcome

_SHOWN = 40  # rows for people; exports and JSON hold all

StoreFile = Annotated[Path, typer.Argument(help="The store: a file that `experiment run` writes.")]
Study = Annotated[str | None, typer.Option(help="One study of the store; by default all.")]


@dataclass(frozen=True)
class Points:
    """Points of a store, as rows of a table; `study` where one is asked for."""

    store: str
    study: str | None
    points: list[dict[str, Any]]


@dataclass(frozen=True)
class Studies:
    """The studies of a store, with how many points are done and failed."""

    store: str
    studies: list[dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """How many points two stores have, and those in which they differ."""

    points: int
    differ: list[dict[str, str]]


@dataclass(frozen=True)
class Places:
    """Where points run, and where they are kept."""

    store: Path | None = option(
        None, "File that keeps every point; by default the study's name with .sqlite."
    )
    pool: str = option(
        "processes", "Where points run: processes of this machine, ray or inprocess.", "--runtime"
    )
    workers: int | None = option(None, "Points at a time; by default one for each core.")
    address: str | None = same(HostOptions, "address")


def run_command(
    study: Annotated[Path, typer.Argument(help="A .toml file: task, grid and seeds.")],
    places: Places,
    output: show.Output,
) -> None:
    """Run the points of a study that its store does not hold yet; a kill loses none that ended.

    Example: shuffle-sim experiment run study.toml --workers 2
    """
    asked = read(study)
    file = study.with_suffix(".sqlite") if places.store is None else places.store
    with closing(Store.open(file)) as store, Bar(asked.name, len(asked.points)) as bar:
        slowest = 0.0

        def told(ended: int, of: int, outcome: Outcome) -> None:
            nonlocal slowest
            slowest = max(slowest, outcome.seconds)
            bar.step(ended, f"points; slowest {slowest:.1f} s")

        try:
            rows = asked.run(
                store,
                runtime=places.pool,
                workers=places.workers,
                address=places.address,
                on_point=told,
            )
        except KeyboardInterrupt as stopped:
            stopped.add_note("points that ended are kept; the same command goes on with the others")
            raise
    output.present(Points(str(file), asked.name, _plain(rows)), lambda _: _show(rows))
    failed = sum(each.row is None for each in rows)
    if not output.json:
        page, made = ["shuffle-sim", "experiment", "report", str(file)], file.with_suffix(".html")
        lines = f"Store    {file}"
        if failed < len(rows):
            lines += f"\nNext     {shlex.join([*page, '--out', str(made)])}"
        show.notes.print(lines, soft_wrap=True, markup=False)  # what can be pasted stays whole
    if failed:
        kept = "; the others are kept" * (failed < len(rows))
        raise ShuffleSimError(f"{failed} of {len(rows)} points failed{kept}")


def list_command(store: StoreFile, output: show.Output) -> None:
    """List the studies of a store.

    Example: shuffle-sim experiment list study.sqlite
    """
    rows = _kept(store)
    counts = Counter((each.study, each.code, each.row is not None) for each in rows)
    studies = [
        {
            "study": study,
            "code": code,
            "done": counts[study, code, True],
            "failed": counts[study, code, False],
        }
        for study, code in dict.fromkeys((each.study, each.code) for each in rows)
    ]
    columns = ("study", "code", "done", "failed")
    cells = ([str(each[name]) for name in columns] for each in studies)
    found = Studies(str(store), studies)
    output.present(found, lambda _: show.print_table(columns, cells, texts=2))


def show_command(store: StoreFile, output: show.Output, study: Study = None) -> None:
    """Show what was measured: means and standard errors over repetitions.

    Example: shuffle-sim experiment show study.sqlite
    """
    rows = _kept(store, study)
    output.present(Points(str(store), study, _plain(rows)), lambda _: _show(rows))


def diff_command(
    store: StoreFile,
    other: Annotated[Path, typer.Argument(help="Another store.")],
    output: show.Output,
) -> None:
    """Compare two stores point by point; exit code 1 where a row differs or is in one alone.

    Example: shuffle-sim experiment diff before.sqlite after.sqlite
    """
    first, second = (
        {(each.study, each.point.content): each for each in _kept(path)} for path in (store, other)
    )
    found = []
    for key in sorted({*first, *second}):
        one, two = first.get(key), second.get(key)
        if one is None or two is None:
            what = f"only in {other if one is None else store}"
        elif one.row != two.row:
            left, right = one.row or {"reason": one.reason}, two.row or {"reason": two.reason}
            names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
            what = "; ".join(f"{each}: {left.get(each)} | {right.get(each)}" for each in names)
        else:
            continue
        found.append({"study": key[0], "point": key[1], "differs": what})

    def lines(summary: Difference) -> None:
        for each in found[:_SHOWN]:
            print(f"{each['study']} {each['point']}: {each['differs']}")
        print(f"{len(found)} of {summary.points} points differ")

    output.present(Difference(len({*first, *second}), found), lines)
    if found:
        raise typer.Exit(1)


def export_command(
    store: StoreFile,
    out: Path = option(..., "File to be written: .parquet or .csv."),
    study: Study = None,
) -> None:
    """Write all points as a table.

    Example: shuffle-sim experiment export study.sqlite --out points.parquet
    """
    from pyarrow import csv, parquet

    show.check_path("out", out, (".parquet", ".csv"))
    table = table_of(_kept(store, study))
    with show.whole("out", out) as part:
        (parquet.write_table if out.suffix == ".parquet" else csv.write_csv)(table, part)
    print(f"{table.num_rows} points: {out}")


def report_command(
    store: StoreFile,
    out: Path = option(..., "File to be written: .html."),
    study: Study = None,
) -> None:
    """Write one page that needs no network: pictures with filters, tables, and how to repeat it.

    Example: shuffle-sim experiment report study.sqlite --out report.html
    """
    show.check_path("out", out, (".html",))
    page = report(_kept(store, study), title=store.stem)
    with show.whole("out", out) as part:
        part.write_text(page, encoding="utf-8")
    print(f"Report: {out}")


def _kept(path: Path, study: str | None = None) -> list[Kept]:
    with closing(Store.open(path, create=False)) as store:
        rows = list(store.all(study))
    if study is not None and not rows:
        raise ParameterError("study", study, "one of the store: see `experiment list`")
    return rows


def _plain(rows: Sequence[Kept]) -> list[dict[str, Any]]:
    return table_of(rows).to_pylist() if rows else []


def _show(rows: Sequence[Kept]) -> None:
    groups = groups_of(rows)
    names = varied(groups)
    shown = [each for each in groups if each.ran]
    measured = list(dict.fromkeys(name for each in shown for name in each.mean))
    wanted = [name for name in measured if name not in RUN_COLUMNS]
    run = ("epsilon", "measured_epsilon", "payload_bits_per_user")
    wanted += [name for name in run if name in measured]
    columns = [name for name in wanted if len({each.mean.get(name) for each in shown}) > 1]
    studies = ["study"] if len({each.study for each in groups}) > 1 else []
    if shown:
        show.print_table(
            (*studies, *(each.replace("_", " ") for each in (*names, "repeats", *columns))),
            (
                (
                    *(each.study for _ in studies),
                    *(said(each, name) for name in names),
                    str(each.ran),
                    *(_cell(each, name) for name in columns),
                )
                for each in shown[:_SHOWN]
            ),
            texts=len(studies) + len(names),
        )
    if len(shown) > _SHOWN:
        print(f"{len(shown) - _SHOWN} more rows: experiment export writes all")
    reasons: dict[str, list[Group]] = {}
    for each in groups:
        for reason in each.reasons:
            reasons.setdefault(reason, []).append(each)
    for reason, members in reasons.items():
        first = described(members[0], names)
        where = f" (first at {first})" if first else ""
        show.print_fact("Failed", f"{show.plural(len(members), 'combination')}: {reason}{where}")


def _cell(group: Group, name: str) -> str:
    if name not in group.mean:
        return ""
    error = group.error[name]
    return show.number(group.mean[name]) + (f" ± {error:.2g}" if error else "")


COMMANDS: dict[str, Callable[..., None]] = {
    "run": run_command,
    "list": list_command,
    "show": show_command,
    "diff": diff_command,
    "export": export_command,
    "report": report_command,
}
