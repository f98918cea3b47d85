import math
import signal
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import pytest
from runs import run

from protocols import Logistic, ScalarSum, VectorSum
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.data.file_columns import numeric
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated, Population
from shuffle_sim.errors import WITHHELD
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.protocol.adversary import Adversary

NAN, INF = math.nan, math.inf
NOT_POSITIVE_NUMBERS = [NAN, INF, -INF, 0, 0.0, -1.0, "1", None, True, 1j]
NOT_POSITIVE_INTEGERS = [0, -1, 2.0, 1.5, NAN, True, "3", None]
KINDS = [VectorSum, ScalarSum]
DATA = {VectorSum: np.zeros((4, 2)), ScalarSum: np.zeros(4)}

both = pytest.mark.parametrize("kind", KINDS)


class NoActors(Runtime):
    name = "no-actors"

    def host(self, role, *arguments):
        pytest.fail("an actor was started")

    def call(self, host, method, *arguments, many=(), returns=1):
        pytest.fail("a round was begun")

    def get(self, handles):
        pytest.fail("a result was asked for")


def explicit(kind, **changed):
    given = {"n": 4, "g": 3, "b": 20} | ({"d": 2} if kind is VectorSum else {})
    return kind(**given | changed)


def calibrated(kind, epsilon=1.0, delta=1e-6, **changed):
    given = {"n": 100, "noise_ratio": 1.05} | ({"d": 3} if kind is VectorSum else {})
    return kind.calibrated(privacy=Privacy(epsilon, delta), **given | changed)


def paper(kind, epsilon=1.0, delta=1e-6, **changed):
    given = {"n": 100} | ({"d": 3} if kind is VectorSum else {})
    return kind.paper(privacy=Privacy(epsilon, delta), **given | changed)


def start(make, kind, data=None, runtime=None, **options):
    """What a newcomer's script does: make the protocol, run it."""
    return run(
        make(kind), DATA[kind] if data is None else data, runtime=runtime or NoActors(), **options
    )


SECRET = 31337.125


@pytest.mark.parametrize(
    "refused",
    [
        lambda rows: VectorSum(n=4, d=2, g=4, b=4).check(rows),
        lambda rows: Logistic().check(rows, 1),
        lambda rows: Persons.in_memory([rows[:2], rows[2:]]),
        lambda rows: numeric("age", rows[:, 1]),
    ],
)
def test_errors_print_no_users_data(refused):
    rows = np.full((4, 2), SECRET)
    rows[2, 1] = np.nan
    with pytest.raises(ParameterError) as caught:
        refused(rows)
    assert str(SECRET) not in str(caught.value)
    assert "not shown" in str(caught.value)


def refusal(parameter, make, kind, *data, **options) -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        start(make, kind, *data, **options)
    assert caught.value.parameter == parameter
    message = str(caught.value)
    value = caught.value.value
    given = " (not shown)" if value is WITHHELD else f" = {value!r}"
    assert message.startswith(f"{parameter}{given}: must be ")
    assert len(message.splitlines()) == 1
    return caught.value


@contextmanager
def within(seconds: float):
    """Seconds of processor time, which other load on the machine does not use up."""

    def late(*_):
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@both
def test_good_input_does_reach_the_actors(kind):
    with pytest.raises(pytest.fail.Exception, match="an actor was started"):
        start(explicit, kind)


# Parameters


@both
@pytest.mark.parametrize("make", [calibrated, paper])
@pytest.mark.parametrize("value", NOT_POSITIVE_NUMBERS)
def test_epsilon_must_be_a_finite_positive_number(kind, make, value):
    refusal("epsilon", partial(make, epsilon=value), kind)


@both
@pytest.mark.parametrize("make", [calibrated, paper, explicit])
@pytest.mark.parametrize("value", [*NOT_POSITIVE_NUMBERS, 1.0, 1, 1.5])
def test_delta_must_be_a_number_between_0_and_1(kind, make, value):
    refusal("delta", partial(make, delta=value), kind)


@pytest.mark.wheel
@both
@pytest.mark.parametrize("value", [0, 0.0, -0.1, 0.5000001, 1, INF, NAN, "0.5", None, True])
def test_p_must_be_above_0_and_at_most_one_half(kind, value):
    refusal("p", partial(explicit, p=value), kind)


