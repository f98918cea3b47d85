"""The empirical risk of a loss, and what can be certified of its minimiser."""

import numpy as np

from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import Objective
from protocols.erm.smooth import ERM, LinearERM, SoftmaxERM
from protocols.problems.domains import Domain, L2Ball, RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError


def erm(
    loss: Loss,
    rows: Floats,
    ridge: float,
    domain: Domain,
    centre: Floats | None = None,
    linear: Floats | None = None,
) -> Objective:
    """The empirical risk of a loss, by the class that knows most of it; arguments as of `ERM`.

    Raises:
        ParameterError: no strong convexity, or kinks without a certificate.
    """
    from protocols.problems.multiclass import Softmax

    kind: type[ERM] = ERM
    if isinstance(loss, Softmax):
        kind = SoftmaxERM
    elif isinstance(loss, LinearLoss):
        kind = LinearERM if loss.curvature() is not None else KinkedERM
    demand_certificate(loss, domain)
    return kind(loss, rows, ridge, domain, centre, linear)


def demand_certificate(loss: Loss, domain: Domain) -> None:
    """Refuse a loss with kinks for which no certificate of a minimiser is known, or none in time.

    Raises:
        ParameterError: naming what would help.
    """
    if loss.smoothness() is not None:
        return
    if not isinstance(loss, LinearLoss) or loss.kink(np.ones(1)) is None:
        allowed = "smooth, or a LinearLoss with `kink`: its minimiser can be certified then"
        raise ParameterError("loss", loss, allowed)
    if not isinstance(domain, RealSpace | L2Ball):
        allowed = "RealSpace or L2Ball for a loss with kinks: they are certified fast there alone"
        raise ParameterError("domain", type(domain).__name__, allowed)
