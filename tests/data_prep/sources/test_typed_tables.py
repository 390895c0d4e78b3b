"""Typed graphs in tables: a schema in TOML, and gconstruct's JSON with its transformations."""

import json

import numpy as np
import pytest
from scipy.special import erfinv

from data_prep.assembly.transforms import categories, transformed
from leapmpi.dataset.verify import verify_graph
from leapmpi.errors import DataError
from tests.data_prep.typed_folders import COUNTS, EDGES, FEATURES, LABELS, SPLITS, check_small

SCHEMA = """
target = "paper"

[vertices.author]
files = "authors.csv"
id = "name"

[vertices.paper]
files = ["papers-*.csv"]
id = "paper"
features = ["f0", "f1", "f2"]
label = "field"
split = "set"

[vertices.venue]
files = "venues.csv"
features = "f0"

[edges."author:writes:paper"]
files = "writes.csv"
source = "who"
destination = "what"

[edges."paper:cites:paper"]
files = "cites.csv"
source = "a"
destination = "b"

[edges."paper:in:venue"]
files = "in.csv"
source = "a"
destination = "b"
"""


def write_tables(folder, schema=SCHEMA):
    """The small graph in tables: authors and papers have texts as ids, venues are numbered by rows."""
    folder.mkdir(exist_ok=True)
    (folder / "authors.csv").write_text("name,age\n" + "".join(f"author {v},{v}\n" for v in range(COUNTS["author"])))
    split = {v: name for name, ids in SPLITS.items() for v in ids}
    rows = [
        f"p{v},{','.join(map(str, row))},{'' if label < 0 else label},{split.get(v, '')}"
        for v, (row, label) in enumerate(zip(FEATURES["paper"].tolist(), LABELS, strict=True))
    ]
    for part, some in enumerate((rows[:4], rows[4:])):
        (folder / f"papers-{part}.csv").write_text("paper,f0,f1,f2,field,set\n" + "\n".join(some) + "\n")
    (folder / "venues.csv").write_text("f0\n1.5\n-2.0\n")
    calls = {"author": "author {}", "paper": "p{}", "venue": "{}"}
    for name, file in zip(EDGES, ("writes.csv", "cites.csv", "in.csv"), strict=True):
        source, _, destination = name.split("__")
        lines = [f"{calls[source].format(u)},{calls[destination].format(v)}" for u, v in zip(*EDGES[name], strict=True)]
        head = "who,what" if file == "writes.csv" else "a,b"
        (folder / file).write_text(head + "\n" + "\n".join(lines) + "\n")
    (folder / "graph.toml").write_text(schema)
    return folder / "graph.toml"


def test_schema_in_toml(imported, tmp_path):
    graph = imported(write_tables(tmp_path / "tables"))
    check_small(graph)
    verify_graph(tmp_path / "out.h5")
    names = (tmp_path / "out.names.txt").read_text().splitlines()
    assert names[:2] == ["author 0", "author 1"]
    assert names[5] == "p0"
    assert names[-1] == "1"


def test_edge_data_counts_and_reverses(imported, tmp_path):
    schema = write_tables(tmp_path / "tables")
    text = SCHEMA.replace('files = "venues.csv"\nfeatures = "f0"', "count = 2")
    text += '\n[edges."venue:has:paper"]\nfiles = "in.csv"\nsource = "b"\ndestination = "a"\n'
    text += 'reverse_of = "paper:in:venue"\n'
    for file in ("writes.csv", "cites.csv", "in.csv"):
        lines = (schema.parent / file).read_text().splitlines()
        (schema.parent / file).write_text(f"{lines[0]},w\n" + "\n".join(f"{line},2.5" for line in lines[1:]) + "\n")
    text = text.replace("\nsource = ", '\nweight = "w"\nsource = ')
    schema.write_text(text)
    graph = imported(schema)
    assert [each.reverse_of for each in graph.types.relations] == [None, None, None, 2]
    assert set(graph.edge_data.weight.tolist()) <= {2.5, 5.0}
    assert graph.typed.features[2] is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "paper"', 'id = "key"', "has no column 'key'"),
        ('source = "who"', 'origin = "who"', "[edges.author:writes:paper]: 'origin' is none of"),
        ('files = "venues.csv"', 'count = 2\nfiles = "venues.csv"', "must have either files or a count"),
        ('files = "venues.csv"\nfeatures = "f0"', "count = -5", "count '-5' is not a whole number from 0 on"),
        ('"author:writes:paper"', '"writes"', "expected SOURCE:RELATION:DESTINATION"),
        ('"paper:in:venue"', '"paper:in:journal"', "names the type 'journal', which has no table"),
        ('target = "paper"', 'target = "field"', "target 'field' is none of the types"),
        ('files = "cites.csv"', 'files = "gone.csv"', "there is no file gone.csv"),
        ('features = "f0"', "features = 3", "features is not a list of names"),
        ("[vertices.author]", "[vertices.author", "is not TOML"),
    ],
)
def test_refused_in_one_sentence(refused, tmp_path, old, new, message):
    schema = write_tables(tmp_path / "tables", SCHEMA.replace(old, new, 1))
    assert message in refused(schema, "--format", "typed-table")


def test_unknown_ids_and_words_are_named_by_line(refused, tmp_path):
    schema = write_tables(tmp_path / "tables")
    (schema.parent / "writes.csv").write_text("who,what\nauthor 0,p0\nauthor 9,p1\n")
    assert "writes.csv, line 3: vertex 'author 9' is not in the table" in refused(schema)
    write_tables(tmp_path / "tables")
    (schema.parent / "papers-1.csv").write_text("paper,f0,f1,f2,field,set\np4,1,2,3,0,dev\np5,1,2,3,0,test\n")
    assert "split 'dev' is none of train, val, test" in refused(schema)


