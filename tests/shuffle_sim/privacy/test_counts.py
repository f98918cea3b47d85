"""What noisy counts cost, against whole views by enumeration, and the sheet's numbers."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import scipy

from shuffle_sim import ParameterError, Privacy
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.privacy.bounds import cells, gaussian, losses
from shuffle_sim.privacy.bounds.cells import Cell, batches, compound, one_sided, two_sided
from shuffle_sim.privacy.bounds.gaussian import delta_gdp
from shuffle_sim.privacy.bounds.losses import Finite, LossLaw, together
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.counts import FixedBlanketEvent, PollutionEvent, TwoSidedEvent
from shuffle_sim.privacy.events import GaussianEvent, NonPrivateEvent, PureEvent
from shuffle_sim.privacy.theorems import theorem_of

RHO, FLOOD = math.exp(-0.4), (240 / 13, 12)  # mean 120
PLAN = Privacy(1.0, 1e-6)


def under(noise, kept_back=0.0):
    """The cell of a count under noise of any law."""
    outside = np.append(noise, 0.0)
    return Cell((1 - kept_back) * np.roll(outside, 1) + kept_back * outside, outside)


def delta(event, epsilon, count=1):
    return theorem_of(type(event)).delta(((event, count),), epsilon)


def binomial(trials, p):
    return scipy.stats.binom.pmf(np.arange(trials + 1), trials, p)


@pytest.mark.parametrize(
    ("cell", "epsilon", "found"),
    [
        (under(binomial(10**4, 0.004)[:400]), 1.0, 1.94519889563e-6),
        (one_sided(40.0), 1.0, 1.90723777568e-6),
        (one_sided(40.0), 0.5, 1.50768205334e-3),
        (one_sided(42.65453058), 1.0, 1e-6),
        (one_sided(500.601 / 4.5, 8), 0.1, 9.999996e-7),
        (under(binomial(3, 0.3), 0.15), 0.8, 0.350593276303),
        (two_sided(RHO, *FLOOD), 1.0, 8.07199e-7),
        (two_sided(RHO, 0.9 * FLOOD[0], 12, 0.9), 1.0, 2.34e-4),
        (two_sided(RHO, 0.8 * FLOOD[0], 12, 0.8), 1.0, 1.70e-2),
        (two_sided(0.6, 7.0), 0.5, 0.174009932),
        (two_sided(0.6, 7.0), 1.0, 0.0624663333),
        (two_sided(0.6, 7.0), 2.0, 0.00330692324),
    ],
)
def test_deltas_of_one_release(cell, epsilon, found):
    digits = 3e-3 if found in (2.34e-4, 0.017) else 1e-6  # as many as it prints
    assert cell.delta(epsilon) == pytest.approx(found, rel=digits)


@pytest.mark.parametrize(
    ("law", "found"),
    [
        (scipy.stats.poisson.pmf(np.arange(800), 400), 4.443296e-7),
        (scipy.stats.nbinom.pmf(np.arange(2500), 8, 0.05), 2.026064e-6),
    ],
)
def test_floods_of_other_laws(law, found):
    assert cells.geometric_under(RHO, law).delta(1.0) == pytest.approx(found, rel=3e-7)


@pytest.mark.parametrize(
    ("cell", "count", "epsilon", "found"),
    [
        (one_sided(109.741839), 3, 1.0, 1.0000002e-6),
        (one_sided(6.0), 2, 2.0, 0.0149507103),
        (two_sided(RHO, *FLOOD), 3, 3.0, 9.673279e-9),
    ],
)
def test_deltas_of_rounds_are_rounded_upward(cell, count, epsilon, found):
    proven = together([(cell, count)]).delta(epsilon)
    assert found * (1 - 4e-6) <= proven <= found * 1.005


def test_compound_poisson_laws():
    found = compound(FLOOD[0], batches(12))
    assert found[0] == pytest.approx(9.599657065e-9, rel=1e-9)
    assert found[5] == pytest.approx(1.048187865e-7, rel=1e-9)
    # Where e^-rate is no double: moments.
    sizes, values = batches(3), np.arange(20_000)
    law = compound(2000.0, sizes)
    values = values[: law.size]
    assert law.sum() == pytest.approx(1.0, abs=1e-10)
    assert law @ values == pytest.approx(4000.0, rel=1e-10)
    assert law @ (values - 4000.0) ** 2 == pytest.approx(2000 * 14 / 3, rel=1e-9)
    # Single messages as batches of two sizes: blocks of the recursion are right to each digit.
    for rate in (3.0, 700.3, 60_000.7):
        found, (start, exact) = compound(rate, np.array([1.0, 0.0])), cells._poisson(rate, 690.0)
        both = list(zip(found[start:], exact, strict=False))
        ratios = [mine / other for mine, other in both if other > 1e-290]
        assert ratios == pytest.approx([1.0] * len(ratios), abs=2e-15 * rate + 1e-14)
    two = compound(1.5, sizes)
    assert np.allclose(np.convolve(two, two)[:30], compound(3.0, sizes)[:30], rtol=1e-13)


def whole_view(own, noise, bins):
    """The law of all bins' counts with one user in bin `own`, others told."""
    found = {}
    for counts in product(range(noise.size), repeat=bins):
        p = math.prod(noise[list(counts)])
        seen = tuple(count + (at == own) for at, count in enumerate(counts))
        found[seen] = found.get(seen, 0.0) + p
    return found


