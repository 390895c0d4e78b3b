"""GraphBolt's OnDiskDataset: edges, features and sets as metadata.yaml names them, raw or preprocessed."""

import numpy as np
import pytest
import torch

from leapmpi.dataset.verify import verify_graph
from tests.data_prep.conftest import SYMMETRIC, neighbours
from tests.data_prep.typed_folders import COUNTS, EDGES, FEATURES, LABELS, SPLITS, check_small
from tests.support.dgl_files import save_sampling_graph

yaml = pytest.importorskip("yaml")


@pytest.fixture
def dataset(tmp_path, small):
    """A function that writes a dataset with some of its description changed."""

    def write(edges="csv", **changed):
        folder = tmp_path / "set"
        (folder / "data").mkdir(parents=True)
        if edges == "csv":
            np.savetxt(folder / "data/edges.csv", small.edges.T, "%d", ",")
        else:
            np.save(folder / "data/edges.npy", small.edges)
        np.save(folder / "data/feat.npy", small.features.astype(np.float32))
        torch.save(torch.from_numpy(small.labels), folder / "data/label.pt")
        kind, end = ("csv", "csv") if edges == "csv" else ("numpy", "npy")
        sets = {}
        for key, split in (("train_set", "train"), ("validation_set", "val"), ("test_set", "test")):
            ids = getattr(small, split)
            np.save(folder / f"data/{split}-seeds.npy", ids)
            np.save(folder / f"data/{split}-labels.npy", small.labels[ids])
            names = {"seeds": f"data/{split}-seeds.npy", "labels": f"data/{split}-labels.npy"}
            sets[key] = [{"data": [{"name": name, "format": "numpy", "path": path} for name, path in names.items()]}]
        features = [
            {"domain": "node", "name": "feat", "format": "numpy", "in_memory": False, "path": "data/feat.npy"},
            {"domain": "node", "name": "label", "format": "torch", "path": "data/label.pt"},
        ]
        about = {
            "dataset_name": "six",
            "graph": {"nodes": [{"num": 6}], "edges": [{"format": kind, "path": f"data/edges.{end}"}]},
            "feature_data": features,
            "tasks": [{"name": "classes", "num_classes": 3, **sets}],
        }
        (folder / "metadata.yaml").write_text(yaml.safe_dump({**about, **changed}))
        return folder

    return write


@pytest.mark.parametrize("edges", ["csv", "npy"])
def test_raw(imported, small, dataset, edges):
    graph = imported(dataset(edges))
    assert neighbours(graph) == SYMMETRIC
    np.testing.assert_array_equal(graph.features, small.features)
    assert graph.labels.tolist() == small.labels.tolist()
    assert graph.split.tolist() == [1, 1, 2, 0, 3, 3]


def test_labels_of_the_sets_serve_where_no_feature_is_the_label(imported, dataset):
    graph = imported(dataset(feature_data=[]))
    assert graph.labels.tolist() == [0, 1, 2, -1, 0, 1]
    assert graph.classes == 3


def preprocess(folder, small, raw=None):
    """What GraphBolt makes of the edges, and of a description where one is given: copies of all files."""
    (folder / "preprocessed").mkdir()
    order = np.argsort(small.edges[1], kind="stable")
    indptr = np.append(0, np.cumsum(np.bincount(small.edges[1], minlength=6)))
    save_sampling_graph(folder / "preprocessed/graph.pt", indptr, small.edges[0, order])
    about = {"graph_topology": {"type": "FusedCSCSamplingGraph", "path": "preprocessed/graph.pt"}}
    if raw is not None:
        copied = yaml.safe_load(yaml.safe_dump(raw).replace("path: data/", "path: preprocessed/data/"))
        about.update({key: copied[key] for key in ("feature_data", "tasks")})
    (folder / "preprocessed/metadata.yaml").write_text(yaml.safe_dump(about))


def test_preprocessed(imported, small, dataset):
    folder = dataset()
    preprocess(folder, small)
    (folder / "data/edges.csv").unlink()
    assert neighbours(imported(folder)) == SYMMETRIC


