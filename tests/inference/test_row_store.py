"""Rows of layers in files: kept from start to start, and read without what lies around them."""

import re
from pathlib import Path

import numpy as np
import pytest

from leapmpi.errors import DataError
from leapmpi.inference.row_store import StagedRows


def test_rows_are_those_that_an_earlier_start_finished(tmp_path):
    wrote = np.arange(48, dtype=np.float32).reshape(12, 4)
    store = StagedRows(tmp_path, 3, {"seed": 1}, resume=False)
    store.rows("layer-1", 12, 4, wrote.dtype)[:] = wrote
    store.finish(1, "layer-1")
    store.release()
    again = StagedRows(tmp_path, 3, {"seed": 1}, resume=True)
    np.testing.assert_array_equal(again.kept("layer-1", 12, 4, wrote.dtype), wrote)
    assert again.rows("empty", 0, 4, wrote.dtype).shape == (0, 4)


def test_predictions_in_one_folder_do_not_overwrite_each_other(tmp_path):
    first, second = (StagedRows(tmp_path, 0, {"weights": name}, resume=False) for name in "ab")
    for store, value in ((first, 1), (second, 2)):
        store.rows("layer-1", 3, 2, np.dtype(np.float32))[:] = value
        store.finish(1, "layer-1")
    second.close()
    assert (first.kept("layer-1", 3, 2, np.dtype(np.float32)) == 1).all()
    with pytest.raises(DataError, match="is used by another leapmpi predict of the same rows"):
        StagedRows(tmp_path, 0, {"weights": "a"}, resume=True)
    first.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell how maps are read")
def test_the_system_reads_no_more_than_the_rows_that_are_asked_for(tmp_path):
    rows = StagedRows(tmp_path, 0, {}, resume=False).rows("layer-1", 5000, 16, np.dtype(np.float32))
    rows[:] = 1
    maps = Path("/proc/self/smaps").read_text()
    flags = re.search(r"layer-1\.rows\n(?:(?!VmFlags)\w+:.*\n)*VmFlags: (.*)\n", maps)[1]
    assert "rr" in flags.split()
