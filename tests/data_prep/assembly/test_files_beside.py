"""Files beside a graph file."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from data_prep.assembly.files_beside import path_beside, write_keys
from data_prep.edges.typed_graph import RowKeys


@pytest.mark.parametrize("suffix", ["names.txt", "parts.npy", "encoders.json", "keys.npz"])
def test_no_two_graph_files_share_one(suffix):
    assert path_beside(Path("a/g.h5"), suffix) == Path(f"a/g.{suffix}")
    assert path_beside(Path("a/g.hdf5"), suffix) == Path(f"a/g.hdf5.{suffix}")


@pytest.mark.parametrize("table", ["drivers", "file", "allow_pickle"])
def test_keys_of_a_table_of_any_name_are_written(table):
    words, file = np.arange(4, dtype=np.uint64).reshape(2, 2), BytesIO()
    write_keys({table: RowKeys(words, np.array([True, False]))}, file)
    file.seek(0)
    found = np.load(file, allow_pickle=False)
    assert found[table].tolist() == words.tolist()
    assert found[f"{table}/there"].tolist() == [True, False]
