"""The page about a typed graph: types, relations and a picture of the schema."""

import numpy as np

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.report.dataset_health import health
from leapmpi.report.sections.dataset import section
from leapmpi.report.sections.run_report import dataset_page
from tests.support.typed_graphs import typed_graph


def test_schema_is_shown_with_counts(tmp_path):
    graph = typed_graph(edges=60)
    write_dataset(tmp_path / "d", graph, np.arange(graph.vertices) % 2, 2, method="test", figures={}, seed=0)
    dataset = open_dataset(tmp_path / "d", typed=True)
    for each in (graph, dataset):
        found = health(each)
        assert found["features"]["examined"] == 9 + 3
        figure = next(each for each in section(found).figures if each.name == "schema")
        edges = graph.relation_edges()
        assert figure.labels == ["paper", "author", "field"]
        assert figure.matrix.tolist() == [[edges[1] + edges[3], edges[2], 0], [edges[0], 0, edges[4]], [0, 0, 0]]
        text, _ = dataset_page("typed", found)
        assert "paper (target)" in text
        assert "paper:rev_writes:author" in text


def test_plain_graphs_have_no_schema():
    from tests.support.graphs import random_graph

    assert all(each.name != "schema" for each in section(health(random_graph())).figures)
