"""A secret coordinate in each bucket: the randomizer (docs/theory/buckets.md)."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from protocols.sums.encoding import Box, SumRandomizer
from protocols.sums.rotation import rotated, unrotated
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds.clipping import padded
from shuffle_sim.privacy.bucket_sum import BucketSumEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

_ROTATED = 1 << 21  # coordinates that are rotated at a time: they stay in the cache, nearly


@dataclass(frozen=True)
class BucketRandomizer(SumRandomizer):
    """One word for each bucket of a rotated vector: a uniform coordinate of it, and a noisy sign.

    Word 2 j + 1 says plus of coordinate j, and 2 j minus.

    Attributes:
        coordinates: d.
        bucket: B coordinates of a bucket, a power of two.
        a: a sign is right with probability 1/2 + a at most; below 1/2.
        norm_bound: l2 bound of the vector, to which longer ones are scaled.
        span: rotated coordinates are clipped to this part of it.
        rotation: public seed of the random rotation.
    """

    view = "counts"
    scales = True
    moves = ("norm_bound",)

    coordinates: int
    bucket: int
    a: float
    norm_bound: float
    span: float
    rotation: int

    def __post_init__(self) -> None:
        self._box.check()
        integer("rotation", self.rotation, 0, 2**63 - 1)
        integer("d", self.coordinates, 1, 2**30)
        if self.sent % integer("bucket", self.bucket):
            raise ParameterError("bucket", self.bucket, f"a power of two up to {self.sent}")
        self._event(1)

    @property
    def sent(self) -> int:
        """Coordinates of the rotated vector."""
        return padded(self.coordinates)

    @property
    def buckets(self) -> int:
        """s: messages of a user."""
        return self.sent // self.bucket

    @property
    def worked(self) -> int:
        """Every coordinate is rotated."""
        return self.sent

    @cached_property
    def alphabet(self) -> Alphabet:
        return Alphabet(1, 2 * self.sent)

    @property
    def per_label(self) -> int:
        return self.buckets

    @property
    def label_bits(self) -> int:
        return (self.buckets - 1).bit_length()

    @property
    def _box(self) -> Box:
        return Box(self.coordinates, -self.norm_bound, 2 * self.norm_bound, self.norm_bound)

    def admit(self, values: Values) -> tuple[Values, int]:
        return self._box.admit(values)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        words = []
        row = self._biases(np.atleast_2d(x))[0]
        for first in range(0, self.sent, self.bucket):
            place = first + int(rng.integers(self.bucket))
            # Fresh and secret for each bucket; the coin is exact in integers: 52 bits are a half,
            # and |v| is rounded down to 2^-53 ("The protocol").
            units = int(abs(row[place]) * 2**53)
            right = int(rng.integers(2**53)) < 2**52 + units
            words.append(2 * place + int(right == (row[place] >= 0)))
        # Each message on its own: what one user says of two buckets must not travel together.
        return self.singly(np.array(words))

    def _biases(self, rows: Floats) -> Floats:
        """v of each coordinate, shape (users, sent)."""
        return self._of_turned(rotated(rows, self.rotation))

    def _of_turned(self, turned: Floats) -> Floats:
        most = self.span * self.norm_bound
        return np.clip(turned, -most, most) * (self.a / most)

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        step = max(1, _ROTATED // self.sent)
        words = np.empty((len(xs), self.buckets), np.int64)
        starts = np.arange(0, self.sent, self.bucket)
        for first in range(0, len(xs), step):
            piece = rotated(xs[first : first + step], self.rotation)
            shape = len(piece), self.buckets
            places = starts + rng.integers(self.bucket, size=shape)
            v = self._of_turned(np.take_along_axis(piece, places, axis=1))
            units = (np.abs(v) * 2.0**53).astype(np.int64)
            # The top 53 bits of a word: the coin of `randomize`.
            coins = (rng.bit_generator.random_raw(v.size) >> 11).astype(np.int64).reshape(shape)
            words[first : first + step] = 2 * places + ((coins < 2**52 + units) == (v >= 0))
        return self.singly(words.reshape(-1), np.full(len(xs), self.buckets))

    def proper(self, messages: Messages) -> bool:
        """Whether each user sends one message for each bucket, in their order."""
        if messages.each is None or (messages.each != self.buckets).any():
            return False
        buckets = messages.words.reshape(-1, self.buckets) // np.uint64(2 * self.bucket)
        return bool((buckets == np.arange(self.buckets, dtype=np.uint64)).all())

    def extreme(self, *, highest: bool) -> Messages:
        """The same sign of the first coordinate of each bucket."""
        return self.singly(np.arange(0, 2 * self.sent, 2 * self.bucket) + int(highest))

    def estimate(self, tally: Tally) -> Floats:
        """The analyzer: (c D B/(2 a)) (plus - minus) of each coordinate, rotated back."""
        # Words 2 j and 2 j + 1 are minus and plus of coordinate j.
        minus, plus = tally.dense(2 * self.sent).reshape(-1, 2).T
        worth: float = self.span * self.norm_bound * self.bucket / (2 * self.a)
        sums: Floats = worth * (plus - minus).astype(np.float64)
        return unrotated(sums, self.rotation, self.coordinates)

    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """R c^2 D^2 B/(4 a^2), less the mean of y^2: on average over the signs of the rotation."""
        each = self.bucket * (self.span * self.norm_bound / (2 * self.a)) ** 2
        if xs is not None:
            clipped = self._biases(dense(xs)) * (self.span * self.norm_bound / self.a)
            each -= float((clipped**2).mean())
        return np.full(self.coordinates, reports * each)

    def reach(self) -> tuple[float, float]:
        """One message moves its rotated coordinate by c D B/(2 a), either way."""
        most = self.span * self.norm_bound * self.bucket / (2 * self.a)
        return most, most

    def manipulation(self, attackers: int, reports: int) -> float:
        """One message in each bucket, all agreeing: k sqrt(B)/(2 a) norm bounds in l2."""
        # s messages in directions that are orthogonal: sqrt(s) times one, and k = span sqrt(d').
        flat = self.span * math.sqrt(self.sent * self.bucket)
        return attackers * flat * self.norm_bound / (2 * self.a)

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Two data at opposite ends of the range in as many coordinates as a row reaches, of
        different buckets first: clipped, others are nearer.
        """
        ends = np.zeros((self.bucket, self.buckets))
        ends.flat[: self._event(1).reached] = 1.0
        first = unrotated(ends.T.ravel(), self.rotation, self.coordinates)
        end = first * (self.norm_bound / float(np.linalg.norm(first)))
        return -end, end

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of whether one report on `x` has the word `label`."""
        v = float(self._biases(np.atleast_2d(x))[0, label // 2])
        said = (0.5 + (v if label % 2 else -v)) / self.bucket
        return np.array([1 - said, said])

    def drawn_with(self, word: int) -> int:
        """Words of different buckets are independent, given the data; for audits."""
        return word // (2 * self.bucket)

    def pair_odds(self, tally: Tally) -> float:
        """ln of how much likelier a tally is if one user holds the second of the worst pair, where
        all others hold the first.
        """
        counts = tally.dense(2 * self.sent).reshape(self.buckets, -1)
        # One message of a bucket, none knows which, is of another law: the mean of all ratios.
        means = (counts * self._ratios).sum(axis=1) / tally.reports
        return float(np.log(means).sum())

    @cached_property
    def _ratios(self) -> Floats:
        """Of each word, how likely by the second of the worst pair over the first."""
        first, second = self._biases(np.array(self.worst_pair()))
        words = np.stack([(0.5 - second) / (0.5 - first), (0.5 + second) / (0.5 + first)], axis=1)
        return words.reshape(self.buckets, -1)

    def event(self, users: int, query: Query) -> BucketSumEvent:
        return self._event(users)

    def _event(self, users: int) -> BucketSumEvent:
        return BucketSumEvent(users, self.buckets, self.bucket, self.a, self.span)
