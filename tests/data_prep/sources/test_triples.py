"""Triples of texts, of OpenKE and in N-Triples; the real ones against an independent reading."""

import gzip

import numpy as np
import pytest

from leapmpi.dataset.verify import verify_graph
from tests.support.graphs import read_names

TRAIN = "b\tlikes\ta\na\tknows\tb\nc\tknows\ta\na\tknows\ta\n"


def held_back(graph, name):
    """The edges held back as triples of numbers."""
    edges, relation = getattr(graph.edge_splits, name), getattr(graph.edge_splits, f"{name}_relation")
    return {(u, graph.types.relations[r].name, v) for (u, v), r in zip(edges.tolist(), relation.tolist(), strict=True)}


def triples_of(graph):
    """The edges of the graph as triples of numbers."""
    ends = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    names = [graph.types.relations[r].name for r in graph.edge_data.relation.tolist()]
    return set(zip(graph.original_id[graph.indices].tolist(), names, graph.original_id[ends].tolist(), strict=True))


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "kg"
    source.mkdir()
    (source / "train.txt").write_text(TRAIN)
    (source / "valid.txt").write_text("c\tlikes\tb\n")
    (source / "test.txt").write_text("d\tknows\ta\nb\tknows\ta\n")
    return source


def test_texts_are_numbered_in_order(imported, folder, tmp_path):
    graph = imported(folder)
    assert read_names(tmp_path / "out.h5", graph) == ["a", "b", "c", "d"]
    assert [str(each) for each in graph.types.relations] == ["entity:knows:entity", "entity:likes:entity"]
    assert triples_of(graph) == {(1, "likes", 0), (0, "knows", 1), (2, "knows", 0)}
    assert held_back(graph, "val") == {(2, "likes", 1)}
    assert held_back(graph, "test") == {(3, "knows", 0), (1, "knows", 0)}
    verify_graph(tmp_path / "out.h5")
    assert imported(folder, "--split-edges", "none").edge_splits is None


def test_openke_has_the_relation_last(imported, folder, tmp_path):
    """The same graph: numbers of head, tail and relation, in this order."""
    whole = imported(folder)
    plain = triples_of(whole), held_back(whole, "test")
    for name, text in {
        "entity2id": "4\na\t0\nb\t1\nc\t2\nd\t3\n",
        "relation2id": "2\nknows\t0\nlikes\t1\n",
        "train2id": "4\n1 0 1\n0 1 0\n2 0 0\n0 0 0\n",
        "valid2id": "1\n2 1 1\n",
        "test2id": "2\n3 0 0\n1 0 0\n",
    }.items():
        (folder / f"{name}.txt").write_text(text)
    graph = imported(folder)
    assert (triples_of(graph), held_back(graph, "test")) == plain
    assert read_names(tmp_path / "out.h5", graph) == ["a", "b", "c", "d"]


def test_refused_in_one_sentence(refused, folder):
    (folder / "train.txt").write_text(TRAIN + "a\tknows\n")
    assert "train.txt, line 5: 'a\\tknows' is not a triple" in refused(folder)
    (folder / "train.txt").write_text(TRAIN)
    (folder / "valid.txt").write_text("a\tknows\tb\n")
    assert "some val edges are also edges for training" in refused(folder)
    (folder / "valid.txt").write_text("d\tknows\ta\n")
    assert "some test edges are also validation edges" in refused(folder)
    (folder / "entities.dict").write_text("0\ta\n1\tb\n")
    assert "train.txt, line 3: vertex 'c' is not in the table" in refused(folder)
    (folder / "entities.dict").write_text("0\ta\n2\tb\n")
    assert "without gaps" in refused(folder)
    (folder / "train2id.txt").write_text("9\n0 1 0\n")
    assert "entity2id.txt" in refused(folder) or "numbers" in refused(folder)


def test_openke_s_count_is_checked(refused, folder):
    (folder / "entity2id.txt").write_text("2\na\t0\nb\t1\n")
    (folder / "relation2id.txt").write_text("1\nknows\t0\n")
    (folder / "train2id.txt").write_text("9\n0 1 0\n")
    assert "line 1 states 9 triples, but 1 follow" in refused(folder)


RDF = """# a comment
<http://x/p1> <http://x/knows> <http://x/p2> .
<http://x/p1> <http://x/name> "A \\"name\\" \\u00e9"^^<http://www.w3.org/2001/XMLSchema#string> .
_:b0 <http://x/knows> <http://x/p1> . # trailing
<http://x/p2> <http://x/name> "plain"@en-GB .

<http://x/p1> <http://x/knows> <http://x/p2> .
"""


