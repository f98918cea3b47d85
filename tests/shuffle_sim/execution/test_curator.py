"""The curator: charge before draw, the same bits everywhere, resumed runs, sessions, refusals."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from outside import installed
from rounds import records
from runs import run

from protocols import ScalarSum, VectorSum
from protocols.central.record.sums import BallSum, CentralSum
from protocols.learning.baselines import Baseline, ClippedMean
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.arrays import lengths
from shuffle_sim.auditing import LawError, check_variance
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated, Unit
from shuffle_sim.errors import CheckpointError, RoundAbortedError
from shuffle_sim.execution.checkpoint import Checkpoint
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.runtime import HostLostError
from shuffle_sim.privacy.events import GaussianEvent, NonPrivateEvent, PureEvent
from shuffle_sim.privacy.guarded_threshold import GuardedThreshold
from shuffle_sim.privacy.mechanisms import (
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    Noise,
    WithoutNoise,
)
from shuffle_sim.privacy.sparse_vector import PROOF, AboveThreshold
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.protocol.base import Protocol, Query
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity

N, D = 500, 3
PRIVACY = Privacy(1.0, 1e-6)
ROWS = np.random.default_rng(0).normal(size=(N, D)) / 2
ALGORITHM = CentralSum.calibrated(n=N, d=D, privacy=PRIVACY)


def clipped(rows, radius=1.0):
    return rows * np.minimum(1.0, radius / np.linalg.norm(rows, axis=1, keepdims=True))


class Rounds(CentralAlgorithm[tuple]):
    """Some releases of the same sum by one mechanism; `cohorts` one after the other."""

    def __init__(self, mechanism, times=3, cohorts=None, sessions=False):
        self.mechanism, self.times, self.sessions = mechanism, times, sessions
        self.cohorts = cohorts or [Cohort.of(0, N)] * times

    users = property(lambda self: N)
    delta = property(lambda self: 1e-6)

    def check(self, rows):
        assert rows.shape == (N, D)

    def init(self):
        return ()

    def plan(self, state):
        if len(state) == self.times:
            return None
        session = 0 if self.sessions and state else None
        statistic = BallSum(1.0) if isinstance(self.mechanism, Noise) else First()
        return Release.of(self.cohorts[len(state)], statistic, self.mechanism, session)

    def update(self, state, estimate):
        return (*state, estimate)

    def result(self, state):
        return np.array(state)


@dataclass(frozen=True)
class First(BallSum):
    """The first coordinate of the sum."""

    radius: float = 1.0

    def __call__(self, total, users):
        return float(total(self.part)[0])


# What a run gives


def test_a_central_run_gives_the_same_record_as_a_protocol():
    result = run(ALGORITHM, ROWS, seed=3)
    assert (result.trust, result.unit, result.rounds) == (Trust.CENTRAL, "record", 1)
    assert result.privacy.epsilon == pytest.approx(1.0, abs=1e-9)
    assert (result.reports.asked, result.reports.accepted) == (N, N)
    assert result.costs.payload_bits_per_user == 0
    assert "a trusted curator" in result.privacy.assumptions
    assert any("seeded" in note for note in result.privacy.assumptions)
    assert not result.private
    assert run(ALGORITHM, ROWS).private
    assert run(VectorSum(n=N, d=D, g=4, b=20), ROWS).trust is Trust.SHUFFLE


@pytest.mark.full
def test_the_release_has_its_variance_and_less_would_be_seen():
    made = CentralSum.calibrated(n=N, d=D, privacy=PRIVACY, mechanism="gaussian")
    errors = [run(made, ROWS, seed=s).value - clipped(ROWS).sum(axis=0) for s in range(700)]
    check_variance(errors, made.standard_error**2)
    with pytest.raises(LawError):
        check_variance(0.9 * np.array(errors), made.standard_error**2)


def test_pure_privacy_is_a_delta_of_0_end_to_end():
    pure = CentralSum.calibrated(n=N, d=D, privacy=Privacy(1.0))
    assert isinstance(pure.mechanism, L2Laplace)
    result = run(pure, ROWS)
    assert (result.privacy.epsilon, result.privacy.delta) == (1.0, 0.0)


def test_the_calibrated_sum_takes_the_smaller_noise():
    wide = CentralSum.calibrated(n=N, d=200, privacy=PRIVACY)
    for made in (ALGORITHM, wide):
        gaussian = CentralSum.calibrated(n=N, d=made.d, privacy=PRIVACY, mechanism="gaussian")
        assert made.error <= gaussian.error


def test_lengths_neither_overflow_nor_vanish():
    """As numpy's slow hypot, over all exponents; squares alone would be 0 or infinite (control)."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(700, 5)) * 10.0 ** np.arange(-320, 380).clip(-320, 307)[:, None]
    rows[5] = 0
    assert lengths(rows) == pytest.approx(np.hypot.reduce(rows, axis=1), rel=1e-14, abs=1e-322)
    with np.errstate(over="ignore"):
        squares = (rows**2).sum(axis=1)
    assert (squares == 0).sum() > 50
    assert np.isinf(squares).sum() > 50


