"""Attacks do what the field says they do, at every fidelity, by name; privacy, accounts and
estimates stay what they claim.
"""

import ast
import inspect
import json
import math
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from itertools import product

import numpy as np
import pytest
from runs import run
from scipy import stats
from scipy.special import ndtri

from protocols import CarryVectorSum, LaplaceScalarSum, ScalarSum, SparseVectorSum, VectorSum
from protocols.learning.target_model import logistic
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.carry import CarryRandomizer
from shuffle_sim import Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.attacks import inputs
from shuffle_sim.attacks.catalogue import attack, attacks
from shuffle_sim.attacks.dropouts import ChosenDropout
from shuffle_sim.attacks.outputs import Collude, Impostor, Twice
from shuffle_sim.attacks.studies import Reach, manipulation_study, privacy_study, training_study
from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.auditing.audit import empirical_epsilon
from shuffle_sim.cli.app import main
from shuffle_sim.errors import ParameterError, RoundAbortedError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.privacy.bounds import binomial
from shuffle_sim.privacy.bounds.honesty import least_honest_fraction
from shuffle_sim.protocol.adversary import Adversary, AttackContext, Chain, Coalition, Dropout
from shuffle_sim.protocol.base import Datum
from shuffle_sim.roles import FIDELITIES
from shuffle_sim.wire.messages import Tally

N, D = 200, 3
PROTOCOL = VectorSum(n=N, d=D, g=4, b=9)
ROWS = np.random.default_rng(0).normal(size=(N, D)) / 4
SHIPPED = {entry.name: entry.load() for entry in entry_points(group="shuffle_sim.attacks")}
SILENT = ("dropout", "leave", "blackout", "cut-off", "chosen-dropout")


def named(name: str, share: float = 0.3, **options) -> Adversary:
    """The attack by name on a share of the users."""
    key = "rate" if "rate" in inspect.signature(SHIPPED[name]).parameters else "fraction"
    return attack({"name": name, key: share, **options})


def attacked(adversary: Adversary, **how):
    return run(PROTOCOL, ROWS, adversary=adversary, **how)


def balanced(result):
    a = result.reports
    assert a.asked + a.extra == a.accepted + sum(a.dropped.values()) + a.missing
    return a


# The library


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.full
def test_an_attack_is_under_twenty_lines(name):
    tree = ast.parse(textwrap.dedent(inspect.getsource(SHIPPED[name])))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    assert len(ast.unparse(tree).splitlines()) < 20


DROPPED = {
    "extra-bits": {"wrong-length"},
    "missing-bits": {"wrong-length"},
    "out-of-range": {"nonzero-padding"},
    "garbage": {"malformed", "truncated", "oversized"},
    "oversized": {"oversized"},
    "twice": {"too-many-reports"},
    "impostor": {"wrong-kind"},
}
"""Why the reports of these are dropped; those of the others are well formed."""


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.full
def test_every_attack_is_accounted_for_and_its_noise_is_not(name, fidelity):
    result = attacked(named(name), fidelity=fidelity, seed=3, block_size=16)
    a = balanced(result)
    assert 20 < a.corrupted < 100
    assert set(a.dropped) <= DROPPED.get(name, set())
    assert bool(a.dropped) == (name in DROPPED)
    assert a.missing == (a.corrupted if name in SILENT else 0)
    assert a.extra == (a.corrupted if name == "twice" else 0)
    honest = PROTOCOL.randomizer.event(N - a.corrupted, Datum())
    (charge,) = result.ledger._settled.values()
    assert charge.event == honest


def everything() -> Adversary:
    return Chain(*(named(name, 0.05) for name in SHIPPED))


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.full
def test_all_attacks_give_the_same_bits_on_any_workers(fidelity):
    how = {"fidelity": fidelity, "seed": 5, "block_size": 16}
    results = [attacked(everything(), workers=workers, **how) for workers in (1, 3)]
    if fidelity == "literal":  # and in three shards of the shuffler
        results.append(attacked(everything(), shuffler_shards=3, **how))
    assert len({r.value.tobytes() for r in results}) == 1
    assert all(balanced(r) == balanced(results[0]) for r in results)
    assert len(results[0].reports.dropped) >= 5


