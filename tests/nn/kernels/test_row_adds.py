"""Rows added along edges: the bits of the sums over the same edges by source, at any width and number of threads."""

import pytest
import torch

from leapmpi.nn.kernels import csr
from leapmpi.nn.tensors import Edges
from leapmpi.system.worker_threads import set_threads


def edges_and_weight(destinations=60, sources=37):
    torch.manual_seed(5)
    counts = torch.randint(0, 9, (destinations,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(sources - 2, (int(counts.sum()),)).int()
    return Edges(indptr, indices, sources), torch.randn(len(indices))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("width", [1, 5, 8, 15, 16, 17, 31, 32, 40, 47, 64, 100, 127, 128, 172])
def test_they_are_the_sums_by_source(width, threads, dtype):
    edges, weight = edges_and_weight()
    g = torch.randn(len(edges.indptr) - 1, width, dtype=dtype)
    by_source, number = edges.transposed
    expected = csr.weighted_sum(by_source.indptr, by_source.indices, weight.to(dtype)[number].unsqueeze(1), g)
    found = torch.zeros(edges.sources, width, dtype=dtype)
    set_threads(threads)
    csr.add_to_sources(found, edges.indptr, edges.indices, weight.to(dtype), g)
    set_threads(1)
    assert torch.equal(found, expected)


def test_they_add_to_what_is_there():
    edges, weight = edges_and_weight()
    g = torch.randn(len(edges.indptr) - 1, 24)
    found, before = torch.zeros(edges.sources, 24), torch.randn(edges.sources, 24)
    csr.add_to_sources(found, edges.indptr, edges.indices, weight, g)
    after = before.clone()
    csr.add_to_sources(after, edges.indptr, edges.indices, weight, g)
    torch.testing.assert_close(after, before + found)
    assert torch.equal(after[-2:], before[-2:])