@both
@pytest.mark.parametrize("name", ["n", "g", "b"])
@pytest.mark.parametrize("value", NOT_POSITIVE_INTEGERS)
def test_n_g_and_b_must_be_positive_integers(kind, name, value):
    refusal(name, partial(explicit, **{name: value}), kind)


@pytest.mark.parametrize("make", [explicit, calibrated, paper])
@pytest.mark.parametrize("value", NOT_POSITIVE_INTEGERS)
def test_d_must_be_a_positive_integer(make, value):
    refusal("d", partial(make, d=value), VectorSum)


@both
@pytest.mark.parametrize("make", [calibrated, paper])
@pytest.mark.parametrize("value", NOT_POSITIVE_INTEGERS)
def test_n_must_be_a_positive_integer_however_it_is_set(kind, make, value):
    refusal("n", partial(make, n=value), kind)


@pytest.mark.parametrize("make", [explicit, calibrated, paper])
@pytest.mark.parametrize(("kind", "name"), [(VectorSum, "norm_bound"), (ScalarSum, "upper")])
@pytest.mark.parametrize("value", NOT_POSITIVE_NUMBERS)
@pytest.mark.full
def test_norm_bound_and_upper_must_be_finite_positive_numbers(make, kind, name, value):
    refusal(name, partial(make, **{name: value}), kind)


@both
@pytest.mark.parametrize("make", [explicit, calibrated])
@pytest.mark.parametrize("value", [0, -0.5, 1.0000001, NAN, INF, "1", True])
def test_honest_fraction_must_be_above_0_and_at_most_1(kind, make, value):
    refusal("honest_fraction", partial(make, honest_fraction=value), kind)


@both
@pytest.mark.parametrize("given", [{}, {"noise_ratio": 1.05, "max_bits": 60}])
def test_one_of_noise_ratio_and_max_bits_must_be_given(kind, given):
    refusal("noise_ratio, max_bits", partial(calibrated, **{"noise_ratio": None} | given), kind)


@both
@pytest.mark.parametrize("value", [1, 1.0, 0.5, 0, -1, NAN, INF, "1.05", True])
def test_noise_ratio_must_be_above_1(kind, value):
    refusal("noise_ratio", partial(calibrated, noise_ratio=value), kind)


@both
def test_noise_ratio_must_leave_room_for_dishonest_users(kind):
    error = refusal("noise_ratio", partial(calibrated, noise_ratio=1.4, honest_fraction=0.5), kind)
    assert "1.41421" in error.allowed


@both
@pytest.mark.parametrize("value", [0, 1, -5, NAN, True, "60"])
def test_max_bits_must_be_a_number_of_at_least_2(kind, value):
    refusal("max_bits", partial(calibrated, noise_ratio=None, max_bits=value), kind)


@both
@pytest.mark.parametrize(("n", "epsilon", "bits"), [(1, 1.0, 2), (4, 1.0, 8), (100, 0.01, 60)])
def test_max_bits_too_few_for_the_privacy_asked_for_are_refused(kind, n, epsilon, bits):
    make = partial(calibrated, n=n, epsilon=epsilon, noise_ratio=None, max_bits=bits)
    assert "larger" in refusal("max_bits", make, kind).allowed


@both
@pytest.mark.parametrize("delta", [1e-300, 9e-51])
@pytest.mark.parametrize("aim", [{}, {"noise_ratio": None, "max_bits": 60}])
def test_delta_below_what_can_be_certified_is_refused(kind, delta, aim):
    refusal("delta", partial(calibrated, delta=delta, **aim), kind)


def test_the_least_delta_grows_with_the_dimension():
    error = refusal("delta", partial(calibrated, delta=1e-48, d=101), VectorSum)
    assert "1.01e-48" in error.allowed
    assert calibrated(VectorSum, delta=1e-48, d=99).delta == 1e-48


@both
def test_more_bits_than_fit_a_report_are_refused(kind):
    refusal("g + b", partial(explicit, b=2**53), kind)
    refusal("n b", partial(explicit, n=2**40, b=2**20), kind)


# The paper's theorems


@both
@pytest.mark.parametrize("epsilon", [15.001, 100.0, 1e300])
def test_the_papers_constants_are_refused_above_epsilon_15(kind, epsilon):
    assert "15]" in refusal("epsilon", partial(paper, epsilon=epsilon), kind).allowed


