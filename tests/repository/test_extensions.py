"""What a third party adds by one file and one entry point is found wherever ours are.

The files of examples/extensions are installed outside the packages, as an own project.
"""

import json
import math
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outside import forget

from protocols import VectorSum
from protocols.comparison.methods import sum_methods
from protocols.comparison.training import training_methods
from protocols.learning.estimators import ShuffleLogisticRegression
from protocols.learning.training import Trainer
from protocols.optimisation import CuratedPhases, Phased
from shuffle_sim import Privacy, run
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.auditing import check_theorem
from shuffle_sim.cli.app import app
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.model import load_model
from shuffle_sim.data.tables import bundled
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.events import GaussianEvent
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.registry import registered

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "extensions"
ENTRIES = {
    "attacks": "shove = {attack}:Shove",
    "theorems": "StaircaseEvent = {event}:Staircase",
    "protocols": "last-iterate = {optimiser}:LastIterate\ncoarse-sum = {sum}:CoarseSum",
    "algorithms": "pure-descent = {central_optimiser}:PureDescent\n"
    "aggregated-sum = {trust}:AggregatedSum",
    "trusts": "aggregator = {trust}:AGGREGATOR",
    "tables": "harvest = {table}:harvest\nnone = {table}:np",
}
N, PRIVACY = 400, Privacy(1.0, 1e-6)


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory):
    """The project of a third party, installed for these tests."""
    folder = tmp_path_factory.mktemp("project")
    files = {each.stem: f"of_others_{each.stem}" for each in sorted(FILES.glob("*.py"))}
    for name, module in files.items():
        (folder / f"{module}.py").write_text((FILES / f"{name}.py").read_text())
    info = folder / "of_others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n")
    groups = [f"[shuffle_sim.{group}]\n{entries}" for group, entries in ENTRIES.items()]
    (info / "entry_points.txt").write_text("\n".join(groups).format(**files) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        forget()
        yield files
        for module in files.values():
            sys.modules.pop(module, None)
    forget()


def rows(columns=2):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, columns))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return np.c_[x, np.where(x[:, 0] > 0, 1.0, -1.0)]


def command(capsys, *words):
    app([*words, "--json"], standalone_mode=False)
    return json.loads(capsys.readouterr().out)


def trainer():
    return Trainer.of("logistic", 2, PRIVACY)


def test_an_event_with_its_theorem_is_taken_everywhere(project):
    module = sys.modules[type(theorem("StaircaseEvent")).__module__]
    assert module.__name__ == project["event"]
    check_theorem(theorem("StaircaseEvent"))
    ledger = PrivacyLedger()
    for event in (module.StaircaseEvent(0.5), GaussianEvent(5.0)):
        ledger.charge(Cohort.of(0, N), event)
    assert 0.5 < ledger.guarantee(1e-6).epsilon < math.inf
    assert "Geng and Viswanath" in ledger.guarantee(1e-6).basis


def theorem(name):
    made = registered("theorem", name)()
    assert theorem_of(made.event) is not None
    return made


@pytest.mark.full
def test_a_sum_is_run_compared_and_costed(capsys):
    made = registered("protocol", "coarse-sum").calibrated(n=N, privacy=PRIVACY)
    result = run(made, np.full(N, 0.25), seed=1)
    assert abs(result.value - N / 4) < 6 * made.standard_error
    assert "coarse-sum" in {method.name for method in sum_methods(N, 1, PRIVACY, 2)}
    shown = command(capsys, "compare", "--n", str(N))["methods"]
    assert "coarse-sum" in {method["name"] for method in shown}
    words = "cost", "--n", str(N), "--protocol", "coarse-sum"
    assert command(capsys, *words)["forecast"]["payload_bits"] == 64


@pytest.mark.long
def test_an_optimiser_is_run_compared_and_costed(capsys):
    made = trainer().protocol("last-iterate", N, rounds=4)
    assert run(made, rows(), seed=1).rounds == 4
    methods = {method.name: method for method in training_methods(trainer(), N, 3)}
    assert methods["last-iterate"].trust is Trust.SHUFFLE
    assert not methods["last-iterate"].refused
    phased: Any = Trainer.of("logistic", 2, PRIVACY, ridge=0.5).protocol(
        "last-iterate", N, phases=2
    )
    assert {type(phase) for phase in phased.phases} == {type(made)}
    x, y = rows()[:, :2], rows()[:, 2]
    model = ShuffleLogisticRegression(protocol="last-iterate", rounds=3).fit(x, y)
    assert type(model.protocol_) is type(made)
    words = "cost", "--n", str(N), "--d", "2", "--protocol", "last-iterate"
    assert command(capsys, *words)["forecast"]["rounds"] > 0


@pytest.mark.full
def test_a_central_algorithm_is_run_and_compared():
    kind = registered("algorithm", "pure-descent")
    made = kind.calibrated(n=N, problem=trainer().problem, privacy=Privacy(1.0))
    result = run(made, rows(), seed=1)
    assert (result.trust, result.rounds, result.privacy.delta) == (Trust.CENTRAL, 10, 0.0)
    assert result.privacy.epsilon == pytest.approx(1.0)
    methods = {method.name: method for method in training_methods(trainer(), N, 3)}
    assert methods["pure-descent"].trust is Trust.CENTRAL


