"""Methods that are trained on the same splits."""

import math

import numpy as np
import pytest

from protocols.comparison import train_methods
from protocols.learning.training import Trainer
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data.labelled import labelled
from shuffle_sim.data.tables import bundled
from shuffle_sim.privacy.trust import Trust

pytestmark = pytest.mark.full
ROWS = labelled(bundled("breast-cancer"), classes=True)
TRAINER = Trainer.of("logistic", len(ROWS.table.columns) + 1, Privacy(4.0, 1e-5))


def trained(**options):
    return train_methods(ROWS, TRAINER, **{"repeats": 2, "rounds": 3, "seed": 5} | options)


def test_each_method_is_trained_once_on_every_split_and_a_seed_repeats_all():
    seen = []
    found = trained(on_run=lambda name, done, of: seen.append((name, done, of)))
    names = [each.method for each in found.methods]
    runs = [(name, split) for name in names for split in range(2)]
    assert seen == [(name, done, 8) for done, (name, _) in enumerate(runs)]
    trusts = [Trust.SHUFFLE, Trust.CENTRAL, Trust.LOCAL, Trust.NONE]
    assert [each.trust for each in found.methods] == trusts
    for each in found.methods:
        score = each.scores["held_out_loss"]
        assert len({*score.values}) == 2
        assert score.mean == pytest.approx(np.mean(score.values))
        assert score.error == pytest.approx(np.std(score.values, ddof=1) / math.sqrt(2))
    again, other = trained(), trained(seed=6)
    assert again.methods == found.methods
    assert other.constant != found.constant


def test_protocols_are_run_as_asked_and_only_they():
    asked = []

    def shuffled(made, rows, seed):
        asked.append((type(made).__name__, len(rows), seed))
        return run(made, rows, seed=seed, fidelity="counts")

    found = trained(repeats=1, shuffled=shuffled)
    ((_, people, seed),) = asked
    assert people == found.people.asked
    assert seed is not None
    # One law, other draws: the fidelity is that of the function.
    assert found.methods[0].scores != trained(repeats=1).methods[0].scores
    assert found.methods[1].scores == trained(repeats=1).methods[1].scores


@pytest.mark.parametrize("repeats", [0, 1001, 1.5])
def test_repeats_out_of_range_are_refused(repeats):
    with pytest.raises(ParameterError, match="repeats"):
        trained(repeats=repeats)
