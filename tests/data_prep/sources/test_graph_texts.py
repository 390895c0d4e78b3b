"""Import of METIS, Matrix Market and SNAP texts, and what is said about damaged ones."""

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from tests.data_prep.conftest import neighbours
from tests.support.graphs import read_names

# The graph of the METIS manual's figures: 7 vertices, 11 edges.
MANUAL = [[4, 2, 1], [0, 2, 3], [4, 3, 1, 0], [1, 2, 5, 6], [0, 2, 5], [4, 3, 6], [5, 3]]
ADJACENCY = [sorted(row) for row in MANUAL]


@pytest.fixture
def imported_text(imported, tmp_path):
    """Import a text written as file `name`; returns the graph."""

    def run(name, text, *arguments):
        content = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return imported(tmp_path / name, *arguments)

    return run


@pytest.fixture
def said(refused, tmp_path):
    """What importing the text, written as file `name`, says."""

    def run(name, text, *arguments):
        (tmp_path / name).write_text(text)
        return refused(tmp_path / name, *arguments)

    return run


def metis_text(header, *, size=False, weights=0, edge_weight=False):
    """MANUAL as a METIS file with weights of 9 where asked for."""
    lines = [f"7 11 {header}".strip()]
    for row in MANUAL:
        words = ["9"] * (size + weights)
        for neighbour in row:
            words += [str(neighbour + 1)] + ["9"] * edge_weight
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("header", "extra"),
    [
        ("", {}),
        ("0", {}),
        ("000", {}),
        ("1", {"edge_weight": True}),
        ("10", {"weights": 1}),
        ("011 3", {"weights": 3, "edge_weight": True}),
        ("100", {"size": True}),
        ("111 2", {"size": True, "weights": 2, "edge_weight": True}),
    ],
)
def test_metis_formats(imported_text, header, extra):
    assert neighbours(imported_text("g.graph", metis_text(header, **extra))) == ADJACENCY


def test_metis_comments_blank_lines_and_gzip(imported_text):
    text = "% a comment\n%\n" + metis_text("").replace("\n1 3 4\n", "\n% inside\n\t1  3 4 \r\n") + "\n\n"
    assert "inside" in text
    assert neighbours(imported_text("g.graph", text)) == ADJACENCY
    assert neighbours(imported_text("g.graph.gz", text)) == ADJACENCY
    isolated = imported_text("g.metis", "4 1\n\n4\n\n2")
    assert neighbours(isolated) == [[], [3], [], [1]]


def test_metis_refused(said):
    assert "g.graph, line 4: 'x' is not a whole number" in said("g.graph", "% c\n3 2\n2\n1 x\n2\n")
    assert "g.graph, line 3: vertex 4 is outside 1 ... 3" in said("g.graph", "3 2\n2\n1 4\n2\n")
    assert "g.graph, line 2: vertex 0 is outside 1 ... 3" in said("g.graph", "3 2\n0\n1 3\n2\n")
    assert "line 1 states 3 edges, which is 6 neighbours, but 4 are listed" in said("g.graph", "3 3\n2\n1 3\n2\n")
    assert "ends after the lines of 2 of 3 vertices" in said("g.graph", "3 2\n2\n1 3\n")
    assert "ends after the lines of 1 of 900,000,000,000 vertices" in said("g.graph", "900000000000 2\n2\n")
    assert "g.graph, line 5: one line more than the 3 vertices" in said("g.graph", "3 2\n2\n1 3\n2\n1\n")
    assert "line 2: 1 number, but line 1 announces a weight after each" in said("g.graph", "3 2 1\n2\n1 1 3 1\n2 1\n")
    assert "line 4: 0 numbers, but line 1 announces 1 weights first" in said("g.graph", "3 1 10\n5 2\n5 1\n\n")
    for header in ("", "3", "3 2 12", "3 2 0001", "3 2 1 1 1", "-3 2", "a b", "3 2.5"):
        assert "is not a header of a METIS graph" in said("g.graph", f"{header}\n")
    assert "line 2: '99999999999999999999' is not a whole number" in said("g.graph", "1 0\n99999999999999999999\n")


