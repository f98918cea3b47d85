"""Users, shuffler and analyzer at work: what is dropped and why, what is refused, what the view is
and is not.
"""

import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from processes import python
from rounds import ROUNDS, deployed, interactive
from rounds import rows as rounds_rows
from scipy.stats import norm

from protocols import ScalarSum, VectorSum
from shuffle_sim import Execution, run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import (
    AccountingError,
    FrameError,
    ParameterError,
    RoundAbortedError,
    ShuffleSimError,
)
from shuffle_sim.execution.costs import users_to_shuffler
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import worker_blocks
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.adversary import Adversary, Dropout
from shuffle_sim.protocol.base import Datum
from shuffle_sim.roles import (
    FIDELITIES,
    Analyzer,
    ShardRecord,
    Shuffler,
    UserShard,
    count_type,
)
from shuffle_sim.wire.codec import decode, encode
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

N, D, BLOCK = 21, 3, 8  # blocks of 8, 8 and 5 users
TASK = bytes(range(16))
ROWS = np.random.default_rng(0).normal(size=(N, D)) / 4
PROTOCOL = VectorSum(n=N, d=D, g=4, b=7)  # 33 bits a report: 7 bits of padding
RANDOMIZER, LABEL = PROTOCOL.randomizer, PROTOCOL.randomizer.per_label


class Silent(Adversary):
    def __init__(self, first):
        self.first = first

    def corrupt(self, round_index, users, rng):
        return users[users < self.first]

    def report(self, user, x, call_next, rng):
        return None


class Sends(Silent):
    def __init__(self, first, payload):
        super().__init__(first)
        self.payload = payload

    def report(self, user, x, call_next, rng):
        return self.payload(call_next(x)) if callable(self.payload) else self.payload


class Watches(Adversary):
    def __init__(self):
        self.seen = []

    def observe(self, tally):
        self.seen.append(tally)


def deploy(fidelity="literal", adversary=None, protocol=PROTOCOL, entropy=7):
    own = {"task": TASK, "entropy": entropy, "fidelity": fidelity, "adversary": adversary}
    return deployed(protocol, BLOCK, **own)


def ask(fidelity="literal", adversary=None, rows=ROWS, protocol=PROTOCOL):
    """A deployment, its first broadcast, and the frames of all users."""
    deployment = deploy(fidelity, adversary, protocol)
    broadcast = Analyzer(deployment).plan().broadcast
    batch, _ = UserShard(deployment, InMemory(rows), deployment.blocks()).answer(broadcast)
    return deployment, broadcast, [parse(data) for data in split_frames(batch)]


def shuffled(deployment, broadcast, frames):
    view, record = Shuffler(deployment).shuffle(broadcast, [frame.tobytes() for frame in frames])
    return parse(view), record


def ones_of(frame):
    assert int.from_bytes(frame.payload[:8], "big") == frame.reports * LABEL
    if frame.kind is Kind.VIEW_TALLY:
        return np.frombuffer(frame.payload[8:], "<i8").tolist()
    return (
        np.unpackbits(np.frombuffer(frame.payload[8:], np.uint8).reshape(D, -1), axis=1)
        .sum(axis=1)
        .tolist()
    )


def ones_sent(frames):
    total = np.zeros(D, np.int64)
    for frame in frames:
        if frame.kind in (Kind.REPORTS, Kind.REPORT):
            total += Messages.from_bytes(
                RANDOMIZER.alphabet, LABEL, frame.payload, frame.reports
            ).sums()
        else:
            total += (
                np.frombuffer(
                    frame.payload, count_type(RANDOMIZER) if frame.kind is Kind.COUNTS else "<i8"
                )
                .reshape(-1, D)
                .sum(axis=0, dtype=np.int64)
            )
    return total.tolist()


def bumped(frame, value, dtype, at=0):
    numbers = np.frombuffer(frame.payload, dtype).copy()
    numbers[at] = value
    return replace(frame, payload=numbers.tobytes())


# Users


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_each_block_answers_with_one_frame_of_its_users(fidelity):
    _, broadcast, frames = ask(fidelity)
    kinds = {"literal": Kind.REPORTS, "counts": Kind.COUNTS, "aggregate": Kind.TALLY}
    assert [(f.kind, f.index, f.reports) for f in frames] == [
        (kinds[fidelity], 0, 8),
        (kinds[fidelity], 1, 8),
        (kinds[fidelity], 2, 5),
    ]
    assert {f.context for f in frames} == {Context.of_broadcast(TASK, 0, parse(broadcast).payload)}


