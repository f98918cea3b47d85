"""What a protocol will cost in communication, before anything runs: the formulas that literal runs
are held to, round by round.

The rounds are walked through with sums from the middle of what messages can add up to in place of
views; a protocol whose rounds depend on what it sees (none of ours does in what it sends) may ask
otherwise in the run.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shuffle_sim.errors import one_of
from shuffle_sim.execution.costs import chunks_on_wire, sealing, users_to_shuffler
from shuffle_sim.execution.setup import default_block_size
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.task import walked
from shuffle_sim.roles import SECURITIES
from shuffle_sim.roles.chunks import largest_chunk, view_chunks
from shuffle_sim.roles.onion import largest_boxes
from shuffle_sim.wire.frames import Context, Frame, Kind
from shuffle_sim.wire.sealing import sealing_time

_HOPS = "users to shuffler", "shuffler to analyzer", "analyzer to all"
_KINDS = "payload", "framing", "sealing"  # of bytes


@dataclass(frozen=True, kw_only=True)
class Hop:
    """Bytes of a run from one role to another.

    Attributes:
        name: from, to.
        payload: bits of the messages, in bytes.
        framing: headers, sizes and padding.
        sealing: seals and signatures.
    """

    name: str
    payload: int
    framing: int
    sealing: int

    @property
    def wire(self) -> int:
        """All of them."""
        return self.payload + self.framing + self.sealing


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Communication of a run of honest users, at literal fidelity.

    Attributes:
        users: n.
        rounds: of interaction.
        asked: users asked, summed over rounds.
        participation: rounds that the user asked most often answers in.
        sequential: whether nobody is asked twice.
        messages: of a user in a round (the largest over rounds); the mean, where they vary.
        payload_bits: of these messages, the papers' count.
        label_bits: what their labels would cost if every message were sent on its own.
        user_messages: of the user who sends most, over the run.
        user_payload_bits: the same of its bits.
        user_label_bits: the same of its labels.
        user_wire_bytes: what that user sends, about: its share of the frames it is in.
        hops: users to shuffler, shuffler to analyzer, analyzer to all.
        batch: users in a round (the largest).
        seconds: about what sealing and opening takes on this machine, one worker; 0 without onion.
        slowest: of that, the round that takes longest.
    """

    users: int
    rounds: int
    asked: int
    participation: int
    sequential: bool
    messages: float
    payload_bits: float
    label_bits: float
    user_messages: float
    user_payload_bits: float
    user_label_bits: float
    user_wire_bytes: float
    hops: tuple[Hop, ...]
    batch: int
    seconds: float
    slowest: float


def forecast(
    protocol: Protocol[Any], *, security: str = "none", block_size: int | None = None
) -> Forecast:
    """Add up what a protocol's rounds cost, by the formulas of `shuffle_sim.execution.costs`; one
    shuffler shard.

    Args:
        protocol: which.
        security: "none", "transport" or "onion".
        block_size: users per block; by default as `run` chooses it.

    Raises:
        ParameterError: unknown security.
    """
    one_of("security", security, SECURITIES)
    ledger, specs = PrivacyLedger(), list(walked(protocol))
    totals = np.zeros((len(_HOPS), len(_KINDS)), np.int64)
    seconds = [0.0]
    for index, spec in enumerate(specs):
        ledger.charge(spec.cohort, spec.event)
        totals += _round(
            spec, index, security, block_size or default_block_size(protocol.users, spec.randomizer)
        )
        if security == "onion":
            sealed = math.ceil(spec.cohort.size * _messages(spec))
            seconds.append(sealing_time(sealed, spec.cohort.size, 1))
    asked = sum(spec.cohort.size for spec in specs)
    answered = [events for _, events in ledger.users()]
    participation = max(sum(events.values()) for events in answered)
    hops = tuple(
        Hop(name=name, **dict(zip(_KINDS, row, strict=True)))
        for name, row in zip(_HOPS, totals.tolist(), strict=True)
    )
    # The ledger knows users by their events: what they send is looked up by those, at its most.
    sent: dict[PrivacyEvent, _Numbers] = {}
    for spec in specs:
        sent[spec.event] = _most([sent.get(spec.event, (0, 0, 0)), _numbers(spec)])
    round_, run = _most(sent.values()), _most(_total(events, sent) for events in answered)
    return Forecast(
        users=protocol.users,
        rounds=len(specs),
        asked=asked,
        participation=participation,
        sequential=ledger.sequentially_interactive,
        messages=round_[0],
        payload_bits=round_[1],
        label_bits=round_[2],
        user_messages=run[0],
        user_payload_bits=run[1],
        user_label_bits=run[2],
        user_wire_bytes=hops[0].wire / asked * participation,
        hops=hops,
        batch=max(spec.cohort.size for spec in specs),
        seconds=sum(seconds),
        slowest=max(seconds),
    )