@both
@pytest.mark.parametrize("delta", [0.5, 0.75])
def test_the_papers_constants_are_refused_from_delta_one_half(kind, delta):
    assert "0.5)" in refusal("delta", partial(paper, delta=delta), kind).allowed


@pytest.mark.parametrize("n", [1, 9, 16])
@pytest.mark.parametrize("g", [None, 4])
def test_the_hidden_condition_of_lemma_3_1_is_checked(n, g):
    error = refusal("epsilon", partial(paper, epsilon=15.0, delta=0.1, n=n, g=g), ScalarSum)
    assert "Lemma 3.1" in error.allowed
    assert "g >= 6" in error.allowed
    assert paper(ScalarSum, epsilon=15.0, delta=0.1, n=n, g=6).g == 6  # the advice holds


@pytest.mark.parametrize("g", [0, 9, 10.0, True])
def test_lemma_3_1_needs_g_of_at_least_the_root_of_n(g):
    assert "10" in refusal("g", partial(paper, n=100, g=g), ScalarSum).allowed


# Data


class Few(Population):
    users = 3

    def rows(self, start, stop):
        return np.zeros((stop - start, 2))


def with_value(value, dtype=float):
    rows = np.zeros((4, 2), dtype)
    rows[2, 1] = value
    return rows


BAD_ROWS = {
    "NaN": ("data[2]", with_value(NAN)),
    "infinity": ("data[2]", with_value(INF)),
    "minus infinity": ("data[2]", with_value(-INF)),
    "float32 NaN": ("data[2]", with_value(NAN, np.float32)),
    "a list with NaN": ("data[2]", with_value(NAN).tolist()),
    "one row too few": ("data.shape", np.zeros((3, 2))),
    "one row too many": ("data.shape", np.zeros((5, 2))),
    "one column too many": ("data.shape", np.zeros((4, 3))),
    "transposed": ("data.shape", np.zeros((2, 4))),
    "no columns": ("data.shape", np.zeros(4)),
    "three axes": ("data.shape", np.zeros((4, 2, 1))),
    "no rows": ("data.shape", np.zeros((0, 2))),
    "a number": ("data.shape", 3.0),
    "nothing": ("data.shape", []),
    "a string": ("data.shape", "rows"),
    "a dict": ("data.shape", {"a": [1]}),
    "strings": ("data.dtype", np.full((4, 2), "1.0")),
    "objects": ("data.dtype", np.zeros((4, 2), object)),
    "gaps": ("data.dtype", [[1.0, None]] * 4),
    "complex": ("data.dtype", np.zeros((4, 2), complex)),
    "dates": ("data.dtype", np.zeros((4, 2), "M8[D]")),
    "huge integers": ("data.dtype", [[10**400, 0]] * 4),
    "ragged": ("data", [[1.0, 2.0], [3.0], [4.0, 5.0], [6.0, 7.0]]),
    "another population": ("data", Few()),
    "masked": ("data", np.ma.array(np.zeros((4, 2)), mask=[[0, 1]] * 4)),
}


