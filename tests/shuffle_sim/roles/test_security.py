"""Traffic under seal: the same results, nothing readable where it should not be, everything altered
dropped and counted.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from rounds import deployed
from runs import run

from protocols import VectorSum
from protocols.sums.split_mix import SplitMixRandomizer
from protocols.sums.split_mix_sum import SplitAndMixSum
from shuffle_sim import ParameterError
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.execution.costs import users_to_shuffler
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import HostLostError
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.roles import Analyzer, Directory, Shuffler, UserShard
from shuffle_sim.roles.onion import BoxPool, box_bytes, bundle_bytes, read_boxes
from shuffle_sim.wire.frames import Context, Frame, Kind, frame_bytes, parse, split_frames
from shuffle_sim.wire.sealing import SEAL, KeyPair, Purpose, Sealer

N, D = 6, 2
VECTOR = VectorSum(n=N, d=D, g=3, b=2)
ROWS = np.linspace(-0.5, 0.5, N * D).reshape(N, D)


class Setting:
    """Users, shuffler and analyzer who have met, and one round's answers."""

    def __init__(self, security, shards=1, fidelity="literal"):
        how = {"fidelity": fidelity, "shuffler_shards": shards, "security": security}
        deployment = deployed(VECTOR, 2, **how)
        self.users = UserShard(deployment, InMemory(ROWS), range(3))
        self.shufflers = [Shuffler(deployment, shard) for shard in range(shards)]
        self.analyzer = Analyzer(deployment)
        users, *shufflers, analyzer = (
            role.introduce() for role in (self.users, *self.shufflers, self.analyzer)
        )
        self.directory = Directory((users,), tuple(shufflers), (analyzer,))
        for role in (self.users, *self.shufflers, self.analyzer):
            role.meet(self.directory)
        self.broadcast = self.analyzer.plan().broadcast
        self.context = parse(self.broadcast).context
        self.frames = [parse(data) for data in split_frames(self.users.answer(self.broadcast)[0])]
        self.randomizer = VECTOR.randomizer

    def shuffled(self, frames):
        return self.shufflers[0].shuffle(
            self.broadcast, [b"".join(frame.tobytes() for frame in frames)]
        )

    def bundle(self, boxes, purpose=Purpose.BUNDLE, recipient=None, context=None):
        content = Sealer(
            recipient or self.directory.shufflers[0], purpose, context or self.context
        ).seal(b"".join(boxes))
        return replace(self.frames[0], payload=content)

    def message(self, label, symbol, purpose=Purpose.MESSAGE, recipient=None, context=None):
        plain = (label << 1 | symbol).to_bytes(1, "big")
        return Sealer(
            recipient or self.directory.analyzer[0], purpose, context or self.context
        ).seal(plain)

    def boxes(self, symbol=1):
        return [
            self.message(label, symbol)
            for label in range(D)
            for _ in range(self.randomizer.per_label)
        ]


@pytest.mark.parametrize("split_up", [{}, {"workers": 2, "shuffler_shards": 3}])
def test_results_are_the_plain_ones_and_bytes_the_formula_s(split_up):
    # The engine stops a literal run whose count differs from the formula.
    plain, transport, onion = (
        run(VECTOR, ROWS, seed=4, fidelity="literal", security=security, **split_up)
        for security in ("none", "transport", "onion")
    )
    assert np.array_equal(plain.value, transport.value)
    assert np.array_equal(plain.value, onion.value)
    assert plain.costs.sealing_bytes == 0
    added = transport.costs.wire_bytes + transport.costs.view_bytes + transport.costs.routed_bytes
    assert (
        transport.costs.sealing_bytes
        == added - plain.costs.wire_bytes - plain.costs.view_bytes - plain.costs.routed_bytes
    )
    messages = N * D * VECTOR.randomizer.per_label
    if not split_up:
        assert onion.costs.sealing_bytes == SEAL * (N + 2 * messages)
    assert onion.costs.wire_bytes == N * frame_bytes(SEAL + bundle_bytes(VECTOR.randomizer))
    assert onion.costs.payload_bits_per_user == plain.costs.payload_bits_per_user
    assert (onion.security, onion.fidelity) == ("onion", "literal")


