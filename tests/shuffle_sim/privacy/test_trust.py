"""A trust model is a value with a name: of each name there is one."""

import copy
import math
import pickle

import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.trust import Trust

OURS = [Trust.SHUFFLE, Trust.CENTRAL, Trust.LOCAL, Trust.NONE]
USERS = 12_347


def test_each_is_registered_and_stays_itself():
    for trust in OURS:
        assert Trust.of(str(trust)) is Trust.of(trust) is trust
        assert pickle.loads(pickle.dumps(trust)) is copy.deepcopy(trust) is trust


def test_one_that_is_registered_elsewhere_keeps_what_it_says():
    own = Trust("elsewhere", trusted="both", protects="all", colour="tab:pink", growth=1.0)
    sent = pickle.loads(pickle.dumps(own))
    assert sent == own
    assert vars(sent) == vars(own)


def test_an_unknown_name_is_refused():
    with pytest.raises(ParameterError, match=r"trust.*central.*shuffle"):
        Trust.of("nobody-knows")


def test_noise_grows_as_they_say():
    assert [each.noise(USERS, 1.05) for each in OURS] == [1.05, 1.0, math.sqrt(USERS), 0.0]
