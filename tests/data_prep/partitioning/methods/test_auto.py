"""Method auto: what it chooses, and that what it chose is what is stored."""

import pytest

from data_prep.partitioning.methods import auto
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from tests.support.graphs import communities


@pytest.mark.parametrize(
    ("edges", "memory", "method", "why"),
    [
        (10**7, 2**33, "metis", "few enough"),
        (0, 2**33, "grem", "metis would take long"),
        (10**7, 300 * 2**20, "ldg", "grem would need 0.3 GiB"),
        (10**7, 330 * 2**20, "grem", "metis would need 0.3 GiB of memory, and 0.3 GiB may be used"),
    ],
)
def test_size_and_memory_decide(monkeypatch, edges, memory, method, why):
    monkeypatch.setattr(auto, "METIS_EDGES", edges)
    monkeypatch.setattr(auto, "memory_needed", lambda graph: 80 * 2**20)
    chosen, reason = auto.choose(communities(), PartitionRequest((4,), memory=memory))
    assert chosen == method
    assert why in reason


def test_the_method_that_was_used_is_named():
    found = partition_graph(communities(), PartitionRequest((4,), "auto", 0))
    assert found.method == "metis"
    assert "quick" in found.figures()["method_reason"]
    assert "method_reason" not in partition_graph(communities(), PartitionRequest((4,), "metis", 0)).figures()
