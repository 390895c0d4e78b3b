"""Import of MATLAB files, against scipy's writer."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from data_prep.formats.mat_file import read_mat
from data_prep.workspace import Workspace
from leapmpi.errors import ResourceError
from tests.data_prep.conftest import neighbours

NETWORK = sp.csc_matrix(np.array([[0, 1, 0], [0, 0, 2], [0, 0, 0]], float))


@pytest.fixture
def mat(tmp_path):
    """Save variables as scipy does; returns the path."""

    def save(compressed=False, **variables):
        scipy.io.savemat(tmp_path / "g.mat", variables, do_compression=compressed)
        return tmp_path / "g.mat"

    return save


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_variables(mat, compressed):
    arrays = {
        "network": NETWORK,
        "full": np.arange(6.0).reshape(2, 3),
        "small": np.array([[1, 2]], np.int16),
        "text": "words",
        "box": {"field": 1},
        "mask": sp.csc_matrix(np.eye(3) > 0),
    }
    found = read_mat(mat(compressed, **arrays))
    np.testing.assert_array_equal(found["full"], arrays["full"])
    np.testing.assert_array_equal(found["small"], arrays["small"])
    assert (found["text"], found["box"]) == ("char", "struct")
    np.testing.assert_array_equal(found["network"].by_rows().dense(np.float64), NETWORK.toarray())
    assert found["mask"].shape == (3, 3)


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_graph(imported, mat, compressed):
    groups = sp.csc_matrix(np.array([[1, 0], [1, 1], [0, 0]], float))
    attributes = sp.csc_matrix(np.arange(6.0).reshape(3, 2))
    graph = imported(mat(compressed, network=NETWORK, group=groups, attrb=attributes), "--directed")
    assert neighbours(graph) == [[], [0], [1]]
    np.testing.assert_array_equal(graph.labels, [[1, 0], [1, 1], [np.nan, np.nan]])
    np.testing.assert_array_equal(graph.features, attributes.toarray())
    assert "without a group, and taken as unlabelled: 1 vertex" in graph.table


def test_mat_classes(imported, mat):
    graph = imported(mat(A=NETWORK, group=sp.csc_matrix(np.array([[0, 1], [0, 0], [1, 0]], float))))
    assert graph.labels.tolist() == [1, -1, 0]
    graph = imported(mat(other=NETWORK, Label=np.array([[1], [3], [2]])))
    assert graph.labels.tolist() == [0, 2, 1]
    assert "counted from 1" in graph.table


def test_mat_refused(refused, mat, tmp_path):
    assert "no sparse matrix called network; it holds x (1 x 1)" in refused(mat(x=1.0))
    assert "must be square" in refused(mat(network=NETWORK[:2]))
    assert "variable 'group' has 2 rows, but the graph has 3" in refused(mat(network=NETWORK, group=NETWORK[:2]))
    for compressed in (False, True):
        path = mat(compressed, network=NETWORK)
        whole = path.read_bytes()
        for size in (0, 60, 130, 150, len(whole) - 20):
            path.write_bytes(whole[:size])
            sentence = refused(path)
            assert "truncated" in sentence or "not a MATLAB file" in sentence or "ends after" in sentence
    path.write_bytes(b"MATLAB 7.3 MAT-file" + bytes(600))
    assert "save it again with the option -v7" in refused(path)


PERSONS = np.array([[1, 2, 30, 0, 5, 2004, 7], [2, 0, 0, 0, 5, 2006, 7], [1, 1, 30, 9, 0, 2004, 8]], np.int32)


def test_mat_that_unpacks_to_more_than_memory_is_refused(mat, tmp_path):
    path = mat(True, network=sp.csc_matrix(np.eye(3)), x=np.zeros((3, 10**6)))
    assert path.stat().st_size < 1 << 16
    with pytest.raises(ResourceError, match=r"byte \d+: reading 24,000,\d+ bytes of a format that is held whole needs"):
        read_mat(path, Workspace(tmp_path, 300 << 20))


def test_mat_of_facebook100(imported, refused, mat):
    path = mat(A=NETWORK, local_info=PERSONS, note="words")
    graph = imported(path)
    assert graph.labels is None
    assert "g.mat: not used: local_info (3 x 7), note (char); --label-column status|gender|major" in graph.table
    gender = [1, -1, 0], ["1", "2"]
    for column, (expected, names) in {"gender": gender, "1": gender, "year": ([0, 1, 0], ["2004", "2006"])}.items():
        graph = imported(path, "--label-column", column)
        assert graph.labels.tolist() == expected
        assert json.loads(graph.attributes["class_names"]) == names
    assert "not used: note (char)" in graph.table
    graph = imported(path, "--label-column", "dorm", "--features", "local_info")
    np.testing.assert_array_equal(graph.features, PERSONS)
    assert graph.attributes["feature_origin"] == "local_info"
    said = refused(path, "--label-column", "sex")
    assert "variable 'local_info' has the columns 0, 1, 2, 3, 4, 5, 6, status, gender, major" in said
    assert "there is none; name a full matrix by --labels" in refused(mat(A=NETWORK), "--label-column", "gender")


def test_mat_variables_by_name(imported, refused, mat):
    path = mat(A=NETWORK, group=np.array([[1], [2], [2]]), kinds=np.array([[3, 9], [5, 9], [3, 8]]), other=np.eye(3))
    graph = imported(path, "--labels", "kinds", "--label-column", "0", "--features", "other")
    assert graph.labels.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(graph.features, np.eye(3))
    assert "not used: group (3 x 1)" in graph.table
    assert imported(path).labels.tolist() == [0, 1, 1]
    said = refused(path, "--labels", "kind")
    assert "--labels kind does not exist, neither as a file nor in" in said
    assert "which holds A, group, kinds, other" in said
