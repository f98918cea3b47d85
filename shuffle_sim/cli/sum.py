"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from protocols.counts import GroupMeans
from protocols.selection.bounds import ChosenBounds
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import sum_report
from shuffle_sim.cli.counts import CountsRun
from shuffle_sim.cli.counts_report import Groups
from shuffle_sim.cli.data import BLANK, Source, load
from shuffle_sim.cli.options import (
    ATTACK,
    HONEST,
    ROUNDS,
    DataOptions,
    HostOptions,
    PrivacyOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.cli.running import Running, announce
from shuffle_sim.cli.show import Drawn
from shuffle_sim.data.moments import encoded
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.options import Execution
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.encodings import NOISE_RATIO, at_least, choose, sane, usual_ratio
from shuffle_sim.registry import registered


@dataclass(frozen=True)
class SumOptions:
    """How the numbers of a sum become noisy messages."""

    noise_ratio: float | None = option(
        None, "Noise allowed, as a multiple of the central Gaussian's. The fewest bits are chosen."
    )
    max_bits: float | None = option(
        None,
        "Bits allowed per user and coordinate. The least noise is chosen. It replaces "
        "--noise-ratio.",
    )
    encoding: str | None = option(
        None,
        "How numbers become messages: carry, unary, or with --rotation buckets. Default: that of "
        "the fewest bits.",
    )
    rotation: int | None = option(
        None, "Public seed of a rotation of vectors. Many coordinates then take fewer bits."
    )
    honest_fraction: float = same(HONEST)

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not at their defaults, by name."""
        every = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return {name: value for name, value, default in every if value != default}

    def encoded(
        self,
        n: int,
        d: int,
        privacy: Privacy,
        *,
        scalar: bool | None = None,
        rounds: int = 1,
        ratio: float | None = None,
    ) -> tuple[str, Any]:
        """A sum by the encoding, or by that of the fewest bits, and its registered name.

        Args:
            n: users.
            d: coordinates.
            privacy: of the release.
            scalar: of numbers in [0, 1], not of vectors in the unit ball; None: where d is 1.
            rounds: that each user answers in, whose privacy it is.
            ratio: of the noise where none is asked for; None: the usual one.

        Raises:
            ParameterError: what cannot be had.
        """
        spec = SumSpec(n, d, privacy, rounds, self.honest_fraction, self.rotation)
        numbers = d == 1 if scalar is None else scalar
        if self.noise_ratio is not None or self.max_bits is not None:
            wish = self.noise_ratio, self.max_bits
            name, plan = choose(spec, *wish, self.encoding, numbers)
        elif self.encoding is None and ratio is None:
            name, plan = sane(spec, numbers)
        else:
            usual = usual_ratio(self.encoding, spec.honest / n, numbers, ratio or NOISE_RATIO)
            name, plan = at_least(
                lambda wish: choose(spec, wish, None, self.encoding, numbers), usual
            )
        return name, registered("protocol", name).planned(plan)

    def calibrated(self, name: str, n: int, d: int, privacy: Privacy, **useless: Any) -> Any:
        """The registered sum `name`, calibrated.

        Args:
            name: as registered.
            n: users.
            d: coordinates.
            privacy: of the release.
            useless: other options, that no sum takes; None: not given.

        Raises:
            ParameterError: not a sum, or one that has no use for d or for an option that was given.
        """
        kind = registered("protocol", name)
        if not hasattr(kind, "calibrated") or not hasattr(kind, "size"):
            raise ParameterError("protocol", name, "one of the sums, or of the optimisers")
        known = inspect.signature(kind.calibrated).parameters
        given = self.given | {key: each for key, each in useless.items() if each is not None}
        left_out({key: value for key, value in given.items() if key not in known}, name)
        if getattr(kind, "scalar", False) and d != 1:
            raise ParameterError("d", d, f"1: {name} sums scalars")
        noise = {"noise_ratio", "max_bits"}
        sizes = kind.size(n, d, privacy)
        try:
            if noise <= set(known) and not noise & set(given):
                usual = getattr(kind, "usual_ratio", NOISE_RATIO)
                return at_least(
                    lambda ratio: kind.calibrated(**sizes, **given, noise_ratio=ratio), usual
                )
            return kind.calibrated(**sizes, **given)
        except TypeError as error:  # of a third party, with parameters of its own
            raise ParameterError("protocol", name, f"made by n, d and privacy ({error})") from error


def sum_command(
    data: DataOptions,
    privacy: PrivacyOptions,
    noise: SumOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    attack: list[str] | None = ATTACK,
    rounds: int = ROUNDS,
    variance: bool = option(
        False, "Release variances, too: twice the numbers, more noise.", "--variance"
    ),
    by: str | None = option(
        None, "Column with public categories: count, sum and mean in each of them."
    ),
) -> None:
    """Release the column means of a table by a shuffle-private vector sum.

    Example: shuffle-sim sum --table breast-cancer --epsilon 1 --delta 1e-5 --runtime ray

    Example: shuffle-sim sum --file people.csv --columns age,income --bounds age=0:120 --bounds
    income=0:500000

    Example: shuffle-sim sum --file people.csv --columns age,income --choose-bounds 0.2

    Each day of a year, within one budget (see `shuffle-sim budget --help`):

    Example: shuffle-sim sum --file today.csv --bounds 0:9 --rounds 365 --budget year --report may-1
    --population customers

    With --person, a person counts once, with the mean of its records:

    Example: shuffle-sim sum --file visits.csv --person patient --bounds dose=0:10
    """
    if by is not None:
        useless = {"attack": attack, "variance": variance or None, "table": data.table}
        left_out({**useless, **noise.given, "honest_fraction": None}, "sum --by")
        _by_group(data, by, privacy, noise.honest_fraction, host, execution, output)
        return
    source, budget, share = load(data, target=False), privacy.budget, data.choose_bounds
    view = _view(source)  # one row for each user, in the table's units
    n, d = len(view.rows), len(source.columns) * (2 if variance else 1)

    def made(left: Privacy) -> Any:
        return noise.encoded(n, d, left, scalar=False, rounds=rounds)[1]

    asked = within = made(budget)
    if share is not None:
        if variance:
            raise ParameterError("variance", variance, "left out with --choose-bounds")
        asked = ChosenBounds.calibrated(
            made,
            n=n,
            by=view.row_map(view.scale.norm),
            privacy=budget,
            share=share,
            encoding=noise.encoding,
            honest_fraction=noise.honest_fraction,
        )
        within = asked.inner
    how = Running.of(host, execution, source, data.file)
    adversary = attacks(attack or [])
    rows = _rows(source, view, variance)
    ahead = how.ahead(asked, rows)
    fewer = _fewer(within, partial(_noisier, noise, n=n, d=d, privacy=budget, rounds=rounds))
    start = announce(ahead, fewer, yes=how.yes, json=output.json)
    how = replace(how, options=how.options | {"adversary": adversary})
    result = how.run(asked, rows, on_start=start)
    accepted = result.reports.accepted
    if share is not None:
        found, accepted = result.value, result.value.reports
        view = source = source.bounded(found.low, found.high)
        result = replace(result, value=found.value)
    facts = result, accepted, budget, variance, rounds, ahead, execution
    summary = sum_report.summed_up(source, view, within, *facts, attacked=adversary is not None)
    output.present(summary, sum_report.print_report, sum_report.draw)


def _noisier(noise: SumOptions, ratio: float, **spec: Any) -> tuple[str, Any]:
    return replace(noise, noise_ratio=ratio, max_bits=None).encoded(**spec, scalar=False)


def _view(table: Table) -> Table:
    """One row for each user: a record, or the mean of a person's records within the bounds."""
    if table.person is None:
        return table
    inside = np.clip(table.rows, table.lower, table.upper)
    means = PersonMeans(Persons.grouped(inside, table.person))
    return replace(table, rows=np.asarray(means.rows(0, means.users)), person=None)


def _fewer(protocol: Any, made: Callable[[float], tuple[str, Any]]) -> Iterator[str]:
    """What fewer bits would cost in accuracy."""
    for factor in (1.5, 2.0, 4.0):
        with suppress(ParameterError):
            other = made(factor * NOISE_RATIO)[1]
            if other.bits < protocol.bits:
                times = other.standard_error / protocol.standard_error
                bits = f"{other.d * other.bits:,} bits a user"
                yield f"--noise-ratio {factor * NOISE_RATIO:g}: {bits}, {times:.2f} x the error"


def _rows(table: Table, view: Table, variance: bool) -> Population:
    """What users send: a scaled row, and its squares if variances are asked for."""
    if table.free:
        return InMemory(view.rows)
    if table.person is None:
        return InMemory(encoded(view) if variance else view.scaled())
    if variance:
        return PersonMeans(Persons.grouped(encoded(view), np.arange(len(view.rows))))
    return PersonMeans(Persons.grouped(table.scaled(), table.person))


def _by_group(
    data: DataOptions,
    by: str,
    privacy: PrivacyOptions,
    honest_fraction: float,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
) -> None:
    """Counts, sums and means of one column in each category of another.

    Raises:
        ParameterError: not one column with public bounds, or a group without public categories.
    """
    if data.columns is None or "," in data.columns:
        raise ParameterError("columns", data.columns, "one column with --by")
    column = data.columns.strip()
    known = {each.name: getattr(data, each.name) for each in fields(Source)}
    source = Source(**known)
    values, low, high = source.numbers(column)
    kind, places = source.named(by)
    made = GroupMeans.calibrated(
        n=len(values),
        groups=len(kind.classes),
        low=low,
        high=high,
        privacy=privacy.budget,
        honest_fraction=honest_fraction,
    )
    how = CountsRun(source, privacy, host, execution, output)
    rows, blank = np.stack([places, values], axis=1), int((places == BLANK).sum())
    (table, released), inside = how.run(made, rows, blank), np.clip(values, low, high)
    ranges = made.interval(table)
    members = [inside[places == at] for at in range(len(kind.classes))]
    summary = Groups(
        column=column,
        by=by,
        groups=kind.classes,
        true_means=np.array([each.mean() if each.size else math.nan for each in members]),
        counts=table.counts,
        sums=table.sums,
        means=table.means,
        mean_low=ranges.means[:, 0],
        mean_high=ranges.means[:, 1],
        confidence=ranges.confidence,
        run=released,
    )
    how.show(summary)
