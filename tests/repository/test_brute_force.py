"""A search over all that is registered: nothing moves more between neighbours than is stated."""

import gc

import numpy as np
import pytest
from brute import cases, fits, options
from brute.climbs import Effort, climb
from brute.defects import DEFECTS, REVERTED
from brute.statements import strays
from brute.walks import MET

from protocols import learning
from protocols.learning.linear_model import LinearEstimator
from shuffle_sim.errors import ParameterError
from shuffle_sim.protocol.base import Algorithm, Datum

SLACK = 1 + 1e-6  # of floating point
QUICK, EACH, DEEP = Effort(20, 1, 15), Effort(3, 0, 0), Effort(60, 6, 200)
BRIEF = Effort(1, 0, 0)
LONGER = dict.fromkeys(("DeletionStability", "PanPrivateACSA", "SaddleERM"), Effort(40, 3, 40)) | {
    "CentredObjective": DEEP  # with less, a row that keeps its own constant is found by luck
}
"""Whose tight pairs are rarer than the quick search is long."""
FLOORS = {
    "AdversarialERM": 0.4,
    "DeletionStability": 0.0025,  # for persons whose removal moves all others' minimiser
    "ExponentialGrid": 0.2,
    "HeavyTailedERM": 0.2,
    "PhasedERM": 0.3,
    "PhasedSCO": 0.15,
    "PopLocalize": 0.15,
}
"""Of moved over stated, as each class is calibrated, where the quick search must come; else 0.5."""
LONG = {
    "AcceleratedPhasedERM", "CentredObjective", "ChosenBounds", "CuratedSelection",
    "DeletionStability", "OneShotAverage", "Phased", "Piloted", "UserLevelOneShot",
}  # fmt: skip
"""Whose plans or runs take seconds."""
ESTIMATORS = [
    kind
    for name in learning.__all__
    if hasattr(kind := getattr(learning, name), "get_params") and name != "PublicScaler"
]  # a scaler releases nothing
KINDS = [kind for kind in options.algorithms() if kind not in cases.HELPERS]
SOME = [pytest.param(kind, marks=pytest.mark.full if kind in LONG else ()) for kind in KINDS]


def found(case, effort, seed=None):
    """The pair that moves a case most; None where it is refused. Without a seed by its share."""
    try:
        made = case.make()
    except ParameterError:
        return None
    if seed is None:
        return climb(made, case.space(made), effort.part(case.share))
    return climb(made, case.space(made), effort, seed)


def broken(case, result):
    """What a case breaks, in words; "" for nothing."""
    if result is None or result.answer.ratio <= SLACK:
        return ""
    answer = result.answer
    return f"{case.name}: {answer.what} {answer.index} moved {answer.ratio:.4g} x {answer.why}"


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize(
    "domain", [*cases.DOMAINS, cases.FLAT], ids=lambda each: type(each).__name__
)
def test_a_projection_ends_in_its_set_and_does_not_expand(domain):
    assert strays(domain) <= 1


@pytest.mark.slow_parameters("CentredObjective")
@pytest.mark.parametrize("kind", SOME)
@pytest.mark.full
def test_nothing_moves_more_than_it_states_as_it_is_made(kind):
    (case, *_) = cases.cases(kind, set())
    result = found(case, LONGER.get(kind, QUICK))
    assert broken(case, result) == ""
    assert result.answer.ratio >= FLOORS.get(kind, 0.5), "the search has no power"


@pytest.mark.slow_parameters(
    "RunningTotals",
    "AcceleratedPhasedERM",
    "LinearTimePhasedSGD",
    "Phased",
    "Piloted",
    "Selected",
    "ChosenBounds",
    "OneShotAverage",
    "SaddleERM",
    "LocalisedExponential",
)
@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_more_than_it_states_with_any_option(kind):
    every = cases.cases(kind, options.options(options.algorithms()[kind]))
    assert [each for case in every if (each := broken(case, found(case, EACH)))] == []


@pytest.mark.slow_parameters("ShuffleLinearSVC", "PrivateLinearSVC", "ShuffleRegressor")
@pytest.mark.full
@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda each: each.__name__)
def test_estimators_move_no_more_than_stated_with_any_parameter(kind):
    assert fits.broken(kind, 2) == []


@pytest.mark.full
def test_control_rows_that_are_mixed_by_an_estimator_are_found(monkeypatch):
    plain = LinearEstimator._bounded

    def mixed(self, X, labels, constant, scale=1.0):
        rows, outside = plain(self, X, labels, constant, scale)
        rows[:, :-1] /= max(1e-9, np.hypot.reduce(rows[:, :-1], axis=1).max())
        return rows, outside

    monkeypatch.setattr(LinearEstimator, "_bounded", mixed)
    assert fits.broken(learning.ShuffleRegressor, 2)


def searches():
    """All of them, short: bases first, then estimators, then what other parts run under."""
    bases, others = [], []
    for kind in KINDS:
        every = cases.cases(kind, options.options(options.algorithms()[kind]))
        bases.append(next(every))
        others += every
    others.sort(key=lambda case: case.option not in cases.PARTS)
    for case in bases:
        yield lambda case=case: found(case, BRIEF)
    for kind in ESTIMATORS:
        yield lambda kind=kind: fits.broken(kind, 1)
    for case in others:
        yield lambda case=case: found(case, BRIEF)


@pytest.mark.full
def test_all_that_is_shipped_is_tried():
    """Whatever module it is in, and whether or not it is registered or exported."""
    shipped = options.shipped()
    excused = {each for each in shipped if each.__name__ in cases.HELPERS}
    for search in searches():
        if shipped - excused <= MET:
            break
        search()
    assert shipped - excused - MET == set()
    used = [each for each in excused if issubclass(each, Algorithm)]
    assert all(any(issubclass(each, one) for each in MET) for one in used)


@pytest.mark.full
def test_control_a_hidden_class_is_shipped_and_not_met():
    hidden = type("Hidden", (Datum,), {"__module__": "protocols.hidden"})
    assert hidden in options.shipped() - MET
    del hidden
    gc.collect()
    assert "Hidden" not in {each.__name__ for each in options.shipped()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_more_than_it_states_in_a_long_search(kind):
    every = cases.cases(kind, options.options(options.algorithms()[kind]))
    assert [each for case in every if (each := broken(case, found(case, DEEP)))] == []


def test_each_of_the_nine_rows_has_its_mend_put_back():
    assert {each.row for each in REVERTED} >= {*range(1, 10)}


PROBES = {each.kind: each for each in DEFECTS if callable(each.kind)}


@pytest.mark.parametrize("probe", PROBES, ids=lambda each: each.__name__)
def test_control_with_all_mends_a_probe_finds_nothing(probe, monkeypatch):
    assert not probe(monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.name)
def test_a_planted_defect_is_found(defect, monkeypatch):
    for owner, attribute, makes in defect.patches:
        old = getattr(owner, attribute, None)
        if isinstance(owner, type):
            old = vars(owner).get(attribute, old)
        monkeypatch.setattr(owner, attribute, makes(old), raising=attribute != "type")
    if callable(defect.kind):
        assert defect.kind(monkeypatch)
        return
    shown = set() if defect.option == "base" else {defect.option}
    every = [
        case
        for case in cases.cases(defect.kind, shown)
        if case.option == defect.option and defect.value in case.value
    ]
    tried = ((case, seed) for seed in range(8) for case in every)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not clipped may be anything
        assert any(broken(case, found(case, QUICK, seed)) for case, seed in tried)
