"""Edge lists in text: the compiled scanner and numpy agree, block by block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.formats import edge_text, integer_lines
from data_prep.formats.edge_text import edge_stream
from leapmpi.errors import DataError


def edges_in(path):
    return np.concatenate(list(edge_stream(path)[0].chunks()), axis=1)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0 1\n2 3\n", True),
        ("0\t1\t9\n2\t3\t9\n", True),
        ("0,1,5\n2,3,y\n", True),
        ("# one\n0 1\n\n% two\n2   3", True),
        ("source;destination\n0;1\n2; 3\n", True),
        ("\ufeff0,1\n2,3\n", True),
        ("0 1\r\n2 3\r\n", True),
        ("0 1\n+2 3 # why\n", True),
        ("0 1\n2 3# why\n", False),
        (" 0 , 1\n  2\t,3\n", True),
    ],
)
def test_layouts(tmp_path, monkeypatch, text, plain):
    (tmp_path / "g.csv").write_text(text, encoding="utf-8")
    calls = []
    by_numpy = edge_text._parsed_by_numpy
    monkeypatch.setattr(edge_text, "_parsed_by_numpy", lambda *a: calls.append(1) or by_numpy(*a))
    assert edges_in(tmp_path / "g.csv").tolist() == [[0, 2], [1, 3]]
    assert bool(calls) != plain


@given(st.lists(st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1)), min_size=1, max_size=40))
def test_blocks_agree_with_numpy(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("text") / "g.csv"
    np.savetxt(path, np.array(pairs), "%d", delimiter=",")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_lines, "_BLOCK_BYTES", 50)
        edges = edges_in(path)
    np.testing.assert_array_equal(edges.T, np.loadtxt(path, np.int64, delimiter=",", ndmin=2))


def test_a_fault_in_a_later_block_is_named_by_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(integer_lines, "_BLOCK_BYTES", 16)
    (tmp_path / "g.csv").write_text("1,2\n" * 20 + "1,2.5\n" + "1,2\n" * 5)
    with pytest.raises(DataError, match=r"g\.csv, data row 20 \(counted from 0\): '2\.5' is not a vertex id"):
        edges_in(tmp_path / "g.csv")
