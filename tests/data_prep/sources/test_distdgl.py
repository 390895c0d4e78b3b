"""Partitions of DistDGL: the graph, what vertices and edges carry, and the same cut."""

import json
import os
import subprocess

import numpy as np
import pytest

from data_prep.formats.dgl import distdgl_graphs
from leapmpi.dataset.partitioned import open_dataset
from tests.data_prep.conftest import neighbours
from tests.support.dgl_files import save_sampling_graph, save_tensors

EDGES = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 0), (2, 1)], np.int64).T
BOUNDS = [[0, 2], [2, 5]]
FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3)


def write(folder, *, graphs, named=True, numbered=True, **changed):
    """Two parts of a graph of five vertices, their graphs as GraphBolt's or as graph.npz."""
    # DistDGL numbers edges by part of their destination.
    part_of = np.searchsorted([2], EDGES[1], "right")
    edges, counts = EDGES[:, np.argsort(part_of, kind="stable")], np.bincount(part_of)
    ends = np.cumsum(counts)
    about = {
        "graph_name": "five",
        "part_method": "metis",
        "num_parts": 2,
        "halo_hops": 1,
        "node_map": {"_N": BOUNDS},
        "edge_map": {"_N:_E:_N": [[0, int(ends[0])], [int(ends[0]), int(ends[1])]]},
        "ntypes": {"_N": 0},
        "etypes": {"_N:_E:_N": 0},
    }
    masks = {"train": [0, 1], "val": [2], "test": [3]}
    for part, (first, end) in enumerate(BOUNDS):
        place = folder / f"part{part}"
        place.mkdir(parents=True)
        files = {"node_feats": "node_feat.dgl", "edge_feats": "edge_feat.dgl", "part_graph": "graph.dgl"}
        if graphs == "graphbolt":
            files["part_graph_graphbolt"] = "fused_csc_sampling_graph.pt"
        about[f"part-{part}"] = {key: f"part{part}/{name}" for key, name in files.items()}
        rows = slice(first, end)
        save_tensors(
            place / "node_feat.dgl",
            {
                "_N/feat": FEATURES[rows],
                "_N/label": np.array([0, 1, 1, 0, 1])[rows],
                **{f"_N/{name}_mask": np.isin(np.arange(5), ids)[rows] for name, ids in masks.items()},
                "_N/other": np.zeros(end - first),
            },
        )
        own = slice(*about["edge_map"]["_N:_E:_N"][part])
        weights = (10 * edges[0] + edges[1]).astype(np.float32)[own]
        save_tensors(place / "edge_feat.dgl", {"_N:_E:_N/weight": weights})
        if named:
            save_tensors(place / "orig_nids.dgl", {"_N": np.array([40, 20, 30, 10, 50])[rows]})
        numbers = np.arange(edges.shape[1])[own]
        if graphs == "npz":
            np.savez(place / "graph.npz", source=edges[0, own], destination=edges[1, own], edge=numbers)
        elif graphs == "graphbolt":
            write_graphbolt(place, edges[:, own], numbers if numbered else None, first, end)
    (folder / "five.json").write_text(json.dumps({**about, **changed}))
    return folder


def write_graphbolt(place, edges, numbers, first, end):
    """The part's own vertices first, then those of its halo, as DistDGL numbers them."""
    halo = np.setdiff1d(edges[0], np.arange(first, end))
    whole = np.concatenate([np.arange(first, end), halo])
    local = {int(vertex): number for number, vertex in enumerate(whole)}
    order = np.argsort(edges[1], kind="stable")
    counts = np.bincount(edges[1] - first, minlength=len(whole))
    save_sampling_graph(
        place / "fused_csc_sampling_graph.pt",
        np.append(0, np.cumsum(counts)),
        np.array([local[int(v)] for v in edges[0, order]], np.int32),
        {"_ID": whole, "inner_node": whole < end},
        {"_ID": numbers[order]} if numbers is not None else None,
    )


@pytest.mark.parametrize("graphs", ["npz", "graphbolt"])
def test_partitions_are_read(imported, tmp_path, graphs):
    graph = imported(write(tmp_path / "parts", graphs=graphs), "--directed")
    assert neighbours(graph) == [[1, 4], [0, 2], [1], [2], [3]]
    assert graph.edge_data.weight.tolist() == [10, 40, 1, 21, 12, 23, 34]
    np.testing.assert_array_equal(graph.features, FEATURES)
    assert graph.labels.tolist() == [0, 1, 1, 0, 1]
    assert graph.split.tolist() == [1, 1, 2, 3, 0]
    assert (tmp_path / "out.names.txt").read_text().split() == ["40", "20", "30", "10", "50"]
    assert "vertex data not used: other" in graph.table


def test_the_cut_is_kept(imported, prep, tmp_path):
    imported(write(tmp_path / "parts", graphs="npz"))
    assert prep("partition", tmp_path / "out.h5", tmp_path / "data", "--method", "given").code == 0
    dataset = open_dataset(tmp_path / "data")
    assert [dataset.part(part).original_id.tolist() for part in range(2)] == [[0, 1], [2, 3, 4]]


