"""Exact draws of density ~ e^(-k F) on a ball or a box of few parameters, F any convex risk.

No ridge and no smoothness is needed. The domain is covered by boxes. In each, F lies above a
tangent, at the domain's point next to the middle. A proposal is drawn from e^(-k tangent), box by
box, and accepted with e^(-k (F - tangent)). Boxes only decide on the speed. Docs: theory, Output
perturbation, "Exponential mechanism without a ridge".
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protocols.erm.balls import dots
from protocols.problems.domains import Box, Domain, L2Ball
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError

MOST_PARAMETERS = 3
"""Boxes grow with the power d."""
MOST_SHARP = {1: 1e8, 2: 1e6, 3: 5e4}
"""epsilon n, twice k times slope times diameter: so far a test finds many proposals accepted."""
_MOST_BOXES, _ROUNDS = 1 << 18, 2000
_WORTH, _LOOSE = 1e-3, 1.0
"""A box is split from this share of all proposals on, if k (F - tangent) exceeds that in it."""
_PROPOSALS, _ONE_BY_ONE, _NUMBERS = 256, 8, 1 << 22
_UNIFORM = 1e-9  # slopes over a box below which it is drawn from evenly; less than roundings


@dataclass(frozen=True, eq=False)
class RowsMean:
    """F = mean_i l(w; z_i) + (ridge/2) ||w||^2 over a domain, at many points at once.

    Values are above that in the domain's middle, row by row: so one row's large loss takes no
    digits from the others.

    Attributes:
        loss: convex on the domain.
        rows: (n, columns).
        ridge: at least 0.
        domain: an `L2Ball` or a `Box`.
    """

    loss: Loss
    rows: Floats
    ridge: float
    domain: Domain

    @cached_property
    def covers(self) -> "dict[float, Boxes]":
        """Boxes of the domain by k, as far as they are known."""
        return {}

    @property
    def d(self) -> int:
        """Parameters."""
        return self.domain.d

    @property
    def strong_convexity(self) -> float:
        """The ridge alone: what the loss adds is not asked for."""
        return self.ridge

    def value(self, w: Floats) -> float:
        """F at w, (d,), but for a constant."""
        return float(self.at(w[None])[0][0])

    def at(self, points: Floats) -> tuple[Floats, Floats]:
        """(values (points,), subgradients (points, d))."""
        if isinstance(self.loss, LinearLoss):
            x, y = self.rows[:, :-1], self.rows[:, -1:]
            margins, middle = x @ points.T, (x @ self.domain.center)[:, None]
            values = (self.loss.value(margins, y) - self.loss.value(middle, y)).mean(axis=0)
            slopes = self.loss.derivative(margins, y).T @ x / len(x)
        else:
            middle = self.loss.values(self.domain.center, self.rows)
            values = [(self.loss.values(each, self.rows) - middle).mean() for each in points]
            means = [dense(self.loss.gradients(each, self.rows)).mean(axis=0) for each in points]
            slopes = np.array(means)
        ridge = self.ridge / 2 * np.einsum("ij,ij->i", points, points)
        return np.asarray(np.array(values) + ridge), np.asarray(slopes + self.ridge * points)

    def gradient(self, w: Floats) -> Floats:
        """A subgradient of F at w, (d,)."""
        return np.asarray(self.at(w[None])[1][0])

    def above(self, points: Floats, bases: Floats) -> Floats:
        """F at each point less the tangent at its base; row by row, where no digits are lost."""
        moved = points - bases
        ridge = self.ridge / 2 * np.einsum("ij,ij->i", moved, moved)
        if isinstance(self.loss, LinearLoss):
            x, y = self.rows[:, :-1], self.rows[:, -1:]
            before, change = x @ bases.T, x @ moved.T
            rises = self.loss.value(before + change, y) - self.loss.value(before, y)
            rises -= self.loss.derivative(before, y) * change
            # A convex function is above its tangents: what is below 0 was rounded.
            return np.asarray(np.maximum(rises, 0.0).mean(axis=0) + ridge)
        found = []
        for point, base, step in zip(points, bases, moved, strict=True):
            rise = self.loss.values(point, self.rows) - self.loss.values(base, self.rows)
            slopes = dense(self.loss.gradients(base, self.rows))
            found.append(np.maximum(rise - slopes @ step, 0.0).mean())
        return np.asarray(np.array(found) + ridge)

    @property
    def batch(self) -> int:
        """Points that are looked at together."""
        if not isinstance(self.loss, LinearLoss):
            return _ONE_BY_ONE
        return max(1, min(_PROPOSALS, _NUMBERS // max(1, len(self.rows))))


@dataclass
class Boxes:
    """Boxes with a tangent each, and the logarithm of its weight: the integral of e^(-k tangent).

    Attributes:
        middles, halves: of the boxes, (boxes, d).
        bases, values, slopes: the tangents: where, F there, and its subgradient.
        weights: (boxes,).
        open: whether a split may pay.
    """

    middles: Floats
    halves: Floats
    bases: Floats
    values: Floats
    slopes: Floats
    weights: Floats
    open: NDArray[np.bool_]

    @property
    def shares(self) -> Floats:
        """Of all proposals, (boxes,)."""
        found = np.exp(self.weights - self.weights.max())
        return np.asarray(found / found.sum())


def draw_in_boxes(rng: np.random.Generator, risk: RowsMean, k: float) -> Floats:
    """One point of density ~ e^(-k F) on the domain, exactly.

    There is no cap on tries: a cap would tell. The time depends on the data.
    """
    if k not in risk.covers:  # audits draw from one density many times
        risk.covers[k] = covered(risk, k)
    return accepted(rng, risk, k, risk.covers[k])


def accepted(rng: np.random.Generator, risk: RowsMean, k: float, boxes: Boxes) -> Floats:
    """The first proposal that is accepted."""
    shares = boxes.shares
    while True:
        which = rng.choice(len(shares), size=risk.batch, p=shares)
        steep, half = k * boxes.slopes[which], boxes.halves[which]
        points = boxes.middles[which] + _tilted(rng.random(steep.shape), steep, half)
        # Drawn for all tries at once: the first accepted has the law of tries one by one.
        uniforms = np.log(rng.random(len(which)))
        inside = _inside(risk.domain, points)
        if inside.any():
            excess = k * risk.above(points[inside], boxes.bases[which[inside]])
            taken = np.flatnonzero(uniforms[inside] < -excess)
            if taken.size:
                return np.array(points[inside][taken[0]])


def _tilted(u: Floats, steep: Floats, half: Floats) -> Floats:
    """The u-quantile of density ~ e^(-steep t) on [-half, half]."""
    size = np.abs(steep)
    flat = size * half < _UNIFORM
    safe = np.where(flat, 1.0, size)
    # The inverse of (1 - e^(-s (t + h)))/(1 - e^(-2 s h)) by the functions that keep small numbers'
    # digits.
    far = -np.log1p(u * np.expm1(-2 * safe * half)) / safe - half
    return np.asarray(np.where(flat, (2 * u - 1) * half, np.where(steep < 0, -far, far)))


def covered(risk: RowsMean, k: float) -> Boxes:
    """The domain's box, split where proposals go while many of them are refused."""
    domain = risk.domain
    if isinstance(domain, Box):
        middle, half = domain.center, (domain.upper - domain.lower) / 2
    else:
        assert isinstance(domain, L2Ball)
        middle, half = domain.center, np.full(domain.d, domain.size)
    boxes = _weighed(risk, k, middle[None], half[None], None)
    ways = np.stack(np.meshgrid(*[[-1.0, 1.0]] * domain.d), axis=-1).reshape(-1, domain.d)
    for _ in range(_ROUNDS):
        split = boxes.open & (boxes.shares > _WORTH)
        if not split.any() or len(boxes.weights) > _MOST_BOXES:
            break
        before = Boxes(
            *(np.repeat(each[split], len(ways), axis=0) for each in vars(boxes).values())
        )
        halves = before.halves / 2
        middles = before.middles + np.tile(ways, (int(split.sum()), 1)) * halves
        parts = _weighed(risk, k, middles, halves, before)
        kept = [each[~split] for each in vars(boxes).values()]
        both = zip(kept, vars(parts).values(), strict=True)
        boxes = Boxes(*(np.concatenate(each) for each in both))
        some = boxes.weights > -np.inf
        boxes = Boxes(*(each[some] for each in vars(boxes).values()))
    return boxes


