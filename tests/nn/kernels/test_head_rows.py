"""Sums and products of rows by head in vectors, against plain definitions in float64."""

import numpy as np
import pytest
import torch

from leapmpi.nn.kernels import csr, head_rows, message_sums
from leapmpi.system.worker_threads import set_threads
from tests.nn.kernels.test_csr import CASES, edge_list

SHAPES = [(1, 16), (1, 68), (3, 4), (4, 16), (8, 8), (2, 24), (5, 20), (3, 96)]
"""Heads, and columns of each."""


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def _threads(request):
    set_threads(request.param)
    yield
    set_threads(1)


def operands(counts, sources, heads, columns):
    """An edge list with rows of both ends, and weights of edges."""
    indptr, indices = edge_list(counts, sources)
    generator = torch.Generator().manual_seed(heads)
    z, g = (torch.randn(rows, heads * columns, generator=generator) for rows in (sources, len(counts)))
    return indptr, indices, z, g, torch.randn(len(indices), heads, generator=generator)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(("heads", "columns"), SHAPES)
@pytest.mark.parametrize(("counts", "sources"), [*CASES.values(), ([7, 1, 90] * 50, 400)], ids=[*CASES, "many"])
def test_they_are_those_of_the_definition(counts, sources, heads, columns, index):
    indptr, indices, z, g, weight = operands(counts, sources, heads, columns)
    assert head_rows.serves(z, heads)
    rows = np.repeat(np.arange(len(counts)), counts)
    split = [each.double().view(len(each), heads, columns) for each in (z, g)]
    by_edge, mine = split[0][indices.long()], split[1][rows]

    sums = torch.zeros(len(counts), heads, columns, dtype=torch.float64)
    sums.index_add_(0, torch.from_numpy(rows), by_edge * weight[:, :, None].double())
    found = csr.weighted_sum(indptr, indices.to(index), weight, z)
    torch.testing.assert_close(found.double(), sums.flatten(1), rtol=1e-5, atol=1e-5)

    products = csr.edge_products(indptr, indices.to(index), g, z, heads)
    torch.testing.assert_close(products.double(), (by_edge * mine).sum(2), rtol=1e-5, atol=1e-5)

    attend = torch.linspace(-1, 1, heads * columns).view(heads, columns)
    scores = message_sums.pair_scores(indptr, indices.to(index), z, g, attend, 0.2)
    value = by_edge + mine
    expected = (torch.where(value > 0, value, 0.2 * value) * attend.double()).sum(2)
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-5)

    expected = torch.zeros(sources, heads, columns, dtype=torch.float64)
    expected.index_add_(0, indices.long(), mine * weight[:, :, None].double())
    added = torch.zeros(z.shape)
    csr.add_to_sources(added, indptr, indices.to(index), weight, g)
    torch.testing.assert_close(added.double(), expected.flatten(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("heads", "columns"), SHAPES)
def test_gradients_of_sources_have_the_bits_of_sums_of_the_transposed_edges(heads, columns):
    counts, sources = [7, 1, 90] * 50, 400
    indptr, indices, z, g, weight = operands(counts, sources, heads, columns)
    added = torch.zeros(z.shape)
    csr.add_to_sources(added, indptr, indices, weight, g)
    by_source, rows, number = csr.transpose(indptr, indices, sources)
    assert torch.equal(added, csr.weighted_sum(by_source, rows, weight[number], g))


def test_heads_of_other_widths_are_left_to_plain_kernels():
    assert not head_rows.serves(torch.zeros(2, 18), 3)
    assert not head_rows.serves(torch.zeros(2, 16, dtype=torch.float64), 1)
