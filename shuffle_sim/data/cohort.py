"""Which users a round asks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shuffle_sim.errors import ParameterError


@dataclass(frozen=True)
class Cohort:
    """The users asked in a round: disjoint, ascending half-open ranges of user indices."""

    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Refuse empty, negative, unordered or overlapping ranges."""
        end = 0
        for start, stop in self.ranges:
            if type(start) is not int or type(stop) is not int or start < end or stop <= start:
                raise ParameterError(
                    "cohort", self.ranges, "disjoint ascending non-empty ranges of integers"
                )
            end = stop
        if not self.ranges:
            raise ParameterError("cohort", self.ranges, "at least one user")

    @classmethod
    def of(cls, start: int, stop: int) -> "Cohort":
        """The users start, ..., stop - 1."""
        return cls(((start, stop),))

    @property
    def size(self) -> int:
        """Number of users."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def stop(self) -> int:
        """One past the last user."""
        return self.ranges[-1][1]

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of the cohort inside [start, stop)."""
        for low, high in self.ranges:
            if max(low, start) < min(high, stop):
                yield max(low, start), min(high, stop)

    def frames(self, block_size: int) -> Counter[int]:
        """How many users of the cohort blocks of `block_size` hold: {users in a block: blocks}."""
        # By block: two ranges may end and begin in the same one.
        edges: Counter[int] = Counter()
        whole = 0
        for start, stop in self.ranges:
            # Whole blocks lie from the first one that begins here to the last one that ends.
            first, last = -(-start // block_size), stop // block_size
            if first > last:  # inside one block
                edges[last] += stop - start
                continue
            whole += last - first
            edges[first - 1] += first * block_size - start
            edges[last] += stop - last * block_size
        counted = Counter(users for users in edges.values() if users)
        if whole:
            counted[block_size] += whole
        return counted
