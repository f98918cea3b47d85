"""Onion on Ray actors against plain traffic: a round of 23,200 messages, and one message.

Users seal in two actors, the shuffler and the analyzer open in one each; actors are up before the
clock starts. What limits it is X25519: one exchange of keys to open a box, two to seal one. Modes
alternate in one Ray session, best of three; sealing and opening are stated in CPU time of one core.
"""

import time

import numpy as np

from protocols import VectorSum
from shuffle_sim.data.population import InMemory
from shuffle_sim.roles import SECURITIES, Deployment
from shuffle_sim.wire.frames import Context
from shuffle_sim.wire.sealing import KeyPair, Purpose, Sealer

_USERS, _CALLS = 200, 500


def measure() -> dict[str, object]:
    from actors.runtime import RayRuntime

    protocol, rows = VectorSum(n=_USERS, d=2, g=44, b=14), InMemory(np.full((_USERS, 2), 0.3))
    messages = _USERS * 2 * 58
    seconds = dict.fromkeys(SECURITIES, np.inf)
    sent: dict[str, int] = {}
    held = RayRuntime()
    held._connect()
    for _ in range(3):
        for security in SECURITIES:
            with RayRuntime() as host:
                deployment = Deployment(
                    protocol=protocol,
                    task=bytes(16),
                    entropy=1,
                    fidelity="literal",
                    block_size=13,
                    adversary=None,
                    kernel="numpy",
                    shuffler_shards=1,
                    security=security,
                )
                plan = host.open(deployment, rows, 2)
                assert plan is not None
                for role in (*host._shards, *host._shufflers):
                    host.get(host.call(role, "introduce"))  # they are up
                start = time.perf_counter()
                record = host.exchange(plan.broadcast)[0].shuffler
                seconds[security] = min(seconds[security], time.perf_counter() - start)
                sent[security] = record.bytes_in + record.bytes_out
    held.close()
    pair, context = KeyPair(), Context(bytes(16), 0, bytes(16))
    sealer = Sealer(pair.public, Purpose.MESSAGE, context)
    start = time.process_time()
    boxes = [sealer.seal(bytes(16)) for _ in range(_CALLS)]
    middle = time.process_time()
    for box in boxes:
        pair.open(box, Purpose.MESSAGE, context)
    return {
        "messages": messages,
        "seconds": seconds,
        "messages_per_second": {security: messages / taken for security, taken in seconds.items()},
        "onion_over_plain_seconds": seconds["onion"] / seconds["none"],
        "bytes": sent,
        "onion_over_plain_bytes": sent["onion"] / sent["none"],
        "seal_cpu_microseconds": 1e6 * (middle - start) / _CALLS,
        "open_cpu_microseconds": 1e6 * (time.process_time() - middle) / _CALLS,
    }
