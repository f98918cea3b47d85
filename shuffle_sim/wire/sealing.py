"""Sealing bytes to a role: HPKE (RFC 9180) in base mode.

The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.

A sealed box is key id (8 bytes), encapsulated key (32) and ciphertext (as long as the plaintext,
and a tag of 16): 56 bytes more than what it holds. `Purpose` and `Context` are bound in `info`, so
a box made for another hop, layer, task, round or set of parameters does not open. HPKE gives
neither replay protection nor hides lengths, nor does it say who sealed: who opens must deduplicate,
who seals must pad, and where the sender matters the content is signed (Ed25519) before it is
sealed.

Keys are made by the role that owns the private one and do not leave it: a `KeyPair` refuses to be
pickled.
"""

import hashlib
import os
import struct
import time
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NoReturn

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from shuffle_sim.errors import FrameError
from shuffle_sim.wire.frames import Context

KEY_ID = 8
BOX_ID = KEY_ID + 32
"""Leading bytes that no two boxes share: key id and encapsulated key."""
SEAL = BOX_ID + 16
"""Bytes that a sealed box is longer than what it holds: key id, encapsulated key, tag."""
SIGNATURE = 64
"""Bytes of a signature in front of what it signs."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_LABEL = b"shuffle-sim seal 1\0"


class Purpose(Enum):
    """What is sealed, by whom and to whom: layer, sender role, recipient role."""

    BATCH = b"batch:users>shuffler"
    ROUTED = b"batch:shuffler>shuffler"
    VIEW = b"batch:shuffler>analyzer"
    BUNDLE = b"bundle:users>shuffler"
    MESSAGE = b"message:users>analyzer"


def info(purpose: Purpose, context: Context) -> bytes:
    """What a box is bound to: version label, layer with its roles, task, round, parameter hash."""
    return b"".join(
        (
            # Label and purpose end in zeros, the rest has one length: no two give one `info`.
            _LABEL,
            purpose.value,
            b"\0",
            context.task,
            struct.pack(">I", context.round),
            context.parameters,
        )
    )


@dataclass(frozen=True)
class PublicKeys:
    """A role's public keys, 32 bytes each: to seal to it, and to check its signatures."""

    sealing: bytes
    signing: bytes

    @property
    def key_id(self) -> bytes:
        """Names the sealing key on the wire: the first 8 bytes of its SHA-256."""
        return hashlib.sha256(self.sealing).digest()[:KEY_ID]


class Sealer:
    """Seals to one recipient for one purpose in one round."""

    def __init__(self, recipient: PublicKeys, purpose: Purpose, context: Context) -> None:
        """Load the recipient's key once."""
        self._key, self._id = X25519PublicKey.from_public_bytes(recipient.sealing), recipient.key_id
        self._info = info(purpose, context)

    def seal(self, plaintext: bytes) -> bytes:
        """The sealed box; another one at every call."""
        # Single-shot: a fresh encapsulated key for each box, so no key meets its nonce twice.
        return self._id + _SUITE.encrypt(plaintext, self._key, info=self._info)


class KeyPair:
    """A role's own keys."""

    def __init__(self) -> None:
        """Draw both keys from the operating system's entropy, even in a seeded run."""
        self._sealing, self._signing = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self.public = PublicKeys(
            self._sealing.public_key().public_bytes_raw(),
            self._signing.public_key().public_bytes_raw(),
        )

    def open(self, box: bytes, purpose: Purpose, context: Context) -> bytes:
        """What is in a box that was sealed to this role, for this purpose and context.

        Raises:
            FrameError: `truncated`, `unknown-key`, or `not-authentic` where the box was altered or
                made for anything else.
        """
        if len(box) < SEAL:
            raise FrameError("truncated", f"a sealed box of {len(box)} bytes, at least {SEAL}")
        # For the reason alone, and before a multiplication: what binds a box is the key.
        if box[:KEY_ID] != self.public.key_id:
            raise FrameError("unknown-key", "sealed to another key")
        try:
            return _SUITE.decrypt(box[KEY_ID:], self._sealing, info=info(purpose, context))
        except (InvalidTag, ValueError) as error:
            raise FrameError(
                "not-authentic", "altered, or sealed for another purpose, task, round or parameters"
            ) from error

    def sign(
        self, content: bytes, purpose: Purpose, context: Context, recipient: PublicKeys
    ) -> bytes:
        """`content` with this role's signature in front.

        It is good for one recipient, purpose and context.
        """
        return self._signing.sign(_signed(content, purpose, context, recipient)) + content

    def __reduce__(self) -> NoReturn:
        """Private keys stay where they were made."""
        raise TypeError("a KeyPair does not leave its role; send .public")


def verified(
    data: bytes, sender: PublicKeys, purpose: Purpose, context: Context, recipient: PublicKeys
) -> bytes:
    """What `KeyPair.sign` was given.

    Raises:
        FrameError: `truncated`, or `wrong-signature` where anybody else signed, or for anything
            else.
    """
    if len(data) < SIGNATURE:
        raise FrameError("truncated", f"{len(data)} bytes cannot hold a signature")
    content = data[SIGNATURE:]
    try:
        Ed25519PublicKey.from_public_bytes(sender.signing).verify(
            data[:SIGNATURE], _signed(content, purpose, context, recipient)
        )
    except InvalidSignature as error:
        raise FrameError("wrong-signature", "not signed by the role it should come from") from error
    return content


def _signed(content: bytes, purpose: Purpose, context: Context, recipient: PublicKeys) -> bytes:
    # With the recipient: a role cannot seal what it got signed to another in the signer's name.
    return b"".join((info(purpose, context), recipient.sealing, content))


@lru_cache
def speed() -> tuple[float, float]:
    """Seconds to seal and to open a short message on this machine, measured once."""
    pair, context = KeyPair(), Context(bytes(16), 0, bytes(16))
    sealer, tries = Sealer(pair.public, Purpose.MESSAGE, context), 50
    start = time.perf_counter()
    boxes = [sealer.seal(b"x") for _ in range(tries)]
    middle = time.perf_counter()
    for box in boxes:
        pair.open(box, Purpose.MESSAGE, context)
    return (middle - start) / tries, (time.perf_counter() - middle) / tries


def sealing_time(messages: int, bundles: int, workers: int) -> float:
    """About how many seconds an onion round takes.

    Users seal on `workers` cores at most; the shuffler and the analyzer open on one.
    """
    seal, unseal = speed()
    return (messages + bundles) * (seal / min(workers, os.cpu_count() or 1) + unseal)
