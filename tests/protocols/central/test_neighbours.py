"""The neighbours that an audit looks at, and what is stated of Gaussian releases."""

import math

import numpy as np
import pytest

from protocols.central.person.gathering import gathered
from protocols.central.person.grouped_descent import PlainDescent
from protocols.comparison.games import game_of
from protocols.erm.extension import valid_records
from protocols.problems.surrogates import Clipped
from shuffle_sim import Privacy
from shuffle_sim.auditing import LawError, audit_central
from shuffle_sim.auditing.claims.curves import least_delta
from shuffle_sim.auditing.claims.empirical import exact_odds
from shuffle_sim.auditing.claims.neighbours import neighbours
from shuffle_sim.auditing.claims.stated import worst_of
from shuffle_sim.auditing.curator.curated import Runs
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.events import CarrySumEvent, GammaEvent, GaussianEvent
from shuffle_sim.privacy.ledger import Charge

USUAL = Privacy(1.0, 1e-6)


@pytest.mark.slow_parameters("output")
@pytest.mark.parametrize("name", ["output", "central-sum"])
@pytest.mark.long
def test_one_parameter_is_no_false_alarm(name):
    """With d = 1 odds are atoms; roundings parted them, and audits showed three times epsilon."""
    made, tables = game_of(name, 300, 1, Privacy(1.0))
    found = audit_central(made, *tables["opposite"], repeats=2000, seed=1)
    assert found.passed
    assert 0.2 < found.empirical < 1.0 + 1e-9


def test_rows_of_classes_are_longer_with_either_label():
    made, tables = game_of("gaussian-gd", 40, 2, USUAL)
    first, second = tables["opposite"]
    seen = [data.rows(row, row + 1)[0] for row, data in neighbours(made, first, second)]
    for label in (-1.0, 1.0):
        lengths = [float(np.linalg.norm(row[:-1])) for row in seen if row[-1] == label]
        assert max(lengths) >= 1000


def test_persons_have_few_records_and_many():
    made, tables = game_of("phased-erm", 40, 2, USUAL)
    first, second = tables["opposite"]
    seen = {len(data.rows(row, row + 1)[0]) for row, data in neighbours(made, first, second)}
    assert seen == {1, 4}  # more do not count


def in_a_row(self, total, users):
    """What a person has beyond its records takes the places of those that others lack."""
    d, loss = self.start.size, self.slopes.loss
    rows, columns = gathered(total), self.slopes.loss.columns(self.start.size)
    kept = np.full((len(rows) * self.records, columns), np.nan)
    own = np.concatenate([PersonRows(row[None], columns).in_order for row in rows])[: len(kept)]
    kept[: len(own)] = own
    shape = len(rows), self.records, columns
    return np.asarray(self.iterates(valid_records(loss, d, kept).reshape(shape))[0])


@pytest.mark.full
def test_records_in_the_places_of_others_are_seen(monkeypatch):
    """Where all have one record less, a person of sixteen is counted four times."""
    made, tables = game_of("linear-time-phased-sgd", 200, 2, Privacy(1.0, 1e-6), records=4)
    Runs(made, *tables["opposite"], {}).distances()
    monkeypatch.setattr(PlainDescent, "__call__", in_a_row)
    many = property(lambda self: 4 * self.problem.records)
    monkeypatch.setattr(type(made), "most_records", many)
    with pytest.raises(LawError, match="apart"):
        Runs(made, *tables["opposite"], {}).distances()


def by_the_root(self, loss, margins, labels, norms):
    caps = self.clip / np.sqrt(np.maximum(norms, 1e-30))
    return np.clip(loss.derivative(margins, labels), -caps, caps)


def one_side(self, loss, margins, labels, norms):
    caps = self.clip / np.maximum(norms, 1e-30)
    return np.maximum(loss.derivative(margins, labels), -caps)


@pytest.mark.parametrize("planted", [None, by_the_root, one_side])
@pytest.mark.long
def test_clips_that_leave_rows_too_long_are_seen(planted, monkeypatch):
    made, tables = game_of("gaussian-gd", 60, 2, USUAL)
    runs = Runs(made, *tables["opposite"], {})
    if planted is None:
        runs.distances()
        return
    monkeypatch.setattr(Clipped, "_factors", planted)
    with pytest.raises(LawError, match="apart"):
        runs.distances()


def test_the_formula_of_gaussian_releases():
    history = (GaussianEvent(5.0), 3), (GaussianEvent(8.0), 1)
    mu = math.sqrt(3 / 25 + 1 / 64)
    for epsilon in (0.3, 1.0, 4.0):
        assert least_delta(history, epsilon) == pytest.approx(
            float(gaussian.delta_gdp(epsilon, np.array(mu))), rel=1e-9
        )
    # Others only add to them.
    assert least_delta((*history, (GammaEvent(1.0, 3), 1)), 1.0) == least_delta(history, 1.0)


def _charges(event, count):
    return (Charge(Cohort.of(0, 10), event),) * count


def test_a_curve_that_states_less_is_seen(monkeypatch):
    charges = _charges(GaussianEvent(7.123), 3)
    assert worst_of(charges, 1e-6) > 0
    true = ShuffleAccountant.get_epsilon
    monkeypatch.setattr(
        ShuffleAccountant, "get_epsilon", lambda self, delta: 0.9 * true(self, delta)
    )
    with pytest.raises(LawError, match="delta is"):
        worst_of(charges, 1e-6)
    with pytest.raises(LawError, match="delta is"):
        worst_of(_charges(CarrySumEvent(10_000, 11.0), 2), 1e-6)


def test_infinite_odds_leave_their_share():
    rng = np.random.default_rng(1)
    odds = rng.normal(0.3, 1, 20_000)
    few, many = odds.copy(), odds.copy()
    few[:2], many[:4000] = np.inf, np.inf
    assert 0 < exact_odds(-odds, few, 1e-2) < 20
    assert exact_odds(-odds, many, 1e-2) == math.inf