def write_gconstruct(folder, features=None):
    """The same tables as gconstruct describes them; papers have a second table, whose rows have the same order."""
    write_tables(folder)
    (folder / "more.csv").write_text("size,kind\n" + "".join(f"{v * v},{'ab'[v % 2]}|c\n" for v in range(6)))
    for name, ids in SPLITS.items():
        (folder / f"{name}.json").write_text("".join(f'"p{v}"\n' for v in ids))
    csv = {"format": {"name": "csv"}}
    splits = {"train": "train.json", "valid": "val.json", "test": "test.json"}
    label = {"label_col": "field", "task_type": "classification", "custom_split_filenames": splits}
    plain = [{"feature_col": ["f0", "f1", "f2"]}]
    nodes = [
        {"node_type": "author", "node_id_col": "name", "files": "authors.csv", **csv},
        {
            "node_type": "paper",
            "node_id_col": "paper",
            "files": "papers-*.csv",
            **csv,
            "features": plain,
            "labels": [label],
        },
        {"node_type": "venue", "node_id_col": "f0", "files": "venues.csv", **csv, "features": [{"feature_col": "f0"}]},
    ]
    nodes[1]["labels"] = [label]
    if features:
        nodes.insert(2, {"node_type": "paper", "files": "more.csv", **csv, "features": features})
    edges = []
    for name, file in zip(EDGES, ("writes.csv", "cites.csv", "in.csv"), strict=True):
        ends = ("who", "what") if file == "writes.csv" else ("a", "b")
        about = {"relation": name.split("__"), "source_id_col": ends[0], "dest_id_col": ends[1], "files": file}
        edges.append({**about, **csv})
    lines = (folder / "in.csv").read_text().splitlines()
    called = {"0": "1.5", "1": "-2.0"}
    text = [f"{line.split(',')[0]},{called[line.split(',')[1]]}" for line in lines[1:]]
    (folder / "in.csv").write_text("\n".join([lines[0], *text]) + "\n")
    about = {"version": "gconstruct-v0.1", "nodes": nodes, "edges": edges}
    (folder / "graph.json").write_text(json.dumps(about))
    return folder / "graph.json"


def test_gconstruct_of_types(imported, tmp_path):
    graph = imported(write_gconstruct(tmp_path / "tables"))
    check_small(graph)
    verify_graph(tmp_path / "out.h5")


def test_gconstruct_transforms_features_of_a_second_table(imported, tmp_path):
    features = [
        {"feature_col": "size", "transform": {"name": "max_min_norm"}},
        {"feature_col": "kind", "transform": {"name": "to_categorical", "separator": "|"}},
    ]
    graph = imported(write_gconstruct(tmp_path / "tables", features))
    found = graph.typed.features[1]
    assert found.shape == (6, 3 + 1 + 3)
    assert np.array_equal(found[:, :3], FEATURES["paper"])
    assert np.allclose(found[:, 3], np.arange(6) ** 2 / 25)
    assert found[:, 4:].tolist() == [[1 - v % 2, v % 2, 1] for v in range(6)]


def test_gconstruct_refuses_models_of_language(refused, tmp_path):
    features = [{"feature_col": "kind", "transform": {"name": "bert_hf"}}]
    said = refused(write_gconstruct(tmp_path / "tables", features))
    assert "feature kind is transformed by 'bert_hf', which leapmpi-prep cannot do" in said


def test_transformations():
    """As the documentation of gconstruct defines them."""
    values = np.array([[1.0], [4.0], [2.0], [9.0]])

    def made(**transform):
        return transformed(values, transform, "here")[:, 0]

    assert np.allclose(made(name="standard"), values[:, 0] / 16)
    assert np.allclose(made(name="max_min_norm", max_val=[5], min_val=[1]), [0, 0.75, 0.25, 1])
    assert np.allclose(made(name="max_min_norm", max_bound=5), [0, 0.75, 0.25, 1])
    ranks = np.array([0, 2, 1, 3]) / 3 * 2 - 1
    assert np.allclose(made(name="rank_gauss", epsilon=1e-3), erfinv(np.clip(ranks, -0.999, 0.999)), atol=1e-5)
    buckets = transformed(values, {"name": "bucket_numerical", "bucket_cnt": 4, "range": [1, 9]}, "here")
    assert buckets.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    window = {"name": "bucket_numerical", "bucket_cnt": 4, "range": [1, 9], "slide_window_size": 2}
    assert transformed(values, window, "here").tolist() == [[1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]
    mapped = categories(["b", "", "c"], {"mapping": {"b": 1, "a": 0}}, "here")
    assert mapped.tolist() == [[0, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"name": "max_min_norm"}, "a single value"),
        ({"name": "max_min_norm", "max_val": "x"}, "must be a number"),
        ({"name": "bucket_numerical", "range": [0, 1]}, "a bucket_cnt and a range"),
        ({"name": "bucket_numerical", "bucket_cnt": 3, "range": [1, 1]}, "is empty"),
        ({"name": "rank_gauss", "epsilon": "small"}, "which is not a number"),
    ],
)
def test_impossible_transformations_are_refused(transform, message):
    with pytest.raises(DataError, match=message):
        transformed(np.ones((3, 1)), transform, "here")
