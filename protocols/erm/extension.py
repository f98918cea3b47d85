"""Centred Lipschitz extension: persons' objectives with slopes near a public center.

For h convex on a ball K, h^{c,gamma}(w) = min over u in K of h(u) + <c, w - u> + gamma |w - u|. It
is convex, its slopes lie within gamma of c, and it equals h at points of K where h has a slope
within gamma of c. Proofs: docs/theory/user-level.md, "Centred Lipschitz extension".
"""

import math

import numpy as np
from numpy.typing import NDArray

from protocols.erm.balls import Values, dots, lengths, newton_over_ball
from protocols.erm.objective import BLOCK, UNIT, Objective, gradient_rounding, most_loss
from protocols.erm.people import People
from protocols.erm.projected import newton_over
from protocols.problems.domains import Domain, L2Ball
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.data.persons import MOST_RECORDS
from shuffle_sim.errors import ParameterError, positive, real

_STEPS, _HALVINGS, _CREASE = 60, 54, 1e-6
_SQUARES = 1 << 22  # numbers of second derivatives at once
_SHARE = 1 / 50  # of the promised radius, for inner minimisers


class ExtendedERM(Objective):
    """mean_i h_i^{c,gamma}(w) + (ridge/2) ||w - centre||^2 over a domain in an l2 ball K.

    h_i is the mean loss over person i's records. The gradient is that of the extension up to an
    error that is computed and in `rounding`.

    Attributes:
        ball: K: the domain, or where it is none the ball around 0 that holds it.
        outside: how many persons had no slope of h_i within gamma of c, where it was last asked.
    """

    def __init__(
        self,
        loss: Loss,
        people: People,
        ridge: float,
        domain: Domain,
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
            domain: bounded.
            centre: of the ridge, (d,).
            center: c, (d,).
            gamma: above 0.
            radius: to which minimisers will be certified.
            most_records: no person has more; public.

        Raises:
            ParameterError: a loss with kinks.
        """
        beta = loss.smoothness()
        if beta is None:
            raise ParameterError("loss", loss, "smooth: its envelope, or another algorithm")
        self.loss, self.domain = loss, domain
        self.ball = domain if isinstance(domain, L2Ball) else L2Ball(domain.d, domain.radius)
        self.ridge = self.strong_convexity = positive("ridge", ridge)
        self.beta, self.smoothness = beta, beta + ridge
        self.centre, self.center = centre, center
        self.gamma, self.radius = positive("gamma", gamma), positive("radius", radius)
        self.people, self.n = people, len(people)
        self._blocks = people.blocks(min(BLOCK, max(1, _SQUARES // domain.d**2)))
        self.most_records = most_records
        self._slope = loss.lipschitz(domain.radius) + gamma + float(np.linalg.norm(center))
        most = int(people.counts.max())
        each = gradient_rounding(most, self.d, self._slope, beta, 0.0, domain.radius)
        # A slope that is off by e moves a tangent by 2 e size over the ball at most.
        self._hidden = 2 * self.ball.size * each  # of a person's delta, in doubles
        # delta at which sqrt(delta/lambda) is that share of the radius; doubles show nothing
        # smaller.
        self._target = max(self.ridge * (_SHARE * radius) ** 2, self._hidden)
        # Each person's u at the last w; NaN: never looked for.
        self._ends = np.full((self.n, self.d), math.nan)
        self._known: tuple[bytes, Floats, float, float] | None = None
        self.outside = 0

    @property
    def start(self) -> Floats:
        return self.domain.project(self.centre)

    def value(self, w: Floats) -> float:
        values, apart = self.people.values(self.loss, w), w - self.centre
        return float(values.mean()) + self._looked(w)[2] + self.ridge / 2 * float(apart @ apart)

    def solved(self, w: Floats) -> Floats:
        """Near the minimiser over K, from w: Newton's method.

        Extensions have a crease along the border of K. A point next to it is moved onto it, where
        a multiple of the normal is a slope. Over other domains projections do.
        """
        ball = self.ball
        if ball is not self.domain:
            return newton_over(self, w, self.radius)

        def whole(which: NDArray[np.intp], v: Floats) -> tuple[Floats, Floats, Floats]:
            at = ball.center + v[0]
            bend = self.hessian(at)
            assert bend is not None
            return np.array([self.value(at)]), self.gradient(at)[None], bend[None]

        def values(which: NDArray[np.intp], v: Floats) -> Floats:
            return np.array([self.value(ball.center + v[0])])

        def finished(which: NDArray[np.intp], v: Floats, slope: Floats) -> NDArray[np.bool_]:
            border = lengths(v) >= ball.size * (1 - 1e-12)
            # On the border a multiple of the normal may be added to the slope (Karush, Kuhn and
            # Tucker).
            outward = np.minimum(0.0, dots(slope, v)) * border / ball.size**2
            rest = lengths(slope - outward[:, None] * v) + self.rounding(ball.center + v[0])
            return np.asarray(rest <= self.ridge * self.radius / 2)

        v = (ball.project(w) - ball.center)[None].copy()
        newton_over_ball(whole, values, v, ball.size, _STEPS, finished)
        far = float(lengths(v)[0])
        if ball.size > far > ball.size * (1 - _CREASE):
            v *= ball.size / far
            newton_over_ball(whole, values, v, ball.size, _STEPS, finished)
        return np.asarray(ball.center + v[0])

    def gradient(self, w: Floats) -> Floats:
        return np.asarray(self._looked(w)[0] + self.ridge * (w - self.centre))

    def rounding(self, w: Floats) -> float:
        """Of doubles; and sqrt(lambda delta) for a delta-subgradient."""
        return self._floating(float(np.linalg.norm(w))) + math.sqrt(self.ridge * self._looked(w)[1])

    @property
    def least_radius(self) -> float:
        return self._floating(self.domain.radius) / self.ridge + _SHARE * self.radius

    def _floating(self, norm: float) -> float:
        far = norm + float(np.linalg.norm(self.centre))
        joined = gradient_rounding(self.n, self.d, self._slope, self.beta, self.ridge, far)
        return joined + UNIT * self.most_records * self._slope

    def _looked(self, w: Floats) -> tuple[Floats, float, float]:
        """(mean slope, delta, mean rise of the values above h_i) of the extensions at w."""
        key = w.tobytes()
        if self._known is None or self._known[0] != key:
            self._known = (key, *self._slopes(w))
        return self._known[1:]

    def _slopes(self, w: Floats) -> tuple[Floats, float, float]:
        sums, delta, rise, first = [], 0.0, 0.0, 0
        self.outside = 0
        for people in self._blocks:
            slopes = people.means(dense(self.loss.gradients(w, people.records)))
            far = np.flatnonzero(lengths(slopes - self.center) > self.gamma)
            if far.size:
                plain = slopes[far]
                slopes[far], errors = self._by_normal(w, plain)
                none = np.isinf(errors)
                if none.any():
                    outside, which = people.chosen(far[none]), first + far[none]
                    found = self._inner(w, outside, plain[none], self._ends[which])
                    slopes[far[none]], errors[none], values, self._ends[which] = found
                    rise += float((values - outside.values(self.loss, w)).sum())
                    self.outside += len(outside)
                delta += float(errors.sum())
            # Blocks of at most BLOCK persons; fsum joins them, as `mean_of_rows` does.
            sums.append(np.ones(len(slopes)) @ slopes)
            first += len(people)
        slope = np.array([math.fsum(each) for each in zip(*sums, strict=True)])
        return slope / self.n, delta / self.n, rise / self.n

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """Of the extensions at w, by how each u moves with w; on the border it moves along it."""
        self._looked(w)  # whose u are kept
        found, first = self.ridge * self.n * np.eye(self.d), 0
        for people in self._blocks:
            slopes = people.means(dense(self.loss.gradients(w, people.records)))
            far = lengths(slopes - self.center) > self.gamma
            far[far] = np.isinf(self._by_normal(w, slopes[far])[1])
            if not far.all():
                inside = people.chosen(~far)
                found += inside.bends(self.loss, np.tile(w, (len(inside), 1))).sum(axis=0)
            if far.any():
                found += self._bent(w, people.chosen(far), self._ends[first:][: len(people)][far])
            first += len(people)
        return found / self.n

    def _bent(self, w: Floats, people: People, ends: Floats) -> Floats:
        """Sum of the second derivatives of extensions with these u."""
        apart, v = w - ends, ends - self.ball.center
        far = np.maximum(lengths(apart), 1e-300)[:, None]
        pull = _across(apart / far) * (self.gamma / far)[:, :, None]
        slopes = people.slopes(self.loss, ends) - self.center - self.gamma * apart / far
        border = lengths(v) >= self.ball.size * (1 - 1e-12)
        more = np.where(border, np.maximum(0.0, -dots(slopes, v)) / self.ball.size**2, 0.0)
        stiff = people.bends(self.loss, ends) + pull + more[:, None, None] * np.eye(self.d)
        # u leaves the border for nothing: across it the problem is made a million times as stiff.
        wall = border * (1e6 * np.trace(stiff, axis1=1, axis2=2) / self.ball.size**2)
        stiff += wall[:, None, None] * v[:, :, None] * v[:, None]
        stiff += 1e-12 * np.trace(stiff, axis1=1, axis2=2)[:, None, None] * np.eye(self.d)
        # C - C A^-1 C, by how the best u follows w (implicit function theorem).
        return np.asarray((pull - pull @ np.linalg.solve(stiff, pull)).sum(axis=0))

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
        # The least t with ||offset + t n|| <= gamma is the lower root of a square equation.
        along = offsets @ outward
        across = along * along - dots(offsets, offsets) + self.gamma**2
        multiples = -along - np.sqrt(np.maximum(across, 0.0))
        # t <n, z - w> <= t (size - ||w||) for every z of K; 0 where w is on the border.
        errors = multiples * max(0.0, self.ball.size - length)
        none = (across < 0) | (multiples < 0) | (errors > self._target)
        errors[none] = math.inf
        return slopes + multiples[:, None] * outward, errors

    def _inner(
        self, w: Floats, people: People, slopes: Floats, start: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """(slopes, their errors delta, values, u) of extensions, by Newton's method for each u.

        p = c + gamma z/||z||, with z = w - u, is a slope of the extension at w up to delta: h is
        convex, so it is above its tangent at u, whose least value over K is known.
        """
        c, gamma, size, ball = self.center, self.gamma, self.ball.size, self.ball.center
        held: dict[bytes, People] = {}

        def those(which: NDArray[np.intp]) -> People:
            key = which.tobytes()
            if key not in held:
                held.clear()
                held[key] = people if len(which) == len(people) else people.chosen(which)
            return held[key]

        def values(which: NDArray[np.intp], v: Floats) -> Floats:
            apart = w - ball - v
            return those(which).values(self.loss, ball + v) + apart @ c + gamma * lengths(apart)

        def pulled(apart: Floats) -> Floats:
            return apart / np.maximum(lengths(apart), 1e-300)[:, None]

        def ask(which: NDArray[np.intp], v: Floats) -> tuple[Floats, Floats, Floats]:
            chosen, apart = those(which), w - ball - v
            away, far = pulled(apart), np.maximum(lengths(apart), 1e-300)
            slope = chosen.slopes(self.loss, ball + v) - c - gamma * away
            bends = chosen.bends(self.loss, ball + v)
            bends += _across(away) * (gamma / far)[:, None, None]
            return values(which, v), slope, bends

        def errors(v: Floats, slope: Floats) -> Floats:
            """The tangent of h - <p, .> at u falls by no more over K."""
            return np.asarray(np.maximum(0.0, dots(slope, v) + size * lengths(slope)))

        def finished(which: NDArray[np.intp], v: Floats, slope: Floats) -> NDArray[np.bool_]:
            return errors(v, slope) <= self._target

        everybody = np.arange(len(people))
        v = self._begun(values, w - ball, slopes - c, start - ball)
        newton_over_ball(ask, values, v, size, _STEPS, finished)
        apart = w - ball - v
        slope = people.slopes(self.loss, ball + v) - c - gamma * pulled(apart)
        error, value = errors(v, slope), values(everybody, v)
        return c + gamma * pulled(apart), error + self._hidden, value, ball + v

    def _begun(self, values: Values, w: Floats, offsets: Floats, start: Floats) -> Floats:
        """A point for each person that is better than w: the last one, or one down its slope."""
        everybody = np.arange(len(start))
        at_w = values(everybody, np.tile(w, (len(start), 1)))
        length = float(np.linalg.norm(w))
        if length >= self.ball.size * (1 - 1e-9):  # along the border
            outward = w / length
            offsets = offsets + np.maximum(0.0, -(offsets @ outward))[:, None] * outward
        # Any u better than w will do to begin with; 54 halvings of the diameter end below a
        # rounding.
        down = -offsets / np.maximum(lengths(offsets), 1e-300)[:, None]
        found, step = np.where(np.isnan(start), w, start), 2 * self.ball.size
        poor = ~(values(everybody, found) < at_w)
        for _ in range(_HALVINGS):
            if not poor.any():
                break
            tried = w + step * down[poor]
            tried *= np.minimum(1.0, self.ball.size / np.maximum(lengths(tried), 1e-300))[:, None]
            found[poor] = tried
            which = np.flatnonzero(poor)
            poor[which] = ~(values(which, tried) < at_w[which])
            step /= 2
        return found


def _across(directions: Floats) -> Floats:
    """I - e e' of each unit vector."""
    return np.asarray(np.eye(directions.shape[1]) - directions[:, :, None] * directions[:, None])


def valid_records(loss: Loss, d: int, rows: Floats, domain: Domain | None = None) -> Floats:
    """Records for which the loss's constants hold; others become zeros, where h is flat or round.

    Args:
        loss: with a bound of its features or points.
        d: parameters.
        rows: (records, columns), of anything.
        domain: where values are compared; records whose loss there leaves them no digits are not
            valid either.
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
    if domain is not None:
        most = most_loss(loss.lipschitz(domain.radius), domain.diameter)
        large = ~(np.abs(loss.values(domain.center, kept)) <= most)
        kept[large] = _neutral(loss, kept.shape[1])
    return kept


def _neutral(loss: Loss, columns: int) -> Floats:
    """A fixed record that every loss takes: no features, and the label 1 if labels are classes."""
    row = np.zeros(columns)
    if getattr(loss, "classification", False):
        row[-1] = 1.0
    return row
