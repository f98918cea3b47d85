"""A search over all that is registered: nothing moves more between neighbours than is stated."""

import pytest
from brute import cases, options
from brute.climbs import Effort, climb
from brute.defects import DEFECTS

from shuffle_sim.errors import ParameterError

SLACK = 1 + 1e-6  # of floating point
QUICK, EACH, DEEP = Effort(16, 1, 15), Effort(4, 1, 5), Effort(60, 6, 200)
FLOORS = {
    "AdversarialERM": 0.4,
    "DeletionStability": 0.002,  # 2 Lambda is for persons whose removal moves all others' minimiser
    "ExponentialGrid": 0.2,
    "HeavyTailedERM": 0.2,
    "LinearTimePhasedSGD": 0.3,
    "PhasedERM": 0.3,
    "PhasedSCO": 0.15,
    "PopLocalize": 0.15,
}
"""Of moved over stated, as each class is calibrated, where the quick search must come; else 0.5."""
LONG = {
    "AcceleratedPhasedERM", "ChosenBounds", "CuratedSelection", "DeletionStability",
    "OneShotAverage", "Phased", "Piloted", "UserLevelOneShot",
}  # fmt: skip
"""Whose plans or runs take seconds."""
KINDS = [kind for kind in options.algorithms() if kind not in cases.HELPERS]
SOME = [pytest.param(kind, marks=pytest.mark.full if kind in LONG else ()) for kind in KINDS]


def found(case, effort):
    """The pair that moves a case most; None where it is refused."""
    try:
        made = case.make()
    except ParameterError:
        return None
    return climb(made, case.space(made), effort.part(case.share))


def broken(case, result):
    """What a case breaks, in words; "" for nothing."""
    if result is None or result.answer.ratio <= SLACK:
        return ""
    answer = result.answer
    return f"{case.name}: {answer.what} {answer.index} moved {answer.ratio:.4g} x {answer.why}"


def test_every_option_of_everything_has_values():
    missing = []
    for kind in KINDS:
        if kind not in cases.bases():
            missing.append(f"{kind} has no base in the brute force")
            continue
        for option in cases.wanted(kind, options.options(options.algorithms()[kind])):
            try:
                assert cases.values_of(kind, option)
            except KeyError:
                missing.append(f"option {option} of {kind} has no values in the brute force")
    assert missing == []


def test_every_loss_and_domain_is_tried():
    assert options.losses() <= {type(each).__name__ for each in cases.LOSSES}
    assert options.domain_kinds() <= {type(each).__name__ for each in cases.DOMAINS}


@pytest.mark.parametrize("kind", SOME)
def test_nothing_moves_more_than_it_states_as_it_is_made(kind):
    (case, *_) = cases.cases(kind, set())
    result = found(case, QUICK)
    assert broken(case, result) == ""
    assert result.answer.ratio >= FLOORS.get(kind, 0.5), "the search has no power"


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_more_than_it_states_with_any_option(kind):
    every = cases.cases(kind, options.options(options.algorithms()[kind]))
    assert [each for case in every if (each := broken(case, found(case, EACH)))] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_more_than_it_states_in_a_long_search(kind):
    every = cases.cases(kind, options.options(options.algorithms()[kind]))
    assert [each for case in every if (each := broken(case, found(case, DEEP)))] == []


@pytest.mark.full
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: f"{each.name} ({each.kind})")
def test_a_planted_defect_is_found(defect, monkeypatch):
    shown = set() if defect.option == "base" else {defect.option}
    every = [
        case
        for case in cases.cases(defect.kind, shown)
        if case.option == defect.option and defect.value in (None, case.value)
    ]
    assert every
    old = getattr(defect.owner, defect.attribute)
    if not isinstance(defect.owner, type):
        monkeypatch.setattr(defect.owner, defect.attribute, defect.makes(old))
    else:
        old = vars(defect.owner).get(defect.attribute, old)
        monkeypatch.setattr(defect.owner, defect.attribute, defect.makes(old))
    assert any(broken(case, found(case, QUICK)) for case in every)
