"""examples/slopes.py and the studies of persons: fits, pictures, and slopes as measured."""

import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module", autouse=True)
def examples():
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


def test_a_fit_finds_the_slope_with_its_error():
    """The error of 300 fits is that of their scatter, within 6 of its standard errors (1/24)."""
    from slopes import Fit

    rng, sizes = np.random.default_rng(0), [10, 100, 1000, 10_000]
    fits = [
        Fit("x", "n", -0.5, sizes, [n**-0.5 * (1 + 0.1 * rng.normal(size=50)) for n in sizes])
        for _ in range(300)
    ]
    slopes, errors = np.transpose([each.slope for each in fits])
    assert slopes.mean() == pytest.approx(-0.5, abs=6 * errors.mean() / np.sqrt(300))
    assert slopes.std() == pytest.approx(errors.mean(), rel=0.25)
    assert "slope -0.5" in str(fits[0])


def test_a_picture_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    from slopes import Fit, draw

    line = Fit("x", "m", 0.0, [1, 10], [[1.0, 1.1], [1.0, 0.9]], [2.0, 2.0])
    draw([line], tmp_path / "new" / "a.png")
    assert (tmp_path / "new" / "a.png").read_bytes().startswith(b"\x89PNG")

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        draw([line], tmp_path / "b.png")
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


@pytest.mark.full
def test_records_help_accelerated_phases_and_stay_below_the_bound():
    """Two decades in m of the worst linear loss: -0.45 ± 0.01; clipping at L would have 0."""
    from persons import STUDIES

    line = next(each for each in STUDIES["accelerated"] if each.axis == "m")
    sizes = [100, 10_000]
    found, bounds = zip(*(line.excess(line.other, m, 2) for m in sizes), strict=True)
    means = [np.mean(each) for each in found]
    assert all(max(each) <= bound for each, bound in zip(found, bounds, strict=True))
    assert -0.6 < np.log(means[1] / means[0]) / np.log(100) < -0.35
