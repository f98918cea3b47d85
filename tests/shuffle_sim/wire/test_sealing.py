"""HPKE against the vectors of RFC 9180 and against a key schedule of our own; what is sealed opens
for its purpose only.
"""

import pickle

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_sim.errors import FrameError
from shuffle_sim.wire.frames import Context
from shuffle_sim.wire.sealing import (
    KEY_ID,
    SEAL,
    SIGNATURE,
    KeyPair,
    Purpose,
    Sealer,
    info,
    verified,
)

# RFC 9180, A.1.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode.
RFC = {
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "skEm": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "enc": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "skRm": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "pkRm": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "shared_secret": "fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "base_nonce": "56d890e5accaaf011cff4b7d",
    "pt": "4265617574792069732074727574682c20747275746820626561757479",
    "aad": "436f756e742d30",
    "ct": "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
    "6d8770ac83d07bea87e13c512a",
}
V = {name: bytes.fromhex(value) for name, value in RFC.items()}
KEM_ID, SUITE_ID = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
CONTEXT = Context(bytes(range(16)), 3, bytes(range(16, 32)))


def extract(salt: bytes, suite: bytes, label: bytes, ikm: bytes) -> bytes:
    mac = HMAC(salt or bytes(32), hashes.SHA256())
    mac.update(b"HPKE-v1" + suite + label + ikm)
    return mac.finalize()


def expand(prk: bytes, suite: bytes, label: bytes, context: bytes, length: int) -> bytes:
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
    return HKDFExpand(hashes.SHA256(), length, labelled).derive(prk)


def decapsulated(enc: bytes, private: X25519PrivateKey) -> bytes:
    """RFC 9180, 4.1: Decap."""
    shared = private.exchange(X25519PublicKey.from_public_bytes(enc))
    context = enc + private.public_key().public_bytes_raw()
    return expand(extract(b"", KEM_ID, b"eae_prk", shared), KEM_ID, b"shared_secret", context, 32)


def schedule(secret: bytes, bound: bytes) -> tuple[bytes, bytes]:
    """RFC 9180, 5.1: (key, base nonce) of the base mode."""
    hashed = (
        extract(b"", SUITE_ID, b"psk_id_hash", b""),
        extract(b"", SUITE_ID, b"info_hash", bound),
    )
    context = b"\0" + b"".join(hashed)
    prk = extract(secret, SUITE_ID, b"secret", b"")
    return expand(prk, SUITE_ID, b"key", context, 16), expand(
        prk, SUITE_ID, b"base_nonce", context, 12
    )


def owner_of(private: bytes) -> KeyPair:
    pair = KeyPair()
    pair._sealing = X25519PrivateKey.from_private_bytes(private)
    pair.public = type(pair.public)(
        pair._sealing.public_key().public_bytes_raw(), pair.public.signing
    )
    return pair


def test_the_key_schedule_here_gives_the_vectors_of_the_rfc():
    private = X25519PrivateKey.from_private_bytes(V["skRm"])
    assert private.public_key().public_bytes_raw() == V["pkRm"]
    assert decapsulated(V["enc"], private) == V["shared_secret"]
    assert schedule(V["shared_secret"], V["info"]) == (V["key"], V["base_nonce"])
    assert AESGCM(V["key"]).decrypt(V["base_nonce"], V["ct"], V["aad"]) == V["pt"]


def test_open_takes_a_box_made_of_the_rfcs_key_and_nonce(monkeypatch):
    # The ciphertext of the RFC carries associated data, which the single-shot interface has not:
    # here none, all else is the same.
    monkeypatch.setattr("shuffle_sim.wire.sealing.info", lambda purpose, context: V["info"])
    pair = owner_of(V["skRm"])
    box = pair.public.key_id + V["enc"] + AESGCM(V["key"]).encrypt(V["base_nonce"], V["pt"], b"")
    assert pair.open(box, Purpose.MESSAGE, CONTEXT) == V["pt"]