def test_rows_not_finite_or_huge_count_as_members_of_the_ball():
    rows = np.zeros((4, 2))
    rows[0], rows[1], rows[2] = (np.nan, 1.0), (1e200, 1e200), (np.inf, 0.0)
    found = BallSum(1.0).part(rows)
    assert np.allclose(found, [math.sqrt(0.5)] * 2)


# The same bits


@pytest.mark.parametrize("trust", ["central", "local", "none"])
def test_a_baseline_releases_what_its_trust_says(trust):
    protocol = Baseline(rounds_of(), trust)
    result = run(protocol, labelled(), seed=1)
    event = NonPrivateEvent if trust == "none" else GaussianEvent
    assert {type(charge.event) for charge in result.ledger.charges} == {event}
    assert result.trust == trust


def rounds_of():
    from rounds import interactive

    return interactive()


def labelled():
    from rounds import rows

    return rows()


def test_a_clipped_mean_has_the_sensitivity_that_it_states():
    """Whatever the cohort: it divides by the users that it states, and clips where it says."""
    spec = rounds_of().plan(rounds_of().init())
    mean = Baseline(rounds_of(), "central").translated(spec).statistic
    assert isinstance(mean, ClippedMean)
    half = replace(mean, users=2 * mean.users)
    total = np.ones(3)
    assert np.array_equal(half(lambda part: total, mean.users), total / half.users)
    assert half.sensitivity.value == mean.sensitivity.value / 2
    with pytest.raises(ParameterError, match=r"^norm_bound = "):
        replace(mean, norm_bound=mean.norm_bound / 2)


@pytest.mark.parametrize("workers", [2, 5])
def test_any_number_of_workers_gives_the_same_bits(workers):
    alone = run(Rounds(Gaussian(3.0)), ROWS, seed=5, block_size=60)
    shared = run(Rounds(Gaussian(3.0)), ROWS, seed=5, block_size=60, workers=workers)
    assert alone.value.tobytes() == shared.value.tobytes()
    assert run(Rounds(Gaussian(3.0)), ROWS, seed=6).value.tobytes() != alone.value.tobytes()


@pytest.mark.long
def test_ray_workers_give_the_bits_of_one_process():
    alone = run(Rounds(Gaussian(3.0)), ROWS, seed=5, block_size=60)
    there = run(Rounds(Gaussian(3.0)), ROWS, seed=5, block_size=60, runtime="ray", workers=2)
    assert (there.value.tobytes(), there.runtime) == (alone.value.tobytes(), "ray")


def unit_rows(rng, count):
    return rng.normal(size=(count, D)) / 3


def plain_numbers(rng, count):
    return rng.normal(size=count)