@pytest.mark.parametrize("fidelity", ["counts", "aggregate"])
def test_transport_carries_every_fidelity(fidelity):
    plain, sealed = (
        run(VECTOR, ROWS, seed=4, fidelity=fidelity, security=security)
        for security in ("none", "transport")
    )
    assert np.array_equal(plain.value, sealed.value)
    assert sealed.costs.wire_bytes == users_to_shuffler(
        VECTOR.randomizer, VECTOR.plan(VECTOR.init()).cohort, 1, "transport"
    )


def test_symbols_of_any_alphabet_go_through_the_onion():
    protocol = SplitAndMixSum(
        n=20, randomizer=SplitMixRandomizer(1, 5, 3000 + 1096, 3, 20, 0.5, 0.0, 1.0)
    )
    xs = np.linspace(0, 1, 20)
    assert run(protocol, xs, seed=2, security="onion").value == run(protocol, xs, seed=2).value


def test_the_shuffler_moves_boxes_that_it_cannot_open():
    setting = Setting("onion")
    keys = setting.shufflers[0]._keys
    bundles = [
        keys.open(frame.payload, Purpose.BUNDLE, setting.context) for frame in setting.frames
    ]
    size = box_bytes(setting.randomizer.alphabet)
    sent = [bundle[i : i + size] for bundle in bundles for i in range(0, len(bundle), size)]
    for box in sent:
        with pytest.raises(FrameError, match="unknown-key"):
            keys.open(box, Purpose.MESSAGE, setting.context)
        forged = keys.public.key_id + box[8:]
        with pytest.raises(FrameError, match="not-authentic"):
            keys.open(forged, Purpose.MESSAGE, setting.context)
    view, record = setting.shuffled(setting.frames)
    _, boxes = read_boxes(parse(view).payload, setting.randomizer)
    assert record.accepted == N
    assert Counter(box.tobytes() for row in boxes for box in row) == Counter(sent)
    assert [box.tobytes() for row in boxes for box in row] != sent
    assert setting.analyzer.receive(view)
    assert setting.analyzer.concluded().found.opened == len(sent)


def test_boxes_are_permuted_uniformly():
    """False-alarm rate 1e-6: places of two boxes of one user among 5; an order that is kept is
    caught.
    """
    randomizer = VectorSum(n=5, d=1, g=1, b=1).randomizer
    held = np.arange(5, dtype=np.uint8)[None, :, None] * np.ones(
        box_bytes(randomizer.alphabet), np.uint8
    )

    def places(cut):
        seen = []
        for _ in range(4000):
            pool = BoxPool(randomizer)
            pool.add(held)
            order = [int(row[0]) for row in cut(pool)[0]]
            seen.append(5 * order.index(0) + order.index(1))
        return seen

    rng = np.random.default_rng(3)

    def routed(pool):
        pool.cut(np.array([[5]]), rng)
        return read_boxes(pool.chunk(0, rng), randomizer)[1]

    pmf = np.where(np.eye(5).ravel() > 0, 0, 1 / 20)
    check_pmf(places(routed), pmf)
    with pytest.raises(LawError):
        check_pmf(places(lambda pool: [np.roll(pool._held[0][0], rng.integers(5), axis=0)]), pmf)


def test_every_honest_report_has_the_same_length():
    for security in ("transport", "onion"):
        setting = Setting(security)
        assert len({len(frame.payload) for frame in setting.frames}) == 1
    assert len(setting.frames[0].payload) == SEAL + bundle_bytes(setting.randomizer)


def other_round(setting):
    return Context(setting.context.task, 1, setting.context.parameters)


BUNDLES = {
    "replayed": lambda s: s.frames[1],
    "not-authentic": lambda s: replace(
        s.frames[0], payload=s.frames[0].payload[:-1] + bytes([s.frames[0].payload[-1] ^ 1])
    ),
    "unknown-key": lambda s: s.bundle(s.boxes(), recipient=KeyPair().public),
    "truncated": lambda s: replace(s.frames[0], payload=s.frames[0].payload[:40]),
    "wrong-length": lambda s: s.bundle(s.boxes()[:-1]),
    "not-sealed": lambda s: replace(s.frames[0], kind=Kind.REPORT, payload=bytes(2)),
    "wrong-round": lambda s: replace(s.frames[0], context=other_round(s)),
    "wrong-task": lambda s: replace(s.frames[0], context=replace(s.context, task=bytes(15) + b"x")),
    "wrong-count": lambda s: replace(s.frames[0], reports=2),
}


