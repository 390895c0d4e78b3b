"""Files that are not read: the message names their content, and the command in it makes a file that is read."""

import os
import re
import struct
import subprocess

import numpy as np
import pytest

from tests.data_prep.conftest import neighbours

EDGES = np.array([[0, 1], [1, 2], [2, 4]])
PATH_OF_FIVE = [[1], [0, 2], [1, 4], [], [2]]


def converted(said, python="python"):
    """Run the command of a message; returns the file that it makes."""
    command, made = re.search(r'run: python (-c ".*") and import (\S+);', said).groups()
    subprocess.run(["bash", "-c", f"{python} {command}"], check=True, capture_output=True, timeout=120)
    return made


def test_arrays_under_other_names(imported, refused, tmp_path):
    arrays = {"feats": np.ones((5, 3)), "edgelist": EDGES, "target": np.arange(5)}
    np.savez(tmp_path / "a.npz", **arrays)
    said = refused(tmp_path / "a.npz")
    assert "holds edgelist [3, 2], feats [5, 3], target [5]: an unknown format" in said
    graph = imported(converted(said))
    assert neighbours(graph) == PATH_OF_FIVE
    assert graph.features.shape == (5, 3)
    assert graph.labels.tolist() == [0, 1, 2, 3, 4]


def test_an_archive_without_edges(refused, tmp_path):
    np.savez(tmp_path / "a.npz", emb=np.ones((5, 3)))
    assert "holds emb [5, 3]: an unknown format; 'leapmpi-prep import --formats'" in refused(tmp_path / "a.npz")


@pytest.mark.parametrize("edges", [EDGES, EDGES.T])
def test_one_array_of_edges(imported, tmp_path, edges):
    np.save(tmp_path / "e.npy", edges)
    np.save(tmp_path / "x.npy", np.ones((6, 2)))
    assert neighbours(imported(tmp_path / "e.npy")) == PATH_OF_FIVE
    assert imported(tmp_path / "e.npy", "--features", tmp_path / "x.npy").vertices == 6


def test_a_pair_of_arrays(imported, refused, tmp_path):
    for names in (("src", "dst"), ("source", "target"), ("row", "col")):
        np.savez(tmp_path / "a.npz", feat=np.ones((5, 2)), label=np.arange(5), **dict(zip(names, EDGES.T, strict=True)))
        graph = imported(tmp_path / "a.npz")
        assert neighbours(graph) == PATH_OF_FIVE
        assert graph.labels.tolist() == [0, 1, 2, 3, 4]
    np.savez(tmp_path / "a.npz", src=np.arange(3), dst=np.arange(2))
    assert "arrays src and dst must be lists of one length, but are [3] and [2]" in refused(tmp_path / "a.npz")


@pytest.mark.parametrize(("array", "flag"), [(np.ones((5, 3)), "--features"), (np.arange(5), "--labels")])
def test_one_array_of_something_else(refused, tmp_path, array, flag):
    np.save(tmp_path / "x.npy", array)
    said = refused(tmp_path / "x.npy")
    assert f"holds one array, {array.dtype} {list(array.shape)}, which is not a list of edges" in said
    assert f"this file by {flag}" in said


def test_a_dense_matrix(imported, refused, tmp_path):
    matrix = np.zeros((5, 5))
    matrix[EDGES[:, 0], EDGES[:, 1]] = 1
    np.save(tmp_path / "m.npy", matrix)
    assert neighbours(imported(converted(refused(tmp_path / "m.npy")))) == PATH_OF_FIVE


def test_graphs_of_dgl_are_known_by_their_beginning(refused, tmp_path):
    (tmp_path / "graphs.bin").write_bytes(struct.pack("<QQ", 0xDD2E4FF046B4A13F, 1))
    assert "holds graphs of DGL, which DGL alone reads; where it is installed, run: python -c" in refused(
        tmp_path / "graphs.bin"
    )
    (tmp_path / "graphs.bin").write_bytes(b"others")
    assert "has an unknown format" in refused(tmp_path / "graphs.bin")


@pytest.mark.skipif("LEAPMPI_TEST_DGL" not in os.environ, reason="LEAPMPI_TEST_DGL names no Python that has DGL")
def test_graphs_of_dgl_are_converted(imported, refused, tmp_path):
    python = os.environ["LEAPMPI_TEST_DGL"]
    write = (
        "import dgl, torch; g = dgl.graph(([0, 1, 2], [1, 2, 4]), num_nodes=6); g.ndata['feat'] = torch.eye(6); "
        "g.ndata['label'] = torch.arange(6); g.ndata['train_mask'] = torch.arange(6) < 2; "
        f"g.edata['weight'] = torch.tensor([1.0, 2.0, 3.0]); dgl.save_graphs({str(tmp_path / 'graphs.bin')!r}, [g])"
    )
    subprocess.run([python, "-c", write], check=True, capture_output=True, timeout=120)
    graph = imported(converted(refused(tmp_path / "graphs.bin"), python), "--directed")
    assert neighbours(graph) == [[], [0], [1], [], [2], []]
    assert graph.features.tolist() == np.eye(6).tolist()
    assert graph.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert graph.split.tolist() == [1, 1, 0, 0, 0, 0]
    assert graph.edge_data.weight.tolist() == [1, 2, 3]
