"""Mean gradients of persons against plain loops over their records."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.erm.groups import Grouped
from protocols.erm.people import People
from protocols.problems.losses import Hinge, Logistic, MeanEstimation
from protocols.problems.multiclass import MultiClass, OneVsRestHinge, Softmax
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Gradient
from protocols.problems.regression import Huber, Squared
from protocols.problems.weighted import Weighted
from shuffle_sim import ParameterError
from shuffle_sim.arrays import dense
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.data.persons import Persons
from shuffle_sim.errors import FrameError
from shuffle_sim.sampling.kernels import using
from shuffle_sim.wire.codec import decode, encode

D = 6
LOSSES = [
    *(Logistic(), Hinge(), Squared(1.0, 1.0), Huber(1.0, None, 0.5)),
    *(MeanEstimation(), OneVsRestHinge(3)),
]
CASES = [(loss, smoothing) for loss in LOSSES for smoothing in (None, 3.0)] + [(Softmax(3), None)]


def persons_of(loss, counts, seed=0):
    """One array of records for each person."""
    rng = np.random.default_rng(seed)
    data = []
    for count in counts:
        rows = rng.normal(size=(count, loss.columns(D))) / 4
        if isinstance(loss, MultiClass):
            rows[:, -1] = rng.integers(0, 3, count)
        elif not isinstance(loss, MeanEstimation):
            rows[:, -1] = rng.choice([-1.0, 1.0], count)
        data.append(rows)
    return data


def looped(loss, theta, data, smoothing):
    """The definition: record by record, person by person."""
    return np.array(
        [
            sum(dense(loss.gradients(theta, row[None], smoothing))[0] for row in rows) / len(rows)
            for rows in data
        ]
    )


def asked(query, data, order="F"):
    persons = Persons.in_memory(data)
    rows = persons.rows(0, persons.users)
    return dense(query(np.asarray(rows, None if rows.dtype == object else np.float64, order=order)))


@pytest.mark.parametrize("kernel", ["numpy", "compiled"])
@pytest.mark.parametrize(("loss", "smoothing"), CASES)
@pytest.mark.parametrize("counts", [[5] * 7, [1] * 4, [1, 9, 2, 9, 4]], ids=str)
def test_the_mean_gradient_is_that_of_a_plain_loop(kernel, smoothing, loss, counts):
    theta = np.linspace(-0.7, 0.9, D)
    data = persons_of(loss, counts)
    query = MeanGradient(loss, theta, smoothing)
    with using(kernel):
        for order in ("C", "F"):
            found = asked(query, data, order)
            np.testing.assert_allclose(
                found, looped(loss, theta, data, smoothing), rtol=1e-10, atol=1e-12
            )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_raggedness_changes_no_persons_value(counts, seed):
    theta, loss = np.linspace(-1, 1, D), Logistic()
    data = persons_of(loss, counts, seed)
    query = MeanGradient(loss, theta)
    np.testing.assert_allclose(
        asked(query, data), looped(loss, theta, data, None), rtol=1e-10, atol=1e-12
    )
    alone = np.concatenate([asked(query, [rows]) for rows in data])
    np.testing.assert_allclose(asked(query, data), alone, rtol=1e-10, atol=1e-12)


def test_persons_of_one_record_send_that_record_s_gradient():
    loss, theta = Logistic(), np.linspace(-1, 1, D)
    data = persons_of(loss, [1] * 9)
    plain = dense(Gradient(loss, theta)(np.asfortranarray(np.concatenate(data))))
    np.testing.assert_array_equal(asked(MeanGradient(loss, theta), data), plain)


def test_equal_records_have_the_gradient_of_one():
    loss, theta = Logistic(), np.linspace(-1, 1, D)
    one, times = persons_of(loss, [1] * 5), (4, 1, 8, 2, 4)
    many = [np.repeat(rows, count, axis=0) for rows, count in zip(one, times, strict=True)]
    query = MeanGradient(loss, theta)
    np.testing.assert_allclose(asked(query, many), asked(query, one), rtol=1e-14)


def test_a_mean_is_no_longer_than_a_record_s_gradient_may_be():
    loss, theta = Logistic(), np.full(D, 0.2)
    data = [rows / 4 for rows in persons_of(loss, [3, 1, 5])]
    for rows in data:
        rows[:, -1] = np.sign(rows[:, -1])
    norms = np.linalg.norm(asked(MeanGradient(loss, theta), data), axis=1)
    assert (norms <= loss.lipschitz(1.0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("counts", [[3, 3, 3], [3, 2, 1]], ids=str)
def test_what_is_not_finite_stays_with_its_person(bad, counts):
    loss, theta = MeanEstimation(), np.zeros(D)
    persons = Persons.in_memory(persons_of(loss, counts))
    rows = persons.rows(0, 3).copy()
    rows[1][1, -1] = bad
    values = dense(MeanGradient(loss, theta)(np.asfortranarray(rows)))
    assert np.isfinite(values[[0, 2]]).all()
    assert not np.isfinite(values[1]).all()


def test_it_is_broadcast_as_a_word_of_its_own():
    query = MeanGradient(Logistic(), np.arange(3.0), 2.0)
    again = decode(encode(query), (MeanGradient, Logistic))
    assert type(again) is MeanGradient
    assert (again.loss, again.theta.tolist(), again.smoothing) == (Logistic(), [0, 1, 2], 2.0)
    with pytest.raises(FrameError, match="MeanGradient"):
        decode(encode(query), (Gradient, Logistic))


def test_rows_of_records_are_refused():
    with pytest.raises(ParameterError, match="persons' records of 4 columns"):
        MeanGradient(Logistic(), np.zeros(3))(np.zeros((5, 4)))


@pytest.mark.parametrize(
    "loss", [*LOSSES, Softmax(3), Weighted(Logistic()), Grouped(Logistic(), 2)]
)
@pytest.mark.parametrize("counts", [[5] * 4, [1, 9, 2]], ids=str)
def test_losses_at_persons_own_points_are_a_plain_loop_s(loss, counts):
    data = persons_of(loss, counts)
    thetas = np.random.default_rng(1).normal(size=(len(counts), D))
    source = Persons.in_memory(data)
    persons = PersonRows(source.rows(0, len(counts)), loss.columns(D))
    own = persons.spread(thetas)
    slopes = [
        looped(loss, theta, [rows], None)[0] for theta, rows in zip(thetas, data, strict=True)
    ]
    values = [loss.values(theta, rows).mean() for theta, rows in zip(thetas, data, strict=True)]
    found = persons.means(loss.gradients_at(own, persons.records))
    assert found == pytest.approx(np.array(slopes), abs=1e-12)
    means = persons.means(loss.values_at(own, persons.records)[:, None])[:, 0]
    assert means == pytest.approx(values, abs=1e-12)
    people = People(persons.in_order, persons.counts)
    assert people.slopes(loss, thetas) == pytest.approx(np.array(slopes), abs=1e-12)
    assert people.values(loss, thetas) == pytest.approx(values, abs=1e-12)
    last = people.chosen(np.array([len(counts) - 1]))
    assert last.records.tolist() == data[-1].tolist()