def test_frames_of_equally_many_users_are_equally_long():
    lengths = {
        tuple(len(f.tobytes()) for f in ask(rows=rows)[2])
        for rows in (ROWS, 0 * ROWS, ROWS + 9, -ROWS)
    }
    assert len(lengths) == 1


@pytest.mark.parametrize(
    "ranges", [((0, 21),), ((2, 5),), ((0, 1), (3, 9), (16, 21)), ((7, 9), (10, 12)), ((20, 21),)]
)
def test_only_the_cohort_answers_at_the_cost_of_the_formula(ranges):
    cohort, deployment = Cohort(ranges), deploy()
    payload = encode((cohort, Datum(), RANDOMIZER, 1))
    broadcast = Frame(Kind.ROUND, Context.of_broadcast(TASK, 0, payload), 0, 0, payload).tobytes()
    batch, record = UserShard(deployment, InMemory(ROWS), deployment.blocks()).answer(broadcast)
    assert record == ShardRecord(asked=cohort.size, clipped=record.clipped)
    assert sum(parse(data).reports for data in split_frames(batch)) == cohort.size
    assert len(batch) == users_to_shuffler(RANDOMIZER, cohort, BLOCK)
    assert (
        shuffled(deployment, broadcast, [parse(data) for data in split_frames(batch)])[1].accepted
        == cohort.size
    )


@pytest.mark.parametrize("ranges", [((0, 21),), ((2, 5), (9, 12)), ((7, 8), (15, 17))])
def test_each_user_answers_with_its_own_row(ranges):
    rows = np.zeros((N, D))
    # Multiples of a rounding step: nothing is random.
    rows[range(N), np.arange(N) % D] = np.arange(N) // D % 5 / 2 - 1
    cohort, deployment = Cohort(ranges), deploy("counts")
    payload = encode((cohort, Datum(), replace(RANDOMIZER, b=1, p=1e-12), 1))
    broadcast = Frame(Kind.ROUND, Context.of_broadcast(TASK, 0, payload), 0, 0, payload).tobytes()
    batch, _ = UserShard(deployment, InMemory(rows), deployment.blocks()).answer(broadcast)
    counts = np.concatenate(
        [
            np.frombuffer(parse(data).payload, count_type(RANDOMIZER)).reshape(-1, D)
            for data in split_frames(batch)
        ]
    )
    assert counts.tolist() == [
        ((rows[user] + 1) * 2).tolist() for low, high in ranges for user in range(low, high)
    ]


def test_a_shard_answers_a_broadcast_again_with_the_same_bytes():
    deployment = deploy()
    broadcast = Analyzer(deployment).plan().broadcast
    shard = UserShard(deployment, InMemory(ROWS), deployment.blocks())
    assert shard.answer(broadcast) == shard.answer(broadcast)


@pytest.mark.parametrize(
    "other", [replace(RANDOMIZER, b=8), replace(RANDOMIZER, g=5), Cohort.of(0, 5)]
)
def test_a_shard_answers_no_second_broadcast_for_the_same_round(other):
    deployment = deploy()
    broadcast = Analyzer(deployment).plan().broadcast
    shard = UserShard(deployment, InMemory(ROWS), deployment.blocks())
    shard.answer(broadcast)
    cohort, randomizer = (
        (other, RANDOMIZER) if isinstance(other, Cohort) else (Cohort.of(0, N), other)
    )
    payload = encode((cohort, Datum(), randomizer, 1))
    changed = Frame(Kind.ROUND, Context.of_broadcast(TASK, 0, payload), 0, 0, payload).tobytes()
    with pytest.raises(ShuffleSimError):
        shard.answer(changed)


def test_blocks_do_not_share_their_randomness():
    _, _, frames = ask(rows=np.zeros((N, D)))
    assert frames[0].payload != frames[1].payload


def test_a_value_that_is_not_finite_is_sent_as_zero_and_counted():
    rows = ROWS.copy()
    rows[[3, 12]] = [[np.nan, 0, 0], [0, np.inf, -np.inf]]
    zeroed = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    deployment = deploy()
    broadcast = Analyzer(deployment).plan().broadcast
    batch, record = UserShard(deployment, InMemory(rows), deployment.blocks()).answer(broadcast)
    assert record.nonfinite == 2
    assert batch == b"".join(f.tobytes() for f in ask(rows=zeroed)[2])


