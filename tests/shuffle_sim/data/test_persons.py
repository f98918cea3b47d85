"""Persons with many records: from arrays, tables and files; padded, chosen, held out, refused."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import VectorSum
from protocols.problems.losses import MeanEstimation
from protocols.problems.per_person import MeanGradient
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.attacks.inputs import LabelFlip
from shuffle_sim.data.labelled import held_out, labelled
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated, InMemory, Unit
from shuffle_sim.data.tables import read
from shuffle_sim.protocol.adversary import Chain
from shuffle_sim.sampling.randomness import Role, stream
from shuffle_sim.wire.fingerprint import fingerprint

relaxed = settings(deadline=None, max_examples=60)
N, D = 23, 2


def made(counts, d=D, seed=0):
    """Records in dyadic numbers, so that sums of them are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-32, 33, (count, d)) / 128 for count in counts]


RAGGED = made(np.random.default_rng(1).integers(1, 9, N))
EQUAL = np.stack(made([4] * N))


def of(persons, start=0, stop=None):
    """Each person's records again, from rows as a query sees them."""
    return list(persons.rows(start, persons.users if stop is None else stop))


def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# Where persons come from


def test_equal_persons_are_seen_as_they_are_and_not_copied():
    persons = Persons.in_memory(EQUAL)
    assert (persons.users, persons.equal, persons.m, persons.unit) == (N, True, 4, "person")
    assert persons.rows(3, 7).shape == (4, 4, D)
    assert np.shares_memory(persons.rows(3, 7), EQUAL)
    assert same(of(Persons.in_memory(list(EQUAL))), EQUAL)
    assert InMemory(np.zeros(3)).unit == "record"


@relaxed
@given(st.lists(st.integers(1, 6), min_size=1, max_size=9), st.data())
@pytest.mark.full
def test_rows_of_any_part_hold_the_records_of_its_persons(counts, data):
    arrays = made(counts)
    persons = Persons.in_memory(arrays)
    assert persons.records.tolist() == counts
    assert persons.equal == (len(set(counts)) == 1)
    start = data.draw(st.integers(0, len(counts) - 1))
    stop = data.draw(st.integers(start + 1, len(counts)))
    assert same(of(persons, start, stop), arrays[start:stop])
    assert persons.rows(start, stop).shape[1:] == ((counts[0], D) if persons.equal else ())


@relaxed
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.booleans())
def test_a_table_is_grouped_by_the_column_that_names_the_person(owners, named):
    table = made([len(owners)])[0]
    names = np.array([f"p{owner}" for owner in owners] if named else owners)
    persons = Persons.grouped(table, names)
    expected = [table[names == name] for name in sorted(set(names.tolist()))]
    assert same(of(persons), expected)


def test_persons_may_lie_in_any_population_of_records():
    source = Generated(200_000, lambda rng, count: rng.normal(size=(count, D)), seed=3)
    persons = Persons(source, [100_000 - 5, 5, 7, 100_000 - 7])
    assert not persons.resident
    assert not persons.equal
    assert np.array_equal(of(persons, 1, 3)[0], source.rows(99_995, 100_000))
    assert np.array_equal(of(persons, 1, 3)[1], source.rows(100_000, 100_007))


def test_equal_persons_are_resident_and_ragged_ones_are_not():
    assert Persons.in_memory(EQUAL).resident
    assert not Persons.in_memory(RAGGED).resident


@pytest.fixture
def table(tmp_path):
    """A CSV and a Parquet file of records in random order, and each person's records."""
    owner = np.repeat(np.arange(len(RAGGED)), [len(each) for each in RAGGED])
    order = np.random.default_rng(2).permutation(len(owner))
    rows = np.concatenate(RAGGED)[order]
    names = [f"patient {each:02}" for each in owner[order]]
    target = np.where(rows[:, 0] > 0, "yes", "no")
    columns = pyarrow.table(
        {"a": rows[:, 0], "who": names, "b": rows[:, 1], "ill": target.tolist()}
    )
    pyarrow.csv.write_csv(columns, tmp_path / "t.csv")
    pyarrow.parquet.write_table(columns, tmp_path / "t.parquet")
    kept = [rows[np.asarray(names) == name] for name in sorted(set(names))]
    return tmp_path, kept


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_name_the_person_of_each_record(table, suffix):
    folder, kept = table
    read_table = read(folder / f"t.{suffix}", None, {}, (-1.0, 1.0), "ill", "who")
    assert read_table.columns == ("a", "b")
    assert same(of(Persons.grouped(read_table.rows, read_table.person)), kept)
    rows = labelled(read_table, classes=True)
    for records, whole in zip(of(rows.persons), kept, strict=True):
        np.testing.assert_allclose(records[:, :2] * np.sqrt(3), whole, atol=1e-15)
    without = read(folder / f"t.{suffix}", ["a"], {}, (-1.0, 1.0), "ill")
    with pytest.raises(ParameterError, match=r"^person = None"):
        _ = labelled(without, classes=True).persons
    for person, match in (
        ("a", "neither a feature"),
        ("ill", "neither"),
        ("whom", "one of a, who"),
    ):
        with pytest.raises(ParameterError, match=match):
            read(folder / f"t.{suffix}", ["a"], {}, (-1.0, 1.0), "ill", person)