def _crossing(domain: Domain, boxes: Boxes) -> NDArray[np.bool_]:
    """Whether a part of each box lies outside: proposals there are lost."""
    if isinstance(domain, Box):
        return np.zeros(len(boxes.weights), bool)
    assert isinstance(domain, L2Ball)
    far = np.abs(boxes.middles - domain.center) + boxes.halves
    return np.asarray(np.linalg.norm(far, axis=1) > domain.size)


def _weighed(
    risk: RowsMean, k: float, middles: Floats, halves: Floats, before: Boxes | None
) -> Boxes:
    """Boxes with their tangents, or those of the boxes before where these leave fewer proposals.

    So a split never makes proposals more. Boxes outside a ball have no weight.
    """
    bases = np.array([risk.domain.project(each) for each in middles])
    parts = range(0, len(bases), risk.batch)
    found = [risk.at(bases[low : low + risk.batch]) for low in parts]
    values, slopes = (np.concatenate(each) for each in zip(*found, strict=True))
    weights = _integrals(k, halves, slopes, values + dots(slopes, middles - bases))
    if before is not None:
        heights = before.values + dots(before.slopes, middles - before.bases)
        kept = _integrals(k, halves, before.slopes, heights)
        # A tangent of the larger box is one of its part, too: the one of less weight wastes fewer
        # proposals.
        better = kept < weights
        weights = np.minimum(kept, weights)
        bases[better], values[better] = before.bases[better], before.values[better]
        slopes[better] = before.slopes[better]
    if isinstance(risk.domain, L2Ball):
        # To the box's point nearest to the ball's centre.
        gaps = np.maximum(np.abs(middles - risk.domain.center) - halves, 0.0)
        weights[np.linalg.norm(gaps, axis=1) > risk.domain.size] = -np.inf
    boxes = Boxes(middles, halves, bases, values, slopes, weights, np.ones(len(middles), bool))
    boxes.open = _crossing(risk.domain, boxes) | (k * _highest(risk, boxes) > _LOOSE)
    return boxes


