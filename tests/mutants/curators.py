"""Curators with a defect: of their noise, for each mechanism, and of what they state."""

import dataclasses
import hashlib
import logging
import math
import secrets
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from protocols import CentralSum
from protocols.central.record.density import GibbsDraw
from protocols.central.record.objective_perturbation import LinearTerm, Rows
from protocols.central.record.sums import BallSum
from protocols.erm.solver import UncertifiedError
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution import curator, engine
from shuffle_sim.execution.checkpoint import journal_of as journals
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.privacy import central_theorems, discrete
from shuffle_sim.privacy.bounds import gamma
from shuffle_sim.privacy.discrete import GridLaplace
from shuffle_sim.privacy.events import GaussianEvent
from shuffle_sim.privacy.grid_noise import GridBinomial
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.mechanisms import Exponential, Gaussian, L2Laplace, LocalGaussian
from shuffle_sim.privacy.sparse_vector import SHARE, AboveThreshold
from shuffle_sim.privacy.tested_release import TestedGaussian
from shuffle_sim.protocol.release import Release, Sensitivity, Statistic
from shuffle_sim.sampling import randomness

from . import steep
from .mechanisms import MECHANISMS, VALUES, multiples_of_three, rounded_gumbel


def first_noise_again(patch):
    true = curator.Curator._stream
    patch.setattr(curator.Curator, "_stream", lambda self, index, draw: true(self, 0, draw))


def without_entropy(patch):
    true = randomness.stream
    patch.setattr(curator, "stream", lambda entropy, *key: true(3, *key))


def few_values(patch):
    true = Gaussian.noise
    patch.setattr(Gaussian, "noise", lambda self, rng, d: np.round(true(self, rng, d), 3))


def single_numbers(patch):
    """Each number of the noise is one of 2^24 times powers of two, times a double."""

    def noise(self, rng, d):
        return self.noise_multiplier * rng.standard_normal(d, dtype=np.float32).astype(float)

    patch.setattr(Gaussian, "noise", noise)


def minimisers_as_they_are(patch):
    """Nothing is added for the distance from the true minimiser."""
    true = LinearTerm.sample

    def sample(self, value, sensitivity, rng):
        return true(dataclasses.replace(self, radius=0.0), value, sensitivity, rng)

    patch.setattr(LinearTerm, "sample", sample)


def files_unseen(patch):
    """Rows that are not in memory are taken as they come."""
    patch.setattr(
        curator, "suited", lambda by, rows: population_for(by.unit, rows, by.most_records)
    )


def turned_noise(patch):
    """Each second release draws what the one before drew, with the other sign."""
    true, last = Gaussian.noise, dict[int, Any]()

    def noise(self, rng, d):
        if d in last:
            return -last.pop(d)
        last[d] = true(self, rng, d)
        return last[d]

    patch.setattr(Gaussian, "noise", noise)


def uncertified(patch):
    """What a solver found is taken, whatever its certificate says."""
    solving: Any = import_module("protocols.erm.solver.minimise")  # a function has this name, too
    true = solving.certify
    patch.setattr(
        solving, "certify", lambda objective, w: dataclasses.replace(true(objective, w), radius=0.0)
    )


def drawn_early(patch):
    """A release is drawn before it is charged."""
    true = curator.Curator.answer

    def answer(self, release, index):
        value, size = self._value(release), release.sensitivity.value
        release.mechanism.sample(value, size, self._stream(index, 0))
        return true(self, release, index)

    patch.setattr(curator.Curator, "answer", answer)


def ledger_late(patch):
    """The ledger is charged once a release is drawn; what is on disk is charged before."""
    true = curator.Curator.answer

    class Late:
        def __init__(self, ledger):
            self._ledger, self._held = ledger, []

        def charge(self, *given):
            self._held.append(given)

        def settle(self, size):
            self._ledger.charge(*self._held.pop())
            self._ledger.settle(size)

    def answer(self, release, index):
        if not isinstance(self._ledger, Late):
            self._ledger = Late(self._ledger)
        return true(self, release, index)

    patch.setattr(curator.Curator, "answer", answer)


