"""What all roles have where traffic is protected: keys of their own, and everybody's public ones.

- transport: every frame that leaves a role is signed by it and sealed to the role it goes to.
- onion: messages and bundles are sealed by the users (`roles.onion`); the frames around them are as
they are.
"""

from dataclasses import dataclass
from functools import cached_property

from shuffle_sim.errors import FrameError
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.wire.frames import Frame, Kind, parse, split_frames
from shuffle_sim.wire.sealing import KeyPair, PublicKeys, Purpose, Sealer, verified


@dataclass(frozen=True)
class Directory:
    """Who is who: the public keys of all roles.

    Attributes:
        users: of the user shards; shard i hosts the blocks that are i modulo their number.
        shufflers: of the shuffler's shards.
        analyzer: of the analyzer, alone.
    """

    users: tuple[PublicKeys, ...] = ()
    shufflers: tuple[PublicKeys, ...] = ()
    analyzer: tuple[PublicKeys, ...] = ()


class Keyed:
    """A role with keys; it makes them itself, and only the public ones leave it."""

    _deployment: Deployment
    _directory = Directory()

    @cached_property
    def _keys(self) -> KeyPair:
        """The role's own keys, made when they are first used."""
        return KeyPair()

    def introduce(self) -> PublicKeys:
        """The role's public keys."""
        return self._keys.public

    def meet(self, directory: Directory) -> None:
        """Take the public keys of all roles."""
        self._directory = directory

    def _closed(self, batch: bytes, purpose: Purpose, recipients: tuple[PublicKeys, ...]) -> bytes:
        """A batch of frames as it leaves the role.

        What is of block i goes to recipient i modulo their number.
        """
        if self._deployment.security != "transport":
            return batch
        return b"".join(
            self._sealed(parse(data), data, purpose, recipients) for data in split_frames(batch)
        )

    def _sealed(
        self, frame: Frame, data: memoryview, purpose: Purpose, recipients: tuple[PublicKeys, ...]
    ) -> bytes:
        block = self._block(frame)
        recipient = recipients[block % len(recipients)]
        # Signed, then sealed: the network does not see by whom, and what is inside cannot be
        # sealed on to another role (`wire.sealing`).
        signed = self._keys.sign(bytes(data), purpose, frame.context, recipient)
        box = Sealer(recipient, purpose, frame.context).seal(signed)
        return Frame(Kind.SEALED, frame.context, block, frame.reports, box).tobytes()

    def _opened(
        self, frame: Frame, purpose: Purpose, senders: tuple[PublicKeys, ...], sender: int
    ) -> Frame:
        """The frame that another role sent here.

        Raises:
            FrameError: `not-sealed`, or why the seal or the signature is not good.
        """
        if self._deployment.security != "transport":
            return frame
        if frame.kind is not Kind.SEALED:
            raise FrameError("not-sealed", f"{frame.kind.name} came in the clear")
        if sender >= len(senders):
            raise FrameError("unknown-sender", f"{sender} of {len(senders)}")
        signed = self._keys.open(frame.payload, purpose, frame.context)
        inner = parse(verified(signed, senders[sender], purpose, frame.context, self._keys.public))
        # Nobody signed the frame around: whoever changes it would have drops counted for others.
        if (inner.context, self._block(inner), inner.reports) != (
            frame.context,
            frame.index,
            frame.reports,
        ):
            raise FrameError("not-authentic", "the frame around the box says something else")
        return inner

    def _block(self, frame: Frame) -> int:
        """The index under which a frame is sealed: a packet's is that of its user's block."""
        return (
            frame.index // self._deployment.block_size if frame.kind is Kind.PACKET else frame.index
        )