@pytest.mark.parametrize("reason", BUNDLES)
def test_a_bad_bundle_is_dropped_and_counted(reason):
    setting = Setting("onion")
    _, record = setting.shuffled([BUNDLES[reason](setting), *setting.frames[1:]])
    counted = 2 if reason == "wrong-count" else 1
    assert record.dropped == {reason: counted}
    assert record.accepted == N - 1


@pytest.mark.parametrize("how", ["purpose", "context", "role"])
def test_a_bundle_made_for_anything_else_does_not_open(how):
    setting = Setting("onion")
    bad = {
        "purpose": setting.bundle(setting.boxes(), purpose=Purpose.MESSAGE),
        "context": setting.bundle(setting.boxes(), context=other_round(setting)),
        "role": setting.bundle(setting.boxes(), recipient=setting.directory.analyzer[0]),
    }[how]
    _, record = setting.shuffled([bad, *setting.frames[1:]])
    assert record.dropped == {"unknown-key" if how == "role" else "not-authentic": 1}


def test_an_onion_does_not_say_who_sealed():
    """A limit that docs/threats.md states: whoever is on the network may pass for a user."""
    setting = Setting("onion")
    view, record = setting.shuffled([setting.bundle(setting.boxes()), *setting.frames[1:]])
    assert (record.accepted, record.singles, +record.dropped) == (N, 0, Counter())
    assert setting.analyzer.receive(view)
    assert not setting.analyzer.concluded().found.dropped


def test_bad_messages_under_seal_are_found_by_the_analyzer():
    setting = Setting("onion")
    good = setting.boxes()
    bad = {
        0: (
            setting.message(0, 1, recipient=setting.directory.shufflers[0]),
            "unknown-key",
        ),  # sealed to the shuffler instead
        1: (setting.message(0, 1, purpose=Purpose.BUNDLE), "not-authentic"),
        2: (setting.message(0, 1, context=other_round(setting)), "not-authentic"),
        3: (setting.message(1, 1), "wrong-label"),
        4: (good[0][:-1] + bytes([good[0][-1] ^ 1]), "not-authentic"),
        5: (good[6], "replayed"),
    }
    boxes = [bad[i][0] if i in bad else box for i, box in enumerate(good)]
    view, record = setting.shuffled([setting.bundle(boxes), *setting.frames[1:]])
    assert record.accepted == N
    assert setting.analyzer.receive(view)
    found = setting.analyzer.concluded().found
    assert found.dropped == Counter(reason for _, reason in bad.values())
    assert found.opened + found.dropped.total() == N * len(good)


def test_a_symbol_outside_the_alphabet_is_dropped():
    randomizer = SplitMixRandomizer(1, 2, 5, 3, 20, 1.0, 0.0, 1.0)
    from shuffle_sim.roles.onion import Opener

    keys, context = KeyPair(), Context(bytes(16), 0, bytes(16))
    sealer = Sealer(keys.public, Purpose.MESSAGE, context)
    boxes = [sealer.seal(bytes([symbol])) for symbol in (4, 5, 7)]
    opener = Opener(keys, context)
    size, tally = opener.read((3).to_bytes(8, "big") + b"".join(boxes), randomizer)
    assert (size, tally.sums.tolist(), opener.opened, opener.dropped) == (
        3,
        [4],
        1,
        {"symbol-out-of-range": 2},
    )
    with pytest.raises(FrameError, match="wrong-length"):
        opener.read((4).to_bytes(8, "big") + b"".join(boxes), randomizer)


