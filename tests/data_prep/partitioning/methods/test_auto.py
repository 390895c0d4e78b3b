"""Method auto: what it chooses, and that what it chose is what is stored."""

import pytest

from data_prep.partitioning.methods import auto
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from tests.support.graphs import communities


@pytest.mark.parametrize(
    ("edges", "memory", "methods", "why"),
    [
        (10**6, 2**33, ("grem", "metis"), "few enough to try both"),
        (0, 2**33, ("grem",), "it cuts less than metis, and takes no longer"),
        (10**6, 300 * 2**20, ("ldg",), "grem would need 0.3 GiB"),
        (10**6, 330 * 2**20, ("grem",), "metis would need 0.3 GiB of memory, and 0.3 GiB may be used"),
    ],
)
def test_size_and_memory_decide(monkeypatch, edges, memory, methods, why):
    monkeypatch.setattr(auto, "SMALL_EDGES", edges)
    monkeypatch.setattr(auto, "memory_needed", lambda graph: 80 * 2**20)
    chosen, reason = auto.choose(communities(), PartitionRequest((4,), memory=memory))
    assert chosen == methods
    assert why in reason


@pytest.mark.parametrize(("levels", "seed"), [((4,), 0), ((2, 2), 1)])
def test_of_a_small_graph_the_better_cut_is_taken_and_named(levels, seed):
    found = partition_graph(communities(), PartitionRequest(levels, "auto", seed))
    tried = {name: partition_graph(communities(), PartitionRequest(levels, name, seed)) for name in ("grem", "metis")}
    cuts = {name: each.figures()["edge_cut"] for name, each in tried.items()}
    assert found.figures()["edge_cut"] == min(cuts.values()) == cuts[found.method]
    assert (found.assignment == tried[found.method].assignment).all()
    for name, each in tried.items():
        assert f"{name} cuts {each.figures()['edge_cut_share']:.2%}" in found.figures()["method_reason"]
    assert "method_reason" not in tried["metis"].figures()
