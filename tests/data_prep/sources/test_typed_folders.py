"""Typed graphs in the folders of OGB, of IGB-heterogeneous, and of DistDGL's chunks: the same small graph in each."""

import gzip
import json

import numpy as np
import pytest

from leapmpi.dataset.verify import verify_graph
from tests.data_prep.typed_folders import COUNTS, EDGES, FEATURES, LABELS, SPLITS, check_small, distinct
from tests.support.typed_graphs import named_edges


def write_csv(path, array, fmt="%g"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, array, fmt=fmt, delimiter=",")


def write_ogb(folder):
    """As ogb/io/read_graph_raw.py reads them."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    with gzip.open(raw / "num-node-dict.csv.gz", "wt") as file:
        file.write(",".join(COUNTS) + "\n" + ",".join(map(str, COUNTS.values())) + "\n")
    with gzip.open(raw / "triplet-type-list.csv.gz", "wt") as file:
        file.writelines(name.replace("__", ",") + "\n" for name in EDGES)
    for name, pairs in EDGES.items():
        write_csv(raw / "relations" / name.replace("__", "___") / "edge.csv.gz", np.array(pairs).T, "%d")
        write_csv(raw / "relations" / name.replace("__", "___") / "num-edge-list.csv.gz", [len(pairs[0])], "%d")
    for name, features in FEATURES.items():
        write_csv(raw / "node-feat" / name / "node-feat.csv.gz", features)
    write_csv(raw / "node-feat/paper/node_year.csv.gz", 2000 + np.arange(6), "%d")
    write_csv(raw / "node-label/paper/node-label.csv.gz", np.where(LABELS < 0, np.nan, LABELS))
    for name, ids in SPLITS.items():
        write_csv(folder / "split/time/paper" / f"{'valid' if name == 'val' else name}.csv.gz", ids, "%d")
    return folder


def test_ogb(imported, tmp_path):
    graph = imported(write_ogb(tmp_path / "mag"))
    check_small(graph)
    verify_graph(tmp_path / "out.h5")
    assert graph.time[5:11].tolist() == list(range(2000, 2006))
    assert graph.attributes["split_origin"] == "split/time"
    check_small(imported(tmp_path / "mag/raw"))


def test_ogb_refused_in_one_sentence(refused, tmp_path):
    folder = write_ogb(tmp_path / "mag")
    write_csv(folder / "raw/relations/paper___in___venue/num-edge-list.csv.gz", [9], "%d")
    assert "holds 4 edges, but" in refused(folder)
    write_csv(folder / "raw/relations/paper___in___venue/num-edge-list.csv.gz", [4], "%d")
    with gzip.open(folder / "raw/num-node-dict.csv.gz", "wt") as file:
        file.write("author,paper,venue\n5,7,2\n")
    assert "type paper" in refused(folder)
    with gzip.open(folder / "raw/num-node-dict.csv.gz", "wt") as file:
        file.write("author,paper,venue\n5,six,2\n")
    assert "'six' is not a number of vertices" in refused(folder)
    (folder / "raw/relations/paper__odd").mkdir()
    with gzip.open(folder / "raw/num-node-dict.csv.gz", "wt") as file:
        file.write("author,paper,venue\n5,6,2\n")
    assert "SOURCE___RELATION___DESTINATION" in refused(folder)


def write_igb(folder):
    """As graphlearn's examples/igbh/dataset.py reads it: [E, 2], and 1024 columns for every type with features."""
    processed = folder / "processed"
    for name, count in COUNTS.items():
        (processed / name).mkdir(parents=True)
        if name != "author":
            features = np.random.default_rng(count).standard_normal((count, 1024)).astype(np.float32)
            np.save(processed / name / "node_feat.npy", features)
    np.save(processed / "paper/node_label_19.npy", np.array([0, 1, 1, 2, 1, 0], np.float32))
    for name, pairs in EDGES.items():
        (processed / name).mkdir()
        np.save(processed / name / "edge_index.npy", np.array(pairs).T)
    return folder


@pytest.mark.parametrize("headers", [True, False])
def test_igb(imported, tmp_path, headers):
    """Arrays of sizes large and full have no header."""
    folder = write_igb(tmp_path / "tiny")
    features = np.load(folder / "processed/venue/node_feat.npy")
    if not headers:
        for file in ("venue/node_feat.npy", "paper/node_feat.npy", "paper/node_label_19.npy"):
            array = np.load(folder / "processed" / file)
            (folder / "processed" / file).write_bytes(array.tobytes())
    graph = imported(folder)
    verify_graph(tmp_path / "out.h5")
    assert named_edges(graph) == distinct()
    assert [each.name for each in graph.types.vertices] == ["paper", "author", "venue"]
    assert [each.feature_dim for each in graph.types.vertices] == [1024, 0, 1024]
    assert np.array_equal(graph.typed.features[2], features)
    assert graph.labels[:6].tolist() == [0, 1, 1, 2, 1, 0]
    assert graph.split[:6].tolist() == [1, 1, 1, 2, 3, 3]


