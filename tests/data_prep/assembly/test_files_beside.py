"""Files beside a graph file."""

from pathlib import Path

import pytest

from data_prep.assembly.files_beside import path_beside


@pytest.mark.parametrize("suffix", ["names.txt", "parts.npy", "encoders.json", "keys.npz"])
def test_no_two_graph_files_share_one(suffix):
    assert path_beside(Path("a/g.h5"), suffix) == Path(f"a/g.{suffix}")
    assert path_beside(Path("a/g.hdf5"), suffix) == Path(f"a/g.hdf5.{suffix}")