def test_the_worst_pair_is_that_of_the_whole_view():
    noise, epsilon = binomial(4, 0.4), 0.7
    here, there = (whole_view(own, noise, 3) for own in (0, 1))
    exact = sum(max(0.0, p - math.exp(epsilon) * there.get(at, 0.0)) for at, p in here.items())
    assert exact == pytest.approx(0.360466901022, rel=1e-11)
    assert under(noise).delta(epsilon) == pytest.approx(exact, rel=1e-8)
    assert under(noise).delta(epsilon) >= exact
    # Power: with a coin less, the promise made for more noise is broken.
    less = [whole_view(own, binomial(3, 0.4), 3) for own in (0, 1)]
    worse = sum(max(0.0, p - math.exp(epsilon) * less[1].get(at, 0.0)) for at, p in less[0].items())
    assert worse > under(noise).delta(epsilon) * 1.05


def test_views_where_truth_is_kept_back_cost_less():
    """Two bins, n = 3, binomial noise: 0.322417611271 for the worst data of the others."""
    noise, kept_back, epsilon = binomial(3, 0.3), 0.15, 0.8
    exact = []
    for others in product((0, 1), repeat=2):
        views = []
        for own in (0, 1):
            bins = [np.append(noise, np.zeros(3)), np.append(noise, np.zeros(3))]
            for at in (own, *others):
                bins[at] = (1 - kept_back) * np.roll(bins[at], 1) + kept_back * bins[at]
            views.append(np.outer(*bins))
        exact.append(np.maximum(views[0] - math.exp(epsilon) * views[1], 0.0).sum())
    assert max(exact) == pytest.approx(0.322417611271, rel=1e-11)
    assert max(exact) <= under(noise, kept_back).delta(epsilon)


def test_two_sided_views_are_told_by_one_number():
    rho, reach = 0.6, 60
    flood = scipy.stats.poisson.pmf(np.arange(reach), 7.0)
    law = (1 - rho) * rho ** np.arange(reach)
    table = np.zeros((reach, reach))
    for c in range(reach):
        table[c:, c:] += flood[c] * np.outer(law, law)[: reach - c, : reach - c]
    moved = np.zeros_like(table)
    moved[1:] = table[:-1]
    laws = moved[:25, :25].ravel(), table[:25, :25].ravel()
    here, there = np.multiply.outer(*laws), np.multiply.outer(*laws[::-1])
    exact = np.maximum(here - math.e * there, 0.0).sum()  # but for what lies outside 25 x 25
    assert exact <= two_sided(rho, 7.0).delta(1.0) <= exact * 1.001
    assert two_sided(rho, 7.0, 1, 1 - 1e-12).delta(1.0) == pytest.approx(0.0624663333, rel=1e-6)