def test_a_word_the_protocol_does_not_speak_is_not_answered():
    payload = encode((Cohort.of(0, N), Datum(), RANDOMIZER, 1)).replace(b"Datum", b"Datun")
    broadcast = Frame(Kind.ROUND, Context.of_broadcast(TASK, 0, payload), 0, 0, payload).tobytes()
    for role in (
        UserShard(deploy(), InMemory(ROWS), range(3)).answer,
        lambda data: Shuffler(deploy()).shuffle(data, []),
    ):
        with pytest.raises(FrameError, match="Datun is not in the vocabulary"):
            role(broadcast)


# Shuffler: what is dropped


def of_context(**changes):
    return lambda frame: replace(frame, context=replace(frame.context, **changes))


def of_kind(kind):
    return lambda frame: replace(frame, kind=kind)


BAD = {
    "another task": ("literal", "wrong-task", of_context(task=bytes(16))),
    "a later round": ("literal", "wrong-round", of_context(round=1)),
    "other parameters": ("literal", "wrong-parameters", of_context(parameters=bytes(16))),
    "another task and round": ("counts", "wrong-task", of_context(task=bytes(16), round=9)),
    "a block sent before": ("literal", "duplicate-block", lambda f: replace(f, index=0)),
    "counts sent before": ("counts", "duplicate-block", lambda f: replace(f, index=1)),
    "a tally sent before": ("aggregate", "duplicate-block", lambda f: replace(f, index=1)),
    "a byte more": ("literal", "wrong-length", lambda f: replace(f, payload=f.payload + b"\0")),
    "a byte less": ("literal", "wrong-length", lambda f: replace(f, payload=f.payload[:-1])),
    "a report more": (
        "literal",
        "wrong-length",
        lambda f: replace(f, payload=f.payload + bytes(RANDOMIZER.report_bytes)),
    ),
    "nothing": ("literal", "wrong-length", lambda f: replace(f, payload=b"")),
    "padding": (
        "literal",
        "nonzero-padding",
        lambda f: replace(f, payload=f.payload[:-1] + b"\x01"),
    ),
    "a count too large": ("counts", "count-out-of-range", lambda f: bumped(f, LABEL + 1, "<u1")),
    "the largest count": ("counts", "count-out-of-range", lambda f: bumped(f, 255, "<u1")),
    "a count more": ("counts", "wrong-length", lambda f: replace(f, payload=f.payload + bytes(2))),
    "half a count": ("counts", "wrong-length", lambda f: replace(f, payload=f.payload[:-1])),
    "a tally too large": (
        "aggregate",
        "count-out-of-range",
        lambda f: bumped(f, 5 * LABEL + 1, "<i8"),
    ),
    "a negative tally": ("aggregate", "count-out-of-range", lambda f: bumped(f, -1, "<i8", 2)),
    "the least tally": ("aggregate", "count-out-of-range", lambda f: bumped(f, -(2**63), "<i8")),
    "a label more": (
        "aggregate",
        "wrong-length",
        lambda f: replace(f, payload=f.payload + bytes(8)),
    ),
    "a label less": ("aggregate", "wrong-length", lambda f: replace(f, payload=f.payload[:-8])),
    "a view": ("literal", "wrong-kind", of_kind(Kind.VIEW)),
    "a broadcast": ("literal", "wrong-kind", of_kind(Kind.ROUND)),
    "a view's tally": ("aggregate", "wrong-kind", of_kind(Kind.VIEW_TALLY)),
}


@pytest.mark.parametrize(("fidelity", "reason", "spoil"), BAD.values(), ids=BAD)
def test_a_bad_frame_is_dropped_and_counted(fidelity, reason, spoil):
    deployment, broadcast, frames = ask(fidelity)
    view, record = shuffled(deployment, broadcast, [*frames[:2], spoil(frames[2])])
    assert record.dropped == {reason: 5}
    assert record.accepted == view.reports == 16
    assert ones_of(view) == ones_sent(frames[:2])


@pytest.mark.parametrize("body", [b"", b"x", b"\xc1" * 50, b"\x94\x01\x01\xc4\0\xc4\0"])
def test_a_frame_too_broken_to_say_counts_for_one_report(body):
    deployment, broadcast, frames = ask()
    batches = [frames[0].tobytes() + len(body).to_bytes(4, "big") + body + frames[1].tobytes()]
    view, record = Shuffler(deployment).shuffle(broadcast, batches)
    assert record.dropped == {"malformed": 1}
    assert ones_of(parse(view)) == ones_sent(frames[:2])
    assert (record.bytes_in, record.bytes_out) == (len(batches[0]), len(view))