def test_edges_without_numbers_need_dgls_own_graph(imported, refused, tmp_path):
    """DGL 2.1 stores no numbers of edges in GraphBolt's graphs by default."""
    parts = write(tmp_path / "parts", graphs="graphbolt", numbered=False)
    assert "was stored without edge numbers" in refused(parts)
    write(tmp_path / "others", graphs="npz")
    for part in ("part0", "part1"):
        (tmp_path / "others" / part / "graph.npz").rename(parts / part / "graph.npz")
    assert imported(parts, "--directed").edge_data.weight.tolist() == [10, 40, 1, 21, 12, 23, 34]


def test_what_vertices_were_called_is_told(imported, tmp_path):
    graph = imported(write(tmp_path / "parts", graphs="npz", named=False))
    assert "vertices have DistDGL's numbers" in graph.table
    assert not (tmp_path / "out.names.txt").exists()


def test_bounded_memory_gives_the_same(imported, tmp_path):
    write(tmp_path / "parts", graphs="graphbolt")
    assert imported(tmp_path / "parts", "--max-mem", "512M").uuid == imported(tmp_path / "parts").uuid


REFUSED = {
    "graph.dgl is read by DGL alone; where DGL is installed, run: python ": {"graphs": "none"},
    "has 2 types of vertices (a, b)": {"graphs": "npz", "node_map": {"a": BOUNDS, "b": BOUNDS}},
    "node_map does not cut numbers from 0 on into 2 ranges": {"graphs": "npz", "node_map": {"_N": [[0, 2], [3, 5]]}},
    "'num_parts' is missing": {"graphs": "npz", "num_parts": None},
    "has shape [2, 3], but part 0 has 3 rows": {"graphs": "npz", "node_map": {"_N": [[0, 3], [3, 5]]}},
    "part 1 holds 3 edges of its own, but edge_map says 4": {
        "graphs": "graphbolt",
        "edge_map": {"_N:_E:_N": [[0, 4], [4, 8]]},
    },
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_in_one_sentence(refused, tmp_path, sentence):
    write(tmp_path / "parts", **REFUSED[sentence])
    for file in (tmp_path / "parts").rglob("edge_feat.dgl"):
        file.unlink()  # else their rows would be found wrong first
    assert sentence in refused(tmp_path / "parts")


def test_damaged_tensors(refused, tmp_path):
    file = write(tmp_path / "parts", graphs="npz") / "part1" / "node_feat.dgl"
    whole = file.read_bytes()
    for content, sentence in (
        (whole[:-9], "ends beyond the file"),
        (b"x" * 24, "is not a file of tensors"),
        (whole[:60], "is damaged or truncated"),
    ):
        file.write_bytes(content)
        assert sentence in refused(tmp_path / "parts")


@pytest.mark.skipif("LEAPMPI_TEST_DGL" not in os.environ, reason="LEAPMPI_TEST_DGL names no Python that has DGL")
def test_what_dgl_writes(imported, prep, tmp_path):
    script = """
import sys, dgl, torch
graph = dgl.graph((torch.arange(60) % 30, (torch.arange(60) * 7 + 1 + torch.arange(60) // 30) % 30), num_nodes=30)
graph.ndata["feat"], graph.ndata["label"] = torch.arange(30.0)[:, None], torch.arange(30) % 3
graph.ndata["train_mask"] = torch.arange(30) < 9
graph.edata["weight"] = torch.arange(60.0)
ids, _ = dgl.distributed.partition_graph(graph, "g", 3, sys.argv[1], part_method="random", return_mapping=True)
torch.save({"edge_index": torch.stack(graph.edges()), "ids": ids}, sys.argv[1] + "/whole.pt")
"""
    python, parts = os.environ["LEAPMPI_TEST_DGL"], tmp_path / "parts"
    for words in (["-c", script, parts], [distdgl_graphs.__file__, parts / "g.json"]):
        subprocess.run([python, *map(str, words)], check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    graph = imported(parts / "g.json", "--directed")
    ids = graph.features[:, 0].astype(int)  # every vertex carries its number before the cut
    assert graph.labels.tolist() == (ids % 3).tolist()
    assert graph.split.tolist() == (ids < 9).astype(int).tolist()
    found = {
        (int(ids[u]), int(ids[v])): graph.edge_data.weight[e]
        for v in range(30)
        for e in range(graph.indptr[v], graph.indptr[v + 1])
        for u in [graph.indices[e]]
    }
    expected = {(k % 30, (k * 7 + 1 + k // 30) % 30): float(k) for k in range(60)}
    assert found == {pair: weight for pair, weight in expected.items() if pair[0] != pair[1]}
    assert prep("partition", tmp_path / "out.h5", tmp_path / "data", "--method", "given").code == 0
    about = json.loads((parts / "g.json").read_text())["node_map"]["_N"]
    sizes = [open_dataset(tmp_path / "data").part(part).vertices for part in range(3)]
    assert sizes == [end - first for first, end in about]
