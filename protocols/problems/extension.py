"""Centred Lipschitz extension: persons' objectives with slopes near a public center.

For h convex on a ball K, h^{c,gamma}(w) = min over u in K of h(u) + <c, w - u> + gamma |w - u|. It
is convex, its slopes lie within gamma of c, and it equals h at points of K where h has a slope
within gamma of c. Proofs: docs/theory/user-level.md, "Centred Lipschitz extension".
"""

import math

import numpy as np

from protocols.problems.domains import L2Ball
from protocols.problems.loss import Loss
from protocols.problems.objective import UNIT, Objective, gradient_rounding
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError, positive, real

_STEPS, _HALVINGS = 4000, 80
_SHARE = 1 / 50  # of the promised radius, for inner minimisers


class ExtendedERM(Objective):
    """mean_i h_i^{c,gamma}(w) + (ridge/2) ||w - centre||^2 over an l2 ball K.

    h_i is the mean loss over person i's records. The gradient is that of the extension up to an
    error that is computed and in `rounding`.

    Attributes:
        outside: how many persons had no slope of h_i within gamma of c, where it was last asked.
    """

    def __init__(
        self,
        loss: Loss,
        persons: list[Floats],
        ridge: float,
        domain: L2Ball,
        centre: Floats,
        center: Floats,
        gamma: float,
        radius: float,
    ) -> None:
        """Of persons' records.

        Args:
            loss: smooth.
            persons: for each its records, (m_i, columns).
            ridge: lambda, above 0; it is outside the extension.
            domain: K.
            centre: of the ridge, (d,).
            center: c, (d,).
            gamma: above 0.
            radius: to which minimisers will be certified.

        Raises:
            ParameterError: a loss with kinks, or a domain that is no ball.
        """
        beta = loss.smoothness()
        if beta is None:
            raise ParameterError("loss", loss, "smooth: its envelope, or another algorithm")
        if not isinstance(domain, L2Ball):
            raise ParameterError("domain", type(domain).__name__, "an L2Ball")
        self.loss, self.domain, self.ball = loss, domain, domain
        self.ridge = self.strong_convexity = positive("ridge", ridge)
        self.beta, self.smoothness = beta, beta + ridge
        self.centre, self.center = centre, center
        self.gamma, self.radius = positive("gamma", gamma), positive("radius", radius)
        self.persons, self.n = persons, len(persons)
        self._records = np.concatenate(persons)
        counts = np.array([len(each) for each in persons])
        self._starts, self._counts = np.cumsum(counts) - counts, counts
        self._target = self.ridge * (_SHARE * radius) ** 2
        self._known: tuple[bytes, Floats, float, float] | None = None
        self.outside = 0

    @property
    def start(self) -> Floats:
        """Near the ridge's centre."""
        return self.domain.project(self.centre)

    def value(self, w: Floats) -> float:
        """F(w), to the accuracy of the inner minimisers."""
        apart = w - self.centre
        return self._looked(w)[2] + self.ridge / 2 * float(apart @ apart)

    def gradient(self, w: Floats) -> Floats:
        """Of the extension and the ridge."""
        return np.asarray(self._looked(w)[0] + self.ridge * (w - self.centre))

    def rounding(self, w: Floats) -> float:
        """Of doubles; and sqrt(lambda delta) for a delta-subgradient."""
        return self._floating(float(np.linalg.norm(w))) + math.sqrt(self.ridge * self._looked(w)[1])

    @property
    def least_radius(self) -> float:
        """Doubles, and the share of the inner minimisers."""
        return self._floating(self.domain.radius) / self.ridge + _SHARE * self.radius

    def _floating(self, norm: float) -> float:
        slope = self.loss.lipschitz(self.domain.radius) + self.gamma + np.linalg.norm(self.center)
        far = norm + float(np.linalg.norm(self.centre))
        return gradient_rounding(
            len(self._records), self.d, float(slope), self.beta, self.ridge, far
        )

    def _looked(self, w: Floats) -> tuple[Floats, float, float]:
        """(mean slope, delta, mean value) of the extensions at w."""
        key = w.tobytes()
        if self._known is None or self._known[0] != key:
            self._known = (key, *self._slopes(w))
        _, slope, error, value = self._known
        return slope, error, value

    def _slopes(self, w: Floats) -> tuple[Floats, float, float]:
        each = np.add.reduceat(dense(self.loss.gradients(w, self._records)), self._starts, axis=0)
        slopes = each / self._counts[:, None]
        values = np.add.reduceat(self.loss.values(w, self._records), self._starts) / self._counts
        errors = np.zeros(self.n)
        far = np.flatnonzero(np.linalg.norm(slopes - self.center, axis=1) > self.gamma)
        self.outside = 0
        for at in far:
            normal = self._by_normal(w, slopes[at])
            if normal is None:
                self.outside += 1
                slopes[at], errors[at], values[at] = self._inner(w, self.persons[at])
            else:
                slopes[at], errors[at] = normal
        return slopes.mean(axis=0), float(errors.mean()), float(values.mean())

    def _by_normal(self, w: Floats, slope: Floats) -> tuple[Floats, float] | None:
        """A slope plus the least multiple of the normal at w that is within gamma of c."""
        apart = w - self.ball.center
        length = float(np.linalg.norm(apart))
        if length == 0:
            return None
        outward = apart / length
        offset = slope - self.center
        along = float(offset @ outward)
        across = along * along - float(offset @ offset) + self.gamma**2
        multiple = -along - math.sqrt(across) if across >= 0 else -1.0
        error = multiple * max(0.0, self.ball.size - length)
        if multiple < 0 or error > self._target:
            return None
        return slope + multiple * outward, error

    def _inner(self, w: Floats, records: Floats) -> tuple[Floats, float, float]:
        """(slope, its error delta, value) of one person's extension: accelerated proximal steps.

        With u, and p = c + gamma-vector, <p, .> is a minorant up to delta: h is convex, so it is
        above its tangent at u, whose least value over K is known.
        """
        c, gamma, step = self.center, self.gamma, 1 / max(self.beta, 1e-12)
        u = ahead = w.copy()
        momentum = 1.0
        best: tuple[Floats, float, float] = (c, math.inf, math.inf)
        for _ in range(_STEPS):
            slope = dense(self.loss.gradients(ahead, records)).mean(axis=0)
            after, push = _nearest(ahead - step * (slope - c), w, step * gamma, self.ball)
            push = push / step
            size = float(np.linalg.norm(push))
            p = c - push * min(1.0, gamma / size if size > 0 else 1.0)
            found = self._minorant(w, after, p, records)
            if found[1] < best[1]:
                best = found
            if best[1] <= self._target:
                break
            if float((ahead - after) @ (after - u)) > 0:  # restart: momentum points uphill
                momentum = 1.0
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead = after + (momentum - 1) / following * (after - u)
            u, momentum = after, following
        return best

    def _minorant(
        self, w: Floats, u: Floats, p: Floats, records: Floats
    ) -> tuple[Floats, float, float]:
        tangent = dense(self.loss.gradients(u, records)).mean(axis=0)
        q, apart = p - tangent, w - u
        reach = float(q @ (self.ball.center - u)) + self.ball.size * float(np.linalg.norm(q))
        above = float((self.center - p) @ apart) + self.gamma * float(np.linalg.norm(apart))
        error = max(0.0, above + max(0.0, reach))
        value = float(self.loss.values(u, records).mean()) + float(self.center @ apart)
        return p, error + 64 * UNIT * abs(value), value + self.gamma * float(np.linalg.norm(apart))


