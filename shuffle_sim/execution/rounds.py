"""A round as the driver sees it: checked, charged, exchanged or known from the journal, metered."""

import hashlib
from collections import Counter
from typing import Any

import numpy as np

from shuffle_sim.errors import AccountingError, FrameError, ParameterError
from shuffle_sim.execution.costs import (
    CostMeter,
    chunks_on_wire,
    evenly,
    messages,
    routed_on_wire,
    sealing,
    users_to_shuffler,
)
from shuffle_sim.execution.exchange import Exchange
from shuffle_sim.execution.journal import Journal
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.adversary import Adversary
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.binding import checked_event
from shuffle_sim.roles import Deployment, PlannedRound
from shuffle_sim.roles.chunks import largest_chunk, view_chunks
from shuffle_sim.wire.codec import encode


def checked(protocol: Protocol[Any], deployment: Deployment, plan: PlannedRound) -> bool:
    """Whether what is charged for a round is derived from what it broadcasts.

    Raises:
        ParameterError: it is something else.
    """
    try:
        sent = deployment.opened(plan.broadcast)
    except FrameError as error:
        if error.reason != "not-agreed":
            raise
        allowed = f"in the task that users agreed to ({error.detail}); or `adaptive`"
        raise ParameterError("protocol", type(protocol).__name__, allowed) from error
    if sent.cohort != plan.cohort:
        raise ParameterError("cohort", plan.cohort.ranges, f"the one asked, {sent.cohort.ranges}")
    return checked_event(
        plan.event, sent.randomizer, sent.query, sent.cohort, protocol.honest_fraction
    )


def exchanged(
    journal: Journal,
    host: Runtime,
    deployment: Deployment,
    plan: PlannedRound,
    ledger: PrivacyLedger,
) -> tuple[Exchange, PlannedRound | None]:
    """A round and the next plan; charged in the journal first, and not run again if it is over.

    What was really added is known to the ledger before anything else may fail.
    """
    broadcast = plan.broadcast
    known = journal.charge(
        (
            ("broadcast", hashlib.sha256(broadcast).digest()),
            ("cohort", encode(plan.cohort)),
            ("event", encode(plan.event)),
            # A round that is drawn again must meet the same rows.
            ("content of the data", host.content),
        )
    )
    if known is None:
        if (adversary := deployment.adversary) is not None:
            # Silent users are missing among the reports; of others any number may be attackers.
            silent = all(member.silent for member in adversary.members)
            ledger.doubt(deployment.opened(broadcast).minimum if silent else 0)
        exchange, following = host.exchange(broadcast)
    else:
        exchange, following = known_exchange(known, deployment, broadcast), None
    ledger.settle(exchange.shuffler.accepted - exchange.shuffler.singles)
    if known is not None:
        return exchange, host.recall(broadcast, exchange.tally)
    journal.settle(exchange.outcome)
    return exchange, following


def known_exchange(outcome: tuple[Any, ...], deployment: Deployment, broadcast: bytes) -> Exchange:
    """The exchange of a round that is over, as the journal has it.

    Raises:
        ParameterError: it is none of the round.
    """
    try:
        exchange = Exchange.of(outcome)
        randomizer = deployment.opened(broadcast).randomizer
        tally = exchange.tally
        shape = (randomizer.alphabet.labels,)
        if randomizer.view != "sums":
            shape = tally.words.shape if tally.words is not None else ()
        # A record is bound by its hash, not by what it says: another program may have written it.
        whole = tally.sums.shape == shape and tally.sums.dtype == np.int64
        if not (whole and 0 <= exchange.shuffler.singles <= exchange.shuffler.accepted):
            raise ValueError("of another round")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        allowed = f"undamaged: the outcome of a round is none ({error})"
        raise ParameterError("checkpoint", "run.journal", allowed) from error
    return exchange


def metered(
    meter: CostMeter, deployment: Deployment, broadcast: bytes, exchange: Exchange, block_size: int
) -> None:
    """What the round cost, by formula and as counted.

    Raises:
        AccountingError: messages of a view are not accounted for.
    """
    opened = deployment.opened(broadcast)
    cohort, randomizer = opened.cohort, opened.randomizer
    record, literal = exchange.shuffler, deployment.fidelity == "literal"
    tally, sent, mean = exchange.tally, None, None
    if tally.words is None:
        viewed = record.accepted * randomizer.per_label
    else:
        viewed, mean = tally.messages, tally.messages / record.accepted
        even = evenly(mean, cohort, block_size, deployment.security)
        sent = exchange.users.sent if literal else even
    chunks = Counter(record.chunks) if literal else view_chunks(viewed, largest_chunk(randomizer))
    meter.add(
        randomizer,
        mean,
        counted=(record.bytes_in, record.bytes_routed, record.bytes_out),
        formula=(
            users_to_shuffler(randomizer, cohort, block_size, deployment.security, sent),
            routed_on_wire(randomizer, Counter(record.routed), deployment.security),
            chunks_on_wire(randomizer, chunks, deployment.security),
        ),
        literal=literal,
        # Corrupted users may send frames of any size.
        checked=exchange.users.corrupted == 0,
        broadcast=len(broadcast),
        sealing=sealing(
            randomizer,
            cohort,
            block_size,
            Counter(record.routed),
            chunks,
            deployment.security,
            sent,
        ),
    )
    found, viewed = exchange.analyzer, messages(Counter(record.chunks), randomizer)
    if deployment.security == "onion" and found.opened + found.dropped.total() != viewed:
        raise AccountingError(f"{viewed} messages in the view, but accounted for are {found}")


def disclose(adversary: Adversary | None, index: int, exchange: Exchange) -> None:
    """Tell the corrupted users what they learn of a round."""
    for member in adversary.members if adversary is not None else ():
        member.disclosed(index, exchange.users.disclosed, exchange.users.sums)
