"""Views beyond sums: counts of words and the words themselves, by every road to the analyzer."""

import itertools
import math
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from processes import Forked
from runs import run
from words import Asked, InOrder, Pollution, Response, Wide

from protocols import VectorSum
from shuffle_sim import ParameterError
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.auditing.simulation import simulate
from shuffle_sim.errors import FrameError
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.protocol.adversary import Coalition
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import TaskLimits
from shuffle_sim.roles.analyzer import reader
from shuffle_sim.roles.chunks import front
from shuffle_sim.roles.pools import WordPool
from shuffle_sim.roles.reports import read_reports
from shuffle_sim.wire.codec import decode, encode
from shuffle_sim.wire.frames import Context, Frame, Kind
from shuffle_sim.wire.messages import Alphabet, Messages, Tally
from shuffle_sim.wire.words import counted

USERS = 60
ITEMS = np.arange(USERS) % 7.0
VIEWS = {
    "response": Asked(USERS, Response(7, 1.0)),
    "pollution": Asked(USERS, Pollution(7, 0.3)),
    "wide": Asked(USERS, Wide(7, 64)),
    "in order": Asked(USERS, InOrder(7, 40)),
}
HOW = {"seed": 3, "block_size": 9}


# The law, by enumeration


def response_law(randomizer: Response, x: int) -> dict[tuple[int, ...], float]:
    """Of one user's counts."""
    k, q = randomizer.categories, randomizer.least
    own = math.exp(randomizer.epsilon0) * q
    rows = np.eye(k, dtype=int).tolist()
    return {tuple(rows[y]): own if y == x else q for y in range(k)}


def pollution_law(randomizer: Pollution, x: int) -> dict[tuple[int, ...], float]:
    """Of one user's counts, by all its coins."""
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for coins in itertools.product((0, 1), repeat=randomizer.categories):
        chance = math.prod(randomizer.q if coin else 1 - randomizer.q for coin in coins)
        law[tuple(coin + (place == x) for place, coin in enumerate(coins))] += chance
    return dict(law)


def view_law(randomizer, data) -> dict[tuple[int, ...], float]:
    """Of the counts of all users."""
    of_user = response_law if isinstance(randomizer, Response) else pollution_law
    law = {(0,) * randomizer.categories: 1.0}
    for x in data:
        following: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for (a, p), (b, q) in itertools.product(law.items(), of_user(randomizer, x).items()):
            following[tuple(i + j for i, j in zip(a, b, strict=True))] += p * q
        law = dict(following)
    return law


def drawn(sample, law, repeats=4000) -> tuple[list[int], np.ndarray]:
    """Views as numbers, and the law of these."""
    places = {view: place for place, view in enumerate(sorted(law))}
    categories = len(next(iter(law)))
    views = (tuple(sample().dense(categories).tolist()) for _ in range(repeats))
    return [places[view] for view in views], np.array([law[view] for view in sorted(law)])


@pytest.mark.parametrize(
    ("randomizer", "other"),
    [(Response(3, 1.2), Response(3, 1.5)), (Pollution(3, 0.4), Pollution(3, 0.44))],
)
@pytest.mark.parametrize("sampler", ["randomize", "reports", "tallied"])
@pytest.mark.full
def test_each_sampler_has_the_law_of_the_view(randomizer, other, sampler):
    """Whole views of three users; each check fails by chance with probability 1e-6."""
    data, rng = np.array([0.0, 1.0, 1.0]), np.random.default_rng(5)
    sample = {
        "randomize": lambda: Randomizer.reports(randomizer, data, rng).tally(),
        "reports": lambda: randomizer.reports(data, rng).tally(),
        "tallied": lambda: randomizer.tallied(data, rng),
    }[sampler]
    check_pmf(*drawn(sample, view_law(randomizer, [0, 1, 1])))
    with pytest.raises(LawError):  # the power: noise that is a tenth or a third another
        check_pmf(*drawn(sample, view_law(other, [0, 1, 1])))


