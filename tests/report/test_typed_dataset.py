"""The page about a typed graph: types, relations and a picture of the schema; that about a dataset for edges."""

from dataclasses import replace

import numpy as np

from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.dataset.hdf5.names import RELATION_LIST
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.report.dataset_health import health
from leapmpi.report.run_data import read_runs
from leapmpi.report.sections.dataset import findings, section
from leapmpi.report.sections.run_report import dataset_of, dataset_page
from tests.support.graphs import random_graph
from tests.support.made_run import make_run
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
        assert [(each.name, each.vertices, each.target) for each in figure.types] == [
            ("paper", 9, True),
            ("author", 7, False),
            ("field", 3, False),
        ]
        assert [each.edges for each in figure.relations] == edges.tolist()
        assert figure.relations[2].name == "rev_writes"
        assert figure.relations[2].reverse_of == "author:writes:paper"
        text, _ = dataset_page("typed", found)
        assert "paper (target)" in text
        assert "paper:rev_writes:author" in text


def test_a_schema_of_very_many_types_is_a_matrix():
    types = tuple(VertexType(f"type_{number}", 2) for number in range(13))
    relations = tuple(Relation(types[n].name, "next", types[(n + 1) % 13].name) for n in range(13))
    graph = typed_graph(GraphTypes(types, relations, "type_0"), edges=2)
    figure = next(each for each in section(health(graph)).figures if each.name == "schema")
    assert figure.matrix.shape == (13, 13)
    assert figure.matrix[12, 0] == graph.relation_edges()[12]


def test_rows_by_time_show_where_splits_cut():
    graph = typed_graph(edges=60)
    day, first = 86_400, 1_577_836_800
    # Papers have days 0 to 8, of which four train; fields are always seen, and one author never.
    times = np.array([*range(9), *[3] * 7, *[0] * 3]) * day + first
    times[9], times[16:] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    split = np.zeros(graph.vertices, np.int8)
    split[:9] = [1] * 4 + [2] * 2 + [3] * 2 + [0]
    found = health(replace(graph, time=times, split=split))
    page = section(found)
    figure = next(each for each in page.figures if each.name == "times")
    assert {each.label: each.y.sum() for each in figure.lines} == {
        **{"paper, train": 4, "paper, val": 2, "paper, test": 2, "paper": 1, "author": 6}
    }
    assert figure.x_label == "year"
    text, _ = dataset_page("shop", found)
    assert "2020-01-01 to 2020-01-04: 4 rows" in text
    assert "times" not in [each.name for each in section(health(random_graph())).figures]


def test_plain_graphs_have_no_schema():
    assert all(each.name != "schema" for each in section(health(random_graph())).figures)


def test_a_run_on_a_typed_graph_knows_its_dataset(tmp_path):
    graph = typed_graph(edges=60)
    write_dataset(tmp_path / "d", graph, np.zeros(graph.vertices, np.int64), 1, method="test", figures={}, seed=0)
    run = make_run(tmp_path / "run", data=str(tmp_path / "d"), finished=False)
    found, _ = dataset_of(read_runs([run])[0])
    assert len(found[RELATION_LIST]) == 5
    assert main(["report", str(run), "--data", str(tmp_path / "d"), "-o", str(tmp_path / "page.html")]) == 0
    assert "--png schema" in (tmp_path / "page.html").read_text()


def test_a_dataset_for_edges_needs_no_vertices_to_train_on():
    splits = EdgeSplits(np.array([[0, 1]]), np.array([[1, 0], [2, 0]]))
    found = health(replace(random_graph(), edge_splits=splits, split=np.zeros(random_graph().vertices, np.int8)))
    assert not any("training split" in sentence for _, sentence in findings(found))
    assert "edges held back" in dataset_page("links", found)[0]
    assert "val 1, test 2" in dataset_page("links", found)[0]