class Garbage(Adversary):
    """User 0 seals noise of the right length; user 1 seals something shorter; user 2 sends a report
    of only ones.
    """

    def corrupt(self, round_index, users, rng):
        return users[users < 3]

    def report(self, user, x, call_next, rng):
        if user == 2:
            return b"\xff\xc0"
        return rng.bytes(bundle_bytes(VECTOR.randomizer) if user == 0 else 7)


@pytest.mark.parametrize("workers", [1, 2])
def test_sealed_garbage_is_dropped_and_all_is_accounted_for(workers):
    result = run(VECTOR, ROWS, seed=1, security="onion", adversary=Garbage(), workers=workers)
    accounts = result.reports
    assert accounts.dropped == {"wrong-length": 1}
    assert accounts.dropped_messages == {"unknown-key": D * VECTOR.randomizer.per_label}
    assert accounts.asked == N == accounts.accepted + 1
    assert accounts.corrupted == 3


def test_transport_drops_what_was_altered_or_replayed():
    setting = Setting("transport")
    first = setting.frames[0]
    flipped = replace(first, payload=first.payload[:-1] + bytes([first.payload[-1] ^ 1]))
    stranger = KeyPair()
    plain = parse(Frame(Kind.REPORTS, setting.context, 0, 2, bytes(4)).tobytes())
    forged = Sealer(setting.directory.shufflers[0], Purpose.BATCH, setting.context).seal(
        stranger.sign(
            plain.tobytes(), Purpose.BATCH, setting.context, setting.directory.shufflers[0]
        )
    )
    for bad, reason in (
        (flipped, "not-authentic"),
        (replace(first, payload=forged), "wrong-signature"),
        (plain, "not-sealed"),
        (replace(first, index=1), "not-authentic"),  # the frame around the box says another block
        (replace(first, reports=1), "not-authentic"),
    ):
        fresh = Setting("transport")
        fresh.shufflers[0]._keys, fresh.shufflers[0]._directory = (
            setting.shufflers[0]._keys,
            setting.directory,
        )
        _, record = fresh.shufflers[0].shuffle(
            setting.broadcast, [bad.tobytes(), *(f.tobytes() for f in setting.frames[2:])]
        )
        assert record.dropped == {reason: bad.reports}
    _, record = setting.shuffled([*setting.frames, first])
    assert record.dropped == {"replayed": 2}


def test_the_view_and_messages_between_shards_are_protected():
    setting = Setting("transport")
    view, _ = setting.shuffled(setting.frames)
    frame = parse(view)
    for bad, reason in (
        (
            replace(frame, payload=frame.payload[:-1] + bytes([frame.payload[-1] ^ 1])),
            "not-authentic",
        ),
        (replace(frame, index=1 << 16), "unknown-sender"),
        (replace(frame, kind=Kind.VIEW), "not-sealed"),
    ):
        with pytest.raises(FrameError, match=reason):
            setting.analyzer.receive(bad.tobytes())
    assert setting.analyzer.receive(view)
    pair = Setting("transport", shards=2)
    own = b"".join(f.tobytes() for f in pair.frames if f.index % 2 == 0)
    _, routed, _ = pair.shufflers[0].collect(pair.broadcast, [own])
    bent = parse(routed)
    with pytest.raises(FrameError, match="not-authentic"):
        pair.shufflers[1].accept(
            pair.broadcast, [replace(bent, payload=bent.payload[:-1] + b"\0").tobytes()]
        )
    pair.shufflers[1].accept(pair.broadcast, [routed])
    with pytest.raises(RoundAbortedError):
        pair.shufflers[0].release(pair.broadcast, [])


def test_keys_are_fresh_in_every_run_even_with_a_seed():
    assert Setting("onion").directory.analyzer != Setting("onion").directory.analyzer
    assert Setting("onion").frames[0].payload != Setting("onion").frames[0].payload


