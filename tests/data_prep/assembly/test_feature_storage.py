"""What import stores sparse: the same numbers as dense, chosen by the share of entries that are not zero."""

import numpy as np
import pytest

from data_prep.assembly.feature_rows import SPARSE_BELOW, FeatureRows, stored
from data_prep.edges.raw_graph import SparseRows
from data_prep.workspace import Workspace
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import DataError

WIDTH = 100


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path, 2**30, 1)


def source(share, seed=0, rows=40):
    """Random triplets, some of them twice, some that cancel out: as SparseRows and dense."""
    rng = np.random.default_rng(seed)
    count = int(share * rows * WIDTH)
    row, column = rng.integers(0, rows, count), rng.integers(0, WIDTH, count)
    data = rng.integers(1, 9, count).astype(np.float64)
    row, column = np.r_[row, 3, 3, row[:5]], np.r_[column, 7, 7, column[:5]]
    data = np.r_[data, 2.5, -2.5, data[:5]]
    sparse = SparseRows.from_triplets(row, column, data, (rows, WIDTH))
    return sparse, sparse.dense(np.dtype(np.float32))


@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("kept", [None, np.array([3, 4, 30, 39])])
def test_sparse_rows_are_the_dense_ones(workspace, dtype, normalise, kept, monkeypatch):
    monkeypatch.setattr("data_prep.assembly.feature_rows.BLOCK_BYTES", 4096)
    for raw in source(0.03):
        rows = FeatureRows(raw, dtype, normalise, "here", kept)
        found = stored(rows, "sparse", workspace)
        assert isinstance(found, SparseFeatures)
        assert found.dtype == rows.dtype
        assert (np.asarray(found.data) != 0).all()
        np.testing.assert_array_equal(found.dense(), rows[:])


@pytest.mark.parametrize("share", [0.2 * SPARSE_BELOW, 3 * SPARSE_BELOW])
def test_auto_chooses_by_the_share_of_entries(workspace, share):
    for raw in source(share):
        rows = FeatureRows(raw, "<f4", False, "here")
        assert isinstance(stored(rows, "auto", workspace), SparseFeatures) == (share < SPARSE_BELOW)
        assert stored(rows, "dense", workspace) is rows


def test_rows_of_few_columns_stay_dense(workspace):
    rows = FeatureRows(np.zeros((40, 20)), "<f4", False, "here")
    assert stored(rows, "auto", workspace) is rows


@pytest.mark.parametrize("kept", [None, np.array([3, 5, 30])])
def test_values_that_are_not_finite_are_named_by_their_row_in_the_source(workspace, kept):
    raw = SparseRows.from_triplets(np.array([5, 5]), np.array([1, 2]), np.array([1, np.inf]), (40, WIDTH))
    rows = FeatureRows(raw, "<f4", False, "here", kept)
    with pytest.raises(DataError, match="here: features, row 5, column 2 is inf; features must be finite"):
        stored(rows, "sparse", workspace)


def test_the_flag_the_table_and_info(prep, tmp_path):
    x = np.zeros((6, 80))
    x[2, 70] = 1
    np.savez(tmp_path / "s.npz", edges=np.array([[0, 1], [1, 2], [4, 5]]), features=x)
    outcome = prep("import", tmp_path / "s.npz", tmp_path / "g.h5")
    assert "float32, normalised: none, stored sparse: 1 entry, 0.21%" in outcome.out
    assert open_graph(tmp_path / "g.h5").features.dense().tolist() == x.tolist()
    assert "feature_storage    sparse" in prep("info", tmp_path / "g.h5").out
    outcome = prep("import", tmp_path / "s.npz", tmp_path / "d.h5", "--feature-storage", "dense")
    assert "stored sparse" not in outcome.out
    assert "feature_storage    dense" in prep("info", tmp_path / "d.h5").out
    assert open_graph(tmp_path / "d.h5").features.tolist() == x.tolist()
    refused = prep("import", tmp_path / "s.npz", tmp_path / "e.h5", "--missing-features", "one-hot")
    assert refused.error == (
        f"leapmpi-prep: error: --missing-features does not apply to the format npz of {tmp_path / 's.npz'}\n"
    )
