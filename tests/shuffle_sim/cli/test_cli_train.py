import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rounds import records

from protocols.learning.baselines import Baseline
from protocols.learning.splits import MOMENTS, Moment, Split, Watch
from protocols.learning.training import Trainer
from protocols.optimisation.base import Optimiser
from protocols.problems.losses import Logistic
from shuffle_sim import Execution, Privacy, load_model, run
from shuffle_sim.cli.app import main
from shuffle_sim.data.labelled import held_out, labelled
from shuffle_sim.data.population import Unit
from shuffle_sim.data.tables import bundled
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.execution.journal import FILE
from shuffle_sim.registry import registered_kinds

CANCER = (
    "--table",
    "breast-cancer",
    "--seed",
    "7",
    "--fidelity",
    "aggregate",
    "--noise-ratio",
    "1.3",
)
EVEN = [word for digit in "02468" for word in ("--positive", digit)]


@pytest.fixture
def train(monkeypatch, capsys, tmp_path):
    """`shuffle-sim train` in this process: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["shuffle-sim", "train", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return (left.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def printed(train):
    """The --json output of a run that succeeds."""

    def call(*arguments: str) -> dict:
        code, output, errors = train(*arguments, "--json")
        assert (code, errors) == (0, "")
        return json.loads(output)

    return call


# One model


@pytest.mark.full
def test_json_tells_scores_guarantee_costs_and_choices(printed):
    found = printed(*CANCER, "--rounds", "20", "--epsilon", "2", "--choose", "bound")
    assert found["people"] == {"asked": 455, "held_out": 114}
    assert found["labels"] == "malignant = +1, benign = -1"
    assert 1.5 < found["privacy"]["epsilon"] <= 2
    assert (found["privacy"]["delta"], found["privacy"]["relation"], found["private"]) == (
        1e-6,
        "replace-one",
        False,
    )
    assert "fair carries" in found["privacy"]["basis"]
    assert any("not private" in note for note in found["privacy"]["assumptions"])
    assert (
        found["simulator_view"]["scores"].keys()
        == found["simulator_view"]["constant"].keys()
        == {"held_out_loss", "training_loss", "accuracy"}
    )
    assert (
        found["simulator_view"]["scores"]["held_out_loss"]
        < found["simulator_view"]["constant"]["held_out_loss"]
    )  # it has learnt something
    assert found["protocol"]["name"] == "ShuffleGD"
    assert (found["protocol"]["rounds"], found["protocol"]["rounds_per_user"]) == (20, 20)
    assert {"eta", "batch", "rounds", "smoothing", "trust"} <= found["protocol"]["choices"].keys()
    assert found["sequentially_interactive"] is False
    assert found["payload_bits_per_user"] == 20 * found["costs"]["payload_bits_per_user"]
    assert found["costs"]["payload_bits_per_user"] % 31 == 0
    assert found["reports"]["asked"] == found["reports"]["accepted"] == 20 * 455
    assert found["simulator_view"]["clipped"] == {"cells": 14, "labels": 0, "gradients": 0}
    assert found["run"] == {
        "fidelity": "aggregate",
        "runtime": "inprocess",
        "workers": 1,
        "seed": 7,
        "security": "none",
    }
    assert found["execution"] == {name: getattr(Execution(), name) for name in Execution.options()}


@pytest.mark.full
def test_a_seed_gives_one_model_on_both_runtimes(printed):
    asked = [
        "--table",
        "breast-cancer",
        "--rounds",
        "4",
        "--noise-ratio",
        "1.3",
        "--fidelity",
        "literal",
    ]
    here = printed(*asked, "--seed", "7")
    there = printed(*asked, "--seed", "7", "--runtime", "ray", "--workers", "2")
    assert there["run"].pop("runtime") == "ray"
    assert here["run"].pop("runtime") == "inprocess"
    assert (here["run"].pop("workers"), there["run"].pop("workers")) == (1, 2)
    # Two stations have two shards of the shuffler, between which messages travel.
    for made in (here, there):
        del made["costs"]["routed_bytes"]
        del made["costs"]["view_bytes"]
    assert here == there
    assert here["costs"]["measured"]
    first, second = printed(*asked), printed(*asked)
    assert first["model"]["weights"] != second["model"]["weights"]
    assert first["people"] == second["people"]
    assert first["private"]


@pytest.mark.parametrize(
    ("protocol", "rounds"), [("shuffle-gd", 250), ("shuffle-sgd", 250), ("shuffle-acsa", 5)]
)
@pytest.mark.full
def test_the_history_ends_at_the_result_and_epsilon_never_falls(printed, protocol, rounds):
    found = printed(*CANCER, "--protocol", protocol, "--rounds", str(rounds))
    losses = found["simulator_view"]["history"]
    history = [
        Moment(**moment, **loss) for moment, loss in zip(found["history"], losses, strict=True)
    ]
    assert len(history) == min(rounds, MOMENTS)
    assert history[-1].round == rounds
    assert history[-1].epsilon == found["privacy"]["epsilon"]
    assert history[-1].wire_bytes == found["costs"]["wire_bytes"]
    for name in ("round", "epsilon", "wire_bytes"):
        values = [getattr(moment, name) for moment in history]
        assert values == sorted(values)
    assert found["sequentially_interactive"] == (protocol != "shuffle-gd")
    # Disjoint users compose in parallel.
    assert (history[0].epsilon == history[-1].epsilon) == (protocol != "shuffle-gd")


def test_the_first_loss_is_that_of_the_start(printed):
    view = printed(*CANCER, "--rounds", "3")["simulator_view"]
    assert view["history"][0]["loss"] == pytest.approx(math.log(2), rel=1e-12)


@pytest.mark.full
def test_the_model_file_scores_as_printed(printed, tmp_path):
    found = printed(*CANCER, "--rounds", "20", "--model-out", "model.json", "--plot", "p.svg")
    model = json.loads((tmp_path / "model.json").read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "p.svg"]
    assert model["private"] is False
    public = {"format", "version", "loss", "schema", "columns", "units", "weights", "intercept"}
    public |= {"classes", "target", "labels", "target_bounds", "privacy", "private"}
    assert model.keys() == public  # epsilon covers it
    assert "the classes of labels are public" in model["privacy"]["assumptions"]
    assert "Simulator's view" in (tmp_path / "p.svg").read_text()
    table, m = bundled("breast-cancer"), load_model(tmp_path / "model.json")
    people = np.column_stack([table.rows, table.target == "malignant"])
    _, test = held_out(people, 0.2, 7)
    margins = m.margins(test[:, :-1])
    inside = np.clip(test[:, :-1], table.lower, table.upper)
    np.testing.assert_allclose(margins, inside @ model["weights"] + model["intercept"], rtol=1e-9)
    assert ((margins > 0) == test[:, -1]).mean() == found["simulator_view"]["scores"]["accuracy"]
    labels = np.where(test[:, -1] > 0, 1, -1)
    assert np.logaddexp(0, -labels * margins).mean() == pytest.approx(
        found["simulator_view"]["scores"]["held_out_loss"], rel=1e-9
    )


@pytest.mark.parametrize(
    ("mechanism", "ridge"),
    [
        ("output", "0.01"),
        ("objective", "0.01"),
        ("gibbs", "0.01"),
        ("exponential-mechanism", "0.05"),
        ("tilted-erm", "0.05"),
        ("adversarial-erm", "0.02"),
    ],
)
@pytest.mark.full
def test_a_curator_trains_by_one_release(printed, train, mechanism, ridge):
    asked = "--table", "breast-cancer", "--trust", "central", "--mechanism", mechanism
    found = printed(*asked, "--ridge", ridge, "--seed", "7")
    assert found["trust"] == "central"
    assert 0.9 < found["privacy"]["epsilon"] <= 1.0
    assert found["protocol"]["rounds"] == 1
    assert found["protocol"]["excess_bound"] > 0
    assert found["payload_bits_per_user"] == 0
    code, output, errors = train(*asked, "--ridge", ridge, "--seed", "7")
    assert (code, errors) == (0, "")
    assert "a trusted curator" in output
    assert "messages" not in output


@pytest.mark.parametrize(
    ("mechanism", "option", "small", "large"),
    [
        ("tilted-erm", "--tilt", "0.1", "4"),
        ("adversarial-erm", "--adversarial-radius", "0.01", "1"),
    ],
)
@pytest.mark.full
def test_a_mechanism_of_its_own_objective_takes_its_option(
    printed, train, mechanism, option, small, large
):
    asked = "--table", "breast-cancer", "--ridge", "0.05", "--seed", "7", option
    central = "--trust", "central", "--mechanism"
    bounds = [
        printed(*asked, value, *central, mechanism)["protocol"]["excess_bound"]
        for value in (small, large)
    ]
    assert bounds[0] < bounds[1]
    for others in ((), (*central, "output"), (*central, "gradient")):
        code, _, errors = train(*asked, small, *others)
        assert code
        assert errors.startswith(f"shuffle-sim: error: {option[2:].replace('-', '_')} = ")
        assert "must be" in errors
    code, _, errors = train(*asked, "-1", *central, mechanism)
    assert errors.startswith(f"shuffle-sim: error: {option[2:].replace('-', '_')} = -1.0")


@pytest.mark.parametrize(
    "loss",
    [["squared"], ["huber", "--threshold", "0.3"], ["absolute"], ["pinball", "--quantile", "0.8"]],
)
@pytest.mark.full
def test_losses_of_numbers_tell_the_error_in_the_label_s_units(printed, loss):
    found = printed(
        "--table",
        "diabetes",
        "--loss",
        *loss,
        "--rounds",
        "10",
        "--seed",
        "1",
        "--fidelity",
        "aggregate",
    )
    assert 40 < found["simulator_view"]["scores"]["mean_absolute_error"] < 150
    assert found["model"]["target_bounds"] == [25, 346]


@pytest.mark.full
def test_a_file_is_trained_on_with_text_labels(printed, tmp_path):
    rng = np.random.default_rng(5)
    age = rng.uniform(0, 100, 600)
    rows = [
        f"{a:.2f},{b:.3f},{'old' if a > 55 else 'young'}"
        for a, b in zip(age, rng.normal(size=600), strict=True)
    ]
    (tmp_path / "people.csv").write_text("age,noise,kind\n" + "\n".join(rows))
    bounds = ["--bounds", "age=0:100", "--bounds", "noise=-3:3"]
    found = printed(
        "--file",
        "people.csv",
        "--label",
        "kind",
        "--positive",
        "old",
        *bounds,
        "--rounds",
        "30",
        "--seed",
        "3",
        "--epsilon",
        "4",
        "--fidelity",
        "aggregate",
        "--radius",
        "10",
    )
    assert found["model"]["columns"] == ["age", "noise"]
    assert found["simulator_view"]["scores"]["accuracy"] > 0.9
    assert found["model"]["weights"][0] > 0


@pytest.mark.full
def test_a_model_is_the_same_where_frames_are_sealed(printed):
    plain, sealed = (
        printed(*ON, "--seed", "3", "--rounds", "3", "--security", how)
        for how in ("none", "transport")
    )
    assert plain["model"] == sealed["model"]
    assert sealed["run"]["security"] == "transport"
    assert sealed["costs"]["wire_bytes"] > plain["costs"]["wire_bytes"]


@pytest.mark.full
def test_people_are_told_of_bound_choices_and_trust(train):
    code, output, errors = train(
        *CANCER, "--rounds", "10", "--choose", "bound", "--plot", "p.svg", "--verbose"
    )
    assert (code, errors) == (0, "")
    words = (
        "fully interactive",
        "Logistic loss",
        "held out loss",
        "best constant",
        "accuracy",
        "simulator's own view",
        "Bound",
        "promises nothing",
        "Privacy",
        "not private",
        "bits per user",
        "455 people asked",
        "4,550 accepted",
        "Chosen",
        "eta:",
        "Picture: p.svg",
    )
    flat = " ".join(output.split())
    assert [word for word in words if word not in flat] == []


def test_tuned_parameters_are_the_default_and_promise_nothing(printed):
    found = printed(*CANCER, "--rounds", "8", "--epsilon", "4")
    assert found["protocol"]["name"] == "PracticalDescent"
    assert found["protocol"]["excess_bound"] is None
    assert "no bound is proven" in found["protocol"]["choices"]["trust"]
    assert found["privacy"]["epsilon"] <= 4
    scores = found["simulator_view"]
    assert scores["scores"]["accuracy"] > scores["constant"]["accuracy"] + 0.1


@pytest.mark.parametrize(
    ("words", "chances"),
    [("--label pay --loss squared --bounds pay=0:99", False), ("--label ill", True)],
)
def test_of_a_model_worse_than_a_constant_what_helps_is_told(train, tmp_path, words, chances):
    lines = [f"{i % 7},{20 + i % 3},{'yes' if i % 5 else 'no'}" for i in range(2000)]
    (tmp_path / "t.csv").write_text("\n".join(["age,pay,ill", *lines]))
    asked = ("--file", "t.csv", *words.split(), "--columns", "age", "--bounds", "age=0:9")
    _, told, _ = train(*asked, "--epsilon", "0.01", "--rounds", "4", "--seed", "1")
    assert "A constant has less loss" in told
    assert ("chances are too sure" in told) == ("--choose bound" in told) == chances


@pytest.mark.full
def test_clipped_gradients_are_counted_and_have_no_bound(printed, train):
    asked = (*CANCER, "--rounds", "5", "--norm-bound", "0.1", "--choose", "bound")
    found = printed(*asked)
    assert found["simulator_view"]["clipped"]["gradients"] > 5 * 400
    assert found["protocol"]["excess_bound"] is None
    assert "none is proven" in train(*asked)[1]
    methods = printed(*asked, "--compare", "--repeats", "1")["methods"]
    assert {row["excess_bound"] for row in methods} == {None}


def test_help_shows_an_example_and_the_options(train):
    code, output, _ = train("--help")
    assert code == 0
    assert "Example: shuffle-sim train --table" in output


# What the options do to the protocol


def made(name: str = "shuffle-sgd", n: int = 455, *, trainer: dict | None = None, **given):
    return Trainer.of("logistic", 31, Privacy(1.0, 1e-5), **(trainer or {})).protocol(
        name, n, **given
    )


@pytest.mark.full
def test_what_is_given_is_taken():
    sgd = made(rounds=7, batch=50, eta=0.25)
    assert (sgd.rounds, sgd.mean.batch, sgd.eta) == (7, 50, 0.25)
    assert made("shuffle-gd", rounds=3, smoothing=2.0).smoothing == 2
    phased = made("shuffle-acsa", phases=2, trainer={"ridge": 0.1})
    assert len(phased.phases) == 2
    assert made("shuffle-acsa", phases=0, trainer={"ridge": 0.1}).bound <= phased.bound
    printed = made("shuffle-acsa", 3000, hyper="paper", phases=0, trainer={"ridge": 0.1})
    assert [phase.n for phase in printed.phases] == [500] * 6
    assert made(hyper="paper").claim.basis.startswith("Theorem 4.1")
    assert made(rounds=7, trainer={"norm_bound": 0.1}).mean.norm_bound == 0.1


def test_noise_is_by_default_enough_for_the_honest_alone():
    careful = made("shuffle-gd", rounds=3, trainer={"honest_fraction": 0.8})
    assert careful.mean.sum.honest == 364
    assert careful.mean.squared_noise > made("shuffle-gd", rounds=3).mean.squared_noise


@pytest.mark.parametrize(("name", "bits"), [("shuffle-sgd", 60), ("shuffle-acsa", 30)])
@pytest.mark.full
def test_bits_allowed_are_kept_and_more_give_less_noise(name, bits):
    few, many = (
        made(name, trainer={"max_bits": allowed}, batch=60).mean for allowed in (bits, 4 * bits)
    )
    assert few.sum.bits <= bits < many.sum.bits <= 4 * bits
    assert few.squared_noise > many.squared_noise


def test_the_best_constant_is_the_closed_form():
    labels = np.r_[np.ones(30), -np.ones(70)]
    rows = np.column_stack([np.zeros((100, 31)), labels])
    assert trainer_of("logistic").constant(rows) == pytest.approx(math.log(3 / 7), abs=1e-4)
    numbers = np.column_stack([np.zeros((5, 31)), [-0.9, -0.3, 0.1, 0.2, 0.9]])
    assert trainer_of("absolute").constant(numbers) == pytest.approx(0.1, abs=1e-4)
    assert trainer_of("squared").constant(numbers) == pytest.approx(0.0, abs=1e-4)


def trainer_of(loss: str) -> Trainer:
    return Trainer.of(loss, 31, Privacy(1.0, 1e-5))


def test_a_loss_that_turns_nan_stops_the_run_and_says_where(monkeypatch):
    trainer = trainer_of("logistic")
    split = Split.of(labelled(bundled("breast-cancer"), classes=True), trainer, 0.2, 1)
    protocol = trainer.protocol("shuffle-gd", len(split.train), rounds=9)
    true, shown = Logistic.value, []

    def away_from_the_start(self, margins, labels):  # a loss that is so from the start is refused
        return np.where(margins == 0, true(self, margins, labels), np.nan)

    monkeypatch.setattr(Logistic, "value", away_from_the_start)
    with pytest.raises(ShuffleSimError, match="round 1: the training loss is nan") as caught:
        run(
            protocol,
            split.train,
            fidelity="aggregate",
            seed=1,
            execution=Execution(on_round=Watch(split, 9, 1e-5, shown.append)),
        )
    assert [moment.round for moment in shown] == [1]
    assert len(caught.value.ledger.charges) == 2
    assert caught.value.ledger.guarantee(1e-5).epsilon > shown[0].epsilon


# A trusted curator


@pytest.mark.parametrize("known", [["--moment", "4:1.2:1"], ["--pilot"]], ids=["known", "pilot"])
def test_a_curator_trains_purely(train, printed, known):
    asked = ("--table", "diabetes", "--loss", "absolute", "--trust", "central", "--pure", *known)
    found = printed(*asked, "--seed", "1")
    assert (found["privacy"]["epsilon"], found["privacy"]["delta"]) == (1.0, 0.0)
    assert found["trust"] == "central"
    notes = " ".join(found["privacy"]["assumptions"])
    assert "never for privacy" in notes
    assert "running time is not covered" in notes
    code, output, errors = train(*asked)
    assert (code, errors) == (0, "")
    assert "a trusted curator" in output
    assert "epsilon 1 at delta 0" in output


# Side by side


@pytest.mark.full
def test_compare_tells_all_methods_with_their_spread(printed):
    asked = (*CANCER, "--compare", "--all", "--repeats", "3", "--rounds", "10", "--epsilon", "2")
    found = printed(*asked)
    methods = {row["method"]: row for row in found["methods"]}
    private = ["shuffle-acsa", "shuffle-gd", "shuffle-sgd", "central", "local"]
    trusts = {name: row["trust"] for name, row in methods.items()}
    assert [name for name, trust in trusts.items() if trust != "central"] == [
        *private[:3],
        "local",
        "not private",
    ]
    kinds = registered_kinds("algorithm", Optimiser)
    registered = [name for name, kind in kinds.items() if kind.unit is not Unit.PERSON]
    curators = [name for name, trust in trusts.items() if trust == "central"]
    assert {"central", "heavy-tailed-erm", "heavy-tailed-erm, one phase"} <= set(curators)
    assert {name.split(",")[0] for name in curators} | set(found["refused"]) == {
        "central",
        *registered,
    }
    assert {row["unit"] for row in methods.values()} == {"record"}
    assert set(found["refused"]) == {"exponential-grid"}  # it is for one or two parameters
    for name in curators:
        assert 1 < methods[name]["privacy"]["epsilon"] <= 2 + 1e-9
    for name in private:
        assert 1 < methods[name]["privacy"]["epsilon"] <= 2 + 1e-9
    assert methods["not private"]["privacy"]["epsilon"] is None
    assert [methods[name]["rounds_per_user"] for name in private[:3]] == [1, 10, 1]
    for name in (*curators, "local", "not private"):
        assert methods[name]["bits_per_user"] == methods[name]["rounds_per_user"] * 31 * 64
    view = found["simulator_view"]
    for row in (*view["methods"], {"scores": view["constant"]}):
        for score in row["scores"].values():
            assert len(set(score["values"])) > 1
            assert score["mean"] == pytest.approx(np.mean(score["values"]))
            assert score["std"] == pytest.approx(np.std(score["values"], ddof=1))
    assert found == printed(*asked)


def test_a_curator_descends_unless_another_mechanism_is_named(printed):
    asked = ("--table", "breast-cancer", "--trust", "central", "--seed", "1")
    found = printed(*asked)
    assert found == printed(*asked, "--mechanism", "gradient")
    assert found["protocol"]["name"] == "Baseline"
    assert "tuned" in found["protocol"]["choices"]["norm_bound"]
    assert found["simulator_view"]["scores"]["accuracy"] > 0.85
    assert found["trust"] == "central"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (("--table", "breast-cancer"), "CentredObjective"),
        (("--table", "breast-cancer", "--loss", "hinge"), "OutputPerturbation"),
        (("--table", "diabetes", "--loss", "squared"), "PureSGD"),
    ],
)
def test_a_pure_curator_follows_the_rule_of_the_estimators(printed, given, name):
    found = printed(*given, "--trust", "central", "--pure", "--epsilon", "4", "--seed", "1")
    assert found["protocol"]["name"] == name
    assert found["privacy"]["delta"] == 0
    assert 3.9 < found["privacy"]["epsilon"] <= 4


@pytest.mark.full
def test_four_rows_stand_side_by_side_unless_all_are_asked_for(printed, train):
    asked = (*CANCER, "--compare", "--rounds", "5", "--repeats", "3")
    found = printed(*asked)
    rows = [(row["method"], row["trust"]) for row in found["methods"]]
    assert rows == [
        ("shuffle-gd", "shuffle"),
        ("central", "central"),
        ("local", "local"),
        ("not private", "none"),
    ]
    assert found["refused"] == {}
    scores = found["simulator_view"]["methods"][0]["scores"]["accuracy"]["values"]
    error = np.std(scores, ddof=1) / 3**0.5
    _, output, _ = train(*asked)
    assert f"{np.mean(scores):.4g}±{error:.1g}" in output
    code, _, errors = train(*CANCER, "--all")
    assert code == 2
    assert "all = True: must be given with --compare" in errors


WINE = ("--table", "wine", "--classes", "class_0,class_1,class_2", "--epsilon", "4", "--seed", "1")


@pytest.mark.full
def test_three_classes_are_trained_saved_and_used(printed, tmp_path):
    found = printed(*WINE, "--rounds", "8", "--model-out", "m.json")
    assert found["labels"] == "one of 3 classes: class_0 class_1 class_2"
    assert np.shape(found["model"]["weights"]) == (3, 13)
    assert found["simulator_view"]["scores"]["accuracy"] > 0.6
    assert found["privacy"]["epsilon"] <= 4
    model, table = load_model(tmp_path / "m.json"), bundled("wine")
    assert model.classes == (("class_0",), ("class_1",), ("class_2",))
    assert np.mean(model.predict(table.rows) == table.target) > 0.6
    assert model.probabilities(table.rows).sum(axis=1) == pytest.approx(1)


@pytest.mark.full
def test_three_classes_are_compared_by_tuned_steps(printed):
    found = printed(*WINE, "--rounds", "3", "--compare", "--all", "--repeats", "1")
    rows = {row["method"]: row for row in found["methods"]}
    for name in ("central", "local", "not private"):
        assert rows[name]["optimiser"] == "shuffle-gd"
        assert rows[name]["excess_bound"] is None  # nothing is proven of tuned steps
    assert "tuned steps" in found["rule"]
    assert {"shuffle-gd", "shuffle-sgd", "shuffle-acsa", "gibbs"} <= set(rows)
    assert "objective-perturbation" in found["refused"]
    scores = {
        row["method"]: view["scores"]["accuracy"]["mean"]
        for row, view in zip(found["methods"], found["simulator_view"]["methods"], strict=True)
    }
    assert scores["not private"] > 0.85 > scores["local"]


def t_statistic(worse: list[float], better: list[float]) -> float:
    gaps = np.subtract(worse, better)
    return float(gaps.mean() / (gaps.std(ddof=1) / math.sqrt(len(gaps))))


@pytest.mark.slow
def test_the_shuffler_lies_between_a_curator_and_no_trust(printed):
    """Paired t-tests over 16 splits at t > 3.73: false alarm 1e-3 each if two are alike."""
    found = printed(
        "--table",
        "digits",
        *EVEN,
        "--compare",
        "--all",
        "--repeats",
        "16",
        "--rounds",
        "50",
        "--seed",
        "11",
        "--noise-ratio",
        "1.2",
        "--choose",
        "bound",
    )
    losses = {
        row["method"]: view["scores"]["held_out_loss"]["values"]
        for row, view in zip(found["methods"], found["simulator_view"]["methods"], strict=True)
    }
    assert t_statistic(losses["local"], losses["central"]) > 3.73
    assert t_statistic(losses["local"], losses["shuffle-gd"]) > 3.73
    assert t_statistic(losses["shuffle-acsa"], losses["shuffle-gd"]) > 3.73
    assert t_statistic(losses["shuffle-gd"], losses["not private"]) > 3.73
    # Power: the local model's noise under the central model's name would not pass.
    trainer = Trainer.of("logistic", 65, Privacy(1.0, 1e-5), noise_ratio=1.2)
    rows = labelled(bundled("digits"), classes=True, positive=list("02468"))
    planted = []
    for seed in range(16):
        split = Split.of(rows, trainer, 0.2, seed)
        protocol = trainer.protocol("shuffle-gd", len(split.train), rounds=50, trust="central")
        theta = run(Baseline(protocol, "local"), split.train, seed=seed).value
        planted.append(split.scores(theta)["held_out_loss"])
    assert t_statistic(losses["local"], planted) < 3.73


@pytest.mark.full
def test_compare_for_people_names_optimisers_bounds_and_trust(train):
    code, output, errors = train(
        *CANCER,
        "--compare",
        "--all",
        "--repeats",
        "2",
        "--rounds",
        "5",
        "--plot",
        "methods.png",
        "--verbose",
    )
    assert (code, errors) == (0, "")
    words = (
        "shuffle-sgd",
        "shuffle-acsa",
        "shuffle-gd",
        "central",
        "local",
        "not private",
        "best constant",
        "curator",
        "nobody",
        "bits per",
        "2 splits",
        "simulator's own view",
        "bound",
        "promises nothing",
        "Picture: methods.png",
    )
    flat = " ".join(output.split())
    assert [word for word in words if word not in flat] == []


@pytest.mark.parametrize("mode", [[], ["--compare", "--repeats", "1"]], ids=["train", "compare"])
def test_a_picture_is_written_whole_or_not_at_all(train, monkeypatch, tmp_path, mode):
    def full_disk(self, path, **_):
        Path(path).write_bytes(b"\x89PNG")
        raise OSError(28, "No space left on device")

    (tmp_path / "old.png").write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", full_disk)
    code, _, errors = train(*CANCER, "--rounds", "3", "--plot", "old.png", *mode)
    assert code == 2
    assert "No space left on device" in errors
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"old.png": b"old"}


# Bad input

ON = ("--table", "breast-cancer")
BAD = {
    "pure shuffling": ([*ON, "--pure"], "no view of a shuffler is purely private"),
    "pilot of a shuffler": ([*ON, "--pilot"], "given with --trust central"),
    "a moment's form": ([*ON, "--trust", "central", "--moment", "4"], "K:G"),
    "moments out of order": ([*ON, "--trust", "central", "--moment", "4:1:2"], "G_1 <= G_2"),
    "moment below 2": ([*ON, "--trust", "central", "--moment", "1.5:1"], "k = 1.5"),
    "two ways of tails": (
        [*ON, "--trust", "central", "--moment", "4:1", "--pilot"],
        "left out with a pilot",
    ),
    "messages of a curator": (
        [*ON, "--trust", "central", "--max-bits", "9"],
        "left out with --trust central",
    ),
    "no trust": ([*ON, "--trust", "local"], "--compare shows all models of trust"),
    "a curator's protocol": (
        [*ON, "--trust", "central", "--mechanism", "shuffle-gd"],
        "heavy-tailed-erm",
    ),
    "no table": ([], "exactly one of the two"),
    "no label of a file": (["--file", "people.csv", "--bounds", "0:9"], "the column to predict"),
    "label of a bundled table": ([*ON, "--label", "x"], "used with --file"),
    "three classes": (["--table", "wine"], "'3 classes': must be of two classes"),
    "unknown class": (["--table", "wine", "--positive", "class_9"], "one of the classes"),
    "numbers for a loss of classes": (["--table", "diabetes"], "loss for numbers"),
    "classes for a loss of numbers": ([*ON, "--loss", "squared"], "public bounds"),
    "unknown loss": ([*ON, "--loss", "l2"], "one of absolute, hinge"),
    "quantile of another loss": ([*ON, "--quantile", "0.3"], "logistic has none"),
    "quantile out of range": (
        ["--table", "diabetes", "--loss", "pinball", "--quantile", "1.5"],
        "quantile",
    ),
    "not an optimiser": ([*ON, "--protocol", "vector-sum"], "an optimiser"),
    "unknown protocol": (
        [*ON, "--protocol", "sgd"],
        "one of shuffle-acsa, shuffle-gd, shuffle-sgd",
    ),
    "a limit on seals without seals": (
        [*ON, "--sealing-seconds", "9"],
        "used with --security onion",
    ),
    "seals that take too long": (
        [*ON, "--security", "onion", "--sealing-seconds", "0.01"],
        "s to seal and open",
    ),
    "seals on no messages": (
        [*ON, "--security", "onion", "--compare"],
        "no messages are there to be sealed",
    ),
    "unknown hyper": ([*ON, "--hyper", "best"], "calibrated, paper"),
    "unknown choose": ([*ON, "--choose", "best"], "one of practice, bound"),
    "paper that is tuned": ([*ON, "--hyper", "paper", "--choose", "practice"], "--choose bound"),
    "paper with bits": ([*ON, "--hyper", "paper", "--max-bits", "40"], "used without"),
    "more rounds than users": (
        [*ON, "--protocol", "shuffle-sgd", "--rounds", "456"],
        "each of 455 users answers once",
    ),
    "batch above n": (
        [*ON, "--protocol", "shuffle-sgd", "--batch", "456"],
        "batch = 456: must be an integer from 1 to 455",
    ),
    "batch of gd": ([*ON, "--batch", "30"], "does not take it"),
    "no rounds": ([*ON, "--rounds", "0"], "from 1"),
    "eta of acsa": ([*ON, "--protocol", "shuffle-acsa", "--eta", "1"], "does not take it"),
    "phases without a ridge": ([*ON, "--phases", "2"], "take a ridge"),
    "rounds in phases": (
        [*ON, "--phases", "2", "--ridge", "1", "--rounds", "3"],
        "does not take it",
    ),
    "a mechanism without a curator": ([*ON, "--mechanism", "gibbs"], "used with --trust central"),
    "an unknown mechanism": (
        [*ON, "--trust", "central", "--mechanism", "magic"],
        "heavy-tailed-erm, localised-exponential, objective-perturbation",
    ),
    "rounds of a curator": ([*ON, "--trust", "central", "--rounds", "3"], "one release"),
    "a trust that is compared only": ([*ON, "--trust", "local"], "--compare shows all"),
    "a mechanism of compare": ([*ON, "--compare", "--mechanism", "gibbs"], "left out"),
    "negative phases": ([*ON, "--phases", "-1", "--ridge", "1"], "phases"),
    "ratio and bits": ([*ON, "--noise-ratio", "1.2", "--max-bits", "60"], "not both"),
    "too few bits": ([*ON, "--max-bits", "0.5", "--rounds", "5"], "max_bits"),
    "radius": ([*ON, "--radius", "-1"], "radius"),
    "infinite radius": (["--table", "diabetes", "--loss", "squared", "--radius", "inf"], "radius"),
    "ridge": ([*ON, "--ridge", "nan"], "ridge"),
    "norm bound": ([*ON, "--norm-bound", "0"], "norm_bound"),
    "test fraction": ([*ON, "--test-fraction", "1"], "test_fraction"),
    "epsilon": ([*ON, "--epsilon", "0"], "epsilon"),
    "seed": ([*ON, "--seed", "-1"], "seed"),
    "seed of compare": ([*ON, "--seed", "-1", "--compare"], "seed"),
    "runtime": ([*ON, "--runtime", "spark"], "inprocess, processes, ray"),
    "workers": ([*ON, "--workers", "456", "--rounds", "2"], "number of users"),
    "repeats alone": ([*ON, "--repeats", "3"], "given with --compare"),
    "no repeats": ([*ON, "--compare", "--repeats", "0"], "repeats"),
    "protocol of compare": (
        [*ON, "--compare", "--protocol", "shuffle-gd"],
        "left out with --compare",
    ),
    "model in no folder": ([*ON, "--model-out", "no/m.json"], "existing folder"),
    "model of another kind": ([*ON, "--model-out", "m.pickle"], ".json"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.full
def test_bad_input_gives_one_line_and_code_2_and_writes_nothing(train, tmp_path, case):
    (tmp_path / "people.csv").write_text("a,b\n1,2\n2,3\n")
    arguments, words = BAD[case]
    extra = (
        [] if "--compare" in arguments or "--model-out" in arguments else ["--model-out", "m.json"]
    )
    code, output, errors = train(*arguments, *extra, "--plot", "p.png")
    assert (code, output) == (2, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("shuffle-sim: error: ")
    assert words in errors
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


def test_another_thing_than_a_linear_loss_is_refused():
    with pytest.raises(ParameterError, match="a LinearLoss"):
        Trainer("logistic", 3, Privacy(1.0, 1e-5))


@pytest.mark.full
def test_training_that_is_resumed_gives_the_same_model(train, printed, tmp_path):
    how = (
        "--table",
        "breast-cancer",
        "--fidelity",
        "aggregate",
        "--noise-ratio",
        "1.3",
        "--rounds",
        "20",
        "--checkpoint",
        "run",
    )
    first = printed(*how)
    journal, found = tmp_path / "run" / FILE, records(tmp_path / "run" / FILE)
    journal.write_bytes(b"".join(found[:10]))  # as it was in the middle of the fifth round
    assert printed(*how, "--resume") == first
    assert journal.read_bytes() == b"".join(found)
    assert stat.S_IMODE((tmp_path / "run" / "split").stat().st_mode) == 0o600
    for arguments in (
        (*how,),
        (*how, "--resume", "--compare"),
        (*how, "--resume", "--rounds", "21"),
        (*how[:-1], "no", "--resume"),
    ):
        code, _, errors = train(*arguments)
        assert (code, len(errors.splitlines())) == (2, 1)
    assert not (tmp_path / "no").exists()