def test_rows_that_are_made_when_asked_for_are_added_too():
    made = Generated(N, unit_rows, seed=4)
    result = run(CentralSum(n=N, d=D, mechanism=WithoutNoise()), made)
    assert np.allclose(result.value, clipped(made.rows(0, N)).sum(axis=0))


def test_a_cohort_is_all_that_a_release_sees():
    cohorts = [Cohort(((0, 7), (100, 333))), Cohort.of(490, 500)]
    result = run(Rounds(WithoutNoise(), 2, cohorts), ROWS, block_size=60)
    inside = clipped(ROWS)
    assert np.allclose(result.value[0], inside[:7].sum(axis=0) + inside[100:333].sum(axis=0))
    assert np.allclose(result.value[1], inside[490:].sum(axis=0))
    noisy = run(Rounds(Gaussian(3.0), 2, cohorts), ROWS)
    one = run(Rounds(Gaussian(3.0), 1, cohorts[:1]), ROWS)
    assert noisy.privacy.epsilon == one.privacy.epsilon  # disjoint cohorts, in parallel


# Shards that are lost


class Losing(InProcessRuntime):
    """Its shards are lost at some calls."""

    def __init__(self, calls):
        self.calls, self.made, self.count = calls, 0, 0

    def host(self, role, *arguments):
        self.made += 1
        return super().host(role, *arguments)

    def alive(self, host):
        return False

    def call(self, host, method, *arguments, many=(), returns=1):
        self.count += method == "parts"
        if method == "parts" and self.count in self.calls:
            raise HostLostError("gone")
        return super().call(host, method, *arguments, many=many, returns=returns)


def test_a_lost_shard_is_built_again_with_the_same_release():
    alone = run(Rounds(Gaussian(3.0)), ROWS, seed=5)
    losing = Losing({2, 3, 7})
    result = run(Rounds(Gaussian(3.0)), ROWS, seed=5, runtime=losing, workers=2)
    assert (result.value.tobytes(), losing.made) == (alone.value.tobytes(), 2 + 3 * 2)
    assert len(result.ledger.charges) == 3
    with pytest.raises(RoundAbortedError, match="gone") as caught:
        run(Rounds(Gaussian(3.0)), ROWS, runtime=Losing(range(1, 99)))
    assert len(caught.value.ledger.charges) == 1  # charged, so spent


# Nothing lost, nothing unrecorded


class StopError(Exception):
    """The process dies here."""


@dataclass(frozen=True)
class Counted(Gaussian):
    """Counts its draws, and dies before or after one of them."""

    dies: int = -1
    after: bool = False

    drawn = 0

    def sample(self, value, sensitivity, rng):
        type(self).drawn += 1
        if type(self).drawn == self.dies and not self.after:
            raise StopError
        released = super().sample(value, sensitivity, rng)
        if type(self).drawn == self.dies:
            raise StopError
        return released


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies", [1, 2, 3])
def test_a_run_killed_at_a_draw_resumes_with_the_same_release(dies, after, tmp_path):
    alone = run(Rounds(Gaussian(3.0)), ROWS, seed=5)
    Counted.drawn = 0
    algorithm = Rounds(Counted(3.0, dies, after))
    with pytest.raises(StopError) as caught:
        run(algorithm, ROWS, seed=5, checkpoint=tmp_path)
    assert any("spent until then" in note for note in caught.value.__notes__)
    assert len(records(tmp_path / FILE)) == 1 + 2 * (dies - 1) + 1  # the last charge is there
    Counted.drawn = dies  # the deaths are over
    resumed = run(algorithm, ROWS, seed=5, checkpoint=tmp_path, resume=True)
    assert resumed.value.tobytes() == alone.value.tobytes()
    assert len(resumed.ledger.charges) == 3
    assert Counted.drawn == dies + 3 - (dies - 1)  # what was released is not drawn again