@pytest.mark.parametrize("end", [b"\0", b"\0\0\0\x09x", b"\xff\xff\xff\xff"])
def test_a_batch_with_a_broken_end_loses_that_end_only(end):
    deployment, broadcast, frames = ask()
    view, record = Shuffler(deployment).shuffle(
        broadcast, [frames[0].tobytes() + end, frames[1].tobytes()]
    )
    assert sum(record.dropped.values()) == 1
    assert ones_of(parse(view)) == ones_sent(frames[:2])


def test_a_block_counts_once_whatever_the_kinds_of_its_frames():
    deployment, broadcast, frames = ask()
    again = replace(
        frames[0], kind=Kind.TALLY, payload=np.array(ones_sent(frames[:1]), "<i8").tobytes()
    )
    view, record = shuffled(deployment, broadcast, [frames[0], again, frames[2]])
    assert record.accepted == view.reports == 13
    assert record.dropped == {"wrong-kind": 8}  # a literal run takes no tallies


def single(change):
    """The report of user 0, alone in its frame, changed."""
    deployment, broadcast, frames = ask(adversary=Sends(1, lambda honest: honest))
    (packet,) = (f for f in frames if f.kind is Kind.PACKET)
    rest = [f for f in frames if f is not packet]
    changed = replace(packet, payload=change(parse(packet.payload)).tobytes())
    return rest, shuffled(deployment, broadcast, [*rest, changed])


ONE = {
    "a byte more": ("wrong-length", lambda f: replace(f, payload=f.payload + b"\0")),
    "a byte less": ("wrong-length", lambda f: replace(f, payload=f.payload[:-1])),
    "twice": ("wrong-length", lambda f: replace(f, payload=f.payload * 2)),
    "nothing": ("wrong-length", lambda f: replace(f, payload=b"")),
    "a bit more": (
        "nonzero-padding",
        lambda f: replace(f, payload=f.payload[:-1] + bytes([f.payload[-1] | 64])),
    ),
    "the last bit": (
        "nonzero-padding",
        lambda f: replace(f, payload=f.payload[:-1] + bytes([f.payload[-1] | 1])),
    ),
}


@pytest.mark.parametrize(("reason", "change"), ONE.values(), ids=ONE)
def test_a_report_of_another_size_is_dropped_never_padded(reason, change):
    rest, (view, record) = single(change)
    assert record.dropped == {reason: 1}
    assert record.accepted == view.reports == N - 1
    assert ones_of(view) == ones_sent(rest)


@pytest.mark.parametrize("reports", [0, 2, 2**32 - 1])
def test_a_single_report_cannot_count_for_more_or_fewer_users(reports):
    rest, (view, record) = single(lambda f: replace(f, reports=reports))
    assert set(record.dropped) == {"wrong-count"}
    assert view.reports == N - 1
    assert ones_of(view) == ones_sent(rest)


def test_a_good_single_report_is_added():
    rest, (view, record) = single(lambda f: f)
    assert (record.accepted, record.dropped, view.reports) == (N, {}, N)
    assert sum(ones_of(view)) >= sum(ones_sent(rest))


def test_frames_that_say_no_reports_add_nothing():
    deployment, broadcast, frames = ask()
    empty = [
        replace(frames[0], index=9, reports=0, payload=b""),
        replace(frames[0], kind=Kind.COUNTS, reports=0, payload=b""),
    ]
    view, record = shuffled(deployment, broadcast, [*frames, empty[0]])
    assert (record.accepted, record.dropped, ones_of(view)) == (N, {}, ones_sent(frames))
    assert shuffled(deployment, broadcast, [*frames, empty[1]])[1].accepted == N


# Shuffler: what is refused


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_round_is_released_once(fidelity):
    deployment, broadcast, frames = ask(fidelity)
    shuffler, batch = Shuffler(deployment), [f.tobytes() for f in frames]
    shuffler.shuffle(broadcast, batch)
    for again in (batch, batch[:1]):
        with pytest.raises(RoundAbortedError, match="released before"):
            shuffler.shuffle(broadcast, again)


def test_an_earlier_round_is_not_released_after_a_later_one():
    deployment, broadcast, frames = ask()
    shuffler, first = Shuffler(deployment), parse(broadcast)
    later = Frame(Kind.ROUND, Context.of_broadcast(TASK, 3, first.payload), 0, 0, first.payload)
    shuffler.shuffle(later.tobytes(), [of_context(round=3)(f).tobytes() for f in frames])
    with pytest.raises(RoundAbortedError, match="released before"):
        shuffler.shuffle(broadcast, [f.tobytes() for f in frames])


