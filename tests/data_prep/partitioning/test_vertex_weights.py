"""Parts balanced by edges or by work, which a few vertices may have most of."""

import importlib.util

import numpy as np
import pytest

from data_prep.partitioning.multilevel.balance import Caps
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.postprocess import even_out
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.vertex_weights import sampled_work
from leapmpi.errors import ConfigError
from tests.support.graphs import from_edges

N, TOLERANCE = 400, 1.05
METHODS = ["metis", "grem", "ldg", "fennel", "reldg", "auto"]
if importlib.util.find_spec("kaminpar"):
    METHODS.append("kaminpar")


@pytest.fixture(scope="module")
def hubs():
    """A dense core of 60 vertices, a ring around it, and training vertices on one side of it."""
    random = np.random.default_rng(0)
    core = [(u, v) for u in range(60) for v in range(u) if random.random() < 0.5]
    ring = [(v, v + 1) for v in range(60, N - 1)] + [(v, v % 60) for v in range(60, N, 7)]
    return from_edges(N, core + ring, split=(np.arange(N) < 150).astype(np.int8))


def cut(graph, method, balance, parts=(4,)):
    return partition_graph(graph, PartitionRequest(parts, method, tolerance=TOLERANCE, balance=balance))


@pytest.mark.parametrize("method", METHODS)
def test_parts_have_equal_edges_or_work_where_that_is_wanted(method, hubs):
    before = cut(hubs, method, "training").figures()
    edges, work = (cut(hubs, method, balance).figures() for balance in ("edges", "work"))
    assert edges["edge_balance"] <= 1.1
    assert work["work_balance"] <= 1.1
    if method != "fennel":
        assert before["edge_balance"] > 1.2
    for figures in (edges, work):
        assert figures["vertex_balance"] <= TOLERANCE
    only = cut(hubs, method, "vertices").figures()
    assert only["vertex_balance"] <= TOLERANCE


def test_parts_within_groups_are_balanced_too(hubs):
    figures = cut(hubs, "grem", "edges", parts=(2, 2)).figures()
    assert figures["edge_balance"] <= 1.15
    assert figures["vertex_balance"] <= TOLERANCE


@pytest.mark.parametrize("method", ["hash", "random", "contiguous", "bgl", "pagraph"])
def test_a_method_that_cannot_balance_so_is_refused(method, hubs):
    with pytest.raises(ConfigError, match=f"--balance work: method {method} cannot"):
        cut(hubs, method, "work")


def test_work_is_what_sampling_is_expected_to_draw(hubs):
    work = sampled_work(hubs, (-1,))
    degrees = np.diff(hubs.indptr)
    # The root, its in-neighbours as rows, and their edges.
    assert work[:150].tolist() == (1 + 2 * degrees[:150]).tolist()
    assert not work[150:].any()
    hubs_without_split = from_edges(3, [(0, 1)])
    assert sampled_work(hubs_without_split, (-1,)).tolist() == [3, 3, 1]


def test_sizes_hold_where_one_vertex_outweighs_all_others():
    assignment, weights = np.zeros(10, np.int64), np.array([100] + [1] * 9, np.int32)
    nothing = np.zeros(11, np.int64), np.empty(0, np.int64)
    even_out(*nothing, assignment, weights, Caps(2, 5, 100))
    assert np.bincount(assignment).tolist() == [5, 5]
