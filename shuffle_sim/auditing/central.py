"""Audits of a trusted curator: a lower bound of epsilon from draws on two neighbouring tables."""

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.empirical import Bound, Odds, Played, bound_of
from shuffle_sim.auditing.claims.plan import FALSE_ALARM, Check, UncheckedError, checked
from shuffle_sim.auditing.claims.stated import within
from shuffle_sim.auditing.curator.calls import sampled, value_of
from shuffle_sim.auditing.curator.convexity import check_loss, losses_of
from shuffle_sim.auditing.curator.curated import Runs
from shuffle_sim.auditing.curator.release_law import check_distance, check_release, odds
from shuffle_sim.auditing.laws.statistics import naming
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.mechanisms import Noise
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.release import CentralAlgorithm, Release
from shuffle_sim.sampling.randomness import entropy_of

_LATER = 4  # later releases whose noise is looked at
_MORE, _SECONDS = 10, 2.0  # times as many draws, while there is time
_FEWEST, _LONGEST = 300, 30.0  # draws of long runs, and seconds of them
_AGAIN = 8  # times the draws, where a bound is not sure
_KEPT = 6000  # draws that are held to a law
_THOROUGH, _LONG, _BRIEF = 60.0, 3.0, 0.5  # of runs: effort
_NEAR = "all releases of a run are as near as stated"
_Make = Callable[[], None]