def test_nothing_is_released_below_the_minimum():
    protocol = VectorSum(n=N, d=D, g=4, b=7, honest_fraction=0.7)  # 15 of 21
    deployment, broadcast, frames = ask(protocol=protocol)
    for too_few in ([], frames[:1], frames[1:], [*frames[:1], of_context(round=1)(frames[1])]):
        with pytest.raises(RoundAbortedError, match="agreed are at least 15"):
            shuffled(deployment, broadcast, too_few)
    assert shuffled(deployment, broadcast, frames[:2])[1].accepted == 16


def test_an_empty_round_is_not_released():
    deployment, broadcast, _ = ask()
    with pytest.raises(RoundAbortedError, match="0 reports accepted"):
        Shuffler(deployment).shuffle(broadcast, [])


def test_more_reports_than_users_are_dropped():
    deployment, broadcast, frames = ask()
    report = Frame(Kind.REPORT, frames[0].context, 0, 1, bytes(RANDOMIZER.report_bytes))
    extra = replace(report, kind=Kind.PACKET, payload=report.tobytes())
    view, record = shuffled(deployment, broadcast, [*frames, extra])
    assert record.dropped == {"too-many-reports": 1}
    assert view.reports == 21
    assert ones_of(view) == ones_sent(frames)


# Shuffler: the view


def test_a_literal_view_has_the_ones_of_users_not_their_order():
    deployment, broadcast, frames = ask()
    sent = [
        Messages.from_bytes(RANDOMIZER.alphabet, LABEL, f.payload, f.reports).symbols
        for f in frames
    ]
    in_order = np.concatenate(sent).transpose(1, 0, 2).reshape(D, -1)
    view, _ = shuffled(deployment, broadcast, frames)
    assert (view.kind, view.index, view.reports) == (Kind.VIEW, 0, N)
    bits = np.unpackbits(np.frombuffer(view.payload[8:], np.uint8).reshape(D, -1), axis=1)[
        :, : N * LABEL
    ]
    assert np.array_equal(bits.sum(axis=1), in_order.sum(axis=1))
    changed = (bits != in_order).sum(axis=1)
    assert (changed > N * LABEL / 5).all()  # half of some 231 places are expected to differ


def test_the_view_does_not_depend_on_the_order_of_frames():
    deployment, broadcast, frames = ask()
    views = {
        shuffled(deployment, broadcast, order)[0]
        for order in (frames, frames[::-1], [*frames[1:], frames[0]])
    }
    assert len(views) == 1


def test_another_entropy_or_round_permutes_otherwise():
    deployment, broadcast, frames = ask()
    payload = parse(broadcast).payload
    later = Frame(Kind.ROUND, Context.of_broadcast(TASK, 1, payload), 0, 0, payload).tobytes()
    views = [
        shuffled(deployment, broadcast, frames)[0],
        shuffled(deploy(entropy=8), broadcast, frames)[0],
        shuffled(deployment, later, [of_context(round=1)(f) for f in frames])[0],
    ]
    assert len({view.payload for view in views}) == 3
    assert ones_of(views[0]) == ones_of(views[1]) == ones_of(views[2])


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("adversary", [None, Dropout(0.3), Sends(5, lambda honest: honest)])
def test_the_view_is_the_same_on_any_number_of_workers(fidelity, adversary):
    deployment = deploy(fidelity, adversary)
    broadcast = Analyzer(deployment).plan().broadcast
    views = set()
    for workers in (1, 2, 3):
        shards = [
            UserShard(deployment, InMemory(ROWS), blocks)
            for blocks in worker_blocks(deployment, workers)
        ]
        views.add(
            Shuffler(deployment).shuffle(
                broadcast, [shard.answer(broadcast)[0] for shard in shards]
            )[0]
        )
    assert len(views) == 1


# Analyzer


def resized(chunk, size):
    """A view chunk that says it has so many messages under each label."""
    return size.to_bytes(8, "big") + chunk[8:]