def _integrals(k: float, halves: Floats, slopes: Floats, heights: Floats) -> Floats:
    """Logarithms of the integrals of e^(-k tangent), by the tangents' slopes and middle heights."""
    across = np.abs(k * slopes * halves)
    small = across < _UNIFORM
    safe = np.where(small, 1.0, across)
    # sinh(x)/x = e^x (1 - e^(-2x))/(2x), which does not overflow in the logarithm.
    tilt = np.where(small, 0.0, safe + np.log(-np.expm1(-2 * safe) / (2 * safe)))
    return np.asarray(-k * heights + (tilt + np.log(2 * halves)).sum(axis=1))


def _highest(risk: RowsMean, boxes: Boxes) -> Floats:
    """How far F is above the tangent at the corners, where a convex function is highest."""
    most = np.zeros(len(boxes.weights))
    for way in np.ndindex(*[2] * boxes.middles.shape[1]):
        corners = boxes.middles + (2 * np.array(way) - 1) * boxes.halves
        corners = np.array([risk.domain.project(each) for each in corners])
        for low in range(0, len(corners), risk.batch):
            part = slice(low, low + risk.batch)
            most[part] = np.maximum(most[part], risk.above(corners[part], boxes.bases[part]))
    return most


def _inside(domain: Domain, points: Floats) -> NDArray[np.bool_]:
    if isinstance(domain, L2Ball):
        return np.asarray(np.linalg.norm(points - domain.center, axis=1) <= domain.size)
    return np.ones(len(points), bool)  # a box is covered by parts of itself


def demand_gentle(epsilon_n: float, d: int) -> None:
    """Refuse a density so sharp that a draw may take for ever.

    Raises:
        ParameterError: naming epsilon n.
    """
    if epsilon_n > MOST_SHARP[d]:
        allowed = f"at most {MOST_SHARP[d]:g} in {d} parameters, or a smooth loss and a ridge"
        raise ParameterError("epsilon * n", epsilon_n, allowed)


def demand_boxes(domain: Domain) -> None:
    """Refuse what is not covered by few boxes.

    Raises:
        ParameterError: naming what is.
    """
    if domain.d > MOST_PARAMETERS or not isinstance(domain, L2Ball | Box):
        allowed = f"an L2Ball or a Box of at most {MOST_PARAMETERS} parameters; or give a ridge"
        raise ParameterError("domain", f"{type(domain).__name__} of {domain.d}", allowed)
