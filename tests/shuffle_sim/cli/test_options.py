"""Options are declared once, in groups; commands take groups as values."""

import inspect
import json
from dataclasses import dataclass, fields

import pytest
import typer
from typer.testing import CliRunner

from shuffle_sim import Execution, ParameterError
from shuffle_sim.cli.app import _COMMANDS, app, flat
from shuffle_sim.cli.options import SumOptions, option
from shuffle_sim.execution.options import SEALING_SECONDS

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
RUNS = "sum", "train"


def options(name):
    return {each.name: each for each in COMMANDS[name].params if each.opts[0].startswith("--")}


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_command_takes_few_values(name):
    assert len(inspect.signature(_COMMANDS[name]).parameters) <= 20


@pytest.mark.parametrize("name", RUNS)
def test_what_execution_lets_set_is_an_option_of_every_run(name):
    assert {"block_size", "kernel", "placement", "sealing_seconds", "generator"} == set(
        Execution.options()
    )
    for field, text in Execution.options().items():
        found = options(name)[field]
        assert found.opts == [f"--{field.replace('_', '-')}"]
        assert found.default == getattr(Execution(), field)
        assert found.help == text


def test_an_option_is_the_same_in_every_command():
    """Those of groups; n, d, rounds, bits, workers and repeats have words of their own."""
    own = {"users", "dimensions", "rounds", "batch", "protocol", "mechanism", "repeats", "label"}
    own |= {"loss", "file", "out", "help", "workers", "bits"}
    seen: dict[str, tuple[object, ...]] = {}
    for name in COMMANDS:
        for key, each in options(name).items():
            if key not in own:
                what = each.opts, each.help, each.is_flag, each.multiple
                assert seen.setdefault(key, what) == what, (name, key)
    assert len(seen) > 50


def test_options_of_execution_reach_the_run_and_its_json():
    words = ["sum", "--table", "wine", "--seed", "1", "--block-size", "7", "--kernel", "numpy"]
    done = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(done.stdout)
    assert (found["execution"]["block_size"], found["execution"]["kernel"]) == (7, "numpy")
    other = json.loads(CliRunner().invoke(app, [*words[:5], "--json"]).stdout)
    assert other["execution"]["sealing_seconds"] == SEALING_SECONDS
    assert other["private"] != found["private"]  # other blocks, other streams
    bad = CliRunner().invoke(app, [*words[:5], "--kernel", "fortran"])
    assert "one of numpy, compiled" in str(bad.exception)


def test_a_value_that_equals_another_option_s_default_is_given():
    assert SumOptions(max_bits=1, noise_ratio=1.0).given == {"max_bits": 1, "noise_ratio": 1.0}
    assert SumOptions().given == SumOptions(honest_fraction=1.0).given == {}
    words = ["cost", "--n", "99", "--protocol", "scalar-sum", "--max-bits", "1"]
    assert isinstance(CliRunner().invoke(app, words).exception, ParameterError)
    words = ["attack", "--study", "training", "--max-bits", "40"]
    assert isinstance(CliRunner().invoke(app, words).exception, ParameterError)


@dataclass(frozen=True)
class Group:
    """Two options."""

    first: int = option(3, "The first.")
    second: list[str] | None = option(None, "The second.", "--other")


def test_flat_makes_options_of_groups_and_groups_of_options():
    given = []

    def command(group: Group, own: bool = False) -> None:
        given.append((group, own))

    made = typer.Typer()
    made.command()(flat(command))
    for words, expected in (
        ([], (Group(), False)),
        (["--first", "5", "--other", "a", "--own"], (Group(5, ["a"]), True)),
    ):
        assert CliRunner().invoke(made, words).exit_code == 0
        assert given[-1] == expected
    assert [each.name for each in fields(Group)] == ["first", "second"]