REJECTED_TALLIES = {
    "a number more": ("wrong-length", lambda f: replace(f, payload=f.payload + bytes(8))),
    "no size": ("wrong-length", lambda f: replace(f, payload=f.payload[:7])),
    "too large": (
        "count-out-of-range",
        lambda f: replace(
            f, payload=f.payload[:8] + np.array([0, 0, N * LABEL + 1], "<i8").tobytes()
        ),
    ),
    "of more reports than were said": (
        "wrong-length",
        lambda f: replace(f, payload=resized(f.payload, (N + 1) * LABEL)),
    ),
    "the messages themselves": ("wrong-kind", of_kind(Kind.VIEW)),
}
REJECTED = {
    "another round": ("wrong-round", of_context(round=1)),
    "another run": ("wrong-task", of_context(task=bytes(16))),
    "other parameters": ("wrong-parameters", of_context(parameters=bytes(16))),
    "users' reports": ("wrong-kind", of_kind(Kind.REPORTS)),
    "a broadcast": ("wrong-kind", of_kind(Kind.ROUND)),
    "a users' tally": ("wrong-kind", of_kind(Kind.TALLY)),
    "a byte more": ("wrong-length", lambda f: replace(f, payload=f.payload + b"\0")),
    "a byte less": ("wrong-length", lambda f: replace(f, payload=f.payload[:-1])),
    "another number of users": ("wrong-length", lambda f: replace(f, reports=f.reports - 1)),
    "a tally": ("wrong-kind", of_kind(Kind.VIEW_TALLY)),
    "more messages than those of its reports": (
        "wrong-length",
        lambda f: replace(f, payload=resized(f.payload, N * LABEL + 1)),
    ),
    "ones in the padding": (
        "nonzero-padding",
        lambda f: replace(f, payload=f.payload[:-1] + bytes([f.payload[-1] | 1])),
    ),
}


@pytest.mark.parametrize(
    ("fidelity", "reason", "change"),
    [("literal", *case) for case in REJECTED.values()]
    + [("aggregate", *case) for case in REJECTED_TALLIES.values()],
    ids=[*REJECTED, *REJECTED_TALLIES],
)
def test_the_analyzer_rejects_what_is_not_this_rounds_view(fidelity, reason, change):
    watch = Watches()
    deployment, broadcast, frames = ask(fidelity, adversary=watch)
    view, _ = shuffled(deployment, broadcast, frames)
    analyzer, untouched = Analyzer(deployment), Analyzer(deployment)
    assert analyzer.plan() == untouched.plan()
    with pytest.raises(FrameError) as rejected:
        analyzer.receive(change(view).tobytes())
    assert rejected.value.reason == reason
    assert watch.seen == []
    with pytest.raises(ParameterError):
        analyzer.result()
    for each in (analyzer, untouched):  # the genuine view is still taken, with the same result
        each.receive(view.tobytes())
    assert analyzer.result().tolist() == untouched.result().tolist()
    assert len(watch.seen) == 2


@pytest.mark.parametrize("cut", [0, 3, 10, 60])
def test_the_analyzer_rejects_a_cut_view(cut):
    deployment, broadcast, frames = ask()
    analyzer = Analyzer(deployment)
    analyzer.plan()
    with pytest.raises(FrameError, match="truncated"):
        analyzer.receive(shuffled(deployment, broadcast, frames)[0].tobytes()[:cut])


def test_the_analyzer_takes_a_view_once_and_only_when_planned():
    deployment, broadcast, frames = ask()
    view, analyzer = shuffled(deployment, broadcast, frames)[0].tobytes(), Analyzer(deployment)
    with pytest.raises(RoundAbortedError, match="no round is planned"):
        analyzer.receive(view)
    analyzer.plan()
    analyzer.receive(view)
    first = analyzer.result().tolist()
    with pytest.raises(RoundAbortedError, match="no round is planned"):
        analyzer.receive(view)
    assert analyzer.plan() is None
    with pytest.raises(RoundAbortedError, match="no round is planned"):
        analyzer.receive(view)
    assert analyzer.result().tolist() == first


def test_the_analyzer_estimates_from_the_reports_received():
    deployment, broadcast, frames = ask()
    view, _ = shuffled(deployment, broadcast, frames[:2])
    analyzer = Analyzer(deployment)
    analyzer.plan()
    analyzer.receive(view.tobytes())
    noise = RANDOMIZER.p * RANDOMIZER.b * 16
    assert analyzer.result() == pytest.approx(
        [2 / 4 * (ones - noise) - 16 for ones in ones_of(view)]
    )


# Whole runs


def check_accounts(result, users=N):
    accounts = result.reports
    assert (
        accounts.asked
        == users
        == accounts.accepted + sum(accounts.dropped.values()) + accounts.missing
    )
    return accounts


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_every_user_of_a_run_with_dropouts_is_accounted_for(fidelity, rate):
    protocol, xs = ScalarSum(n=2000, g=4, b=8), np.linspace(0, 1, 2000)
    accounts = check_accounts(
        run(protocol, xs, fidelity=fidelity, seed=3, adversary=Dropout(rate)), 2000
    )
    assert accounts.missing == accounts.corrupted
    assert accounts.dropped == {}
    z = (accounts.missing - 2000 * rate) / np.sqrt(2000 * 0.3 * 0.7)
    assert abs(z) < norm.isf(0.5e-6)
    assert (accounts.missing == 0) == (rate == 0)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.full