def test_the_view_of_independent_cells_costs_what_is_known():
    """n = 4, k = 3, q = 0.4, epsilon 0.7: 0.360466901022 for any data, by all coins."""
    randomizer = Pollution(3, 0.4)
    for others in ([0, 1, 2], [2, 2, 2]):
        p, q = (view_law(randomizer, [x, *others]) for x in (0, 1))
        views = p.keys() | q.keys()
        delta = sum(max(0.0, p.get(v, 0.0) - math.exp(0.7) * q.get(v, 0.0)) for v in views)
        assert delta == pytest.approx(0.360466901022, rel=1e-11)


@pytest.mark.slow_parameters("3")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.full
def test_the_order_of_messages_is_uniform(shards):
    """Of four words through so many shards; false alarm 1e-6."""
    randomizer, rng = InOrder(7, 40), np.random.default_rng(1)
    orders = {order: place for place, order in enumerate(itertools.permutations(range(4)))}

    def released(permute: bool) -> int:
        pools = [WordPool(randomizer) for _ in range(shards)]
        for place in range(2):
            first = WordPool(randomizer)
            words = np.array([2 * place, 2 * place + 1], np.uint64)
            first.add(Messages.singly(randomizer.alphabet, 2, words))
            first.cut(first.shares(shards, rng), rng)
            for target, pool in enumerate(pools):
                pool.take(first.routed(target, rng))
        view = []
        for pool in pools:
            pool.cut(pool.view(), rng)
            view += pool._moved.tolist()
        return orders[tuple(view if permute else sorted(view))]

    check_pmf([released(True) for _ in range(1500)], np.full(24, 1 / 24))
    with pytest.raises(LawError):
        check_pmf([released(False) for _ in range(1500)], np.full(24, 1 / 24))


# Every road gives the same


def summary(result):
    return result.value.items(), result.value.reports, result.costs.messages_per_user


