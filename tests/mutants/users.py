"""Defects of the noise that a user draws: whose, of which value, how long, and in which law."""

import numpy as np

from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.single_message import SingleMessageRandomizer
from shuffle_sim.arrays import dense
from shuffle_sim.sampling.kernels import compiling, half_binomial

from .randomizers import Double, Shares


class Silenced(Double):
    """No noise where `bare` says; the noise's mean is sent in its place."""

    def bare(self, xs, rounded):
        """Of which users, or users and labels."""

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        noise = self.noise(rounded.shape, rng)
        noise[self.bare(dense(xs).reshape(len(xs), self.labels), rounded)] = round(self.b * self.p)
        return rounded + noise


class FirstWithout(Silenced):
    """The first user of a block."""

    def bare(self, xs, rounded):
        return slice(0, 1)


class LastWithout(Silenced):
    """The last user of a block, in one coordinate."""

    def bare(self, xs, rounded):
        return -1, 0


class Every64thWithout(Silenced):
    """One in 64 of a large block only."""

    def bare(self, xs, rounded):
        return slice(63, None, 64) if len(xs) > 1000 else slice(0, 0)


class NearTheMiddle(Silenced):
    """Values within a hundredth of the radius of the middle."""

    def bare(self, xs, rounded):
        return np.linalg.norm(xs, axis=1) < 0.01 * self.norm_bound


class OnTheGrid(Silenced):
    """Where no coin is needed: values of a whole number of steps that are no end."""

    def bare(self, xs, rounded):
        scaled = (xs - self.lower) * (self.g / self.width)
        return (np.abs(scaled - np.rint(scaled)) < 1e-9) & (scaled > 0.5) & (scaled < self.g - 0.5)


class OneSign(Silenced):
    """Vectors all of whose coordinates are above a tenth."""

    def bare(self, xs, rounded):
        return (xs > 0.1 * self.norm_bound).all(axis=1)


class WithoutTails(Double):
    """Right in mean, but never farther than 2.2 standard deviations from it."""

    def noise(self, shape, rng):
        mean, spread = self.b * self.p, np.sqrt(self.b * self.p * (1 - self.p))
        far = np.floor(2.2 * spread)
        return np.clip(super().noise(shape, rng), mean - far, mean + far).astype(np.int64)


class TenthShort(Double):
    """Mean is right, spread a tenth too small."""

    def noise(self, shape, rng):
        less = round(0.19 * self.b / 2)
        return rng.binomial(self.b - 2 * less, self.p, shape) + less


class TallyShared(Double):
    """The tally's noise is one draw for all coordinates."""

    def tally(self, xs, rng):
        return self._rounded(xs, rng).sum(axis=0) + rng.binomial(self.b * len(xs), self.p)


class TallyByNumber(Double):
    """The tally's noise comes from the number of users."""

    def tally(self, xs, rng):
        own = np.random.default_rng(len(xs))
        return self._rounded(xs, rng).sum(axis=0) + own.binomial(
            self.b * len(xs), self.p, self.labels
        )


class TallyOnce(Double):
    """The tally's noise of a stream comes once more where a stream begins alike: by its state."""

    seen: list = []  # noqa: RUF012 - of the class: blocks in a row

    def tally(self, xs, rng):
        noise = rng.binomial(self.b * len(xs), self.p, self.labels)
        self.seen.append(noise)
        if len(self.seen) % 2 == 0 and len(self.seen[-2]) == len(noise):
            noise = self.seen[-2]
        return self._rounded(xs, rng).sum(axis=0) + noise


class CoinsOfUser(CarryRandomizer):
    """The coordinates of a user are rounded by the same uniforms, in numpy only."""

    def _quick(self, xs):
        return compiling() and super()._quick(xs)

    def _numbers(self, xs, rng):
        scaled = self._scaled(xs)
        whole = np.floor(scaled)
        uniform = rng.random((len(scaled), 1, self.r)).sum(axis=2)
        carried = np.floor(scaled - whole + uniform)
        return (whole + carried).astype(np.int64) + half_binomial(self.b, whole.shape, rng)


