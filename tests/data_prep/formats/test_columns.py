"""Columns of edges in text: times are whole numbers to the last bit, however they are spelled."""

import numpy as np
import pytest

from data_prep.formats.columns import EdgeColumns, TableColumns, whole_numbers
from data_prep.formats.numeric_text import Layout
from leapmpi.errors import DataError

SPELLED = {
    "17": 17,
    "1.7e9": 1_700_000_000,
    "1e16": 10**16,
    "-1.5E+1": -15,
    "9007199254740993": 2**53 + 1,
    "9007199254740993.0": 2**53 + 1,
    "9223372036854775807": 2**63 - 1,
}
REFUSED = ["1e19", "9223372036854775808", "1e999999999", "9007199254740992.5", "1e16x"]


def times_of_text(tmp_path, words):
    text = "".join(f"0 1 {word}\n" for word in words).encode()
    return EdgeColumns(time=2).of_text(tmp_path / "edges.txt", text, Layout(None, 3, None, 0), 0)["time"]


def times_of_table(tmp_path, words):
    batch = TableColumns(tmp_path / "edges.csv", {"time": words}, len(words))
    return EdgeColumns(time="time").of_batch(batch)["time"]


@pytest.mark.parametrize("times", [times_of_text, times_of_table])
def test_times_are_exact_however_they_are_spelled(tmp_path, times):
    found = times(tmp_path, list(SPELLED))
    assert found.dtype == np.int64
    assert found.tolist() == list(SPELLED.values())


@pytest.mark.parametrize("times", [times_of_text, times_of_table])
@pytest.mark.parametrize("word", REFUSED)
def test_a_time_that_is_no_whole_number_of_64_bits_is_named(tmp_path, times, word):
    with pytest.raises(DataError, match=r"edges\.\w+, (data )?row 1 \(counted from 0\)"):
        times(tmp_path, ["1e16", word])


@pytest.mark.parametrize("word", ["1.5", "", "nan", *REFUSED])
def test_a_column_of_whole_numbers_takes_them_in_any_spelling_and_no_others(tmp_path, word):
    batch = TableColumns(tmp_path / "people.csv", {"born": ["1.7e9", word]}, 2)
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\): '.*' in column 'born' is not a whole number"):
        whole_numbers(batch, "born", "whole number")
    batch.columns["born"][1] = "5.0"
    assert whole_numbers(batch, "born", "whole number").tolist() == [1_700_000_000, 5]
