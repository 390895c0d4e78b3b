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
from tests.support.pickles import Call


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
    "array",
    [
        np.empty((0, 3), "f4"),
        np.arange(6.0).reshape(2, 3),
        np.float32(2.5),
        np.array([[1, 2]], order="F"),
        np.array(["a", "bc"]),
    ],
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


@pytest.mark.parametrize("protocol", range(6))
def test_call_is_refused_and_not_run(tmp_path, protocol):
    target = tmp_path / "ran"
    with pytest.raises(RefusedPickle, match=r"here\.pickle: its pickle names \w+\.system; only numpy"):
        loaded(Call(os.system, f"touch {target}"), protocol)
    assert not target.exists()


@pytest.mark.parametrize(
    "function",
    [eval, exec, getattr, __import__, open, np.load, np.save, pickle.loads, collections.OrderedDict, dict.fromkeys],
)
def test_other_callables_are_refused(function):
    with pytest.raises(RefusedPickle):
        loaded([Call(function, "1")], 4)


def test_call_hidden_in_an_array_or_matrix():
    with pytest.raises(RefusedPickle):
        loaded(np.array([Call(os.getcwd)], dtype=object), 4)
    matrix = sp.csr_matrix(np.eye(2))
    matrix.extra = Call(os.getcwd)
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
    with pytest.raises(DataError, match="for 3 rows it has 4"):
        loaded(matrix, 2)


def test_import_refuses_a_malicious_archive(tmp_path, refused):
    target = tmp_path / "ran"
    np.savez(tmp_path / "g.npz", adj_matrix=np.array(Call(os.system, f"touch {target}"), dtype=object), node_label=[0])
    with zipfile.ZipFile(tmp_path / "g.npz") as archive:
        assert b"system" in archive.read("adj_matrix.npy")
    assert "system; only numpy arrays" in refused(tmp_path / "g.npz")
    assert not target.exists()


def test_import_refuses_a_malicious_planetoid_folder(tmp_path, refused):
    target, folder = tmp_path / "ran", tmp_path / "tiny"
    folder.mkdir()
    (folder / "ind.tiny.graph").write_bytes(pickle.dumps(Call(os.system, f"touch {target}"), 2))
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


RECONSTRUCT = np.empty(0).__reduce__()[0]
FROM_BUFFER = np.empty(0).__reduce_ex__(5)[0]
SCALAR = np.float64(0).__reduce__()[0]
OBJECT, NUMBER = np.dtype("O"), np.dtype("f8")


def array(dtype, shape, content, version=1):
    """An array as numpy pickles it, with any content."""
    return Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=(version, shape, dtype, False, content))


def dtype_of(text, *state):
    return Call(np.dtype, text, False, True, state=state)


HIDDEN = dtype_of("f8", 3, "|", None, ("a",), {"a": (OBJECT, 0)}, 8, 1, 0)
"""Numbers with a field of objects, which the flags do not mention."""

