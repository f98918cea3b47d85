"""`shuffle-sim cost` and `compare`: forecasts and errors are those of runs."""

import json
import math
from typing import Any

import numpy as np
import pytest

from protocols import HeavyHitters, L2Ball, Logistic, Problem, ScalarSum, ShuffleGD, VectorSum
from protocols.comparison.methods import sum_methods
from protocols.comparison.training import training_methods
from protocols.learning.training import Trainer
from protocols.shuffle.sgd import ShuffleSGD
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.one_round import OneRoundSum
from protocols.sums.single_message import SingleMessageSum
from protocols.sums.split_mix_sum import SplitAndMixSum
from shuffle_sim import ParameterError, Privacy, registry, run
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli.app import app
from shuffle_sim.execution.forecast import corollary, forecast
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.task import walked

POINT = Privacy(1.0, 1e-6)


def command(*words: str, capsys) -> str:
    assert not app(list(words), standalone_mode=False)
    return capsys.readouterr().out


@pytest.mark.parametrize("security", ["none", "transport", "onion"])
@pytest.mark.parametrize(
    "protocol", [VectorSum(n=90, d=3, g=2, b=3), SplitAndMixSum.calibrated(n=40, privacy=POINT)]
)
@pytest.mark.full
def test_a_literal_run_counts_what_was_forecast(protocol, security):
    found = forecast(protocol, security=security)
    shape = (protocol.users, protocol.d) if hasattr(protocol, "d") else (protocol.users,)
    costs = run(protocol, np.zeros(shape), seed=1, fidelity="literal", security=security).costs
    assert costs.measured
    assert [hop.wire for hop in found.hops] == [
        costs.wire_bytes,
        costs.view_bytes,
        costs.broadcast_bytes,
    ]
    assert sum(hop.sealing for hop in found.hops) == costs.sealing_bytes
    assert (found.messages, found.payload_bits, found.label_bits) == (
        costs.messages_per_user,
        costs.payload_bits_per_user,
        costs.label_bits_per_user,
    )
    assert (found.seconds > 0) == (security == "onion")


def test_rounds_of_several_sizes_add_up_to_what_a_user_sends(capsys):
    words = "cost", "--n", "3000", "--protocol", "heavy-hitters", "--bits", "32"
    found = json.loads(command(*words, "--json", capsys=capsys))["forecast"]
    specs = list(walked(HeavyHitters.calibrated(n=3000, bits=32, privacy=POINT)))
    for name in ("messages", "bits"):
        each = [getattr(spec.randomizer, f"usual_{name}") for spec in specs]
        assert len(set(each)) > 1  # the control
        own = name.replace("bits", "payload_bits")
        assert found[own] == max(each)
        assert found[f"user_{own}"] == pytest.approx(sum(each))
    printed = command(*words, capsys=capsys)
    assert f"{round(found['user_messages'], 2):,}" in printed
    assert f"{round(found['user_payload_bits'], 2):,}" in printed


@pytest.mark.parametrize(
    ("name", "sequential"), [("shuffle-sgd", True), ("shuffle-acsa", True), ("shuffle-gd", False)]
)
@pytest.mark.full
def test_optimisers_are_walked_through_round_by_round(name, sequential):
    trainer = Trainer.of("logistic", 3, POINT)
    protocol = trainer.protocol(name, 600, rounds=5)
    found = forecast(protocol)
    rows = np.column_stack([np.full((600, 3), 0.3), np.ones(600)])
    result = run(protocol, rows, seed=1, fidelity="literal")
    assert found.rounds == result.rounds == 5
    assert found.sequential is sequential
    assert found.participation == (1 if sequential else 5)
    assert found.asked == result.reports.asked
    assert [hop.wire for hop in found.hops] == [
        result.costs.wire_bytes,
        result.costs.view_bytes,
        result.costs.broadcast_bytes,
    ]


def test_plain_wire_bytes_are_at_most_a_tenth_above_the_payload():
    protocol = VectorSum.calibrated(n=10_000, d=10, privacy=POINT, noise_ratio=1.05)
    assert protocol.randomizer.report_bits == 580
    costs = run(protocol, np.zeros((10_000, 10)), seed=1, fidelity="literal").costs
    payload = 10_000 * 580 / 8
    assert payload <= costs.wire_bytes <= 1.1 * payload
    assert payload <= costs.view_bytes <= 1.1 * payload


def test_the_corollary_is_the_bracket_times_the_rounds():
    found = forecast(ScalarSum(n=100, g=4, b=6))
    assert corollary(found, 1, 2.0, 1e-6) == pytest.approx(10 + math.log(1e6) / 4)
    gd = forecast(Trainer.of("logistic", 3, POINT).protocol("shuffle-gd", 100, rounds=7))
    assert corollary(gd, 3, 1.0, 1e-6) == pytest.approx(7 * 3 * (10 + math.log(1e6)))