def test_the_largest_counts_of_a_flooded_label_are_one_user_s():
    # A user who seals all its messages for label 0 is dropped under the others: its reach is that
    # of an honest user.
    setting = Setting("onion")
    view, _ = setting.shuffled(
        [setting.bundle([setting.message(0, 1) for _ in setting.boxes()]), *setting.frames[1:]]
    )
    setting.analyzer.receive(view)
    assert setting.analyzer.concluded().found.dropped == {
        "wrong-label": setting.randomizer.per_label
    }


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"security": "tls"}, "security"),
        ({"security": "onion", "fidelity": "counts"}, "security"),
        ({"security": "onion", "fidelity": "aggregate"}, "security"),
        ({"security": "onion", "sealing_seconds": 0}, "sealing_seconds"),
        ({"security": "onion", "sealing_seconds": 1e-6}, "security"),
    ],
)
def test_what_cannot_be_sealed_is_refused_before_anything_runs(options, name):
    with pytest.raises(ParameterError) as caught:
        run(VECTOR, ROWS, **options)
    assert caught.value.parameter == name


def test_the_refusal_of_a_long_round_says_how_long_it_takes():
    large = VectorSum(n=100_000, d=10, g=10, b=40)
    with pytest.raises(
        ParameterError,
        match=r"sealing_seconds above \d+: about [\d,]+ s to seal and open 50,000,000 messages",
    ):
        run(large, np.zeros((100_000, 10)), security="onion")


class Flaky(InProcessRuntime):
    """Loses the role that is called with `method` for the first time, when it has done what it was
    asked.
    """

    def __init__(self, method):
        self.method, self.lost = method, []

    def call(self, host, method, *arguments, many=(), returns=1):
        values = super().call(host, method, *arguments, many=many, returns=returns)
        if method == self.method and not self.lost:
            self.lost.append(host)
            raise HostLostError(method)
        return values

    def alive(self, host):
        return host not in self.lost


@pytest.mark.parametrize("security", ["transport", "onion"])
@pytest.mark.parametrize("method", ["answer", "shuffle", "conclude"])
def test_a_lost_role_gets_new_keys_and_the_round_its_result(security, method):
    flaky = Flaky(method)
    result = run(VECTOR, ROWS, seed=4, fidelity="literal", security=security, runtime=flaky)
    assert flaky.lost
    assert np.array_equal(result.value, run(VECTOR, ROWS, seed=4, fidelity="literal").value)
    assert result.reports.accepted == N
    assert result.reports.dropped == {}


@pytest.mark.parametrize("security", ["transport", "onion"])
def test_users_that_misbehave_come_back_before_any_round(security):
    flaky = Flaky("answer")
    how = {"seed": 1, "fidelity": "literal", "adversary": Garbage()}
    sealed = run(VECTOR, ROWS, **how, security=security, runtime=flaky)
    assert flaky.lost
    assert sealed.reports.accepted + sum(sealed.reports.dropped.values()) == N


def test_a_sealed_run_is_resumed_with_what_its_analyzer_dropped(tmp_path):
    how = {"seed": 1, "adversary": Garbage(), "checkpoint": tmp_path}
    whole, again = (
        run(VECTOR, ROWS, **how, security="onion", resume=resume) for resume in (False, True)
    )
    assert np.array_equal(whole.value, again.value)
    assert whole.reports == again.reports
    with pytest.raises(ParameterError, match="security"):
        run(VECTOR, ROWS, **how, fidelity="literal", resume=True)


@pytest.mark.parametrize("security", ["transport", "onion"])
@pytest.mark.parametrize(
    "attack",
    [
        "ones",
        "extra-bits",
        "missing-bits",
        "wrong-labels",
        "out-of-range",
        "garbage",
        "oversized",
        "twice",
        "impostor",
        "replay",
    ],
)
@pytest.mark.full
def test_every_attack_is_accounted_for_under_seal(attack, security):
    # The engine stops a run in which what was sent is not accounted for.
    how = {"seed": 3, "fidelity": "literal"}
    found = (
        run(VECTOR, ROWS, **how, adversary=attacks([f"{attack}:fraction=0.5"]), security=each)
        for each in ("none", security)
    )
    plain, sealed = (each.reports for each in found)
    assert (sealed.asked, sealed.extra, sealed.corrupted) == (
        plain.asked,
        plain.extra,
        plain.corrupted,
    )
    assert plain.corrupted > 0
    unseen = sum(sealed.dropped_messages.values())
    assert sealed.accepted == plain.accepted or (
        security == "onion" and (unseen or sealed.accepted < plain.accepted)
    )
