"""Cohorts: which ranges they are, and how they fall into blocks."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError

relaxed = settings(deadline=None, max_examples=200)


@st.composite
def cohorts(draw):
    ranges, end = [], 0
    for _ in range(draw(st.integers(1, 6))):
        start = end + draw(st.integers(0, 12))
        end = start + draw(st.integers(1, 25))
        ranges.append((start, end))
    return Cohort(tuple(ranges))


def users(cohort: Cohort) -> list[int]:
    return [user for start, stop in cohort.ranges for user in range(start, stop)]


REFUSED = {
    "nobody": (),
    "an empty range": ((3, 3),),
    "a backward range": ((3, 2),),
    "an empty second range": ((0, 2), (4, 4)),
    "negative users": ((-1, 3),),
    "descending ranges": ((5, 7), (0, 2)),
    "overlapping ranges": ((0, 5), (4, 8)),
    "nested ranges": ((0, 9), (2, 3)),
    "the same range twice": ((0, 3), (0, 3)),
}


@pytest.mark.parametrize("ranges", REFUSED.values(), ids=REFUSED)
def test_what_is_not_a_cohort_is_refused(ranges):
    with pytest.raises(ParameterError, match="cohort"):
        Cohort(ranges)


@pytest.mark.parametrize(
    "ranges", [((0.5, 2.0),), ((0, float("nan")),), ((False, True),), ((0, float("inf")),)]
)
def test_users_that_are_not_integers_are_refused(ranges):
    with pytest.raises(ParameterError, match="cohort"):
        Cohort(ranges)


@relaxed
@given(cohorts())
def test_size_and_stop_are_those_of_the_listed_users(cohort):
    assert cohort.size == len(users(cohort)) == len(set(users(cohort)))
    assert cohort.stop == users(cohort)[-1] + 1
    assert Cohort.of(*cohort.ranges[0]).ranges == cohort.ranges[:1]


@relaxed
@given(cohorts(), st.integers(0, 120), st.integers(1, 120))
def test_within_lists_exactly_the_users_inside(cohort, start, length):
    stop = start + length
    parts = list(cohort.within(start, stop))
    assert [u for low, high in parts for u in range(low, high)] == [
        u for u in users(cohort) if start <= u < stop
    ]
    assert all(low < high for low, high in parts)


@relaxed
@given(cohorts(), st.integers(1, 40))
def test_blocks_partition_a_cohort(cohort, block_size):
    blocks = range(-(-cohort.stop // block_size))
    parts = [part for b in blocks for part in cohort.within(b * block_size, (b + 1) * block_size)]
    assert [u for low, high in parts for u in range(low, high)] == users(cohort)


@relaxed
@given(cohorts(), st.integers(1, 40))
def test_frames_count_like_brute_force(cohort, block_size):
    in_block = Counter(user // block_size for user in users(cohort))
    assert cohort.frames(block_size) == Counter(in_block.values())
    assert set(cohort.frames(block_size).elements()) == set(in_block.values())


@relaxed
@given(cohorts(), st.integers(1, 40))
def test_frames_carry_the_whole_cohort(cohort, block_size):
    assert sum(size * blocks for size, blocks in cohort.frames(block_size).items()) == cohort.size


def test_frames_of_a_huge_cohort_need_no_list_of_it():
    assert Cohort.of(0, 10**12 + 5).frames(10) == {10: 10**11, 5: 1}
    assert Cohort(((3, 10**12), (10**12, 10**12 + 5))).frames(10) == {7: 1, 10: 10**11 - 1, 5: 1}