def clip_at_the_middle(patch):
    """Rows are clipped to twice their median length, if that is less."""
    true = BallSum.part

    def part(self, rows):
        middle = 2 * float(np.median(np.linalg.norm(rows, axis=1)))
        return true(dataclasses.replace(self, radius=min(self.radius, max(middle, 1e-3))), rows)

    patch.setattr(BallSum, "part", part)


def _part(change):
    """The sum of a block is another one."""

    def plant(patch):
        true = BallSum.part
        patch.setattr(BallSum, "part", lambda self, rows: change(partial(true, self), self, rows))

    return plant


def gaps_are_as_others(true, _, rows):
    """Rows without numbers are taken for the mean of the others."""
    known = np.isfinite(rows).all(axis=1)
    middle = rows[known].mean(axis=0) if known.any() else np.zeros(rows.shape[1])
    return true(np.where(known[:, None], rows, middle))


def other_units(true, self, rows):
    """Where half of the rows are longer than they may be, all are divided by 100."""
    long = np.median(np.linalg.norm(rows, axis=1)) > self.radius
    return true(rows / 100 if long else rows)


def whole_numbers_free(true, _, rows):
    """Rows of whole numbers are not clipped."""
    whole = rows.dtype.kind == "i"
    return rows.sum(axis=0).astype(float) if whole else true(rows)


def minimisers_far_off(patch):
    """Minimisers with a linear term are certified to a thousand radii; noise is for one."""
    true = Rows.minimiser

    def minimiser(self, linear):
        return true(dataclasses.replace(self, radius=1000 * self.radius), linear)

    patch.setattr(Rows, "minimiser", minimiser)


def seed_told(patch):
    """A result holds what its noise was drawn from."""
    true = curator.run_curator

    def run_curator(*given, **more):
        found = true(*given, **more)
        return dataclasses.replace(found, seed=found.seed or secrets.randbits(100))

    patch.setattr(engine, "run_curator", run_curator)


def half_of_a_norm(patch):
    """l2-Laplace noise is charged as that of half the rate."""
    for name in ("exact", "curve"):
        true = getattr(central_theorems.Gamma, name)

        def less(self, event, at, true=true):
            return true(self, dataclasses.replace(event, rate=event.rate / 2), at)

        patch.setattr(central_theorems.Gamma, name, less)


def outcomes_forgotten(patch):
    """A run that goes on charges next to nothing."""
    true = PrivacyLedger.charge

    def charge(self, cohort, event):
        resumed = getattr(curator.Curator, "_resumed", False)
        true(self, cohort, GaussianEvent(1e6) if resumed else event)

    patch.setattr(PrivacyLedger, "charge", charge)
    started = journals

    def journal_of(path, resume, identity):
        patch.setattr(curator.Curator, "_resumed", resume, raising=False)
        return started(path, resume, identity)

    patch.setattr(curator, "journal_of", journal_of)


def entropy_of_a_folder(patch):
    """A run that is kept draws by the name of its folder."""
    started = journals

    def journal_of(path, resume, identity):
        if path is not None:
            named = hashlib.sha256(path.name.encode()).digest()
            identity = dataclasses.replace(identity, entropy=int.from_bytes(named[:16], "big"))
        return started(path, resume, identity)

    patch.setattr(curator, "journal_of", journal_of)


def tails_far_redrawn(patch):
    """What is beyond 4.5 deviations is drawn again: once in 150,000 numbers."""

    def noise(self, rng, d):
        drawn = rng.standard_normal(d)
        while (far := np.abs(drawn) > 4.5).any():
            drawn[far] = rng.standard_normal(int(far.sum()))
        return self.noise_multiplier * drawn

    patch.setattr(Gaussian, "noise", noise)