@pytest.mark.full
def test_a_coalition_stays_in_every_round_and_dropouts_do_not():
    class Notes(Coalition):
        def __init__(self, fraction):
            super().__init__(fraction)
            self.seen = Counter()

        def report(self, user, x, call_next, rng):
            self.seen[user] += 1
            return call_next(x)

    class Restless(Notes):
        lasting = False

    target_model = Problem(Logistic(), L2Ball(2, 1.0))
    rows = np.column_stack([np.zeros((40, 2)), np.ones(40)])
    from protocols.shuffle.gd import ShuffleGD

    protocol = ShuffleGD.calibrated(
        n=40, problem=target_model, privacy=Privacy(1.0, 1e-6), rounds=8
    )
    lasting, restless = Notes(0.4), Restless(0.4)
    for adversary in (lasting, restless):
        run(protocol, rows, seed=1, adversary=adversary, fidelity="aggregate")
    assert set(lasting.seen.values()) == {8}
    assert 4 < len(lasting.seen) < 32
    assert len(restless.seen) > 32
    assert min(restless.seen.values()) < 8


def test_the_first_of_a_chain_wraps_the_second():
    class Says(Adversary):
        def __init__(self, word, log):
            self.word, self.log = word, log

        def corrupt(self, round_index, users, rng):
            return users[users == 7]

        def values(self, context, xs, rng):
            self.log.append(("values", self.word))
            return xs

        def report(self, user, x, call_next, rng):
            self.log.append(("before", self.word))
            report = call_next(x)
            self.log.append(("after", self.word))
            return report

    log = []
    attacked(Chain(Says("a", log), Chain(Says("b", log), Says("c", log))), seed=1)
    words = (
        [("values", w) for w in "abc"]
        + [("before", w) for w in "abc"]
        + [("after", w) for w in "cba"]
    )
    assert log == words


def test_a_chain_of_nobody_corrupts_nobody():
    assert attacks([]) is None
    alone, chained = (attacked(adversary, seed=1) for adversary in (None, Chain()))
    assert alone.value.tobytes() == chained.value.tobytes()
    assert alone.reports == chained.reports


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ones:fraction=1", {"fraction": 1.0}),
        ("scaling:fraction=0.5,factor=-3", {"fraction": 0.5, "factor": -3.0}),
        (" alie : fraction = 1e-1 , knows = all", {"fraction": 0.1, "knows": "all"}),
        ({"name": "chosen-dropout", "rate": 0.2, "by": "norm"}, {"rate": 0.2, "by": "norm"}),
    ],
)
def test_attacks_are_made_by_name(spec, expected):
    if isinstance(spec, str):
        spec = spec.replace(" : ", ":").strip()
    assert {key: getattr(attack(spec), key) for key in expected} == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("signflip:fraction=0.1", "one of alie, blackout, chosen-dropout"),
        ({"fraction": 0.1}, "attack = None: must be one of alie"),
        ("sign-flip", "sign-flip: fraction = None: must be given"),
        ("sign-flip:fraction=1.1", r"fraction = 1.1: must be a finite number in \[0, 1\]"),
        ("sign-flip:fraction=-0.1", r"fraction = -0.1"),
        ("sign-flip:fraction=nan", "fraction = nan"),
        ("sign-flip:fraction=some", "fraction = 'some'"),
        ("sign-flip:rate=0.1", "sign-flip: rate = 0.1: must be one of fraction"),
        ("sign-flip:fraction", "name:key=value"),
        ("sign-flip:fraction=0.1,fraction=0.2", "each key once"),
        ("dropout:rate=2", "rate = 2"),
        ("chosen-dropout:rate=0.1,by=luck", "one of largest, smallest, norm"),
        ("alie:fraction=0.6", "z = None"),
        ("ipm:fraction=0.1,knows=everything", "own or all"),
        ("twice:fraction=0.1,times=1", "times = 1"),
        ("impostor:fraction=0.1,claim=king", "one of block, user, count"),
    ],
)
def test_a_bad_attack_is_refused_with_what_is_allowed(spec, said):
    with pytest.raises(ParameterError, match=said):
        attack(spec)


def test_what_an_attack_needs_is_checked_before_anything_starts():
    class Starts(InProcessRuntime):
        started = False

        def open(self, deployment, population, workers):
            self.started = True
            return super().open(deployment, population, workers)

    for column in (D, -D - 1):
        runtime = Starts()
        with pytest.raises(
            ParameterError, match=f"column = {column}: must be one of the {D} columns"
        ):
            run(PROTOCOL, ROWS, runtime=runtime, adversary=named("label-flip", column=column))
        assert not runtime.started
    spec = PROTOCOL.plan(PROTOCOL.init())
    with pytest.raises(ParameterError, match="noiseless"):
        named("no-noise").check(replace(spec, randomizer=object()), ROWS[0])
    run(PROTOCOL, ROWS, runtime=(runtime := Starts()), adversary=named("no-noise"), seed=1)
    assert runtime.started