@pytest.mark.parametrize(
    ("messages", "bins", "epsilon", "found"),
    [
        (5, 3, 0.7, 0.225431920496),
        (5 * 10**6, 10**5, 1.0, 1.716308913e-7),
        (4 * 10**6, 10**5, 1.0, 1.907214717e-6),
    ],
)
def test_fixed_blankets(messages, bins, epsilon, found):
    event = FixedBlanketEvent(honest=messages, each=1, bins=bins)
    assert delta(event, epsilon) == pytest.approx(found, rel=1e-8)
    assert delta(event, epsilon) <= delta(event, epsilon, 2)


@pytest.mark.parametrize("epsilon", [36.0, 37.0, 40.0, 800.0])
@pytest.mark.parametrize(("messages", "bins"), [(1, 2), (1000, 10**6)])
def test_a_fixed_blanket_that_leaves_a_bin_empty_reveals_at_any_epsilon(messages, bins, epsilon):
    empty = (1 - 1 / bins) ** messages  # of the other world's bin: only this one can be then
    event = FixedBlanketEvent(honest=messages, each=1, bins=bins)
    assert empty <= delta(event, epsilon) <= empty * (1 + 1e-8)
    assert theorem_of(type(event)).epsilon(((event, 1),), 1e-6) == math.inf


def test_a_fixed_blanket_by_enumeration():
    messages, bins, epsilon = 5, 3, 0.7
    views = []
    for own in (0, 1):
        law = {}
        for drawn in product(range(bins), repeat=messages):
            seen = tuple(drawn.count(at) + (at == own) for at in range(bins))
            law[seen] = law.get(seen, 0.0) + bins**-messages
        views.append(law)
    exact = sum(
        max(0.0, p - math.exp(epsilon) * views[1].get(at, 0.0)) for at, p in views[0].items()
    )
    assert delta(FixedBlanketEvent(honest=5, each=1, bins=3), epsilon) == pytest.approx(
        exact, rel=1e-8
    )


def test_planes_are_independent_pairs():
    event = PollutionEvent(honest=10, planned=10, rates=(5.0, 9.0), kept_back=0.1)
    one, two = (under(scipy.stats.poisson.pmf(np.arange(60), rate), 0.1) for rate in (5.0, 9.0))
    exact = 0.0
    pairs = [
        np.multiply.outer(*laws).ravel()
        for laws in ((one.inside, one.outside), (one.outside, one.inside))
    ]
    others = [
        np.multiply.outer(*laws).ravel()
        for laws in ((two.inside, two.outside), (two.outside, two.inside))
    ]
    kept = np.argsort(-pairs[0])[:900]
    for p, q in zip(pairs[0][kept], pairs[1][kept], strict=True):
        exact += np.maximum(p * others[0] - math.exp(1.2) * q * others[1], 0.0).sum()
    missing = 1 - pairs[0][kept].sum()
    assert exact <= delta(event, 1.2) <= (exact + missing) * 1.001


