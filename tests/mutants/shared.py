"""Defects of what is drawn together or apart: words, norms of rows, streams of users."""

from dataclasses import fields
from typing import Any

import numpy as np

from protocols import SparseVectorSum
from protocols.counts.pollution import Categories
from protocols.counts.randomizer import Kind
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.rotation import rotated
from shuffle_sim.protocol.one_round import OneRound
from shuffle_sim.roles import corrupted
from shuffle_sim.sampling import compiled, compiled_rows
from shuffle_sim.sampling.exact import FRACTION, poisson
from shuffle_sim.sampling.randomness import Role


class Batches:
    """Batches of noise that a function draws: makers, words and sizes."""

    def __init__(self, drawn):
        self.drawn = drawn

    def counted(self, users, rng):
        return ((words, sizes) for _, words, sizes in self.drawn(users, rng))


class AlsoInTheNextBin(Categories):
    """Half as many batches, each in the next bin, too: differences of bins have less noise."""

    def kinds(self, users, rng):
        return [Batches(self._both)]

    def _both(self, users, rng):
        size = self.sizes[0]
        count = poisson(self._number(0, users) // 2, rng)
        makers = rng.integers(users, size=2 * count)
        places = rng.integers(size, size=count)
        sizes = rng.integers(1, self.batch + 1, size=count)
        yield makers, np.concatenate([places, (places + 1) % size]), np.tile(sizes, 2)


def pairs() -> Any:
    return SparseVectorSum(n=200, d=16, bucket=2, a=0.2, delta=1e-2)


class OneCoinForAllBuckets(BucketRandomizer):
    """A user has one coin for its signs of all buckets."""

    def reports(self, xs, rng):
        starts = np.arange(0, self.sent, self.bucket)
        places = starts + rng.integers(self.bucket, size=(len(xs), self.buckets))
        v = self._of_turned(np.take_along_axis(rotated(xs, self.rotation), places, axis=1))
        plus = rng.random((len(xs), 1)) < 0.5 + v
        return self.singly((2 * places + plus).ravel(), np.full(len(xs), self.buckets))


def wide() -> Any:
    return SparseVectorSum(n=200, d=64, bucket=16, a=0.2, delta=1e-2)


class OneCoinForWideBuckets(OneCoinForAllBuckets):
    """The same, where each word of a bucket is seldom sent."""


class NeighboursComplement(BucketRandomizer):
    """Of two users one has the other signs of the other's coins."""

    def reports(self, xs, rng):
        starts = np.arange(0, self.sent, self.bucket)
        places = starts + rng.integers(self.bucket, size=(len(xs), self.buckets))
        v = self._of_turned(np.take_along_axis(rotated(xs, self.rotation), places, axis=1))
        coins = rng.random(places.shape)
        coins[1::2] = 1 - coins[: len(coins) // 2 * 2 : 2]
        plus = coins < 0.5 + v
        return self.singly((2 * places + plus).ravel(), np.full(len(xs), self.buckets))


WIDE = OneCoinForWideBuckets, NeighboursComplement


class Sure(Kind):
    """As many batches as there are on average."""

    def drawn(self, users, rng):
        count = self.number >> FRACTION
        makers, places = (rng.integers(high, size=count) for high in (users, self.places))
        sizes = self.sizes(count)
        for first, step in self.words:
            yield makers, first + step * places, sizes


class SureNumberOfBatches(Categories):
    """All bins together have a number of batches that is no secret."""

    def kinds(self, users, rng):
        for kind in super().kinds(users, rng):
            yield Sure(**{each.name: getattr(kind, each.name) for each in fields(kind)})


def first_column_has_no_square(patch: Any) -> None:
    """The compiled norms of rows leave out an odd first column."""
    true = compiled.margins_and_norms

    def less(columns, theta, margins, norms):
        true(columns, theta, margins, norms)
        norms -= columns[0] ** 2

    patch.setattr(compiled, "margins_and_norms", less)


def last_rows_have_no_square(patch: Any) -> None:
    """Rows beyond the last eight come with norms that leave out a column."""
    true = compiled_rows.columns_of

    def less(rows, out, squares):
        true(rows, out, squares)
        last = len(rows) // 8 * 8
        squares[last:] -= rows[last:, -1] ** 2

    patch.setattr(compiled_rows, "columns_of", less)


def of_users(name: str) -> Any:
    """What draws from a role's stream draws from that of honest users."""

    class Roles:
        """The roles, one of them another."""

        def __getattr__(self, asked: str) -> Role:
            found: Role = getattr(Role, "USERS" if asked == name else asked)
            return found

    return lambda patch: patch.setattr(corrupted, "Role", Roles())


def no_floor(patch: Any) -> None:
    """Views of fewer reports than are counted on are released."""
    patch.setattr(OneRound, "minimum", property(lambda _: 1))