def test_preprocessed_alone(imported, small, dataset):
    """The raw files are gone; GraphBolt's copies of them are named beside its graph."""
    folder = dataset()
    raw = yaml.safe_load((folder / "metadata.yaml").read_text())
    preprocess(folder, small, raw)
    (folder / "data").rename(folder / "preprocessed/data")
    graph = imported(folder)
    np.testing.assert_array_equal(graph.features, small.features)
    assert graph.split.tolist() == [1, 1, 2, 0, 3, 3]


def test_sets_of_pairs_are_edges_held_back(imported, dataset, tmp_path):
    pairs = np.array([[0, 1], [5, 2], [3, 4]])
    folder = dataset(tasks=[{"name": "links", "test_set": [{"data": [
        {"name": "seeds", "format": "numpy", "path": "data/pairs.npy"},
        {"name": "labels", "format": "numpy", "path": "data/true.npy"},
    ]}]}])  # fmt: skip
    np.save(folder / "data/pairs.npy", pairs)
    np.save(folder / "data/true.npy", np.array([1, 0, 1]))
    graph = imported(folder)
    assert graph.edge_splits.counts()["test_edges"] == 2
    assert 1 not in neighbours(graph)[0]


REFUSED = {
    "'type' is missing": {"graph": {"nodes": [{"num": 1}, {"num": 2}], "edges": [{"path": "x"}]}},
    "'num' is missing": {"graph": {"nodes": [{}], "edges": [{"path": "data/edges.csv"}]}},
    "the file of the edges is missing, and there is no ": {
        "graph": {"nodes": [{"num": 6}], "edges": [{"path": "data/none.csv"}]}
    },
    "the train set names a vertex outside 0 ... 0": {
        "graph": {"nodes": [{"num": 1}], "edges": [{"path": "data/edges.csv"}]},
        "feature_data": [],
    },
}


NUMBERS = [
    ({"graph": {"nodes": [{"num": -4}], "edges": [{"path": "data/edges.csv"}]}}, "num of nodes is -4"),
    ({"graph": {"nodes": [{"num": 2**62}], "edges": [{"path": "data/edges.csv"}]}}, "num of nodes is 46116860"),
    ({"graph": {"nodes": [{"num": 2**70}], "edges": [{"path": "data/edges.csv"}]}}, "num of nodes is 118059"),
    ({"graph": {"nodes": [{"num": 6.5}], "edges": [{"path": "data/edges.csv"}]}}, "'num' is missing or of an"),
    ({"tasks": [{"num_classes": -1}]}, "num_classes is -1; expected a whole number from 1 to"),
    ({"tasks": [{"num_classes": 2**62}]}, "num_classes is 4611686018427387904; expected"),
    ({"tasks": [{"num_classes": 2**70}]}, "num_classes is 1180591620717411303424; expected"),
    ({"tasks": [{"num_classes": 1e400}]}, "num_classes is inf; expected"),
    ({"tasks": [{"num_classes": 10**30}]}, "num_classes is 1000000000000000000000000000000; expected"),
    ({"tasks": [{"num_classes": 10**9}]}, "1,000,000,000 classes are stated, but the graph has only 6 vertices"),
    ({"tasks": {"num_classes": 3}}, "'tasks' is not a list of tasks"),
    ({"tasks": ["classes"]}, "'tasks' is not a list of tasks"),
    ({"feature_data": 7}, "'feature_data' is missing or of an unexpected kind"),
    ({"graph": {"nodes": [{"num": 6}], "edges": ["data/edges.csv"]}}, "'path' is missing"),
    ({"tasks": [{"train_set": [{"data": [{"path": "data/a\0b"}]}]}]}, r"data/a\x00b does not exist"),
]


@pytest.mark.parametrize(("changed", "sentence"), NUMBERS)
def test_odd_descriptions_are_refused(refused, dataset, changed, sentence):
    assert sentence in refused(dataset(**changed))