def test_a_released_run_is_never_drawn_again(tmp_path):
    first = run(Rounds(Counted(3.0)), ROWS, checkpoint=tmp_path)
    Counted.drawn = 0
    again = run(Rounds(Counted(3.0)), ROWS, checkpoint=tmp_path, resume=True)
    assert (again.value.tobytes(), Counted.drawn) == (first.value.tobytes(), 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 6}, "seed"),
        ({"data": ROWS + 1e-9}, "data"),
        ({"algorithm": Rounds(Gaussian(3.1))}, "algorithm"),
        ({"block_size": 7}, "block size"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change, named, tmp_path):
    how = {"algorithm": Rounds(Gaussian(3.0)), "data": ROWS, "seed": 5}
    run(**how, checkpoint=tmp_path)
    with pytest.raises(ParameterError, match=f"its {named} is"):
        run(**how | change, checkpoint=tmp_path, resume=True)


def test_a_full_disk_stops_the_run_before_its_next_draw(tmp_path, monkeypatch):
    kept, Counted.drawn = Checkpoint._append, 0

    def full(self, body, what):
        if what.startswith("the charge") and Counted.drawn == 1:
            raise CheckpointError("full")
        kept(self, body, what)

    monkeypatch.setattr(Checkpoint, "_append", full)
    with pytest.raises(CheckpointError):
        run(Rounds(Counted(3.0)), ROWS, seed=5, checkpoint=tmp_path)
    assert Counted.drawn == 1


def test_a_draw_before_its_charge_would_be_caught(tmp_path, monkeypatch):
    """The check of the tests above: on disk there is a charge for every draw."""
    monkeypatch.setattr(Checkpoint, "charge", lambda self, charge: None)
    Counted.drawn = 0
    with pytest.raises(StopError):
        run(Rounds(Counted(3.0, 2)), ROWS, seed=5, checkpoint=tmp_path)
    assert len(records(tmp_path / FILE)) != 1 + 2 * 1 + 1


# Sessions


def test_a_session_is_charged_once_and_has_one_threshold():
    above = AboveThreshold(0.5, -1e6, 2.0)
    result = run(Rounds(above, 5, sessions=True), ROWS, seed=2)
    assert result.value.tolist() == [True] * 5
    (charge,) = result.ledger.charges
    assert charge.event == PureEvent(0.5, PROOF)
    assert 0.4999 < result.privacy.epsilon <= 0.5


@dataclass(frozen=True)
class Noted(AboveThreshold):
    """Notes the number that comes first from each generator."""

    def sample(self, value, sensitivity, rng, opened=None):
        NOTED.append((opened.laplace(), rng.laplace()))
        return True


NOTED: list[tuple[float, float]] = []


def test_every_query_of_a_session_sees_the_same_threshold():
    NOTED.clear()
    run(Rounds(Noted(0.5, 0.0, 2.0), 4, sessions=True), ROWS)
    assert (len({level for level, _ in NOTED}), len({noise for _, noise in NOTED})) == (1, 4)


def test_a_session_ends_with_the_first_query_below():
    with pytest.raises(ParameterError, match="session"):
        run(Rounds(AboveThreshold(0.5, 1e6, 2.0), 3, sessions=True), ROWS)


@pytest.mark.parametrize("asked", [2, 3])
def test_a_session_answers_as_many_queries_as_were_paid_for(asked):
    guarded = Rounds(GuardedThreshold(0.5, -1e6, 2.0, 2, 1e-7), asked, sessions=True)
    if asked == 2:
        assert run(guarded, ROWS).value.tolist() == [True] * 2
        return
    with pytest.raises(ParameterError, match="queries = 3: must be at most 2"):
        run(guarded, ROWS)


@dataclass(frozen=True)
class CountedOn(BallSum):
    """The sum over so many users, whose sensitivity counts on them."""

    radius: float = 1.0
    users: int = N


