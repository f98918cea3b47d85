"""Classes of a curator's algorithm are told to note their calls, and are as before after a run."""

from dataclasses import replace
from typing import Any

import pytest
import ray
from mutants.curators import Thrice, curated

from protocols import SparseVectorSum, VectorSum
from shuffle_sim import Execution, Privacy
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.claims.stated import check_event
from shuffle_sim.auditing.curator.curated import Runs
from shuffle_sim.auditing.shuffle.asked import Asked
from shuffle_sim.privacy.bounds import buckets
from shuffle_sim.privacy.mechanisms import Gaussian


class Heir(Gaussian):
    """It inherits how it is sampled, from a class that is told before it."""


class Caller(Gaussian):
    """It calls its parent by keywords."""

    def sample(self, value, sensitivity, rng):
        return super().sample(value=value, sensitivity=sensitivity, rng=rng)


class Family(Thrice):
    """Mechanisms of one family, and classes that are sent to workers by value."""

    def plan(self, state):
        release = super().plan(state)
        return release and replace(release, mechanism=(Gaussian, Heir, Caller)[state](30.0))

    def update(self, state, released):
        ray.cloudpickle.dumps(type(self))
        return super().update(state=state, released=released)


def test_classes_are_as_before():
    before = Gaussian.sample, Caller.sample, Family.plan, Family.update
    runs = Runs(*curated(Family), {})
    for check in (runs.values, runs.followed, runs.charged, runs.resumed):
        check()
    assert before == (Gaussian.sample, Caller.sample, Family.plan, Family.update)
    assert "sample" not in vars(Heir)


def test_entropy_that_an_audit_hands_in_may_be_small():
    """A generator that takes no seed is given entropy in its place: its digits are anywhere."""
    made = VectorSum(n=60, d=2, g=5, b=20)
    options = {"security": "onion", "execution": Execution(generator="chacha20")}
    asked = Asked(made, None, options, 5)
    asked.alarm = 1e-8
    asked.sealed()


@pytest.mark.parametrize("less", [1.0, 0.9])
def test_an_event_of_many_coordinates_is_held_to_that_of_one(less):
    made = SparseVectorSum.calibrated(n=1000, d=1024, privacy=Privacy(1, 1e-6), noise_ratio=1.3)
    event: Any = made.plan(made.init()).event
    pair = buckets.ends(1, event.bias)
    charged = replace(event, bias=less * event.bias)
    if less == 1.0:
        check_event(charged, pair)
    else:
        with pytest.raises(LawError, match="the event states"):
            check_event(charged, pair)
