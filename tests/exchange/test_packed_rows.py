"""Rows packed without dropped columns and zeros arrive with all bits that are read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.exchange import packed_rows
from leapmpi.exchange.context import Packing
from leapmpi.exchange.packed_rows import RowPacking
from leapmpi.exchange.short_exponents import BLOCK, lengthen, most_words, shorten, shortened
from leapmpi.nn.dropout import drop_features, kept_columns
from leapmpi.system.counter_rng import TRAIN, DrawKey


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 40),
    width=st.integers(1, 70),
    zeros=st.sampled_from([0.0, 0.5, 1.0]),
    rate=st.sampled_from([None, 0.0, 0.3, 1.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    piece=st.sampled_from([8, 600, 1 << 18]),
    shortens=st.booleans(),
    spread=st.sampled_from([0, 1, 20]),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_is_read_arrives_to_the_bit(rows, width, zeros, rate, dtype, piece, shortens, spread, seed):
    random = np.random.default_rng(seed)
    sent = random.standard_normal((rows, width)) * np.exp(spread * random.standard_normal((rows, width)))
    sent = sent.clip(-1e38, 1e38).astype(dtype)
    sent[random.random((rows, width)) < zeros] = 0
    # Numbers that are not equal to themselves, or equal to zero, are told by their bits.
    sent[random.random((rows, width)) < 0.1] = -0.0
    sent[random.random((rows, width)) < 0.05] = np.nan
    kept = None
    if rate is not None:
        kept = kept_columns(random.integers(0, 2**40, rows), DrawKey(TRAIN, seed, 0, 0), 2, rate, width)
    before, packed_rows.PIECE = packed_rows.PIECE, piece
    try:
        packing = RowPacking(rows, width, np.dtype(dtype), kept, shortens)
        pieces = packing.pack(sent)
        arrived = np.zeros_like(sent)
        packing.unpack(pieces, arrived)
    finally:
        packed_rows.PIECE = before
    expected = sent if kept is None else np.where(kept.astype(bool), sent, dtype(0))
    assert arrived.tobytes() == expected.tobytes()
    assert len(pieces) == len(packing.rooms)
    for each, room in zip(pieces, packing.rooms, strict=True):
        assert 0 < len(each) <= room


@pytest.mark.parametrize("width", [1, 4, 7, 64])
def test_the_kept_columns_are_those_of_dropout(width):
    vertices, key = np.arange(50) * 977, DrawKey(TRAIN, 3, 1, 7)
    masked = drop_features(torch.ones(50, width), torch.from_numpy(vertices), key, 2, 0.4)
    assert np.array_equal(kept_columns(vertices, key, 2, 0.4, width), (masked.numpy() != 0).astype(np.uint8))


def test_a_zero_takes_a_bit():
    rows = np.zeros((100, 32), np.float32)
    rows[:, 0] = 1
    packing = RowPacking(100, 32, rows.dtype, None)
    assert sum(map(len, packing.pack(rows))) == 100 * 32 // 8 + 100 * 4


def test_rows_without_zeros_take_no_more_than_they_are():
    rows = np.ones((100, 32), np.float32)
    assert sum(map(len, RowPacking(100, 32, rows.dtype, None).pack(rows))) == rows.nbytes


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_short_exponents_take_27_bits_a_number_and_8_more_for_a_few(zeros):
    random = np.random.default_rng(0)
    rows = random.standard_normal((1000, 32)).astype(np.float32)
    rows[random.random(rows.shape) < zeros] = 0
    whole, short = (
        sum(map(len, RowPacking(1000, 32, rows.dtype, None, shortens).pack(rows))) for shortens in (False, True)
    )
    numbers = np.count_nonzero(rows)
    saved = numbers * 5 / 8
    assert 0.93 * saved < whole - short < saved


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100_000])
@pytest.mark.parametrize("bits", [0, 1, 0x7F800000, 0x7F800001, 0xFFC00123, 0x80000000])
def test_numbers_of_any_exponent_come_back_among_others(count, bits):
    numbers = np.random.default_rng(1).standard_normal(count).astype(np.float32).view(np.uint32)
    numbers[::7] = bits
    room, found = np.empty(most_words(count), np.uint32), np.empty(count + BLOCK, np.uint32)
    lengthen(room[: shorten(numbers, count, room)], found)
    assert np.array_equal(found[:count], numbers)


def test_words_of_random_bits_are_not_shortened():
    words = np.random.default_rng(2).integers(0, 2**32, 5000).astype(np.uint32)
    assert shortened(words, 5000).tobytes() == words.tobytes()


def test_slow_links_between_nodes_pack():
    rates = [1e-10, 1e-9, 8e-9, 4e-8]
    assert [packed_rows.packing(byte, 2) for byte in rates] == [0, 1, 1, 2]
    assert packed_rows.packing(4e-8, 1) == Packing.NONE
