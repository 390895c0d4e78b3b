"""Pickles read without trust: matrices and arrays come through, anything else is refused before it runs."""

import collections
import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from data_prep.edges.raw_graph import SparseRows
from data_prep.formats.restricted_unpickler import RefusedPickle, load_pickle
from leapmpi.errors import DataError


def loaded(value, protocol):
    return load_pickle(io.BytesIO(pickle.dumps(value, protocol)), "here.pickle")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "make", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.csc_array, sp.coo_array]
)
def test_scipy_matrices(make, protocol):
    dense = np.array([[0, 1.5, 0], [2, 0, 0], [0, 0, 0], [0, -3, 4]])
    found = loaded(make(dense), protocol)
    assert isinstance(found, SparseRows)
    np.testing.assert_array_equal(found.dense(np.float64), dense)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.float32(2.5), np.array([[1, 2]], order="F"), np.array(["a", "bc"])]
)
def test_numpy_arrays(array, protocol):
    found = loaded(array, protocol)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def test_containers():
    graph = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    assert loaded(graph, 2) == graph


def test_python_2_arrays():
    # What Python 2 wrote: arrays as byte strings, old module names.
    text = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\ntcnumpy\ndtype\n(S'i1'\nI0\nI1\n"
        b"tR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x05\\xff'\ntb."
    )
    assert load_pickle(io.BytesIO(text), "old").tolist() == [5, -1]


class Runs:
    """Pickles to a call of `function` with `argument`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_call_is_refused_and_not_run(tmp_path, protocol):
    target = tmp_path / "ran"
    with pytest.raises(RefusedPickle, match=r"here\.pickle: its pickle names \w+\.system; only numpy"):
        loaded(Runs(os.system, f"touch {target}"), protocol)
    assert not target.exists()


@pytest.mark.parametrize(
    "function",
    [eval, exec, getattr, __import__, open, np.load, np.save, pickle.loads, collections.OrderedDict, dict.fromkeys],
)
def test_other_callables_are_refused(function):
    with pytest.raises(RefusedPickle):
        loaded([Runs(function, "1")], 4)


def test_call_hidden_in_an_array_or_matrix():
    with pytest.raises(RefusedPickle):
        loaded(np.array([Runs(os.getcwd)], dtype=object), 4)
    matrix = sp.csr_matrix(np.eye(2))
    matrix.extra = Runs(os.getcwd)
    with pytest.raises(RefusedPickle):
        loaded(matrix, 2)


@pytest.mark.parametrize("size", [0, 1, 20, 100, 200])
def test_truncated(size):
    whole = pickle.dumps(sp.csr_matrix(np.eye(3)), 2)
    with pytest.raises(DataError, match="damaged or truncated"):
        load_pickle(io.BytesIO(whole[:size]), "here.pickle")


def test_matrix_that_contradicts_itself():
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices = np.array([0, 1, 7], np.int32)
    with pytest.raises(DataError, match=r"row 2 names column 7, outside 0 \.\.\. 2"):
        loaded(matrix, 2)
    matrix.indptr = np.array([0, 1, 2], np.int32)
    with pytest.raises(DataError, match="3 rows need 4"):
        loaded(matrix, 2)


def test_import_refuses_a_malicious_archive(tmp_path, refused):
    target = tmp_path / "ran"
    np.savez(tmp_path / "g.npz", adj_matrix=np.array(Runs(os.system, f"touch {target}"), dtype=object), node_label=[0])
    with zipfile.ZipFile(tmp_path / "g.npz") as archive:
        assert b"system" in archive.read("adj_matrix.npy")
    assert "system; only numpy arrays" in refused(tmp_path / "g.npz")
    assert not target.exists()


def test_import_refuses_a_malicious_planetoid_folder(tmp_path, refused):
    target, folder = tmp_path / "ran", tmp_path / "tiny"
    folder.mkdir()
    (folder / "ind.tiny.graph").write_bytes(pickle.dumps(Runs(os.system, f"touch {target}"), 2))
    assert "ind.tiny.graph: its pickle names" in refused(folder)
    assert not target.exists()


def test_import_refuses_pickles_of_the_wrong_kind(tmp_path, refused):
    np.savez(tmp_path / "g.npz", adj_matrix=np.array({"a": 1}, dtype=object))
    assert "array 'adj_matrix' holds a dict, not an array or a sparse matrix" in refused(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", adj_matrix=sp.csr_matrix(np.ones((2, 3))))
    assert "must be a square sparse matrix" in refused(tmp_path / "g.npz")


def test_a_damaged_length_takes_no_memory(tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(b"\x80\x02T" + (1_500_000_000).to_bytes(4, "little") + b"cut off")
    tracemalloc.start()
    try:
        with path.open("rb") as file, pytest.raises(DataError, match="truncated"):
            load_pickle(file, "x")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_long_texts_are_read_whole():
    long = "x" * (5 << 20)
    assert loaded(long, 2) == long
