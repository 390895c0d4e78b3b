"""Typed graphs in folders of .npy files: what is read, reverse relations, and faults in one sentence."""

import json
import subprocess
import sys

import numpy as np
import pytest

from leapmpi.dataset.verify import verify_graph
from tests.data_prep.typed_folders import EDGES, check_small, distinct, write_folder
from tests.support.typed_graphs import named_edges


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "source")


def test_as_written(imported, folder, tmp_path):
    graph = imported(folder)
    check_small(graph)
    assert [each.feature_dtype for each in graph.types.vertices] == [None, "float32", "float16"]
    assert "self-loops dropped                1" in graph.table
    assert "duplicates dropped                1" in graph.table
    verify_graph(tmp_path / "out.h5")


@pytest.mark.parametrize("source", ["source", "."])
def test_a_folder_named_from_here(prep, folder, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path if source != "." else folder)
    outcome = prep("import", source, tmp_path / "out.h5")
    assert outcome.code == 0, outcome.error
    assert "taken: meta.json (types), edges/author__writes__paper/edge_index.npy (edges)" in outcome.out
    assert "not used" not in outcome.out


def test_reverse_relations_are_added_and_marked(imported, folder, tmp_path):
    graph = imported(folder, "--add-reverse")
    verify_graph(tmp_path / "out.h5")
    check_small(graph)
    assert [str(each) for each in graph.types.relations[3:]] == [
        "paper:rev_writes:author",
        "paper:rev_cites:paper",
        "venue:rev_in:paper",
    ]
    assert [each.reverse_of for each in graph.types.relations] == [None, None, None, 0, 1, 2]
    backwards = {(r, u, v) for r, u, v in named_edges(graph) if ":rev_" in r}
    assert {(r.split(":")[1], v, u) for r, u, v in backwards} == {
        (f"rev_{r.split(':')[1]}", u, v) for r, u, v in distinct()
    }
    assert graph.edges == 2 * len(distinct())


def test_dtypes_by_type(imported, folder):
    graph = imported(folder, "--feature-dtype", "paper=int8,venue=float32")
    assert [each.feature_dtype for each in graph.types.vertices] == [None, "int8", "float32"]
    step, middle = graph.typed.scales[1]
    assert np.allclose(graph.typed.features[1] * step + middle, np.arange(18).reshape(6, 3), atol=0.1)


def test_counts_are_found_without_meta(imported, folder):
    (folder / "meta.json").unlink()
    graph = imported(folder)
    assert {each.name: each.vertices for each in graph.types.vertices} == {"author": 5, "paper": 6, "venue": 2}


def test_edge_data_of_all_relations_is_kept(imported, folder):
    for name, pairs in EDGES.items():
        np.save(folder / "edges" / name / "weight.npy", np.arange(1, len(pairs[0]) + 1))
    graph = imported(folder, "--add-reverse")
    # Author 4 writes paper 2 twice, so weights 5 and 6 add up, in both directions.
    types = {each.name: t for t, each in enumerate(graph.types.vertices)}
    v = int(graph.typed.offsets[types["paper"]]) + 2
    edges = slice(*graph.indptr[v : v + 2])
    weights = dict(zip(graph.edge_data.relation[edges].tolist(), graph.edge_data.weight[edges].tolist(), strict=True))
    assert weights[0] == 11
    assert graph.edge_data.weight.sum() == 2 * (21 + 15 - 4 + 10)
    # The note counts what the table counts: edges of the source, not their reverses.
    assert "duplicates dropped                1" in graph.table
    assert "duplicate edges merged (1): weights summed" in graph.table
    (folder / "edges/paper__in__venue/weight.npy").unlink()
    graph = imported(folder)
    assert graph.edge_data.weight is None
    assert "not all relations have it alike: weight" in graph.table


def test_largest_component_keeps_types(imported, folder, tmp_path):
    graph = imported(folder, "--largest-component")
    verify_graph(tmp_path / "out.h5")
    assert graph.vertices < 13
    assert {each.name: each.vertices for each in graph.types.vertices}["author"] == 5
    assert named_edges(graph) < distinct()


