"""Defects of what is sealed: keys, boxes and signatures."""

import hashlib
import os
import random
import secrets
import zlib
from copy import copy

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shuffle_sim.roles import channel, onion
from shuffle_sim.wire import messages, sealing


def boxes_by_plaintext(patch):
    """The same plaintext gives the same box: it shows which users send alike."""
    true, known = sealing.Sealer.seal, {}

    def seal(self, plaintext):
        key = self._info, self._id, bytes(plaintext)
        if key not in known:
            known[key] = true(self, plaintext)
        return known[key]

    patch.setattr(sealing.Sealer, "seal", seal)


def one_key_for_all(patch):
    """Every role opens what is sealed to any other."""
    true = sealing.KeyPair.__init__

    def init(self):
        true(self)
        self._sealing = X25519PrivateKey.from_private_bytes(bytes([1] * 32))
        sealed_to = self._sealing.public_key().public_bytes_raw()
        self.public = sealing.PublicKeys(sealed_to, self.public.signing)

    patch.setattr(sealing.KeyPair, "__init__", init)


class _Keystream:
    """Boxes that are authentic, under a keystream that comes again."""

    def encrypt(self, plaintext, key, info):
        body = _masked(plaintext)
        return os.urandom(31) + b"\0" + body + hashlib.sha256(body + info).digest()[:16]

    def decrypt(self, box, key, info):
        body, tag = box[32:-16], box[-16:]
        if hashlib.sha256(body + info).digest()[:16] != tag:
            raise ValueError("not authentic")
        return _masked(body)


def _masked(data):
    return bytes(a ^ b for a, b in zip(data, hashlib.shake_128().digest(len(data)), strict=True))


def keystream_again(patch):
    """A nonce that is used twice."""
    patch.setattr(sealing, "_SUITE", _Keystream())


class _Unauthentic:
    """Boxes that hide what they hold, and open when they were changed."""

    def encrypt(self, plaintext, key, info):
        front = os.urandom(31) + b"\0"
        mask = hashlib.shake_128(front).digest(len(plaintext))
        body = bytes(a ^ b for a, b in zip(plaintext, mask, strict=True))
        return front + body + os.urandom(16)

    def decrypt(self, box, key, info):
        mask = hashlib.shake_128(box[:32]).digest(len(box) - 48)
        return bytes(a ^ b for a, b in zip(box[32:-16], mask, strict=True))


def boxes_may_be_changed(patch):
    """No tag is looked at."""
    patch.setattr(sealing, "_SUITE", _Unauthentic())


def boxes_for_any_purpose(patch):
    """What a box is bound to is left out."""
    patch.setattr(sealing, "info", lambda purpose, context: b"")


def signatures_for_anybody(patch):
    """A signature holds for any purpose, round and recipient."""
    patch.setattr(sealing, "_signed", lambda content, *_: content)


def _of_few_seeds():
    """One of 2^16 keys."""
    return hashlib.sha256(secrets.token_bytes(2)).digest()


def keys_of_few_seeds(patch):
    """A role's key is one of 2^16."""
    true = sealing.KeyPair.__init__

    def init(self):
        true(self)
        self._sealing = X25519PrivateKey.from_private_bytes(_of_few_seeds())
        sealed_to = self._sealing.public_key().public_bytes_raw()
        self.public = sealing.PublicKeys(sealed_to, self.public.signing)

    patch.setattr(sealing.KeyPair, "__init__", init)


class _FewKeys(_Unauthentic):
    """Authentic boxes, each under one of 2^16 keys."""

    def encrypt(self, plaintext, key, info):
        front = _of_few_seeds()[:31] + b"\0"
        mask = hashlib.shake_128(front).digest(len(plaintext))
        body = bytes(a ^ b for a, b in zip(plaintext, mask, strict=True))
        return front + body + hashlib.sha256(front + body + info).digest()[:16]

    def decrypt(self, box, key, info):
        if hashlib.sha256(box[:-16] + info).digest()[:16] != box[-16:]:
            raise ValueError("not authentic")
        return super().decrypt(box, key, info)


def boxes_of_few_seeds(patch):
    """A box's own key is one of 2^16."""
    patch.setattr(sealing, "_SUITE", _FewKeys())


