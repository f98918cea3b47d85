"""A private choice of bounds: what a user sends, what the ledger has, what is chosen."""

import math

import numpy as np
import pytest

from protocols import CarryVectorSum
from protocols.selection import ChosenBounds
from protocols.selection.bounds import BINS, Bounded, MagnitudeBins, chosen, edges
from protocols.selection.budget import each_of, rest, spends
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import dense
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.protocol.base import Datum

PRIVACY = Privacy(1.0, 1e-6)
EXTREMES = (0.0, -0.0, 1e-300, -1e-300, 1.0, -1.0, 3.7, -3.7, 1e12, 1e100, -1e100)


def row_map(columns: int, free: list[int] | None = None) -> RowMap:
    ends, places = np.full(columns, np.inf), np.array(free or range(columns), np.int64)
    factor = np.ones(columns)
    reach = np.full(len(places), columns**-0.5)
    return RowMap(-ends, ends, np.zeros(columns), factor, places, reach)


def a_sum(n: int, d: int, noise_ratio: float = 1.1):
    return lambda left: CarryVectorSum.calibrated(n=n, d=d, privacy=left, noise_ratio=noise_ratio)


def bounded_sum(n: int, d: int, privacy: Privacy = PRIVACY, **given) -> ChosenBounds:
    by = row_map(d)
    return ChosenBounds.calibrated(a_sum(n, d), n=n, by=by, privacy=privacy, **given)


def longest(query) -> float:
    """Of the answers to rows of every kind."""
    rng = np.random.default_rng(1)
    rows = rng.choice(EXTREMES, (200, 3)) * rng.choice([1.0, 1e-9, 1e6], (200, 3))
    return float(np.linalg.norm(dense(query(rows)), axis=1).max())


def test_no_answer_to_the_histogram_exceeds_the_norm_bound():
    class TooLong(MagnitudeBins):
        def __call__(self, rows):
            return 1.1 * dense(super().__call__(rows))

    places = np.arange(3)
    assert longest(MagnitudeBins(places)) <= 1 + 1e-12
    assert longest(TooLong(places)) > 1.09  # the planted defect is seen


@pytest.mark.parametrize("value", EXTREMES)
def test_every_number_lies_in_its_bin(value):
    answer = dense(MagnitudeBins(np.array([0]))(np.array([[value]])))[0]
    assert np.count_nonzero(answer) == answer.max() == 1
    at, ends = int(answer.argmax()), edges()
    assert ends[at] <= np.clip(value, ends[0], ends[-1]) <= ends[at + 1]


def test_what_is_no_number_makes_the_answer_not_finite():
    answers = dense(MagnitudeBins(np.arange(2))(np.array([[math.nan, 1.0], [1.0, 2.0]])))
    assert np.isfinite(answers).all(axis=1).tolist() == [False, True]


@pytest.mark.full
def test_the_histogram_has_its_noise_and_less_is_noticed():
    n, runs = 1000, 12
    made = bounded_sum(n, 1, Privacy(4.0, 1e-6), share=0.5)
    spec = made.plan(made.init())
    answers = dense(spec.query(np.random.default_rng(0).uniform(1, 2, (n, 1))))
    off = np.array([run(made.histogram, answers, seed=seed).value for seed in range(runs)])
    spread = float((((off - answers.sum(axis=0)) / made.histogram.standard_error) ** 2).mean())
    # 1,464 numbers: five deviations of the mean of their squares are 0.185.
    assert abs(spread - 1) < 0.185
    for defect in (0.85, 1.15):  # noise that much smaller or larger
        assert abs(spread * defect**2 - 1) > 0.185


def test_the_ledger_has_every_round_and_keeps_epsilon():
    made = bounded_sum(3000, 2, share=0.3)
    found = run(made, np.random.default_rng(0).uniform(18, 90, (3000, 2)), seed=1)
    assert found.rounds == len(found.ledger.charges) == made.rounds == 2
    assert 0.9 < found.privacy.epsilon <= 1.0
    assert found.privacy.epsilon == pytest.approx(spends(made))
    assert not found.ledger.sequentially_interactive
    # The planted defect: the sum gets the whole budget, as if the histogram were free.
    free = ChosenBounds(a_sum(3000, 2)(PRIVACY), made.histogram, made.by, 2, made.part)
    assert spends(free) > 1.02


def test_shares_compose_as_gaussians_do():
    half = each_of(PRIVACY, 2)
    assert rest(PRIVACY, half).epsilon == pytest.approx(half.epsilon)
    assert rest(PRIVACY, Privacy(0.2, 1e-6)).epsilon > 0.97  # a fifth of epsilon costs little


def test_bounds_hold_the_people_and_the_sum_is_right():
    n = 8000
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.uniform(18, 90, n), rng.normal(0, 3, n)])
    made = bounded_sum(n, 2)
    found = run(made, rows, seed=3).value
    assert (found.low[0], found.high[0]) == (16, 128)
    assert found.low[1] < -3 < 3 < found.high[1]
    middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    inside = np.clip(rows, found.low, found.high).mean(axis=0)
    means = middle + half * np.sqrt(2) * found.value / found.reports
    error = half * np.sqrt(2) * a_sum(n, 2)(PRIVACY).standard_error / n
    assert (np.abs(means - inside) < 5 * error).all()


def test_noise_alone_is_rarely_taken_for_people():
    made = bounded_sum(8000, 2)
    deviation = made.histogram.standard_error * math.sqrt(2)
    noise = np.random.default_rng(0).normal(0, deviation, (2000, BINS))
    wrong = (noise >= made.least).any(axis=1).mean()
    assert wrong < 0.004  # at most 0.0005 a column is meant: 2,000 columns give 8 with chance 1e-5
    assert (noise >= made.least / 2).any(axis=1).mean() > 0.5  # half the threshold would be seen


def test_where_no_bin_is_full_the_fullest_is_taken():
    counts = np.zeros((1, BINS))
    counts[0, BINS - 1] = 3.0
    low, high = chosen(counts, 10.0)
    assert (low[0], high[0]) == (edges()[-2], edges()[-1])


def test_columns_with_bounds_stay_as_they_are():
    by = row_map(3, [1])
    query = Bounded.of(Datum(), by.bounded(np.array([-1.0]), np.array([3.0])))
    mapped = dense(query(np.array([[5.0, 9.0, -7.0], [5.0, 1.0, -7.0]])))
    assert mapped[0].tolist() == pytest.approx([5.0, 3**-0.5, -7.0])
    assert mapped[1].tolist() == pytest.approx([5.0, 0.0, -7.0])


@pytest.mark.parametrize("share", [0.0, 1.0, -1, math.nan, "half"])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(ParameterError, match="choose_bounds"):
        bounded_sum(3000, 2, share=share)


def test_too_few_users_are_refused_before_anything_is_spent():
    with pytest.raises(ParameterError, match="bin is told from noise from some"):
        bounded_sum(60, 3)
    by = row_map(2).bounded(np.zeros(2), np.ones(2))
    with pytest.raises(ParameterError, match="every column has bounds"):
        ChosenBounds.calibrated(a_sum(3000, 2), n=3000, by=by, privacy=PRIVACY)


def test_rows_that_do_not_suit_are_refused_unspent():
    made = bounded_sum(3000, 2)
    for rows in (np.zeros((3000, 3)), np.full((3000, 2), math.inf), np.zeros((2999, 2))):
        with pytest.raises(ParameterError, match="data"):
            run(made, rows)