def test_what_is_printed_is_counted_as_a_run_would_count_it():
    """Beside the forecast of the smallest runs that can be made at all, and far beyond them."""
    problem = Problem(Logistic(), L2Ball(2, 1.0))
    for n in (30, 300):
        case = {"n": n, "privacy": Privacy(1.0, 1e-6)}
        found = forecast(ShuffleGD.paper(problem=problem, **case))
        printed = ShuffleGD.printed_cost(d=2, **case)
        assert (found.rounds, found.messages) == (printed.rounds, printed.messages)
        assert found.user_payload_bits == printed.bits
    for n, d in ((10**4, 10), (10**6, 3), (10**9, 100)):
        far = ShuffleGD.printed_cost(n=n, d=d, privacy=Privacy(1.0, 1e-6))
        log = math.log(n * d * 1e6)
        assert far.rounds == min(n, math.floor(n**2 / (d * log**2)))
        assert far.epsilon == pytest.approx(1 / math.sqrt(8 * far.rounds * math.log(1e6)))
        assert far.bits == far.rounds * far.messages > 1e18


def test_cost_counts_what_is_printed_or_says_why_not(capsys):
    words = ["cost", "--n", "100000", "--d", "10", "--protocol", "shuffle-gd", "--rounds", "2"]
    assert "100,000 rounds of 20,351,230,962,618,040" in command(*words, capsys=capsys)
    found = json.loads(command(*words, "--json", capsys=capsys))
    assert found["printed"]["bits"] == 100_000 * found["printed"]["messages"]
    assert found["refused"] == ""
    refused = json.loads(command(*words, "--delta", "0.1", "--json", capsys=capsys))
    assert refused["printed"] is None
    assert "spend" in refused["refused"]
    assert refused["forecast"]["rounds"] == 2


@pytest.mark.parametrize("name", ["scalar-sum", "split-and-mix", "shuffle-gd"])
@pytest.mark.full
def test_cost_speaks_to_people_and_machines(name, capsys):
    words = [
        "cost",
        "--n",
        "300",
        "--protocol",
        name,
        *(["--d", "2", "--rounds", "3"] if name == "shuffle-gd" else []),
    ]
    printed = command(*words, "--verbose", capsys=capsys)
    assert "users to shuffler" in printed
    compared = {"scalar-sum": "section 3.1", "shuffle-gd": "Corollary B.11", "split-and-mix": None}[
        name
    ]
    assert (" of the paper" in printed) == (compared is not None)
    assert (compared or "") in printed
    found = json.loads(command(*words, "--json", "--security", "transport", capsys=capsys))
    assert (found["paper"] or {"where": None})["where"] == compared
    assert found["forecast"]["rounds"] == (3 if name == "shuffle-gd" else 1)
    assert found["wire_bytes"]["users to shuffler"] > 0
    assert found["forecast"]["hops"][0]["sealing"] > 0


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--n", "0"], "n"),
        (["--n", "100", "--protocol", "nothing"], "protocol"),
        (["--n", "100", "--security", "tls"], "security"),
        (["--n", "100", "--d", "2", "--protocol", "split-and-mix"], "d"),
        (["--n", "100", "--rounds", "3"], "rounds"),
        (["--n", "100", "--batch", "3"], "batch"),
        (["--n", "100", "--loss", "hinge"], "loss"),
        (["--n", "100", "--protocol", "split-and-mix", "--noise-ratio", "1.1"], "noise_ratio"),
        (["--n", "100", "--protocol", "single-message", "--max-bits", "11"], "max_bits"),
        (["--n", "100", "--noise-ratio", "1.1", "--max-bits", "20"], "noise_ratio, max_bits"),
        (["--n", "100", "--d", "2", "--protocol", "shuffle-sgd", "--batch", "101"], "batch"),
    ],
)
def test_cost_names_what_is_wrong(words, name):
    with pytest.raises(ParameterError) as caught:
        app(["cost", *words], standalone_mode=False)
    assert caught.value.parameter == name


@pytest.fixture(scope="module")
def scalar():
    return sum_methods(2000, 1, POINT, 20)