def test_rounds_compose_with_other_releases():
    event, gaussian = PollutionEvent(honest=9, planned=10, rates=(40.0,)), GaussianEvent(3.0)
    accountant = ShuffleAccountant().compose(event).compose(gaussian)
    cell = under(scipy.stats.poisson.pmf(np.arange(130), 36.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log(cell.inside) - np.log(cell.outside)
        difference = losses[:, None] - losses[None, :-1]
    weights = np.outer(cell.inside, cell.outside[:-1])
    finite = np.isfinite(difference)
    exact = float(
        weights[finite] @ delta_gdp(1.5 - difference[finite], np.full(finite.sum(), 1 / 3.0))
        + weights[~finite & (difference > 0)].sum()
    )
    assert exact <= accountant.get_delta(1.5) <= exact * 1.001
    assert accountant.get_epsilon(accountant.get_delta(1.5)) == pytest.approx(1.5, abs=1e-6)
    # Basic composition, which the ledger would have to take without the law, says far less.
    basic = ShuffleAccountant().compose(event).get_epsilon(exact / 2)
    basic += ShuffleAccountant().compose(gaussian).get_epsilon(exact / 2)
    assert accountant.get_epsilon(exact) < 0.8 * basic


def test_grids_keep_both_laws():
    rng = np.random.default_rng(1)
    here, there = rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(40))
    fine = LossLaw.of(here, there, 0.01)
    coarse = fine.on(0.05)
    for law in (fine, coarse):
        assert law.masses.sum() + law.lost == pytest.approx(1.0, abs=1e-12)
        assert (law.masses * np.exp(-law.losses)).sum() == pytest.approx(1.0, abs=1e-12)
    for epsilon in (0.0, 0.3, 1.0):
        exact = np.maximum(here - math.exp(epsilon) * there, 0.0).sum()
        assert exact <= fine.delta(epsilon) <= coarse.delta(epsilon) * (1 + 1e-12) <= exact + 1e-3


@pytest.mark.parametrize(
    ("releases", "rate"),
    [(1, 42.65453), (2, 75.1434), (3, 109.7418), (5, 180.2627), (16, 572.031)],
)
def test_planned_pollution(releases, rate):
    plan = count_planner.pollution(PLAN, releases)
    assert rate * (1 - 1e-6) <= plan.rate <= rate * (1 + 3e-4)
    event = PollutionEvent(honest=1, planned=1, rates=(plan.rate,))
    assert delta(event, 1.0, releases) <= 1e-6


@pytest.mark.parametrize(
    ("epsilon", "options", "messages", "variance"),
    [
        (0.1, {}, 2641.13, 2641.13),
        (0.1, {"batch": 8}, 500.6, 2837),
        (0.1, {"batch": 24}, 264.9, 4326),
        (1, {"batch": 2}, 34.67, 57.78),
        (1, {"kept_back": 0.1}, 33.769, 41.690),
        (4, {}, 13.81551, 13.81551),
        (4, {"kept_back": 0.1}, 1.493463, 1.8438),
        (6, {"kept_back": 0.01}, 2.688670, 2.7433),
        (1, {"releases": 3, "batch": 2}, 69.53, 115.9),
        (1, {"releases": 6, "batch": 4}, 77.7, 233),
        (1, {"weights": (1, 1, 2, 4)}, 100.439, 100.439),
    ],
)
def test_plans_of_the_sheet(epsilon, options, messages, variance):
    plan = count_planner.pollution(Privacy(epsilon, 1e-6), **options)
    assert plan.messages == pytest.approx(messages, rel=1e-3)
    assert plan.variance() == pytest.approx(variance, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "flood", "messages", "variance"),
    [
        (0.1, 0.3, 1168, 1632),
        (1, 0.02, 1706, 8.165),
        (1, 0.1, 431, 9.712),
        (4, 0.2, 76, 0.634),
        (4, 0.5, 33.5, 1.841),
    ],
)
def test_two_sided_plans_of_the_sheet(epsilon, flood, messages, variance):
    plan = count_planner.two_sided(Privacy(epsilon, 1e-6), flood=flood)
    assert plan.messages == pytest.approx(messages, rel=2e-3)
    assert plan.variance() == pytest.approx(variance, rel=1e-3)


def test_two_sided_rounds():
    plan = count_planner.two_sided(PLAN, 2, 0.2)
    assert plan.variance() == pytest.approx(49.83, rel=1e-3)
    assert plan.messages <= 248.5


def test_batches_save_messages():
    plans = list(count_planner.batched(Privacy(0.1, 1e-6)))
    best = min(plans, key=lambda plan: plan.messages)
    assert plans[0].batch == 1
    assert best.messages < plans[0].messages / 8


@pytest.mark.parametrize(
    ("honest", "symbols", "epsilon", "epsilon0"),
    [
        (10**4, 100, 1, 5.7911),
        (10**6, 1000, 4, 11.262),
        (10**6, 10**5, 0.1, 8.7502),
        (10**6, None, 1, 10.0625),
    ],
)
@pytest.mark.full
def test_largest_local_epsilons(honest, symbols, epsilon, epsilon0):
    found = count_planner.local(Privacy(epsilon, 1e-6), honest, symbols)
    assert found == pytest.approx(epsilon0, abs=1e-3)


def test_fixed_blankets_are_whole_numbers():
    assert count_planner.fixed_blanket(PLAN, 10**6, 10**5) == 5


