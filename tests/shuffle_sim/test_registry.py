"""Names that are found, unknown, or claimed by two distributions."""

import pytest
from processes import python

from protocols.comparison.games import game_of
from shuffle_sim import ParameterError, Privacy, ShuffleSimError
from shuffle_sim.registry import names, registered


def test_what_is_shipped_is_found_by_name():
    assert {"inprocess", "ray"} <= set(names("runtime"))
    assert registered("runtime", "inprocess").name == "inprocess"
    assert "logistic" in names("loss")


@pytest.mark.parametrize("kind", ["family", "", "losses", 3])
def test_an_unknown_kind_is_refused_with_the_list(kind):
    for ask in (lambda: names(kind), lambda: registered(kind, "logistic")):
        with pytest.raises(ParameterError, match=r"^kind = .*attacks, .*losses, .*protocols"):
            ask()


@pytest.mark.parametrize("name", ["dropuot", None, ["dropout"]])
def test_an_unknown_name_is_refused_with_the_list(name):
    with pytest.raises(ParameterError, match=r"^attack = .*one of alie, .*dropout"):
        registered("attack", name)


CLASH = """
from shuffle_sim import ParameterError
from shuffle_sim.registry import names, registered
assert names("loss").count("twice") == 1 and "logistic" in names("loss")
print(registered("loss", "alone"))
print(registered("loss", "logistic"))
try:
    registered("loss", "twice")
except ParameterError as error:
    print(error)
"""


def distribution(folder, name, entries):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[shuffle_sim.losses]\n" + "\n".join(f"{key} = {value}" for key, value in entries.items())
    )


@pytest.mark.full
def test_a_name_of_two_distributions_is_refused(tmp_path):
    distribution(tmp_path, "first", {"twice": "math:pi", "alone": "math:tau"})
    distribution(tmp_path, "second", {"twice": "math:e"})
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n{CLASH}"
    done = python("-c", code, check=True)
    alone, ours, refused = done.stdout.splitlines()
    assert (alone, "Logistic" in ours) == ("6.283185307179586", True)
    assert refused == (
        "loss = 'twice': must be registered by one distribution, not by first (math:pi) and "
        "second (math:e)"
    )


@pytest.mark.full
def test_nothing_is_loaded_before_it_is_asked_for():
    code = (
        "import sys; from shuffle_sim.registry import names, registered; names('runtime');"
        "registered('runtime', 'inprocess'); print('ray' in sys.modules, 'actors' in sys.modules)"
    )
    done = python("-c", code, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.full
def test_a_module_that_is_not_there_is_named(tmp_path):
    distribution(tmp_path, "broken", {"missing": "shuffle_sim_nowhere.losses:Missing"})
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})\n"
        "from shuffle_sim.registry import registered; registered('loss', 'missing')"
    )
    done = python("-c", code)
    assert done.returncode == 1
    assert ShuffleSimError.__name__ in done.stderr
    assert "'shuffle_sim_nowhere' was found at nowhere" in done.stderr


def test_a_curators_algorithm_is_no_protocol_and_the_error_says_so():
    with pytest.raises(ParameterError, match=r"a curator runs this one: give it as mechanism"):
        registered("protocol", "output-perturbation")
    with pytest.raises(ParameterError, match=r"users answer this one: give it as protocol"):
        game_of("vector-sum", 100, 2, Privacy(1.0, 1e-6))