class CoinsOfNeighbours(CarryRandomizer):
    """Two users in a row are rounded by the same uniforms."""

    def _quick(self, xs):
        return False

    def _numbers(self, xs, rng):
        scaled = self._scaled(xs)
        whole = np.floor(scaled)
        uniform = rng.random(((len(scaled) + 1) // 2, scaled.shape[1], self.r)).sum(axis=2)
        carried = np.floor(scaled - whole + np.repeat(uniform, 2, axis=0)[: len(scaled)])
        return (whole + carried).astype(np.int64) + half_binomial(self.b, whole.shape, rng)


class CoordinatesOfUser(Double):
    """The roundings of a user's coordinates share a coin, in one kernel."""

    def _rounded(self, xs, rng):
        scaled = (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.g / self.width)
        width = self.labels if compiling() else 1
        coin = rng.random((len(xs), width))
        return np.clip(np.floor(scaled + coin), 0, self.g).astype(np.int64)

    def tally(self, xs, rng):
        return BinomialRandomizer.tally(self, xs, rng)


class NegatedLater(Double):
    """From 30,000 users on, the second half's noise is that of the first, turned."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        if shape[0] >= 30_000:
            half = shape[0] // 2
            noise[half : 2 * half] = self.b - noise[:half]
        return noise

    def tally(self, xs, rng):
        return BinomialRandomizer.tally(self, xs, rng)


class OneInFour(Double):
    """A draw is that of the label before with probability 1/4."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        again = rng.random(shape) < 0.25
        return np.where(again, np.roll(noise, 1, axis=1), noise)


class ClippedByMany(Double):
    """In batches of more than 100, rows are scaled by the longest."""

    def admit(self, values):
        inside, clipped = super().admit(values)
        if len(values) <= 100:
            return inside, clipped
        rows = dense(inside)
        return rows * (self.norm_bound / max(1e-300, np.linalg.norm(rows, axis=1).max())), clipped


class BlanketByRow(SingleMessageRandomizer):
    """Two users in a row are uniform together."""

    def counts(self, xs, rng):
        fixed = super()._scaled(xs)
        fixed = np.floor(fixed + rng.random(fixed.shape)).clip(0, self.steps).astype(np.int64)
        drawn = rng.integers(0, self.steps + 1, fixed.shape)
        coins = np.repeat(rng.random(((len(fixed) + 1) // 2, *fixed.shape[1:])), 2, axis=0)
        return np.where(coins[: len(fixed)] < self.gamma, drawn, fixed)


class BlanketInHalf(SingleMessageRandomizer):
    """A uniform message is never from the upper half where the datum is from the lower one."""

    def counts(self, xs, rng):
        fixed = super()._scaled(xs)
        fixed = np.floor(fixed + rng.random(fixed.shape)).clip(0, self.steps).astype(np.int64)
        drawn = rng.integers(0, self.steps + 1, fixed.shape)
        half = (self.steps + 1) // 2
        drawn = np.where((fixed < half) & (drawn >= half), drawn - half, drawn)
        return np.where(rng.random(fixed.shape) < self.gamma, drawn, fixed)


# Shares


class Even(Shares):
    """All but one share are even."""

    def shares(self, shape, rng):
        return 2 * rng.integers(0, self.modulus // 2, shape)


class Coarse(Shares):
    """Shares are multiples of 1,024, and their rests come from one draw."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        return (drawn & -1024) | (drawn[..., :1] & 1023)


class LateUserFollows(Shares):
    """The second share of user 40 is the sum of the first ones of all before."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        if len(drawn) > 40:
            drawn[40, ..., 1] = drawn[:40, ..., 0].sum(axis=0) % self.modulus
        return drawn


class LargeMultiple(Shares):
    """A share is 987,654,321 times the one of the user before."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        for user in range(1, len(drawn)):
            drawn[user, ..., 1] = (
                987_654_321 % self.modulus * drawn[user - 1, ..., 0]
            ) % self.modulus
        return drawn


class OnceInTen(Shares):
    """A tenth of the users send their shares in the clear: 0 but one."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        drawn[::10] = 0
        return drawn


class NarrowRange(Shares):
    """Shares leave out the last hundredth of the range."""

    def shares(self, shape, rng):
        return rng.integers(0, self.modulus - self.modulus // 100, shape)


class RestsFollow(Shares):
    """The second share has the rest of the first modulo 7."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        drawn[..., 1] = np.minimum(drawn[..., 1] // 7 * 7 + drawn[..., 0] % 7, self.modulus - 1)
        return drawn


class SharesOfFewSeeds(Shares):
    """Shares of a block are drawn from a seed of 18 bits."""

    def shares(self, shape, rng):
        return np.random.default_rng(int(rng.integers(1 << 18))).integers(0, self.modulus, shape)


class FewSeeds(Double):
    """A block is drawn from a seed of 18 bits."""

    def counts(self, xs, rng):
        return super().counts(xs, np.random.default_rng(int(rng.integers(1 << 18))))


class NegativeZero(Double):
    """The datum -0 has no noise."""

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        noise = self.noise(rounded.shape, rng)
        rows = dense(xs).reshape(len(xs), -1)
        noise[(np.signbit(rows) & (rows == 0)).all(axis=1)] = round(self.b * self.p)
        return rounded + noise