@pytest.mark.parametrize(("users", "rate", "found"), [(10**4, 0.4265, 11), (10**6, 4.265, 29)])
def test_caps_of_the_sheet(users, rate, found):
    assert cells.cap(compound(rate, batches(1)), users, 1e-9) == found
    beyond = users * scipy.stats.poisson.sf([found - 1, found], rate)
    assert beyond[1] <= 1e-9 < beyond[0]


def test_the_cap_of_a_two_sided_user():
    plan = count_planner.two_sided(PLAN)
    assert abs(cells.cap(plan.law(1e-3), 10**6, 1e-9) - 236) <= 1


def test_fewer_honest_users_cost_more():
    event = PollutionEvent(honest=1000, planned=1000, rates=(42.65453058,))
    for honest, epsilon in ((900, 1.07277), (800, 1.16340), (667, 1.32861), (500, 1.68964)):
        accountant = ShuffleAccountant().compose(event.with_honest(honest))
        assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon, abs=2e-3)
    assert event.with_honest(2000) == event
    assert isinstance(event.with_honest(0), NonPrivateEvent)
    two = TwoSidedEvent(honest=10, planned=10, decay=RHO, rate=FLOOD[0], batch=12)
    assert delta(two.with_honest(9), 1.0) == pytest.approx(2.34e-4, rel=3e-3)


def test_noise_drawn_again_is_charged():
    event = PollutionEvent(honest=10, planned=10, rates=(43.0,))
    again = PollutionEvent(honest=10, planned=10, rates=(43.0,), redrawn=1e-8)
    assert delta(again, 1.0) == pytest.approx(delta(event, 1.0) + (1 + math.e) * 1e-8, rel=1e-9)
    assert delta(again, 1.0, 3) >= delta(event, 1.0, 3) + 3e-8


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: PollutionEvent(honest=10, planned=9, rates=(4.0,)), "planned"),
        (lambda: PollutionEvent(honest=1, planned=1, rates=()), "rates"),
        (lambda: PollutionEvent(honest=1, planned=1, rates=(2.0**54,)), "rate"),
        (lambda: PollutionEvent(honest=1, planned=1, rates=(4.0,), kept_back=1.0), "kept_back"),
        (lambda: TwoSidedEvent(honest=1, planned=1, decay=1.0, rate=4.0), "decay"),
        (lambda: FixedBlanketEvent(honest=1, each=1, bins=1), "bins"),
        (lambda: count_planner.pollution(Privacy(1.0)), "delta"),
        (lambda: count_planner.pollution(PLAN, batch=0), "batch"),
        (lambda: count_planner.pollution(PLAN, releases=0), "releases"),
        (lambda: count_planner.two_sided(PLAN, flood=1.0), "flood"),
    ],
)
def test_what_is_refused(make, parameter):
    with pytest.raises(ParameterError) as found:
        make()
    assert found.value.parameter == parameter


@pytest.fixture
def evaluated(monkeypatch):
    """Epsilons at which parts are evaluated, from now on."""
    seen = []
    at = Parts._at

    def noted(self, epsilon):
        seen.append(epsilon)
        return at(self, epsilon)

    monkeypatch.setattr(Parts, "_at", noted)
    return seen


def test_many_releases_of_counts_compose_in_few_evaluations(evaluated):
    """A budget asks for them at each report: a minimum within a minimum took minutes."""
    event = PollutionEvent(honest=90, planned=100, redrawn=1e-9, rates=(24.0,), batch=41)
    accountant = ShuffleAccountant()
    accountant.compose(event, 7)
    assert 0 < accountant.get_delta(1.0) < 1e-3
    assert accountant.get_epsilon(1e-6) > 0
    assert len(evaluated) < 300


MIXED = [
    (PollutionEvent(honest=90, planned=100, redrawn=1e-10, rates=(900.0,), batch=41), 30),
    (GaussianEvent(20.0), 20),
    (PureEvent(0.05, ""), 3),
]