@pytest.mark.parametrize("size", [N, N // 2])
def test_a_statistic_is_of_as_many_users_as_it_counts_on(size):
    gaussian = Gaussian(2.0)
    made = Listed(Release.of(Cohort.of(0, size), CountedOn(), gaussian))
    if size == N:
        run(made, ROWS)
        return
    with pytest.raises(ParameterError, match="statistic"):
        run(made, ROWS)


def test_a_session_that_nobody_opened_is_refused():
    class Unopened(Rounds):
        def plan(self, state):
            return Release.of(Cohort.of(0, N), First(), AboveThreshold(0.5, 0.0, 2.0), 7)

    with pytest.raises(ParameterError, match="session"):
        run(Unopened(None), ROWS)


class Listed(Rounds):
    """These releases, one after the other."""

    def __init__(self, *releases):
        super().__init__(None, len(releases))
        self.releases = releases

    def plan(self, state):
        return self.releases[len(state)] if len(state) < self.times else None


def query(epsilon=0.5, users=N, session=None):
    return Release.of(Cohort.of(0, users), First(), AboveThreshold(epsilon, -1e6, 2.0), session)


@pytest.mark.parametrize(
    "releases",
    [
        (query(session=0),),
        (query(), query(1e6, session=0)),
        (query(users=1), query(session=0)),
        (query(), query(), query(0.1, session=1)),
    ],
    ids=["its own", "less noise", "other users", "a second session"],
)
def test_a_query_that_no_charge_paid_for_is_refused(releases):
    with pytest.raises(ParameterError, match=r"^session = ") as caught:
        run(Listed(*releases), ROWS)
    assert len(caught.value.ledger.charges) == len(releases) - 1


def test_two_sessions_may_be_interleaved(tmp_path):
    releases = [query(), query(0.25), query(session=0), query(0.25, session=1), query(session=0)]
    result = run(Listed(*releases), ROWS, checkpoint=tmp_path)
    paid = [charge.event for charge in result.ledger.charges]
    assert paid == [PureEvent(0.5, PROOF), PureEvent(0.25, PROOF)]
    again = run(Listed(*releases), ROWS, checkpoint=tmp_path, resume=True)
    assert (again.value.tolist(), again.privacy) == (result.value.tolist(), result.privacy)


# What is released


@dataclass(frozen=True)
class Given(Mechanism):
    """Releases what it is told; not private."""

    norm = "l2"
    kind: str
    event = property(lambda self: NonPrivateEvent())

    def sample(self, value, sensitivity, rng):
        return {
            "truth": np.bool_(True),
            "index": np.int64(3),
            "number": np.float64(0.5),
            "scalar": np.array(0.5),
            "whole": np.arange(3),
            "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "pair": (1, np.ones(2)),
        }[self.kind]


def shown(value):
    flags = getattr(value, "flags", None)
    inner = [shown(each) for each in value] if isinstance(value, tuple) else repr(value)
    return type(value), inner, flags is not None and (flags.writeable, flags.c_contiguous)


@pytest.mark.parametrize("kind", ["truth", "index", "number", "scalar", "whole", "columns", "pair"])
def test_a_resumed_run_sees_the_very_values_of_the_first(kind, tmp_path):
    class Seen(Listed):
        def update(self, state, estimate):
            SEEN.append(shown(estimate))
            return (*state, estimate)

        def result(self, state):
            return state

    SEEN.clear()
    algorithm = Seen(Release.of(Cohort.of(0, N), BallSum(1.0), Given(kind)))
    for how in ({}, {"checkpoint": tmp_path}, {"checkpoint": tmp_path, "resume": True}):
        run(algorithm, ROWS, **how)
    assert SEEN[0] == SEEN[1] == SEEN[2]


SEEN: list[object] = []


# What is refused, before any draw


@dataclass(frozen=True)
class Unplain(BallSum):
    """A statistic that has no canonical bytes."""

    more: object = print


@pytest.mark.parametrize(
    ("release", "named"),
    [
        ("sum", "release"),
        (Release.of(Cohort.of(0, N), Unplain(1.0), Gaussian(1.0)), "release"),
    ],
)
def test_what_is_no_release_is_refused_before_the_charge(release, named):
    with pytest.raises(ParameterError, match=f"^{named} = ") as caught:
        run(Listed(release), ROWS)
    assert caught.value.ledger.charges == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"adversary": Dropout(0.1)}, "adversary"),
        ({"security": "onion"}, "security"),
        ({"shuffler_shards": 2}, "shuffler_shards"),
        ({"fidelity": "literal"}, "fidelity"),
        ({"kernel": "numpy"}, "kernel"),
        ({"workers": N + 1}, "workers"),
        ({"resume": True}, "resume"),
    ],
)
def test_options_of_messages_are_refused_by_name(options, named):
    with pytest.raises(ParameterError, match=f"^{named} = "):
        run(ALGORITHM, ROWS, **options)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (
            lambda: CentralSum.calibrated(n=N, d=D, privacy=Privacy(1.0), mechanism="gaussian"),
            "delta",
        ),
        (lambda: CentralSum.calibrated(n=N, d=D, privacy=PRIVACY, mechanism="none"), "mechanism"),
        (lambda: CentralSum(n=N, d=0, mechanism=WithoutNoise()), "d"),
        (lambda: Release(Cohort.of(0, N), BallSum(1.0), None, Gaussian(1.0)), "sensitivity"),
        (lambda: Release(Cohort.of(0, N), BallSum(1.0), 2.0, Gaussian(1.0)), "sensitivity"),
        (
            lambda: Release(
                Cohort.of(0, N), BallSum(1.0), Sensitivity(2.0, "l1", "-"), Gaussian(1.0)
            ),
            "sensitivity",
        ),
        (lambda: Release.of(Cohort.of(0, N), BallSum(1.0), "gaussian"), "mechanism"),
        (lambda: Release.of((0, N), BallSum(1.0), Gaussian(1.0)), "cohort"),
        (lambda: Release.of(Cohort.of(0, N), BallSum(1.0), Gaussian(1.0), session=0), "session"),
        (lambda: Sensitivity(0.0, "l2", "-"), "sensitivity"),
        (lambda: Baseline(rounds_of(), "shuffle"), "trust"),
        (lambda: Baseline(ScalarSum(n=9, g=2, b=3), "central"), "optimiser"),
        (lambda: run(ALGORITHM, ROWS[:10]), "data.shape"),
        (lambda: run(ALGORITHM, ROWS[:, :2]), "data.shape"),
        (lambda: run("sum", ROWS), "algorithm"),
    ],
)
def test_bad_input_is_named(make, named):
    with pytest.raises(ParameterError) as caught:
        make()
    assert caught.value.parameter == named