@pytest.mark.parametrize("name", VIEWS)
def test_literal_and_counts_see_the_same_messages(name):
    literal = run(VIEWS[name], ITEMS, fidelity="literal", **HOW)
    assert literal.value.messages == literal.costs.messages_per_user * USERS
    if name == "in order":
        with pytest.raises(ParameterError, match="literal: the view of InOrder"):
            run(VIEWS[name], ITEMS, fidelity="counts", **HOW)
        assert run(VIEWS[name], ITEMS, **HOW).fidelity == "literal"
        assert literal.value.words.tolist() != sorted(literal.value.words.tolist())
        return
    assert summary(literal) == summary(run(VIEWS[name], ITEMS, fidelity="counts", **HOW))
    assert literal.value.words.tolist() == sorted(set(literal.value.words.tolist()))
    aggregate = run(VIEWS[name], ITEMS, fidelity="aggregate", **HOW)
    assert aggregate.value.reports == USERS


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("security", ["none", "transport", "onion"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.full
def test_every_security_and_number_of_shards_gives_the_same(name, security, shards):
    """Counted and computed bytes agree in each, or the run would fail."""
    reference = summary(run(VIEWS[name], ITEMS, fidelity="literal", **HOW))
    protected = run(VIEWS[name], ITEMS, security=security, shuffler_shards=shards, **HOW)
    assert summary(protected) == reference


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.parametrize("placement", ["apart", "together"])
@pytest.mark.full
def test_processes_give_the_bits_of_one(name, fidelity, placement):
    if name == "in order" and fidelity != "literal":
        return
    how = HOW | {"fidelity": fidelity, "shuffler_shards": 2}
    alone = run(VIEWS[name], ITEMS, **how)
    there = run(VIEWS[name], ITEMS, runtime=Forked(), workers=2, placement=placement, **how)
    assert there.value.words.tolist() == alone.value.words.tolist()
    assert summary(there) == summary(alone)


@pytest.mark.parametrize("name", ["pollution", "in order"])
@pytest.mark.parametrize("placement", ["apart", "together"])
@pytest.mark.full
def test_nothing_comes_of_faults_but_time(name, placement):
    """And what the analyzer took is what users sent: `violations` counts words."""
    protocol = Asked(6, VIEWS[name].randomizer)
    report = simulate(protocol, ITEMS[:6], seeds=range(15), placement=placement, fidelity="literal")
    assert report.passed, report.failures[0]


def test_a_finished_run_is_resumed_from_its_journal(tmp_path):
    for name in ("pollution", "in order"):
        how = HOW | {"checkpoint": tmp_path / name, "fidelity": "literal"}
        first = run(VIEWS[name], ITEMS, **how)
        again = run(VIEWS[name], ITEMS, resume=True, **how)
        assert again.value.words.tolist() == first.value.words.tolist()
        assert summary(again) == summary(first)


@pytest.mark.parametrize("security", ["none", "onion"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_view_without_messages_says_how_many_reported(security, shards):
    nobody = run(VIEWS["wide"], ITEMS + 7, security=security, shuffler_shards=shards, **HOW)
    assert (nobody.value.messages, nobody.value.reports) == (0, USERS)
    assert nobody.reports.clipped == USERS


# Users that do not follow the protocol


class Says(Coalition):
    """Some send what they are told to: so many words, or bytes."""

    def __init__(self, said, fraction=1.0):
        super().__init__(fraction)
        self.said = said

    def report(self, user, x, call_next, rng):
        said = self.said
        return said if isinstance(said, bytes) else call_next.context.randomizer.singly(said)


@pytest.mark.parametrize("security", ["none", "transport", "onion"])
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (bytes([9]) + bytes(9), "too-many-messages"),
        (bytes([2, 1]), "wrong-length"),
        (bytes([1, 1, 1]), "wrong-length"),
        (bytes([1, 7]), "symbol-out-of-range"),
    ],
)
def test_what_is_no_report_is_dropped(said, reason, security):
    how = HOW | {"security": security, "adversary": Says(said, 0.5), "fidelity": "literal"}
    found = run(VIEWS["pollution"], ITEMS, **how).reports
    # In an onion what is no report is in the bundle as it is: of no boxes, or of another length.
    expected = {reason if security != "onion" else "wrong-length": found.corrupted}
    assert found.dropped == ({} if security == "onion" and not said else expected)


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_as_many_words_as_a_user_may_send_are_counted(fidelity):
    """Corrupted users stay literal, and are added."""
    how = HOW | {"fidelity": fidelity}
    found = run(VIEWS["pollution"], ITEMS, adversary=Says([6] * 8), **how)
    assert found.value.items() == ((6, 8 * USERS),)
    assert (found.value.reports, found.reports.corrupted) == (USERS, USERS)
    none = run(VIEWS["pollution"], ITEMS, adversary=Says([]), **how)
    assert (none.value.messages, none.value.reports) == (0, USERS)


class Colluder(Says):
    """Tells the analyzer."""

    colludes = True

    def disclosed(self, round_index, reports, sums):
        self.heard = reports, dict(sums)


def test_colluders_disclose_how_often_each_word():
    liar = Colluder([6, 6, 1])
    run(VIEWS["pollution"], ITEMS, adversary=liar, **HOW)
    assert liar.heard == (USERS, {6: 2 * USERS, 1: USERS})


NAMES = ("ones", "zeros", "oppose", "extra-bits", "wrong-labels", "garbage", "twice", "impostor")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fidelity", ["literal", "aggregate"])
def test_attacks_by_name_are_taken_or_dropped(name, fidelity):
    """Whatever they send: users asked are accepted, dropped or missing, or the run would stop."""
    found = run(VIEWS["pollution"], ITEMS, adversary=attack(f"{name}:fraction=0.3"), **HOW)
    assert found.reports.corrupted > 0
    taken = name in ("ones", "zeros", "oppose", "wrong-labels", "twice")
    assert (found.reports.accepted == USERS) is taken
    if name == "ones":
        assert found.value.dense(7)[6] >= 8 * found.reports.corrupted


# Limits, and no work by the user


def test_limits_count_what_a_user_may_send():
    """Eight words of three bits."""
    limits = TaskLimits(report_bits=24)
    assert run(VIEWS["pollution"], ITEMS, limits=limits, **HOW).reports.accepted == USERS
    with pytest.raises(ParameterError, match="report_bits"):
        run(VIEWS["pollution"], ITEMS, limits=TaskLimits(report_bits=23), **HOW)


def calls(users: int) -> int:
    """Of functions, in a literal round of so many users."""
    counted_calls = 0

    def count(frame, event, argument):
        nonlocal counted_calls
        counted_calls += event in ("call", "c_call")

    protocol, items = Asked(users, Response(1000, 8.0)), np.arange(users) % 1000.0
    sys.setprofile(count)
    try:
        run(protocol, items, seed=1, fidelity="literal", kernel="numpy")
    finally:
        sys.setprofile(None)
    return counted_calls


def test_a_literal_round_does_nothing_user_by_user():
    for users in (4_000, 64_000):  # what is loaded or remembered once
        calls(users)
    few, many = calls(4_000), calls(64_000)
    assert many < few + 2_000


# Frames


def context() -> Context:
    return Context(bytes(16), 0, bytes(16))


def counts_payload(words, counts) -> bytes:
    return np.array(words, "<u8").tobytes() + np.array(counts, "<u8").tobytes()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (counts_payload([1, 1], [1, 1]), "malformed-counts"),
        (counts_payload([2, 1], [1, 1]), "malformed-counts"),
        (counts_payload([7], [1]), "symbol-out-of-range"),
        (counts_payload([1], [0]), "count-out-of-range"),
        (counts_payload([1], [17]), "count-out-of-range"),
        (counts_payload([1, 2], [2**63, 2**63]), "count-out-of-range"),
        (counts_payload([1, 2], [2**64 - 1, 2]), "count-out-of-range"),
        (b"abc", "wrong-length"),
    ],
)
def test_tallies_are_checked(payload, reason):
    """Two users send sixteen words at most."""
    frame = Frame(Kind.TALLY, context(), 0, 2, payload)
    with pytest.raises(FrameError, match=reason):
        read_reports(frame, VIEWS["pollution"].randomizer)
    good = replace(frame, payload=counts_payload([1, 6], [15, 1]))
    assert read_reports(good, VIEWS["pollution"].randomizer).items() == ((1, 15), (6, 1))