def parquet(folder, parts, names, **how):
    """Files with the records of these persons each, and a column that names them."""
    paths = []
    for place, part in enumerate(parts):
        paths.append(folder / f"part{place}.parquet")
        rows = np.concatenate([RAGGED[person] for person in part] or [np.empty((0, D))])
        who = [names[person] for person in part for _ in RAGGED[person]]
        columns = pyarrow.table({"b": rows[:, 1], "who": who, "a": rows[:, 0]})
        pyarrow.parquet.write_table(columns, paths[-1], row_group_size=7, **how)
    return paths


@pytest.mark.parametrize("names", [[f"p{i}" for i in range(N)], list(range(100, 100 + N))])
def test_persons_in_parquet_files_are_read_by_the_shards(tmp_path, names):
    paths = parquet(tmp_path, [range(9), [], range(9, N)], names)
    persons = pickle.loads(pickle.dumps(Persons.in_parquet(paths, "who", ["a", "b"])))
    assert persons.users == N
    assert not persons.resident
    for start, stop in ((0, N), (8, 10), (3, 4), (N - 1, N)):
        assert same(of(persons, start, stop), RAGGED[start:stop])
    every = Persons.in_parquet(paths, "who")
    assert same([each[:, ::-1] for each in of(every)], RAGGED)
    alone = Persons.in_parquet(paths, "who", ["b"])
    assert same([each[:, 0] for each in of(alone)], [each[:, 1] for each in RAGGED])


@pytest.mark.parametrize(
    "parts", [[[0, 1], [2, 0]], [[0, 1, 0]]], ids=["two files", "two places of one file"]
)
def test_a_person_in_two_shards_is_refused_by_name(tmp_path, parts):
    paths = parquet(tmp_path, parts, ["ann", "bob", "cyd"])
    with pytest.raises(ParameterError, match=r"who in .* \(not shown\): .* in one file.*part0"):
        Persons.in_parquet(paths, "who")


def test_bad_parquet_persons_are_refused(tmp_path):
    paths = parquet(tmp_path, [[0], [1]], ["ann", None])
    with pytest.raises(ParameterError, match=r"column who of .*part1.parquet, row 1 = None"):
        Persons.in_parquet(paths, "who")
    with pytest.raises(ParameterError, match=r"column whom of .*part0"):
        Persons.in_parquet(paths, "whom", ["a"])
    for columns in (["a", "who"], []):
        with pytest.raises(ParameterError, match=r"^columns = .*at least one, and not 'who'"):
            Persons.in_parquet(paths, "who", columns)
    with pytest.raises(ParameterError, match=r"^paths = "):
        Persons.in_parquet([], "who")


# What is refused


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ([], r"^data = \[\]"),
        (5, r"^data = 5"),
        (np.zeros((3, 2)), r"^data.shape = \(3, 2\)"),
        (np.zeros((3, 0, 2)), r"^data.shape"),
        (np.zeros((0, 3, 2)), r"^data.shape"),
        ([np.zeros((2, 2)), np.zeros((0, 2))], r"^data\[1\] = '2 axes'.*with a record"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], r"^data\[1\].*columns of the first"),
        ([np.zeros(2), np.zeros(2)], r"^data\[0\] = '1 axes'"),
        ([np.array([["a"]])], r"^data.dtype = '<U1'"),
        ([[[1.0, 2.0], [3.0]]], r"^data\[0\] = 'list'.*rectangular"),
        (np.zeros((2, 1, 1), complex), r"^data.dtype"),
        (np.ma.masked_equal(np.zeros((2, 1, 1)), 0), r"mask"),
        ([np.zeros((3, 1)), np.array([[0.0], [np.nan]])], r"^data\[1\] \(not shown\).*finite"),
        (np.array([[[0.0]], [[np.inf]]]), r"^data\[1\] \(not shown\).*finite"),
    ],
)
def test_persons_that_are_none_are_refused_by_name(data, match):
    with pytest.raises(ParameterError, match=match):
        Persons.in_memory(data)