@pytest.mark.parametrize("field", ["pattern", "real", "integer"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_matrix_market_as_scipy_writes_it(imported_text, tmp_path, field, symmetry):
    matrix = sp.random(9, 9, 0.3, random_state=1, format="coo")
    if symmetry == "symmetric":
        matrix = (matrix + matrix.T).tocoo()
    matrix.data = np.ceil(matrix.data * 9) if field == "integer" else matrix.data
    scipy.io.mmwrite(tmp_path / "m.mtx", matrix, field=field, symmetry=symmetry, comment="by hand\nin two lines")
    text = (tmp_path / "m.mtx").read_text()
    assert f"{field} {symmetry}" in text.splitlines()[0]
    expected = [[int(u) for u in np.flatnonzero(column) if u != v] for v, column in enumerate(matrix.toarray().T)]
    assert neighbours(imported_text("g.mtx", text, "--directed")) == expected
    assert neighbours(imported_text("g.mtx.gz", text, "--directed")) == expected


def test_matrix_market_refused(said):
    banner = "%%MatrixMarket matrix coordinate pattern general\n"
    assert "line 4: vertex 5 is outside 1 ... 3" in said("g.mtx", f"{banner}3 3 2\n1 2\n5 1\n")
    assert "line 3: vertex 0 is outside" in said("g.mtx", f"{banner}3 3 1\n0 2\n")
    assert "ends after 1 of 2 entries" in said("g.mtx", f"{banner}3 3 2\n1 2\n")
    assert "line 4: more than 1 entry" in said("g.mtx", f"{banner}3 3 1\n1 2\n2 3\n")
    assert "line 3: 3 fields; expected row and column per line" in said("g.mtx", f"{banner}3 3 1\n1 2 0.5\n")
    assert "line 3: '1.5' is not a whole number" in said("g.mtx", f"{banner}3 3 1\n1.5 2\n")
    assert "the matrix is 3 x 4; an adjacency matrix must be square" in said("g.mtx", f"{banner}3 4 1\n1 2\n")
    assert "line 3: '3 3' should be the numbers of rows" in said("g.mtx", f"{banner}% c\n3 3\n")
    huge = f"{banner}900000000000 900000000000 1\n1 2\n"
    assert "line 2: 900,000,000,000 rows, but only 1 entry" in said("g.mtx", huge)
    assert "is not a Matrix Market header" in said("g.mtx", "1 2\n2 3\n")
    for kind in ("array real general", "coordinate complex general", "coordinate real hermitian"):
        assert f"a matrix '{kind}' is not read" in said("g.mtx", f"%%MatrixMarket matrix {kind}\n3 3 1\n1 2 1\n")


SNAP = "# Directed graph\n# Nodes: 4 Edges: 4\n# FromNodeId\tToNodeId\n"


@pytest.mark.parametrize("name", ["g.txt", "g.txt.gz"])
def test_snap_ids_are_numbered_and_kept(imported_text, tmp_path, name):
    graph = imported_text(name, f"{SNAP}900000000000\t7\r\n7\t30\n30\t900000000000\n7\t11\n", "--directed")
    assert graph.attributes["source_format"] == "snap"
    assert neighbours(graph) == [[3], [0], [0], [2]]
    assert read_names(tmp_path / "out.h5", graph) == ["7", "11", "30", "900000000000"]


def test_snap_without_gaps_needs_no_names(imported_text, tmp_path):
    graph = imported_text("g.txt", f"{SNAP}0 1\n1 2\n")
    assert not (tmp_path / "out.names.txt").exists()
    assert read_names(tmp_path / "out.h5", graph) is None
    assert "states 4 vertices, but its edges name 3" in graph.table


def test_snap_is_told_from_plain_edge_lists(imported_text):
    assert imported_text("g.txt", "# my edges\n0 1\n5 1\n").attributes["source_format"] == "edge-list"
    assert imported_text("g.txt", "# my edges\n0 1\n5 1\n", "--format", "snap").vertices == 3


def test_snap_refused(said, tmp_path, refused):
    assert "g.txt, line 5: 'x' is not a whole number" in said("g.txt", f"{SNAP}1 2\n3 x\n")
    assert "g.txt, line 4: 1 field; expected two vertex ids per line" in said("g.txt", f"{SNAP}1\n")
    assert "line 5: vertex -2 is outside" in said("g.txt", f"{SNAP}\n1 -2\n")
    assert "holds no edges" in said("g.txt", SNAP)
    assert "numbered from 0 on by --format snap" in said("g.csv", "0,1\n1,4000000000\n")
    whole = gzip.compress((SNAP + "1 2\n2 3\n" * 5000).encode())
    (tmp_path / "g.txt.gz").write_bytes(whole[:-9])
    assert "damaged or truncated" in refused(tmp_path / "g.txt.gz", "--format", "snap")


def test_lines_longer_than_a_block(imported_text, monkeypatch):
    # Lines, words and comments that reach over the ends of blocks are read as if there were none.
    monkeypatch.setattr("data_prep.formats.integer_lines._BLOCK_BYTES", 5)
    assert neighbours(imported_text("g.graph", "% a long comment\n" + metis_text(""))) == ADJACENCY


def test_companions(imported_text, tmp_path):
    np.save(tmp_path / "x.npy", np.eye(7, 3, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.arange(7) % 2)
    graph = imported_text("g.graph", metis_text(""), "--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy")
    np.testing.assert_array_equal(graph.features, np.eye(7, 3))
    assert graph.classes == 2
    assert graph.attributes["feature_origin"] == str(tmp_path / "x.npy")