@pytest.mark.parametrize(("parameter", "rows"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_are_not_n_finite_vectors_are_refused(parameter, rows):
    refusal(parameter, explicit, VectorSum, rows)


@pytest.mark.parametrize(
    "rows",
    [
        [1.0, NAN, 0.0, 0.0],
        np.zeros((4, 1)),
        np.zeros(3),
        [["1"]] * 4,
        [1j, 0, 0, 0],
        [[1], [1, 2], [], []],
    ],
)
def test_values_that_are_not_n_finite_numbers_are_refused(rows):
    with pytest.raises(ParameterError, match=r"^data"):
        start(explicit, ScalarSum, rows)


@both
@pytest.mark.full
def test_whole_numbers_and_truth_values_are_data(kind):
    for dtype in (bool, np.int8, np.uint64, np.float16):
        assert (
            start(
                explicit, kind, DATA[kind].astype(dtype), InProcessRuntime(), seed=1
            ).reports.accepted
            == 4
        )


# Options of a run

BAD_OPTIONS = [
    *(("workers", value) for value in [0, -1, 5, 1.0, True, "2", None, NAN]),
    *(("fidelity", value) for value in ["exact", "Literal", "", 0, b"literal"]),
    *(("seed", value) for value in [-1, 2**128, 1.0, True, "7", NAN]),
    *(("adversary", value) for value in ["dropout", Adversary, 0.5]),
    *(("block_size", value) for value in [-1, 1.5, True, "2"]),
    ("block_size", 0),
]


@both
@pytest.mark.parametrize(("name", "value"), BAD_OPTIONS)
def test_options_outside_their_range_are_refused(kind, name, value):
    refusal(name, explicit, kind, **{name: value})


@pytest.mark.wheel
@pytest.mark.parametrize("name", ["spark", "", "Ray", None, 3, NoActors])
def test_a_runtime_that_is_not_registered_is_refused(name):
    with pytest.raises(ParameterError, match="one of inprocess, processes, ray") as caught:
        run(explicit(VectorSum), DATA[VectorSum], runtime=name)
    assert caught.value.parameter == "runtime"


def test_a_report_too_large_for_literal_is_refused():
    error = refusal(
        "fidelity",
        partial(explicit, n=1, b=2**30, d=8),
        VectorSum,
        np.zeros((1, 8)),
        fidelity="literal",
    )
    assert "counts or aggregate" in error.allowed


def test_a_round_too_large_to_be_numbered_is_refused():
    data = Generated(2**31, lambda rng, count: np.zeros((count, 10)))
    with pytest.raises(
        ParameterError, match="counts or aggregate: a literal round would send 250 GiB"
    ) as caught:
        run(VectorSum(n=2**31, d=10, g=50, b=50), data, fidelity="literal")
    assert caught.value.parameter == "fidelity"


# What is absurd but finite: accepted or refused, but in words, and soon

ABSURD = {
    "epsilon of 400 digits": lambda: calibrated(VectorSum, epsilon=10**400),
    "p of 400 digits": lambda: explicit(VectorSum, p=10**400),
    "n of 400 digits": lambda: explicit(VectorSum, n=10**400),
    "d of 400 digits": lambda: start(partial(explicit, d=10**400), VectorSum),
    "tiny epsilon": lambda: calibrated(VectorSum, epsilon=1e-300),
    "tiny epsilon, scalar": lambda: calibrated(ScalarSum, epsilon=1e-300),
    "large epsilon": lambda: calibrated(VectorSum, epsilon=700.0),
    "huge epsilon": lambda: calibrated(VectorSum, epsilon=1e300),
    "huge epsilon, scalar": lambda: calibrated(ScalarSum, epsilon=1e300),
    "tiny epsilon, Lemma 3.1": lambda: paper(ScalarSum, epsilon=1e-200),
    "tiny epsilon, Theorem 3.2": lambda: paper(VectorSum, epsilon=1e-160),
    "tiny delta, Lemma 3.1": lambda: paper(ScalarSum, delta=5e-324),
    "tiny delta, Theorem 3.2": lambda: paper(VectorSum, delta=5e-324),
    "huge noise ratio": lambda: calibrated(VectorSum, noise_ratio=1e300),
    "ample bits": lambda: calibrated(VectorSum, n=10_000, noise_ratio=None, max_bits=10_000),
    "ample bits, scalar": lambda: calibrated(
        ScalarSum, n=10_000, noise_ratio=None, max_bits=10_000
    ),
    "max_bits of 400 digits": lambda: calibrated(VectorSum, noise_ratio=None, max_bits=10**400),
    "tiny upper": lambda: start(partial(explicit, upper=1e-320), ScalarSum, runtime="inprocess"),
    "tiny p": lambda: start(partial(explicit, p=1e-300), VectorSum, runtime="inprocess"),
    "no room for honest users": lambda: explicit(VectorSum, honest_fraction=1e-12),
    "a class for a protocol": lambda: run(VectorSum, DATA[VectorSum], runtime=NoActors()),
    "a pair for a privacy": lambda: VectorSum.calibrated(
        n=9, d=2, privacy=(1, 1e-6), noise_ratio=1.1
    ),
    "a list for a runtime": lambda: start(explicit, VectorSum, runtime=["ray"]),
}


@pytest.mark.parametrize("attempt", ABSURD.values(), ids=ABSURD)
@pytest.mark.full
def test_absurd_parameters_are_refused_in_words_or_work(attempt):
    with within(3.0), suppress(ParameterError):
        attempt()


@pytest.mark.parametrize(
    ("parameter", "make"),
    [
        ("max_bits", partial(calibrated, n=10_000, noise_ratio=None, max_bits=2**50)),
        ("honest_fraction", partial(explicit, honest_fraction=1e-12)),
        ("norm_bound", partial(explicit, norm_bound=1e308)),
        ("epsilon", partial(calibrated, epsilon=1e-9)),
        ("epsilon", partial(paper, epsilon=1e-6)),
    ],
)
def test_the_parameter_named_is_the_one_that_was_given(parameter, make):
    refusal(parameter, make, VectorSum)


# Clipping at the users' side


def noiseless(kind, n, **changed):
    """So many steps and so little noise that the sum is exact to 1e-6 or so."""
    return explicit(kind, n=n, g=2**30, b=1, p=1e-12, **changed)


@pytest.mark.wheel
@pytest.mark.parametrize("fidelity", ["counts", "aggregate"])
def test_rows_above_the_norm_bound_are_scaled_to_it_and_counted(fidelity):
    # Norms 0, 2, 5, 2 + 1e-9, 2.2e5.
    rows = np.array([[0.0, 0.0], [1.2, 1.6], [3.0, 4.0], [-2.0 - 1e-9, 0.0], [2e5, -1e5]])
    result = run(noiseless(VectorSum, 5, norm_bound=2.0), rows, fidelity=fidelity, seed=1)
    assert (result.reports.clipped, result.reports.accepted, result.reports.nonfinite) == (3, 5, 0)
    expected = np.array([1.2 + 1.2 - 2 + 4 / 5**0.5, 1.6 + 1.6 - 2 / 5**0.5])
    np.testing.assert_allclose(result.value, expected, atol=1e-6)


@pytest.mark.parametrize("fidelity", ["counts", "aggregate"])
def test_values_outside_the_range_are_clipped_and_counted(fidelity):
    values = [-1.0, 0.0, 0.5, 3.0, 3.5, 1e300, -1e-300]
    result = run(noiseless(ScalarSum, 7, upper=3.0), values, fidelity=fidelity, seed=1)
    assert (result.reports.clipped, result.reports.accepted) == (4, 7)
    assert result.value == pytest.approx(0.5 + 3 * 3.0, abs=1e-6)


@both
def test_literal_runs_count_the_same_clipping(kind):
    rows = np.array([[3.0, 0.0], [0.1, 0.0], [0.0, -1.5], [0.5, 0.5]])
    data = rows if kind is VectorSum else rows.sum(axis=1)
    counted = {
        f: start(explicit, kind, data, InProcessRuntime(), fidelity=f, seed=1).reports
        for f in ("literal", "counts", "aggregate")
    }
    assert {accounts.clipped for accounts in counted.values()} == {2}


@pytest.mark.parametrize("bound", [1e-100, 1e-5, 1.0, 1e5, 1e100])
@pytest.mark.parametrize("times", [0.25, 4.0, 1e6])
def test_clipping_holds_at_every_scale(bound, times):
    # squares that under- or overflow would leave long rows as they are, or blow short ones up
    randomizer = explicit(VectorSum, n=1, d=4, norm_bound=bound).randomizer
    admitted, clipped = randomizer.admit(np.full((1, 4), times * bound / 2))
    assert clipped == (times > 1)
    np.testing.assert_allclose(
        dense(admitted), np.full((1, 4), min(times, 1.0) * bound / 2), rtol=1e-12
    )


@pytest.mark.parametrize("bound", [1e-300, 1e-200, 1e200, 1e300])
def test_bounds_whose_squares_vanish_or_overflow_are_refused(bound):
    refusal("norm_bound", partial(explicit, norm_bound=bound), VectorSum)


@pytest.mark.parametrize("largest", [1e154, 1e300, 1.7e308])
def test_a_row_whose_norm_overflows_is_scaled_to_the_bound(largest):
    rows = np.full((1, 100), largest)
    admitted, clipped = explicit(VectorSum, n=1, d=100).randomizer.admit(rows)
    assert clipped == 1
    np.testing.assert_allclose(dense(admitted), np.full((1, 100), 0.1), rtol=1e-12)
