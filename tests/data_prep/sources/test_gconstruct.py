"""GraphStorm's gconstruct: tables that a JSON file names, several files each, ids that are texts."""

import json
from functools import partial

import numpy as np
import pytest

from tests.data_prep.conftest import neighbours

NODES = {"node_id_col": "paper", "node_type": "paper", "format": {"name": "csv"}, "files": "nodes-*.csv"}
EDGES = {"source_id_col": "from", "dest_id_col": "to", "relation": ["paper", "cites", "paper"],
         "format": {"name": "csv"}, "files": ["edges.csv"]}  # fmt: skip


def write_tables(folder, nodes=None, edges=None):
    """Tables and the JSON file, with some entries of nodes and edges changed."""
    (folder / "nodes-0.csv").write_text("paper,year,words,field\na,1990,3,x\nb,1991,4,y\n")
    (folder / "nodes-1.csv").write_text("paper,year,words,field\nc,1992,5,x\nd,1993,6,\n")
    (folder / "edges.csv").write_text("from,to,weight,kind\na,b,0.5,1\nb,c,1.5,2\nc,d,2.5,3\nd,a,3.5,4\n")
    labels = [{"label_col": "field", "task_type": "classification", "split_pct": [0.5, 0.25, 0.25]}]
    node = NODES | {"features": [{"feature_col": "year"}, {"feature_col": ["words"]}], "labels": labels}
    edge = EDGES | {"features": [{"feature_col": "weight"}, {"feature_col": "kind"}]}
    about = {"version": "gconstruct-v0.1", "nodes": [{**node, **(nodes or {})}], "edges": [{**edge, **(edges or {})}]}
    (folder / "graph.json").write_text(json.dumps(about))
    return folder / "graph.json"


@pytest.fixture
def written(tmp_path):
    """`write_tables` in the folder of the test."""
    return partial(write_tables, tmp_path)


def test_tables_of_several_files(imported, written, tmp_path):
    graph = imported(written(), "--directed")
    assert neighbours(graph) == [[3], [0], [1], [2]]
    np.testing.assert_array_equal(graph.features, [[1990, 3], [1991, 4], [1992, 5], [1993, 6]])
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert graph.edge_data.weight.tolist() == [3.5, 0.5, 1.5, 2.5]
    assert graph.edge_data.features[:, 0].tolist() == [4, 1, 2, 3]
    assert (tmp_path / "out.names.txt").read_text().split() == ["a", "b", "c", "d"]
    assert "--splits random:0.5,0.25,0.25 makes one" in graph.table


def test_parquet_and_splits_in_files(imported, written, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for part, ids in enumerate(([7, 8], [9])):
        rows = {"paper": ids, "vector": [[float(v), 1.0] for v in ids], "field": [v % 2 for v in ids]}
        parquet.write_table(arrow.table(rows), tmp_path / f"nodes-{part}.parquet")
    parquet.write_table(arrow.table({"from": [7, 8], "to": [8, 9]}), tmp_path / "edges.parquet")
    (tmp_path / "train.json").write_text("8\n9\n")
    (tmp_path / "valid.json").write_text("7\n")
    labels = [{"label_col": "field", "custom_split_filenames": {"train": "train.json", "valid": ["valid.json"]}}]
    features = [{"feature_col": "vector", "transform": {"name": "noop"}}]
    form = {"format": {"name": "parquet"}}
    config = written(
        {**form, "files": ["nodes-*.parquet"], "features": features, "labels": labels},
        {**form, "files": "edges.parquet", "features": []},
    )
    graph = imported(config)
    assert neighbours(graph) == [[1], [0, 2], [1]]
    assert graph.features.tolist() == [[7, 1], [8, 1], [9, 1]]
    assert graph.split.tolist() == [2, 1, 1]


REFUSED = {
    "files in 'hdf5' are not read; save them as csv or parquet": ({"format": {"name": "hdf5"}}, None),
    "there is no file none.csv": (None, {"files": "none.csv"}),
    "feature year is transformed by 'bert_hf', which leapmpi-prep cannot do": (
        {"features": [{"feature_col": "year", "transform": {"name": "bert_hf"}}]},
        None,
    ),
    "nodes-0.csv has no column 'id'": ({"node_id_col": "id"}, None),
    "'dest_id_col' is missing": (None, {"dest_id_col": None}),
    "vertex '1' is not in the table of vertices": (None, {"source_id_col": "kind"}),
    "nodes: 'features' is not a list": ({"features": True}, None),
    "nodes: 'labels' is not a list": ({"labels": {"label_col": "field"}}, None),
    "custom_split_filenames: 'train' is not a list": (
        {"labels": [{"label_col": "field", "custom_split_filenames": {"train": 5}}]},
        None,
    ),
    "custom_split_filenames: valid names '1', not a file": (
        {"labels": [{"label_col": "field", "custom_split_filenames": {"valid": [1]}}]},
        None,
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_in_one_sentence(refused, written, sentence):
    assert sentence in refused(written(*REFUSED[sentence]))


def test_unknown_whole_numbers_are_told(refused, tmp_path):
    """Of two tables in Parquet; ids that are numbers go another way than texts."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "set").mkdir()
    parquet.write_table(arrow.table({"id": [1, 2]}), tmp_path / "set/vertices.parquet")
    parquet.write_table(arrow.table({"source": [1], "target": [3]}), tmp_path / "set/edges.parquet")
    assert "row 0 (counted from 0): vertex '3' is not in the table of vertices" in refused(tmp_path / "set")
