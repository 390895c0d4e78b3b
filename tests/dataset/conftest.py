"""Fixtures for datasets: a graph, its file and a dataset of it."""

import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import write_graph
from tests.support.graphs import random_graph


@pytest.fixture
def graph():
    return random_graph()


@pytest.fixture
def graph_file(tmp_path, graph):
    write_graph(tmp_path / "graph.h5", graph)
    return tmp_path / "graph.h5"


@pytest.fixture
def folder(tmp_path, graph):
    """A dataset of three uneven parts."""
    assignment = np.minimum(np.arange(graph.vertices) * 7 % 5, 2)
    write_dataset(tmp_path / "data", graph, assignment, 3, method="test", figures={}, seed=0)
    return tmp_path / "data"
