"""Counts of nested intervals: a tree whose levels are counted at once, made consistent.

The root's count is known. Least squares of equal weights decouple by nodes: what a node's children
hold more or less than their mean rests on counts below them only. With m_l leaves under a node of
level l, a contrast between the children of a node of level d has the weight
m_(d+1) + ... + m_L (docs: theory, Counts).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from protocols.counts.pollution import Polluting
from protocols.counts.randomizer import Words, place
from shuffle_sim.arrays import Floats, Values


@dataclass(frozen=True)
class Shape:
    """Of a tree.

    Attributes:
        fans: children of a node at each level, from the root on.
    """

    fans: tuple[int, ...]

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Of each level below the root."""
        return tuple(np.cumprod(self.fans).tolist())

    @property
    def leaves(self) -> int:
        """Of the last level."""
        return self.nodes[-1]

    @cached_property
    def under(self) -> tuple[int, ...]:
        """Leaves under a node of each level, the root first."""
        return (self.leaves, *(self.leaves // each for each in self.nodes))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Of contrasts between the children of a node of each level, the root first."""
        return tuple(sum(self.under[depth + 1 :]) for depth in range(len(self.fans)))

    def fitted(self, counts: Floats, total: float) -> Floats:
        """The leaves (leaves,) nearest to the counts of all nodes, level by level, (nodes,)."""
        levels = np.split(counts, np.cumsum(self.nodes)[:-1])
        # A^T counts, added up over the leaves under a node: its product with the node's indicator.
        below = np.zeros(self.leaves)  # per node: counts under it, weighted by leaves
        sums = []
        for level in range(len(self.fans) - 1, -1, -1):
            below = below + self.under[level + 1] * levels[level]
            sums.append(below)
            below = below.reshape(-1, self.fans[level]).sum(axis=1)
        found = np.full(1, total / self.leaves)  # per leaf
        for depth, each in enumerate(reversed(sums)):
            children = each.reshape(-1, self.fans[depth])
            contrast = children - children.mean(axis=1, keepdims=True)
            # The indicator of a child has the norm m_(d+1), and its contrasts the eigenvalue
            # lambda_d (counts.md, "Quantile trees").
            scale = self.under[depth + 1] * self.weights[depth]
            found = (found[:, None] + contrast / scale).ravel()
        return found

    @cached_property
    def prefix_variances(self) -> Floats:
        """Of the count of the first 1, ..., leaves - 1 leaves, for counts of variance 1."""
        first = np.arange(1, self.leaves)
        total = np.zeros(first.size)
        for depth, fan in enumerate(self.fans):
            under, child = self.under[depth], self.under[depth + 1]
            # Of the nodes of a level only that in which the prefix ends has unequal children.
            inside = (first % under)[:, None] - child * np.arange(fan)
            parts = np.clip(inside / child, 0.0, 1.0)
            spread = ((parts - parts.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
            # |projection|^2/lambda_d: the spaces of contrasts are orthogonal.
            total += child * spread / self.weights[depth]
        return total


@dataclass(frozen=True)
class Nodes(Polluting):
    """The node that a leaf is under, of each level, under noise in all nodes."""

    def admit(self, values: Values) -> tuple[Values, int]:
        return place(values, self.sizes[-1])

    def own(self, xs: Floats, rng: np.random.Generator) -> Words:
        leaf = xs.reshape(len(xs), 1).astype(np.int64)
        found = leaf // (self.sizes[-1] // np.array(self.sizes, np.int64))
        return np.where(leaf >= 0, found, -1)

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Leaves that share no node."""
        return np.zeros(1), np.full(1, self.sizes[-1] - 1.0)
