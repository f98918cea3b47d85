"""Centred Lipschitz extension: persons' objectives with slopes near a public center.

For h convex on a ball K, h^{c,gamma}(w) = min over u in K of h(u) + <c, w - u> + gamma |w - u|. It
is convex, its slopes lie within gamma of c, and it equals h at points of K where h has a slope
within gamma of c. Proofs: docs/theory/user-level.md, "Centred Lipschitz extension".
"""

import math

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import UNIT, Objective, gradient_rounding
from protocols.erm.people import People
from protocols.problems.domains import L2Ball
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.data.persons import MOST_RECORDS
from shuffle_sim.errors import ParameterError, positive, real

_STEPS, _HALVINGS = 4000, 54
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
        people: People,
        ridge: float,
        domain: L2Ball,
        centre: Floats,
        center: Floats,
        gamma: float,
        radius: float,
        most_records: int = MOST_RECORDS,
    ) -> None:
        """Of persons' records.

        Args:
            loss: smooth.
            people: their records.
            ridge: lambda, above 0; it is outside the extension.
            domain: K.
            centre: of the ridge, (d,).
            center: c, (d,).
            gamma: above 0.
            radius: to which minimisers will be certified.
            most_records: no person has more; public.

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
        self.people, self.n, self._blocks = people, len(people), people.blocks()
        self.most_records = most_records
        self._target = self.ridge * (_SHARE * radius) ** 2
        self._known: tuple[bytes, Floats, float, float] | None = None
        self.outside = 0

    @property
    def start(self) -> Floats:
        return self.domain.project(self.centre)

    def value(self, w: Floats) -> float:
        values, apart = self.people.values(self.loss, w), w - self.centre
        return float(values.mean()) + self._looked(w)[2] + self.ridge / 2 * float(apart @ apart)

    def gradient(self, w: Floats) -> Floats:
        return np.asarray(self._looked(w)[0] + self.ridge * (w - self.centre))

    def rounding(self, w: Floats) -> float:
        """Of doubles; and sqrt(lambda delta) for a delta-subgradient."""
        return self._floating(float(np.linalg.norm(w))) + math.sqrt(self.ridge * self._looked(w)[1])

    @property
    def least_radius(self) -> float:
        return self._floating(self.domain.radius) / self.ridge + _SHARE * self.radius

    def _floating(self, norm: float) -> float:
        slope = self.loss.lipschitz(self.domain.radius) + self.gamma + np.linalg.norm(self.center)
        far = norm + float(np.linalg.norm(self.centre))
        joined = gradient_rounding(self.n, self.d, float(slope), self.beta, self.ridge, far)
        return joined + UNIT * self.most_records * float(slope)

    def _looked(self, w: Floats) -> tuple[Floats, float, float]:
        """(mean slope, delta, mean rise of the values above h_i) of the extensions at w."""
        key = w.tobytes()
        if self._known is None or self._known[0] != key:
            self._known = (key, *self._slopes(w))
        return self._known[1:]

    def _slopes(self, w: Floats) -> tuple[Floats, float, float]:
        sums, delta, rise = [], 0.0, 0.0
        self.outside = 0
        for people in self._blocks:
            slopes = people.means(dense(self.loss.gradients(w, people.records)))
            far = np.flatnonzero(_lengths(slopes - self.center) > self.gamma)
            if far.size:
                slopes[far], errors = self._by_normal(w, slopes[far])
                none = np.isinf(errors)
                if none.any():
                    outside = people.chosen(far[none])
                    slopes[far[none]], errors[none], values = self._inner(w, outside)
                    rise += float((values - outside.values(self.loss, w)).sum())
                    self.outside += len(outside)
                delta += float(errors.sum())
            sums.append(np.ones(len(slopes)) @ slopes)
        slope = np.array([math.fsum(each) for each in zip(*sums, strict=True)])
        return slope / self.n, delta / self.n, rise / self.n

    def _by_normal(self, w: Floats, slopes: Floats) -> tuple[Floats, Floats]:
        """Slopes plus the least multiple of the normal at w that is within gamma of c.

        Their errors are infinite where there is none.
        """
        apart = w - self.ball.center
        length = float(np.linalg.norm(apart))
        if length == 0:
            return slopes, np.full(len(slopes), math.inf)
        outward = apart / length
        offsets = slopes - self.center
        along = offsets @ outward
        across = along * along - _dots(offsets, offsets) + self.gamma**2
        multiples = -along - np.sqrt(np.maximum(across, 0.0))
        errors = multiples * max(0.0, self.ball.size - length)
        none = (across < 0) | (multiples < 0) | (errors > self._target)
        errors[none] = math.inf
        return slopes + multiples[:, None] * outward, errors

    def _inner(self, w: Floats, people: People) -> tuple[Floats, Floats, Floats]:
        """(slopes, their errors delta, values) of extensions: accelerated proximal steps.

        With u, and p = c + gamma-vector, <p, .> is a minorant up to delta: h is convex, so it is
        above its tangent at u, whose least value over K is known.
        """
        c, gamma, step = self.center, self.gamma, 1 / max(self.beta, 1e-12)
        active = np.arange(len(people))
        u = ahead = np.tile(w, (len(people), 1))
        slopes, momentum = np.tile(c, (len(people), 1)), np.ones(len(people))
        errors, values = np.full((2, len(people)), math.inf)
        for _ in range(_STEPS):
            towards = ahead - step * (people.slopes(self.loss, ahead) - c)
            after, pushes = _nearest(towards, w, step * gamma, self.ball)
            pushes = pushes / step
            sizes = _lengths(pushes)
            p = c - pushes * np.minimum(1.0, gamma / np.maximum(sizes, 1e-300))[:, None]
            error, value = self._minorants(w, after, p, people)
            better = error < errors[active]
            at = active[better]
            slopes[at], errors[at], values[at] = p[better], error[better], value[better]
            left = errors[active] > self._target
            if not left.any():
                break
            momentum[_dots(ahead - after, after - u) > 0] = 1.0  # it points uphill
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = after + ((momentum - 1) / following)[:, None] * (after - u)
            u, momentum = after, following
            if not left.all():
                active, people = active[left], people.chosen(left)
                u, ahead, momentum = u[left], ahead[left], momentum[left]
        return slopes, errors, values

    def _minorants(self, w: Floats, u: Floats, p: Floats, people: People) -> tuple[Floats, Floats]:
        """(errors, values) of each person's p with its u."""
        q, apart = p - people.slopes(self.loss, u), w - u
        pulled = self.gamma * _lengths(apart)
        reach = _dots(q, self.ball.center - u) + self.ball.size * _lengths(q)
        above = _dots(self.center - p, apart) + pulled
        values = people.values(self.loss, u) + apart @ self.center
        errors = np.maximum(0.0, above + np.maximum(0.0, reach))
        return errors + 64 * UNIT * np.abs(values), values + pulled