def test_a_view_is_complete_when_all_words_are_there():
    from shuffle_sim.execution.setup import deployment_of
    from shuffle_sim.roles import Analyzer

    deployment, _ = deployment_of(VIEWS["pollution"], "literal", 1, None, None, None, 1, "none")
    planned = Analyzer(deployment).plan()
    asked = deployment.opened(planned.broadcast)

    def frame(place, words, whole, reports=USERS):
        chunk = front(len(words), asked.randomizer, whole) + bytes(words)
        return Frame(Kind.VIEW, asked.context, place, reports, chunk).tobytes()

    def fresh():
        return reader(deployment, planned.broadcast)

    view = fresh()
    view.receive(frame(1, [1, 2], 3))
    assert not view.complete
    for bad in (frame(0, [1], 4), frame(0, [1], 3, USERS - 1)):
        with pytest.raises(FrameError, match="wrong-count"):
            view.receive(bad)
    with pytest.raises(FrameError, match="wrong-length"):
        view.receive(frame(0, [1, 1], 3))
    view.receive(frame(0, [2], 3))
    assert view.complete
    assert (view.tally.items(), view.tally.reports) == (((1, 1), (2, 2)), USERS)
    with pytest.raises(FrameError, match="more messages"):
        fresh().receive(frame(0, [], USERS * 8 + 1))
    with pytest.raises(FrameError, match="more messages"):
        fresh().receive(frame(0, [], 2**64 - 1))
    with pytest.raises(FrameError, match="symbol-out-of-range"):
        fresh().receive(frame(0, [7], 1))