@pytest.mark.full
def test_phases_serve_an_own_optimiser_under_both_trusts():
    ridged = Trainer.of("logistic", 2, PRIVACY, ridge=0.5).problem
    common = {"n": N, "problem": ridged, "phases": 2}
    for chain, kind, privacy, rounds in (
        (Phased, registered("protocol", "last-iterate"), PRIVACY, None),
        (CuratedPhases, registered("algorithm", "pure-descent"), Privacy(1.0), 20),
    ):
        made = chain.calibrated(optimiser=kind, privacy=privacy, **common)
        assert {type(phase) for phase in made.phases} == {kind}
        result = run(made, rows(), seed=1)
        assert result.rounds == (rounds or made.rounds)
        # Phases have users of their own: each spends the budget once, and together no more.
        assert 0.9 * privacy.epsilon < result.privacy.epsilon <= privacy.epsilon


@pytest.mark.long
def test_both_optimisers_are_rows_of_train_compare(capsys):
    words = ["train", "--table", "wine", "--positive", "class_0", "--compare", "--rounds", "3"]
    found = command(capsys, *words, "--all", "--repeats", "1", "--epsilon", "5", "--seed", "1")
    shown = {row["method"]: row for row in found["methods"]}
    assert shown["last-iterate"]["trust"] == "shuffle"
    assert shown["pure-descent"]["trust"] == "central"
    assert 4.99 < shown["pure-descent"]["privacy"]["epsilon"] <= 5.0


@pytest.mark.full
def test_an_attack_comes_by_name():
    protocol = VectorSum(n=N, d=3, g=8, b=40)
    adversary = attack("shove:fraction=0.5")
    found = run(protocol, np.zeros((N, 3)), adversary=adversary, fidelity="aggregate", seed=1)
    moved = found.value[0] / found.reports.corrupted
    assert moved == pytest.approx(1.0, abs=6 * protocol.standard_error / found.reports.corrupted)


@pytest.mark.full
def test_a_table_is_summed_trained_on_and_saved_with_its_bounds(capsys, tmp_path):
    words = "--table", "harvest", "--epsilon", "8", "--seed", "1"
    columns = command(capsys, "sum", *words)["columns"]
    assert columns == ["rain", "sun"]
    model = tmp_path / "model.json"
    found = command(capsys, "train", *words, "--rounds", "5", "--model-out", str(model))
    assert found["privacy"]["epsilon"] <= 8
    assert load_model(model).schema.limits[1].tolist() == [1000, 3000]
    with pytest.raises(ParameterError, match="not a module"):
        bundled("none")


def test_a_trust_model_names_its_results_and_colours_its_methods(capsys):
    trust = Trust.of("aggregator")
    assert (trust, trust.trusted, trust.noise(100, 1.3)) == ("aggregator", "aggregator", 1.0)
    assert pickle.loads(pickle.dumps(trust)) is trust
    made = registered("algorithm", "aggregated-sum").calibrated(n=N, d=1, privacy=PRIVACY)
    result = run(made, np.full((N, 1), 0.25), seed=1)
    assert result.trust is trust
    assert result.to_dict()["trust"] == "aggregator"
    assert "an aggregator that releases the sum alone" in result.privacy.assumptions
    methods = [each for each in sum_methods(N, 1, PRIVACY, 0) if each.name == "aggregated"]
    assert methods
    assert {each.trust.colour for each in methods} == {"tab:green"}
    shown = command(capsys, "compare", "--n", str(N))["methods"]
    assert {each["trust"] for each in shown if each["name"] == "aggregated"} == {"aggregator"}


def test_nothing_of_it_is_left_when_the_project_is_gone(project):
    files = "attack", "central_optimiser", "event", "optimiser", "sum", "table", "trust"
    assert set(project) == {*files}


STATED = re.compile(r"`examples/extensions/(\w+)\.py`, (\d+) lines")


def test_contributing_states_how_many_lines_an_extension_takes(project):
    stated = dict(STATED.findall((ROOT / "CONTRIBUTING.md").read_text()))
    assert set(stated) == set(project)
    for name, lines in stated.items():
        text = (FILES / f"{name}.py").read_text()
        assert sum(bool(line.strip()) for line in text.splitlines()) == int(lines), name


@pytest.mark.full
def test_a_sum_that_was_written_with_the_earlier_verb_has_both():
    class Earlier(VectorSum):
        @classmethod
        def calibrate(cls, *, n, d):
            return cls(n=n, d=d, g=8, b=40)

    kind: Any = Earlier
    assert kind.calibrated(n=9, d=2).n == kind.calibrate(n=9, d=2).n == 9
    ours: Any = VectorSum
    assert ours.calibrate(n=N, d=3, privacy=PRIVACY, max_bits=90).d == 3
