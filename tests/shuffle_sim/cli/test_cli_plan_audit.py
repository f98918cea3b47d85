"""The commands plan and audit, and what a run that fails leaves behind."""

import dataclasses
import json
import math
from contextlib import contextmanager

import numpy as np
import pytest
from commands import command, installed

from protocols import Hinge, VectorSum
from protocols.comparison.games import game_of
from protocols.comparison.named import named_protocol
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums import OneRoundSum
from shuffle_sim import ParameterError, Privacy, amplify, run
from shuffle_sim.auditing.audit import AuditReport
from shuffle_sim.auditing.claims.plan import Check
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.cli.app import app
from shuffle_sim.cli.show import console
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import RoundAbortedError
from shuffle_sim.privacy.bounds.gamma import rate_for
from shuffle_sim.privacy.bounds.gaussian import mu_of
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.registry import registered_kinds
from shuffle_sim.roles import Shuffler, UserShard


@pytest.mark.parametrize("words", ["plan --n 1000", "cost --n 1000", "sum --table wine"])
def test_numbers_take_the_laplace_encoding_and_columns_do_not(words):
    done = command(*words.split(), "--encoding", "laplace", "--delta", "1e-4")
    assert (done.returncode == 2) == words.startswith("sum")
    assert ("must be one of carry" in done.stderr) == words.startswith("sum")


def test_a_plan_says_that_it_is_at_work(monkeypatch):
    during = []

    @contextmanager
    def status(text):
        during.append(text)
        yield
        during.append("done")

    def searched(*_):
        assert during == ["planning ..."]
        raise ParameterError("n", 0, "looked for")

    monkeypatch.setattr(console, "status", status)
    monkeypatch.setattr("shuffle_sim.cli.plan.searched", searched)
    assert "looked for" in command("plan", "--n", 1000).stderr


@pytest.mark.full
@pytest.mark.parametrize(("encoding", "most"), [("unary", 125), ("carry", 10)])
def test_plan_answers_in_json_what_the_planner_finds(encoding, most):
    done = command(
        "plan",
        "--n",
        "10000",
        "--d",
        "10",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--noise-ratio",
        "1.02",
        "--encoding",
        encoding,
        "--json",
    )
    found = json.loads(done.stdout)
    plan = found["plan"]
    assert plan["encoding"] == encoding
    assert plan["bits_per_user_and_coordinate"] <= most
    assert plan["noise_ratio"] <= 1.02
    # l2 Laplace noise has sqrt(d + 1)/rate a coordinate, here less than the Gaussian's.
    assert found["best_central"] == "l2 Laplace"
    least = math.sqrt(11) / rate_for(1, 1e-6, 10)
    assert plan["best_ratio"] == pytest.approx(plan["noise_ratio"] / (mu_of(1, 1e-6) * least))
    assert plan["epsilon"] <= 1.0
    bits = [row["bits_per_user_and_coordinate"] for row in found["curve"]]
    noise = [row["noise_ratio"] for row in found["curve"]]
    assert bits == sorted(bits, reverse=True)
    assert noise == sorted(noise)
    methods = {row["name"]: row for row in found["methods"]}
    assert methods[f"encoding {encoding}"]["bits"] == plan["bits_per_user_and_coordinate"]
    assert methods["binomial"]["bits"] == 63_945_236
    central = {row["setting"]: row["error"] for row in found["methods"] if row["name"] == "central"}
    assert methods["binomial"]["error"] / central["Gaussian"] == pytest.approx(473, abs=1)
    assert methods["local"]["error"] == pytest.approx(422.47, abs=0.01)


@pytest.mark.parametrize(("d", "std", "unit"), [(1, "4.225", "(ranges)"), (3, "8.449", "(norm")])
@pytest.mark.full
def test_plan_prints_standard_errors_in_units_of_the_data(d, std, unit):
    asked = ["plan", "--n", "3000", "--d", str(d), "--epsilon", "1", "--delta", "1e-6"]
    told = " ".join(command(*asked).stdout.split())
    assert unit in told
    # The analytic Gaussian mechanism (Balle and Wang 2018) at epsilon 1 and delta 1e-6.
    assert f"central Gaussian curator {std} 1 64" in told


