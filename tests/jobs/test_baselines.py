"""jobs/bench/baselines.py: its scores are those of the definitions, on a graph small enough to count by hand."""

import sys

import h5py
import numpy as np
import pytest

from tests.support.launch import PROJECT

sys.path.insert(0, str(PROJECT / "jobs/bench"))
import baselines

NEIGHBOURS = {0: [1, 2, 3], 1: [0, 2], 2: [0, 1, 4], 3: [0, 4], 4: [2, 3]}


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "graph.h5"
    with h5py.File(path, "w") as file:
        file["topology/indptr"] = np.cumsum([0, *map(len, NEIGHBOURS.values())])
        file["topology/indices"] = np.concatenate(list(NEIGHBOURS.values()))
        file["edge_splits/test"] = np.array([[0, 4]])
        file["edge_splits/val"] = np.array([[1, 3]])
        file["split"] = np.array([1, 1, 2, 3, 3])
        file["labels"] = np.array([[1.0], [3.0], [9.0], [2.0], [4.0]])
        file["features"] = np.array([[0.0], [1.0], [4.0], [0.5], [1.5]])
    return baselines.ImportedGraph(path)


def test_the_area_under_the_curve_counts_ties_half():
    positive, negative = np.array([3.0, 1.0, 1.0]), np.array([1.0, 2.0])
    wins = [(p > n) + (p == n) / 2 for p in positive for n in negative]
    assert baselines.area_under_curve(positive, negative) == pytest.approx(np.mean(wins))


def test_negatives_are_no_known_edge_and_no_loop(graph):
    pairs = baselines.negatives(graph, graph.arrays["edge_splits/test"], seed=0)
    assert len(pairs) == 0, "all others are neighbours of 0, or its own test edge"
    pairs = baselines.negatives(graph, np.array([[1, 0]]), seed=0)
    assert set(map(tuple, pairs)) == {(1, 4)}, "1-3 is a validation edge"


def test_a_neighbours_mean_reads_training_vertices_alone(graph):
    scores = baselines.regression(graph, seed=0)
    assert scores["mean"] == pytest.approx(1.0)  # mean 2; targets 2 and 4
    assert scores["neighbours"] == pytest.approx((1 + 2) / 2)  # 3 sees 0 (target 1); 4 sees no training vertex: mean 2
    assert scores["ridge"] < scores["mean"], "target = 1 + 2 feature"


def test_f1_by_thresholds_and_by_known_counts():
    target = np.array([[1, 1, 0], [0, 0, 1]])
    chance = np.array([[0.4, 0.9, 0.6], [0.1, 0.2, 0.3]])
    assert baselines.f1(chance > 0.5, target) == pytest.approx(100 * 2 * 1 / (2 + 3))
    np.testing.assert_array_equal(baselines.by_count(chance, target), [[0, 1, 1], [0, 0, 1]])


def test_logistic_regression_separates_what_is_separable():
    rows = np.array([[0.0, 1], [1, 1], [2, 1], [3, 1]])
    target = np.array([[0.0], [0], [1], [1]])
    assert ((rows @ baselines.logistic(rows, target) > 0) == (target > 0)).all()