@pytest.mark.parametrize(
    ("records", "match"),
    [
        ([], "an integer for each person"),
        ([2.0, 4.0], "an integer for each person"),
        ([[2, 4]], "an integer for each person"),
        ([3, 0, 3], r"^records\[1\] = 0: must be at least 1"),
        ([3, 2], "^records = 5: must be 6 in all"),
    ],
)
def test_records_that_are_not_those_of_the_data_are_refused(records, match):
    with pytest.raises(ParameterError, match=match):
        Persons(InMemory(np.zeros((6, 2))), records)


@pytest.mark.parametrize(
    ("person", "match"),
    [
        (["a", "b"], r"^person = \(2,\): must be a name for each of 3 rows"),
        ([["a"], ["b"], ["c"]], r"^person = \(3, 1\)"),
        (np.array(["a", None, "b"], object), r"^person, row 2 = None: must be given"),
        ([1.0, 2.0, np.nan], r"^person, row 3 = None"),
        (["a", "", "b"], r"^person, row 2"),
        (np.array(["a", 1, "b"], object), r"^person = .*names of one type"),
        (np.ma.masked_equal([1, 2, 3], 2), r"^person = .*without a mask"),
    ],
)
def test_names_that_are_not_those_of_the_rows_are_refused(person, match):
    with pytest.raises(ParameterError, match=match):
        Persons.grouped(np.zeros((3, 1)), person)


def test_ragged_persons_are_refused_where_equal_ones_are_needed():
    with pytest.raises(ParameterError, match=r"^data = 'ragged persons'.*equally many"):
        _ = Persons.in_memory(RAGGED).m


def test_no_error_says_how_many_records_a_person_has():
    counts = [7, 911, 13]
    arrays = made(counts)
    broken = [*arrays[:1], np.full_like(arrays[1], np.nan), arrays[2]]
    wide = [*arrays[:1], np.zeros((911, 5)), arrays[2]]
    said = []
    for data in (broken, wide):
        with pytest.raises(ParameterError) as refused:
            Persons.in_memory(data)
        said.append(str(refused.value))
    with pytest.raises(ParameterError) as refused:
        _ = Persons.in_memory(arrays).m
    for message in (*said, str(refused.value)):
        assert not re.search(r"911|931|918", message)


# Persons that are chosen and held out


@relaxed
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.randoms(use_true_random=False))
@pytest.mark.full
def test_chosen_persons_keep_all_their_records(counts, random):
    arrays = made(counts)
    order = np.array(random.sample(range(len(counts)), random.randint(1, len(counts))))
    chosen = Persons.in_memory(arrays).chosen(order)
    assert same(of(chosen), [arrays[person] for person in order])


@pytest.mark.parametrize("data", [EQUAL, RAGGED], ids=["equal", "ragged"])
def test_whole_persons_are_held_out(data):
    persons = Persons.in_memory(data)
    train, test = held_out(persons, 0.2, 7)
    assert (train.users, test.users) == (N - 5, 5)
    order = stream(7, 0, Role.SPLIT, 0).permutation(N)
    assert same([*of(test), *of(train)], [data[person] for person in order])
    assert same(of(held_out(persons, 0.2, 7)[1]), of(test))
    assert not same(of(held_out(persons, 0.2, 8)[1]), of(test))
    for fraction in (0.001, 0.999):
        with pytest.raises(ParameterError, match=f"of {N} people some are held out"):
            held_out(persons, fraction, 7)


def test_splits_of_records_are_those_of_before():
    rows = np.arange(20.0).reshape(10, 2)
    train, test = held_out(rows, 0.3, 7)
    assert test[:, 0].tolist() == [16.0, 0.0, 14.0]
    assert sorted(np.concatenate([train, test])[:, 0]) == rows[:, 0].tolist()


# Runs over persons


class MeanOfPersons(VectorSum):
    """Asks each person for minus the mean of its records, and adds these up."""

    vocabulary = property(lambda self: (MeanGradient, MeanEstimation, type(self.randomizer)))

    def plan(self, state):
        spec = super().plan(state)
        query = MeanGradient(MeanEstimation(), np.zeros(self.randomizer.labels))
        return spec and replace(spec, query=query)