@pytest.mark.full
def test_plan_for_a_billion_users_a_budget_and_a_picture(tmp_path):
    done = command(
        "plan", "--n", "1000000000", "--max-bits", "20000", "--plot", "plan.png", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "scalar sum" in done.stdout
    assert "staircase" in done.stdout
    assert (tmp_path / "plan.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.full
def test_plan_composes_rounds_and_counts_on_the_honest_only():
    done = command(
        "plan", "--n", "2000", "--d", "3", "--rounds", "20", "--honest-fraction", "0.7", "--json"
    )
    found = json.loads(done.stdout)
    assert found["plan"]["epsilon"] <= 1.0
    assert found["plan"]["noise_ratio"] > 1 / np.sqrt(0.7)


@pytest.mark.parametrize("words", [["cost"], ["plan"], ["attack", "--repeats", "2"]])
@pytest.mark.full
def test_buckets_need_no_noise_ratio(words):
    done = command(
        *words, "--n", "4000", "--d", "1000", "--encoding", "buckets", "--rotation", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    if words[0] == "attack":
        rows = json.loads(done.stdout)["rows"]
        assert [row["proven"] for row in rows] == sorted(row["proven"] for row in rows)
        assert all(row["exact"] is None for row in rows)


@pytest.mark.full
def test_plan_for_a_year_of_days():
    done = command(
        "plan", "--n", "10000000", "--d", "8", "--rounds", "365", "--delta", "1e-8", "--json"
    )
    assert json.loads(done.stdout)["plan"]["noise_ratio"] < 1.001


@pytest.mark.parametrize(
    "arguments",
    [
        ["--n", "0"],
        ["--n", "100", "--epsilon", "0"],
        ["--n", "100", "--delta", "1"],
        ["--n", "100", "--delta", "1e-51"],
        ["--n", "100", "--noise-ratio", "0.9"],
        ["--n", "100", "--noise-ratio", "1.1", "--max-bits", "40"],
        ["--n", "100", "--d", "50", "--max-bits", "3"],
        ["--n", "100", "--honest-fraction", "1.5"],
        ["--n", "100", "--plot", "/no/such/folder/plan.png"],
        ["--n", "many"],
        [],
    ],
)
@pytest.mark.full
def test_bad_input_to_plan_is_one_line_and_exit_code_2(arguments):
    done = (command if arguments else installed)("plan", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("shuffle-sim: error: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.long
def test_audit_passes_and_says_so_in_json():
    done = command("audit", "--n", "200", "--d", "2", "--repeats", "1000", "--seed", "1", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["passed"] is True
    assert found["report"]["theorem"] >= found["report"]["exact"] >= found["report"]["empirical"]


def test_audit_of_a_defect_ends_with_exit_code_1(monkeypatch, capsys):
    failed = AuditReport(
        1.0,
        0.9,
        0.95,
        1e-6,
        1000,
        (Check("order", False, "0.95 > 0.9"),),
    )
    monkeypatch.setattr("shuffle_sim.auditing.audit.audit", lambda *_, **__: failed)
    assert app(["audit", "--n", "100"], standalone_mode=False) == 1
    assert "FAILED" in capsys.readouterr().out


def test_the_optimiser_that_is_asked_for_is_audited(monkeypatch, capsys):
    """Its loss, its ridge and its rounds; what a sum has no use for is refused."""
    seen = []

    def audited(made, *_, **__):
        seen.append(made)
        return AuditReport(1.0, 0.5, 0.9, 1e-6, 1000, (Check("order", True),))

    monkeypatch.setattr("shuffle_sim.auditing.audit.audit", audited)
    asked = ["audit", "--protocol", "user-level-gd", "--n", "80", "--d", "3", "--records", "4"]
    asked += ["--loss", "huber", "--threshold", "0.3", "--ridge", "0.1", "--rounds", "7"]
    app(asked, standalone_mode=False)
    problem = seen[0].problem
    assert (problem.loss.threshold, problem.ridge, problem.records) == (0.3, 0.1, 4)
    assert seen[0].rounds == 7
    # An exact epsilon of one round is below a run's: it is not said to be above.
    shown = capsys.readouterr().out
    assert "theorem 1.00000 >= empirical 0.9000" in shown
    assert "of one round and coordinate exact 0.50000" in " ".join(shown.split())
    for options in (["--loss", "hinge"], ["--protocol", "vector-sum", "--ridge", "1"]):
        refused = command("audit", "--d", "2", *options)
        assert refused.returncode == 2
        assert "left out" in refused.stderr
    made, _ = game_of("gradient", 40, 2, Privacy(1.0, 1e-6), loss="hinge", rounds=5)
    assert isinstance(made.optimiser.problem.loss, Hinge)
    assert made.optimiser.rounds == 5
    with pytest.raises(ParameterError, match="left out"):
        game_of("central-sum", 40, 2, Privacy(1.0), loss="hinge")


class AsksTwice(VectorSum):
    """Claims to be sequential, and asks its first users again."""

    def plan(self, state):
        if state is not None and state[0] > 1:
            return None
        stop = self.n if state is None else self.n // 2
        return RoundSpec(
            Cohort.of(0, stop),
            Datum(),
            self.randomizer,
            self.randomizer.event(stop, Datum()),
            lambda _: 1 + (state is not None) * np.ones(2),
        )

    def update(self, state, estimate):
        return np.atleast_1d(estimate)


def test_a_protocol_that_wrongly_claims_sequential_is_caught():
    protocol = AsksTwice(n=100, d=2, g=3, b=30)
    with pytest.raises(ParameterError, match="sequential") as caught:
        run(protocol, np.zeros((100, 2)), seed=1)
    ledger = caught.value.ledger
    assert len(ledger.charges) == 2
    assert not ledger.sequentially_interactive


def test_an_aborted_run_keeps_what_it_spent():
    protocol = VectorSum.calibrated(
        n=500, d=2, privacy=Privacy(1.0, 1e-6), noise_ratio=1.5, honest_fraction=0.9
    )
    with pytest.raises(RoundAbortedError) as caught:
        run(protocol, np.zeros((500, 2)), adversary=Dropout(0.5), seed=1)
    assert 0.5 < caught.value.ledger.guarantee(1e-6).epsilon <= 1.0


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("histogram --d 9 --method unary", lambda made: type(made.randomizer).__name__ == "Unary"),
        ("histogram --objective error", lambda made: made.randomizer.batch == 1),
        ("group-means --moments 2 --bits 3", lambda made: made.randomizer.moments == 2),
        ("quantiles --leaves 64", lambda made: made.randomizer.sizes[-1] == 64),
        ("heavy-hitters --bits 16 --kept 9", lambda made: made.kept == 9),
    ],
)
def test_the_form_of_a_count_is_audited_as_asked(arguments, found, monkeypatch):
    seen = []

    def audited(made, *_, **__):
        seen.append(made)
        return AuditReport(1.0, 0.5, 0.9, 1e-6, 1000, (Check("order", True),))

    monkeypatch.setattr("shuffle_sim.auditing.audit.audit", audited)
    app(["audit", "--quiet", "--protocol", *arguments.split()], standalone_mode=False)
    assert found(seen[0])


@pytest.mark.parametrize("name", ["audit", "cost"])
def test_a_form_that_a_protocol_does_not_take_is_refused(name):
    for options in (["--kept", "4"], ["--protocol", "quantiles", "--moments", "2"]):
        done = command(name, "--n", "1000", *options)
        assert done.returncode == 2
        assert "left out" in done.stderr


KINDS = sorted(
    {**registered_kinds("protocol", OneRoundSum), **registered_kinds("protocol", FirstOrder)}
)


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_every_protocol_can_be_audited_with_one_coordinate(name):
    """Vectors of one coordinate are no numbers; users of some optimisers are persons."""
    made = named_protocol(name, 200, 1, Privacy(1.0, 1e-6))
    spec = made.plan(made.init())
    if spec.randomizer.view != "sums":
        return  # words are audited by what they count
    bench = Checks(made, spec, 1, 1000, 1e-7, UserShard, Shuffler)
    bench.domain()
    bench.alone()
    bench.sizes()


@pytest.mark.full
def test_amplify_says_what_python_does_and_draws_it(tmp_path):
    picture = tmp_path / "amplify.png"
    asked = ("amplify", "--epsilon0", "2", "--n", "1000", "--delta", "1e-5")
    found = json.loads(command(*asked, "--json", "--plot", str(picture)).stdout)
    assert found == dataclasses.asdict(amplify(2.0, 1000, 1e-5))
    assert picture.stat().st_size > 1000
    assert "too few to amplify" in command(*asked[:4], "2").stdout
    refused = command("amplify", "--epsilon0", "31", "--n", "9")
    assert refused.returncode == 2
    assert refused.stderr.startswith("shuffle-sim: error: epsilon0 = 31")
    assert len(refused.stderr.splitlines()) == 1
