"""`--features NAME` and `--labels NAME` for .npz layouts that hold several arrays of either."""

import numpy as np
import pytest
import scipy.sparse

from leapmpi.dataset.graph_file import open_graph

N = 6
RING = scipy.sparse.csr_matrix((np.ones(N), (np.arange(N), (np.arange(N) + 1) % N)), (N, N))
FEATURES, LABELS = np.arange(2.0 * N).reshape(N, 2), np.arange(N) % 2
EXTRA = {"words": FEATURES[:, ::-1] + 1, "years": np.arange(N) % 3}


def parts(prefix, matrix):
    names = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return {f"{prefix}{name}": array for name, array in names.items()}


LAYOUTS = {
    "gnn-benchmark": parts("adj_", RING) | parts("attr_", scipy.sparse.csr_matrix(FEATURES)) | {"labels": LABELS},
    "graphdata": {"adj_matrix": RING, "node_attr": FEATURES, "node_label": LABELS},
    "heterophilous": {
        "edges": np.stack(RING.nonzero(), 1), "node_features": FEATURES, "node_labels": LABELS,
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flags_choose_among_the_arrays_of_a_layout(layout, prep, tmp_path):
    np.savez(tmp_path / "g.npz", **LAYOUTS[layout], **EXTRA)
    outcome = prep("import", tmp_path / "g.npz", tmp_path / "own.h5", "--format", layout)
    assert outcome.code == 0, outcome.error
    assert "not used: words, years" in outcome.out
    given = ("--features", "words", "--labels", "years")
    outcome = prep("import", tmp_path / "g.npz", tmp_path / "named.h5", "--format", layout, *given)
    assert outcome.code == 0, outcome.error
    own, named = open_graph(tmp_path / "own.h5"), open_graph(tmp_path / "named.h5")
    assert (own.classes, named.classes) == (2, 3)
    assert np.array_equal(named.labels, EXTRA["years"])
    assert np.array_equal(named.features, EXTRA["words"].astype(np.float32))
    unused = outcome.out.partition("not used: ")[2].splitlines()[0]
    label = {"gnn-benchmark": "labels", "graphdata": "node_label", "heterophilous": "node_labels"}[layout]
    assert label in unused


def test_a_sparse_matrix_in_several_arrays_goes_by_one_name(prep, tmp_path):
    other = scipy.sparse.csr_matrix(FEATURES[:, :1])
    np.savez(tmp_path / "g.npz", **LAYOUTS["gnn-benchmark"], **parts("bag_", other))
    assert prep("import", tmp_path / "g.npz", tmp_path / "g.h5", "--features", "bag").code == 0
    assert open_graph(tmp_path / "g.h5").features.shape == (N, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unknown_name_is_told_with_those_that_there_are(layout, prep, tmp_path):
    np.savez(tmp_path / "g.npz", **LAYOUTS[layout], **EXTRA)
    outcome = prep("import", tmp_path / "g.npz", tmp_path / "g.h5", "--labels", "yeras")
    assert outcome.code == 3
    assert "--labels yeras does not exist" in outcome.error
    assert "years" in outcome.error