def test_igb_refused_in_one_sentence(refused, tmp_path):
    folder = write_igb(tmp_path / "tiny")
    (folder / "processed/venue/node_feat.npy").write_bytes(b"x" * 5000)
    assert "are not rows of 1024 float32" in refused(folder)
    np.save(folder / "processed/venue/node_feat.npy", np.ones((1, 1024), np.float32))
    assert "type venue has vertices 0 ... 0" in refused(folder)
    np.save(folder / "processed/paper__in__venue/edge_index.npy", np.zeros((3, 4), np.int64))
    assert "[edges, 2]" in refused(folder)


def write_chunks(folder, parquet=False):
    """As DGL's guide on distributed preprocessing describes it: two chunks of each relation and array."""
    folder.mkdir()
    about = {
        "graph_name": "small",
        "node_type": list(COUNTS),
        "num_nodes_per_type": list(COUNTS.values()),
        "edge_type": [name.replace("__", ":") for name in EDGES],
        "num_edges_per_type": [len(pairs[0]) for pairs in EDGES.values()],
        "edges": {},
        "node_data": {},
        "edge_data": {},
        "raw_id_mappings": {},
    }

    def save(key, array, kind="numpy"):
        files = []
        for part, rows in enumerate(np.array_split(array, 2)):
            files.append(f"{key}-{part}.npy")
            np.save(folder / files[-1], rows)
        return {"format": {"name": kind}, "data": files}

    for name, pairs in EDGES.items():
        files = []
        for part, rows in enumerate(np.array_split(np.array(pairs).T, 2)):
            files.append(f"{name}-{part}.{'parquet' if parquet else 'txt'}")
            if parquet:
                import pyarrow
                from pyarrow import parquet as pq

                pq.write_table(pyarrow.table({"src": rows[:, 0], "dst": rows[:, 1]}), folder / files[-1])
            else:
                np.savetxt(folder / files[-1], rows, fmt="%d", delimiter=" ")
        kind = {"name": "parquet"} if parquet else {"name": "csv", "delimiter": " "}
        about["edges"][name.replace("__", ":")] = {"format": kind, "data": files}
    for name, features in FEATURES.items():
        about["node_data"][name] = {"feat": save(f"{name}-feat", features)}
    about["node_data"]["paper"]["label"] = save("label", LABELS)
    for name, ids in SPLITS.items():
        about["node_data"]["paper"][f"{name}_mask"] = save(f"{name}_mask", np.isin(np.arange(6), ids).astype(np.int8))
    (folder / "metadata.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize("parquet", [False, True])
def test_chunks(imported, tmp_path, parquet):
    if parquet:
        pytest.importorskip("pyarrow")
    folder = write_chunks(tmp_path / "chunks", parquet)
    check_small(imported(folder))
    verify_graph(tmp_path / "out.h5")
    check_small(imported(folder / "metadata.json"))


def test_reverse_relations_of_chunks_are_known_by_name(imported, tmp_path):
    folder = write_chunks(tmp_path / "chunks")
    about = json.loads((folder / "metadata.json").read_text())
    np.savetxt(folder / "back.txt", np.array(EDGES["author__writes__paper"])[::-1].T, fmt="%d")
    about["edge_type"].append("paper:writes-rev:author")
    about["num_edges_per_type"].append(6)
    about["edges"]["paper:writes-rev:author"] = {"format": {"name": "csv", "delimiter": " "}, "data": ["back.txt"]}
    (folder / "metadata.json").write_text(json.dumps(about))
    graph = imported(folder)
    assert [each.reverse_of for each in graph.types.relations] == [None, None, None, 0]


def test_chunks_refused_in_one_sentence(refused, tmp_path):
    folder = write_chunks(tmp_path / "chunks")
    good = json.loads((folder / "metadata.json").read_text())

    def with_change(change):
        about = json.loads(json.dumps(good))
        change(about)
        (folder / "metadata.json").write_text(json.dumps(about))
        return refused(folder)

    assert "hold 6 edges, but metadata.json says 7" in with_change(lambda a: a["num_edges_per_type"].__setitem__(0, 7))
    assert "feat of paper has 6 rows, but there are 8" in with_change(
        lambda a: a["num_nodes_per_type"].__setitem__(1, 8)
    )
    assert "does not exist" in with_change(lambda a: a["edges"]["paper:in:venue"]["data"].append("gone.txt"))
    assert "is not SOURCE:RELATION:DESTINATION" in with_change(lambda a: a["edge_type"].__setitem__(0, "writes"))
    assert "'format' is missing" in with_change(lambda a: a["edges"].pop("paper:in:venue"))
    assert "a number for each of" in with_change(lambda a: a["num_nodes_per_type"].pop())
    assert "metadata.json, line 1" in refused(_damaged(folder))


def _damaged(folder):
    (folder / "metadata.json").write_text('{"num_nodes_per_type": [1,')
    return folder


def write_hgb(folder, multilabel=False):
    """As the benchmark's data_loader.py reads it; papers and authors are mixed in the ids."""
    folder.mkdir()
    order = [("paper", 0), ("author", 0), ("paper", 1), ("venue", 0), ("author", 1), ("paper", 2), ("venue", 1)]
    order += [("author", 2), ("paper", 3), ("paper", 4), ("author", 3), ("author", 4), ("paper", 5)]
    types = {"paper": 0, "author": 1, "venue": 2}
    at = {each: v for v, each in enumerate(order)}
    lines = []
    for v, (kind, row) in enumerate(order):
        features = f"\t{','.join(map(str, FEATURES[kind][row].tolist()))}" if kind in FEATURES else ""
        lines.append(f"{v}\t{kind} {row}\t{types[kind]}{features}")
    (folder / "node.dat").write_text("\n".join(lines) + "\n")
    links = []
    for r, (name, (sources, destinations)) in enumerate(EDGES.items()):
        source, _, destination = name.split("__")
        links += [
            f"{at[source, u]}\t{at[destination, v]}\t{r}\t1.0" for u, v in zip(sources, destinations, strict=True)
        ]
    (folder / "link.dat").write_text("\n".join(links) + "\n")
    for name, ids in {"label.dat": [0, 1, 3], "label.dat.test": [4, 5]}.items():
        labels = [f"{LABELS[v]},2" if multilabel and v == 1 else LABELS[v] for v in ids]
        rows = [f"{at['paper', v]}\tpaper {v}\t0\t{label}" for v, label in zip(ids, labels, strict=True)]
        (folder / name).write_text("\n".join(rows) + "\n")
    about = {
        "node.dat": {"node type": {str(t): name for name, t in types.items()}},
        "link.dat": {"link type": {str(r): {"meaning": name.split("__")[1]} for r, name in enumerate(EDGES)}},
    }
    (folder / "info.dat").write_text(json.dumps(about))
    return folder


def test_hgb(imported, tmp_path):
    graph = imported(write_hgb(tmp_path / "ACM"))
    check_small(graph, splits=False)
    verify_graph(tmp_path / "out.h5")
    assert np.flatnonzero(graph.split == 1).tolist() == [0, 1, 3]
    assert np.flatnonzero(graph.split == 3).tolist() == [4, 5]
    assert (tmp_path / "out.names.txt").read_text().splitlines()[:3] == ["paper 0", "paper 1", "paper 2"]


def test_hgb_of_several_labels(imported, tmp_path):
    graph = imported(write_hgb(tmp_path / "IMDB", multilabel=True))
    assert graph.multilabel
    assert graph.labels[1].tolist() == [0, 1, 1]
    assert np.isnan(graph.labels[2]).all()


def test_hgb_refused_in_one_sentence(refused, tmp_path):
    folder = write_hgb(tmp_path / "ACM")
    text = (folder / "link.dat").read_text()
    (folder / "link.dat").write_text(text + "0\t99\t0\t1.0\n")
    assert "link.dat, line 16: '99' is not a number from 0 to 12" in refused(folder)
    (folder / "link.dat").write_text(text + "0\t0\t0\t1.0\n")
    assert "links of type 0 join vertices of other types before" in refused(folder)
    (folder / "link.dat").write_text(text)
    (folder / "node.dat").write_text((folder / "node.dat").read_text().replace("0.0,1.0,2.0", "0.0,one,2.0"))
    assert "node.dat, line 1: features '0.0,one,2.0' are not numbers" in refused(folder)
    (folder / "node.dat").write_text("0\tpaper\n")
    assert "line 1: 2 fields between tabs; expected 3" in refused(folder)
