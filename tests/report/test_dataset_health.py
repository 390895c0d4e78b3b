"""What a graph is like, against counts made one by one."""

import numpy as np
import pytest

from data_prep.cli import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.report.dataset_health import health
from leapmpi.report.sections.dataset import findings
from tests.support.graphs import from_edges, from_lists, random_graph


def write(folder, graph, assignment, parts):
    """A dataset of these parts."""
    write_dataset(folder, graph, assignment.astype(np.int32), parts, method="given", figures={}, seed=0)


def counted(graph):
    """The same figures by loops."""
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(graph.vertices)]
    read = {u for row in lists for u in row}
    pairs = [(graph.labels[u], graph.labels[v]) for v, row in enumerate(lists) for u in row]
    known = [(a, b) for a, b in pairs if a >= 0 and b >= 0]
    return {
        "no_in_neighbours": sum(not row for row in lists),
        "never_read": graph.vertices - len(read),
        "isolated": sum(not row and v not in read for v, row in enumerate(lists)),
        "homophily": int(sum(a == b for a, b in known)) / len(known),
        "class_counts": [int(np.sum(graph.labels == c)) for c in range(graph.classes)],
        "labelled": int(np.sum(graph.labels >= 0)),
        "degree_largest": max(map(len, lists)),
        "largest": [
            {"vertex": str(graph.original_id[v]), "in_degree": len(lists[v])}
            for v in sorted(range(graph.vertices), key=lambda v: (-len(lists[v]), graph.original_id[v]))[:5]
        ],
    }


@pytest.mark.parametrize("parts", [None, 1, 4])
def test_figures_are_those_of_loops(tmp_path, parts):
    graph = random_graph(200, degree=3, seed=5)
    whole = graph
    assignment = np.arange(200) % (parts or 1)
    if parts:
        write(tmp_path / "data", graph, assignment, parts)
        whole = open_dataset(tmp_path / "data")
    found = health(whole)
    expected = counted(graph)
    assert {name: found[name] for name in expected} == expected
    assert sum(found["in_degrees"].values()) == 200
    assert found["splits"] == {name: int(np.sum(graph.split == code)) for code, name in
                               ((1, "train"), (2, "val"), (3, "test"))}  # fmt: skip
    if parts:
        elsewhere = [0] * parts
        for v in range(200):
            row = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
            elsewhere[assignment[v]] += int(np.sum(assignment[row] != assignment[v]))
        assert [each["from_elsewhere"] for each in found["cut"]] == elsewhere


def test_what_stands_out_is_said():
    features = np.zeros((40, 3), np.float32)
    features[:3] = 1
    split = np.zeros(40, np.int8)
    labels = np.array([0] * 38 + [1, 2])
    graph = from_edges(40, [(0, 38), (1, 39)], features=features, labels=labels, split=split, classes=3)
    found = {sentence: level for level, sentence in findings(health(graph))}
    text = " ".join(found)
    expected = "The training split is empty", "have no neighbour", "are all zero", "most frequent class has 38"
    for words in (*expected, "Only 0.0 % of the edges join"):
        assert words in text
    assert "bad" in found.values()


@pytest.mark.parametrize("kind", ["multilabel", "sparse", "half"])
def test_every_kind_of_data_is_examined(kind):
    found = health(random_graph(60, seed=2, **{kind: True}))
    assert found["features"]["examined"] == 60
    assert len(found["class_counts"]) == 3
    assert health(from_lists([[1], [], [1]]))["homophily"] is None


def test_the_command_writes_a_page_of_a_graph_and_of_a_dataset(tmp_path, capsys):
    graph = random_graph(100, seed=1)
    write_graph(tmp_path / "graph.h5", graph)
    write(tmp_path / "data", graph, np.arange(100) % 2, 2)
    for path in ("graph.h5", "data"):
        out = tmp_path / f"{path}.html"
        assert main(["report", str(tmp_path / path), "-o", str(out)]) == 0
        text = out.read_text()
        assert "Vertices by in-degree" in text
        assert ("from other parts" in text) == (path == "data")
        assert main(["report", str(tmp_path / path), "-o", str(out)]) == 0
        assert out.read_text() == text
    assert main(["report", str(tmp_path / "nothing")]) != 0
    assert capsys.readouterr().err.count("nothing") == 1
