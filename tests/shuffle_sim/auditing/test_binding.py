"""What is charged is what is sent: the event of a round is bound to its randomizer."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from protocols import CarryVectorSum, ScalarSum, ShuffleSGD, SplitAndMixSum, VectorSum
from protocols.problems import L2Ball, Logistic, Problem, RealSpace
from protocols.shuffle import OneShotAverage
from protocols.shuffle.one_shot import CertifiedMinimiser
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from shuffle_sim import Guarantee, ParameterError, Privacy, run
from shuffle_sim.arrays import dense
from shuffle_sim.auditing import LawError, check_protocol
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.persons import Persons
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import BinomialSumEvent, PrivacyEvent
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Datum, Query, RoundSpec
from shuffle_sim.protocol.binding import UNCHECKED, UNCONFIRMED, checked_event

N = 200
ROWS = np.random.default_rng(0).random(N)


class Claiming(ScalarSum):
    """A sum whose plan is changed by a function."""

    def __init__(self, change: Any) -> None:
        super().__init__(n=N, g=4, b=11)
        self.change = change

    def plan(self, state):
        spec = super().plan(state)
        return None if spec is None else self.change(spec)


def fewer_bits(spec: RoundSpec) -> RoundSpec:
    return replace(spec, randomizer=BinomialRandomizer(1, 4, 1, 0.5, 0.0, 1.0))


def event(**changed: Any) -> Any:
    return lambda spec: replace(spec, event=replace(spec.event, **changed))


@pytest.mark.parametrize(
    "change",
    [
        fewer_bits,
        event(bits=22),
        event(steps=2),
        event(p=0.4),
        event(honest=N + 1),
        event(honest=10**9),
        event(coordinates=2),
        lambda spec: replace(spec, event=BinomialSumEvent(10**9, 100, 0.5, 1)),
        lambda spec: replace(spec, cohort=Cohort.of(0, N // 2)),
    ],
)
def test_an_event_not_the_randomizers_is_refused_uncharged(change, monkeypatch):
    charged: list[Any] = []
    monkeypatch.setattr(PrivacyLedger, "charge", lambda *given: charged.append(given))
    with pytest.raises(ParameterError, match=r"event = .*that of the randomizer"):
        run(Claiming(change), ROWS, seed=1)
    assert not charged
    with pytest.raises(LawError, match="round 0"):
        check_protocol(Claiming(change), ROWS)


def test_an_event_with_fewer_honest_users_costs_more():
    found = run(Claiming(event(honest=N // 2)), ROWS, seed=1).promised.epsilon
    assert found > run(Claiming(event()), ROWS, seed=1).promised.epsilon


def test_more_honest_users_than_assumed_are_refused():
    protocol = Claiming(event(honest=N))
    protocol.honest_fraction = 0.5
    with pytest.raises(ParameterError, match="honest=100"):
        run(protocol, ROWS)


@dataclass(frozen=True)
class Unknown(BinomialRandomizer):
    """A randomizer that derives no event."""

    def event(self, users: int, query: Query) -> PrivacyEvent | None:  # type: ignore[override]
        return None


class Stating(Claiming):
    """It states the event of another randomizer."""

    vocabulary = (Datum, Unknown)


def unknown(spec: RoundSpec) -> RoundSpec:
    return replace(spec, randomizer=Unknown(1, 4, 11, 0.5, 0.0, 1.0))


def test_an_event_that_cannot_be_checked_is_printed_as_such():
    result = run(Stating(unknown), ROWS, seed=1)
    assert UNCHECKED in result.privacy.assumptions
    assert UNCHECKED in result.promised.assumptions
    assert UNCHECKED not in run(Claiming(event()), ROWS, seed=1).privacy.assumptions
    with pytest.raises(LawError, match="not checked"):
        check_protocol(Stating(unknown), ROWS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BinomialRandomizer(2, 4, 9, 0.5, -1.0, 2.0).event(9, Datum()),
        lambda: BinomialRandomizer(2, 4, 9, 0.5, -1.0, 2.0, 1.5).event(9, Datum()),
        lambda: CarryRandomizer(2, 4.0, 2, 0, 1, -1.0, 2.0).event(9, Datum()),
    ],
)
def test_vectors_outside_the_ball_of_the_event_have_no_event(make):
    with pytest.raises(ParameterError, match=r"norm_bound = .*the ball whose event is charged"):
        make()


PRIVACY = Privacy(2.0, 1e-5)
AVERAGE = OneShotAverage.calibrated(
    n=N,
    records=40,
    problem=Problem(Logistic(), RealSpace(2), 0.1),
    privacy=Privacy(1.0, 1e-5),
    protects="record",
)


def epsilon(query: Query) -> float:
    """Of the randomizer of one-shot averages, beside a query."""
    derived = AVERAGE.total.randomizer.event(N, query)
    return ShuffleAccountant().compose(derived).get_epsilon(1e-5)


def test_noise_for_one_record_serves_the_whole_ball_alone():
    asked = AVERAGE.query
    assert epsilon(asked) <= 1.0
    assert epsilon(Datum()) > 10
    assert epsilon(replace(asked, moved=None)) == epsilon(Datum())  # of persons: any record
    weaker = replace(asked, ridge=0.05)
    moved = weaker.apart / asked.apart
    assert moved == pytest.approx(2, abs=0.2)
    assert epsilon(weaker) > 1.5 * epsilon(asked)


class Straying(OneShotAverage):
    """It asks what its noise does not protect, and states the event of what it should ask."""

    asks: Query = Datum()

    def plan(self, state):
        spec = super().plan(state)
        return None if spec is None else replace(spec, query=self.asks)


@pytest.mark.parametrize("asks", [replace(AVERAGE.query, ridge=0.01), Datum()])
def test_the_event_of_another_query_is_refused(asks):
    straying = Straying(
        n=N, records=40, problem=AVERAGE.problem, total=AVERAGE.total, protects="record"
    )
    straying.asks = asks
    spec = straying.plan(straying.init())
    assert spec is not None
    with pytest.raises(ParameterError, match=r"event = .*that of the randomizer and query"):
        checked_event(spec.event, spec.randomizer, spec.query, spec.cohort, 1.0)


@pytest.mark.parametrize("moved", [39, 41])
def test_what_a_query_proves_is_held_on_every_row(moved):
    rows = np.zeros((3, 40, 3))
    rows[..., -1] = 1.0
    assert dense(AVERAGE.query(rows)).shape == (3, 2)
    with pytest.raises(ParameterError, match=r"data\.shape"):
        replace(AVERAGE.query, moved=moved)(rows)
    before = dense(AVERAGE.query(rows))
    for value in (1.0, 1e9, np.nan):
        rows[1, 7, 0] = value
        found = np.linalg.norm(dense(AVERAGE.query(rows)) - before, axis=1)
        assert (value == 1.0) * 1e-3 < found[1] + 1e-9 <= AVERAGE.query.apart
        assert not found[[0, 2]].any()


class Boasts(CertifiedMinimiser):
    """It states a fiftieth of the distance that it proves."""

    apart = property(lambda self: AVERAGE.query.apart / 50)


class Boasting(Straying):
    """Its event is that of its query."""

    def plan(self, state):
        spec = super().plan(state)
        if spec is None:
            return None
        asked = Boasts(*(getattr(AVERAGE.query, name) for name in Boasts.__dataclass_fields__))
        event = spec.randomizer.event(N, asked)
        return replace(spec, query=asked, event=event)

    vocabulary = (Boasts, Logistic, BinomialRandomizer)


def test_a_query_that_moves_farther_than_it_states_is_found():
    rng = np.random.default_rng(1)
    rows = np.concatenate(
        [rng.normal(size=(N, 40, 2)) / 4, rng.choice([-1.0, 1.0], (N, 40, 1))], axis=2
    )
    rows[..., :2] /= np.maximum(1.0, np.linalg.norm(rows[..., :2], axis=2, keepdims=True))
    given = {"n": N, "records": 40, "problem": AVERAGE.problem, "total": AVERAGE.total}
    with pytest.raises(LawError, match="round 0: a record moves a value by"):
        check_protocol(Boasting(**given, protects="record"), rows)


class Longer(CertifiedMinimiser):
    """Its values are other ones than those whose distance is proven."""

    def __call__(self, rows):
        return 2 * dense(super().__call__(rows))


@pytest.mark.parametrize("kind", [CertifiedMinimiser, Boasts, Longer])
def test_a_guarantee_says_whose_word_on_a_distance_it_takes(kind):
    asked = kind(*(getattr(AVERAGE.query, name) for name in kind.__dataclass_fields__))
    own = kind is CertifiedMinimiser
    assert asked.believed() == (() if own else (asked.believed()[0],))

    class Asking(OneShotAverage):
        vocabulary = (kind, Logistic, BinomialRandomizer)

        def plan(self, state):
            spec = super().plan(state)
            if spec is None:
                return None
            event = spec.randomizer.event(N, asked)
            return replace(spec, query=asked, event=event)

    made = Asking(n=N, records=40, problem=AVERAGE.problem, total=AVERAGE.total, protects="record")
    rows = np.zeros((N, 40, 3))
    rows[..., -1] = 1.0
    said = "; ".join(run(made, Persons.in_memory(rows), seed=1).privacy.assumptions)
    assert ("no farther apart than it states: its author says so" in said) == (not own)


@dataclass(frozen=True)
class Asserts(Query):
    """A query that states how far its values move, as a field."""

    apart: float = 0.1

    def __call__(self, rows):
        return rows


class Asserting(Claiming):
    vocabulary = (Asserts, BinomialRandomizer)


def test_a_distance_that_is_a_field_is_refused():
    def change(spec: RoundSpec) -> RoundSpec:
        event = spec.randomizer.event(N, Asserts())
        return replace(spec, query=Asserts(), event=event)

    with pytest.raises(ParameterError, match=r"Asserts\.apart = .*computed"):
        run(Asserting(change), ROWS)


PROTOCOLS = [
    ScalarSum(n=N, g=4, b=11),
    VectorSum(n=N, d=3, g=4, b=11),
    CarryVectorSum.calibrated(n=N, d=3, privacy=PRIVACY, noise_ratio=1.5),
    SplitAndMixSum.calibrated(n=N, privacy=PRIVACY),
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: type(each).__name__)
def test_sums_keep_the_contract_of_protocols(protocol):
    vectors = np.random.default_rng(0).normal(size=(N, 3)) / 4
    check_protocol(protocol, ROWS if protocol.scalar else vectors)


def test_an_optimiser_keeps_the_contract_of_protocols():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(N, 3)) / 4, rng.choice([-1.0, 1.0], N)])
    problem = Problem(Logistic(), L2Ball(3, 1.0))
    check_protocol(ShuffleSGD.calibrated(problem=problem, n=N, privacy=PRIVACY, batch=50), rows)


class Impure(Claiming):
    """It plans another round each time."""

    asked = 0

    def plan(self, state):
        spec = super().plan(state)
        self.asked += 1
        return spec and replace(spec, minimum=self.asked)


@dataclass(frozen=True)
class Counting(Query):
    """A query that looks at other rows."""

    def __call__(self, rows):
        return rows - rows.mean()


class Crossing(Claiming):
    vocabulary = (Counting, BinomialRandomizer)


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        (Impure(event()), "planned again"),
        (Crossing(lambda spec: replace(spec, query=Counting())), "depends on other rows"),
    ],
)
def test_planted_faults_of_protocols_are_named(protocol, says):
    with pytest.raises(LawError, match=says):
        check_protocol(protocol, ROWS)


def test_a_claim_that_the_charges_do_not_confirm_is_not_stated():
    protocol = ScalarSum(n=100, g=4, b=12)
    charged = run(protocol, np.zeros(100), seed=1).privacy
    protocol._claim = Guarantee(charged.epsilon / 10, protocol.delta, basis="a wrong theorem")
    result = run(protocol, np.zeros(100), seed=1)
    for stated in (result.privacy, result.promised):
        assert stated.epsilon == charged.epsilon
        assert any(UNCONFIRMED in each for each in stated.assumptions)
        assert stated.basis == charged.basis
    protocol._claim = Guarantee(2 * charged.epsilon, protocol.delta, basis="a loose theorem")
    result = run(protocol, np.zeros(100), seed=1)
    assert result.privacy.basis == "a loose theorem"