# Dropouts


def scene_of(xs, randomizer=PROTOCOL.randomizer, **own):
    given = {"round": 0, "block": 0, "users": np.arange(len(xs)), "query": Datum(), **own}
    return AttackContext(randomizer=randomizer, block_rows=lambda: xs, **given)


def missing(adversary, seeds, rows=ROWS, block_size=20):
    """Who was silent in each run."""

    found = []
    for seed in seeds:
        gone: list[int] = []
        for users in np.arange(N).reshape(-1, block_size):
            context = scene_of(rows[users], users=users, block=users[0] // block_size)
            gone += adversary.select(context, np.random.default_rng([seed, context.block])).tolist()
        found.append(gone)
    return found


def test_a_blackout_silences_blocks_and_a_cut_off_their_ends():
    blocks = [
        Counter(user // 20 for user in gone) for gone in missing(named("blackout", 0.4), range(60))
    ]
    assert {count for each in blocks for count in each.values()} == {20}
    hit = sum(len(each) for each in blocks)  # of 600; false-alarm rate 1e-6
    assert stats.binomtest(hit, 600, 0.4).pvalue > 1e-6
    assert stats.binomtest(hit, 600, 0.55).pvalue < 1e-6  # power
    sizes = Counter()
    for gone in missing(named("cut-off", 1.0), range(60)):
        for block in range(10):
            here = sorted(user - 20 * block for user in gone if user // 20 == block)
            assert here == list(range(20 - len(here), 20))
            sizes[len(here)] += 1
    check_pmf(list(sizes.elements()), np.r_[0, np.full(20, 1 / 20)])


@pytest.mark.parametrize(("by", "score"), [("largest", 1.0), ("smallest", -1.0), ("norm", None)])
def test_chosen_dropouts_are_the_most_telling_of_their_block(by, score):
    admitted = dense(PROTOCOL.randomizer.admit(ROWS)[0])
    scores = np.linalg.norm(admitted, axis=1) if score is None else score * admitted.sum(axis=1)
    (gone,) = missing(ChosenDropout(0.25, by), [1])
    for block in range(10):
        users = range(20 * block, 20 * block + 20)
        assert {user for user in gone if user in users} == set(
            sorted(users, key=lambda user: -scores[user])[:5]
        )


def test_few_of_small_blocks_are_chosen_as_often_as_stated():
    """False-alarm rate 1e-6; to round a share of each block to nobody would be seen."""
    runs = missing(ChosenDropout(0.05), range(80), block_size=8)
    gone = [Counter(user // 8 for user in each) for each in runs]
    assert {many for each in gone for many in each.values()} == {1}
    hit = sum(len(each) for each in gone)  # of 2,000 blocks
    assert stats.binomtest(hit, 2000, 0.4).pvalue > 1e-6
    assert stats.binomtest(hit, 2000, 0.5).pvalue < 1e-6  # power


@pytest.mark.parametrize("name", ["dropout", "leave", "blackout", "cut-off"])
@pytest.mark.full
def test_the_estimate_is_unbiased_under_dropouts(name):
    n, x, runs = 300, 0.3, 120
    protocol = ScalarSum(n=n, g=10, b=16)
    results = [
        run(protocol, np.full(n, x), seed=s, adversary=named(name, 0.4), fidelity="counts")
        for s in range(runs)
    ]
    received = np.array([r.reports.accepted for r in results])
    errors = np.array([r.value for r in results]) - x * received
    sigmas = np.sqrt([protocol.randomizer.variance(int(r), np.full(r, x))[0] for r in received])
    limit = stats.norm.isf(0.5e-6) * math.sqrt(runs)  # two-sided false-alarm rate 1e-6
    assert abs((errors / sigmas).sum()) < limit
    # Power: noise subtracted for the users planned.
    planned = errors - (n - received) * 0.5 * 16 / 10
    assert abs((planned / sigmas).sum()) > limit
    everyone = errors + x * received - x * n  # power: the sum of all users is another
    assert abs((everyone / sigmas).sum()) > limit


def test_too_many_dropouts_abort_before_release():
    careful = VectorSum(n=N, d=D, g=4, b=40, honest_fraction=0.9)
    with pytest.raises(
        RoundAbortedError, match=r"1\d\d reports accepted, agreed are at least 180; not released"
    ) as aborted:
        run(careful, ROWS, seed=1, adversary=Dropout(0.4))
    assert len(aborted.value.ledger.charges) == 1  # charged all the same


# Colluders


class FirstFive(Collude):
    """Users 0 to 4 collude; what they tell and what the analyzer sees is kept."""

    def __init__(self):
        super().__init__(1.0)
        self.rest, self.views = [], []

    def corrupt(self, round_index, users, rng):
        return users[users < 5]

    def observe(self, tally):
        self.views.append(tally)

    def disclosed(self, round_index, reports, sums):
        assert reports == 5
        self.rest.append(int(self.views[-1].sums[0]) - sums[0])


@pytest.mark.full
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_the_view_without_colluders_has_the_law_of_the_honest(fidelity):
    protocol, colluders = ScalarSum(n=12, g=4, b=6), FirstFive()
    for seed in range(300):
        run(protocol, np.full(12, 0.5), seed=seed, adversary=colluders, fidelity=fidelity)
    honest = stats.binom.pmf(np.arange(8 * 7 * 6), 7 * 6, 0.5)
    # 7 honest users' 2 steps and noise; false-alarm rate 1e-6.
    check_pmf(np.array(colluders.rest) - 7 * 2, honest)
    for wrong in (6, 8):  # power: the law of one user's noise less or more
        with pytest.raises(LawError):
            check_pmf(
                np.array(colluders.rest) - wrong * 2,
                stats.binom.pmf(np.arange(8 * 7 * 6), wrong * 6, 0.5),
            )


def test_colluders_and_users_without_noise_are_not_counted_on():
    protocol = ScalarSum(n=1000, g=10, b=16)
    for name in ("collude", "no-noise"):
        result = run(protocol, np.zeros(1000), seed=2, adversary=named(name, 1 / 3))
        honest = 1000 - result.reports.corrupted
        assert result.reports.accepted == 1000
        assert (
            result.privacy.epsilon
            == binomial.epsilon(honest * 16, 0.5, 10, 1e-6)
            > result.promised.epsilon
        )
        assert f"{honest} of 1,000 users asked added their noise" in " ".join(
            result.privacy.assumptions
        )


# Inputs


def test_input_attacks_compute_what_their_papers_say():
    xs, rng = ROWS[:6], np.random.default_rng(0)
    known = scene_of(ROWS[:20])
    mean, std = xs.mean(axis=0), xs.std(axis=0)
    everyone = dense(PROTOCOL.randomizer.admit(ROWS[:20])[0])
    assert inputs.SignFlip(0.1).values(known, xs, rng) == pytest.approx(-xs)
    assert inputs.Scaling(0.1, -3.0).values(known, xs, rng) == pytest.approx(-3 * xs)
    assert inputs.ALIE(0.2).z == pytest.approx(float(ndtri(0.5 / 0.8)))
    assert inputs.ALIE(0.1, z=1.5).values(known, xs, rng)[4] == pytest.approx(mean - 1.5 * std)
    assert inputs.ALIE(0.1, 1.5, "all").values(known, xs, rng)[0] == pytest.approx(
        everyone.mean(0) - 1.5 * everyone.std(0)
    )
    assert inputs.IPM(0.1, 2.0).values(known, xs, rng)[5] == pytest.approx(-2 * mean)
    assert inputs.Mimic(0.1).values(known, xs, rng)[3] == pytest.approx(everyone[0])
    flipped = inputs.LabelFlip(0.1).rows(known, xs, rng)
    assert np.array_equal(flipped[:, :2], xs[:, :2])
    assert np.array_equal(flipped[:, 2], -xs[:, 2])
    assert inputs.LabelFlip(0.1, 0, 0.5).rows(known, np.array([0.0, 1.0]), rng).tolist() == [
        1.0,
        0.0,
    ]
    spread = inputs.GaussianInput(0.1, 0.5).values(known, np.zeros((20_000, 3)), rng)
    assert stats.kstest(spread.ravel() / 0.5, "norm").pvalue > 1e-6
    assert stats.kstest(spread.ravel() / 0.45, "norm").pvalue < 1e-6  # power
    vast = ScalarSum(n=9, g=4, b=2, upper=1e100).randomizer
    assert inputs.SignFlip(0.1).values(scene_of(xs, vast), np.array([1e99]), rng) == pytest.approx(
        [9e99]
    )
    unit = ScalarSum(n=9, g=4, b=2, upper=3.0).randomizer
    numbers = np.array([0.0, 1.0, 3.0])
    assert inputs.SignFlip(0.1).values(scene_of(numbers, unit), numbers, rng) == pytest.approx(
        [3.0, 2.0, 0.0]
    )


@pytest.mark.parametrize(
    "name", ["scaling", "gaussian", "alie", "ipm", "sign-flip", "label-flip", "mimic"]
)
def test_a_lie_is_clipped_to_the_domain(name):
    """However long the value claimed, its report is that of a value within the norm bound."""
    options = {
        "scaling": {"factor": 1e9},
        "gaussian": {"std": 1e9},
        "alie": {"z": 1e9},
        "ipm": {"scale": 1e9},
    }.get(name, {})
    seen = []

    class Sees(Adversary):
        def corrupt(self, round_index, users, rng):
            return users

        def report(self, user, x, call_next, rng):
            seen.append(x)
            return call_next(x)

    adversary = Chain(named(name, 1.0, **options), Sees())
    run(PROTOCOL, 5 * ROWS, seed=1, adversary=adversary, fidelity="counts")
    norms = np.linalg.norm(seen, axis=1)
    assert norms.max() <= 1 + 1e-9
    assert norms.max() > 0.99


def test_values_that_are_no_numbers_are_claimed_as_zero():
    class Infinite(Coalition):
        def values(self, context, xs, rng):
            return np.full_like(xs, np.inf)

        def report(self, user, x, call_next, rng):
            assert np.array_equal(x, np.zeros(D))
            return call_next(x)

    assert balanced(run(PROTOCOL, ROWS, seed=1, adversary=Infinite(1.0))).accepted == N


# Outputs


@pytest.mark.parametrize(("g", "b", "p"), [(4, 9, 0.5), (7, 3, 0.2), (1, 1, 0.01), (44, 14, 0.5)])
def test_the_reach_is_the_farthest_that_any_report_goes(g, b, p):
    protocol = VectorSum(n=N, d=1, g=g, b=b, p=p, norm_bound=2.0)
    randomizer, reach = protocol.randomizer, Reach.of(protocol)
    every = [randomizer.estimate(Tally(np.array([ones]), 1))[0] / 2.0 for ones in range(g + b + 1)]
    assert (reach.up, reach.down) == pytest.approx((max(every), -min(every)))
    if p == 0.5:
        assert (reach.up, reach.down) == pytest.approx((1 + b / g, 1 + b / g))


def agree(rows):
    """Observed displacements are within 6 standard errors of the closed forms; false-alarm rate
    below 1e-8 a row.
    """
    return [abs(row.observed - row.expected) < 6 * row.error for row in rows]


@pytest.mark.slow_parameters("buckets, 4000")
@pytest.mark.full
@pytest.mark.parametrize(
    "protocol",
    [
        VectorSum(n=400, d=3, g=8, b=30, p=0.5, norm_bound=2.0),
        VectorSum(n=400, d=3, g=8, b=40, p=0.2, norm_bound=2.0),
        CarryVectorSum.calibrated(
            n=400, d=3, privacy=Privacy(3.0, 1e-5), noise_ratio=1.3, rotation=1
        ),
        SparseVectorSum(n=4000, d=8, bucket=2, a=0.45, norm_bound=2.0, span=0.5),
    ],
    ids=lambda protocol: f"{protocol.encoding}, {protocol.n}",
)
def test_manipulation_moves_a_sum_by_its_closed_form(protocol):
    rows = manipulation_study(protocol, fraction=0.4, repeats=6, seed=1)
    assert all(agree(rows)), rows
    # Power: 30 % off is caught.
    wrong = [replace(row, expected=row.expected * 1.3) for row in rows if row.expected]
    assert not any(agree(wrong))


def test_no_report_of_buckets_reaches_farther_than_all_ones():
    """Of all proper reports: a coordinate and a sign in each bucket."""
    protocol = SparseVectorSum(n=N, d=4, bucket=2, a=0.3, norm_bound=2.0, span=0.7)
    randomizer, reach = protocol.randomizer, Reach.of(protocol)
    every = [randomizer.singly(np.array(words)) for words in product(range(4), range(4, 8))]
    assert all(map(randomizer.proper, every))
    farthest = max(np.linalg.norm(randomizer.estimate(each.tally())) for each in every)
    ones = randomizer.extreme(highest=True)
    assert randomizer.proper(ones)
    assert np.linalg.norm(randomizer.estimate(ones.tally())) == pytest.approx(farthest)
    assert 2.0 * reach.l2 == pytest.approx(farthest)
    assert 2.0 * reach.up * math.sqrt(2) == pytest.approx(farthest)  # of two buckets


def test_manipulation_at_the_papers_constants():
    # Theorem 3.2 at n = 10, d = 1, epsilon = 15: b/g is some thousands even there.
    protocol = VectorSum.paper(n=10, d=1, privacy=Privacy(15.0, 0.4))
    assert protocol.b > 100 * protocol.g
    rows = {
        row.attack: row for row in manipulation_study(protocol, fraction=0.5, repeats=4, seed=3)
    }
    reach = Reach.of(protocol)
    far = rows["ones"].expected, rows["zeros"].expected
    assert far == pytest.approx((reach.up, reach.down), rel=1e-12)
    assert reach.up > 100
    assert all(agree([rows["ones"], rows["zeros"], rows["no-noise"]]))


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in SILENT])
@pytest.mark.full
def test_no_attacker_counts_for_more_than_one_report(name):
    """The view holds the honest users' ones and at most g + b ones a coordinate from each attacker:
    no more, however it sends.
    """
    seen = {}

    class Keeps(Adversary):
        def observe(self, tally):
            seen["tally"] = tally

    cruel = named(name, 0.3)
    silent = named(name, 0.3)
    silent.silent = True
    how = {"seed": 9, "fidelity": "counts", "block_size": 50}
    result = attacked(Chain(cruel, Keeps()), **how)
    with_attack = seen["tally"]
    attacked(Chain(silent, Keeps()), **how)
    added = with_attack.sums - seen["tally"].sums
    assert with_attack.reports - seen["tally"].reports <= result.reports.corrupted
    assert added.min() >= 0
    assert added.max() <= result.reports.corrupted * PROTOCOL.randomizer.per_label


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(
    ("claim", "reason"),
    [("block", "wrong-kind"), ("user", "wrong-sender"), ("count", "wrong-count")],
)
@pytest.mark.full
def test_nobody_passes_for_others(claim, reason, fidelity):
    class Quiet(Adversary):
        silent = True

        def corrupt(self, round_index, users, rng):
            return users[users % 2 == 0]

    class Odd(Impostor):
        def corrupt(self, round_index, users, rng):
            return users[users % 4 == 1]

    # Half of every block is silent, so there is room for reports in others' names.
    a = balanced(
        run(PROTOCOL, ROWS, seed=1, adversary=Chain(Quiet(), Odd(1.0, claim)), fidelity=fidelity)
    )
    assert a.dropped == {reason: N // 4}
    assert a.accepted == N // 4


def test_a_second_report_does_not_take_a_silent_users_place():
    class Quiet(Adversary):
        silent = True

        def corrupt(self, round_index, users, rng):
            return users[users % 2 == 0]

    class Odd(Twice):
        def corrupt(self, round_index, users, rng):
            return users[users % 2 == 1]

    a = balanced(run(PROTOCOL, ROWS, seed=1, adversary=Chain(Quiet(), Odd(1.0, 3))))
    assert (a.accepted, a.missing, a.extra, a.dropped) == (
        N // 2,
        N // 2,
        N,
        {"too-many-reports": N},
    )


def test_replays_are_dropped_in_every_round_after_the_first():
    problem = Problem(Logistic(), L2Ball(2, 1.0))
    rows = np.column_stack([np.zeros((60, 2)), np.ones(60)])
    from protocols.shuffle.gd import ShuffleGD

    protocol = ShuffleGD.calibrated(n=60, problem=problem, privacy=Privacy(1.0, 1e-6), rounds=4)
    a = balanced(run(protocol, rows, seed=1, adversary=named("replay", 0.5), fidelity="aggregate"))
    assert a.dropped == {"wrong-round": a.corrupted * 3 // 4}


# Studies


@pytest.mark.full
def test_privacy_by_honest_fraction_is_in_order_and_exact():
    protocol = ScalarSum.calibrated(n=60, privacy=Privacy(1.0, 1e-6), noise_ratio=2.0)
    fractions = [1.0, 0.7, 0.5, 1 / 3]
    rows = privacy_study(protocol, fractions, repeats=1000, seed=1)
    assert [row.honest for row in rows] == [60, 42, 30, 20]
    for row in rows:
        assert row.exact == binomial.epsilon(row.honest * protocol.b, 0.5, protocol.g, 1e-6)
        assert row.paper * (1 + 1e-9) >= row.proven >= row.exact > row.empirical > 0
        assert row.paper == pytest.approx(rows[0].proven / row.fraction)
    assert [row.proven for row in rows] == sorted(row.proven for row in rows)
    # What was assumed does not count, what is there does.
    careful = ScalarSum(n=60, g=protocol.g, b=protocol.b, honest_fraction=0.5)
    assert [row.proven for row in privacy_study(careful, fractions, repeats=100, seed=1)] == [
        row.proven for row in rows
    ]
    vector = privacy_study(VectorSum(n=60, d=3, g=4, b=40), [1.0, 0.2], repeats=1000, seed=1)
    assert vector[1].paper is None  # below 1/3 the theorem says nothing
    carries = CarryVectorSum.calibrated(n=3000, d=3, privacy=Privacy(1.0, 1e-6), noise_ratio=1.2)
    (row,) = privacy_study(carries, [0.7], repeats=100, seed=1)
    assert row.paper is None  # the paper speaks of other sums
    assert all(row.proven >= row.exact > row.empirical for row in vector)


def test_a_sum_that_is_not_private_with_fewer_honest_users_is_studied():
    made = LaplaceScalarSum.calibrated(n=1000, privacy=Privacy(1.0, 1e-4))
    whole, fewer = privacy_study(made, [1.0, 0.5], repeats=10, seed=1)
    assert whole.proven <= 1
    assert fewer.proven == math.inf
    assert math.isnan(fewer.exact)


@pytest.mark.full
def test_the_empirical_bound_catches_noise_that_is_missing():
    @dataclass(frozen=True)
    class Lazy(BinomialRandomizer):
        """Only the first tenth of the users add noise."""

        def _noise(self, users, rng):
            return rng.binomial(self.b * users // 10, self.p, self.labels)

    honest, delta = 30, 1e-6
    exact = binomial.epsilon(honest * 20, 0.5, 10, delta)
    for kind, caught in ((BinomialRandomizer, False), (Lazy, True)):
        assert (
            empirical_epsilon(kind(1, 10, 20, 0.5, 0.0, 1.0), honest, delta, repeats=1000, seed=1)
            > exact
        ) == caught


@pytest.mark.parametrize("fractions", [[0.0], [1.5], [1.0, -0.1], [float("nan")]])
def test_an_honest_fraction_outside_the_range_is_refused(fractions):
    with pytest.raises(ParameterError, match="honest_fraction"):
        privacy_study(ScalarSum(n=60, g=4, b=40), fractions)


@pytest.mark.parametrize(("batch", "least"), [(50, 0.24), (200, 0.465), (1000, 0.582)])
def test_the_least_honest_fraction_of_all_batches(batch, least):
    assert least_honest_fraction(100_000, batch, 1 / 3, 1e-6) == least


def test_the_least_honest_fraction_holds_and_is_not_far_off():
    rng, users, batch = np.random.default_rng(1), 600, 30
    corrupted = np.arange(users) < 200
    draws = [rng.permutation(corrupted).reshape(-1, batch).sum(axis=1).max() for _ in range(20_000)]
    smallest = 1 - np.array(draws) / batch
    failure = 0.05
    least = least_honest_fraction(users, batch, 1 / 3, failure)
    below = int((smallest < least - 1e-9).sum())
    assert stats.binom.sf(below - 1, 20_000, failure) > 1e-6  # false-alarm rate 1e-6
    # Power: one user more would not hold.
    assert (smallest < least + 1 / batch - 1e-9).mean() > failure
    assert least_honest_fraction(100, 100, 0.3) == 0.7
    assert least_honest_fraction(100, 10, 0.0) == 1.0
    assert least_honest_fraction(100, 10, 1.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((10, 11, 0.1), "batch"),
        ((0, 1, 0.1), "users"),
        ((10, 1, 1.1), "corrupted"),
        ((10, 1, 0.1, 0.0), "failure"),
    ],
)
def test_the_least_honest_fraction_refuses_what_is_out_of_range(arguments, said):
    with pytest.raises(ParameterError, match=said):
        least_honest_fraction(*arguments)


@pytest.mark.full
def test_attackers_spoil_a_model_the_more_the_stronger():
    target_model = logistic(2000, 3, Privacy(4.0, 1e-6))
    rows = training_study(
        target_model, ["sign-flip", "oppose"], [0.0, 0.1, 0.45], repeats=2, seed=1
    )
    assert [(row.attack, row.fraction) for row in rows] == [
        ("none", 0.0), ("sign-flip", 0.1), ("sign-flip", 0.45), ("oppose", 0.1), ("oppose", 0.45),
    ]  # fmt: skip
    none, weak, strong, _, worst = (row.error for row in rows)
    assert none < 0.25 < worst
    assert none < strong < worst
    assert weak < strong
    assert [row.epsilon for row in rows] == sorted(row.epsilon for row in rows[:3]) + [
        row.epsilon for row in rows[1:3]
    ]


# The command


@pytest.mark.full
def test_the_target_model_takes_every_encoding():
    buckets = logistic(1000, 8, Privacy(4.0, 1e-6), encoding="buckets", rotation=1).protocol
    randomizer = buckets.plan(buckets.init()).randomizer
    assert isinstance(randomizer, BucketRandomizer)
    assert randomizer.rotation == 1
    carries = logistic(1000, 8, Privacy(4.0, 1e-6), rotation=2).protocol
    randomizer = carries.plan(carries.init()).randomizer
    assert isinstance(randomizer, CarryRandomizer)
    assert randomizer.rotation == 2


@pytest.fixture
def command(monkeypatch, capsys):
    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["shuffle-sim", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        disclosed = capsys.readouterr()
        return ended.value.code, disclosed.out, disclosed.err

    return called


@pytest.mark.parametrize(
    ("study", "options", "columns"),
    [
        (
            "privacy",
            ["--n", "50", "--noise-ratio", "2", "--repeats", "1000", "--fraction", "0.5"],
            {"paper", "proven", "empirical"},
        ),
        (
            "manipulation",
            ["--n", "100", "--d", "2", "--noise-ratio", "2", "--repeats", "1"],
            {"observed", "expected"},
        ),
        (
            "training",
            ["--n", "400", "--repeats", "2", "--fraction", "0.3", "--attack", "ipm:scale=3"],
            {"attack", "epsilon"},
        ),
        (
            "training",
            [
                "--n",
                "400",
                "--d",
                "8",
                "--encoding",
                "buckets",
                "--rotation",
                "1",
                "--repeats",
                "2",
                "--fraction",
                "0.3",
            ],
            {"attack", "epsilon"},
        ),
    ],
)
@pytest.mark.full
def test_the_command_measures_prints_and_draws(study, options, columns, tmp_path, command):
    picture = tmp_path / "study.png"
    code, out, err = command(
        "attack", "--study", study, "--seed", "1", *options, "--json", "--plot", str(picture)
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["study"] == study
    assert columns <= set(found["rows"][0])
    assert "error" not in found["rows"][0] or study == "manipulation"
    measured = found.get("simulator_view", {"rows": [{}]})["rows"][0]
    assert set(measured) == ({"error", "spread"} if study == "training" else set())
    assert picture.stat().st_size > 5000
    code, out, err = command("attack", "--study", study, "--seed", "1", *options)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > len(found["rows"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["attack", "--fraction", "1.2"], "fraction = 1.2"),
        (["attack", "--fraction", "0"], "fraction = 0.0"),
        (["attack", "--repeats", "0"], "repeats = 0"),
        (["attack", "--n", "0"], "n = 0"),
        (
            ["attack", "--study", "manipulation", "--fraction", "1e-9"],
            "so large that some of 1000 users are corrupted",
        ),
        (
            ["attack", "--study", "training", "--attack", "signflip"],
            "attack = 'signflip': must be one of alie",
        ),
        (
            ["attack", "--study", "training", "--attack", "alie:fraction=1"],
            "must be without fraction",
        ),
        (["attack", "--attack", "ones"], "used with --study training"),
        (
            ["attack", "--study", "manipulation", "--fraction", "0.1", "--fraction", "0.2"],
            "one fraction",
        ),
        (["attack", "--study", "panic"], "panic"),
        (["sum", "--table", "wine", "--attack", "dropout:rate=7"], "rate = 7"),
        (["attack", "--plot", "/nowhere/x.png"], "plot"),
    ],
)
@pytest.mark.full
def test_the_command_refuses_bad_input_in_one_line(arguments, said, command):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_the_sum_under_attack_says_what_became_of_the_reports(command):
    arguments = [
        "sum",
        "--table",
        "wine",
        "--seed",
        "1",
        "--attack",
        "dropout:rate=0.1",
        "--attack",
        "twice:fraction=0.2",
    ]
    code, out, _ = command(*arguments)
    assert code == 0
    assert "extra" in out
    assert "too-many-reports" in out
    a = json.loads(command(*arguments, "--json")[1])["reports"]
    assert a["asked"] + a["extra"] == a["accepted"] + a["missing"] + sum(a["dropped"].values())
    few = ["--attack", "dropout:rate=0.4", "--honest-fraction", "0.9", "--noise-ratio", "2"]
    code, _, err = command(*arguments[:5], *few)
    assert code == 1
    assert "reports accepted, agreed are at least 161; not released" in err
