"""How much commands print, what their JSON is, and that nobody who leaves early loses a file."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from shuffle_sim import ParameterError
from shuffle_sim.cli.app import SUMMARIES, app, main, schema
from shuffle_sim.cli.show import dress, new_figure

ONE = "sum --file people.csv --columns age --bounds age=0:100 --epsilon 1 --delta 1e-3 --seed 1"
CHEAP = {
    "sum": ONE,
    "sum --by": "sum --file people.csv --columns age --by team --bounds 0:9 --categories team=a,b",
    "histogram": "histogram --file people.csv --column team --categories team=a,b --seed 1",
    "quantiles": "quantiles --file people.csv --column age --bounds age=0:100 --leaves 16",
    "train": "train --table breast-cancer --rounds 2 --epsilon 4 --seed 1",
    "plan": "plan --n 1000",
    "cost": "cost --n 1000 --d 3",
    "amplify": "amplify --epsilon0 2 --n 10000",
    "budget": "budget create year --population people --n 1000 --epsilon 1",
    "attack": "attack --n 60 --repeats 1000 --fraction 1",
}


@pytest.fixture
def said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 + each % 60},{'ab'[each % 2]}\n" for each in range(300))
    Path("people.csv").write_text(f"age,team\n{rows}")

    def command(line):
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, done.output
        return done.output

    return command


@pytest.mark.parametrize("name", ["sum", "histogram", "plan", "amplify"])
@pytest.mark.full
def test_less_and_more_are_asked_for(said, name):
    quiet, usual, verbose = (
        set(said(CHEAP[name] + how).splitlines()) for how in (" -q", "", " -v")
    )
    assert quiet <= usual < verbose
    assert quiet < usual or name == "amplify"  # which is a result alone
    assert any("by " in each for each in verbose - usual)
    assert not any(word in " ".join(usual) for word in ("by spline", "Theorem 3.2", "(docs:"))


def test_a_sum_says_its_result_first_and_in_few_lines(said):
    lines = said(ONE).splitlines()
    assert lines[0].startswith("column mean")
    assert lines[1].startswith("age")
    assert len(lines) <= 16
    assert len(said(f"{ONE} --quiet").splitlines()) == 2


def test_under_attack_the_interval_says_that_it_does_not_hold(said):
    for attack in ("sign-flip:fraction=0.1", "dropout:rate=0.5"):
        for how in ("", " --quiet"):
            told = said(f"{ONE} --attack {attack}{how}")
            assert "no interval holds" in " ".join(told.split())
            assert "95" not in told
    assert "no interval" not in said(ONE)


def test_a_warning_is_said_to_those_who_ask_for_less(said):
    assert "warning" in said("sum --file people.csv --columns age --bounds 0:100 --delta 0.1 -q")


def test_less_and_more_together_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["shuffle-sim", *shlex.split("plan --n 1000 -q -v")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", CHEAP)
@pytest.mark.full
def test_json_is_as_its_schema_says(said, name):
    command, found = name.split(" --")[0], json.loads(said(f"{CHEAP[name]} --json"))
    jsonschema.validate(found, schema(command))
    if len(SUMMARIES[command]) == 1:
        for key in schema(command)["required"]:
            without = {each: value for each, value in found.items() if each != key}
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(without, schema(command))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found | {"unheard_of": 1}, schema(command))


def test_a_file_that_cannot_be_written_is_refused_before_anybody_is_asked(said, monkeypatch):
    said(ONE)  # as it is
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(ParameterError, match="in a folder that can be written"):
        CliRunner().invoke(app, shlex.split(f"{ONE} --plot a.png"), catch_exceptions=False)


def test_every_command_with_json_has_a_schema():
    from typer.main import get_command

    def walked(group, before=""):
        for name, each in group.commands.items():
            if hasattr(each, "commands"):
                yield from walked(each, f"{before}{name} ")
            elif any("--json" in option.opts for option in each.params):
                yield before + name

    assert set(walked(get_command(app))) == set(SUMMARIES)
    done = CliRunner().invoke(app, ["--json-schema", "plan"])
    assert json.loads(done.output) == schema("plan")


def test_what_is_announced_is_counted_and_measured(said):
    found = json.loads(said(f"{ONE} --json"))
    asked = json.loads(said("cost --n 300 --d 1 --epsilon 1 --delta 1e-3 --json"))
    run = json.loads(said("sum --table wine --epsilon 1 --delta 1e-5 --seed 1 --json"))
    same = json.loads(said("cost --n 178 --d 13 --epsilon 1 --delta 1e-5 --json"))
    assert run["ahead"]["bytes"] == sum(same["wire_bytes"].values())
    moved = ("wire_bytes", "routed_bytes", "view_bytes", "broadcast_bytes")
    assert run["costs"]["measured"]
    assert sum(run["costs"][each] for each in moved) == run["ahead"]["bytes"]
    assert found["ahead"]["bytes"] > 0 < sum(asked["wire_bytes"].values())


@pytest.mark.full
def test_who_leaves_early_loses_no_file(tmp_path):
    command = f"{Path(sys.executable).parent / 'shuffle-sim'} amplify --epsilon0 2 --n 10000"
    line = f"{command} --plot a.png | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.split() in (["141"], ["0"])  # 0: all was written before the reader left
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


def test_a_picture_is_there_before_anything_is_printed(said, monkeypatch):
    def gone(*_):
        raise BrokenPipeError

    monkeypatch.setattr("shuffle_sim.cli.show.print_warnings", gone)
    done = CliRunner().invoke(app, shlex.split("amplify --epsilon0 2 --n 10000 --plot a.png"))
    assert isinstance(done.exception, BrokenPipeError)
    assert Path("a.png").stat().st_size > 1000


@pytest.mark.parametrize(("to", "code", "told"), [(">/dev/full", 1, 1), (">&-", 0, 0)])
@pytest.mark.full
def test_a_full_or_closed_output_is_no_traceback(to, code, told):
    command = f"{Path(sys.executable).parent / 'shuffle-sim'} amplify --epsilon0 2 --n 10000 {to}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, told), done.stderr


@pytest.mark.parametrize(
    "line",
    [
        f"{ONE} --plot a.png",
        pytest.param(
            "train --table breast-cancer --trust central --model-out m.json -q --seed 1",
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_was_paid_for_is_told_where_a_file_is_not_written(said, monkeypatch, line):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    done = CliRunner().invoke(app, shlex.split(line))
    assert "No space left" in str(done.exception)
    assert "column mean" in done.output or "best constant" in done.output
    assert [each.name for each in Path().iterdir()] == ["people.csv"]


def test_thousands_are_apart_and_names_are_kept():
    figure = new_figure(4, 3)
    axes = figure.subplots()
    axes.barh([0, 1], [2_000, 1_500_000])
    axes.set_yticks([0, 1], ["first", "second"])
    dress(axes, "found", "users")
    figure.draw_without_rendering()
    assert [each.get_text() for each in axes.get_yticklabels()] == ["first", "second"]
    assert "1,000,000" in [each.get_text() for each in axes.get_xticklabels()]
    axes.set_xscale("log")
    dress(axes, "found", "users")
    figure.draw_without_rendering()
    assert {"1", "10,000"} & {each.get_text() for each in axes.get_xticklabels()}
    axes.set_xlim(1_000, 2e7)
    figure.draw_without_rendering()
    shown = {each.get_text() for each in axes.get_xticklabels()}
    assert {"1e5", "1e7"} <= shown  # one form on one axis
    assert not any("," in each for each in shown)