def test_users_that_do_not_exist_are_refused_before_the_charge():
    class Beyond(Rounds):
        def plan(self, state):
            return Release.of(Cohort.of(0, N + 1), BallSum(1.0), Gaussian(1.0))

    with pytest.raises(ParameterError, match="cohort") as caught:
        run(Beyond(None), ROWS)
    assert caught.value.ledger.charges == ()


@pytest.mark.parametrize("typed", [Sensitivity(1.9, "l2", "-"), Sensitivity(9.0, "l1", "-")])
def test_a_sensitivity_typed_by_hand_is_refused_before_the_charge(typed):
    """Noise is scaled by it, and the charge is not."""

    class Typed(Rounds):
        def plan(self, state):
            if state:
                return None
            mechanism = self.mechanism if typed.norm == "l2" else Laplace(1.0)
            return Release(Cohort.of(0, N), BallSum(1.0), typed, mechanism)

    with pytest.raises(ParameterError, match=r"^sensitivity = ") as caught:
        run(Typed(Gaussian(1.0)), ROWS)
    assert caught.value.ledger.charges == ()


@dataclass(frozen=True)
class OfPersons(BallSum):
    """The sum of the persons' mean records."""

    def part(self, rows):
        return super().part(rows.mean(axis=1))


@dataclass(frozen=True)
class Only(Query):
    """Asks for the only number of a person."""

    def __call__(self, rows):
        return np.asarray(rows[:, 0, 0])


