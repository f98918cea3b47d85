"""Rounds in batches, views in several frames, and a shuffler in shards: the same law, and nothing
lost on the way.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from rounds import deployed
from scipy.stats import hypergeom

from protocols import VectorSum
from protocols.sums.carry import CarryRandomizer
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.auditing import LawError, check_pmf, check_same_law
from shuffle_sim.auditing.laws.arrangements import check_ones
from shuffle_sim.auditing.shuffle.checks import Checks
from shuffle_sim.auditing.shuffle.viewing import Viewer
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.privacy.events import NonPrivateEvent
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.protocol.base import Datum, Protocol, RoundSpec, check_rows
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Analyzer, Shuffler, UserShard, chunks, deployment, pools
from shuffle_sim.sampling.shuffling import gathered, order, permute, permuted, share_out
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Alphabet, Messages

N, D = 60, 3
ROWS = np.random.default_rng(0).normal(size=(N, D)) / 4
PROTOCOL = VectorSum(n=N, d=D, g=4, b=7)


@dataclass(frozen=True)
class Echo(Randomizer):
    """Every user sends its numbers as they are: what the shuffler does to them is seen in the
    view.
    """

    labels: int
    each: int
    symbols: int

    alphabet = property(lambda self: Alphabet(self.labels, self.symbols))
    per_label = property(lambda self: self.each)

    def admit(self, values):
        return values, 0

    def randomize(self, x, rng):
        return Messages.from_symbols(
            self.alphabet, np.asarray(x).astype(np.int64).reshape(1, self.labels, self.each)
        )


class EchoRound(Protocol):
    """One round of it; the result is the tally."""

    def __init__(self, users, randomizer):
        self.users_, self.randomizer = users, randomizer

    users = property(lambda self: self.users_)
    delta = property(lambda self: 1e-6)
    vocabulary = property(lambda self: (Datum, Echo))

    def check(self, rows):
        check_rows(rows, (self.users_, self.randomizer.labels, self.randomizer.each))

    def init(self):
        return None

    def plan(self, state):
        event = NonPrivateEvent()
        return (
            None
            if state
            else RoundSpec(
                Cohort.of(0, self.users_), Datum(), self.randomizer, event, lambda tally: tally
            )
        )

    def update(self, state, estimate):
        return estimate

    def result(self, state):
        return state


@pytest.fixture
def tiny(monkeypatch):
    """Batches of a block or two, and view frames of a few messages."""
    monkeypatch.setattr(deployment, "BLOCK_BATCH_BYTES", 64)
    monkeypatch.setattr(chunks, "VIEW_CHUNK_BYTES", 30)


# Shards change no result


@pytest.mark.parametrize("adversary", [None, Dropout(0.3)])
@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.full
def test_waves_and_shards_change_no_bit_of_the_result(tiny, shards, workers, adversary):
    how = {
        "seed": 3,
        "fidelity": "literal",
        "execution": Execution(block_size=4),
        "adversary": adversary,
    }
    result = run(PROTOCOL, ROWS, workers=workers, shuffler_shards=shards, **how)
    reference = run(PROTOCOL, ROWS, **how)
    assert result.value.tobytes() == reference.value.tobytes()
    assert (result.reports, result.privacy) == (reference.reports, reference.privacy)
    assert result.shuffler_shards == shards
    assert (result.costs.routed_bytes > 0) == (shards > 1)
    assert result.costs.wire_bytes == reference.costs.wire_bytes


def test_one_wave_and_one_frame_are_the_ordinary_round():
    broadcast = Analyzer(deploy(1)).plan().broadcast
    assert len(deployed(PROTOCOL, 4).block_batches(broadcast)) == 1


@pytest.mark.parametrize("fidelity", ["counts", "aggregate"])
def test_shards_change_no_bit_where_no_messages_are_simulated(fidelity):
    how = {"seed": 3, "fidelity": fidelity, "execution": Execution(block_size=4)}
    reference = run(PROTOCOL, ROWS, **how)
    for shards in (2, 3):
        result = run(PROTOCOL, ROWS, shuffler_shards=shards, **how)
        assert result.value.tobytes() == reference.value.tobytes()
        assert (result.reports, result.privacy) == (reference.reports, reference.privacy)


@pytest.mark.parametrize("shards", [0, -1, 1.5, True, 5000])
def test_a_number_of_shards_that_is_none_is_refused(shards):
    with pytest.raises(ParameterError, match="shuffler_shards"):
        run(PROTOCOL, ROWS, fidelity="literal", shuffler_shards=shards)


@pytest.mark.parametrize("symbols", [2, 7, 256, 100_000, 2**40])
@pytest.mark.parametrize("shards", [1, 3])
def test_messages_of_any_alphabet_arrive_each_once(tiny, symbols, shards):
    rng = np.random.default_rng(symbols)
    sent = rng.integers(0, symbols, (N, 2, 5))
    protocol = EchoRound(N, Echo(2, 5, symbols))
    seen = Seen()
    result = run(
        protocol,
        sent,
        runtime=seen,
        fidelity="literal",
        seed=1,
        execution=Execution(block_size=4),
        shuffler_shards=shards,
    )
    assert result.value.sums.tolist() == sent.sum(axis=(0, 2)).tolist()
    by_label = map(np.concatenate, zip(*seen.messages(protocol.randomizer), strict=True))
    arrived = [np.sort(row) for row in by_label]
    assert np.array_equal(arrived, np.sort(sent.transpose(1, 0, 2).reshape(2, -1), axis=1))
    assert seen.frames > shards - (symbols == 2)


class Seen(InProcessRuntime):
    """Remembers the views that pass."""

    def open(self, *arguments):
        self.views = []
        return super().open(*arguments)

    def call(self, host, method, *arguments, many=(), returns=1):
        if method == "receive":
            self.views.append(arguments[0])
        return super().call(host, method, *arguments, many=many, returns=returns)

    @property
    def frames(self):
        return sum(1 for view in self.views for _ in split_frames(view))

    def messages(self, randomizer):
        """Of each frame, in the order of the view, the symbols by label."""
        frames = sorted(
            (parse(data) for view in self.views for data in split_frames(view)),
            key=lambda frame: frame.index,
        )
        return [
            [row.symbols.ravel().astype(np.int64) for row in chunks.by_label(f.payload, randomizer)]
            for f in frames
        ]


# The order is uniform: 4 users with a symbol each, 24 orders. False-alarm rate 1e-6 per test.

DRAWS = 6000


@cache
def orders(shards, defect=None):
    """Which of the 24 orders the view of each of so many rounds is in."""
    which = {order: index for index, order in enumerate(permutations(range(4)))}
    randomizer = Echo(1, 1, 5)
    protocol = EchoRound(4, randomizer)
    broadcast = Analyzer(deployed(protocol, 1)).plan().broadcast
    payload = parse(broadcast).payload
    drawn = []
    for seed in range(DRAWS // 2):
        made = deployed(protocol, 1, entropy=seed, shuffler_shards=shards)
        context = Context.of_broadcast(bytes(16), 0, payload)
        reports = [
            Frame(
                Kind.REPORTS,
                context,
                user,
                1,
                Messages.from_symbols(randomizer.alphabet, np.array([[[user]]])).tobytes(),
            )
            for user in range(4)
        ]
        hosts = [(defect or Shuffler)(made, shard) for shard in range(shards)]
        view = []
        collected = [
            h.collect(broadcast, [reports[u].tobytes() for u in range(s, 4, shards)])
            for s, h in enumerate(hosts)
        ]
        records = [record for *_, record in collected]
        for target, host in enumerate(hosts):
            host.accept(broadcast, [frames[target] for *frames, _ in collected])
        for host in hosts:
            chunks = host.release(broadcast, records).chunks
            for data in split_frames(host.view(broadcast, 0, len(chunks))[0]):
                chunk = parse(data).payload
                view += (
                    Messages.from_bytes(
                        Alphabet(1, 5), int.from_bytes(chunk[:8], "big"), chunk[8:], 1
                    )
                    .symbols.ravel()
                    .tolist()
                )
        drawn.append(which[tuple(view)])
    return np.array(drawn)


class RoutesByHome(Shuffler):
    """Keeps every message in the shard it came to."""

    def collect(self, broadcast, batches):
        now = self._at(broadcast)
        record = now.inbox.take(batches, now.pool)
        return *[b""] * self._deployment.shuffler_shards, replace(
            record, shares=Counter({self._shard: now.pool.size})
        )


class SeldomRoutes(Shuffler):
    """In one run of ten keeps its messages, else does as it should."""

    def collect(self, broadcast, batches):
        if self._deployment.entropy % 10:
            return super().collect(broadcast, batches)
        return RoutesByHome.collect(self, broadcast, batches)


@pytest.mark.slow_parameters("4", "2")
@pytest.mark.full
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_view_of_a_sharded_shuffler_is_uniform(shards):
    check_pmf(orders(shards), np.full(24, 1 / 24))


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.full
def test_one_two_and_four_shards_have_one_law(shards):
    check_same_law(orders(1), orders(shards))


@pytest.mark.parametrize("defect", [RoutesByHome, SeldomRoutes])
@pytest.mark.full
def test_power_a_shard_that_keeps_what_it_got_is_caught(defect):
    with pytest.raises(LawError):
        check_pmf(orders(2, defect), np.full(24, 1 / 24))
    with pytest.raises(LawError):
        check_same_law(orders(1), orders(2, defect))


# Labels are permuted independently, and a label of several columns as one


def mixed(randomizer):
    """400 views of two shards."""
    protocol = EchoRound(8, randomizer)
    spec = protocol.plan(None)
    bench = Checks(protocol, spec, 9, 1000, 1e-6, UserShard, Shuffler)
    check_ones(Viewer(bench, randomizer, 8, 2, "numpy"), randomizer, 8, 400, 1e-6)


MIXED = [VectorSum(n=8, d=3, g=2, b=3).randomizer, CarryRandomizer(2, 3.0, 2, 0, 2, -1.0, 2.0, 1.0)]


def one_size_for_all(pool, shards, rng):
    """The same number of messages in every column of every label."""
    columns = np.diff(pool.randomizer.alphabet.edges)
    each = rng.multinomial(pool.each[0] // columns[0], np.full(shards, 1 / shards))
    return each[:, None] * columns


@pytest.mark.slow_parameters("randomizer1")
@pytest.mark.full
@pytest.mark.parametrize("randomizer", MIXED)
def test_labels_are_permuted_independently_by_any_shards(randomizer, monkeypatch):
    """False-alarm rate 1e-6. Power: sizes drawn once for all labels are caught."""
    mixed(randomizer)
    monkeypatch.setattr(pools.MessagePool, "shares", one_size_for_all)
    with pytest.raises(LawError):
        mixed(randomizer)


# The pieces


@pytest.mark.parametrize(
    ("ones", "sizes"),
    [(7, (5, 9)), (13, (5, 9)), (0, (3, 4)), (14, (5, 9)), (4, (0, 6, 2)), (1, (1, 1))],
)
@pytest.mark.full
def test_ones_are_shared_out_hypergeometrically(ones, sizes):
    rng = np.random.default_rng(ones)
    drawn = np.array([share_out(ones, np.array(sizes), rng) for _ in range(DRAWS)])
    assert (drawn.sum(axis=1) == ones).all()
    assert (drawn <= sizes).all()
    for piece, size in enumerate(sizes):
        pmf = hypergeom.pmf(np.arange(size + 1), sum(sizes), ones, size)
        if pmf.max() < 1 - 1e-9:
            check_pmf(drawn[:, piece], pmf)
        else:
            assert (drawn[:, piece] == pmf.argmax()).all()


def test_power_a_binomial_share_is_caught():
    rng = np.random.default_rng(1)
    with pytest.raises(LawError):
        check_pmf(
            np.minimum(rng.binomial(9, 0.5, DRAWS), 9), hypergeom.pmf(np.arange(10), 14, 7, 9)
        )


@pytest.mark.parametrize("many", [10**6, 10**9])
def test_ones_are_shared_out_below_and_beyond_a_billion_places(many):
    rng, sizes = np.random.default_rng(2), np.array([many, 3 * many])
    drawn = np.array([share_out(many, sizes, rng)[0] for _ in range(200)])
    std = np.sqrt(many * 0.25 * 0.75 * 3 / 4)
    assert abs(drawn.mean() - many / 4) < 5 * std / np.sqrt(200)  # false alarm 6e-7
    assert 0.7 < drawn.std() / std < 1.3


@pytest.mark.full
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.int64])
def test_moving_messages_bucket_by_bucket_keeps_each(kind):
    rng, row = (
        np.random.default_rng(3),
        np.random.default_rng(4).integers(0, 200, 300_001).astype(kind),
    )
    before = row.copy()
    moved = permuted(np.split(row, [0, 7, 100_000]), rng)
    assert moved.dtype == kind
    assert np.array_equal(np.sort(moved), np.sort(row))
    assert np.array_equal(row, before)
    assert (moved != row).mean() > 0.9


@pytest.mark.parametrize("size", [1, 1000, 1 << 17, 150_001])
def test_sealed_messages_are_copied_whole_in_the_order_drawn(size):
    rng, rows = (
        np.random.default_rng(5),
        np.random.default_rng(6).integers(0, 256, (size, 57), np.uint8),
    )
    drawn = order(size, rng)
    assert np.array_equal(np.sort(drawn), np.arange(size))
    for chosen in (drawn, drawn[: size // 3], drawn[-1:]):
        assert np.array_equal(gathered(rows, chosen), rows[chosen])


def places(move, seed):
    """From which eighth of a long row to which eighth some messages go."""
    rng, size, seen = np.random.default_rng(seed), 1 << 18, []
    row = np.arange(size, dtype=np.uint32)
    for _ in range(20):
        seen.append(8 * (np.arange(512) >> 6) + (np.argsort(move(row, rng))[:: size // 512] >> 15))
    return np.concatenate(seen)


def in_order(row, rng):
    """Forgets to throw an eighth of the messages into buckets of their own."""
    eighth = row.size // 8
    return np.concatenate([permuted([row[:eighth]], rng), permuted([row[eighth:]], rng)])


@pytest.mark.full
def test_moving_by_bucket_has_the_law_of_the_plain_permutation():
    plain = places(lambda row, rng: permute(row[:, None, None], rng)[0], 5)
    check_same_law(plain, places(lambda row, rng: permuted(np.split(row, [1000, 50_000]), rng), 6))
    with pytest.raises(LawError):  # power: an eighth of the messages stays among itself
        check_same_law(plain, places(in_order, 6))


@pytest.mark.full
def test_every_bucket_is_permuted_uniformly():
    from shuffle_sim.sampling.compiled import permute_buckets

    which = {order: index for index, order in enumerate(permutations(range(4)))}
    rng, ends = np.random.Generator(np.random.SFC64(7)), np.arange(4, 4 * DRAWS + 1, 4)

    def drawn():
        buckets = np.tile(np.arange(4), DRAWS)
        permute_buckets(
            buckets,
            ends,
            rng.bit_generator.random_raw(64).reshape(4, 16),
            np.empty((3, 16), np.uint64),
        )
        return buckets.reshape(-1, 4)

    check_pmf([which[tuple(bucket)] for bucket in drawn().tolist()], np.full(24, 1 / 24))
    with pytest.raises(LawError):  # power: one in ten buckets is not permuted
        check_pmf(
            [
                which[tuple(bucket)]
                for bucket in np.where(rng.random((DRAWS, 1)) < 0.1, np.arange(4), drawn()).tolist()
            ],
            np.full(24, 1 / 24),
        )


def test_a_word_that_would_favour_a_place_is_drawn_again():
    from shuffle_sim.sampling.compiled import permute_bucket

    bucket, state = np.arange(3), np.random.default_rng(8).integers(0, 2**64, (4, 16), np.uint64)
    words = np.zeros(32, np.uint32)
    words[2:4] = 1 << 31, 1 << 31  # the middle of three places, then the second of two
    random = words.view(np.uint64).reshape(1, 16)
    # 2^32 is not a multiple of 3: both zeros are refused.
    assert permute_bucket(bucket, bucket[:0], state, random, words, 0) == 4
    assert bucket.tolist() == [0, 2, 1]
    # Where words run out, others are drawn.
    bucket, left = np.arange(1000), words.size - 5
    used = permute_bucket(bucket, np.arange(9), state, random, words, left)
    assert sorted(bucket) == list(range(1000))
    assert 0 < used <= words.size
    assert words.any()


# What is refused


def deploy(shards=2):
    return deployed(PROTOCOL, 8, entropy=7, shuffler_shards=shards)


def collected(made):
    broadcast = Analyzer(made).plan().broadcast
    users = UserShard(made, InMemory(ROWS), made.blocks())
    hosts = [Shuffler(made, shard) for shard in range(made.shuffler_shards)]
    blocks = made.blocks()
    parts = [
        host.collect(broadcast, [users.answer(broadcast, blocks[s :: len(hosts)])[0]])
        for s, host in enumerate(hosts)
    ]
    return broadcast, hosts, parts


def test_a_block_of_another_shard_is_dropped():
    made = deploy()
    broadcast, hosts, parts = collected(made)
    users = UserShard(made, InMemory(ROWS), made.blocks())
    *_, record = hosts[0].collect(broadcast, [users.answer(broadcast, range(1, 2))[0]])
    assert record.dropped == {"wrong-shard": 8}
    assert parts[0][-1].accepted + parts[1][-1].accepted == N


def test_a_shard_does_not_release_while_messages_are_coming():
    broadcast, hosts, parts = collected(deploy())
    with pytest.raises(RoundAbortedError, match="shard 0 holds"):
        hosts[0].release(broadcast, [part[-1] for part in parts])


LABELS = PROTOCOL.randomizer.alphabet.labels
WRAPPED = 2**63 + LABELS, 2**63 - 1, 2**63 - 1, *[8] * (LABELS - 2)


def numbered(*sizes):
    """A chunk with these numbers in front, and no ones."""
    return b"".join(each.to_bytes(8, "big") for each in sizes) + bytes(8 * LABELS)


def test_messages_between_shards_are_taken_once():
    broadcast, hosts, parts = collected(deploy())
    frame = parts[1][0]
    for spoilt, reason in (
        (replace(parse(frame), kind=Kind.REPORTS).tobytes(), "wrong-kind"),
        (
            replace(parse(frame), context=replace(parse(frame).context, round=3)).tobytes(),
            "wrong-round",
        ),
        (replace(parse(frame), payload=parse(frame).payload[:-1]).tobytes(), "wrong-length"),
        (frame[:-1], "truncated"),
        # Numbers of messages that would wrap, so that none seems to miss.
        (replace(parse(frame), payload=numbered(1 << 62, 0)).tobytes(), "wrong-length"),
        (replace(parse(frame), payload=numbered(*WRAPPED)).tobytes(), "wrong-length"),
    ):
        with pytest.raises(FrameError) as refused:
            hosts[0].accept(broadcast, [spoilt])
        assert refused.value.reason == reason
    half = replace(parse(frame), payload=numbered(2**63 + LABELS, 2**61, *[0] * (LABELS - 1)))
    held = Shuffler(deploy())
    held.accept(broadcast, [replace(half, index=1 << 16 | at).tobytes() for at in range(2)])
    with pytest.raises(FrameError, match="more than"):
        held.accept(broadcast, [replace(half, index=1 << 16 | 2).tobytes()])
    hosts[0].accept(broadcast, [frame])
    with pytest.raises(FrameError, match="shard 1"):
        hosts[0].accept(broadcast, [frame])
    assert len(hosts[0].release(broadcast, [part[-1] for part in parts]).chunks) == 1


def test_the_view_comes_only_after_the_release_and_again():
    made = deploy(1)
    broadcast, (host,), parts = collected(made)
    with pytest.raises(RoundAbortedError, match="not released"):
        host.view(broadcast, 0, 1)
    host.release(broadcast, [parts[0][-1]])
    assert host.view(broadcast, 0, 1) == host.view(broadcast, 0, 1)


def test_the_analyzer_counts_a_frame_of_the_view_once(tiny):
    made = deploy(1)
    broadcast, (host,), parts = collected(made)
    chunks = host.release(broadcast, [parts[0][-1]]).chunks
    assert len(chunks) > 2
    frames = [host.view(broadcast, index, index + 1)[0] for index in range(len(chunks))]
    analyzer, again = Analyzer(made), Analyzer(made)
    analyzer.plan()
    again.plan()
    assert [analyzer.receive(frame) for frame in frames] == [False] * (len(chunks) - 1) + [True]
    spoilt = replace(parse(frames[0]), payload=parse(frames[0]).payload[:-1] + b"\xf0")
    for frame in (frames[0], frames[0], *frames[1:-1]):
        assert again.receive(frame) is False
    with pytest.raises(FrameError, match="another content"):
        again.receive(spoilt.tobytes())
    with pytest.raises(FrameError, match="reports"):
        again.receive(replace(parse(frames[-1]), reports=N - 1).tobytes())
    assert again.receive(frames[-1]) is True
    assert again.result().tolist() == analyzer.result().tolist()


def test_a_view_that_is_not_whole_concludes_nothing(tiny):
    made = deploy(1)
    broadcast, (host,), parts = collected(made)
    chunks = host.release(broadcast, [parts[0][-1]]).chunks
    frames = [host.view(broadcast, index, index + 1)[0] for index in range(len(chunks))]
    analyzer = Analyzer(made)
    analyzer.plan()
    with pytest.raises(FrameError, match="truncated"):
        analyzer.conclude(b"".join(frames[:-1]))
    conclusion = analyzer.conclude(frames[-1])
    assert (conclusion.following, conclusion.tally.reports) == (None, N)