@pytest.mark.parametrize("kinds", [2, 3])
def test_a_budget_is_kept_in_few_evaluations(kinds, evaluated):
    """A report of another kind took ten seconds, and more of them later in the year."""
    accountant = ShuffleAccountant()
    for event, count in MIXED[:kinds]:
        accountant.compose(event, count)
    epsilon = accountant.get_epsilon(1e-6)
    assert not accountant.keeps(Privacy(0.999 * epsilon, 1e-6))
    evaluated.clear()
    assert accountant.keeps(Privacy(1.1 * epsilon, 1e-6))
    assert 0 < len(evaluated) < 10


def test_a_delta_that_is_no_double_is_no_proof():
    """Of a Gaussian delta is 0.0 from epsilon 38 mu on: a pure budget admitted it."""
    for events in ([GaussianEvent(10.0)], [GaussianEvent(10.0), PureEvent(0.5, "")]):
        accountant = ShuffleAccountant()
        for event in events:
            accountant.compose(event)
        assert not accountant.keeps(Privacy(6.0, 0.0))
        assert not accountant.keeps(Privacy(6.0, 1e-310))
        assert accountant.keeps(Privacy(6.0, 1e-6))


def test_next_to_no_noise_beside_known_losses_promises_nothing():
    """A grid as wide as its losses had steps whose exponentials are no doubles."""
    accountant = ShuffleAccountant().compose(PollutionEvent(honest=9, planned=9, rates=(43.0,)))
    assert accountant.compose(GaussianEvent(1e-6)).get_delta(1.0) == 1.0


def test_a_search_that_finds_no_scale_ends():
    def event(scale):
        return GaussianEvent(1e-3)

    with pytest.raises(ParameterError, match=r"2\^50"):
        count_planner.least(event, PLAN)


def test_a_wide_gaussian_beside_known_losses_is_no_less_on_a_rougher_grid():
    law = together([(one_sided(900.0, 7), 3)])
    fine, rough = Parts(mu=0.3, losses=law), Parts(mu=0.3, losses=law.on(law.step * 4))
    for epsilon in (0.1, 1.0, 2.0):
        shifts = epsilon - law.losses
        exact = float(law.masses @ delta_gdp(shifts, np.full_like(shifts, 0.3))) + law.lost
        assert exact * (1 - 1e-12) <= fine.delta(epsilon) <= exact * (1 + 1e-5) + 1e-15
        assert fine.delta(epsilon) <= rough.delta(epsilon) * (1 + 1e-12)


def flipped(count, epsilon, loss=0.05):
    """delta of so many randomised responses, by a binomial's sum."""
    answers = np.arange(count + 1)
    true = 1 / (1 + math.exp(-loss))
    losses = loss * (2 * answers - count)
    law = scipy.stats.binom.pmf(answers, count, true)
    return float((law * np.maximum(-np.expm1(epsilon - losses), 0.0)).sum())


@pytest.mark.parametrize("count", [3, 64, 365, 5000])
def test_releases_end_where_chernoff_says(count, monkeypatch):
    true = 1 / (1 + math.exp(-0.05))
    one = LossLaw.of(np.array([true, 1 - true]), np.array([1 - true, true]), 0.05)
    law = one.times(count)
    assert law.masses.size <= 24 * math.sqrt(count) + 4
    for epsilon in (0.0, 0.5, 3.0, 8.0):
        exact = flipped(count, epsilon)
        assert exact * (1 - 1e-12) <= law.delta(epsilon) <= exact * (1 + 1e-8) + 1e-13 * count
    # Ends that are cut too near, and not charged, would be seen.
    monkeypatch.setattr(losses, "_CHERNOFF", 2.0)
    monkeypatch.setattr(losses, "_TAIL", 0.0)
    assert one.times(5000).delta(8.0) < flipped(5000, 8.0)