def _nearest(z: Floats, w: Floats, pull: float, ball: L2Ball) -> tuple[Floats, Floats]:
    """argmin over u in K of ||u - z||^2/2 + pull ||u - w||, and its slope of the last term.

    The multiplier of the ball is found by bisection; without it u is z, drawn towards w.
    """

    def drawn(more: float) -> Floats:
        to, weight = (z + more * ball.center) / (1 + more), pull / (1 + more)
        apart = to - w
        length = float(np.linalg.norm(apart))
        return w + apart * (max(0.0, 1 - weight / length) if length > 0 else 0.0)

    u, more = drawn(0.0), 0.0
    if np.linalg.norm(u - ball.center) > ball.size:
        low, high = 0.0, 1.0
        while np.linalg.norm(drawn(high) - ball.center) > ball.size and high < 1e12:
            low, high = high, 4 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            inside = np.linalg.norm(drawn(middle) - ball.center) <= ball.size
            low, high = (low, middle) if inside else (middle, high)
        more = high
        u = drawn(more)
    return u, z - u - more * (u - ball.center)


def valid_records(loss: Loss, d: int, rows: Floats) -> Floats:
    """Records for which the loss's constants hold; others become zeros, where h is flat or round.

    Args:
        loss: with a bound of its features or points.
        d: parameters.
        rows: (records, columns), of anything.
    """
    real("d", d, 1, math.inf, closed=(True, False))
    kept = np.array(rows, np.float64)
    try:
        loss.check(kept, d)
    except ParameterError:
        for at, row in enumerate(rows):
            try:
                loss.check(row[None], d)
            except ParameterError:
                kept[at] = _neutral(loss, row.size)
    return kept


def _neutral(loss: Loss, columns: int) -> Floats:
    """A fixed record that every loss takes: no features, and the label 1 if labels are classes."""
    row = np.zeros(columns)
    if getattr(loss, "classification", False):
        row[-1] = 1.0
    return row
