"""Means and variances of columns from one private sum, with intervals that hold the noise.

Each user sends u, its row scaled to [-1, 1], and for variances 2 u^2 - 1 beside it. What is
estimated is about these users, clipped to the public bounds: clipping is a bias, not noise.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.data.tables import Table

NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class MomentIntervals:
    """From low to high, in each column; at least 95 % of them hold what is estimated."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, values: Floats, standard_error: Floats, least: float = -np.inf) -> Self:
        """Around unbiased values with normal noise, as sums over many users have."""
        reach = NORMAL_95 * standard_error
        return cls(np.maximum(values - reach, least), values + reach)


@dataclass(frozen=True)
class ColumnMoments:
    """Variances of columns.

    Attributes:
        private: as estimated, 0 at least.
        standard_error: of the noise, to second order.
        interval: of 95 %.
    """

    private: Floats
    standard_error: Floats
    interval: MomentIntervals


def encoded(table: Table) -> Floats:
    """(u, 2 u^2 - 1) of each row over sqrt(2 columns), (rows, 2 columns): in the unit ball."""
    # Each cell in [-1, 1]: 2 u^2 - 1 uses that range as a whole, u^2 half of it.
    inside = table.scaled() * table.scale.norm
    both = np.concatenate([inside, 2 * inside**2 - 1], axis=1)
    return np.asarray(both / np.sqrt(both.shape[1]))


def per_user(table: Table, *, clip: bool = True) -> Table:
    """One row for each user: a record, or the mean of a person's records; within the bounds."""
    if table.person is None:
        return table
    inside = np.clip(table.rows, table.lower, table.upper) if clip else table.rows
    means = PersonMeans(Persons.grouped(inside, table.person))
    return replace(table, rows=np.asarray(means.rows(0, means.users)), person=None)


def of_users(table: Table, view: Table, *, variance: bool) -> Population:
    """What users send of a table, and of its view `per_user`: scaled rows, or `encoded` ones."""
    if table.free:
        return InMemory(view.rows)
    if table.person is None:
        return InMemory(encoded(view) if variance else view.scaled())
    if variance:
        return PersonMeans(Persons.grouped(encoded(view), np.arange(len(view.rows))))
    return PersonMeans(Persons.grouped(table.scaled(), table.person))


def released(
    table: Table, sums: Floats, standard_error: float, count: int, *, variance: bool
) -> tuple[Floats, Floats, ColumnMoments | None]:
    """Means, their standard errors, and variances, from the private sum.

    Args:
        table: with one row for each user.
        sums: of the scaled rows, or of the `encoded` ones.
        standard_error: of each coordinate of the sum.
        count: of reports.
        variance: whether rows were `encoded`.
    """
    if not variance:
        return table.means(sums, count), table.spread(standard_error, count), None
    center, half = table.scale.center, table.scale.half
    first, second = np.split(sums * np.sqrt(len(sums)) / count, 2)
    error = standard_error * np.sqrt(len(sums)) / count
    # The square of a noisy mean is too large by the variance of its noise.
    spread = (1 + second) / 2 - first**2 + error**2
    # Of (1 + second)/2; of first^2, to first order 2 first error, and to second 2 error^4.
    wide = np.sqrt((error / 2) ** 2 + (2 * np.abs(first) * error) ** 2 + 2 * error**4)
    values, errors = half**2 * np.maximum(spread, 0.0), half**2 * wide
    interval = MomentIntervals.of(half**2 * spread, errors, 0.0)
    return center + half * first, half * error, ColumnMoments(values, errors, interval)