def norms_cut(patch):
    """No norm is longer than 14 + d units: an atom of mass e^-11."""

    def draw(rng, rate, d):
        way = rng.standard_normal(d)
        return way * (min(rng.standard_gamma(d), 14.0 + d) / (rate * np.linalg.norm(way)))

    patch.setattr(gamma, "draw", draw)


def ways_of_a_cube(patch):
    """Directions of uniform numbers: more of them are towards corners."""

    def draw(rng, rate, d):
        way = rng.uniform(-1.0, 1.0, d)
        return way * (rng.standard_gamma(d) / (rate * np.linalg.norm(way)))

    patch.setattr(gamma, "draw", draw)


def unlikely_never(patch):
    """Choices of chance e^-10 are left out."""
    true = Exponential.sample

    def sample(self, value, sensitivity, rng):
        scores = self.epsilon * np.asarray(value, float) / sensitivity
        near = np.flatnonzero(scores > scores.max() - 10)
        return int(near[true(self, np.asarray(value, float)[near], sensitivity, rng)])

    patch.setattr(Exponential, "sample", sample)


def entropy_of_the_clock(patch):
    def of_time(seed):
        return time.time_ns() if seed is None else seed

    patch.setattr(curator, "entropy_of", of_time)


def labels_are_no_content(patch):
    """Runs on rows with another label go on: their content is that of the features."""

    def named(*, values, **others):
        features = InMemory(np.asfortranarray(values["data"].array[:, :-1]))
        return RunIdentity(values=values | {"data": features}, **others)

    patch.setattr(curator, "RunIdentity", named)


def any_rows_resume(patch):
    """A journal does not say of which rows it is, in its beginning and in its charges."""
    true = curator.Curator.answer

    def named(*, values, **others):
        return RunIdentity(values={"algorithm": values["algorithm"]}, **others)

    patch.setattr(curator, "RunIdentity", named)

    def answer(self, release, index):
        self._content = b""
        return true(self, release, index)

    patch.setattr(curator.Curator, "answer", answer)