@pytest.fixture
def rdf(tmp_path):
    source = tmp_path / "rdf"
    source.mkdir()
    with gzip.open(source / "g.nt.gz", "wt", encoding="utf-8") as file:
        file.write(RDF)
    (source / "trainingSet.tsv").write_text("person\tid\tlabel_x\r\nhttp://x/p1\t1.0\tgroup b\r\n")
    (source / "testSet.tsv").write_text("id\tperson\tlabel_x\r\n2\thttp://x/p2\tgroup a\r\n")
    return source


def test_terms_of_n_triples(imported, rdf, tmp_path):
    graph = imported(rdf)
    names = read_names(tmp_path / "out.h5", graph)
    assert names == sorted(names)
    assert set(names) == {
        "http://x/p1",
        "http://x/p2",
        "_:b0",
        '"A \\"name\\" \\u00e9"^^<http://www.w3.org/2001/XMLSchema#string>',
        '"plain"@en-GB',
    }
    assert graph.edges == 4
    at = {name: v for v, name in enumerate(names)}
    assert graph.labels[[at["http://x/p1"], at["http://x/p2"]]].tolist() == [1, 0]
    assert graph.split[[at["http://x/p1"], at["http://x/p2"]]].tolist() == [1, 3]
    assert graph.attributes["class_names"] == '["group a", "group b"]'


def test_damaged_n_triples_are_refused(refused, rdf):
    for text, said in (
        ("<http://x/p1> <http://x/knows> .\n", "line 1"),
        ('<http://x/p1> "no" <http://x/p2> .\n', "line 1"),
        ("<http://x/p1> <http://x/knows> <http://x/p2>\n", "not a triple in N-Triples"),
    ):
        with gzip.open(rdf / "g.nt.gz", "wt") as file:
            file.write(text)
        assert said in refused(rdf)
    with gzip.open(rdf / "g.nt.gz", "wt") as file:
        file.write(RDF)
    (rdf / "testSet.tsv").write_text("person\tlabel_x\nhttp://x/p9\tgroup a\n")
    assert "testSet.tsv, line 2: vertex 'http://x/p9' is not" in refused(rdf)
    (rdf / "testSet.tsv").write_text("person\tgroup\nhttp://x/p2\tgroup a\n")
    assert "testSet.tsv has the columns person, group" in refused(rdf)


@pytest.mark.parametrize("name", ["wn18rr", "codex-s"])
def test_real_triples(imported, real_graph, tmp_path, name):
    source = real_graph(name)
    graph = imported(source, "--add-reverse")
    verify_graph(tmp_path / "out.h5")
    names = read_names(tmp_path / "out.h5", graph)
    at = {each: v for v, each in enumerate(names)}
    read = {}
    for split in ("train", "valid", "test"):
        lines = (source / f"{split}.txt").read_text().splitlines()
        read[split] = {(at[h], r, at[t]) for h, r, t in (line.split("\t") for line in lines) if h != t}
    expected = read["train"] | {(t, f"rev_{r}", h) for h, r, t in read["train"]}
    assert triples_of(graph) == expected
    assert held_back(graph, "val") == read["valid"]
    assert held_back(graph, "test") == read["test"]
    if name == "wn18rr":
        assert graph.vertices == 40_943
        assert [names[v] for v in (0, 1)] == ["00260881", "00260622"]


def test_real_rdf(imported, real_graph, tmp_path):
    """AIFB: counts of its page, and every triple of a plain reading."""
    source = real_graph("rdf-aifb")
    graph = imported(source, "--add-reverse")
    verify_graph(tmp_path / "out.h5")
    assert (graph.vertices, graph.edges, len(graph.types.relations)) == (8_285, 58_086, 90)
    assert graph.classes == 4
    assert np.bincount(graph.labels[graph.split == 1]).tolist() == [58, 22, 48, 12]
    assert np.bincount(graph.labels[graph.split == 3]).tolist() == [15, 6, 12, 3]
    at = {name: v for v, name in enumerate(read_names(tmp_path / "out.h5", graph))}
    expected = set()
    with gzip.open(source / "aifb_stripped.nt.gz", "rt") as file:
        for line in filter(str.strip, file):
            head, relation, tail = line.strip().removesuffix(" .").split(" ", 2)
            tail = tail if tail.startswith('"') else tail.strip("<>")
            h, r, t = at[head.strip("<>")], relation.strip("<>"), at[tail]
            expected |= {(h, r, t), (t, f"rev_{r}", h)}
    assert triples_of(graph) == expected