def _lengths(vectors: Floats) -> Floats:
    return np.asarray(np.sqrt(_dots(vectors, vectors)))


def _dots(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", one, other))


def _nearest(z: Floats, w: Floats, pull: float, ball: L2Ball) -> tuple[Floats, Floats]:
    """For each row of z argmin over u in K of ||u - z||^2/2 + pull ||u - w||, and the last's slope.

    The multiplier of the ball is found by bisection; without it u is z, drawn towards w.
    """

    def drawn(z: Floats, more: Floats) -> Floats:
        whole = (1 + more)[:, None]
        apart = (z + more[:, None] * ball.center) / whole - w
        lengths = np.maximum(_lengths(apart), 1e-300)
        return np.asarray(w + apart * np.maximum(0.0, 1 - pull / (1 + more) / lengths)[:, None])

    more = np.zeros(len(z))
    u = drawn(z, more)
    out = np.flatnonzero(_lengths(u - ball.center) > ball.size)
    if out.size:
        there = z[out]

        def beyond(more: Floats) -> NDArray[np.bool_]:
            return np.asarray(_lengths(drawn(there, more) - ball.center) > ball.size)

        low, high = np.zeros(out.size), np.ones(out.size)
        while (up := beyond(high) & (high < 1e12)).any():
            low, high = np.where(up, high, low), np.where(up, 4 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            up = beyond(middle)
            low, high = np.where(up, middle, low), np.where(up, high, middle)
        more[out] = high
        u[out] = drawn(there, high)
    return u, z - u - more[:, None] * (u - ball.center)


def valid_records(loss: Loss, d: int, rows: Floats) -> Floats:
    """Records for which the loss's constants hold; others become zeros, where h is flat or round.

    Args:
        loss: with a bound of its features or points.
        d: parameters.
        rows: (records, columns), of anything.
    """
    real("d", d, 1, math.inf, closed=(True, False))
    kept = np.array(rows, np.float64)
    parts = [(0, len(kept))]
    while parts:  # halves of what is refused, down to single records
        low, high = parts.pop()
        try:
            loss.check(kept[low:high], d)
        except ParameterError:
            if high - low == 1:
                kept[low] = _neutral(loss, kept.shape[1])
            else:
                middle = (low + high) // 2
                parts += [(low, middle), (middle, high)]
    return kept


def _neutral(loss: Loss, columns: int) -> Floats:
    """A fixed record that every loss takes: no features, and the label 1 if labels are classes."""
    row = np.zeros(columns)
    if getattr(loss, "classification", False):
        row[-1] = 1.0
    return row
