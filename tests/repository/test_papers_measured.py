"""Numbers of docs/theory/papers.md that no command prints, as measured."""

import pytest
from papers import CALLS, NAMES, PAPERS


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
