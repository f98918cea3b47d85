import json

import pytest
from typer.testing import CliRunner

from shuffle_sim.cli.app import app
from shuffle_sim.cli.options import SumOptions
from shuffle_sim.cli.running import MAX_BITS, Ahead, announce
from shuffle_sim.cli.show import Output
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import SANE_BITS, sane

LITTLE = Ahead(1, 100, 10_000, 0.1, "literal")
LONG = Ahead(1, 100, 10_000, 10.0, "literal")
MUCH = Ahead(100, 2 * MAX_BITS, 10_000, 0.1, "literal")


def test_what_is_said_ahead_is_what_is_sent(tmp_path):
    done = CliRunner().invoke(app, ["sum", "--table", "wine", "--seed", "1", "--json"])
    found = json.loads(done.stdout)
    assert found["ahead"]["bits_per_user"] == found["costs"]["payload_bits_per_user"]
    assert found["ahead"]["rounds"] == 1
    made = SumOptions().encoded(178, 13, Privacy(1.0, 1e-6), scalar=False)[1]
    assert found["ahead"]["bytes"] == sum(hop.wire for hop in forecast(made).hops)
    assert found["warnings"] == []


def test_a_little_is_started_and_much_is_asked_for(capsys):
    Output()
    announce(LITTLE, [], yes=False, json=False)()
    assert capsys.readouterr().out == ""
    announce(LONG, [], yes=False, json=False)()
    assert "100 bits a user" in capsys.readouterr().out
    Output(verbose=True)
    announce(LITTLE, [], yes=False, json=False)()
    assert "100 bits a user" in capsys.readouterr().out
    announce(MUCH, [], yes=True, json=False)
    with pytest.raises(ParameterError, match=r"20,000,000 bits a user.*half: 3") as caught:
        announce(MUCH, ["half: 3"], yes=False, json=False)
    assert caught.value.parameter == "yes"
    capsys.readouterr()
    with pytest.raises(ParameterError):
        announce(MUCH, [], yes=False, json=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("limit", ["bytes", "seconds"])
def test_each_limit_counts(limit):
    common = {"rounds": 1, "bits_per_user": 1, "fidelity": "literal", "bytes": 1, "seconds": 1.0}
    assert Ahead(**common).above == []
    assert len(Ahead(**common | {limit: 1e12}).above) == 1
    assert not Ahead(**common | {"bytes": 10**12, "fidelity": "aggregate"}).above  # not moved


@pytest.mark.full
def test_a_run_above_the_limit_is_refused_with_a_way_out():
    much = ["--rounds", "50", "--epsilon", "0.1", "--encoding", "unary", "--fidelity", "aggregate"]
    much += ["--choose", "bound"]
    done = CliRunner().invoke(app, ["train", "--table", "breast-cancer", *much])
    assert isinstance(done.exception, ParameterError)
    assert "--rounds 25: " in str(done.exception)
    assert "x the proven bound" in str(done.exception)


@pytest.mark.parametrize(("n", "epsilon"), [(20, 1.0), (100, 1.0), (1000, 0.1)])
@pytest.mark.full
def test_bits_stay_few_for_few_users_or_a_small_epsilon(n, epsilon):
    plan = sane(SumSpec(n, 10, Privacy(epsilon, 1e-6)))[1]
    assert plan.bits <= SANE_BITS
    assert plan.noise_ratio <= 1.05 * 3
    exact = SumOptions(noise_ratio=1.05).encoded(n, 10, Privacy(epsilon, 1e-6))[1]
    assert isinstance(exact.bits, int)
    assert exact.bits >= plan.bits


def test_what_promises_little_is_warned_of():
    assert Privacy(1.0, 1e-6).warnings(1000) == ()
    assert "1/n = 0.001" in Privacy(1.0, 1e-3).warnings(1000)[0]
    assert "above 10" in Privacy(10.1, 1e-6).warnings(1000)[0]
    assert Privacy(10.0, 0.0).warnings(10**12) == ()


def test_planned_workers_are_told_in_words():
    words = ["sum", "--table", "wine", "--workers", "auto", "--json"]
    told = CliRunner().invoke(app, words).stderr
    assert told.startswith("Planned: about")
    assert "in one process" in told
    assert "SizePlan" not in told


@pytest.mark.full
def test_a_schema_goes_through_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["a;job", *(f"{i % 9},5;{'cook' if i % 3 else ''}" for i in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "s.toml").write_text(
        'missing = "indicator"\n[file]\ndecimal = ","\n'
        '[columns.a]\ntype = "number"\nbounds = [0, 10]\n'
        '[columns.job]\ntype = "category"\ncategories = ["cook"]\n'
    )
    asked = ["sum", "--file", "t.csv", "--schema", "s.toml", "--checkpoint", "kept", "--json"]
    first = CliRunner().invoke(app, asked)
    again = CliRunner().invoke(app, [*asked, "--resume"])
    found, resumed = json.loads(first.stdout), json.loads(again.stdout)
    assert found["columns"] == ["a", "a is blank", "job=cook", "job=other", "job is blank"]
    assert found["private"] == resumed["private"]
    (tmp_path / "t.csv").write_text("\n".join([*lines[:-1], "9,5;pilot"]))
    changed = CliRunner().invoke(app, [*asked, "--resume"])
    assert changed.exit_code != 0