def test_absolute_paths_are_read(imported, dataset, tmp_path):
    folder = dataset()
    (folder / "data").rename(tmp_path / "elsewhere")
    text = (folder / "metadata.yaml").read_text().replace("path: data/", f"path: {tmp_path}/elsewhere/")
    (folder / "metadata.yaml").write_text(text)
    graph = imported(folder)
    assert neighbours(graph) == SYMMETRIC
    assert f"{tmp_path}/elsewhere/edges.csv (edges)" in graph.table


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_in_one_sentence(refused, dataset, sentence):
    assert sentence in refused(dataset(**REFUSED[sentence]))


def test_no_yaml(refused, dataset):
    folder = dataset()
    (folder / "metadata.yaml").write_text("a: [1,")
    assert "metadata.yaml is not YAML" in refused(folder)


@pytest.fixture
def typed_dataset(tmp_path):
    """A function that writes the small typed graph, with some of its description changed."""

    def write(**changed):
        folder = tmp_path / "typed"
        folder.mkdir(exist_ok=True)
        edges, features = [], []
        for name, pairs in EDGES.items():
            np.save(folder / f"{name}.npy", np.array(pairs))
            edges.append({"type": name.replace("__", ":"), "format": "numpy", "path": f"{name}.npy"})
        np.savetxt(folder / "in.csv", np.array(EDGES["paper__in__venue"]).T, "%d", ",")
        edges[2] |= {"format": "csv", "path": "in.csv"}
        for name, array in FEATURES.items():
            np.save(folder / f"{name}-feat.npy", array)
            about = {"domain": "node", "type": name, "name": "feat", "format": "numpy", "path": f"{name}-feat.npy"}
            features.append(about)
        sets = {}
        for key, split in (("train_set", "train"), ("validation_set", "val"), ("test_set", "test")):
            np.save(folder / f"{split}.npy", np.array(SPLITS[split]))
            torch.save(torch.from_numpy(LABELS[SPLITS[split]]), folder / f"{split}-labels.pt")
            data = [
                {"name": "seeds", "format": "numpy", "path": f"{split}.npy"},
                {"name": "labels", "format": "torch", "path": f"{split}-labels.pt"},
            ]
            sets[key] = [{"type": "paper", "data": data}]
        about = {
            "dataset_name": "typed",
            "graph": {"nodes": [{"type": name, "num": count} for name, count in COUNTS.items()], "edges": edges},
            "feature_data": features,
            "tasks": [{"name": "classes", "num_classes": 3, **sets}],
        }
        (folder / "metadata.yaml").write_text(yaml.safe_dump({**about, **changed}))
        return folder

    return write


def test_types(imported, typed_dataset, tmp_path):
    graph = imported(typed_dataset())
    check_small(graph)
    verify_graph(tmp_path / "out.h5")
    assert graph.classes == 3


def test_edges_of_a_set_are_held_back(imported, typed_dataset, tmp_path):
    folder = typed_dataset()
    np.save(folder / "pairs.npy", np.array([[3, 5], [1, 0]]))
    seeds = [{"type": "author:writes:paper", "data": [{"name": "seeds", "format": "numpy", "path": "pairs.npy"}]}]
    task = {"name": "links", "validation_set": [], "test_set": seeds}
    graph = imported(typed_dataset(tasks=[task]))
    verify_graph(tmp_path / "out.h5")
    assert graph.edge_splits.test.tolist() == [[1, 5], [3, 10]]  # by destination; papers begin at 5
    assert graph.edge_splits.test_relation.tolist() == [0, 0]


def test_types_are_refused_in_one_sentence(refused, typed_dataset):
    folder = typed_dataset(feature_data=[{"domain": "node", "type": "journal", "name": "feat", "path": "x.npy"}])
    assert "feature_data names the type 'journal', which has no nodes" in refused(folder)
    task = {"train_set": [{"type": "paper", "data": [{"name": "labels", "path": "train.npy"}]}]}
    assert "the train set of paper has no list of seeds" in refused(typed_dataset(tasks=[task]))
    typed_dataset()
    (folder / "in.csv").unlink()
    assert "in.csv does not exist; types of a graph are read from the files of its edges" in refused(folder)
