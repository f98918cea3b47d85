import numpy as np
import pytest

from shuffle_sim.data.labelled import held_out, labelled
from shuffle_sim.data.schema import Schema
from shuffle_sim.data.tables import Table, bundled, read
from shuffle_sim.errors import ParameterError


def table(target, target_bounds=None) -> Table:
    rows = np.random.default_rng(1).uniform(-3, 5, (len(target), 2))
    return Table(
        name="t",
        schema=Schema.within("ab", [-2.0, 0.0], [4.0, 5.0]),
        rows=rows,
        target=np.asarray(target),
        target_bounds=target_bounds,
    )


@pytest.mark.parametrize("name", ["breast-cancer", "digits", "diabetes", "wine"])
def test_features_lie_in_the_unit_ball_with_a_constant_column(name):
    classes = name != "diabetes"
    made = labelled(
        bundled(name),
        classes=classes,
        positive={"digits": ["3"], "wine": ["class_1"]}.get(name, []),
    )
    features, d = made.rows[:, :-1], len(made.table.columns)
    assert features.shape == (len(made.table.rows), d + 1)
    assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-12
    np.testing.assert_allclose(features[:, -1], 1 / np.sqrt(d + 1), rtol=1e-15)
    np.testing.assert_allclose(
        features[:, :-1] * np.sqrt(d + 1), made.table.scaled() * np.sqrt(d), atol=1e-15
    )
    assert np.abs(made.rows[:, -1]).max() <= 1
    assert (set(made.rows[:, -1].tolist()) == {-1.0, 1.0}) == classes


def test_the_last_of_two_classes_is_plus_one_unless_named():
    assert labelled(table(["no", "yes", "no"]), classes=True).rows[:, -1].tolist() == [-1, 1, -1]
    other = labelled(table(["no", "yes", "no"]), classes=True, positive=["no"])
    assert other.rows[:, -1].tolist() == [1, -1, 1]
    assert other.rule == "no = +1, yes = -1"
    many = labelled(table([3, 1, 4, 1]), classes=True, positive=["1", "3"])
    assert many.rows[:, -1].tolist() == [1, 1, -1, 1]


def test_numbers_are_mapped_from_public_bounds_and_clipped():
    made = labelled(table([0.0, 10.0, 2.5, 11.0], (0.0, 10.0)), classes=False)
    assert made.rows[:, -1].tolist() == [-1, 1, -0.5, 1]
    assert (made.clipped_labels, made.half_range) == (1, 5.0)


def test_weights_are_those_of_the_table_s_own_units():
    made = labelled(table([1, 2] * 20), classes=True)
    inside = ((made.table.rows >= made.table.lower) & (made.table.rows <= made.table.upper)).all(
        axis=1
    )
    assert 0 < inside.sum() < 40
    theta = np.array([2.0, -3.0, 0.7])
    weights, intercept = made.weights(theta)
    np.testing.assert_allclose(
        (made.table.rows @ weights + intercept)[inside],
        (made.rows[:, :-1] @ theta)[inside],
        rtol=1e-12,
    )


def test_held_out_people_are_a_part_that_the_seed_says():
    rows = np.arange(100.0).reshape(50, 2)
    train, test = held_out(rows, 0.2, 7)
    assert (len(train), len(test)) == (40, 10)
    assert sorted(map(tuple, [*train, *test])) == sorted(map(tuple, rows))
    assert np.array_equal(held_out(rows, 0.2, 7)[1], test)
    assert not np.array_equal(held_out(rows, 0.2, 8)[1], test)
    assert not np.array_equal(held_out(rows, 0.2, None)[1], held_out(rows, 0.2, None)[1])


BAD = {
    "no label": (table([1, 2]), True, [], "the column to predict"),
    "one class": (table(["a", "a"]), True, [], "two classes"),
    "three classes": (
        table(["a", "b", "c"]),
        True,
        [],
        "'3 classes': must be of two classes; or give --positive",
    ),
    "unknown class": (table(["a", "b"]), True, ["c"], "one of the classes in the label column"),
    "all classes": (table(["a", "b"]), True, ["a", "b"], "not all"),
    "gap": (table(np.array(["a", None, "b"], object)), True, [], "label, row 2"),
    "nan": (table([0.0, 1.0, np.nan]), True, [], "label, row 3"),
    "classes for a regression": (table(["a", "b"]), False, [], "a number with public bounds"),
    "text with bounds": (table(["a", "b"], (0.0, 1.0)), False, [], "numeric"),
    "infinite": (table([0.0, np.inf], (0.0, 1.0)), False, [], "row 2"),
    "positive of a regression": (table([0.0, 1.0], (0.0, 1.0)), False, ["1"], "losses of classes"),
}
BAD["no label"] = (
    Table(name="t", schema=Schema.within("a", [0.0], [1.0]), rows=np.zeros((2, 1))),
    *BAD["no label"][1:],
)


@pytest.mark.parametrize("case", BAD)
def test_labels_of_the_wrong_kind_are_refused_by_name(case):
    given, classes, positive, words = BAD[case]
    with pytest.raises(ParameterError, match=words):
        labelled(given, classes=classes, positive=positive)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 0.001, 0.999, float("nan")])
def test_a_fraction_that_leaves_nobody_on_one_side_is_refused(fraction):
    with pytest.raises(ParameterError, match="test_fraction"):
        held_out(np.zeros((50, 2)), fraction, 1)


def test_a_file_s_label_may_be_text_and_is_no_column(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,ill,size\n31,yes,1.5\n47,no,1.9\n20,no,1.7\n")
    found = read(path, None, {"age": (0.0, 120.0)}, (1.0, 2.0), "ill")
    assert found.columns == ("age", "size")
    assert labelled(found, classes=True).rows[:, -1].tolist() == [1, -1, -1]
    real = labelled(read(path, ["age"], {"size": (1.0, 2.0)}, (0.0, 120.0), "size"), classes=False)
    np.testing.assert_allclose(real.rows[:, -1], [0, 0.8, 0.4], atol=1e-12)
    with pytest.raises(ParameterError, match="not the label 'age'"):
        read(path, ["age"], {}, (0.0, 120.0), "age")
    with pytest.raises(ParameterError, match="one of age, ill, size"):
        read(path, ["age"], {}, (0.0, 120.0), "sick")
    with pytest.raises(ParameterError, match="bounds of size"):
        read(path, ["age"], {"size": (2.0, 1.0)}, (0.0, 120.0), "size")