ASK = {"n": N, "d": D, "g": 9, "b": 12}
HOW = {"seed": 5, "execution": Execution(block_size=8)}


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.parametrize("data", [EQUAL, made([2, 1] * 11 + [8])], ids=["equal", "ragged"])
@pytest.mark.full
def test_a_run_over_persons_is_the_run_over_their_means(fidelity, data):
    means = -np.stack([each.mean(axis=0) for each in data])
    assert np.array_equal(means * 1024, np.rint(means * 1024))  # exact, whatever the order
    plain = run(VectorSum(**ASK), means, fidelity=fidelity, **HOW)
    for workers in (1, 3):
        result = run(
            MeanOfPersons(**ASK), Persons.in_memory(data), fidelity=fidelity, workers=workers, **HOW
        )
        assert result.value.tobytes() == plain.value.tobytes()
        assert result.privacy == replace(plain.privacy, unit=Unit.PERSON)
        assert result.reports == plain.reports


def test_how_many_records_persons_have_changes_nothing_sent():
    found = [
        run(MeanOfPersons(**ASK), Persons.in_memory(data), fidelity="literal", **HOW)
        for data in (EQUAL, EQUAL[:, :1], RAGGED, [*RAGGED[:-1], made([400])[0]])
    ]
    assert len({result.costs for result in found}) == 1
    assert len({result.privacy.epsilon for result in found}) == 1


@pytest.mark.full
def test_persons_run_on_with_adversaries_and_from_files(tmp_path):
    paths = parquet(tmp_path, [range(9), range(9, N)], list(range(N)))
    values = []
    for persons in (Persons.in_memory(RAGGED), Persons.in_parquet(paths, "who", ["a", "b"])):
        adversary = Chain(attacks(["sign-flip:fraction=0.3", "dropout:rate=0.2"]))
        result = run(MeanOfPersons(**ASK), persons, adversary=adversary, **HOW)
        values.append(result.value.tobytes())
        assert result.reports.corrupted > 0
    assert values[0] == values[1]


@pytest.mark.parametrize("data", [EQUAL, RAGGED], ids=["equal", "ragged"])
def test_labels_are_flipped_in_all_records_of_a_person(data):
    persons = Persons.in_memory(data)
    flipped = Persons.in_memory([np.c_[each[:, :-1], -each[:, -1:]] for each in data])
    query = MeanGradient(MeanEstimation(), np.zeros(D))
    rows = LabelFlip(1.0).rows(None, persons.rows(0, N), None)
    assert np.array_equal(query(rows), query(flipped.rows(0, N)))
    result = run(MeanOfPersons(**ASK), persons, adversary=LabelFlip(1.0), **HOW)
    assert result.reports.corrupted == N
    with pytest.raises(ParameterError, match=r"^column = 9"):
        run(MeanOfPersons(**ASK), persons, adversary=LabelFlip(1.0, column=9), **HOW)


def test_a_record_that_is_not_finite_makes_its_person_send_zero(tmp_path):
    columns = pyarrow.table({"who": [1, 1, 2, 3, 3], "a": [0.5, None, 0.25, 0.5, 0.5]})
    pyarrow.parquet.write_table(columns, tmp_path / "gap.parquet")
    persons = Persons.in_parquet([tmp_path / "gap.parquet"], "who")
    protocol = MeanOfPersons(n=3, d=1, g=9, b=12)
    assert run(protocol, persons, seed=1).reports.nonfinite == 1


def test_another_number_of_persons_is_refused():
    with pytest.raises(ParameterError, match=f"^data = {N}: must be the rows of {N + 1} users"):
        run(MeanOfPersons(**(ASK | {"n": N + 1})), Persons.in_memory(RAGGED), seed=1)


def test_a_fingerprint_tells_persons_of_the_same_records_apart():
    flat = np.concatenate(RAGGED)
    counts = np.array([len(each) for each in RAGGED])
    other = counts.copy()
    other[:2] += (1, -1) if other[1] > 1 else (-1, 1)
    prints = [fingerprint(Persons(InMemory(flat), each)) for each in (counts, counts, other)]
    assert prints[0] == prints[1] != prints[2]


# Rows taken apart


def test_rows_that_are_not_persons_are_refused_by_a_query():
    for rows in (np.zeros((3, 2)), np.zeros((3, 4, 5)), np.zeros((3, 4, 1))):
        with pytest.raises(ParameterError, match="persons' records of 2 columns each"):
            PersonRows(rows, 2)


def test_a_person_that_claims_to_have_no_records_has_mean_zero():
    rows = np.empty(3, object)
    rows[:] = [np.ones((2, 2)), np.ones((0, 2)), np.ones((1, 2))]
    persons = PersonRows(rows, 2)
    assert persons.means(2 * persons.records).tolist() == [[2, 2], [0, 0], [2, 2]]
