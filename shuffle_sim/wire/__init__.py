"""What crosses between roles: messages, frames, canonical bytes and seals."""

from shuffle_sim.wire.codec import decode, encode
from shuffle_sim.wire.frames import (
    Context,
    Frame,
    Kind,
    check_context,
    frame_bytes,
    parse,
    split_frames,
)
from shuffle_sim.wire.messages import Alphabet, Messages, Tally
from shuffle_sim.wire.sealing import KeyPair, PublicKeys, Purpose, Sealer, sealing_time, verified

__all__ = [
    "Alphabet",
    "Context",
    "Frame",
    "KeyPair",
    "Kind",
    "Messages",
    "PublicKeys",
    "Purpose",
    "Sealer",
    "Tally",
    "check_context",
    "decode",
    "encode",
    "frame_bytes",
    "parse",
    "sealing_time",
    "split_frames",
    "verified",
]