@dataclass(frozen=True)
class CentralAudit:
    """What draws on two neighbouring tables say.

    Attributes:
        claimed: epsilon that is claimed.
        empirical: a lower bound of epsilon, true with probability 1 - 1e-4.
        delta: at which both hold.
        repeats: draws of each table.
        gaussian: whether the bound assumes that the pair is Gaussian; else Clopper-Pearson.
        exact: whether the bound assumes that noise has the law that is charged, which a check holds
            it to.
        checks: the first release against what it states, and the game; the false-alarm rate of all
            is 1e-6.
    """

    claimed: float
    empirical: float
    delta: float
    repeats: int
    gaussian: bool = False
    exact: bool = False
    checks: tuple[Check, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is refuted; a false alarm has probability 1e-6 at most."""
        return all(check.passed is not False for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether everything could be checked."""
        return all(check.passed is not None for check in self.checks)


def audit_central(
    algorithm: CentralAlgorithm[Any],
    first: Floats,
    second: Floats,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    privacy: Privacy | None = None,
    repeats: int = 4000,
    seed: int | None = None,
    thorough: bool = False,
    **options: Any,
) -> CentralAudit:
    """Play the membership game on everything that an algorithm releases.

    The attacker sees all releases of a run, and knows both tables. It adds up the logarithms of
    their odds. Where a law is not known, it weighs numbers by how far apart the tables' means are
    in the first half of the draws. The odds are bounded by thresholds (Clopper and Pearson 1934).
    Where all noise is Gaussian, the distance of the pair is estimated: that reaches any delta.
    Where all odds are exact, what is above odds of e^t on one table is e^t times as likely there.

    Beside the game, the first release is held against what it states: how far the statistics of the
    tables are apart, and the law of the noise, which is that of the event that is charged. Then the
    curator is run itself, without a seed. All releases of those runs are compared on more
    neighbours, at the states that were reached, and their noise release by release.

    Args:
        algorithm: what is audited.
        first: rows of the algorithm, or persons with as many records each; shape (n, ...).
        second: rows of which one differs.
        epsilon: claimed; None: what the ledger finds for the events charged.
        delta: of the claim; None: the algorithm's.
        privacy: what the algorithm was made for; None: the claim is held to no budget.
        repeats: draws of each table, at least 1,000; up to ten times as many if they
            take seconds, 300 if runs are long.
        seed: to reproduce the game; the curator's runs have none.
        thorough: more runs of the curator, and more of their releases.
        options: of those runs, as for `run`: runtime, workers, execution.

    Raises:
        ParameterError: tables that do not differ in exactly one row, or a number out of range.
    """
    integer("repeats", repeats, 1000)
    delta = algorithm.delta if delta is None else delta
    delta = real("delta", delta, 0.0, 1.0, closed=(True, False))
    first, second = _neighbours(first, second)
    untouched = deepcopy(algorithm)  # one that has not seen rows
    entropy, tables = entropy_of(seed), (first, second)

    def bounds(repeats: int, entropy: int) -> tuple[list[_Game], Bound]:
        games, played = _played(algorithm, tables, repeats, entropy)
        rough = any(one.rough for one in games)
        return games, bound_of(played, games[0].ledger.charges, delta, rough=rough)

    games, bound = bounds(repeats, entropy)
    claimed = games[0].ledger.guarantee(delta).epsilon if epsilon is None else epsilon
    if bound.open_at(claimed):  # once in 10^4 that is chance: other draws decide
        _, bound = bounds(_AGAIN * repeats, entropy + 1)
    game = Check("the game refutes no claim", bound.keeps(claimed))
    if bound.open_at(claimed):
        words = "the bound is above what is claimed, not for sure: take more repeats"
        game = Check(game.name, None, words)
    runs = _of_runs(untouched, first, second, options, thorough)
    budget = (step.check() for step in within(claimed, delta, privacy))
    checks = (*_checks(games), *_of_losses(untouched, first), *runs, *budget, game)
    shown = bound.repeats, bound.gaussian, bound.exact
    return CentralAudit(claimed, max(0.0, bound.found), delta, *shown, checks)


def check_distances(
    algorithm: CentralAlgorithm[Any], tables: Mapping[str, tuple[Floats, Floats]]
) -> Check:
    """That no release of a run moves farther than stated: nothing of its noise, and no game.

    Args:
        algorithm: what is audited.
        tables: pairs by name, as for `audit_central`.
    """

    def make() -> None:
        # Tables of other kinds, that are searched, are much the same beside each pair.
        for place, (which, pair) in enumerate(tables.items()):
            effort = _BRIEF if place else _LONG
            with naming(f"tables {which}"):
                Runs(algorithm, *_neighbours(*pair), {}, effort=effort).distances()

    return checked(_NEAR, make)


def _neighbours(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Both tables, which differ in one row."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    alike = first.shape == second.shape
    if not alike or (first != second).reshape(len(first), -1).any(axis=1).sum() != 1:
        raise ParameterError("second", second.shape, "the first table with one row replaced")
    return first, second


def _played(
    algorithm: CentralAlgorithm[Any], rows: tuple[Floats, Floats], repeats: int, entropy: Any
) -> "tuple[list[_Game], Played]":
    """The games of both tables, and what each draw showed of its own."""
    games: list[_Game] = []
    tables = [population_for(algorithm.unit, x, algorithm.most_records) for x in rows]
    for table, other in (tables, tables[::-1]):
        if isinstance(table, InMemory):
            algorithm.check(table.array)
        games.append(_Game(algorithm, table, other))
    played: Played = [[], []]
    began = time.process_time()
    for index in range(_MORE * repeats):
        spent = time.process_time() - began
        if spent > (_SECONDS if index >= repeats else _LONGEST) and index >= _FEWEST:
            break
        for side, one in zip(played, games, strict=True):  # over the same randomness
            side.append(one.play(np.random.default_rng([entropy, index])))
    return games, played


def _checks(games: "list[_Game]") -> list[Check]:
    """The first release of each table against what it states, and some later ones."""
    release, values = games[0].first[0], [game.first[1] for game in games]
    # Quarters: the first release's law, later ones', the curator's runs, and the game.
    alarm, pairs = FALSE_ALARM / 4 / len(games), list(zip(games, values, strict=True))

    def demand(known: bool) -> None:
        if not known:
            raise UncheckedError(f"{type(release.mechanism).__name__}: no such law")

    looked: dict[str, _Make] = {
        "the statistics are as near as stated": lambda: demand(check_distance(release, *values)),
        "the noise has the law that is charged": lambda: demand(
            all(check_release(release, [v] * len(g.drawn), g.drawn, alarm) for g, v in pairs)
        ),
    }
    if any(game.later for game in games):
        looked["the noise of later releases has its law"] = lambda: demand(
            all(
                check_release(later, [v for v, _ in seen], [x for _, x in seen], alarm / _LATER)
                for game in games
                for later, seen in game.later.values()
            )
        )
    return [checked(name, check) for name, check in looked.items()]


def _of_losses(algorithm: CentralAlgorithm[Any], rows: Floats) -> list[Check]:
    """What losses state of themselves, where there are any."""
    losses = losses_of(algorithm, algorithm.plan(algorithm.init()))
    if not losses:
        return []

    def make() -> None:
        if not sum(check_loss(each, rows) for each in losses):  # all are looked at
            raise UncheckedError("no loss takes rows of these columns")

    return [checked("losses are as steep and as convex as stated, on rows that they take", make)]


def _of_runs(
    algorithm: CentralAlgorithm[Any],
    first: Floats,
    second: Floats,
    options: dict[str, Any],
    thorough: bool,
) -> list[Check]:
    """What the curator releases in whole runs."""
    names = (
        _NEAR,
        "the noise of all releases of the curator's runs is fresh, and has its law",
        "all releases of a run are charged",
        "every release is made of its statistic, from a stream of its own",
        "what is asked, and the result, follow from releases alone",
        "a stopped run is charged, and goes on with its own rows alone",
    )
    try:
        runs = Runs(algorithm, first, second, options, effort=_THOROUGH if thorough else 1.0)
    except Exception as error:  # what is audited may do anything
        return [Check(name, False, f"{type(error).__name__}: {error}") for name in names]
    noise = partial(runs.noise, FALSE_ALARM / 4)
    made: list[_Make] = [runs.distances, noise, runs.charged, runs.values, runs.followed]
    made.append(runs.resumed)
    return [checked(name, make) for name, make in zip(names, made, strict=True)]


class _Game:
    """Runs of an algorithm on one table, as the curator answers them, without journal and disk.

    Attributes:
        ledger: what the last run charged.
        rough: whether some odds are neither nearly Gaussian nor exact.
        drawn: what was first released in every run.
        later: by place, some later releases, as they were planned in the first run; and value and
            release of those that were planned alike in every run.
    """

    def __init__(
        self,
        algorithm: CentralAlgorithm[Any],
        data: Population,
        other: Population,
    ) -> None:
        self._algorithm, self._data, self._other = algorithm, data, other
        release = algorithm.plan(algorithm.init())
        if release is None:
            raise ParameterError(
                "algorithm", type(algorithm).__name__, "one that releases something"
            )
        self._first = release, *self._values(release)  # the same in every run
        self.ledger, self.rough = PrivacyLedger(), False
        self.drawn: list[Any] = []
        self.later: dict[int, tuple[Release, list[tuple[Any, Any]]]] = {}

    @property
    def first(self) -> tuple[Release, Any]:
        """The first release, and its value before noise."""
        return self._first[:2]

    def play(self, rng: np.random.Generator) -> tuple[Floats, Odds | None]:
        """All numbers that one run releases, in order; and how they speak for the other table."""
        algorithm, index, seen = self._algorithm, 0, []
        near, law, known = 0.0, 0.0, True
        self.ledger, state = PrivacyLedger(), algorithm.init()
        opened: dict[int, int] = {}
        release: Release | None
        release, value, other = self._first
        while release is not None:
            if release.event is not None:
                self.ledger.charge(release.cohort, release.event)
            released = sampled(release, index, value, rng, opened)
            if not index and len(self.drawn) < _KEPT:
                self.drawn.append(released)
            elif 0 < index <= _LATER and isinstance(release.mechanism, Noise):
                planned, seen_before = self.later.setdefault(index, (release, []))
                alike = (planned.event, planned.sensitivity) == (release.event, release.sensitivity)
                if alike and len(seen_before) < _KEPT:
                    seen_before.append((value, released))
            if known and (speaks := odds(release, value, other, released)) is not None:
                if release.event is not None and theorem_of(type(release.event)).near_gaussian:
                    near += speaks[0]
                else:
                    law, self.rough = law + speaks[0], self.rough or not speaks[1]
            else:
                known = False
            state = algorithm.update(state, released)
            seen.append(np.ravel(np.asarray(released, float)))
            index += 1
            if (release := algorithm.plan(state)) is not None:
                value, other = self._values(release)
        return np.concatenate(seen), (near, law) if known else None

    def _values(self, release: Release) -> tuple[Any, Any]:
        """Before noise, of both tables."""
        return value_of(release, self._data), value_of(release, self._other)
