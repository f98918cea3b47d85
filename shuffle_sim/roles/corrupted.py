"""The corrupted users of a block: their rows, values and reports, and what they send."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.protocol.adversary import Adversary, AttackContext, CallNext, Users, payload_of
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.frames import Context, Frame, Kind
from shuffle_sim.wire.messages import Messages

Squad = list[tuple[Adversary, Users]]
"""Each adversary with the users it controls in this block and round."""

PACKET_MARGIN = 4096
"""Bytes by which what a user sends on its own may be longer than an honest report.

Transport carries one byte more; the shuffler drops such a packet, and nobody holds the rest.
"""


@dataclass
class Corrupted:
    """What the corrupted users of a block did.

    Attributes:
        users: they, ascending.
        packets: what they put on the wire, each as the shuffler receives it: marked with its
            sender, whatever is inside.
        silent: how many put nothing there.
        disclosed: reports that colluders disclosed to the analyzer.
        sums: of the symbols in them, by label; or how often each word.
    """

    users: Users
    packets: list[bytes] = field(default_factory=list)
    silent: int = 0
    disclosed: int = 0
    sums: Counter[int] = field(default_factory=Counter)

    @property
    def extra(self) -> int:
        """Packets beyond one a user."""
        return len(self.packets) - (self.users.size - self.silent)


def corrupted(
    adversary: Adversary,
    attack_context: AttackContext,
    context: Context,
    drawn: Callable[[int, Role, int], np.random.Generator],
    block: Users,
) -> Corrupted:
    """Let the corrupted users of a block act.

    Args:
        adversary: of the run.
        attack_context: what its users know.
        context: of the frames that answer the broadcast.
        drawn: stream of a round, role and index, as the run's generator draws it.
        block: all users of the block, asked or not.
    """
    rng = drawn(attack_context.round, Role.ADVERSARY, attack_context.block)
    # Of round 0 in every round: who is of a coalition is drawn once for the run.
    lasting = drawn(0, Role.COALITION, attack_context.block)
    squad: Squad = []
    for member in adversary.members:
        chosen = (
            member.corrupt(attack_context.round, block, lasting)
            if member.lasting
            else member.select(attack_context, rng)
        )
        squad.append((member, np.intersect1d(chosen, attack_context.users)))
    nobody = attack_context.users[:0]
    acts = Corrupted(np.unique(np.concatenate([nobody, *(users for _, users in squad)])))
    active = np.setdiff1d(
        acts.users, np.concatenate([nobody, *(users for member, users in squad if member.silent)])
    )
    acts.silent = acts.users.size - active.size
    if active.size:
        controlled = [(member, set(users.tolist())) for member, users in squad]
        for user, x in zip(
            active.tolist(), _claimed(squad, attack_context, active, rng), strict=True
        ):
            mine = [member for member, users in controlled if user in users]
            _act(
                acts,
                mine,
                attack_context,
                context,
                user,
                x,
                # Streams of their own: attacks leave the noise of honest users as it is.
                drawn(attack_context.round, Role.CORRUPTED, user),
            )
    return acts


def _claimed(
    squad: Squad, attack_context: AttackContext, active: Users, rng: np.random.Generator
) -> Floats:
    """The values of the `active` users after what their adversaries do to rows and values."""
    # An index copies: what adversaries write is not in the population's rows.
    rows = attack_context.rows[np.searchsorted(attack_context.users, active)]
    for member, users in squad:
        theirs = np.isin(active, users)
        if theirs.any():
            rows[theirs] = member.rows(attack_context, rows[theirs], rng)
    xs = attack_context.admitted(attack_context.ask(np.asfortranarray(rows))).copy()
    for member, users in squad:
        theirs = np.isin(active, users)
        if theirs.any():
            xs[theirs] = attack_context.admitted(member.values(attack_context, xs[theirs], rng))
    return xs


def _act(
    acts: Corrupted,
    mine: list[Adversary],
    attack_context: AttackContext,
    context: Context,
    user: int,
    x: Floats,
    rng: np.random.Generator,
) -> None:
    """One user's report passes its adversaries, from the innermost out, and goes on the wire."""
    call_next = CallNext(
        attack_context, lambda value: attack_context.randomizer.randomize(value, rng)
    )
    for member in reversed(mine):
        call_next = _wrapped(member, user, call_next, rng)
    report = call_next(x)
    if report is None:
        acts.silent += 1
        return
    own = Frame(Kind.REPORT, context, user, 1, payload_of(report)).tobytes()
    packets: tuple[bytes, ...] = (own,)
    for member in reversed(mine):
        packets = tuple(
            sent for packet in packets for sent in member.send(attack_context, user, packet, rng)
        )
    acts.silent += not packets
    longest = attack_context.randomizer.report_bytes + PACKET_MARGIN
    acts.packets += [
        Frame(Kind.PACKET, context, user, 1, packet[: longest + 1]).tobytes() for packet in packets
    ]
    # Only what is on the wire is in the view, to be subtracted from it.
    if any(member.colludes for member in mine) and isinstance(report, Messages) and own in packets:
        acts.disclosed += 1
        acts.sums.update(dict(report.tally().items()))


def _wrapped(member: Adversary, user: int, inner: CallNext, rng: np.random.Generator) -> CallNext:
    return CallNext(inner.context, lambda value: member.report(user, value, inner, rng))