def corollary(forecast_: Forecast, d: int, epsilon: float, delta: float) -> float:
    """The bits of a user in Corollaries B.8 to B.11 and section 3.1 of the paper, without the
    constant in its O().

    d (sqrt(b) + ln(1/delta)/epsilon^2) in each round the user answers, b the users in the round.
    """
    return (
        forecast_.participation
        * d
        * (math.sqrt(forecast_.batch) + math.log(1 / delta) / epsilon**2)
    )


@dataclass(frozen=True)
class PaperBits:
    """Where the paper states the bits of a user, which without the constant, and that constant."""

    where: str
    bits: float
    constant: float

    @classmethod
    def of(cls, protocol: Any, found: Forecast, d: int, privacy: Privacy) -> "PaperBits | None":
        """Of a protocol and its forecast; None where no paper states them."""
        if protocol.paper_cost is None:
            return None
        bits = corollary(found, d, privacy.epsilon, privacy.delta)
        return cls(protocol.paper_cost, bits, found.user_payload_bits / bits)


def _messages(spec: RoundSpec) -> float:
    return spec.randomizer.usual_messages


_Numbers = tuple[float, ...]
"""Messages, their payload bits and those of their labels."""


def _numbers(spec: RoundSpec) -> _Numbers:
    """Of a user in a round."""
    each = spec.randomizer
    return each.usual_messages, each.usual_bits, each.usual_messages * each.label_bits


def _total(events: Mapping[PrivacyEvent, int], sent: Mapping[PrivacyEvent, _Numbers]) -> _Numbers:
    """Of a user in all rounds."""
    rows = [[many * each for each in sent[event]] for event, many in events.items()]
    return tuple(map(sum, zip(*rows, strict=True)))


def _most(rows: Iterable[_Numbers]) -> _Numbers:
    """The largest of each."""
    return tuple(map(max, zip(*rows, strict=True)))


def _round(spec: RoundSpec, index: int, security: str, block_size: int) -> list[list[int]]:
    """(payload, framing, sealing) of each hop of a round."""
    randomizer, users = spec.randomizer, spec.cohort.size
    words = round(users * randomizer.usual_messages)
    size = users * randomizer.per_label if randomizer.view == "sums" else words
    largest = largest_boxes if security == "onion" else largest_chunk
    chunks = view_chunks(size, largest(randomizer))
    payload = math.ceil(users * randomizer.usual_bits / 8)
    sent = users_to_shuffler(randomizer, spec.cohort, block_size, security)
    viewed = chunks_on_wire(randomizer, chunks, security)
    seals = [sealing(randomizer, spec.cohort, block_size, Counter(), Counter(), security)]
    seals.append(
        # The formula is of all hops: less those of the users it is the view's.
        sealing(randomizer, spec.cohort, block_size, Counter(), chunks, security) - seals[0]
    )
    public = spec.broadcast()
    frame = len(
        Frame(Kind.ROUND, Context.of_broadcast(bytes(16), index, public), 0, 0, public).tobytes()
    )
    rows = [
        [payload, wire - payload - seal, seal]
        for wire, seal in zip((sent, viewed), seals, strict=True)
    ]
    return [*rows, [len(public), frame - len(public), 0]]
