"""Trees of counts and distributions: least squares, ranks and bands."""

import math

import numpy as np
import pytest

from protocols import Quantiles
from protocols.counts.trees import Shape
from shuffle_sim import ParameterError, Privacy, run

PRIVACY = Privacy(1.0, 1e-6)
RANGE = {"low": 0.0, "high": 64.0}


@pytest.mark.parametrize(
    ("fans", "most", "mean"),
    [
        ((1024,), 256, 170.833),
        ((32, 32), 15.507576, 10.348485),
        ((16, 8, 8), 6.808386, 4.547818),
        ((4,) * 5, 3.187803, 2.166552),
        ((2,) * 10, 1.526751, 1.069303),
        ((8,) * 4, 6.557020, 4.396581),
        ((4, 4), 1.55, 1.1),
        ((2, 3, 4), 1.48823529, 1.05942029),
    ],
)
def test_variances_of_prefixes(fans, most, mean):
    found = Shape(fans).prefix_variances
    assert found.max() == pytest.approx(most, rel=2e-6)
    assert found.mean() == pytest.approx(mean, rel=3e-6)


@pytest.mark.parametrize("fans", [(2, 3, 4), (4, 4), (5,), (2, 2, 2)])
def test_least_squares(fans):
    shape, rng = Shape(fans), np.random.default_rng(0)
    design = np.vstack([np.kron(np.eye(m), np.ones(shape.leaves // m)) for m in shape.nodes])
    counts, total = rng.normal(0, 3, len(design)), 11.0
    # With the total known: a shift of all leaves, and free contrasts between them.
    contrasts = np.linalg.svd(np.ones((1, shape.leaves)))[2][1:].T
    start = np.full(shape.leaves, total / shape.leaves)
    free = np.linalg.pinv(design @ contrasts) @ (counts - design @ start)
    assert np.allclose(shape.fitted(counts, total), start + contrasts @ free, atol=1e-10)
    # What a node counts for in a prefix is at most 1, as the bands assume; squares add up.
    weights = np.array([shape.fitted(each, 0.0) for each in np.eye(len(design))])
    prefixes = np.cumsum(weights, axis=1)[:, :-1]
    assert np.abs(prefixes).max() <= 1
    assert np.allclose((prefixes**2).sum(axis=0), shape.prefix_variances)


@pytest.mark.full
def test_plans_of_the_sheet():
    small = Quantiles.calibrated(n=10**5, **RANGE, privacy=PRIVACY)
    assert small.standard_errors.max() == pytest.approx(24.0, abs=0.05)
    assert small.messages_per_user == pytest.approx(7.5, abs=0.05)
    flat = Quantiles.calibrated(n=10**5, **RANGE, privacy=PRIVACY, fans=(1024,))
    assert flat.standard_errors.max() == pytest.approx(104.5, abs=0.1)
    small = Quantiles.calibrated(n=10**5, **RANGE, privacy=PRIVACY, leaves=16)
    few = Quantiles.calibrated(n=10**5, **RANGE, privacy=PRIVACY, leaves=16, objective="messages")
    assert few.messages_per_user < small.messages_per_user
    assert few.standard_errors.max() > small.standard_errors.max()


@pytest.mark.full
def test_ranks_have_the_errors_stated_and_bands_hold():
    n, repeats = 20_000, 60
    quantiles = Quantiles.calibrated(n=n, **RANGE, privacy=PRIVACY, leaves=64)
    xs = np.random.default_rng(1).gamma(2.0, 6.0, n).clip(0, 63.999)
    edges = np.linspace(0, 64, 65)
    true = np.searchsorted(np.sort(xs), edges)
    rng = np.random.default_rng(2)
    admitted = quantiles.randomizer.admit(quantiles.query(xs))[0]
    errors, held = [], 0
    for _ in range(repeats):
        spec = quantiles.plan(quantiles.init())
        view = spec.analyze(quantiles.randomizer.tallied(admitted, rng))
        found = quantiles.answer(view)
        errors.append(found.raw - true)
        low, high = found.band()
        held += bool(((low <= true) & (true <= high)).all())
        assert (np.diff(found.ranks) >= 0).all()
        assert found.ranks[[0, -1]].tolist() == [0, n]
        assert abs(np.searchsorted(np.sort(xs), found.median) - n / 2) < 250
    # 63 prefixes of about 2 independent errors each: a standard error of 5 percent or less.
    ratio = (np.array(errors)[:, 1:-1] ** 2).mean(axis=0) / quantiles.standard_errors**2
    assert ratio.mean() == pytest.approx(1.0, abs=0.25)
    assert held / repeats > 0.95 - 5 * math.sqrt(0.05 / repeats)
    assert held  # and the widths are not those of no promise
    assert (high - low).max() < 12 * quantiles.standard_errors.max()


@pytest.mark.parametrize("fidelity", ["literal", "aggregate"])
def test_a_run(fidelity):
    n = 5000
    quantiles = Quantiles.calibrated(n=n, **RANGE, privacy=PRIVACY, leaves=256)
    xs = np.linspace(0, 64, n)
    xs[:10] = 1e6  # clipped to the end of the range
    result = run(quantiles, xs, fidelity=fidelity, seed=5)
    assert result.privacy.epsilon <= 1.0
    assert abs(result.value.median - 32) < 2.5
    low, high = result.value.interval(0.5)
    assert low <= 32 <= high
    assert result.value.quantile(0.0) <= result.value.quantile(0.3) <= result.value.quantile(1.0)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"high": 0.0}, "high"),
        ({"low": math.nan}, "low"),
        ({"leaves": 1}, "leaves"),
        ({"fans": (4, 1)}, "fans"),
        ({"objective": "speed"}, "objective"),
        ({"n": 1}, "n"),
        ({"privacy": Privacy(1.0)}, "delta"),
    ],
)
def test_what_is_refused(options, parameter):
    with pytest.raises(ParameterError) as found:
        Quantiles.calibrated(**({"n": 100, **RANGE, "privacy": PRIVACY} | options))
    assert found.value.parameter == parameter


def test_quantiles_are_of_shares():
    quantiles = Quantiles.calibrated(n=100, **RANGE, privacy=PRIVACY, leaves=4)
    value = run(quantiles, np.zeros(100), seed=1).value
    with pytest.raises(ParameterError):
        value.quantile(1.5)