def test_refused_in_one_sentence(refused, folder, tmp_path):
    index = folder / "edges/author__writes__paper/edge_index.npy"
    np.save(index, np.array([[0, 9], [0, 1]]))
    assert (
        "relation author:writes:paper: edge 1 (counted from 0): its source 9 is out of range: type author"
        in refused(folder)
    )
    np.save(index, np.array([[0, 1], [0, -1]]))
    assert "its destination -1 is negative" in refused(folder)
    np.save(index, np.zeros((2, 3)))
    assert "must hold whole numbers" in refused(folder)
    np.save(index, np.array(EDGES["author__writes__paper"]))
    assert "--features random:4" in refused(folder, "--features", "random:4")
    assert "--target venue2" in refused(folder, "--target", "venue2")
    assert "--split-edges" in refused(folder, "--split-edges", "0.8,0.1,0.1")
    assert "fos=int8 is not a type of" in refused(folder, "--feature-dtype", "fos=int8")
    np.save(folder / "nodes/paper/feat.npy", np.zeros((7, 3)))
    assert f"type paper has 6 vertices, but {folder}/nodes/paper/feat.npy has 7" in refused(folder)
    about = json.loads((folder / "meta.json").read_text())
    about["nodes"]["author"]["count"] = 10**12
    (folder / "meta.json").write_text(json.dumps(about))
    np.save(folder / "nodes/paper/feat.npy", np.zeros((6, 3)))
    assert "1,000,000,000,008 vertices are stated, but the graph has only 15 edges" in refused(folder)
    (folder / "meta.json").write_text('{"nodes": [1]}')
    assert "meta.json: 'nodes' is missing or of an unexpected kind" in refused(folder)
    index.unlink()
    assert f"{index} is missing; add it, or remove the folder" in refused(folder)


def test_plain_graphs_refuse_flags_of_typed_ones(refused, tmp_path):
    np.savez(tmp_path / "g.npz", edges=np.array([[0, 1], [1, 2]]))
    assert "--add-reverse" in refused(tmp_path / "g.npz", "--add-reverse")
    assert "--feature-dtype" in refused(tmp_path / "g.npz", "--feature-dtype", "paper=int8")


def test_graph_of_the_benchmark_s_shape(prep, test_data, tmp_path):
    """The generator's folder equals an independent reading of it."""
    generator = test_data.parent / "lab" / "make_typed_graph.py"
    if not generator.is_file():
        pytest.skip("no generator of typed graphs beside the real graphs")
    made = tmp_path / "made"
    subprocess.run(
        [sys.executable, generator, made, "--edges", "20000", "--features", "16"], check=True, capture_output=True
    )
    outcome = prep("import", made, tmp_path / "g.h5", "--add-reverse", "--max-mem", "512M")
    assert outcome.code == 0, outcome.error
    graph = verify_graph(tmp_path / "g.h5")
    expected = set()
    for folder in (made / "edges").iterdir():
        source, name, destination = folder.name.split("__")
        pairs = np.load(folder / "edge_index.npy").T.tolist()
        expected |= {(f"{source}:{name}:{destination}", u, v) for u, v in pairs}
        expected |= {(f"{destination}:rev_{name}:{source}", v, u) for u, v in pairs}
    assert named_edges(graph) == expected
    for t, each in enumerate(graph.types.vertices):
        if each.name in ("paper", "fos"):
            assert np.array_equal(graph.typed.features[t], np.load(made / "nodes" / each.name / "feat.npy"))
    t = graph.types.target_number
    rows = slice(*graph.typed.offsets[t : t + 2])
    assert np.array_equal(graph.labels[rows], np.load(made / "nodes/paper/label.npy"))
    assert np.array_equal(np.flatnonzero(graph.split[rows] == 1), np.load(made / "split/train.npy"))
