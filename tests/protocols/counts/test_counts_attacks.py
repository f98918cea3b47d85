"""What corrupted users do to counts, beside what they can do at most."""

import numpy as np
import pytest

from protocols import HeavyHitters, Histogram
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.attacks.counts import gain_study

PRIVACY = Privacy(1.0, 1e-6)


@pytest.mark.full
@pytest.mark.parametrize("method", ["pollution", "two-sided", "fixed-blanket"])
def test_gains_are_those_of_the_bound(method):
    histogram = Histogram.calibrated(n=4000, categories=20, privacy=PRIVACY, method=method)
    promote, claim, silent = gain_study(histogram, fraction=0.1, repeats=3, seed=1)
    cap, mean = histogram.randomizer.per_label, histogram.messages_per_user - 1
    quiet = 0.0 if method == "two-sided" else mean / 20  # noise of a bin that is subtracted
    for row, expected in ((promote, cap - quiet), (claim, 1.0), (silent, -quiet)):
        assert row.measured == pytest.approx(expected, abs=8 * max(row.error, 0.02))
        assert row.measured <= row.bound + 8 * row.error
    assert promote.bound == cap


@pytest.mark.full
def test_one_message_is_the_most_robust():
    single = Histogram.calibrated(n=4000, categories=20, privacy=PRIVACY, method="response")
    (row,) = gain_study(single, ["promote"], fraction=0.1, repeats=4, seed=1)
    assert row.measured == pytest.approx(row.bound, abs=8 * row.error)
    assert row.bound < 1.2
    with pytest.raises(ParameterError):
        gain_study(single, ["no-noise"], repeats=2, seed=1)


def test_colluders_make_a_false_item():
    """About threshold/Q of them are enough, and a few less are not."""
    made = HeavyHitters.calibrated(n=2000, privacy=PRIVACY, levels=(8,), kept=8)
    word = made.bins(0) // 2 + 3  # of item 3
    cap, room = made.randomizers[0].most, made.threshold(0, 2000) - made.noise.rate
    reported = {}
    for fraction in (0.0005, 0.02):
        lie = attack(f"promote:fraction={fraction},word={word}")
        result = run(made, np.full(2000, 5.0), adversary=lie, seed=3)
        reported[result.reports.corrupted * cap > 1.5 * room] = result.value.items.tolist()
    assert 3 in reported[True]
    assert reported[False] == [5]