def test_everybody_silent_releases_nothing(fidelity):
    with pytest.raises(RoundAbortedError, match="0 reports accepted"):
        run(PROTOCOL, ROWS, fidelity=fidelity, seed=1, adversary=Dropout(1.0))


GARBAGE = {
    "nothing": (b"", {"wrong-length": 6}),
    "too short": (b"\xff" * 4, {"wrong-length": 6}),
    "too long": (b"\xff" * 6, {"wrong-length": 6}),
    "a megabyte": (bytes(1 << 20), {"oversized": 6}),
    "padding": (b"\0\0\0\0\x01", {"nonzero-padding": 6}),
    "the report twice": (lambda honest: honest.tobytes() * 2, {"wrong-length": 6}),
    "a larger alphabet": (
        lambda honest: Messages.from_ones(np.full((1, D), 9), 20),
        {"wrong-length": 6},
    ),
    "all zeros": (bytes(5), {}),
    "all ones": (b"\xff\xff\xff\xff\x80", {}),
}


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(("payload", "dropped"), GARBAGE.values(), ids=GARBAGE)
@pytest.mark.full
def test_garbage_is_dropped_by_reason_and_accounted_for(payload, dropped, fidelity):
    accounts = check_accounts(
        run(PROTOCOL, ROWS, fidelity=fidelity, seed=4, adversary=Sends(6, payload))
    )
    assert (accounts.dropped, accounts.corrupted, accounts.missing) == (dropped, 6, 0)


def test_extreme_reports_move_the_estimate_by_what_they_add():
    values = [
        run(PROTOCOL, ROWS, fidelity="literal", seed=5, adversary=Sends(6, p)).value
        for p in (bytes(5), b"\xff" * 4 + b"\x80")
    ]
    assert values[1] - values[0] == pytest.approx([6 * LABEL * 2 / 4] * D)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.full
def test_the_estimate_is_unbiased_for_the_users_that_report(fidelity):
    runs, n, gone = 200, 60, 23
    xs, protocol = np.random.default_rng(6).random(n) ** 2, ScalarSum(n=n, g=8, b=16)
    results = [
        run(protocol, xs, fidelity=fidelity, seed=seed, adversary=Silent(gone))
        for seed in range(runs)
    ]
    assert {r.reports.missing for r in results} == {gone}
    mean = np.mean([r.value for r in results])
    error = float(np.sqrt(protocol.randomizer.variance(n - gone, xs[gone:])[0] / runs))
    limit = norm.isf(0.5e-6) * error  # two-sided false-alarm rate 1e-6
    assert abs(mean - xs[gone:].sum()) < limit
    assert abs(mean - xs.sum()) > limit  # power: the sum over all users is another
    # Power: noise subtracted for n users.
    assert abs(mean - gone * 16 * 0.5 / 8 - xs[gone:].sum()) > limit


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("adversary", [None, Dropout(0.2)])
@pytest.mark.full
def test_same_seed_same_bits_on_1_2_3_and_7_workers(fidelity, adversary):
    results = [
        run(
            PROTOCOL,
            ROWS,
            workers=workers,
            fidelity=fidelity,
            seed=11,
            adversary=adversary,
            execution=Execution(block_size=2),
        )
        for workers in (1, 2, 3, 7)
    ]
    assert len({r.value.tobytes() for r in results}) == 1
    assert all(
        (r.costs, r.reports, r.privacy)
        == (results[0].costs, results[0].reports, results[0].privacy)
        for r in results
    )
    assert (
        run(PROTOCOL, ROWS, fidelity=fidelity, seed=12, adversary=adversary).value.tobytes()
        != results[0].value.tobytes()
    )


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "half", None, True])
def test_a_dropout_rate_outside_the_unit_interval_is_refused(rate):
    with pytest.raises(ParameterError, match="rate"):
        Dropout(rate)


@pytest.mark.parametrize(
    "content",
    [
        5,
        (1, 2),
        (Cohort.of(0, 3), Datum()),
        ("x", 1, 2, 3),
        (Cohort.of(0, N), Datum(), RANDOMIZER, 0),
    ],
)
def test_a_broadcast_that_is_none_is_refused_by_name(content):
    payload = encode(content)
    broadcast = Frame(Kind.ROUND, Context.of_broadcast(TASK, 0, payload), 0, 0, payload).tobytes()
    with pytest.raises(FrameError, match="malformed-broadcast"):
        deploy().opened(broadcast)


