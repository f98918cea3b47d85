"""Above-threshold: exact laws, exact privacy, refusals before any draw."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy import events
from shuffle_sim.privacy.bounds.gaussian import delta_gdp
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.sparse_vector import PROOF, AboveThreshold

SHARE = 1 / (1 + 2 ** (2 / 3))


def stops(mechanism, queries, draws=10_000, redrawn=False):
    """How many queries pass before the first that does not, in each of many sessions."""
    rng, counts = np.random.default_rng(11), []
    for session in range(draws):
        for count, query in enumerate(queries):
            opened = np.random.default_rng((session, count if redrawn else 0))
            if not mechanism.sample(query, mechanism.sensitivity, rng, opened):
                break
        else:
            count = len(queries)
        counts.append(count)
    return np.array(counts)


def law_of_stops(mechanism, queries):
    """Its exact law, by integration over the threshold's noise."""
    unit = mechanism.sensitivity / mechanism.epsilon
    threshold, noise = (
        stats.laplace(scale=unit / SHARE),
        stats.laplace(scale=2 * unit / (1 - SHARE)),
    )
    # both sides of every kink, in quantiles of the threshold's noise
    kinks = threshold.cdf(np.unique([0.0, *(np.asarray(queries) - mechanism.threshold)]))
    edges = np.unique(
        np.concatenate([np.geomspace(1e-14, 1, 40), kinks, 1 - np.geomspace(1e-14, 1, 40)])
    )
    nodes, weights = np.polynomial.legendre.leggauss(12)
    u = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    mass = (np.diff(edges)[:, None] * weights / 2).ravel()
    level = mechanism.threshold + threshold.ppf(u)
    above = noise.sf(level - np.asarray(queries)[:, None])
    reached = np.cumprod(np.vstack([np.ones_like(u), above]), axis=0)
    stopped = reached * np.vstack(
        [noise.cdf(level - np.asarray(queries)[:, None]), np.ones_like(u)]
    )
    return stopped @ mass


@pytest.mark.full
def test_a_session_has_its_law_and_a_new_threshold_is_seen():
    mechanism = AboveThreshold(1.0, 3.0, 2.0)
    queries = [5.0, 3.0, 8.0, 3.0, 1.0, 4.0]
    law = law_of_stops(mechanism, queries)
    assert law.sum() == pytest.approx(1, rel=1e-12)
    check_pmf(stops(mechanism, queries), law)
    with pytest.raises(LawError):
        check_pmf(stops(mechanism, queries, redrawn=True), law)
    with pytest.raises(LawError):
        check_pmf(stops(AboveThreshold(1.3, 3.0, 2.0), queries), law)


@pytest.mark.parametrize("length", [1, 2, 10, 200])
def test_a_session_of_neighbours_loses_at_most_epsilon(length):
    epsilon, sensitivity = 0.8, 2.0
    mechanism = AboveThreshold(epsilon, 0.0, sensitivity)
    worst = 0.0
    for start in (-20.0, -3.0, 0.0, 3.0, 20.0):
        for end in (-20.0, 0.0, 20.0):
            # all but the last query fall, the last rises, and the other way round
            here = np.array([*[start] * (length - 1), end])
            there = here + sensitivity * np.array([*[-1] * (length - 1), 1])
            ratio = np.log(law_of_stops(mechanism, here) / law_of_stops(mechanism, there))
            worst = max(worst, float(np.abs(ratio[:length]).max()))
    assert worst <= epsilon * (1 + 1e-9)
    if length >= 200:  # and the bound is nearly met, so the check can fail
        assert worst > 0.9 * epsilon


def test_a_threshold_drawn_at_each_query_would_not_be_private():
    epsilon, unit = 0.8, 1 / 0.8
    rng = np.random.default_rng(0)
    sums = stats.laplace(scale=unit / SHARE).rvs(200_000, random_state=rng) - stats.laplace(
        scale=2 * unit / (1 - SHARE)
    ).rvs(200_000, random_state=rng)
    here, there = (sums <= 0.0).mean(), (sums <= -1.0).mean()
    assert 20 * math.log(here / there) > 2 * epsilon  # twenty queries that pass


