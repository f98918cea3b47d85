"""Histograms: laws of what is sent, estimates and their ranges, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy

from protocols import Histogram
from protocols.counts import plausible, with_known_total
from protocols.counts import randomizer as counting
from protocols.counts.pollution import Categories
from protocols.counts.randomizer import central_range, place
from protocols.counts.single import FixedBlanket, Obliged, Response, Unary
from protocols.counts.two_sided import TwoSided
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import cells
from shuffle_sim.sampling.exact import log_series, poisson

PRIVACY = Privacy(1.0, 1e-6)
ALARM = 1e-6  # of each statistical test
USERS = 6
SMALL: list[Any] = [
    Categories((3,), (2.5,), USERS, 40, 2, 0.2),
    Categories((3,), (1.5,), USERS, 40),
    TwoSided(3, 0.5, 0.8, USERS, 60, 2),
    Response(3, 1.0),
    FixedBlanket(3, 2),
]
XS = np.array([0.0, 0.0, 1.0, 2.0, 2.0, -1.0])


def fits(drawn, law):
    """Whether a sample of integers is of a law (values,): the p value of a chi-square test."""
    drawn, cells_ = np.asarray(drawn), []
    start, expected = 0, law * drawn.size
    while start < law.size:
        stop = start + 1
        while stop < law.size and expected[start:stop].sum() < 8:
            stop += 1
        cells_.append((start, stop))
        start = stop
    if len(cells_) > 1 and expected[slice(*cells_[-1])].sum() < 8:
        (first, _), (_, last) = cells_[-2:]
        cells_[-2:] = [(first, last)]
    seen = [int(((drawn >= low) & (drawn < high)).sum()) for low, high in cells_]
    wanted = np.array([law[low:high].sum() for low, high in cells_])
    return scipy.stats.chisquare(seen, wanted / wanted.sum() * sum(seen)).pvalue


def counts_of(randomizer, how, rng, repeats):
    """Counts of word 0 and of all messages in so many views."""
    found = []
    for _ in range(repeats):
        if how == "randomize":
            xs = randomizer.admit(XS)[0]
            words = np.concatenate([randomizer.randomize(x, rng).words for x in xs])
            found.append((int((words == 0).sum()), words.size))
        else:
            xs = randomizer.admit(XS)[0]
            tally = (
                randomizer.reports(xs, rng).tally()
                if how == "reports"
                else randomizer.tallied(xs, rng)
            )
            found.append((int(tally.dense(1)[0]), tally.messages))
    return np.array(found)


def law_of(randomizer: Any, users=USERS):
    """Exact law of the count of word 0: two users are in bin 0, noise is that of `users`."""
    two = np.array([0.0, 0.0, 1.0])
    if isinstance(randomizer, Categories):
        s = randomizer.kept_back
        own = scipy.stats.binom.pmf([0, 1, 2], 2, 1 - s)
        return np.convolve(randomizer.noise_law(0, users), own)
    if isinstance(randomizer, TwoSided):
        noise = scipy.stats.nbinom.pmf(np.arange(80), users / USERS, 1 - randomizer.decay)
        flood = cells.compound(randomizer.rate * users / USERS, cells.batches(randomizer.batch))
        return np.convolve(np.convolve(noise, flood), two)
    if isinstance(randomizer, FixedBlanket):
        three = np.array([0.0, 0.0, 0.0, 1.0])  # who is outside counts as 0
        return np.convolve(scipy.stats.binom.pmf(np.arange(40), 2 * users, 1 / 3), three)
    own = scipy.stats.binom.pmf([0, 1, 2, 3], 3, randomizer.kept)  # as there
    return np.convolve(own, scipy.stats.binom.pmf(np.arange(users - 2), users - 3, randomizer.lied))


@pytest.mark.full
@pytest.mark.parametrize("randomizer", SMALL, ids=lambda each: type(each).__name__)
def test_three_fidelities_have_the_exact_law(randomizer):
    rng = np.random.default_rng(5)
    law = law_of(randomizer)
    for how, repeats in (("randomize", 100), ("reports", 400), ("tallied", 700)):
        drawn = counts_of(randomizer, how, rng, repeats)
        assert fits(drawn[:, 0], law) > ALARM, how
        mean, sent = randomizer.usual_messages * USERS, drawn[:, 1]
        short = 1.0 if not isinstance(randomizer, Obliged) else 0.0  # one user is outside
        if isinstance(randomizer, Categories):
            short += randomizer.kept_back * 5
        error = max(float(sent.std()) / math.sqrt(repeats), 1e-9)
        assert abs(sent.mean() - (mean - short)) < 5.2 * error
    # Power: the noise of more users than there are is found.
    if not isinstance(randomizer, Response):
        assert fits(drawn[:, 0], law_of(randomizer, USERS + 4)) < ALARM


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 3])
def test_many_batches_have_the_same_law(batch, monkeypatch):
    """Where an aggregate draws them by place; both sides of the number at which it does.

    Power: the noise of a twentieth more users is found.
    """
    made = Categories((3,), (40.0,), USERS, 400, batch)
    law, rng = law_of(made), np.random.default_rng(6)
    for many in (1, 2**22):
        monkeypatch.setattr(counting, "_MANY", many)
        drawn = counts_of(made, "tallied", rng, 4000)[:, 0]
        assert fits(drawn, law) > ALARM
        assert fits(drawn, law_of(replace(made, rates=(42.0,)))) < ALARM


class Silent(FixedBlanket):
    """Sends no message of its own where the user has no category."""

    def admit(self, values):
        return place(values, self.bins)

    def reports(self, xs, rng):
        drawn = rng.integers(self.bins, size=(len(xs), self.each))
        words = np.hstack([xs.reshape(-1, 1).astype(np.int64), drawn])
        return self.singly(words[words >= 0], (words >= 0).sum(axis=1))


@pytest.mark.parametrize("randomizer", [*SMALL, Silent(3, 2)], ids=lambda each: type(each).__name__)
def test_how_many_messages_there_are_tells_of_nobody(randomizer):
    """A user in no bin, and one in bin 0: views may have the same numbers of messages."""
    rng = np.random.default_rng(6)

    def numbers(x):
        xs = randomizer.admit(np.array([x, *XS[:-1]]))[0]
        return {randomizer.tallied(xs, rng).messages for _ in range(300)}

    assert bool(numbers(-1.0) & numbers(0.0)) != isinstance(randomizer, Silent)


@pytest.mark.full
def test_a_blind_bin_is_found():
    """Power of the law of every bin: noise left out of one is caught, shared draws, too."""
    rng, randomizer = np.random.default_rng(3), SMALL[1]
    xs, law = randomizer.admit(XS)[0], randomizer.noise_law(0, USERS)
    drawn = np.array([randomizer.tallied(xs, rng).dense(3) for _ in range(3000)])
    noise = drawn - np.array([2, 1, 2])
    for at in range(3):
        assert fits(noise[:, at], law) > ALARM
    blind = noise.copy()
    blind[:, 2] = 0
    assert fits(blind[:, 2], law) < ALARM
    correlation = np.corrcoef(noise.T)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < 5.2 / math.sqrt(3000)
    shared = noise.copy()
    shared[:, 1] = shared[:, 0]
    assert np.abs(np.corrcoef(shared.T)[0, 1]) > 5.2 / math.sqrt(3000)


def test_unary_bits_have_their_chances():
    randomizer, rng = Unary(3, 1.0), np.random.default_rng(2)
    drawn = np.array([randomizer.tally(XS, rng) for _ in range(4000)])
    literal = np.array([randomizer.counts(XS, rng).sum(axis=0) for _ in range(4000)])
    for found in (drawn, literal):
        own = scipy.stats.binom.pmf([0, 1, 2], 2, 0.5)
        law = np.convolve(own, scipy.stats.binom.pmf(np.arange(5), 4, randomizer.lied))
        assert fits(found[:, 0], law) > ALARM


@pytest.mark.parametrize("mean", [0.3, 1.0, 4.7])
@pytest.mark.full
def test_exact_poisson_numbers(mean):
    rng = np.random.default_rng(8)
    drawn = [poisson(math.ceil(mean * 2**40), rng) for _ in range(2500)]
    law = scipy.stats.poisson.pmf(np.arange(40), mean)
    assert fits(drawn, law) > ALARM
    assert fits(drawn, scipy.stats.poisson.pmf(np.arange(40), 1.3 * mean)) < ALARM


def test_exact_log_series():
    drawn = log_series(0.4, 20_000, np.random.default_rng(9))
    law = np.concatenate([[0.0], scipy.stats.logser.pmf(np.arange(1, 60), math.exp(-0.4))])
    assert drawn.min() == 1
    assert fits(drawn, law) > ALARM


@pytest.mark.full
@pytest.mark.parametrize(
    "randomizer",
    [
        Categories((10_000,), (42.65866,), 20_000, 400),
        Categories((10_000,), (17.3,), 20_000, 400, 3),
        Categories((10_000,), (1.4935,), 20_000, 400, 1, 0.1),
        TwoSided(10_000, 0.6376, 16.46, 20_000, 20_000, 25),
    ],
    ids=["poisson", "batches", "kept back", "two-sided"],
)
def test_variances_are_those_stated(randomizer):
    rng, repeats = np.random.default_rng(4), 12
    xs = np.repeat(np.arange(4000.0), 5)
    found = [randomizer.estimate(randomizer.tallied(xs, rng)) for _ in range(repeats)]
    counts = np.bincount(xs.astype(int), minlength=10_000)
    errors = np.array(found) - counts
    stated = randomizer.variance(20_000, counts)
    for part in (slice(0, 4000), slice(4000, None)):  # 5 users in a bin, and none
        assert (errors[:, part] ** 2).mean() == pytest.approx(stated[part].mean(), rel=0.02)
    assert abs(errors.mean()) < 5 * math.sqrt(stated.mean() / errors.size)


@pytest.mark.parametrize(
    ("bins", "ends", "coverage"),
    [(1, (30, 56), 0.961891), (1000, (19, 72), 0.968327), (10**5, (14, 79), None)],
)
def test_ranges_of_poisson_noise(bins, ends, coverage):
    law = cells.compound(42.65453, cells.batches(1))
    beta = -math.expm1(math.log1p(-0.05) / bins)
    assert central_range(law, beta) == ends
    if coverage:
        inside = float(law[ends[0] : ends[1] + 1].sum())
        assert inside**bins == pytest.approx(coverage, abs=2e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "two-sided"},
        {"kept_back": 0.1},
        {"honest_fraction": 0.8},
        {"method": "fixed-blanket"},
    ],
    ids=str,
)
@pytest.mark.full
def test_ranges_hold_as_often_as_they_say(options):
    n, k = 500, 20
    repeats = 300 if options.get("method") != "two-sided" else 60
    histogram = Histogram.calibrated(n=n, categories=k, privacy=PRIVACY, **options)
    rng = np.random.default_rng(6)
    xs = rng.integers(0, k - 1, n).astype(float)
    true = np.bincount(xs.astype(int), minlength=k)
    each = together = 0.0
    for _ in range(repeats):
        value = histogram.randomizer.estimate(histogram.randomizer.tallied(xs, rng))
        for every in (False, True):
            found = histogram.interval(value, together=every)
            inside = (found.low <= true) & (true <= found.high)
            each, together = each + inside.mean() * (not every), together + inside.all() * every
    assert each / repeats > 0.95 - 5 * math.sqrt(0.05 / (repeats * k))
    assert together / repeats > 0.95 - 5 * math.sqrt(0.05 / repeats)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "error"},
        {"method": "two-sided"},
        {"max_messages": 1.0},
        {"method": "unary"},
        {"method": "fixed-blanket"},
        {"honest_fraction": 0.9},
    ],
    ids=str,
)
@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.full
def test_runs_promise_what_was_asked(options, fidelity):
    n, k = 3000, 12
    histogram = Histogram.calibrated(n=n, categories=k, privacy=PRIVACY, **options)
    xs = np.arange(n) % k
    result = run(histogram, xs, fidelity=fidelity, seed=1)
    assert result.value.shape == (k,)
    assert result.privacy.epsilon <= 1.0 + 1e-9
    assert result.privacy.delta == 1e-6
    errors = result.value - n / k
    assert np.abs(errors).max() < 7 * math.sqrt(histogram.variance(n / k))
    if fidelity != "aggregate" and not isinstance(histogram.randomizer, Unary):
        spread = max(0.1, histogram.messages_per_user - 1)
        sent = result.costs.messages_per_user
        assert sent == pytest.approx(histogram.messages_per_user, abs=8 * spread / math.sqrt(n) * 5)


def test_literal_runs_are_the_same_in_processes():
    histogram = Histogram.calibrated(n=4000, categories=10, privacy=PRIVACY)
    xs = np.arange(4000) % 10
    alone = run(histogram, xs, fidelity="literal", seed=3)
    parallel = run(histogram, xs, fidelity="literal", seed=3, runtime="processes", workers=2)
    assert np.array_equal(alone.value, parallel.value)


def test_tables_of_two_columns():
    table = Histogram.calibrated(n=600, categories=(3, 4), privacy=PRIVACY)
    rows = np.stack([np.arange(600) % 3, np.repeat([0, 1, 2, 9], 150)], axis=1)
    result = run(table, rows, seed=2)
    assert result.value.shape == (3, 4)
    assert np.abs(result.value[:, :3] - 50).max() < 7 * math.sqrt(table.variance())
    assert np.abs(result.value[:, 3]).max() < 7 * math.sqrt(table.variance())
    assert result.reports.clipped == 150


def kept_back(histogram):
    randomizer: Any = histogram.randomizer
    return randomizer.kept_back


def test_objectives():
    size = {"n": 10**6, "categories": 1000}
    few = Histogram.calibrated(**size, privacy=Privacy(0.1, 1e-6))
    least = Histogram.calibrated(**size, privacy=Privacy(0.1, 1e-6), objective="error")
    assert few.messages_per_user < 1.3
    assert least.messages_per_user > 3.6
    assert few.variance() > least.variance() == pytest.approx(2641.13, rel=1e-3)
    within = Histogram.calibrated(
        **size, privacy=Privacy(0.1, 1e-6), objective="error", max_messages=2.0
    )
    assert within.messages_per_user <= 2.0
    assert within.variance() < 2700
    two = Histogram.calibrated(**size, privacy=PRIVACY, method="two-sided", objective="error")
    assert two.variance() == pytest.approx(9.712, rel=1e-3)
    assert two.messages_per_user == pytest.approx(1.431, rel=1e-3)
    large = Histogram.calibrated(n=10**6, categories=10**5, privacy=Privacy(4.0, 1e-6))
    assert kept_back(large) > 0
    assert large.variance(10) < 5


@pytest.mark.full
def test_the_best_method():
    small = {"n": 10**4, "categories": 100, "privacy": PRIVACY}
    assert kept_back(Histogram.best(**small)) == 0
    assert isinstance(Histogram.best(**small).randomizer, Categories)
    assert isinstance(Histogram.best(**small, two_sided=True).randomizer, TwoSided)
    assert isinstance(Histogram.best(**small, max_messages=1.0).randomizer, Response)


def test_reports_stay_below_the_cap():
    histogram = Histogram.calibrated(n=100, categories=50, privacy=PRIVACY)
    randomizer: Any = histogram.randomizer
    cap = randomizer.most
    tight = Categories((50,), (42.7,), 100, 30)  # noise beyond is drawn again often
    rng = np.random.default_rng(1)
    each = tight.reports(np.zeros(3000), rng).each
    assert each.max() <= 30 < cap
    law = scipy.stats.poisson.pmf(np.arange(30), 21.35)
    assert fits(each - 1, law / law.sum()) > ALARM
    event: Any = tight.event(100, None)
    assert event.redrawn == pytest.approx(min(1.0, 100 * scipy.stats.poisson.sf(29, 21.35)))
    assert ShuffleAccountant().compose(event).get_delta(1.0) == 1.0
    redrawn = randomizer.event(100, None).redrawn
    assert 0 < redrawn <= 1e-9


def test_known_totals():
    estimates = np.array([5.0, -2.0, 9.0, 1.0])
    shifted = with_known_total(estimates, 20.0)
    assert shifted.sum() == pytest.approx(20.0)
    assert np.ptp(shifted - estimates) == pytest.approx(0.0)
    near = plausible(estimates, 10.0)
    assert near.min() >= 0
    assert near.sum() == pytest.approx(10.0)
    rng = np.random.default_rng(0)
    for _ in range(50):  # never farther from the truth
        truth = rng.multinomial(30, np.ones(6) / 6)
        noisy = truth + rng.normal(0, 5, 6)
        better = plausible(noisy, 30.0)
        assert np.linalg.norm(better - truth) <= np.linalg.norm(noisy - truth) + 1e-9


def test_corrupted_users_widen_ranges():
    histogram = Histogram.calibrated(n=1000, categories=10, privacy=PRIVACY, honest_fraction=0.9)
    value = np.full(10, 100.0)
    alone, attacked = (histogram.interval(value, corrupted=each) for each in (0, 5))
    randomizer: Any = histogram.randomizer
    cap = randomizer.most
    assert (attacked.low <= np.maximum(alone.low - 5 * cap, 0)).all()
    assert (attacked.high >= alone.high + 5 * cap).all()


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"categories": 1}, "categories"),
        ({"categories": 2**30}, "categories"),
        ({"categories": (3, 0)}, "categories"),
        ({"n": 1}, "n"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
        ({"honest_fraction": 1.5}, "honest_fraction"),
        ({"objective": "speed"}, "objective"),
        ({"max_messages": 0.5}, "max_messages"),
        ({"max_messages": 1.0, "method": "pollution"}, "max_messages"),
        ({"method": "magic"}, "method"),
        ({"batch": 0}, "batch"),
        ({"kept_back": 1.0}, "kept_back"),
        ({"flood": 0.1}, "flood"),
        ({"batch": 2, "method": "two-sided"}, "batch"),
        ({"privacy": Privacy(1.0)}, "delta"),
        ({"count": -1.0}, "count"),
    ],
)
def test_what_is_refused(options, parameter):
    given = {"n": 100, "categories": 10, "privacy": PRIVACY} | options
    with pytest.raises(ParameterError) as found:
        Histogram.calibrated(**given)
    assert found.value.parameter == parameter


@pytest.mark.parametrize("method", ["response", "unary"])
def test_no_report_is_less_private_than_theorems_speak_of(method):
    given = Histogram.calibrated(n=100, categories=10, privacy=Privacy(50.0, 1e-6), method=method)
    assert getattr(given.randomizer, "epsilon0", None) == 30.0


def test_data_outside_the_domain():
    histogram = Histogram.calibrated(n=100, categories=10, privacy=PRIVACY)
    xs = np.arange(100) % 10.0
    xs[:4] = [10, -1, 2.5, 1e30]
    result = run(histogram, xs, seed=1)
    assert result.reports.clipped == 4
    for method in ("response", "fixed-blanket"):
        obliged = Histogram.calibrated(n=100, categories=10, privacy=PRIVACY, method=method)
        with pytest.raises(ParameterError) as found:
            run(obliged, xs, seed=1)
        assert found.value.parameter == "data"
    with pytest.raises(ParameterError):
        run(histogram, xs[:50], seed=1)
    with pytest.raises(ParameterError):
        Histogram(n=100, randomizer=Categories((10,), (40.0,), 90, 99))


def test_ranges_lie_among_the_users_and_estimates_are_of_all_categories():
    made = Histogram.calibrated(n=200, categories=3, privacy=Privacy(0.1, 1e-6))
    ranges = made.interval(np.array([-500.0, 90.0, 4000.0]))
    assert (ranges.low >= 0).all()
    assert (ranges.high <= 200).all()
    assert (ranges.low <= ranges.high).all()
    with pytest.raises(ParameterError, match="3 estimates"):
        made.interval(np.zeros(5))


@pytest.mark.parametrize("method", ["response", "unary"])
@pytest.mark.full
def test_ranges_of_coins_hold_and_are_near_their_spread(method):
    """Bernstein's 2.7 spreads, where 1.96 are needed; a bound by the mean alone had up to 12."""
    shares = np.array([0.6, 0.25, 0.1, 0.04, 0.01, 0.0])
    data = np.repeat(np.arange(6.0), (5000 * shares).astype(int))
    made = Histogram.calibrated(n=5000, categories=6, privacy=PRIVACY, method=method)
    values = np.array([run(made, data, seed=s, fidelity="aggregate").value for s in range(200)])
    ranges = [made.interval(value) for value in values]
    true = 5000 * shares
    missed = sum(int(((each.low > true) | (true > each.high)).sum()) for each in ranges)
    assert missed <= scipy.stats.binom.ppf(1 - ALARM, values.size, 0.05)
    half = np.mean([(each.high - each.low) / 2 for each in ranges], axis=0)
    assert (half[:4] < 3.5 * values.std(axis=0)[:4]).all()
