"""Numbers of docs/theory/papers.md that no command prints, as measured."""

import math
import re

import numpy as np
import pytest
from papers import CALLS, NAMES, PAPERS, error, excess, on_rows
from papers import made as scaled


def made(call):
    """What a call of the table makes."""
    assert call in CALLS, call
    return eval(call, NAMES)


def said(call):
    """What the table says of a call."""
    found = [row[2] for rows in PAPERS.values() for row in rows if row[1] == f"`{call}`"]
    assert found, call
    return " ".join(found)


def noise(algorithm):
    return algorithm.mechanism.error(algorithm.shift, algorithm.problem.d)


KINKED = (
    "p.OutputPerturbation.paper(**some, problem=sharp, privacy=usual, "
    'solver="stochastic-subgradient")'
)
SMOOTH = 'p.OutputPerturbation.paper(**some, problem=smooth, privacy=usual, solver="katyusha")'
CONVEX = "p.OutputPerturbation.paper(**some, problem=kinks, privacy=usual)"
STRONG = "p.OutputPerturbation.paper(**some, problem=ridged, privacy=pure)"


@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "times", "pure"),
    [(KINKED, 7.3, 2.5), (SMOOTH, 6.2, None), (CONVEX, 41, 4.0), (STRONG, 3.4, None)],
)
def test_the_noise_of_printed_accuracies(call, times, pure):
    """Over that of `calibrated`, the only one that spends delta to the end."""
    for each, privacy in ((times, None), (pure, "pure")):
        if each is None:
            continue
        asked = made(call)
        if privacy is not None:
            asked = eval(call.replace("usual", privacy), NAMES)
        best = type(asked).calibrated(n=asked.n, problem=asked.problem, privacy=asked.privacy)
        assert noise(asked) / noise(best) == pytest.approx(each, rel=0.02)
        assert f"{each} times" in said(call)


def test_the_printed_noise_of_any_objective_is_for_the_diameter():
    call = 'p.TiltedERM.paper(**some, problem=smooth, privacy=pure, solver="agd")'
    assert made(call).shift == pytest.approx(2.0)
    assert "diameter 2" in said(call)


SHARE = re.compile(r"excess (\d\.\d+) of the bound")
SHARES = [
    (row[1].strip("`"), found[1])
    for rows in PAPERS.values()
    for row in rows
    if (found := SHARE.search(row[2]))
]
SLOPES = {
    "p.PanPrivateACSA.calibrated(**some, problem=smooth, privacy=usual)": (
        ((10, 100, 1000), 0.1, "-0.77 ± 0.02"),
        ((1, 10, 100, 1000), 1.0, "-0.64 ± 0.01"),
    ),
    "p.CuratedPhases.calibrated(**many, problem=ridged, privacy=usual, "
    "optimiser=p.PanPrivateACSA)": (((1, 10, 100), 1.0, "-1.23 ± 0.05"),),
    "p.CuratedPhases.paper(**many, problem=ridged, privacy=shy, optimiser=p.PanPrivateACSA)": (
        ((1, 10, 100), 1.0, "-1.53 ± 0.06"),
    ),
    "p.TiltedERM.calibrated(**some, problem=ridged, privacy=pure, tilt=0.5)": (
        ((1, 10, 100), 1.0, "-1.99 ± 0.07"),
    ),
    "p.AdversarialERM.calibrated(**some, problem=ridged, privacy=pure, radius=0.1)": (
        ((1, 10, 100), 1.0, "-2.00 ± 0.07"),
    ),
    "p.LocalisedExponential.calibrated(**many, problem=wide, privacy=pure)": (
        ((1, 3, 10), 1.0, "-1.98 ± 0.13"),
    ),
}
"""Times the users of the call, its epsilon, and the slope of 40 seeds at each."""


@pytest.mark.slow_parameters(
    "*LinearTime*usual)-0.17", "*kinks*-0.54", "*Softmax*", "*AcceleratedPhasedERM*smoothing*"
)
@pytest.mark.full
@pytest.mark.filterwarnings("ignore::shuffle_sim.errors.WeakPrivacyWarning")
@pytest.mark.parametrize(("call", "share"), SHARES)
@pytest.mark.long
def test_the_excess_of_20_seeds_is_the_share_of_the_bound_that_is_said(call, share):
    algorithm = made(call)
    found = excess(algorithm, 20, seen=on_rows(call))
    rounded = 0.6 * 10.0 ** -len(share.split(".")[1])
    assert found.mean() / algorithm.bound == pytest.approx(float(share), rel=0.02, abs=rounded)


@pytest.mark.slow_parameters(
    "*LocalisedExponential*", "*AdversarialERM*", "*TiltedERM*", "*CuratedPhases.calibrated*"
)
@pytest.mark.full
@pytest.mark.filterwarnings("ignore::shuffle_sim.errors.WeakPrivacyWarning")
@pytest.mark.parametrize(
    ("call", "times", "epsilon", "slope"),
    [(call, *each) for call, several in SLOPES.items() for each in several],
)
@pytest.mark.long
def test_slopes_of_the_excess_are_those_that_are_said(call, times, epsilon, slope):
    """A fit of logarithms; its error is that of the means."""
    points = [scaled(call, each, epsilon) for each in times]
    found = [excess(each, 40, seen=on_rows(call)) for each in points]
    logs = np.log([each.users for each in points])
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    fitted = weights @ np.log([each.mean() for each in found])
    spread = math.sqrt(sum((weights * [error(each) / each.mean() for each in found]) ** 2))
    expected, around = (float(each) for each in slope.split(" ± "))
    assert fitted == pytest.approx(expected, abs=0.011)
    assert spread == pytest.approx(around, abs=0.006)
    assert f"{slope}" in said(call)


def test_bounds_and_their_slopes_are_those_that_are_said():
    call = "p.OutputPerturbation.calibrated(**some, problem=smooth, privacy=pure, population=True)"
    slope = math.log10(scaled(call, 10).bound / scaled(call).bound)
    assert f"slope of the bound {slope:.2f}" in said(call)
    call = "p.OutputPerturbation.calibrated(**some, problem=kinks, privacy=pure)"
    assert f"bound {made(call).bound:.2f}" in said(call)
    assert f"= {49 * math.sqrt(2 / 300):.1f}$" in said(call)
    call = (
        "p.AcceleratedPhasedERM.calibrated(n=10_000, problem=persons, privacy=usual, "
        'center="removed", phases=1)'
    )
    assert f"bound {made(call).bound:.2f}" in said(call)