@settings(max_examples=25, deadline=None)
@given(plaintext=st.binary(max_size=300), purpose=st.sampled_from(Purpose))
def test_what_is_sealed_opens_with_the_key_schedule_here(plaintext, purpose):
    pair = owner_of(V["skRm"])
    box = Sealer(pair.public, purpose, CONTEXT).seal(plaintext)
    assert len(box) == len(plaintext) + SEAL
    enc, sealed = box[KEY_ID : KEY_ID + 32], box[KEY_ID + 32 :]
    key, nonce = schedule(
        decapsulated(enc, X25519PrivateKey.from_private_bytes(V["skRm"])), info(purpose, CONTEXT)
    )
    assert AESGCM(key).decrypt(nonce, sealed, b"") == plaintext == pair.open(box, purpose, CONTEXT)


def test_every_bound_thing_is_in_info_and_read_as_itself():
    contexts = [
        CONTEXT,
        Context(bytes(16), 3, CONTEXT.parameters),
        Context(CONTEXT.task, 4, CONTEXT.parameters),
        Context(CONTEXT.task, 3, bytes(16)),
    ]
    assert len({info(purpose, context) for purpose in Purpose for context in contexts}) == len(
        Purpose
    ) * len(contexts)
    pair = KeyPair()
    for purpose in Purpose:
        for context in contexts:
            box = Sealer(pair.public, purpose, context).seal(b"x")
            if (purpose, context) == (Purpose.BUNDLE, CONTEXT):
                assert pair.open(box, Purpose.BUNDLE, CONTEXT) == b"x"
                continue
            with pytest.raises(FrameError, match="not-authentic"):
                pair.open(box, Purpose.BUNDLE, CONTEXT)


def test_flipped_bits_cuts_and_wrong_keys_are_told_by_reason():
    pair = KeyPair()
    box = Sealer(pair.public, Purpose.MESSAGE, CONTEXT).seal(b"secret")
    for bit in range(8 * len(box)):
        flipped = bytearray(box)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError) as caught:
            pair.open(bytes(flipped), Purpose.MESSAGE, CONTEXT)
        assert caught.value.reason == ("unknown-key" if bit < 8 * KEY_ID else "not-authentic")
    for cut, reason in (
        (box[: SEAL - 1], "truncated"),
        (box[:-1], "not-authentic"),
        (b"", "truncated"),
    ):
        with pytest.raises(FrameError, match=reason):
            pair.open(cut, Purpose.MESSAGE, CONTEXT)
    with pytest.raises(FrameError, match="unknown-key"):
        KeyPair().open(box, Purpose.MESSAGE, CONTEXT)
    low_order = pair.public.key_id + bytes(32) + bytes(20)
    with pytest.raises(FrameError, match="not-authentic"):
        pair.open(low_order, Purpose.MESSAGE, CONTEXT)


def test_two_boxes_of_one_content_differ():
    sealer = Sealer(KeyPair().public, Purpose.MESSAGE, CONTEXT)
    assert sealer.seal(b"x") != sealer.seal(b"x")


def test_a_signature_is_good_for_what_it_names_alone():
    sender, recipient, other = KeyPair(), KeyPair().public, KeyPair().public
    signed = sender.sign(b"content", Purpose.VIEW, CONTEXT, recipient)
    assert len(signed) == SIGNATURE + 7
    assert verified(signed, sender.public, Purpose.VIEW, CONTEXT, recipient) == b"content"
    later = Context(CONTEXT.task, 4, CONTEXT.parameters)
    for data, key, purpose, context, to in (
        (signed, other, Purpose.VIEW, CONTEXT, recipient),
        (signed, sender.public, Purpose.BATCH, CONTEXT, recipient),
        (signed, sender.public, Purpose.VIEW, later, recipient),
        (signed, sender.public, Purpose.VIEW, CONTEXT, other),
        (signed[:-1] + b"T", sender.public, Purpose.VIEW, CONTEXT, recipient),
    ):
        with pytest.raises(FrameError, match="wrong-signature"):
            verified(data, key, purpose, context, to)
    with pytest.raises(FrameError, match="truncated"):
        verified(signed[:63], sender.public, Purpose.VIEW, CONTEXT, recipient)


def test_private_keys_do_not_travel():
    pair = KeyPair()
    with pytest.raises(TypeError, match="does not leave"):
        pickle.dumps(pair)
    assert pickle.loads(pickle.dumps(pair.public)) == pair.public
