"""A package of others that breaks: commands leave it out, with one warning that names it."""

import json
import warnings

import pytest
from outside import forget, installed

from protocols import CentralSum, ScalarSum, Trainer
from protocols.comparison.methods import sum_methods
from protocols.comparison.training import training_methods
from protocols.sums.scalar_sum import ScalarSum as Shipped
from shuffle_sim import ParameterError, PluginWarning, Privacy, ShuffleSimError, register
from shuffle_sim.cli.app import app, main
from shuffle_sim.registry import loaded, names, registered, remembered

PRIVACY = Privacy(1.0, 1e-6)
BROKEN = '''
from protocols.optimisation.base import Optimiser
from protocols.shuffle.gd import ShuffleGD
from protocols.sums.scalar_sum import ScalarSum
from protocols.sums.one_round import OneRoundSum

class Wants(ScalarSum):
    """A planned sum whose methods take one argument more than anybody gives."""

    encoding = "wants"

    @staticmethod
    def choose(spec, noise_ratio, max_bits, colour):
        raise AssertionError

    @classmethod
    def calibrated(cls, *, n, privacy, colour, **given):
        raise AssertionError

class Odd(ShuffleGD):
    @classmethod
    def calibrated_for(cls, setting, choices, colour):
        raise AssertionError

class Curious(Optimiser):
    def __new__(cls): raise AssertionError
    @classmethod
    def calibrated(cls, *, n, problem, privacy, colour):
        raise AssertionError
'''
ENTRIES = {
    "protocols": {"gone": "Gone", "wants": "Wants", "odd": "Odd"},
    "algorithms": {"lost": "Lost", "curious": "Curious"},
}


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Two things that cannot be loaded, and three that want more than commands give."""
    yield installed(tmp_path, monkeypatch, "broken_plugin", BROKEN, **ENTRIES)
    monkeypatch.undo()
    forget()


@pytest.fixture
def notebook():
    """What is registered by a test is gone after it."""
    yield
    forget()


def told(call):
    """What a call gives, and the names of what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PluginWarning)
        found = call()
    return found, sorted(" ".join(str(each.message).split()[:2]) for each in caught)


def test_what_cannot_be_loaded_is_skipped_and_refused_by_name(broken):
    every, first = told(lambda: loaded("protocol"))
    assert first == ["protocol gone"]
    assert set(names("protocol")) - set(every) == {"gone"}
    assert told(lambda: loaded("protocol"))[1] == []
    with pytest.raises(ShuffleSimError, match="cannot load broken_plugin:Gone"):
        registered("protocol", "gone")


@pytest.mark.long
def test_comparisons_leave_out_what_wants_more(broken):
    methods, first = told(lambda: sum_methods(1000, 1, PRIVACY, 2))
    assert first == ["algorithm lost", "protocol gone", "protocol wants"]
    assert {"wants", "gone"}.isdisjoint(each.name for each in methods if not each.refused)
    assert "central" in {each.name for each in methods}
    trainer = Trainer.of("logistic", 2, PRIVACY)
    methods, first = told(lambda: training_methods(trainer, 400, 3))
    assert first == ["algorithm curious", "protocol odd"]
    assert {"shuffle-gd", "gibbs"} <= {each.name for each in methods}


COMMANDS = {
    "plan": ("plan", "--n", "1000"),
    "cost": ("cost", "--n", "1000"),
    "compare": ("compare", "--n", "1000"),
    "train": ("train", "--table", "wine", "--positive", "class_0", "--rounds", "2", "--seed", "1"),
    "audit": ("audit", "--n", "20", "--repeats", "1000"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.full
@pytest.mark.long_parameters("audit")
def test_a_command_goes_on_and_names_what_it_skips(broken, monkeypatch, capsys, name):
    monkeypatch.setattr("sys.argv", ["shuffle-sim", *COMMANDS[name], "--json"])
    with warnings.catch_warnings():
        warnings.simplefilter("default", PluginWarning)
        with pytest.raises(SystemExit) as left:
            main()
    output, errors = capsys.readouterr()
    assert left.value.code == 0
    assert json.loads(output)
    lines = errors.splitlines()
    assert len(lines) == len(set(lines))
    assert all(line.startswith("shuffle-sim: warning: ") for line in lines)
    assert sum("protocol gone is skipped: cannot load" in line for line in lines) == 1


def test_a_thing_that_is_named_is_refused_in_one_line(broken, monkeypatch, capsys):
    for asked, words in {"wants": "colour", "gone": "cannot load"}.items():
        monkeypatch.setattr("sys.argv", ["shuffle-sim", "cost", "--n", "99", "--protocol", asked])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)
            with pytest.raises(SystemExit) as left:
                main()
        errors = capsys.readouterr().err
        assert left.value.code in (1, 2)
        assert len(errors.splitlines()) == 1
        assert words in errors


# register


class Quiet(Shipped):
    """A sum of a notebook: the shipped one under another family."""

    family = "quiet"


@pytest.mark.full
def test_register_does_what_an_entry_point_does(notebook, capsys):
    register("protocol", "quiet-sum", Quiet)
    assert registered("protocol", "quiet-sum") is Quiet
    assert "quiet-sum" in names("protocol")
    assert "quiet" in {each.name for each in sum_methods(1000, 1, PRIVACY, 2)}
    app(["cost", "--n", "99", "--protocol", "quiet-sum", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["protocol"] == "quiet-sum"
    forget()
    assert "quiet-sum" not in names("protocol")


def test_a_name_may_be_given_again_but_not_an_entry_point_s(notebook):
    for thing in (Quiet, ScalarSum):
        register("protocol", "quiet-sum", thing)
        assert registered("protocol", "quiet-sum") is thing
    for kind, name, words in (
        ("protocol", "scalar-sum", "protocols.sums.scalar_sum:ScalarSum is registered"),
        ("protocol", "", "a text"),
        ("family", "quiet", "one of those registered"),
    ):
        with pytest.raises(ParameterError, match=words):
            register(kind, name, CentralSum)


def test_what_follows_from_names_is_computed_anew(notebook):
    calls = []

    @remembered
    def known():
        calls.append(names("loss"))
        return calls[-1]

    known()
    assert "mine" not in known()
    register("loss", "mine", object)
    assert "mine" in known()
    assert len(calls) == 2


def test_nothing_is_left_of_the_broken_package():
    assert "gone" not in names("protocol")