def protocol_with(*classes):
    """The protocol with another vocabulary."""
    protocol = VectorSum(n=N, d=D, g=4, b=7)
    kind = type("Worded", (VectorSum,), {"vocabulary": property(lambda self: classes)})
    protocol.__class__ = kind
    return protocol


def test_two_classes_of_one_name_are_refused_uncharged():
    twin = dataclass(frozen=True)(type("Datum", (Datum,), {}))
    one_name = protocol_with(Datum, twin, type(RANDOMIZER))
    another = protocol_with(twin, type(RANDOMIZER))  # the round asks for the Datum outside it
    for protocol, message in ((one_name, "one class, not of"), (another, "query.Datum.*known")):
        with pytest.raises(ParameterError, match=f"^vocabulary = .*{message}") as refused:
            run(protocol, ROWS, seed=1)
        assert refused.value.ledger is None or not refused.value.ledger.charges


@pytest.mark.parametrize(
    "how", [{}, {"security": "onion"}, {"adversary": Silent(3)}, {"shuffler_shards": 2}]
)
@pytest.mark.full
def test_a_broadcast_is_decoded_once_a_round(monkeypatch, how):
    decoded = Counter()

    def counted(data, *more):
        decoded[data] += 1
        return decode(data, *more)

    monkeypatch.setattr("shuffle_sim.roles.deployment.decode", counted)
    result = run(interactive(), rounds_rows(), seed=1, workers=2, **how)
    assert len(decoded) == result.rounds == ROUNDS
    assert set(decoded.values()) == {1}


def test_a_deployment_keeps_nothing_of_what_it_decoded():
    deployment, broadcast, _ = ask()
    fresh = deploy()
    assert deployment.opened(broadcast) is deployment.opened(broadcast)
    assert pickle.dumps(deployment) == pickle.dumps(fresh)
    assert deployment.opened(broadcast) is pickle.loads(pickle.dumps(fresh)).opened(broadcast)
    other = replace(deployment, task=bytes(16))
    with pytest.raises(FrameError, match="wrong-task"):
        other.opened(broadcast)


class FewerRows(Population):
    """Says that it has all rows, and gives fewer."""

    users = property(lambda self: N)

    def rows(self, start, stop):
        return ROWS[start : min(stop, N - 3)]


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.full
def test_data_with_fewer_rows_than_it_said_is_not_passed_over(fidelity):
    with pytest.raises(
        AccountingError, match=f"{N} users are in the cohort, {N - 3} were asked"
    ) as lost:
        run(PROTOCOL, FewerRows(), fidelity=fidelity, seed=1)
    assert lost.value.ledger.settled  # and what was added is known


def test_no_claim_of_a_paper_where_honest_reports_were_lost():
    class Loses(InProcessRuntime):
        def call(self, host, method, *arguments, many=(), returns=1):
            many = [b"".join(list(split_frames(batch))[:-1]) + b"\0\0\0\1x" for batch in many]
            return super().call(host, method, *arguments, many=many, returns=returns)

    protocol = ScalarSum.paper(n=40, privacy=Privacy(1.0, 0.1))
    whole = run(
        protocol, np.zeros(40), fidelity="counts", seed=1, execution=Execution(block_size=39)
    )
    assert whole.privacy == whole.promised
    lost = run(
        protocol,
        np.zeros(40),
        fidelity="counts",
        seed=1,
        execution=Execution(block_size=39),
        runtime=Loses(),
    )
    assert lost.reports.dropped == {"malformed": 1}
    assert "theory" in lost.privacy.basis


@pytest.mark.full
def test_runs_in_threads_do_not_share_their_scratch_memory():
    protocol, rows = (
        VectorSum(n=4000, d=20, g=30, b=9),
        np.random.default_rng(1).normal(size=(4000, 20)) / 9,
    )
    alone = [
        run(protocol, rows, fidelity="aggregate", seed=seed).value.tobytes() for seed in range(12)
    ]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(
            lambda seed: run(protocol, rows, fidelity="aggregate", seed=seed).value.tobytes(),
            range(12),
        )
    assert list(together) == alone


@pytest.mark.full
def test_a_role_s_process_loads_no_heavy_library():
    # Every actor has a process of its own: what they load counts as many times.
    heavy = (
        "scipy.special",
        "scipy.optimize",
        "scipy.stats",
        "sklearn",
        "matplotlib",
        "pyarrow",
        "rich",
    )
    code = (
        f"import sys, protocols, shuffle_sim.roles; print([name for name in {heavy} if name in "
        f"sys.modules])"
    )
    done = python("-c", code, check=True)
    assert done.stdout == "[]\n"
