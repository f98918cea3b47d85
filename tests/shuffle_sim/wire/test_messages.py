"""Batches of messages: packing, counting, and what is refused on the wire."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

relaxed = settings(deadline=None, max_examples=150)


@st.composite
def symbol_batches(draw, sizes=(2, 3, 4, 255, 256, 257, 1000, 1024, 2**24, 2**33)):
    size = draw(st.sampled_from(sizes))
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 9)))
    return Alphabet(shape[1], size), draw(
        arrays(np.int64, shape, elements=st.integers(0, size - 1))
    )


@st.composite
def ones_batches(draw):
    per_label = draw(st.integers(1, 40))
    shape = draw(st.tuples(st.integers(0, 7), st.integers(1, 5)))
    return per_label, draw(arrays(np.int64, shape, elements=st.integers(0, per_label)))


@relaxed
@given(symbol_batches())
@pytest.mark.full
def test_packing_and_unpacking_is_the_identity(batch):
    alphabet, symbols = batch
    reports, _, per_label = symbols.shape
    packed = Messages.from_symbols(alphabet, symbols)
    assert packed.reports == reports
    assert packed.packed.dtype == np.uint8
    assert packed.packed.shape == (reports, -(-Messages.row_bits(alphabet, per_label) // 8))
    assert np.array_equal(packed.symbols, symbols)


@relaxed
@given(symbol_batches())
def test_the_wire_gives_back_the_same_messages(batch):
    alphabet, symbols = batch
    sent = Messages.from_symbols(alphabet, symbols).tobytes()
    received = Messages.from_bytes(alphabet, symbols.shape[2], sent, len(symbols))
    assert np.array_equal(received.symbols, symbols)
    assert received.tobytes() == sent


@relaxed
@given(symbol_batches())
def test_packed_bits_are_the_symbols_in_binary_then_zeros(batch):
    alphabet, symbols = batch
    for row, packed in zip(symbols, Messages.from_symbols(alphabet, symbols).packed, strict=True):
        bits = "".join(f"{s:0{alphabet.symbol_bits}b}" for s in row.ravel())
        assert "".join(f"{byte:08b}" for byte in packed) == bits.ljust(8 * packed.size, "0")


@relaxed
@given(ones_batches())
def test_from_ones_is_the_thermometer_code(batch):
    per_label, counts = batch
    messages = Messages.from_ones(counts, per_label)
    thermometer = (np.arange(per_label) < counts[..., None]).astype(np.uint8)
    assert messages.alphabet == Alphabet(counts.shape[1])
    assert np.array_equal(messages.symbols, thermometer)
    assert np.array_equal(messages.symbols.sum(axis=2), counts)
    if len(counts):
        assert messages.tobytes() == Messages.from_symbols(messages.alphabet, thermometer).tobytes()


@pytest.mark.parametrize("reports", [0, 1, 254, 255, 256, 509, 510, 511, 1300])
def test_sums_of_bits_count_like_brute_force(reports):
    rng = np.random.default_rng(reports)
    for labels, per_label, share in (
        (1, 1, 1.0),
        (3, 5, 1.0),
        (3, 5, 0.4),
        (2, 64, 0.99),
        (7, 3, 0.5),
    ):
        symbols = (rng.random((reports, labels, per_label)) < share).astype(np.uint8)
        sent = np.packbits(symbols.reshape(reports, labels * per_label), axis=1)
        brute = [
            int(sum(symbols[r, label].sum() for r in range(reports))) for label in range(labels)
        ]
        ones = Messages(Alphabet(labels), per_label, sent).sums()
        assert ones.dtype == np.int64
        assert ones.tolist() == brute


@relaxed
@given(symbol_batches(), st.integers(-3, 3).filter(bool))
@pytest.mark.full
def test_a_payload_of_the_wrong_length_is_refused(batch, change):
    alphabet, symbols = batch
    sent = Messages.from_symbols(alphabet, symbols).tobytes()
    wrong = sent + bytes(change) if change > 0 else sent[:change]
    if len(wrong) != len(sent):
        with pytest.raises(FrameError) as refused:
            Messages.from_bytes(alphabet, symbols.shape[2], wrong, len(symbols))
        assert refused.value.reason == "wrong-length"


@relaxed
@given(symbol_batches(), st.integers(-2, 2).filter(bool))
@pytest.mark.full
def test_a_payload_for_another_number_of_reports_is_refused(batch, more):
    alphabet, symbols = batch
    sent = Messages.from_symbols(alphabet, symbols).tobytes()
    with pytest.raises(FrameError) as refused:
        Messages.from_bytes(alphabet, symbols.shape[2], sent, len(symbols) + more)
    assert refused.value.reason == "wrong-length"


@relaxed
@given(symbol_batches(), st.data())
def test_every_single_padding_bit_is_refused(batch, data):
    alphabet, symbols = batch
    messages = Messages.from_symbols(alphabet, symbols)
    spare = -Messages.row_bits(alphabet, symbols.shape[2]) % 8
    if not spare:
        return
    planted = messages.packed.copy()
    planted[data.draw(st.integers(0, len(symbols) - 1)), -1] |= 1 << data.draw(
        st.integers(0, spare - 1)
    )
    with pytest.raises(FrameError) as refused:
        Messages.from_bytes(alphabet, symbols.shape[2], planted.tobytes(), len(symbols))
    assert refused.value.reason == "nonzero-padding"


@relaxed
@given(symbol_batches((3, 5, 1000)), st.data())
def test_a_symbol_outside_the_alphabet_is_refused(batch, data):
    alphabet, symbols = batch
    top = 1 << alphabet.symbol_bits
    planted = symbols.copy()
    planted[tuple(data.draw(st.integers(0, side - 1)) for side in symbols.shape)] = data.draw(
        st.integers(alphabet.symbols, top - 1)
    )
    sent = Messages.from_symbols(Alphabet(alphabet.labels, top), planted).tobytes()
    with pytest.raises(FrameError) as refused:
        Messages.from_bytes(alphabet, symbols.shape[2], sent, len(symbols))
    assert refused.value.reason == "symbol-out-of-range"


def test_no_reports_are_no_bytes():
    empty = Messages.from_bytes(Alphabet(3), 5, b"", 0)
    assert empty.reports == 0
    assert empty.sums().tolist() == [0, 0, 0]
    assert empty.tobytes() == b""


@pytest.mark.parametrize(
    ("labels", "symbols"),
    [(0, 2), (-1, 2), (1, 1), (1, 0), (1.0, 2), (True, 2), (1, 2.0), ("1", 2)],
)
def test_an_empty_alphabet_is_refused(labels, symbols):
    with pytest.raises(ParameterError):
        Alphabet(labels, symbols)


@pytest.mark.parametrize(
    ("size", "bits"), [(2, 1), (3, 2), (4, 2), (5, 3), (1000, 10), (1024, 10), (1025, 11)]
)
def test_symbols_and_labels_cost_the_bits_they_need(size, bits):
    assert Alphabet(1, size).symbol_bits == bits
    assert Alphabet(size).label_bits == bits
    assert Messages.row_bits(Alphabet(7, size), 5) == 35 * bits


@relaxed
@given(ones_batches(), st.integers(0, 7))
def test_tallies_of_two_parts_add_to_that_of_the_whole(batch, cut):
    _, counts = batch

    def tally(rows):
        return Tally(rows.sum(axis=0), len(rows))

    whole, parts = tally(counts), tally(counts[:cut]) + tally(counts[cut:])
    assert np.array_equal(whole.sums, parts.sums)
    assert whole.reports == parts.reports == len(counts)


@relaxed
@given(symbol_batches())
def test_sums_are_those_of_the_symbols(batch):
    alphabet, symbols = batch
    messages = Messages.from_symbols(alphabet, symbols)
    assert np.array_equal(messages.sums(), symbols.sum(axis=(0, 2)))
    assert np.array_equal(messages.row_sums(), symbols.sum(axis=(1, 2)))


def test_labels_may_have_different_numbers_of_messages():
    alphabet = Alphabet(3, columns=(2, 5, 1))
    assert (alphabet.width, alphabet.edges.tolist()) == (8, [0, 2, 7, 8])
    assert alphabet.label_of.tolist() == [0, 0, 1, 1, 1, 1, 1, 2]
    rng = np.random.default_rng(3)
    for per_label in (1, 3):
        symbols = rng.integers(0, 2, (40, 8, per_label), np.uint8)
        messages = Messages.from_symbols(alphabet, symbols)
        assert Messages.row_bits(alphabet, per_label) == 8 * per_label
        by_label = [symbols[:, low:high].sum() for low, high in ((0, 2), (2, 7), (7, 8))]
        assert messages.sums().tolist() == by_label
        again = Messages.from_bytes(alphabet, per_label, messages.tobytes(), 40)
        assert (again.symbols == symbols).all()


@pytest.mark.parametrize("columns", [(1, 2), (1, 0, 2)])
def test_columns_that_do_not_fit_are_refused(columns):
    with pytest.raises(ParameterError, match="columns"):
        Alphabet(3, columns=columns)
    with pytest.raises(ParameterError, match="symbols"):
        Alphabet(3, 4, (1, 2, 3))
