"""Encodings: which are found, what is chosen, and that optimisers and baselines take each."""

from typing import Any

import numpy as np
import pytest

from protocols import CarryVectorSum, ShuffleACSA, ShuffleGD, ShuffleSGD, VectorSum
from protocols.learning.baselines import Baseline
from protocols.learning.training import Trainer
from protocols.optimisation import Phased
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import choose, encodings

NUMBERS = "carry", "unary"
"""Encodings of each number by itself: buckets take rotated vectors."""
PRIVACY, D, N = Privacy(1.0, 1e-6), 3, 900
PROBLEM = Problem(Logistic(), L2Ball(D, 2.0), ridge=0.1)


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return np.c_[x, np.where(x[:, 0] > 0, 1.0, -1.0)]


def test_both_encodings_are_found_for_scalars_and_vectors():
    every = {"carry": "carry-vector-sum", "unary": "vector-sum", "buckets": "sparse-vector-sum"}
    assert encodings() == every
    found = {"carry": "carry-scalar-sum", "unary": "scalar-sum", "laplace": "laplace-scalar-sum"}
    assert encodings(scalar=True) == found


@pytest.mark.parametrize(("n", "d", "rounds"), [(10_000, 10, 1), (500, 31, 50), (100, 2, 1)])
def test_the_fewest_bits_are_chosen_and_keep_the_noise(n, d, rounds):
    spec = SumSpec(n, d, PRIVACY, rounds)
    name, plan = choose(spec, 1.1)
    of = {each: choose(spec, 1.1, None, each)[1] for each in NUMBERS}
    assert name == "carry-vector-sum"
    assert plan == of["carry"]
    assert plan.bits < of["unary"].bits
    assert plan.noise_ratio <= 1.1
    assert plan.epsilon <= 1.0


def test_within_bits_the_least_noise_is_chosen():
    spec = SumSpec(2_000, 5, PRIVACY)
    _, best = choose(spec, None, 20)
    others = [choose(spec, None, 20, each)[1] for each in NUMBERS]
    assert best.noise_ratio == min(each.noise_ratio for each in others)
    assert all(each.bits <= 20 for each in others)


def test_where_carries_prove_nothing_numbers_go_in_unary():
    name, plan = choose(SumSpec(1, 1, PRIVACY), 1.05)
    assert name == "vector-sum"
    assert plan.epsilon <= 1.0
    with pytest.raises(ParameterError, match=r"n = 1: must be more"):
        choose(SumSpec(1, 1, PRIVACY), 1.05, None, "carry")


@pytest.mark.parametrize(
    ("wish", "match"),
    [
        ({"encoding": "binary", "noise_ratio": 1.1}, "one of carry, buckets, unary"),
        ({}, "exactly one"),
        ({"noise_ratio": 1.1, "max_bits": 9}, "exactly one"),
        ({"max_bits": 0}, "max_bits"),
        ({"noise_ratio": 0.5}, "noise_ratio"),
    ],
)
def test_what_cannot_be_chosen_is_refused(wish, match):
    with pytest.raises(ParameterError, match=match):
        choose(SumSpec(1000, 2, PRIVACY), **wish)


OPTIMISERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gd": (ShuffleGD, {"rounds": 3}),
    "sgd": (ShuffleSGD, {"batch": 300}),
    "acsa": (ShuffleACSA, {"batch": 300}),
    "phases": (Phased, {"optimiser": ShuffleSGD, "phases": 2}),
}


@pytest.mark.parametrize("encoding", ["carry", "unary", None])
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.full
def test_every_optimiser_takes_every_encoding(name, encoding):
    kind, given = OPTIMISERS[name]
    made = kind.calibrated(
        n=N, problem=PROBLEM, privacy=PRIVACY, noise_ratio=1.2, encoding=encoding, **given
    )
    phases = made.phases if isinstance(made, Phased) else (made,)
    wanted = VectorSum if encoding == "unary" else CarryVectorSum
    assert all(type(each.mean.sum) is wanted for each in phases)
    for fidelity in ("literal", "counts", "aggregate"):
        result = run(made, rows(), fidelity=fidelity, seed=1)
        assert result.privacy.epsilon <= 1.0
        assert result.costs.payload_bits_per_user == max(
            each.mean.randomizer.report_bits for each in phases
        )


def test_the_chosen_encoding_is_told_with_its_bits():
    made = ShuffleGD.calibrated(n=N, problem=PROBLEM, privacy=PRIVACY, rounds=2)
    bits = made.mean.sum.bits
    assert made.choices["encoding"] == f"carry: {bits} bits per user, coordinate and round"
    smooth = Problem(Logistic(), L2Ball(D, 2.0))
    paper = ShuffleSGD.paper(n=N, problem=smooth, privacy=PRIVACY, batch=300)
    assert paper.choices["encoding"].startswith("unary")


def test_a_baseline_translates_rounds_by_carries():
    made = ShuffleGD.calibrated(n=N, problem=PROBLEM, privacy=PRIVACY, rounds=2, trust="central")
    result = run(Baseline(made, "central"), rows(), seed=1)
    assert result.trust == "central"
    assert result.privacy.epsilon <= 1.0


@pytest.mark.parametrize("encoding", ["carry", "unary"])
def test_bits_allowed_are_kept(encoding):
    trainer = Trainer(Logistic(), D, PRIVACY, max_bits=30, encoding=encoding)
    made = trainer.protocol("shuffle-gd", N, rounds=4)
    assert isinstance(made, ShuffleGD)
    assert made.mean.sum.encoding == encoding
    assert made.mean.sum.bits <= 30


def test_an_encoding_is_refused_beside_the_papers_constants():
    trainer = Trainer(Logistic(), D, PRIVACY, encoding="unary")
    with pytest.raises(ParameterError, match="encoding"):
        trainer.protocol("shuffle-gd", N, hyper="paper")