def boxes_compressed(patch):
    """What is even takes fewer bytes."""
    seal, open_box = sealing.Sealer.seal, sealing.KeyPair.open
    patch.setattr(sealing.Sealer, "seal", lambda self, text: seal(self, zlib.compress(text)))

    def opened(self, box, purpose, context):
        return zlib.decompress(open_box(self, box, purpose, context))

    patch.setattr(sealing.KeyPair, "open", opened)


def keys_that_tell(patch):
    """A bit of the key in front is the last bit of what is sealed."""
    true = sealing.Sealer.seal

    def seal(self, plaintext):
        while True:
            box = true(self, plaintext)
            if not plaintext or not (box[8] ^ plaintext[-1]) & 1:
                return box

    patch.setattr(sealing.Sealer, "seal", seal)


def keys_of_the_task(patch):
    """A role's key follows from what everybody knows."""

    def keys(self):
        if "_made" not in vars(self):
            made, task = sealing.KeyPair(), self._deployment.task
            place = str(getattr(self, "_shard", 0)) + type(self).__name__
            seed = hashlib.sha256(task + place.encode()).digest()
            made._sealing = X25519PrivateKey.from_private_bytes(seed)
            made._signing = Ed25519PrivateKey.from_private_bytes(seed)
            made.public = sealing.PublicKeys(
                made._sealing.public_key().public_bytes_raw(),
                made._signing.public_key().public_bytes_raw(),
            )
            self._made = made
        return self._made

    patch.setattr(channel.Keyed, "_keys", property(keys))


def keys_of_the_script(patch):
    """Keys are drawn by Python's global generator, which a script may seed."""
    true = sealing.KeyPair.__init__

    def init(self):
        true(self)
        self._sealing = X25519PrivateKey.from_private_bytes(random.randbytes(32))
        sealed_to = self._sealing.public_key().public_bytes_raw()
        self.public = sealing.PublicKeys(sealed_to, self.public.signing)

    patch.setattr(sealing.KeyPair, "__init__", init)


def anybody_signs(patch):
    """Roles do not look who has signed."""
    patch.setattr(channel, "verified", lambda signed, *given: bytes(signed[sealing.SIGNATURE :]))


HOPS = keys_of_the_task, anybody_signs
"""Of roles, at the security of transport."""


def boxes_read_again(patch):
    """The analyzer does not remember which boxes it has opened."""
    true = onion.Opener.symbol

    def symbol(self, box, label, alphabet):
        self._seen.clear()
        return true(self, box, label, alphabet)

    patch.setattr(onion.Opener, "symbol", symbol)


PLANTS = (
    keys_of_the_script,
    keys_that_tell,
    keys_of_few_seeds,
    boxes_of_few_seeds,
    boxes_compressed,
    boxes_by_plaintext,
    one_key_for_all,
    keystream_again,
    boxes_may_be_changed,
    boxes_for_any_purpose,
    signatures_for_anybody,
    boxes_read_again,
)


class _Short:
    """Keys that leave out what is in front of the bits that a message uses."""

    def __init__(self, keys, bits):
        self._keys, self._bits = keys, bits

    def open(self, box, *known):
        plain = self._keys.open(box, *known)
        return (int.from_bytes(plain, "big") % (1 << self._bits)).to_bytes(len(plain), "big")


def bits_passed_over(patch):
    """A sealed message may have anything in the bits that are left over."""
    true = onion.Opener.symbol

    def symbol(self, box, label, alphabet):
        short = copy(self)
        short._keys = _Short(self._keys, alphabet.label_bits + alphabet.symbol_bits)
        return true(short, box, label, alphabet)

    patch.setattr(onion.Opener, "symbol", symbol)


def padding_passed_over(patch):
    """A report may have anything in the bits that fill its last byte."""
    true = messages.Messages.from_bytes

    def from_bytes(alphabet, per_label, payload, reports):
        bits = messages.Messages.row_bits(alphabet, per_label)
        size = (bits + 7) // 8
        if len(payload) == reports * size:
            rows = np.frombuffer(payload, np.uint8).reshape(reports, size).copy()
            rows[:, -1] &= 0xFF << -bits % 8 & 0xFF
            payload = rows.tobytes()
        return true(alphabet, per_label, payload, reports)

    patch.setattr(messages.Messages, "from_bytes", from_bytes)


FREE = bits_passed_over, padding_passed_over
"""Of readers."""