@pytest.mark.parametrize("symbols", [2, 5, 256, 1000, 2**17, 2**40 + 1, 2**64])
def test_words_are_what_was_sent(symbols):
    rng = np.random.default_rng(2)
    words = rng.integers(0, symbols, 50, np.uint64, endpoint=False) if symbols < 2**64 else (
        rng.integers(0, 2**64 - 1, 50, np.uint64, endpoint=True)
    )  # fmt: skip
    words[:2] = 0, symbols - 1
    each = [3, 0, 40, 7]
    sent = Messages.singly(Alphabet(1, symbols), 300, words, each)
    read = Messages.singly_from_bytes(Alphabet(1, symbols), 300, sent.tobytes(), 4)
    assert (read.words.tolist(), read.each.tolist()) == (words.tolist(), each)
    expected = tuple(sorted(Counter(words.tolist()).items()))
    tally = read.tally()
    assert tally.items() == expected
    assert (tally + tally).items() == tuple((word, 2 * count) for word, count in expected)
    again = decode(encode(tally), (Tally,))
    assert (again.items(), again.reports) == (expected, 4)


def test_counting_is_the_same_by_every_road():
    rng = np.random.default_rng(3)
    for top in (3, 50_000, 2**40):
        words = rng.integers(0, top, 9000).astype(np.uint64)
        expected = sorted(Counter(words.tolist()).items())
        ones = np.ones(len(words), np.int64)
        for found in (counted(words), counted(words, ones), counted(words.astype(np.int64))):
            assert list(zip(*(each.tolist() for each in found), strict=True)) == expected


# Bad randomizers


@dataclass(frozen=True)
class Odd(Wide):
    """Of another view, alphabet or cap."""

    label: int = 1
    per_label: ClassVar[int] = 300

    @property
    def alphabet(self):
        return Alphabet(self.label, 8)


@pytest.mark.parametrize(
    ("seen", "labels", "most", "allowed"),
    [
        ("histogram", 1, 3, "one of sums, counts, messages"),
        ("counts", 2, 3, "write the label into the word"),
        ("messages", 2, 3, "write the label into the word"),
        ("counts", 1, 0, "per_label"),
        ("counts", 1, 2**25, "per_label"),
    ],
)
def test_views_that_cannot_be_are_refused(seen, labels, most, allowed):
    kind = dataclass(frozen=True)(type("Odd", (Odd,), {"view": seen, "per_label": most}))
    with pytest.raises(ParameterError, match=allowed):
        run(Asked(USERS, kind(7, 3, labels)), ITEMS, **HOW)


def test_honest_users_cannot_send_more_than_they_may():
    with pytest.raises(ParameterError, match="from 0 to 8"):
        VIEWS["pollution"].randomizer.singly([1] * 9)
    with pytest.raises(ParameterError, match="from 0 to 6"):
        VIEWS["pollution"].randomizer.singly([7])
    with pytest.raises(ParameterError, match="as many as each says"):
        VIEWS["pollution"].randomizer.singly([1, 2], [1, 2])
    with pytest.raises(ParameterError, match="from 0 to 6"):
        VIEWS["pollution"].randomizer.singly([0.5])


@dataclass(frozen=True)
class Forgetful(Response):
    """Its faster sampler leaves a user out."""

    def reports(self, xs, rng):
        return super().reports(xs[1:], rng)


def test_a_sampler_that_leaves_users_out_is_refused():
    with pytest.raises(ParameterError, match="of 9 users"):
        run(Asked(USERS, Forgetful(7, 1.0)), ITEMS, **HOW)


def test_a_forecast_counts_what_is_usual():
    found = forecast(VIEWS["pollution"])
    assert (found.messages, found.payload_bits) == (1 + 7 * 0.3, 3 * (1 + 7 * 0.3))
    assert found.hops[0].wire > 0


def test_a_view_of_sums_is_as_it_was():
    sums = run(VectorSum(n=USERS, d=2, g=4, b=6), np.zeros((USERS, 2)), **HOW)
    assert isinstance(sums.costs.messages_per_user, int)
    with pytest.raises(ParameterError, match="sums are dense already"):
        Tally(np.zeros(2, np.int64), 1).dense(3)
