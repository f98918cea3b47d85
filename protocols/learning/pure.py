"""What a curator takes by default, and the ridge where none is given: a rule of public numbers.

With a delta above 0 it is the tuned descent of all trust models. At delta = 0 it was tuned on
generated rows alone (`python -m benchmarks.tuning pure`): ten shapes of rows, 400 to
20,000 people, 8 to 57 columns, epsilon 0.3 to 4. No real table was looked at.
"""

import math
from typing import Any

from protocols.learning.model import GRADIENT
from shuffle_sim.privacy.guarantee import Privacy

CENTRED, OBJECTIVE, OUTPUT, SGD = "centred-objective", "objective", "output", "pure-sgd"
RIDGE = {CENTRED: 0.3, OBJECTIVE: 0.2, OUTPUT: 2.0}
"""Over the length of the noise that moves the minimiser, divided by n epsilon."""
_OTHERS = 0.01
"""Of mechanisms that were not tuned: a moderate one."""
_ROUNDS, _CLIP = 16, 0.3
_MOVED, _STEP = 0.3, 3.0
"""How far noise alone moves a parameter over all rounds; and the longest step."""


def mechanism(
    loss: str, privacy: Privacy, *, classes: bool, outputs: int = 1, constant: bool = True
) -> str:
    """The best by what the loss and the model allow.

    Args:
        loss: its name.
        privacy: of the release.
        classes: whether labels are classes.
        outputs: parameter vectors of the model.
        constant: whether rows have one; a centre of the features needs it.
    """
    if privacy.delta > 0:
        return GRADIENT
    if not classes:
        return SGD
    if loss != "logistic" or outputs > 1:
        return OUTPUT
    return CENTRED if constant else OBJECTIVE


def ridge(name: str, n: int, d: int, privacy: Privacy) -> float:
    """Of a mechanism that minimises: for less, its noise would move the minimiser too far.

    Noise of a pure release is some d long, and of an approximate one sqrt(2 d log(1/delta)).
    """
    known = RIDGE.get(name.removesuffix("-perturbation"))
    if known is None:
        return _OTHERS
    # A gamma number of shape d has the mean d; a Gaussian vector has sqrt(d) deviations.
    length = float(max(d, 2))
    if privacy.delta > 0:
        length = min(length, math.sqrt(2 * length * math.log(1 / privacy.delta)))
    return known * length / (n * privacy.epsilon)


def descent(n: int, d: int, epsilon: float) -> dict[str, Any]:
    """Rounds, clip and step of `PureSGD`: each user answers once."""
    rounds = min(_ROUNDS, n)
    # n/rounds users answer in a round: a mean moves by 2 clip rounds/n, and l2 noise some d/epsilon
    # times as long has sqrt(d)/epsilon times that in a coordinate.
    noise = 2 * _CLIP * rounds * math.sqrt(d) / (n * epsilon)  # per coordinate of a round
    # Noise walks at random: sqrt(rounds) steps of eta noise.
    eta = min(_MOVED / (math.sqrt(rounds) * noise), _STEP)
    return {"rounds": rounds, "clip": _CLIP, "eta": eta}