def test_the_event_of_a_session_and_its_norm():
    assert AboveThreshold(0.3, 1.0, 1.0).event == events.PureEvent(0.3, PROOF)
    assert AboveThreshold.norm == "l2"


@pytest.mark.parametrize(
    ("mechanism", "value", "sensitivity", "name"),
    [
        (AboveThreshold(1.0, 0.0, 3.0), 1.0, 2.0, "sensitivity"),
        (AboveThreshold(1.0, 0.0, 3.0), math.inf, 3.0, "value"),
        (AboveThreshold(1.0, 0.0, 3.0), [1.0], 3.0, "value"),
    ],
)
def test_bad_queries_are_refused_before_any_draw(mechanism, value, sensitivity, name):
    rng, opened = np.random.default_rng(0), np.random.default_rng(1)
    before = rng.bit_generator.state, opened.bit_generator.state
    with pytest.raises(ParameterError) as caught:
        mechanism.sample(value, sensitivity, rng, opened)
    assert caught.value.parameter == name
    assert before == (rng.bit_generator.state, opened.bit_generator.state)


def test_a_session_without_its_generator_is_refused():
    rng, mechanism = np.random.default_rng(0), AboveThreshold(1.0, 0.0, 1.0)
    for opened in (None, rng):
        with pytest.raises(ParameterError) as caught:
            mechanism.sample(1.0, 1.0, rng, opened)
        assert caught.value.parameter == "opened"


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: AboveThreshold(0.0, 0.0, 1.0), "epsilon"),
        (lambda: AboveThreshold(1.0, math.nan, 1.0), "threshold"),
        (lambda: AboveThreshold(1.0, 0.0, 0.0), "sensitivity"),
    ],
)
def test_bad_tests_are_refused(call, name):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.parameter == name


def share_of_composition(epsilon, mu, excess=1.0):
    """The largest exact delta of above-threshold beside Gaussians, over the delta that composition
    states. Each passing query is followed by a release; `excess` makes both more telling.

    Where c queries passed, the Gaussians are a pair of distance mu_c, and the answers are told
    apart by their ratio alone: delta = sum_c p_c delta_GDP(at - ln(p_c/q_c); mu_c).
    """
    length, worst = 10, 0.0
    mechanism = AboveThreshold(epsilon * excess, 0.0, 2.0)
    passed = np.arange(length + 1)
    for start, end in product((-3.0, 0.0, 6.0, 15.0), (-6.0, -1.0, 0.0, 6.0)):
        here = np.array([*[start] * (length - 1), end]) / epsilon
        there = here + 2.0 * np.array([*[-1] * (length - 1), 1])
        p, q = law_of_stops(mechanism, here), law_of_stops(mechanism, there)
        for at, mus in product((0.5, 1.0, 2.0), (np.sqrt(passed / length), passed > 0)):
            stated = Parts(((epsilon, 0.0, 1),), mu).delta(at)
            for a, b in ((p, q), (q, p)):
                apart = np.maximum(mus * mu * excess, 1e-9)
                worst = max(worst, float(a @ delta_gdp(at - np.log(a / b), apart)) / stated)
    return worst


@pytest.mark.parametrize("mu", [0.15, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.full
def test_a_session_beside_gaussians_is_below_their_composition(mu):
    """By quadrature. Composition (docs: theory, Tests beside releases) is for any strategy, these
    are some. The largest share found is 0.91.
    """
    for epsilon in (0.2, 0.8):
        assert share_of_composition(epsilon, mu) <= 1 + 1e-9


def test_a_session_and_gaussians_that_tell_more_are_caught():
    assert share_of_composition(0.2, 1.0) > 0.88
    assert share_of_composition(0.2, 1.0, excess=1.1) > 1.1
