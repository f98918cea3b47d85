"""examples/slopes.py and the studies of persons: fits, pictures, and slopes as measured."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def slopes(example):
    return example("slopes")


def test_a_fit_finds_the_slope_with_its_error(slopes):
    """The error of 300 fits is that of their scatter, within 6 of its standard errors (1/24)."""
    rng, sizes = np.random.default_rng(0), [10, 100, 1000, 10_000]
    fits = [
        slopes.Fit(
            "x", "n", -0.5, sizes, [n**-0.5 * (1 + 0.1 * rng.normal(size=50)) for n in sizes]
        )
        for _ in range(300)
    ]
    found, errors = np.transpose([each.slope for each in fits])
    assert found.mean() == pytest.approx(-0.5, abs=6 * errors.mean() / np.sqrt(300))
    assert found.std() == pytest.approx(errors.mean(), rel=0.25)
    assert "slope -0.5" in str(fits[0])


def test_a_picture_is_there_whole_or_not_at_all(slopes, tmp_path, monkeypatch):
    line = slopes.Fit("x", "m", 0.0, [1, 10], [[1.0, 1.1], [1.0, 0.9]], [2.0, 2.0])
    slopes.draw([line], tmp_path / "new" / "a.png")
    assert (tmp_path / "new" / "a.png").read_bytes().startswith(b"\x89PNG")

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        slopes.draw([line], tmp_path / "b.png")
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


@pytest.mark.full
def test_records_help_accelerated_phases_and_stay_below_the_bound(example):
    """Two decades in m of the worst linear loss: -0.45 ± 0.01; clipping at L would have 0."""
    line = next(each for each in example("persons").STUDIES["accelerated"] if each.axis == "m")
    sizes = [100, 10_000]
    found, bounds = zip(*(line.excess(**line.fixed, m=m, seeds=2) for m in sizes), strict=True)
    means = [np.mean(each) for each in found]
    assert all(max(each) <= bound for each, bound in zip(found, bounds, strict=True))
    assert -0.6 < np.log(means[1] / means[0]) / np.log(100) < -0.35


@pytest.mark.full
def test_persons_excess_follows_the_noise_in_epsilon_and_d(example):
    """5 seeds: standard errors near 0.15; the Gaussian's own slope in epsilon is -0.92 a power."""
    lines = [
        each
        for each in example("persons").STUDIES["extension"]
        if each.axis in ("d", "epsilon") and each.name == "quadratic, carried"
    ]
    assert len(lines) == 2
    for line in lines:
        found = line.fit(5, quick=False)
        assert found.slope[0] == pytest.approx(line.promised, abs=0.5)
        assert all(max(runs) <= bound for runs, bound in zip(found.runs, found.bounds, strict=True))
