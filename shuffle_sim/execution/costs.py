"""What a run costs in communication: counted on real frames where there are some, or computed."""

import math
from collections import Counter
from dataclasses import dataclass

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import AccountingError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.chunks import Size, size_bytes, under_each, view_chunk_bytes
from shuffle_sim.roles.onion import box_bytes, box_chunk_bytes, bundle_bytes
from shuffle_sim.wire.frames import frame_bytes
from shuffle_sim.wire.sealing import SEAL, SIGNATURE
from shuffle_sim.wire.words import word_bytes


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Communication of a run.

    Attributes:
        rounds: rounds of interaction.
        messages_per_user: messages a user sends in a round it answers (the largest over rounds);
            where their number varies, the mean of those received.
        payload_bits_per_user: their bits in such a round, not in the run; the papers' count:
            grouped by label, the label costs nothing.
        label_bits_per_user: what their labels would cost if every message were sent on its own.
        wire_bytes: bytes from users to the shuffler over the whole run, framing included.
        routed_bytes: bytes between the shuffler's shards over the whole run.
        view_bytes: bytes from the shuffler to the analyzer over the whole run.
        broadcast_bytes: bytes of the analyzer's broadcasts.
        sealing_bytes: how many of all these are seals and signatures; by formula.
        measured: whether wire, routed and view bytes were counted on real frames (literal) or are
            the formula's.
    """

    rounds: int = 0
    messages_per_user: float = 0
    payload_bits_per_user: float = 0
    label_bits_per_user: float = 0
    wire_bytes: int = 0
    routed_bytes: int = 0
    view_bytes: int = 0
    broadcast_bytes: int = 0
    sealing_bytes: int = 0
    measured: bool = True

    @property
    def moved_bytes(self) -> int:
        """Over all hops."""
        return self.wire_bytes + self.routed_bytes + self.view_bytes + self.broadcast_bytes


class CostMeter:
    """Adds up rounds.

    In literal runs without corrupted users, count and formula must agree exactly.
    """

    def __init__(self) -> None:
        """Start without any round."""
        self._costs = Costs()

    @property
    def costs(self) -> Costs:
        """The costs so far."""
        return self._costs

    def add(
        self,
        randomizer: Randomizer,
        words: float | None = None,
        *,
        counted: tuple[int, int, int],
        formula: tuple[int, int, int],
        literal: bool,
        checked: bool,
        broadcast: int,
        sealing: int = 0,
    ) -> None:
        """Add one round.

        Args:
            randomizer: of the round.
            words: that a user sent on average, where their number varies.
            counted: bytes counted, users to shuffler, shard to shard, shuffler to analyzer.
            formula: what they must be in a literal run of honest users.
            literal: whether the bits were simulated.
            checked: whether all users were honest, so that count and formula must agree.
            broadcast: bytes of the round's broadcast.
            sealing: bytes of seals and signatures, by formula.

        Raises:
            AccountingError: count and formula differ.
        """
        # Corrupted users send what they like: only honest ones are held to the formula.
        if literal and checked and counted != formula:
            raise AccountingError(f"wire bytes counted {counted}, by formula {formula}")
        wire, routed, view = counted if literal else formula
        messages: float
        bits: float
        messages, bits = randomizer.report_messages, randomizer.report_bits
        if words is not None:
            messages, bits = (
                words,
                words * (randomizer.alphabet.symbol_bits - randomizer.label_bits),
            )
        c = self._costs
        self._costs = Costs(
            rounds=c.rounds + 1,
            messages_per_user=max(c.messages_per_user, messages),
            payload_bits_per_user=max(c.payload_bits_per_user, bits),
            label_bits_per_user=max(c.label_bits_per_user, messages * randomizer.label_bits),
            wire_bytes=c.wire_bytes + wire,
            routed_bytes=c.routed_bytes + routed,
            view_bytes=c.view_bytes + view,
            broadcast_bytes=c.broadcast_bytes + broadcast,
            sealing_bytes=c.sealing_bytes + sealing,
            measured=c.measured and literal,
        )


Sent = Counter[tuple[int, int]]
"""Frames of users by (users, words) in a frame."""


def evenly(mean: float, cohort: Cohort, block_size: int, security: str = "none") -> Sent:
    """The frames of words that users send, where each sends the mean number."""
    if security == "onion":
        return Counter({(1, math.ceil(mean)): cohort.size})
    frames = cohort.frames(block_size).items()
    return Counter({(users, round(users * mean)): many for users, many in frames})


def users_to_shuffler(
    randomizer: Randomizer,
    cohort: Cohort,
    block_size: int,
    security: str = "none",
    sent: Sent | None = None,
) -> int:
    """Wire bytes of a literal round by formula.

    There is a frame for each block that the cohort has users in; in an onion, for each user.
    `sent` are those of words; None: as usual.
    """
    if randomizer.view != "sums":
        mean = randomizer.usual_messages
        sent = evenly(mean, cohort, block_size, security) if sent is None else sent
        head, word = randomizer.head_bytes, word_bytes(randomizer.alphabet.symbols)
        if security == "onion":
            box = box_bytes(randomizer.alphabet)
            return sum(many * frame_bytes(SEAL + words * box) for (_, words), many in sent.items())
        return sum(
            many * _wrapped(frame_bytes(users * head + words * word), security)
            for (users, words), many in sent.items()
        )
    if security == "onion":
        return cohort.size * frame_bytes(SEAL + bundle_bytes(randomizer))
    size = randomizer.report_bytes
    return sum(
        frames * _wrapped(frame_bytes(users * size), security)
        for users, frames in cohort.frames(block_size).items()
    )


def chunks_on_wire(randomizer: Randomizer, chunks: Counter[Size], security: str = "none") -> int:
    """Wire bytes of a literal view, by formula: a frame for each chunk.

    `chunks`: {messages under each label: chunks}.
    """
    size_of = box_chunk_bytes if security == "onion" else view_chunk_bytes
    return sum(
        count * _wrapped(frame_bytes(size_of(randomizer, size)), security)
        for size, count in chunks.items()
    )


def routed_on_wire(randomizer: Randomizer, chunks: Counter[Size], security: str = "none") -> int:
    """Wire bytes between shuffler shards of a literal round, by formula.

    One-bit messages cross as the numbers of ones under each label, others one by one.
    """
    bits = randomizer.view == "sums" and randomizer.alphabet.symbols == 2
    if not bits or security == "onion":
        return chunks_on_wire(randomizer, chunks, security)
    ones = 8 * randomizer.alphabet.labels
    return sum(
        count * _wrapped(frame_bytes(size_bytes(size) + ones), security)
        for size, count in chunks.items()
    )


def sealing(
    randomizer: Randomizer,
    cohort: Cohort,
    block_size: int,
    routed: Counter[Size],
    viewed: Counter[Size],
    security: str,
    sent: Sent | None = None,
) -> int:
    """Bytes that seals and signatures add to a literal round, by formula.

    `routed` and `viewed`: {messages under each label: chunks}, between shards and of the view;
    `sent` as for `users_to_shuffler`.
    """
    if security == "onion":
        moved = sum(messages(each, randomizer) for each in (routed, viewed))
        own = cohort.size * randomizer.report_messages
        if randomizer.view != "sums":
            mean = randomizer.usual_messages
            sent = evenly(mean, cohort, block_size, security) if sent is None else sent
            own = sum(words * many for (_, words), many in sent.items())
        return SEAL * (cohort.size + own + moved)
    protected, plain = (
        users_to_shuffler(randomizer, cohort, block_size, each, sent)
        + routed_on_wire(randomizer, routed, each)
        + chunks_on_wire(randomizer, viewed, each)
        for each in (security, "none")
    )
    # Seals have no bytes of their own in a frame: what they add is the difference.
    return protected - plain


def messages(chunks: Counter[Size], randomizer: Randomizer) -> int:
    """Of all chunks: {messages under each label: chunks}."""
    return sum(int(under_each(size, randomizer).sum()) * many for size, many in chunks.items())


def _wrapped(frame: int, security: str) -> int:
    return frame_bytes(SEAL + SIGNATURE + frame) if security == "transport" else frame
