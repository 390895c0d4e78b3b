"""Values of matrices whose entries are read as edges: a note says that they are not used, and which were odd."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

ROW, COLUMN = np.array([0, 1, 2, 3, 3]), np.array([1, 2, 3, 0, 1])


def scipy_npz(folder, matrix):
    sp.save_npz(folder / "g.npz", matrix)
    return folder / "g.npz"


def graphdata(folder, matrix):
    np.savez(folder / "g.npz", adj_matrix=np.array(matrix, object), node_label=np.arange(4) % 2)
    return folder / "g.npz"


def gnn_benchmark(folder, matrix):
    arrays = {f"adj_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "g.npz", **arrays)
    return folder / "g.npz"


def matlab(folder, matrix):
    scipy.io.savemat(folder / "g.mat", {"network": matrix.tocsc()})
    return folder / "g.mat"


@pytest.mark.parametrize("write", [scipy_npz, graphdata, gnn_benchmark, matlab], ids=lambda write: write.__name__)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, np.nan, np.inf, -2.0, 0.0], "values (1 NaN, 1 infinite, 1 negative, 1 zero) are not used"),
        ([1j, 1, 1, -np.inf, 1], "values (complex, 1 infinite, 1 negative) are not used"),
        ([2.0, 1, 1, 1, 1], "values are not used"),
        ([1.0, 1, 1, 1, 1], None),
    ],
)
def test_a_note_says_what_was_done(imported, tmp_path, write, values, said):
    matrix = sp.csr_matrix((np.array(values), (ROW, COLUMN)), (4, 4))
    graph = imported(write(tmp_path, matrix))
    assert graph.edges == 10
    assert f"each of its 5 entries is an edge; their {said}" in graph.table if said else "is an edge" not in graph.table


@pytest.mark.parametrize("write", [scipy_npz, graphdata], ids=lambda write: write.__name__)
def test_complex_features_are_refused(refused, tmp_path, write):
    scipy_npz(tmp_path, sp.csr_matrix(np.eye(4) * 1j)).rename(tmp_path / "x.npz")
    source = write(tmp_path, sp.csr_matrix(np.eye(4)[[1, 2, 3, 0]]))
    assert "features must be numbers, but their type is complex128" in refused(source, "--features", tmp_path / "x.npz")
