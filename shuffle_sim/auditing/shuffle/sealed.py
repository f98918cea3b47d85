"""What is sealed in a protected run: keys, what boxes show, and what they do not open for."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.auditing.claims.entropy import check_own
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.watching import Watched
from shuffle_sim.data.population import Population
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Deployment, Shuffler, UserShard
from shuffle_sim.roles.channel import Directory
from shuffle_sim.roles.onion import Opener, message_bytes, read_boxes
from shuffle_sim.wire.frames import Context, Frame, Kind
from shuffle_sim.wire.messages import Alphabet
from shuffle_sim.wire.sealing import BOX_ID, KEY_ID, KeyPair, Purpose, Sealer, verified

SEALS = 400  # boxes of one plaintext
_FRESH = 1 << 12  # keys, and boxes, of which no two are the same
_PLAIN, _UNEVEN = bytes(48), bytes(range(48))


def check_runs(runs: Sequence[Watched], randomizer: Randomizer, alarm: float) -> None:
    """Runs of one seed: users send the same, so what is equal on the wire is not hidden.

    Raises:
        LawError: frames in the clear, a key that comes again, or boxes that tell what they hold.
    """
    for kind in {kind for seen in runs for kind, *_ in seen.frames}:
        raise LawError(f"{kind.name} left a role in the clear")
    keys = [key for seen in runs for each in seen.keys for key in (each.sealing, each.signing)]
    if len(set(keys)) < len(keys):
        raise LawError(f"{len(keys) - len(set(keys))} of {len(keys)} keys are those of others")
    boxes = [box for seen in runs for frame in seen.sealed for box in _boxes(frame, randomizer)]
    if not boxes:
        raise LawError("no box was seen")
    check_boxes(boxes, alarm)


def _boxes(frame: Frame, randomizer: Randomizer) -> Iterator[bytes]:
    if frame.kind is not Kind.BOXES:
        yield frame.payload
        return
    for row in read_boxes(frame.payload, randomizer)[1]:
        yield from map(bytes, row)


def check_boxes(boxes: Sequence[bytes], alarm: float) -> None:
    """No two boxes share a key, or eight bytes at one place; every bit is a fair coin.

    Bits are held to the bound of Hoeffding.

    Raises:
        LawError: naming what is not so.
    """
    if len({box[:BOX_ID] for box in boxes}) < len(boxes):
        raise LawError("two boxes have one key")
    by_size: dict[int, list[bytes]] = defaultdict(list)
    for box in boxes:
        by_size[len(box)].append(box[KEY_ID:])
    for each in by_size.values():
        held = np.array([np.frombuffer(box, np.uint8) for box in each])
        words = np.sort(np.ascontiguousarray(held[:, : held.shape[1] // 8 * 8]).view("<u8"), axis=0)
        if (words[1:] == words[:-1]).any():
            raise LawError("boxes agree in eight bytes")
        # Not the encapsulated key: the highest bit of a point is 0.
        _check_fair(held[:, BOX_ID - KEY_ID :], alarm / (2 * len(by_size)))


def _check_fair(held: NDArray[np.uint8], alarm: float) -> None:
    """Each bit over the boxes, and each bit of a byte over all of them."""
    bits = np.unpackbits(held, axis=1)
    for ones, many in (
        (bits.sum(axis=0), len(bits)),
        (bits.reshape(-1, 8).sum(axis=0), held.size),
    ):
        # 2 exp(-2 t^2/n) for each bit; bits of boxes and of bytes have half of the alarm each.
        limit = math.sqrt(many * math.log(4 * ones.size / alarm) / 2)
        if (off := float(np.abs(ones - many / 2).max())) > limit:
            raise LawError(
                f"a bit of {many:,} boxes is off by {off:,.0f}: they tell what they hold"
            )


def check_sealing(alarm: float) -> None:
    """Boxes and signatures themselves: of one plaintext, and for whom and what they open.

    Raises:
        LawError: boxes of one plaintext agree, or something opens that was made for another.
    """
    _check_fresh()
    _check_replayed()
    for purpose in Purpose:
        own, to, context = KeyPair(), KeyPair(), Context(bytes(range(16)), 3, bytes(range(32)))
        sealer = Sealer(own.public, purpose, context)
        boxes = [sealer.seal(_PLAIN) for _ in range(SEALS)]
        check_boxes(boxes, alarm / 2 / len(Purpose))
        check_untold(sealer.seal, alarm / 2 / len(Purpose))
        signed = own.sign(_PLAIN, purpose, context, to.public)
        read = verified(signed, own.public, purpose, context, to.public)
        if (own.open(boxes[0], purpose, context), read) != (_PLAIN, _PLAIN):
            raise LawError("what was sealed or signed is not what comes out")
        for what, step in _wrong(own, to, boxes[0], signed, purpose, context):
            with suppress(FrameError):
                step()
                raise LawError(f"{purpose.value.decode()}: {what} is taken")


def _check_replayed() -> None:
    """A box that comes again is no message: who sends one twice would see whose it was."""
    keys, context, alphabet = KeyPair(), Context(bytes(16), 3, bytes(16)), Alphabet(2, 256)
    opener, sealer = Opener(keys, context), Sealer(keys.public, Purpose.MESSAGE, context)
    said = (1 << alphabet.symbol_bits | 7).to_bytes(message_bytes(alphabet), "big")
    box, other = sealer.seal(said), sealer.seal(said)
    if [opener.symbol(each, 1, alphabet) for each in (box, other)] != [7, 7]:
        raise LawError("two messages that are alike are not both read")
    for each in (box, other):
        with suppress(FrameError):
            opener.symbol(each, 1, alphabet)
            raise LawError("a box that came before is read again")


def check_untold(seal: Callable[[bytes], bytes], alarm: float) -> None:
    """No bit of a box follows from a bit of what it holds, not even of the key in front.

    Plaintexts are fair coins, so products of signs are, whatever the boxes: Hoeffding's bound.

    Raises:
        LawError: one does.
    """
    plain = np.frombuffer(os.urandom(SEALS * len(_PLAIN)), np.uint8).reshape(SEALS, -1)
    boxes = np.array([np.frombuffer(seal(each.tobytes()), np.uint8) for each in plain])
    held, shown = (2.0 * np.unpackbits(each, axis=1) - 1 for each in (plain, boxes))
    apart = np.abs(shown.T @ held)
    limit = math.sqrt(2 * SEALS * math.log(2 * apart.size / alarm))
    if (off := float(apart.max())) > limit:
        raise LawError(f"a bit of {SEALS} boxes agrees with one that they hold, by {off:,.0f}")


def check_hops(
    deployment: Deployment, population: Population, broadcast: bytes, shard: type[UserShard]
) -> None:
    """Roles set up alike have keys of their own; a shuffler takes what those it knows have signed.

    Args:
        deployment: with transport security.
        population: of the run.
        broadcast: of a round.
        shard: the class of user shards.

    Raises:
        LawError: keys follow from what is public, or a stranger's reports are taken.
    """
    known, stranger = (shard(deployment, population, deployment.blocks()) for _ in range(2))
    accepted = []
    for each in (known, stranger):
        shuffler = Shuffler(deployment.of_shuffler)
        keys = known.introduce(), stranger.introduce()
        if len({key for own in keys for key in (own.sealing, own.signing)}) < 4:
            raise LawError("two roles that are set up alike have one key")
        directory = Directory((known.introduce(),), (shuffler.introduce(),), (KeyPair().public,))
        for role in (each, shuffler):
            role.meet(directory)
        accepted.append(shuffler.take(broadcast, [each.answer(broadcast)[0]]).accepted)
    if not accepted[0] or accepted[1]:
        raise LawError(f"a shuffler takes {accepted[1]:,} reports that a stranger has signed")


def _check_fresh() -> None:
    """Keys and boxes are never drawn from few seeds; no box tells by its size what it holds."""
    keys = [KeyPair().public for _ in range(_FRESH)]
    sealer = Sealer(keys[0], next(iter(Purpose)), Context(bytes(16), 0, bytes(32)))
    drawn = {
        "keys to seal to": [each.sealing for each in keys],
        "keys to verify with": [each.signing for each in keys],
        "boxes": [sealer.seal(_PLAIN)[:BOX_ID] for _ in range(_FRESH)],
    }
    check_own(lambda: KeyPair().public.sealing, "keys to seal to")
    check_own(lambda: KeyPair().public.signing, "keys to verify with")
    check_own(lambda: sealer.seal(_PLAIN), "boxes")
    for what, each in drawn.items():
        if len(set(each)) < len(each):
            raise LawError(f"of {len(each):,} {what} two are the same")
    if len({len(sealer.seal(each)) for each in (_PLAIN, _UNEVEN)}) > 1:
        raise LawError("the size of a box tells what it holds")


def _wrong(
    own: KeyPair, to: KeyPair, box: bytes, signed: bytes, purpose: Purpose, context: Context
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """What has to be refused: made for another, by another, or changed in a bit."""
    yield "a box for another role", partial(to.open, box, purpose, context)
    for sender, reader in ((to, to), (own, own)):
        step = partial(verified, signed, sender.public, purpose, context, reader.public)
        yield "a signature of another, or for another", step
    others = [(each, context) for each in Purpose if each is not purpose]
    for change in ({"task": bytes(16)}, {"round": 4}, {"parameters": bytes(32)}):
        others.append((purpose, replace(context, **change)))
    for asked in others:
        yield f"a box for {asked}", partial(own.open, box, *asked)
        yield f"a signature for {asked}", partial(verified, signed, own.public, *asked, to.public)
    for place in range(len(box)):
        changed = _flipped(box, place)
        yield f"a box changed at {place}", partial(own.open, changed, purpose, context)
    for place in range(len(signed)):
        changed = _flipped(signed, place)
        step = partial(verified, changed, own.public, purpose, context, to.public)
        yield f"what was signed, changed at {place},", step


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
