"""Manipulated inputs: users lie about their row or value, then follow the protocol.

Whatever they claim is clipped to the domain by the randomizer itself, so none of them counts for
more than an honest user could.
"""

import math

import numpy as np
import scipy

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.protocol.adversary import AttackContext, Coalition
from shuffle_sim.protocol.base import RoundSpec


class LabelFlip(Coalition):
    """The label in `column`, reflected about `about`: 0 for labels -1 and 1, 0.5 for 0 and 1."""

    def __init__(self, fraction: float, column: int = -1, about: float = 0.0) -> None:
        super().__init__(fraction)
        self.column = integer("column", column, -(2**31), 2**31)
        self.about = real("about", about, -math.inf, math.inf)

    def check(self, spec: RoundSpec, row: Floats) -> None:
        columns = np.atleast_1d(row).shape[-1]
        if not -columns <= self.column < columns:
            raise ParameterError("column", self.column, f"one of the {columns} columns of a row")

    def rows(self, context: AttackContext, rows: Floats, rng: np.random.Generator) -> Floats:
        if rows.dtype == object:  # ragged persons
            people = (self.rows(context, each, rng) for each in rows)
            return np.fromiter(people, object, len(rows))
        flipped = (rows[:, None] if rows.ndim == 1 else rows).copy()
        flipped[..., self.column] = 2 * self.about - flipped[..., self.column]
        return flipped.reshape(rows.shape)


class SignFlip(Coalition):
    """The value reflected about the middle of the domain: -x for vectors of a ball."""

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        return 2 * context.center(xs[0]) - xs


class Claim(Coalition):
    """The same `value` in every coordinate, whatever the own one: input poisoning of a bin."""

    def __init__(self, fraction: float, value: float = 0.0) -> None:
        super().__init__(fraction)
        self.value = real("value", value, -math.inf, math.inf)

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        return np.full_like(xs, self.value)


class Scaling(Coalition):
    """The value, `factor` times as far from the domain's middle (Bagdasaryan et al. 2020)."""

    def __init__(self, fraction: float, factor: float = 10.0) -> None:
        super().__init__(fraction)
        self.factor = real("factor", factor, -math.inf, math.inf, closed=(False, False))

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        center = context.center(xs[0])
        return center + self.factor * (xs - center)


class GaussianInput(Coalition):
    """Noise of standard deviation `std` about the middle of the domain in place of the value."""

    def __init__(self, fraction: float, std: float = 1.0) -> None:
        super().__init__(fraction)
        self.std = real("std", std, 0.0, math.inf, closed=(True, False))

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        return context.center(xs[0]) + self.std * rng.normal(size=xs.shape)


class Knowing(Coalition):
    """Attackers that compute their value from those of the coalition, or of the whole block."""

    def __init__(self, fraction: float, knows: str = "own") -> None:
        super().__init__(fraction)
        if knows not in ("own", "all"):
            raise ParameterError("knows", knows, "own or all")
        self.knows = knows

    def known(self, context: AttackContext, xs: Floats) -> Floats:
        """The values it knows."""
        return xs if self.knows == "own" else context.honest


class ALIE(Knowing):
    """A little is enough (Baruch, Baruch, Goldberg 2019): mean - z std of the known values.

    By default z = Phi^-1(0.5 / (1 - fraction)), their largest that still hides in the majority.
    """

    def __init__(self, fraction: float, z: float | None = None, knows: str = "own") -> None:
        super().__init__(fraction, knows)
        if z is None and self.fraction >= 0.5:
            raise ParameterError("z", z, "given where half of the users or more are corrupted")
        self.z = (
            # Their (n - m - s)/(n - m), with s = n/2 + 1 - m of n users to win and m corrupted.
            float(scipy.special.ndtri(0.5 / (1 - self.fraction)))
            if z is None
            else real("z", z, -math.inf, math.inf)
        )

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        known = self.known(context, xs)
        return np.broadcast_to(known.mean(axis=0) - self.z * known.std(axis=0), xs.shape)


class IPM(Knowing):
    """Inner-product manipulation (Xie, Koyejo, Gupta 2020): -scale times the known mean."""

    def __init__(self, fraction: float, scale: float = 1.0, knows: str = "own") -> None:
        super().__init__(fraction, knows)
        self.scale = real("scale", scale, -math.inf, math.inf, closed=(False, False))

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        center = context.center(xs[0])
        return np.broadcast_to(
            center - self.scale * (self.known(context, xs).mean(axis=0) - center), xs.shape
        )


class Mimic(Knowing):
    """All send the value of the first user they know (Karimireddy, He, Jaggi 2022)."""

    def __init__(self, fraction: float, knows: str = "all") -> None:
        super().__init__(fraction, knows)

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        return np.broadcast_to(self.known(context, xs)[0], xs.shape)