def test_releases_of_skewed_laws_are_rounded_upward():
    """Rare far losses, and what Q never has: against products without cuts or transforms."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        here, there = (rng.dirichlet(np.full(12, 0.3)) for _ in range(2))
        there[rng.integers(12)] *= 1e-9
        one = LossLaw.of(here, there, 0.02)
        masses, lost = one.masses, one.lost
        for _ in range(6):
            masses, lost = np.convolve(masses, one.masses), lost + one.lost - lost * one.lost
        whole = LossLaw(one.step, 7 * one.start, masses, lost)
        for epsilon in (0.0, 1.0, 5.0, 20.0):
            exact, found = whole.delta(epsilon), one.times(7).delta(epsilon)
            assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize(
    ("event", "count", "epsilon"),
    [
        (PollutionEvent(honest=1, planned=1, rates=(0.5,)), 365, math.inf),
        (PollutionEvent(honest=5, planned=1000, rates=(100.0,)), 365, math.inf),
        (FixedBlanketEvent(honest=50, each=1, bins=10**5), 365, math.inf),
        (ShuffledEvent(honest=2, epsilon0=18.0), 2, 36.0),
    ],
)
def test_releases_that_hide_next_to_nothing(event, count, epsilon):
    """All is lost, or a rare loss is so far that its exponential is no double."""
    found = ShuffleAccountant().compose(event, count).get_epsilon(1e-6)
    assert found == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("kind", [Cell, Finite])
def test_releases_that_tell_all(kind):
    """No loss is finite: of a table that is too large it is said so."""
    pair = kind(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert [together([(pair, count)]).delta(1.0) for count in (1, 2, 5)] == [1.0] * 3


def test_a_law_of_far_tails_is_shortened_before_its_product():
    """Its 216,000 points were products of transforms, whose rounding then hid where it ends."""
    law = one_sided(32.22, 431).losses(1e-5)
    assert law.lost < 1e-10
    assert law.masses.size < 100_000


def test_few_far_losses_do_not_make_a_year_rough():
    """They made transforms long: at a rate below 27.93 delta was 6 times as large."""
    deltas = [
        delta(PollutionEvent(honest=1, planned=1, rates=(rate,), batch=431), 0.1, 365)
        for rate in (27.3, 27.6, 27.9, 28.2)
    ]
    assert deltas[0] == pytest.approx(5.75e-9, rel=0.01)
    assert all(0.8 < later / before < 0.9 for before, later in pairwise(deltas))


def test_very_many_releases_have_a_finer_grid():
    """Atoms that are split add to the variance of each release: 10^4 took 1.006 times the noise."""
    plan = count_planner.pollution(Privacy(1.0, 1e-6), 10_000)
    limit = gaussian.sigma(1.0, 1e-6, math.sqrt(2 * 10_000)) ** 2
    assert limit * 0.999 < plan.rate < 1.001 * limit


@pytest.mark.full
def test_batches_that_are_too_wide_are_left_out():
    """At epsilon 0.001 only single messages and large batches can be computed."""
    plans = iter(count_planner.batched(Privacy(1e-3, 1e-6)))
    assert next(plans).batch == 1
    assert next(plans).batch > 2


def test_a_year_of_counts_takes_what_gaussians_would():
    """A transform's error that grew with a law's length took 2.8 times the messages at 1e-8."""
    for delta_, epsilon in ((1e-6, 1.0), (1e-8, 1.0), (1e-10, 0.5)):
        plan = count_planner.pollution(Privacy(epsilon, delta_), 365)
        limit = gaussian.sigma(epsilon, delta_, math.sqrt(2 * 365)) ** 2
        assert limit < plan.rate < 1.02 * limit


def test_large_poisson_laws_are_right_to_the_last_digits():
    rate = 25_000.7
    start, law = cells._poisson(rate)
    places = start + np.arange(law.size)
    assert law.sum() == pytest.approx(1.0, abs=1e-14)
    assert law @ places == pytest.approx(rate, rel=1e-13)
    seen = law[:-1] > 1e-300
    ratios = law[1:][seen] / law[:-1][seen] * places[1:][seen] / rate
    assert np.abs(ratios - 1).max() < 1e-14
    assert compound(rate, batches(1))[start:] == pytest.approx(law, rel=1e-12)
    nothing = cells._poisson(0.0)[1]
    assert nothing[0] == 1.0
    assert not nothing[1:].any()


def test_noise_whose_law_is_too_wide_is_refused():
    """It was taken until the memory was full."""
    with pytest.raises(ParameterError) as found:
        count_planner.pollution(Privacy(1e-5, 1e-9), 365)
    assert found.value.parameter == "privacy"