class Flat(ScalarSum):
    """The sum of persons' only numbers."""

    @property
    def vocabulary(self):
        return (*super().vocabulary, Only)

    def plan(self, state):
        spec = super().plan(state)
        return None if spec is None else replace(spec, query=Only())


def test_the_guarantee_has_the_unit_of_the_data():
    algorithm = Listed(Release.of(Cohort.of(0, N), OfPersons(1.0), Gaussian(3.0)))
    persons = Persons.in_memory(np.ones((N, 4, D)))
    assert run(algorithm, persons).unit is Unit.PERSON
    assert run(ALGORITHM, ROWS).unit is Unit.RECORD
    alone = Persons.in_memory(ROWS.clip(0, 1)[:, None, :1])
    shuffled = run(Flat(n=N, g=4, b=20), alone)
    assert (shuffled.unit, shuffled.promised.unit) == (Unit.PERSON, Unit.PERSON)
    algorithm.unit = Unit.PERSON
    with pytest.raises(ParameterError, match=r"^data = 'record': must be of persons"):
        run(algorithm, ROWS)


@pytest.mark.parametrize(
    "data",
    [
        Persons.in_memory(np.ones((N, 4, D))),
        Persons.in_memory([np.ones((1 + at % 2, D)) for at in range(N)]),
        Generated(N, plain_numbers),
    ],
    ids=["persons", "ragged persons", "numbers"],
)
def test_rows_that_are_no_vectors_are_refused_before_the_charge(data):
    """Of persons' records, each column would be clipped apart: beyond the stated sensitivity."""
    with pytest.raises(ParameterError, match=r"^data.shape = ") as caught:
        run(CentralSum(n=N, d=D, mechanism=Gaussian(3.0)), data)
    assert not hasattr(caught.value, "__notes__")  # nothing is spent


def test_rows_that_a_statistic_cannot_read_are_refused():
    @dataclass(frozen=True)
    class Fourth(BallSum):
        def part(self, rows):
            return rows[:, 3].sum()

    release = Release.of(Cohort.of(0, N), Fourth(1.0), Gaussian(3.0))
    with pytest.raises(ParameterError, match=r"^data = \(1, 3\): must be rows that the") as caught:
        run(Listed(release), Generated(N, unit_rows))
    assert not hasattr(caught.value, "__notes__")


# A third party's

OUTSIDE = """
from protocols.central.record.sums import CentralSum

class Median(CentralSum):
    "Stands for an algorithm of somebody else."
"""


def test_a_central_algorithm_comes_by_an_entry_point_alone(tmp_path, monkeypatch):
    from shuffle_sim.registry import registered

    installed(tmp_path, monkeypatch, "somebody", OUTSIDE, algorithms={"median": "Median"})
    made = registered("algorithm", "median").calibrated(n=N, d=D, privacy=PRIVACY)
    assert run(made, ROWS).privacy.epsilon == pytest.approx(1.0, abs=1e-9)
    assert not isinstance(made, Protocol)


def test_a_release_that_protects_nobody_is_not_called_private():
    assert not run(CentralSum(n=N, d=D, mechanism=WithoutNoise()), ROWS).private


def test_rows_of_another_width_are_refused_before_the_charge():
    made = Generated(N, unit_rows, seed=4)
    with pytest.raises(ParameterError, match=r"data\.shape") as caught:
        run(CentralSum.calibrated(n=N, d=D + 1, privacy=PRIVACY), made)
    assert not (caught.value.ledger and caught.value.ledger.charges)
