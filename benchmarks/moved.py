"""The shuffler's permutation of symbols of 1 to 8 bytes, against numpy's of as many uint8.

And sealed messages, 57 bytes each, as an onion's shuffler holds them: an order is drawn, and each
is copied once, to the wire.
"""

from functools import partial

import numpy as np

from benchmarks.clock import best
from shuffle_sim.roles.onion import box_bytes
from shuffle_sim.sampling.shuffling import gathered, order, permuted
from shuffle_sim.wire.messages import Alphabet

MESSAGES = (1_000_000, 5_800_000, 50_000_000)


def measure() -> dict[str, object]:
    rng = np.random.Generator(np.random.SFC64(0))
    found = {}
    for count in MESSAGES:
        bits = rng.integers(0, 2, count, np.uint8)
        reference = best(partial(rng.permutation, bits))
        for kind in (np.uint8, np.uint32, np.uint64):
            symbols = bits.astype(kind)
            moved = best(partial(permuted, [symbols], rng))
            found[f"{count} messages of {symbols.itemsize} bytes"] = {
                "over_numpys_permutation_of_uint8": reference / moved,
                "over_numpys_permutation_of_the_same": best(partial(rng.permutation, symbols))
                / moved,
            }
        if count > MESSAGES[0]:
            continue
        boxes = rng.integers(0, 256, (count, box_bytes(Alphabet(2))), np.uint8)
        drawn, chosen = best(partial(order, count, rng)), order(count, rng)
        moved = drawn + best(partial(gathered, boxes, chosen))
        found[f"{count} sealed messages of {boxes.shape[1]} bytes"] = {
            "over_numpys_permutation_of_uint8": reference / moved,
            "of_their_order_over_numpys_permutation_of_uint8": reference / drawn,
            "over_numpys_permutation_of_the_same": best(partial(rng.permutation, boxes)) / moved,
            "of_a_plain_copy_over_numpys_permutation_of_uint8": reference / best(boxes.copy),
        }
    return {"speed": found, "target": 4.0}
