"""The folder of MAG240M, as its loader's files are laid out."""

import numpy as np
import pytest
import torch

WRITES = np.array([[0, 0, 1, 2, 3, 3], [0, 1, 1, 2, 3, 4]])
CITES = np.array([[0, 1, 2, 4, 5], [1, 2, 0, 5, 3]])
AFFILIATED = np.array([[0, 1, 2, 3], [0, 0, 1, 1]])


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "mag240m_kddcup2021"
    edges = {"author___writes___paper": WRITES, "paper___cites___paper": CITES}
    edges["author___affiliated_with___institution"] = AFFILIATED
    for name, pairs in edges.items():
        (root / "processed" / name).mkdir(parents=True)
        np.save(root / "processed" / name / "edge_index.npy", pairs)
    papers = root / "processed/paper"
    papers.mkdir()
    np.save(papers / "node_feat.npy", np.arange(6 * 768, dtype=np.float16).reshape(6, 768))
    np.save(papers / "node_label.npy", np.array([0, 2, np.nan, 1, np.nan, np.nan]))
    np.save(papers / "node_year.npy", np.array([2015, 2016, 2017, 2018, 2019, 2020]))
    torch.save({"author": 5, "institution": 2, "paper": 6}, root / "meta_dict.pt")
    splits = {
        "train": np.array([0, 1]),
        "valid": np.array([3]),
        "test-dev": np.array([4]),
        "test-challenge": np.array([5]),
    }
    torch.save(splits, root / "split_dict.pt")
    return root


def counts_of(graph):
    return [each.vertices for each in graph.types.vertices]


def test_types_relations_features_and_splits(imported, folder):
    graph = imported(folder)
    types = graph.types
    assert [each.name for each in types.vertices] == ["paper", "author", "institution"]
    assert counts_of(graph) == [6, 5, 2]
    named = [str(each) for each in types.relations]
    assert named == ["author:affiliated_with:institution", "author:writes:paper", "paper:cites:paper"]
    assert len(graph.indices) == WRITES.shape[1] + CITES.shape[1] + AFFILIATED.shape[1]
    assert graph.labels[:6].tolist() == [0, 2, -1, 1, -1, -1]
    assert graph.split[:6].tolist() == [1, 1, 0, 2, 0, 0]
    assert graph.time[:6].tolist() == [2015, 2016, 2017, 2018, 2019, 2020]


def test_reverses_are_added(imported, folder):
    graph = imported(folder, "--add-reverse")
    assert len(graph.types.relations) == 6
    assert len(graph.indices) == 2 * (WRITES.shape[1] + CITES.shape[1] + AFFILIATED.shape[1])


def test_labelled_test_papers_are_the_test_split(imported, folder):
    np.save(folder / "processed/paper/node_label.npy", np.array([0, 2, np.nan, 1, 1, np.nan]))
    assert imported(folder).split[:6].tolist() == [1, 1, 0, 2, 3, 0]


def test_without_numbers_of_vertices_edges_and_arrays_say_them(imported, folder):
    (folder / "meta_dict.pt").unlink()
    # The last author writes nothing.
    assert counts_of(imported(folder)) == [6, 4, 2]


def test_refused_in_one_sentence(refused, folder):
    torch.save({"author": 5, "institution": 2, "paper": 7}, folder / "meta_dict.pt")
    assert "type paper has 7 vertices" in refused(folder)
    torch.save({"author": 3, "institution": 2, "paper": 6}, folder / "meta_dict.pt")
    assert "type author has vertices 0 ... 2" in refused(folder)
    torch.save([1, 2], folder / "meta_dict.pt")
    assert "must hold a dict of the number of vertices of each type" in refused(folder)
    (folder / "meta_dict.pt").unlink()
    np.save(folder / "processed/paper/node_label.npy", np.array([0.5, 2, np.nan, 1, 1, np.nan]))
    assert "row 0: 0.5 is no whole number of a class" in refused(folder)
    np.save(folder / "processed/paper___cites___paper/edge_index.npy", CITES.T)
    assert "must hold pairs of vertices, [2, edges], but its shape is (5, 2)" in refused(folder)