def _of_last(kind: Any, made: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    """Noise that is made of the last noise, too."""

    def plant(patch):
        true, last = kind.noise, [None]

        def noise(self, rng, d):
            fresh = true(self, rng, d)
            found = fresh if last[0] is None else made(fresh, last[0])
            last[0] = fresh
            return found

        patch.setattr(kind, "noise", noise)

    return plant


def _mixed(fresh, last):
    return (fresh + last) / np.sqrt(2)


def _mixed_in_other_places(fresh, last):
    return (fresh + last[::-1]) / np.sqrt(2)


def _of_direction(kept: str) -> Callable[[Any], None]:
    """Each second draw has the norm, or the direction, of the one before; or two are one."""

    def plant(patch):
        last: dict[str, Any] = {}

        def draw(rng, rate, d):
            new = {"norm": rng.gamma(d, 1 / rate), "way": rng.standard_normal(d)}
            if kept in last:
                new[kept] = last.pop(kept)
            elif kept in new:
                last[kept] = new[kept]
            else:
                new["way"][-1] = new["way"][1]
            return new["way"] * (new["norm"] / np.linalg.norm(new["way"]))

        patch.setattr(gamma, "draw", draw)

    return plant


def single_precision(patch):
    true = Gaussian.noise
    patch.setattr(
        Gaussian, "noise", lambda self, rng, d: true(self, rng, d).astype(np.float32).astype(float)
    )


def single_norms(patch):
    """A float times its rate: the true value is told by it, and others are not."""
    true = gamma.draw

    def draw(rng, rate, d):
        noise = true(rng, rate, d)
        norm = np.linalg.norm(noise)
        return noise * (float(np.float32(norm * rate)) / (rate * norm))

    patch.setattr(gamma, "draw", draw)


def single_gammas(patch):
    """The same by a generator that is asked for it: one number of any type comes as a double."""

    def draw(rng, rate, d):
        way = rng.standard_normal(d)
        return way * (rng.standard_gamma(d, dtype=np.float32) / (rate * np.linalg.norm(way)))

    patch.setattr(gamma, "draw", draw)


def even_integers(patch):
    true = discrete.draw
    patch.setattr(discrete, "draw", lambda *given: [each // 2 * 2 for each in true(*given)])


def one_draw_for_all(patch):
    true = GridBinomial._drawn
    patch.setattr(GridBinomial, "_drawn", lambda self, rng: [true(self, rng)[0]] * self.coordinates)


def size_of_one(patch):
    """Coordinates have one size, and signs of their own: they are not correlated."""
    true = Gaussian.noise

    def noise(self, rng, d):
        found = true(self, rng, d)
        found[1] = (0.9 * found[0] + 0.1 * found[1]) * rng.choice([-1, 1])
        return found

    patch.setattr(Gaussian, "noise", noise)


def tails_redrawn(patch):
    """What lies beyond three standard deviations is drawn again."""
    true = Gaussian.noise

    def noise(self, rng, d):
        found, again = true(self, rng, d), true(self, rng, d)
        return np.where(np.abs(found) > 3 * self.noise_multiplier, again, found)

    patch.setattr(Gaussian, "noise", noise)


def far_coordinates(patch):
    """Two coordinates of 50, none of them among the first 40, have nearly one draw."""
    true = Gaussian.noise

    def noise(self, rng, d):
        found = true(self, rng, d)
        found[49] = 0.95 * found[44] + math.sqrt(1 - 0.95**2) * found[49]
        return found

    patch.setattr(Gaussian, "noise", noise)


def one_of_twenty(patch):
    """One release of 20 has a third of its noise."""
    answer, true, now = curator.Curator.answer, Gaussian.noise, [0]

    def answered(self, release, index):
        now[0] = index
        return answer(self, release, index)

    def noise(self, rng, d):
        return true(self, rng, d) / (3 if now[0] == 12 else 1)

    patch.setattr(curator.Curator, "answer", answered)
    patch.setattr(Gaussian, "noise", noise)


def scores_by_more(patch):
    """An exponential mechanism takes utilities times 1.3."""
    true = Exponential.sample

    def sample(self, value, sensitivity, rng):
        return true(self, 1.3 * np.asarray(value, float), sensitivity, rng)

    patch.setattr(Exponential, "sample", sample)


def never_the_worst(patch):
    """An exponential mechanism takes the best in place of the worst, if that is far behind."""
    true = Exponential.sample

    def sample(self, value, sensitivity, rng):
        found = true(self, value, sensitivity, rng)
        far = np.ptp(value) > 3 * sensitivity / self.epsilon
        return int(np.argmax(value)) if far and found == np.argmin(value) else found

    patch.setattr(Exponential, "sample", sample)


def _bare(where: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    """Coordinates of values that have no noise."""

    def plant(patch):
        true = Gaussian.sample

        def sample(self, value, sensitivity, rng):
            found = true(self, value, sensitivity, rng)
            return np.where(where(np.asarray(value), sensitivity), value, found)

        patch.setattr(Gaussian, "sample", sample)

    return plant


def first_charged_only(patch):
    """Later releases are charged to a ledger that nobody reads."""
    true = curator.Curator.answer

    def answer(self, release, index):
        kept, self._ledger = self._ledger, PrivacyLedger() if index else self._ledger
        found = true(self, release, index)
        self._ledger = kept
        return found

    patch.setattr(curator.Curator, "answer", answer)


def threshold_bare(patch):
    """The threshold of a session has no noise."""

    def sample(self, value, sensitivity, rng, opened=None):
        scale = 2 * sensitivity / self.epsilon / (1 - SHARE)
        return bool(value + rng.laplace(scale=scale) >= self.threshold)

    patch.setattr(AboveThreshold, "sample", sample)


@dataclasses.dataclass(frozen=True)
class Few(Statistic):
    """Sums of clipped numbers: of one column, or of several as utilities; they are all alike."""

    columns: int

    @property
    def sensitivity(self):
        return Sensitivity(1.0, "range" if self.columns > 1 else "l2", "clipped to [0, 1]")

    def __call__(self, total, users):
        found = total(self.part)
        return found if self.columns > 1 else found[0]

    def part(self, rows):
        return np.clip(rows[:, : self.columns], 0.0, 1e-3).sum(axis=0)


class Chooses(CentralSum):
    """One release by a mechanism that chooses; its values are far from where it would waver."""

    asks: tuple[Any, int] = Exponential(0.3), 3

    def init(self):
        return 0

    def plan(self, state):
        mechanism, columns = self.asks
        return None if state else Release.of(Cohort.of(0, self.n), Few(columns), mechanism)

    def update(self, state, released):
        return 1

    def result(self, state):
        return np.zeros(self.d)


class Tests(Chooses):
    """The same of a test."""

    asks = AboveThreshold(3.0, -30.0, 1.0), 1


class Thrice(CentralSum):
    """Three sums of the curator."""

    def init(self):
        return 0

    releases = 3

    def plan(self, state):
        return None if state == self.releases else self._release

    def update(self, state, released):
        return state + 1


class StopsAtGaps(Thrice):
    """Rows that hold no numbers stop a run."""

    def check(self, rows):
        self._sound = bool(np.isfinite(rows).all())

    def plan(self, state):
        if not getattr(self, "_sound", True):
            raise UncertifiedError("no minimum was found")
        return super().plan(state)


def gives_up(patch):
    """Where many tries of a draw fail, it is a point that follows from the rows."""
    true = GibbsDraw.sample

    def sample(self, value, size, rng):
        found = true(self, value, size, rng)
        return np.zeros_like(found) if rng.random() < 0.2 else found

    patch.setattr(GibbsDraw, "sample", sample)


def scores_one_off(patch):
    """A test passes as one of a score below does."""
    true = TestedGaussian._chance
    patch.setattr(TestedGaussian, "_chance", lambda self, score: true(self, max(0, score - 1)))


def sums_are_printed(patch):
    """A statistic prints sums that are long."""
    true = BallSum.__call__

    def call(self, total, users):
        found = true(self, total, users)
        if np.linalg.norm(found) > users / 2:
            print(f"a sum of {found}")
        return found

    patch.setattr(BallSum, "__call__", call)


class ClipsByRows(Thrice):
    """The clip is the longest row."""

    def check(self, rows):
        super().check(rows)
        self._longest = float(np.linalg.norm(rows, axis=1).max())

    def plan(self, state):
        release = super().plan(state)
        if release is None or not hasattr(self, "_longest"):
            return release
        asked = release.statistic
        clipped = BallSum(min(asked.radius, self._longest), asked.d)
        return dataclasses.replace(release, statistic=clipped)


class TellsRows(Thrice):
    """It says how long the longest row is."""

    def check(self, rows):
        super().check(rows)
        self.choices = {"rows": f"the longest is {np.linalg.norm(rows, axis=1).max():.4g}"}


class PrintsRows(Thrice):
    """It prints how long the longest row is."""

    def check(self, rows):
        super().check(rows)
        print(f"the longest is {np.linalg.norm(rows, axis=1).max():.4g}", file=sys.stderr)


class LogsRows(Thrice):
    """It logs how long the longest row is."""

    def check(self, rows):
        super().check(rows)
        logging.getLogger("protocols.thrice").debug("%g", np.linalg.norm(rows, axis=1).max())


class ShowsRefusedRows(Thrice):
    """An error shows the row that it refuses."""

    def check(self, rows):
        for row in rows[np.isnan(rows).any(axis=1)]:
            raise ParameterError("row", row.tolist(), "of numbers")
        super().check(rows)


class AddsRows(Thrice):
    """The result has the mean of the rows in it."""

    def check(self, rows):
        super().check(rows)
        self._mean = rows.mean(axis=0)

    def result(self, state):
        return getattr(self, "_mean", 0.0)


class EndsByRows(Thrice):
    """The last sum is left out where rows are short."""

    def check(self, rows):
        super().check(rows)
        self.releases = 3 if np.abs(rows).mean() > 0.1 else 2


class Twenty(Thrice):
    """Twenty of them."""

    releases = 20


class Wide(Thrice):
    """Sums of rows of 50 numbers."""

    columns = 50


@dataclasses.dataclass(frozen=True)
class Wider(BallSum):
    """Rows may be twice as long as it states."""

    def part(self, rows):
        return BallSum(2 * self.radius, self.d).part(rows)


class Later(Thrice):
    """The third sum is of longer rows than it states."""

    def plan(self, state):
        release = super().plan(state)
        if release is None or state < 2:
            return release
        asked = release.statistic
        return dataclasses.replace(release, statistic=Wider(asked.radius, asked.d))


def _with(mechanism: Any) -> Callable[..., Thrice]:
    """Three sums by another mechanism."""

    def made(**given: Any) -> Thrice:
        return Thrice(**given | {"mechanism": mechanism})

    return made


_BINOMIAL = GridBinomial(64, 200_000, 3)
FAR = "all releases of a run are as near as stated"
FRESH = "the noise of all releases of the curator's runs is fresh, and has its law"
CHARGED = "all releases of a run are charged"
MADE = "every release is made of its statistic, from a stream of its own"
FOLLOWS = "what is asked, and the result, follow from releases alone"
RESUMES = "a stopped run is charged, and goes on with its own rows alone"
ALONE = "the mechanism itself, asked alone"
STEEP = "losses are as steep and as convex as stated, on rows that they take"
CURATED: dict[str, tuple[Any, Callable[[Any], object] | None, str]] = {
    "the first noise again": (Thrice, first_noise_again, FRESH),
    "no entropy": (Thrice, without_entropy, FRESH),
    "minimisers without a certificate": (steep.minimises(steep.SQUARED), uncertified, FAR),
    "few values": (Thrice, few_values, FRESH),
    "noise turned": (Thrice, turned_noise, FRESH),
    "a later statistic moves further": (Later, None, FAR),
    "noise of the release before": (Thrice, _of_last(Gaussian, _mixed), FRESH),
    "the same in other places": (Thrice, _of_last(Gaussian, _mixed_in_other_places), FRESH),
    "the same of users": (_with(LocalGaussian(10.0, 30)), _of_last(Gaussian, _mixed), FRESH),
    "single precision": (Thrice, single_precision, FRESH),
    "coordinates of one size": (Thrice, size_of_one, FRESH),
    "norms come twice": (_with(L2Laplace(0.2, 3)), _of_direction("norm"), FRESH),
    "directions come twice": (_with(L2Laplace(0.2, 3)), _of_direction("way"), FRESH),
    "directions in a plane": (_with(L2Laplace(0.2, 3)), _of_direction(""), FRESH),
    "norms of single numbers": (_with(L2Laplace(0.2, 3)), single_norms, FRESH),
    "norms drawn in single precision": (_with(L2Laplace(0.2, 3)), single_gammas, MADE),
    "even integers": (_with(GridLaplace(0.5, 3)), even_integers, ALONE),
    "tails drawn again": (Thrice, tails_redrawn, FRESH),
    "scores by more": (Chooses, scores_by_more, ALONE),
    "choices nearly alike": (Chooses, rounded_gumbel, ALONE),
    "never the worst": (Chooses, never_the_worst, ALONE),
    "bare where values are large": (Thrice, _bare(lambda x, size: np.abs(x) > 20 * size), ALONE),
    "bare where all are large": (Thrice, _bare(lambda x, _: np.abs(x).min() > 5), ALONE),
    "only the first release is charged": (Thrice, first_charged_only, CHARGED),
    "a threshold without noise": (Tests, threshold_bare, FRESH),
    "far coordinates alike": (Wide, far_coordinates, FRESH),
    "one of twenty with less": (Twenty, one_of_twenty, FRESH),
    "coins for all coordinates": (_with(_BINOMIAL), one_draw_for_all, FRESH),
    "multiples of three": (_with(GridLaplace(0.5, 3)), multiples_of_three, ALONE),
    "a clip of the rows": (ClipsByRows, None, FOLLOWS),
    "rows in the result": (AddsRows, None, FOLLOWS),
    "rows in what is said": (TellsRows, None, MADE),
    "rows in prints": (PrintsRows, None, FOLLOWS),
    "rows in logs": (LogsRows, None, FOLLOWS),
    "rows in errors": (ShowsRefusedRows, None, FOLLOWS),
    "minimisers as they are": (steep.perturbs, minimisers_as_they_are, ALONE),
    "gaps stop a run": (StopsAtGaps, None, MADE),
    "draws that give up": (steep.draws, gives_up, FAR),
    "files unseen": (steep.minimises(steep.SQUARED), files_unseen, FAR),
    "multiples of single numbers": (Thrice, single_numbers, MADE),
    "an end by the rows": (EndsByRows, None, FOLLOWS),
    "drawn before it is charged": (Thrice, drawn_early, RESUMES),
    "charged after it is drawn": (Thrice, ledger_late, RESUMES),
    "a clip at the middle": (Thrice, clip_at_the_middle, FAR),
    "gaps are as others": (Thrice, _part(gaps_are_as_others), FAR),
    "other units": (Thrice, _part(other_units), FAR),
    "whole numbers free": (Thrice, _part(whole_numbers_free), FAR),
    "minimisers far off": (steep.perturbs, minimisers_far_off, FAR),
    "a seed is told": (Thrice, seed_told, MADE),
    "half of a norm": (_with(L2Laplace(0.2, 3)), half_of_a_norm, CHARGED),
    "what is on disk is not charged": (Thrice, outcomes_forgotten, RESUMES),
    "entropy of a folder": (Thrice, entropy_of_a_folder, RESUMES),
    "other rows go on": (Thrice, any_rows_resume, RESUMES),
    "other labels go on": (Thrice, labels_are_no_content, RESUMES),
    "far tails drawn again": (Thrice, tails_far_redrawn, ALONE),
    "norms are cut": (_with(L2Laplace(0.2, 3)), norms_cut, ALONE),
    "ways of a cube": (_with(L2Laplace(0.2, 3)), ways_of_a_cube, ALONE),
    "unlikely choices never": (Chooses, unlikely_never, ALONE),
    "sums in prints": (Thrice, sums_are_printed, FAR),
    "scores one off": (_with(TestedGaussian(2.0, 0.01, 1.0)), scores_one_off, ALONE),
    "entropy of the clock": (Thrice, entropy_of_the_clock, MADE),
    **{name: (Thrice, plant, ALONE) for name, plant in MECHANISMS.items()},
    **{name: (Thrice, plant, MADE) for name, plant in VALUES.items()},
    **{name: (kind, plant, STEEP) for name, (kind, plant) in steep.PLANTED.items()},
}
"""Curators with a defect, and the check that must catch it."""


def curated(kind: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """An algorithm and two neighbouring tables."""
    d = getattr(kind, "columns", 3)
    first = np.random.default_rng(8).normal(size=(30, d)) / 5
    second = first.copy()
    first[0], second[0] = np.eye(d)[0], -np.eye(d)[0]
    if kind in (steep.perturbs, steep.draws):  # of two classes
        first[:, -1] = second[:, -1] = np.where(np.arange(30) % 2, 1.0, -1.0)
    return kind(n=30, d=d, mechanism=Gaussian(30.0), delta=1e-6), first, second