@pytest.mark.full
def test_every_sum_is_compared_with_its_error(scalar):
    first = {method.name: method for method in reversed(scalar)}
    assert first.pop("buckets").refused  # of many coordinates
    scalar = [method for method in scalar if method.name != "buckets"]
    sums = {"binomial", "carries", "floods", "split and mix", "single message"}
    assert set(first) == sums | {"central", "local"}
    central = first["central"]
    for method in scalar:
        assert not method.refused
        assert method.attacked > method.error
        if method.name in ("binomial", "carries") and not method.paper:
            assert 1 < method.error / central.error <= float(method.setting.split()[0])
    assert [method.name for method in scalar if method.paper] == ["binomial", "single message"]
    assert first["split and mix"].error == pytest.approx(math.sqrt(2), rel=1e-3)
    assert first["local"].error == pytest.approx(central.error * math.sqrt(2000))
    assert [first[name].trust for name in ("binomial", "central", "local")] == [
        Trust.SHUFFLE,
        Trust.CENTRAL,
        Trust.LOCAL,
    ]
    assert {method.unit for method in scalar} == {"record"}


RUNS = 250


def farthest_from_the_grid(randomizer, d):
    """Where rounding is at its worst: between two steps, near the middle of the range."""
    steps = getattr(randomizer, "g", None) or getattr(randomizer, "steps", 1)
    place = (steps // 2 + 0.5) / steps
    return np.full((2000, d), 2 * place - 1) if d > 1 else np.full(2000, place)


def mean_square(protocol, xs, bias=0.0):
    """Of the errors of runs, over all coordinates."""
    values = [run(protocol, xs, fidelity="aggregate", seed=seed).value for seed in range(RUNS)]
    return float(np.square(np.array(values) + bias - xs.sum(axis=0)).mean()) * (
        1 if xs.ndim == 1 else xs.shape[1]
    )


@pytest.mark.slow_parameters("1")
@pytest.mark.full
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.long
def test_errors_are_those_of_runs(d):
    """Of every sum that is compared; false-alarm rate 1e-6 each (normal limit)."""
    for method in sum_methods(2000, d, POINT, 20):
        protocol: Any = method.algorithm
        tight = method.name in ("binomial", "carries") and not method.paper
        shown = not tight or method.setting.startswith(("1.05", "2 "))
        if protocol is None or method.trust is not Trust.SHUFFLE or not shown:
            continue
        xs = farthest_from_the_grid(protocol.randomizer, d)
        # A square's variance is twice its mean squared for normal noise, five times for Laplace's.
        tolerance = 4.9 * math.sqrt((5 if method.name == "split and mix" else 2) / (RUNS * d))
        found = mean_square(protocol, xs)
        assert abs(found / method.error**2 - 1) < tolerance, method.title
        if tight:  # power: the sum is off by its standard error
            biased = mean_square(protocol, xs, bias=math.sqrt(found / d))
            assert biased / method.error**2 - 1 > tolerance
        assert method.attacked == pytest.approx(
            math.hypot(method.error, protocol.randomizer.manipulation(20, 2000))
        )


@pytest.mark.full
def test_vectors_and_refusals_are_told(capsys):
    found = json.loads(command("compare", "--n", "1000", "--d", "3", "--json", capsys=capsys))
    assert found["attackers"] == 10
    shown = {method["name"]: method for method in found["methods"]}
    assert "scalars only" in shown["single message"]["refused"]
    assert shown["local"]["attacked"] is None
    few = command("compare", "--n", "12", "--epsilon", "0.5", capsys=capsys)
    assert "split and mix, security 2^-40: refused" in few


# What others register


class Plain(OneRoundSum):
    """A sum that says nothing of itself but how it is calibrated."""

    scalar, sensitivity = True, 1.0

    @classmethod
    def calibrated(cls, *, n, privacy):
        return cls(n, BinomialRandomizer(1, 4, 60, 0.5, 0.0, 1.0), privacy.delta, 1.0)


class Careful(ShuffleSGD):
    """An optimiser whose bound is larger than that of any other."""

    possible = True

    @classmethod
    def calibrated(cls, *, n, problem, privacy, **given):
        if not cls.possible:
            raise ParameterError("n", n, "larger")
        made = super().calibrated(n=n, problem=problem, privacy=privacy, **given)
        made.bound = 1e9
        return made


@pytest.fixture
def others(monkeypatch, tmp_path):
    """A package that registers a sum and an optimiser by entry points alone."""
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[shuffle_sim.protocols]\nplain = {__name__}:Plain\ncareful = {__name__}:Careful\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry._entries.cache_clear()
    yield
    monkeypatch.undo()
    registry._entries.cache_clear()


@pytest.mark.usefixtures("others")
@pytest.mark.full
def test_a_sum_of_others_comes_by_its_entry_point(capsys):
    found = json.loads(command("compare", "--n", "1000", "--json", capsys=capsys))
    (shown,) = (method for method in found["methods"] if method["name"] == "plain")
    assert (shown["setting"], shown["trust"], shown["bits"]) == ("calibrated", "shuffle", 64)
    randomizer = Plain.calibrated(n=1000, privacy=POINT).randomizer
    assert shown["error"] == pytest.approx(math.sqrt(randomizer.variance(1000)[0]))
    vectors = json.loads(command("compare", "--n", "100", "--d", "2", "--json", capsys=capsys))
    assert any(method["name"] == "plain" and method["refused"] for method in vectors["methods"])
    cost = command("cost", "--n", "1000", "--protocol", "plain", "--json", capsys=capsys)
    assert json.loads(cost)["forecast"]["payload_bits"] == 64
    assert json.loads(cost)["paper"] is None


@pytest.mark.usefixtures("others")
@pytest.mark.full
def test_an_optimiser_of_others_is_a_row_of_its_own(capsys):
    trainer = Trainer.of("logistic", 3, POINT)
    methods = {method.name: method for method in training_methods(trainer, 400, 5)}
    shuffled = {name for name, method in methods.items() if method.trust is Trust.SHUFFLE}
    assert shuffled == set(trainer.optimisers())
    assert {"central", "local", "not private"} < set(methods)
    assert methods["careful"].bound == 1e9
    bounds = {
        name: trainer.protocol(
            name, 400, trust="central", rounds=5 if name == "shuffle-gd" else None
        ).bound
        for name in trainer.optimisers()
    }
    assert methods["central"].bound == min(bounds.values()) == bounds[methods["central"].setting]
    for name in trainer.optimisers():
        method = methods[name]
        found = forecast(method.algorithm)
        assert (method.bits, method.trust) == (found.user_payload_bits, Trust.SHUFFLE)
    words = ["cost", "--n", "400", "--d", "3", "--protocol", "careful", "--json"]
    assert json.loads(command(*words, capsys=capsys))["forecast"]["rounds"] > 0


@pytest.mark.usefixtures("others")
@pytest.mark.full
def test_an_optimiser_that_cannot_be_had_is_refused_alone(monkeypatch):
    monkeypatch.setattr(Careful, "possible", False)
    trainer = Trainer.of("logistic", 3, POINT)
    methods = {method.name: method for method in training_methods(trainer, 400, 5)}
    assert "larger" in methods["careful"].refused
    assert not methods["shuffle-sgd"].refused
    monkeypatch.setattr(type(trainer), "optimisers", lambda _: ["careful"])
    with pytest.raises(ParameterError, match="larger"):
        training_methods(trainer, 400)


@pytest.mark.full
def test_the_picture_is_written_whole(tmp_path, capsys):
    command(
        "compare", "--n", "500", "--d", "2", "--plot", str(tmp_path / "axis.png"), capsys=capsys
    )
    assert (tmp_path / "axis.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["axis.png"]


@pytest.mark.parametrize(
    ("words", "name"),
    [(["--malicious", "0.7"], "malicious"), (["--n", "0"], "n"), (["--plot", "x.gif"], "plot")],
)
def test_compare_names_what_is_wrong(words, name):
    with pytest.raises(ParameterError) as caught:
        app(["compare", *words], standalone_mode=False)
    assert caught.value.parameter == name


@pytest.mark.slow_parameters("single message")
@pytest.mark.parametrize("name", ["tight", "single message"])
@pytest.mark.full
def test_attackers_move_the_sum_as_far_as_the_table_says(name):
    """Twenty of 2,000 users send only ones, or the largest symbol; false-alarm rate 1e-6."""
    protocol = (
        ScalarSum.calibrated(n=2000, privacy=POINT, noise_ratio=1.1)
        if name == "tight"
        else SingleMessageSum(n=2000, steps=1, gamma=0.2)
    )
    runs = [
        run(
            protocol,
            np.zeros(2000),
            fidelity="counts",
            seed=i,
            adversary=attacks(["ones:fraction=0.01"]),
        )
        for i in range(40)
    ]
    attackers = np.mean([each.reports.corrupted for each in runs])
    moved = np.mean([each.value for each in runs])
    spread = protocol.standard_error + protocol.randomizer.manipulation(1, 2000) * math.sqrt(20)
    assert abs(
        moved - protocol.randomizer.manipulation(1, 2000) * attackers
    ) < 4.9 * spread / math.sqrt(40)
    assert moved > 0.7 * protocol.randomizer.manipulation(20, 2000)


@pytest.mark.full
def test_cost_says_when_a_run_would_refuse_to_seal(capsys):
    small = command("cost", "--n", "100", "--security", "onion", capsys=capsys)
    large = command("cost", "--n", "100000", "--d", "10", "--security", "onion", capsys=capsys)
    assert "Sealing and opening" in small
    assert "refuses" not in small
    assert "A run refuses a round of more than 600 s" in large
