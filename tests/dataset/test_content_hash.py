"""The content identity: the kernel against plain Python integers, and its independence of the partition."""

import numpy as np
import pytest

from leapmpi.dataset.content_hash import FACTORS, content_lanes, uuid_of
from leapmpi.dataset.graph import content_uuid
from tests.support.graphs import random_graph

pytestmark = pytest.mark.compiles

MASK = 2**64 - 1


def mix(h):
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & MASK
    return h ^ (h >> 31)


def words(row):
    return np.atleast_1d(row).view(f"u{row.dtype.itemsize}").tolist()


def twin_lanes(graph):
    """content_lanes in plain integers, from its description in FORMAT.md."""
    totals = []
    for factor in FACTORS:
        total = 0
        for v in range(graph.vertices):
            neighbours = graph.original_id[graph.indices[graph.indptr[v] : graph.indptr[v + 1]]].tolist()
            h = mix(int(graph.original_id[v]) ^ factor)
            for word in [
                int(graph.split[v]),
                *words(graph.labels[v]),
                *words(graph.features[v]),
                len(neighbours),
                *neighbours,
            ]:
                h = (h ^ word) * factor & MASK
                h ^= h >> 32
            total = (total + mix(h)) & MASK
        totals.append(total)
    return totals


@pytest.mark.parametrize("kind", [{}, {"multilabel": True}, {"half": True}])
def test_kernel_agrees_with_plain_integers(kind):
    graph = random_graph(**kind)
    lanes = content_lanes(
        graph.original_id, graph.split, graph.labels, graph.features, graph.indptr, graph.indices, graph.original_id
    )
    assert lanes.tolist() == twin_lanes(graph)
    text = ""
    for h in twin_lanes(graph):
        for count in (graph.vertices, graph.edges, 5, 3):
            h = mix(h ^ count)
        text += f"{h:016x}"
    assert text == uuid_of(lanes, graph.vertices, graph.edges, 5, 3) == content_uuid(graph)


def test_missing_split_counts_as_no_split():
    graph = random_graph()
    graph.split[:] = 0
    before = content_uuid(graph)
    graph.split = None
    assert content_uuid(graph) == before