HOSTILE = {
    "ndarray of addresses": (Call(np.ndarray, (), "O", b"A" * 8), "its pickle calls numpy.ndarray; only"),
    "ndarray beyond its buffer": (Call(np.ndarray, (4096,), "i8", b"A" * 8, 0, (0,)), "calls numpy.ndarray; only"),
    "negative strides": (Call(np.ndarray, (9,), "i8", b"A" * 80, 72, (-8,)), "calls numpy.ndarray; only"),
    "objects of bytes": (array(OBJECT, (1,), b"A" * 8), "an array of type object made of bytes"),
    "hidden objects": (array(HIDDEN, (1,), b"A" * 8), "named fields"),
    "text as a list": (array(NUMBER, (2,), [1.0, 2.0]), "an array of type float64 made of list"),
    "too few bytes": (array(NUMBER, (2,), b"A" * 8), r"an array of shape \(2,\) with 1 value"),
    "negative lengths": (array(NUMBER, (-1, -1), b"A" * 8), "whose shape is not a list of lengths"),
    "long shape": (array(NUMBER, (1,) * 100, b"A" * 8), "whose shape is not a list of lengths"),
    "objects of a buffer": (Call(FROM_BUFFER, b"A" * 8, OBJECT, (1,), "C"), "an array of type object made of bytes"),
    "object of bytes": (Call(SCALAR, OBJECT, b"A" * 8), "a number without content"),
    "fields": (np.zeros(2, [("a", "f8"), ("b", "O")]), "arrays of type V16 are not read"),
    "dtype by a list": (array(Call(np.dtype, [("a", "O")]), (1,), b"A" * 8), "arrays of type list"),
    "dates": (np.array(["2020-01-01"], "M8[s]"), "arrays of type M8"),
    "a subclass": (Call(RECONSTRUCT, np.dtype, (0,), b"b"), "an array of an unknown class"),
    "calls by default": (Call(collections.defaultdict, np.dtype), "a defaultdict of something other than lists"),
    "no matrix": (np.dtype("f8"), "holds no array and no matrix"),
    "keys that are alike": (dict.fromkeys([n * (2**61 - 1) for n in range(9)]), "that is not a key of a dict"),
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", HOSTILE)
def test_pickles_reach_no_memory_but_their_own(name, protocol):
    content, said = HOSTILE[name]
    with pytest.raises(DataError, match=said) as raised:
        loaded(content, protocol)
    assert str(raised.value).startswith("here.pickle: its pickle ")


def nested(depth):
    """A pickled tuple of two tuples of two tuples ..., as a key of a dict: its hash takes 2^depth steps."""
    return b"\x80\x02})" + b"q\x00h\x00\x86" * depth + b"Ns."


ARRAY = pickle.dumps(np.zeros(2), 2)[:-1]
OPCODES = {
    "two states": (ARRAY + pickle.dumps((1, (2,), OBJECT, False, b"A" * 16), 2)[2:-1] + b"b.", "a ndarray is given a"),
    "a state of a class": (b"\x80\x02cnumpy\nndarray\n}X\x01\0\0\0aNsb.", "is given a state"),
    "a state of a function": (b"\x80\x02c_codecs\nencode\n}X\x01\0\0\0aNsb.", "a function is given a state"),
    "items of an array": (ARRAY + b"K\0K\1s.", "a ndarray is given items"),
    "appended to a text": (b"\x80\x02X\1\0\0\0aNa.", "a str is appended to"),
    "a list is called": (b"\x80\x02])R.", "a list is called"),
    "deep keys": (nested(80), "a tuple that is not a key of a dict"),
    "old instances": (b"(icollections\ndefaultdict\n.", r"the opcode b'i'"),
    "sets": (pickle.dumps({1}, 4), r"the opcode b'\\x8f'"),
    "extensions": (b"\x80\x02\x82\x01.", r"the opcode b'\\x82'"),
    "no opcode": (b"\x80\x02\xff.", r"the opcode b'\\xff'"),
    "byte array longer than the file": (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"a.", "it ends too early"),
}


@pytest.mark.parametrize("name", OPCODES)
def test_opcodes_do_no_more_than_arrays_need(name):
    content, said = OPCODES[name]
    with pytest.raises(DataError, match=said):
        load_pickle(io.BytesIO(content), "here.pickle")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_arrays_of_objects_and_in_them(protocol):
    content = np.empty(3, object)
    content[:] = [np.arange(3), "text", None]
    found = loaded([content, content], protocol)
    assert found[0] is found[1]
    assert found[0][0].tolist() == [0, 1, 2]
    assert list(found[0][1:]) == ["text", None]
    big = loaded(np.arange(3, dtype=">i4").reshape(1, 3), protocol)
    assert big.tolist() == [[0, 1, 2]]


def test_a_matrix_with_odd_attributes():
    for changed, said in (
        ({"_shape": (3,)}, "must be two lengths"),
        ({"_shape": (3, -1)}, "must be two lengths"),
        ({"data": [1.0] * 3}, "'data' of its sparse matrix is not a list of numbers"),
        ({"indices": np.array([["a"]])}, "'indices' of its sparse matrix is not a list of numbers"),
        ({"data": np.array(list("abc"))}, "must be numbers, but their type is <U1"),
        ({"indptr": None}, "'indptr' of its sparse matrix is not a list of numbers"),
    ):
        matrix = sp.csr_matrix(np.eye(3))
        vars(matrix).update(changed)
        with pytest.raises(DataError, match=said):
            loaded(matrix, 2)
